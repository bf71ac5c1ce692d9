"""The kernels of MXFP4 experts are chosen by one option: CLI, then environment, then the older variables, then auto."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from vllm_kit import MXFP4

Load = Callable[[str], ModuleType]
LEGACY = {
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": "SM100_FI_MXFP4_MXFP8_CUTLASS",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "SM100_FI_MXFP4_MXFP8_TRTLLM",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16": "SM100_FI_MXFP4_BF16",
    "VLLM_MXFP4_USE_MARLIN": "MARLIN",
}


@pytest.mark.parametrize(
    ("capability", "name", "member"),
    [
        ((10, 0), "marlin", "MARLIN"),
        ((10, 0), "triton", "TRITON"),
        ((10, 0), "cutlass", "SM100_FI_MXFP4_MXFP8_CUTLASS"),
        ((10, 3), "trtllm", "SM100_FI_MXFP4_BF16"),
        ((10, 0), "trtllm_mxfp8", "SM100_FI_MXFP4_MXFP8_TRTLLM"),
        ((9, 0), "cutlass", "SM90_FI_MXFP4_BF16"),
        ((9, 0), "triton", "TRITON"),
        ((8, 0), "marlin", "MARLIN"),
    ],
)
def test_what_is_asked_for(
    select: Callable[..., Any], mxfp4_backend: Any, capability: tuple[int, int], name: str, member: str
) -> None:
    assert select(capability, name, triton=True) is mxfp4_backend[member]
    assert select(capability, VLLM_MXFP4_BACKEND=name, triton=True) is mxfp4_backend[member]


@pytest.mark.parametrize(
    ("capability", "name", "options"),
    [
        ((9, 0), "trtllm", {}),
        ((9, 0), "trtllm_mxfp8", {}),
        ((8, 9), "cutlass", {}),
        ((10, 0), "cutlass", {"flashinfer": False}),
        ((10, 0), "cutlass", {"lora": True}),
        ((12, 1), "triton", {"triton": True}),
        ((12, 1), "trtllm", {}),
    ],
)
def test_what_is_impossible_is_an_error_that_lists_what_is_not(
    select: Callable[..., Any], capability: tuple[int, int], name: str, options: dict[str, bool]
) -> None:
    for where, asked in (("--mxfp4-backend", {"cli": name}), ("VLLM_MXFP4_BACKEND", {"VLLM_MXFP4_BACKEND": name})):
        said = select(capability, **asked, **options)
        assert isinstance(said, str), f"{name} was replaced by {said}"
        assert said.startswith(f"{where}={name}")
        assert "Available: auto, marlin" in said


def test_the_order(select: Callable[..., Any], mxfp4_backend: Any) -> None:
    legacy = {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "1"}
    environment = {"VLLM_MXFP4_BACKEND": "cutlass"}
    assert select((10, 0), "marlin", **environment, **legacy) is mxfp4_backend.MARLIN
    assert select((10, 0), **environment, **legacy) is mxfp4_backend.SM100_FI_MXFP4_MXFP8_CUTLASS
    assert select((10, 0), **legacy) is mxfp4_backend.SM100_FI_MXFP4_MXFP8_TRTLLM
    assert select((10, 0)) is mxfp4_backend.SM100_FI_MXFP4_BF16
    assert select((10, 0), "auto", **environment, **legacy) is mxfp4_backend.SM100_FI_MXFP4_BF16, "auto is a choice too"


@pytest.mark.parametrize("variable", LEGACY)
def test_the_older_variables(select: Callable[..., Any], mxfp4_backend: Any, variable: str) -> None:
    assert select((10, 0), **{variable: "1"}) is mxfp4_backend[LEGACY[variable]]


def test_the_older_variables_where_they_mean_another_kernel_or_none(
    select: Callable[..., Any], mxfp4_backend: Any
) -> None:
    assert select((9, 0), VLLM_USE_FLASHINFER_MOE_MXFP4_BF16="1") is mxfp4_backend.SM90_FI_MXFP4_BF16
    cutlass = {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS": "1"}
    assert select((9, 0), **cutlass) is mxfp4_backend.MARLIN, "SM90's kernel takes BF16, not MXFP8"
    with_lora = select((10, 0), lora=True, triton=True)
    assert with_lora in (mxfp4_backend.TRITON, mxfp4_backend.MARLIN)  # vLLM 0.14 changed which
    assert select((10, 0), lora=True, triton=True, **cutlass) is with_lora


@pytest.mark.parametrize(
    ("capability", "options", "member"),
    [
        ((8, 0), {}, "MARLIN"),
        ((9, 0), {}, "MARLIN"),
        ((9, 0), {"triton": True}, "TRITON"),
        ((10, 0), {"triton": True}, "SM100_FI_MXFP4_BF16"),
        ((10, 0), {"flashinfer": False, "triton": True}, "TRITON"),
        ((10, 0), {"lora": True}, "MARLIN"),
        ((11, 0), {"triton": True}, "MARLIN"),
    ],
)
def test_auto_is_as_before(
    select: Callable[..., Any], mxfp4_backend: Any, capability: tuple[int, int], options: dict[str, bool], member: str
) -> None:
    assert select(capability, **options) is mxfp4_backend[member]


@pytest.mark.parametrize(
    ("kind", "options", "member"),
    [
        ("ROCM", {"triton": True}, "TRITON"),
        ("ROCM", {}, "NONE"),
        ("ROCM", {"triton": True, "lora": True}, "NONE"),
        ("XPU", {}, "MARLIN"),
        ("XPU", {"triton": True}, "MARLIN"),
        ("XPU", {"lora": True}, "NONE"),
        ("CPU", {"triton": True}, "NONE"),
    ],
)
def test_other_platforms_keep_theirs(
    select: Callable[..., Any], mxfp4_backend: Any, parse: Callable[..., Any], kind: str, options: dict[str, bool],
    member: str,
) -> None:  # fmt: skip
    assert hasattr(parse(), "mxfp4_backend"), "no option, and nothing to ask"
    assert select((9, 4), kind=kind, **options) is mxfp4_backend[member]
    if member == "TRITON":
        assert select((9, 4), "triton", kind=kind, **options) is mxfp4_backend[member]
        assert "Available: auto, triton." in select((9, 4), "marlin", kind=kind, **options)


def test_an_older_torch_has_no_triton(
    upstream_import: Load, select: Callable[..., Any], mxfp4_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(MXFP4)
    assert select((9, 0), triton=True) is mxfp4_backend.TRITON
    monkeypatch.setattr(module, "is_torch_equal_or_newer", lambda version: version != "2.8.0")
    assert select((9, 0), triton=True) is mxfp4_backend.MARLIN


def test_marlin_can_be_had_on_sm100(select: Callable[..., Any], mxfp4_backend: Any) -> None:
    assert select((10, 0), VLLM_MXFP4_USE_MARLIN="1", triton=True) is mxfp4_backend.MARLIN
    assert select((10, 0), VLLM_MXFP4_USE_MARLIN="1", triton=True, lora=True) is mxfp4_backend.MARLIN


@pytest.mark.parametrize(("capability", "warned"), [((9, 0), True), ((10, 0), True), ((8, 9), False), ((12, 1), False)])
def test_a_missing_flashinfer_is_said_where_it_matters(
    select: Callable[..., Any], parse: Callable[..., Any], log: list[str], capability: tuple[int, int], warned: bool
) -> None:
    assert hasattr(parse(), "mxfp4_backend")
    select(capability, flashinfer=False)
    assert bool([line for line in log if line.startswith("WARNING") and "FlashInfer is not" in line]) is warned
    del log[:]
    select(capability, flashinfer=True)
    assert not [line for line in log if "is not available" in line]


def test_which_it_is_and_by_lora_is_said(
    select: Callable[..., Any], mxfp4_backend: Any, log: list[str], parse: Callable[..., Any]
) -> None:
    assert hasattr(parse(), "mxfp4_backend")
    assert "with LoRA. Available" in select((10, 0), "trtllm", lora=True)
    assert "with LoRA" not in select((9, 0), "trtllm")


NAMES = ["auto", "marlin", "triton", "cutlass", "trtllm", "trtllm_mxfp8"]


def test_the_command_line(parse: Callable[..., Any]) -> None:
    assert isinstance(parse("--mxfp4-backend", "no-such-thing"), str)
    for name in NAMES:
        made = parse("--mxfp4-backend", name)
        assert not isinstance(made, str), made
        assert made.mxfp4_backend == name
    assert parse().mxfp4_backend is None


@pytest.mark.parametrize("name", NAMES)
def test_the_variable(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    envs = upstream_import("vllm.envs")
    assert "VLLM_MXFP4_BACKEND" in envs.environment_variables
    monkeypatch.delenv("VLLM_MXFP4_BACKEND", raising=False)
    assert envs.VLLM_MXFP4_BACKEND is None
    monkeypatch.setenv("VLLM_MXFP4_BACKEND", name)
    try:
        found = envs.VLLM_MXFP4_BACKEND
    except ValueError as error:
        pytest.fail(f"refused: {error}")
    assert found == name


def test_a_variable_of_auto_is_a_choice_too(select: Callable[..., Any], mxfp4_backend: Any) -> None:
    legacy = {"VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8": "1"}
    assert select((10, 0), VLLM_MXFP4_BACKEND="auto", **legacy) is mxfp4_backend.SM100_FI_MXFP4_BF16
    assert select((10, 0), "auto", VLLM_MXFP4_BACKEND="marlin") is mxfp4_backend.SM100_FI_MXFP4_BF16


def test_without_a_model_the_variable_decides(
    upstream_import: Load, select: Callable[..., Any], mxfp4_backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = upstream_import(MXFP4)
    assert select((10, 0), "marlin") is mxfp4_backend.MARLIN
    monkeypatch.setattr(module, "get_current_vllm_config", lambda: SimpleNamespace(model_config=None))
    try:
        found = module.get_mxfp4_backend(False)
    except AttributeError as error:
        pytest.fail(f"a model is asked that isn't there: {error}")
    assert found is mxfp4_backend.SM100_FI_MXFP4_BF16
    monkeypatch.setenv("VLLM_MXFP4_BACKEND", "triton")
    assert "VLLM_MXFP4_BACKEND=triton" in refused(module)
    monkeypatch.setattr(module, "has_triton_kernels", lambda: True)
    assert module.get_mxfp4_backend(False) is mxfp4_backend.TRITON


def refused(module: ModuleType) -> str:
    with pytest.raises(ValueError, match="can't run") as caught:
        module.get_mxfp4_backend(False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("capability", "options", "names"),
    [
        ((8, 0), {}, "marlin"),
        ((9, 0), {"triton": True}, "marlin, triton, cutlass"),
        ((10, 3), {"triton": True}, "marlin, triton, cutlass, trtllm, trtllm_mxfp8"),
        ((10, 0), {"triton": True, "flashinfer": False}, "marlin, triton"),
        ((10, 0), {"triton": True, "lora": True}, "marlin, triton"),
        ((11, 0), {"triton": True}, "marlin"),
    ],
)
def test_all_that_is_available(
    select: Callable[..., Any], capability: tuple[int, int], options: dict[str, bool], names: str
) -> None:
    said = select(capability, "no-such-thing", **options)
    assert isinstance(said, str), f"no error, but {said}"
    assert said.endswith(f"Available: auto, {names}.")


def test_it_is_in_the_hash(parse: Callable[..., Any]) -> None:
    hashes = {value: parse(*line) for value, line in {"": [], "m": ["--mxfp4-backend", "marlin"]}.items()}
    assert not isinstance(hashes["m"], str), hashes["m"]
    assert len({made.compute_hash() for made in hashes.values()}) == 2
    assert parse().compute_hash() == hashes[""].compute_hash()


def test_the_variable_is_checked_and_in_the_compile_factors(
    upstream_import: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = upstream_import("vllm.envs")
    assert "VLLM_MXFP4_BACKEND" in envs.environment_variables
    monkeypatch.setenv("VLLM_MXFP4_BACKEND", "cutlass")
    assert envs.compile_factors()["VLLM_MXFP4_BACKEND"] == "cutlass"
    monkeypatch.setenv("VLLM_MXFP4_BACKEND", "no-such-thing")
    with pytest.raises(ValueError, match="trtllm_mxfp8"):
        _ = envs.VLLM_MXFP4_BACKEND
