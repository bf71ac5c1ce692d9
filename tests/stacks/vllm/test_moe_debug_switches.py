"""The switches that look into routing and activations are off by default, in real runs and during capture."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from vllm_kit import MXFP4, apply_moe, moe_layer, moe_method, needed_module

Load = Callable[[str], ModuleType]
EXPERTS, TOP_K = 128, 4
EQUIVALENT_MUTANTS = {
    "e19c0dabdb": "what stands under TYPE_CHECKING is not run",
    "2aca48d80b": "what stands under TYPE_CHECKING is not run",
    "3ef25098f5": "what stands under TYPE_CHECKING is not run",
    "7570e7c214": "ids have two dimensions: the last one is the second",
}


@pytest.fixture
def debug(upstream_import: Load) -> Callable[[], ModuleType]:
    upstream_import("vllm.model_executor.layers.fused_moe")
    return lambda: needed_module("vllm.model_executor.layers.fused_moe.debug")


@pytest.fixture
def run(
    upstream_import: Load, debug: Callable[[], ModuleType], config: Any, monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Route 6 tokens, all to the same experts, in a run of a kind; returns weights and ids."""
    context = upstream_import("vllm.forward_context")

    def route(
        dummy: bool | None = False, capturing: bool = False, experts: int = EXPERTS, profile: bool = False,
        **switches: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        for name, value in switches.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(debug(), "_is_capturing", lambda: capturing)
        ids = torch.tensor([[3, 1, 2, 0]] * 6, dtype=torch.int32)
        weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]] * 6)
        if dummy is None:
            result = debug().debug_routing(weights, ids, experts)
        else:
            with context.set_forward_context(None, config, is_dummy_run=dummy, is_profile_run=profile):
                result = debug().debug_routing(weights, ids, experts)
        return tuple(result)

    return route


def untouched(result: tuple[torch.Tensor, torch.Tensor]) -> bool:
    return result[1].tolist() == [[3, 1, 2, 0]] * 6 and result[0][0].tolist() == pytest.approx([0.4, 0.3, 0.2, 0.1])


UNIFORM = {"VLLM_MOE_WARMUP_FORCE_UNIFORM": "1"}


@pytest.mark.parametrize("dummy", [None, False, True])
def test_nothing_by_default(run: Callable[..., Any], log: list[str], dummy: bool | None) -> None:
    assert untouched(run(dummy))
    assert not [line for line in log if "Routing" in line]


def test_uniform_in_a_dummy_run(run: Callable[..., Any]) -> None:
    weights, ids = run(True, **UNIFORM)
    assert ids.dtype is torch.int32
    assert sorted(ids.flatten().tolist()) == list(range(24)), "each token its own experts"
    assert all(len(set(row)) == TOP_K for row in ids.tolist())
    assert (weights == 0.25).all()


def test_uniform_in_the_profile_run_too(run: Callable[..., Any]) -> None:
    _, ids = run(True, profile=True, **UNIFORM)
    assert sorted(ids.flatten().tolist()) == list(range(24))


@pytest.mark.parametrize("experts", [4, 6, 10])
def test_uniform_over_fewer_experts_than_choices(run: Callable[..., Any], experts: int) -> None:
    """From the first expert to the last, again and again."""
    weights, ids = run(True, experts=experts, **UNIFORM)
    assert ids.flatten().tolist() == [i % experts for i in range(24)]
    assert all(len(set(row)) == TOP_K for row in ids.tolist())
    assert (weights == 0.25).all()
    assert weights.dtype is torch.float32


@pytest.mark.parametrize("switches", [{"VLLM_MOE_ROUTING_LOG": "0"}, {"VLLM_MOE_WARMUP_FORCE_UNIFORM": "0"}])
def test_off_is_off(run: Callable[..., Any], log: list[str], switches: dict[str, str]) -> None:
    assert untouched(run(True, **switches))
    assert not [line for line in log if "Routing" in line]


def test_a_log_alone_spreads_no_dummy_run(run: Callable[..., Any], log: list[str]) -> None:
    assert untouched(run(True, VLLM_MOE_ROUTING_LOG="1"))
    assert len([line for line in log if "Routing" in line]) == 1


def test_what_is_logged_is_the_even_routing(run: Callable[..., Any], log: list[str]) -> None:
    run(True, experts=10, VLLM_MOE_ROUTING_LOG="1", **UNIFORM)
    said = [line for line in log if "Routing" in line]
    assert said == ["INFO Routing: 6 tokens, 0 of 10 experts without one, at most 3 for one"]


@pytest.mark.parametrize("dummy", [None, False], ids=["no context", "a real run"])
def test_not_in_real_runs(run: Callable[..., Any], dummy: bool | None) -> None:
    assert untouched(run(dummy, **UNIFORM))


def test_not_during_capture(run: Callable[..., Any], log: list[str]) -> None:
    """What is captured is replayed for requests."""
    assert untouched(run(True, capturing=True, VLLM_MOE_ROUTING_LOG="1", **UNIFORM))
    assert not [line for line in log if "Routing" in line]


@pytest.mark.parametrize("capturing", [False, True])
def test_what_counts_as_capture(
    debug: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch, capturing: bool
) -> None:
    """CUDA is what says so, where it is."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert debug()._is_capturing() is capturing
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert debug()._is_capturing() is False


def test_uniform_routing_stays_on_its_device(
    upstream_import: Load, debug: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch, config: Any
) -> None:
    monkeypatch.setenv("VLLM_MOE_WARMUP_FORCE_UNIFORM", "1")
    ids = torch.zeros(6, TOP_K, dtype=torch.int32, device="meta")
    with upstream_import("vllm.forward_context").set_forward_context(None, config, is_dummy_run=True):
        weights, spread = debug().debug_routing(torch.zeros(6, TOP_K, device="meta"), ids, EXPERTS)
    assert spread is not ids
    assert (weights.device.type, spread.device.type, spread.dtype) == ("meta", "meta", torch.int32)


def test_the_routing_log(run: Callable[..., Any], log: list[str]) -> None:
    assert untouched(run(False, VLLM_MOE_ROUTING_LOG="1"))
    (said,) = [line for line in log if "Routing" in line]
    assert said == "INFO Routing: 6 tokens, 124 of 128 experts without one, at most 6 for one"


@pytest.mark.parametrize("capturing", [False, True])
def test_the_quantization_log(
    debug: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch, log: list[str], capturing: bool
) -> None:
    monkeypatch.setattr(debug(), "_is_capturing", lambda: capturing)
    x = torch.tensor([[1.0, -448.0, float("inf"), 2.0] * 8]).bfloat16()
    arguments = (x, x.clamp(-448, 448).to(torch.float8_e4m3fn), torch.tensor([127, 130], dtype=torch.uint8))
    debug().debug_quantized(*arguments)
    assert not [line for line in log if "MXFP8" in line], "off by default"
    monkeypatch.setenv("VLLM_MXFP8_QUANT_LOG", "1")
    debug().debug_quantized(*arguments)
    said = [line for line in log if "MXFP8" in line]
    assert len(said) == (0 if capturing else 1)
    if said:
        assert "|x| up to inf with 8 not finite, quantized up to 448 with 0 not finite" in said[0]
        assert "scales (2,) from 127 to 130" in said[0]


def test_all_that_the_quantization_log_says(
    debug: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> None:
    """Of negative values, and of buffers that TMA can't read from."""
    monkeypatch.setattr(debug(), "_is_capturing", lambda: False)
    monkeypatch.setenv("VLLM_MXFP8_QUANT_LOG", "1")
    x = torch.tensor([[1.0, -300.0, 2.0, 0.5] * 8]).bfloat16()
    values = (x / 4).to(torch.float8_e4m3fn)
    values[0, 2] = float("nan")
    scales = torch.tensor([9, 120, 131, 140, 7], dtype=torch.uint8)
    bytes_ = torch.zeros(64, dtype=torch.uint8)
    bytes_[1:33] = values.view(torch.uint8)[0]
    apart = torch.zeros(64, dtype=torch.uint8)
    apart[8:13] = scales
    said = []
    for quantized, scale in ((values, scales), (bytes_[1:33].view(values.dtype)[None], scales), (values, apart[8:13])):
        before = [t.data_ptr() % 16 == 0 for t in (quantized, scale)]
        del log[:]
        debug().debug_quantized(x, quantized, scale)
        said.append((log[-1].partition(", aligned")[0], log[-1].partition("aligned to 16: ")[2], before))
    assert {words for words, _, _ in said} == {
        "INFO MXFP8: (1, 32) torch.bfloat16, |x| up to 300 with 0 not finite, quantized up to nan with 1 not finite, "
        "scales (5,) from 7 to 140"
    }
    assert [aligned for _, aligned, _ in said] == [f"values {v}, scales {s}" for _, _, (v, s) in said]
    assert [before for _, _, before in said][1:] == [[False, True], [True, False]]


def test_the_cutlass_path_asks(
    upstream_import: Load, debug: Callable[[], ModuleType], monkeypatch: pytest.MonkeyPatch, config: Any, log: list[str]
) -> None:
    """From Mxfp4MoEMethod.apply to the kernel: the kernel gets the even routing, in a dummy run only."""
    debug()
    module, context = upstream_import(MXFP4), upstream_import("vllm.forward_context")
    got: list[torch.Tensor] = []
    monkeypatch.setattr(
        upstream_import("vllm.utils.flashinfer"), "flashinfer_cutlass_fused_moe",
        lambda **kwargs: got.append(kwargs["token_selected_experts"]),
    )  # fmt: skip
    quantized = (torch.full((2, 64), 3.0).to(torch.float8_e4m3fn), torch.full((4,), 130, dtype=torch.uint8))
    monkeypatch.setattr(upstream_import("flashinfer"), "mxfp8_quantize", lambda x, *args: quantized)
    for name in ("VLLM_MOE_WARMUP_FORCE_UNIFORM", "VLLM_MXFP8_QUANT_LOG"):
        monkeypatch.setenv(name, "1")
    made = moe_method(module, 512, 8192, "SM100_FI_MXFP4_MXFP8_CUTLASS")
    layer = moe_layer()
    layer.local_num_experts = 4  # of 8: the rest are another rank's
    for dummy in (False, True):
        with context.set_forward_context(None, config, is_dummy_run=dummy):
            apply_moe(made, torch.full((2, 64), -5.0).bfloat16(), torch.zeros(2, 8), layer)
    assert [ids.tolist() for ids in got] == [[[0] * 4] * 2, [[0, 1, 2, 3], [4, 5, 6, 7]]]
    said = [line for line in log if "MXFP8:" in line]
    assert len(said) == 2
    assert "|x| up to 5 with 0 not finite, quantized up to 3 with 0 not finite, scales (4,) from 130 to 130" in said[0]
