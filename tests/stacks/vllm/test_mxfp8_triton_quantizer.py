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
    expected_values, expected_scales = reference(x)
    # Rows of a wider tensor: numbers lie between them and behind the last.
    wider = torch.full((len(x) + 1, x.shape[1] + 96), 7.0).to(x.dtype)
    wider[: len(x), : x.shape[1]] = x
    for given in (x, wider[: len(x), : x.shape[1]]):
        values, scales = module.mxfp8_quantize_swizzled(given)
        if values.dtype != torch.float8_e4m3fn or scales.dtype != torch.uint8:
            wrong.append(f"{name}: types")
        if values.shape != x.shape or not torch.equal(values.view(torch.uint8), expected_values.view(torch.uint8)):
            wrong.append(f"{name}: values")
        if scales.shape != expected_scales.shape or not torch.equal(scales, expected_scales):
            wrong.append(f"{name}: scales")
near = dequantize(*reference(torch.randn(3, 160).bfloat16())).bfloat16()
for one, other in zip(module.mxfp8_quantize_swizzled(near), module.mxfp8_quantize_swizzled(far_apart(near))):
    if not torch.equal(one.view(torch.uint8), other.view(torch.uint8)):
        wrong.append("rows far apart")
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
        # The kernel is for rows whose scales are swizzled, on any GPU. All else is quantized as before.
        swizzled, in_rows = torch.zeros(2, 64, dtype=torch.bfloat16), torch.ones(2, 64, dtype=torch.bfloat16)
        batches = torch.zeros(3, 2, 64, dtype=torch.bfloat16)
        for capability, before in (((12, 1), "FlashInfer"), ((10, 0), "FlashInfer"), ((9, 0), "torch")):
            device(*capability, "vllm.platforms")
            monkeypatch.setattr(module, "_mxfp8_e4m3_quantize_torch", note("torch"))
            for x, layout, by_kernel in ((swizzled, True, True), (in_rows, False, False), (batches, True, False)):
                got.clear(), given.clear()
                quantized = module._mxfp8_e4m3_quantize_impl(x, layout)
                assert got == ["Triton" if switch == "1" and by_kernel else before]
                assert given[0] is x
                assert quantized[0] is answer[0]
                assert len(given) == 1 or got != ["Triton"]
                assert quantized[1] is answer[1] or (got == ["FlashInfer"] and not layout)
        return
    made = moe_method(module, 512, 8192, "SM100_FI_MXFP4_MXFP8_CUTLASS")
    x = torch.zeros(2, 64, dtype=torch.bfloat16)
    apply_moe(made, x, torch.zeros(2, 8))
    assert got == ["Triton" if switch == "1" else "FlashInfer"]
    assert given[0] is x
    swizzled = [] if switch == "1" else [True, 32]
    assert [(type(v), v) for v in given[1:]] == [(type(v), v) for v in swizzled]
    assert reached.experts == 2
