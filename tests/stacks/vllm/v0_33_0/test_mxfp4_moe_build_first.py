"""FlashInfer's MXFP4 MoE is compiled on SM12x when a layer's method is made, so before there are weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from flashinfer_moe import FULL
from moe_build_first import BuiltFirst, again
from vllm_kit import MXFP4, need

Load = Callable[[str], ModuleType]
#: The backend whose kernels are compiled first.
COMPILED = "FLASHINFER_CUTLASS_MXFP4_MXFP8"
KINDS = ["GptOssMxfp4MoEMethod", "Mxfp4MoEMethod"]


@pytest.fixture
def method(
    upstream_import: Load, moe_config: Callable[..., Any], quant_config: Callable[..., Any]
) -> Callable[..., Any]:
    """A quantization method for experts on a GPU, with --moe-backend as given and MXFP8 activations asked for."""
    module = upstream_import(MXFP4)
    # Before the log is listened to: this configures vLLM's anew.
    quant_config(moe={"activation": "mxfp8"})

    last: dict[tuple[str, tuple[int, int]], Any] = {}

    def make(
        capability: tuple[int, int] = (12, 1), backend: str = "flashinfer_cutlass", kind: str = "GptOssMxfp4MoEMethod"
    ) -> Any:
        if (backend, capability) not in last:  # it forgets what was asked for the last one
            last.clear()
            last[backend, capability] = moe_config(backend, capability)
        return getattr(module, kind)(last[backend, capability])

    return make


class TestMxfp4MoEBuiltFirst(BuiltFirst):
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
    def test_it_is_compiled_and_loaded_once_before_there_are_weights(
        self,
        method: Callable[..., Any],
        flashinfer: SimpleNamespace,
        log: list[str],
        capability: tuple[int, int],
        kind: str,
    ) -> None:
        made = method(capability, kind=kind)
        name, asked = flashinfer.mxfp4, len(flashinfer.asked)
        assert name != FULL
        assert flashinfer.events == [("compile", name), ("load", name)]
        (line,) = [said for said in log if "ompil" in said]
        assert line.startswith("INFO ")
        assert f"({name})" in line
        assert "first start only" in line
        assert str(flashinfer.jit_dir / name) in line
        assert type(method(capability, kind=kind)) is type(made)
        if capability == (12, 1):
            flashinfer.called()
        assert len(flashinfer.asked) == asked, "a second layer asks for it again"
        assert flashinfer.events == [("compile", name), ("load", name)], (
            "a second layer, or the forward, loads it again"
        )

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        ("capability", "backend"),
        [((12, 1), "marlin"), ((10, 0), "flashinfer_cutlass"), ((9, 0), "marlin")],
    )
    def test_other_gpus_and_backends_compile_nothing(
        self,
        method: Callable[..., Any],
        flashinfer: SimpleNamespace,
        capability: tuple[int, int],
        backend: str,
        kind: str,
        upstream_import: Load,
    ) -> None:
        method()
        assert flashinfer.events != []
        flashinfer.events.clear()
        flashinfer.asked.clear()
        again(upstream_import)  # or it would be done already
        method(capability, backend, kind)
        assert flashinfer.events == []
        assert flashinfer.asked == [], "what is loaded already isn't loaded again, but it is asked for"

    @pytest.mark.parametrize("kind", KINDS)
    def test_auto_compiles_what_it_selects(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, upstream_import: Load, kind: str
    ) -> None:
        """For gpt-oss's experts with MXFP8 activations that is FlashInfer's CUTLASS MoE."""
        method()
        flashinfer.asked.clear()
        again(upstream_import)
        selected = method((12, 1), "auto", kind).mxfp4_backend.name == COMPILED
        assert selected is (kind == "GptOssMxfp4MoEMethod")
        assert bool(flashinfer.asked) is selected

    @pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1), (13, 0)])
    def test_one_backend_compiles(
        self, upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
        capability: tuple[int, int],
    ) -> None:  # fmt: skip
        """Of all that there are, on all GPUs, whether or not one is selected there."""
        oracle = upstream_import("vllm.model_executor.layers.fused_moe.oracle.mxfp4")
        build, compiled = need(oracle, "build_mxfp4_moe_kernels"), []
        monkeypatch.setattr(oracle, "build_flashinfer_sm12x_cutlass_moe", lambda: compiled.append(backend.name))
        device(*capability, oracle.__name__)
        for backend in oracle.Mxfp4MoeBackend:
            build(backend)
        assert compiled == ([COMPILED] if capability[0] == 12 else [])
