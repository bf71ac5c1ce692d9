"""FlashInfer's MXFP4 MoE is compiled on SM12x when a layer's method is made, so before there are weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_moe
import pytest
from flashinfer_moe import FULL
from vllm_kit import MXFP4, forget

Load = Callable[[str], ModuleType]
LAYER = "vllm.model_executor.layers.fused_moe.layer"


@pytest.fixture
def flashinfer(
    upstream_import: Load, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    with flashinfer_moe.recorded(upstream_import, trees, monkeypatch, tmp_path) as recorded:
        yield recorded


@pytest.fixture
def method(upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The method that vLLM's quantization makes for a layer of experts, on a GPU, where a backend is chosen."""
    module, layer = upstream_import(MXFP4), upstream_import(LAYER)
    config = SimpleNamespace(
        compilation_config=SimpleNamespace(max_cudagraph_capture_size=512),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=8192),
    )
    monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
    monkeypatch.setattr(module, "get_marlin_input_dtype", lambda _: None)
    last: list[tuple[int, int]] = []

    def make(capability: tuple[int, int] = (12, 1), backend: str = "SM100_FI_MXFP4_MXFP8_CUTLASS") -> Any:
        if last != [capability]:  # it forgets what was asked for the last one
            device(*capability, MXFP4, "vllm.utils.flashinfer")
            last[:] = [capability]
        monkeypatch.setattr(module, "get_mxfp4_backend", lambda _: module.Mxfp4Backend[backend])
        experts = object.__new__(layer.FusedMoE)
        experts.__dict__["moe_config"] = SimpleNamespace(
            is_lora_enabled=False, tp_size=1, tp_rank=0, ep_size=1, ep_rank=0, dp_size=1
        )
        return module.Mxfp4Config().get_quant_method(experts, "model.layers.0.mlp.experts")

    return make


def again(load: Load) -> None:
    """As another process."""
    forget(load("vllm.utils.flashinfer"))


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_it_is_compiled_and_loaded_once_before_there_are_weights(
    method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], capability: tuple[int, int]
) -> None:
    made = method(capability)
    name, asked = flashinfer.mxfp4, len(flashinfer.asked)
    assert name != FULL
    assert flashinfer.events == [("compile", name), ("load", name)]
    (line,) = [said for said in log if "ompil" in said]
    assert line.startswith("INFO ")
    assert name in line
    assert "first start only" in line
    assert str(flashinfer.jit_dir / name) in line
    assert type(method(capability)) is type(made)
    if capability == (12, 1):
        flashinfer.called()
    assert len(flashinfer.asked) == asked, "a second layer asks for it again"
    assert flashinfer.events == [("compile", name), ("load", name)], "a second layer, or the forward, loads it again"


@pytest.mark.parametrize("name", ["its own", FULL])
def test_what_is_compiled_ahead_is_loaded_without_a_word(
    method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], upstream_import: Load, name: str
) -> None:
    """In a flashinfer-jit-cache; also where nothing may be compiled."""
    name = name if name == FULL else flashinfer.mxfp4
    flashinfer.ahead(name)
    method()
    flashinfer.called()
    assert flashinfer.events == [("load", name)]
    assert [said for said in log if "ompil" in said] == []


def test_nor_is_anything_said_at_the_second_start(
    method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], upstream_import: Load
) -> None:
    method()
    log.clear()
    again(upstream_import)
    forget(upstream_import("vllm.logger"))
    method()
    assert [said for said in log if "ompil" in said] == []


def test_a_flashinfer_with_one_module_for_all_dtypes_compiles_that(
    method: Callable[..., Any], flashinfer: SimpleNamespace
) -> None:
    flashinfer.older()
    method()
    flashinfer.called()
    assert flashinfer.events == [("compile", FULL), ("load", FULL)]


def test_where_nothing_may_be_compiled_the_forward_says_what_is_missing(
    method: Callable[..., Any], flashinfer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, upstream_import: Load,
    log: list[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
    method()
    assert flashinfer.events == []
    assert [said for said in log if "ompil" in said] == []
    with pytest.raises(RuntimeError, match="FLASHINFER_DISABLE_JIT"):
        flashinfer.called()
    flashinfer.ahead(flashinfer.mxfp4)
    again(upstream_import)
    method()
    assert flashinfer.events == [("load", flashinfer.mxfp4)], "what is there may be loaded"


def test_an_error_of_the_compiler_comes_before_the_weights(
    method: Callable[..., Any], flashinfer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Ninja build failed.")

    monkeypatch.setattr(flashinfer.specs, "run_ninja", fails)
    said = ""
    try:
        method()
    except RuntimeError as error:
        said = str(error)
    assert said == "Ninja build failed."


@pytest.mark.parametrize(
    ("capability", "backend"),
    [
        ((12, 1), "MARLIN"),
        ((12, 1), "TRITON"),
        ((10, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
        ((10, 3), "SM100_FI_MXFP4_BF16"),
        ((11, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
        ((9, 0), "SM90_FI_MXFP4_BF16"),
    ],
)
def test_other_gpus_and_backends_compile_nothing(
    method: Callable[..., Any], flashinfer: SimpleNamespace, capability: tuple[int, int], backend: str
) -> None:
    method()
    assert flashinfer.events != []
    flashinfer.events.clear()
    method(capability, backend)
    assert flashinfer.events == []
