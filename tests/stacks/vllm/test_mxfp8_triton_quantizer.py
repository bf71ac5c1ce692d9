"""The Triton kernel's MXFP8 is the float64 reference's, bit for bit, its scales in CUTLASS's 128x4 layout.

The real kernel in Triton's interpreter, in a process of its own: vLLM turns Triton off without a GPU.
The interpreter converts to FP8 wrongly (ties, carries into the exponent, subnormals), so here the inputs are
such that nothing is rounded. The rounding is shown on a GPU, and how fast it is: docs/evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import interpreted
import pytest
import torch
from vllm_kit import MXFP4, apply_moe, moe_method, need

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {
    "6b15457345": "what stands under TYPE_CHECKING is not run",
    "650bec0fbb": "the lowest bit of a mantissa is 0 in every BF16 and FP16, which are what is quantized",
}
SCRIPT = """
from mxfp8_reference import cases, dequantize, reference
wrong = []
for name, x in cases():
    if name == "subnormal":
        continue
    x = dequantize(*reference(x)).to(x.dtype)
    values, scales = module.mxfp8_quantize_swizzled(x)
    expected_values, expected_scales = reference(x)
    if not torch.equal(values.view(torch.uint8), expected_values.view(torch.uint8)):
        wrong.append(f"{name}: values")
    if not torch.equal(scales, expected_scales):
        wrong.append(f"{name}: scales")
refused = []
for name, x in (("half a block", torch.zeros(2, 48)), ("rows apart", torch.zeros(64, 2).T)):
    try:
        module.mxfp8_quantize_swizzled(x.bfloat16())
    except AssertionError:
        refused.append(name)
print(json.dumps({"wrong": wrong, "cases": len(cases()), "refused": refused}))
"""


def test_the_kernel(upstream_import: Load) -> None:
    upstream_import("vllm")
    result = interpreted.run("vllm.model_executor.layers.quantization.utils.mxfp8_triton", SCRIPT)
    assert result["wrong"] == []
    assert result["cases"] > 5
    assert result["refused"] == ["half a block", "rows apart"]


@pytest.mark.parametrize("switch", [None, "0", "1"])
def test_the_switch(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any, device: Callable[..., Any], switch: str | None
) -> None:
    """Off, the experts' activations are FlashInfer's; on, the kernel's."""
    moe = upstream_import(MXFP4)
    inline = hasattr(moe, "Mxfp4Backend")  # from v0.20.0 quantization is a step of its own
    module = moe if inline else upstream_import("vllm.model_executor.layers.quantization.utils.mxfp8_utils")
    need(module, "mxfp8_quantize_swizzled")
    got: list[str] = []
    given: list[Any] = []
    answer = (torch.zeros(2, 64).to(torch.float8_e4m3fn), torch.zeros(4, dtype=torch.uint8))

    def note(who: str) -> Callable[..., Any]:
        return lambda *arguments, **k: (got.append(who), given.extend(arguments), answer)[-1]

    monkeypatch.setattr(module, "mxfp8_quantize_swizzled", note("Triton"))
    monkeypatch.setattr(upstream_import("flashinfer"), "mxfp8_quantize", note("FlashInfer"))
    reached = SimpleNamespace(experts=0)
    monkeypatch.setattr(
        upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe",
        lambda **kwargs: setattr(reached, "experts", kwargs["input"].shape[0]),
    )  # fmt: skip
    if switch is None:
        monkeypatch.delenv("VLLM_MXFP8_TRITON_QUANTIZE", raising=False)
    else:
        monkeypatch.setenv("VLLM_MXFP8_TRITON_QUANTIZE", switch)
    if not inline:
        device(12, 1, "vllm.platforms")
        module._mxfp8_e4m3_quantize_impl(torch.zeros(2, 64, dtype=torch.bfloat16), True)
        assert got == ["Triton" if switch == "1" else "FlashInfer"]
        return
    made = moe_method(module, 512, 8192, "SM100_FI_MXFP4_MXFP8_CUTLASS")
    x = torch.zeros(2, 64, dtype=torch.bfloat16)
    apply_moe(made, x, torch.zeros(2, 8))
    assert got == ["Triton" if switch == "1" else "FlashInfer"]
    assert given[0] is x
    swizzled = [] if switch == "1" else [True, 32]
    assert [(type(v), v) for v in given[1:]] == [(type(v), v) for v in swizzled]
    assert reached.experts == 2
