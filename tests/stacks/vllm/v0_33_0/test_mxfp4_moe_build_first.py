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
KINDS = ["GptOssMxfp4MoEMethod", "Mxfp4MoEMethod"]


@pytest.fixture
def flashinfer(
    upstream_import: Load, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    with flashinfer_moe.recorded(upstream_import, trees, monkeypatch, tmp_path) as recorded:
        yield recorded


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


def again(load: Load) -> None:
    """As another process."""
    forget(load("vllm.utils.flashinfer"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_it_is_compiled_and_loaded_once_before_there_are_weights(
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
    assert name in line
    assert "first start only" in line
    assert str(flashinfer.jit_dir / name) in line
    assert type(method(capability, kind=kind)) is type(made)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("capability", "backend"),
    [((12, 1), "marlin"), ((12, 1), "auto"), ((10, 0), "flashinfer_cutlass"), ((9, 0), "marlin")],
)
def test_other_gpus_and_backends_compile_nothing(
    method: Callable[..., Any], flashinfer: SimpleNamespace, capability: tuple[int, int], backend: str, kind: str
) -> None:
    method()
    assert flashinfer.events != []
    flashinfer.events.clear()
    method(capability, backend, kind)
    assert flashinfer.events == []
