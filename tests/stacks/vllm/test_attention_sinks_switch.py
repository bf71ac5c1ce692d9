"""VLLM_ATTENTION_SINKS=false drops sinks everywhere, says what that costs, and rejects no backend."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup as setup
import pytest
import torch
from vllm_kit import first_of, forget, need

Load = Callable[[str], ModuleType]
EQUIVALENT_MUTANTS = {
    "ac026d09f1": "what stands under TYPE_CHECKING is not run",
}
LAYER = "vllm.model_executor.layers.attention.attention", "vllm.attention.layer"
SINKS = torch.arange(1.0, 9.0)
BACKENDS = [
    "flash_attn.FlashAttention",
    "flashinfer.FlashInfer",
    "triton_attn.TritonAttention",
    "cpu_attn.CPUAttention",
    "rocm_attn.RocmAttention",
]


@pytest.fixture
def sinks(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Callable[[str | None], None]:
    """Set the switch, as from the next process on."""
    envs = upstream_import("vllm.envs")

    def switch(value: str | None) -> None:
        if value is None:
            monkeypatch.delenv("VLLM_ATTENTION_SINKS", raising=False)
        else:
            monkeypatch.setenv("VLLM_ATTENTION_SINKS", value)
        need(envs, "environment_variables")
        assert "VLLM_ATTENTION_SINKS" in envs.environment_variables, "vLLM knows no VLLM_ATTENTION_SINKS"
        forget(upstream_import("vllm.logger"))

    return switch


def selection(upstream_import: Load, supports: bool, has_sink: bool = True) -> list[str]:
    """Return why a backend with or without sinks would not be selected for a layer that has them, or has none."""
    abstract = first_of(upstream_import, "vllm.v1.attention.backend", "vllm.attention.backends.abstract")
    interface = upstream_import("vllm.platforms.interface")

    class Backend(abstract.AttentionBackend):  # type: ignore[name-defined, misc]
        supported_dtypes = (torch.bfloat16,)

        @classmethod
        def supports_sink(cls) -> bool:
            return supports

        @classmethod
        def supports_combination(cls, *args: Any) -> str | None:
            has_sink = args[5]
            return "with sinks on this GPU" if has_sink and not supports else None

    asked = {
        "head_size": 64, "dtype": torch.bfloat16, "kv_cache_dtype": "auto", "block_size": 16, "use_mla": False,
        "has_sink": has_sink, "use_sparse": False, "use_mm_prefix": False, "use_per_head_quant_scales": False,
        "device_capability": interface.DeviceCapability(12, 1), "attn_type": "decoder",
    }  # fmt: skip
    taken = inspect.signature(Backend.validate_configuration).parameters
    reasons: list[str] = Backend.validate_configuration(**{n: v for n, v in asked.items() if n in taken})
    return reasons


@pytest.mark.parametrize("value", [None, "auto"])
def test_auto_rejects_a_backend_without_sinks(
    upstream_import: Load, sinks: Callable[[str | None], None], log: list[str], value: str | None
) -> None:
    sinks(value)
    said = selection(upstream_import, supports=False)
    assert [words.replace("attention sinks", "sink setting") for words in said] == [
        "sink setting not supported", "with sinks on this GPU",
    ]  # fmt: skip
    assert selection(upstream_import, supports=True) == []
    assert not [line for line in log if "sinks" in line]


@pytest.mark.parametrize("supports", [False, True])
def test_false_rejects_none(
    upstream_import: Load, sinks: Callable[[str | None], None], log: list[str], supports: bool
) -> None:
    sinks("false")
    assert selection(upstream_import, supports) == []
    said = [line for line in log if "VLLM_ATTENTION_SINKS" in line]
    assert len(said) == 1
    assert said[0].startswith("WARNING")
    assert "output of the model changes" in said[0]


@pytest.mark.parametrize("value", [None, "auto", "false"])
@pytest.mark.parametrize("supports", [False, True])
def test_a_layer_without_sinks_has_any_backend(
    upstream_import: Load, sinks: Callable[[str | None], None], log: list[str], value: str | None, supports: bool
) -> None:
    sinks(value)
    assert selection(upstream_import, supports, has_sink=False) == []
    assert not [line for line in log if "sinks" in line.lower()]


@pytest.mark.parametrize("value", ["true", "", "off", "False", "0", "1"])
def test_other_values_are_an_error(upstream_import: Load, sinks: Callable[[str | None], None], value: str) -> None:
    sinks(value)
    with pytest.raises(ValueError, match="VLLM_ATTENTION_SINKS"):
        selection(upstream_import, supports=True)


@pytest.mark.parametrize(("value", "kept"), [("auto", True), ("false", False)])
@pytest.mark.parametrize("name", BACKENDS)
def test_implementations(
    upstream_import: Load, sinks: Callable[[str | None], None], config: Any, monkeypatch: pytest.MonkeyPatch,
    name: str, value: str, kept: bool,
) -> None:  # fmt: skip
    file, cls = name.split(".")
    module = upstream_import(f"vllm.v1.attention.backends.{file}")
    if file == "flash_attn":
        monkeypatch.setattr(module, "flash_attn_supports_sinks", lambda: True, raising=False)
    if file == "flashinfer":
        setup.without_gpu(module, monkeypatch)
    if file == "cpu_attn":  # from v0.33.0 it asks for the model's dtype
        monkeypatch.setattr(config, "model_config", SimpleNamespace(dtype=torch.bfloat16))
    sinks(value)
    impl = getattr(module, f"{cls}{'Backend' if file == 'cpu_attn' else ''}Impl")
    made = impl(8, 64, 0.125, 2, None, None, "auto", sinks=SINKS)
    assert (made.sinks is not None) is kept
    assert not kept or torch.equal(made.sinks, SINKS)
    if hasattr(made, "_sinks_source"):  # from v0.33.0, what refreshes them when weights are loaded again
        assert (made._sinks_source is not None) is kept
    assert impl(8, 64, 0.125, 2, None, None, "auto").sinks is None


@pytest.mark.parametrize("name", BACKENDS)
def test_sinks_that_are_dropped_are_not_checked(
    upstream_import: Load, sinks: Callable[[str | None], None], config: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """FlashAttention 2 has none, and refuses them unless they are dropped first."""
    file, cls = name.split(".")
    module = upstream_import(f"vllm.v1.attention.backends.{file}")
    monkeypatch.setattr(module, "flash_attn_supports_sinks", lambda: False, raising=False)
    if file == "flashinfer":
        setup.without_gpu(module, monkeypatch)
    if file == "cpu_attn":
        monkeypatch.setattr(config, "model_config", SimpleNamespace(dtype=torch.bfloat16))
    impl = getattr(module, f"{cls}{'Backend' if file == 'cpu_attn' else ''}Impl")
    sinks("false")
    assert impl(8, 64, 0.125, 2, None, None, "auto", sinks=SINKS).sinks is None
    sinks("auto")
    wrong = SINKS if file == "flash_attn" else SINKS[1:]
    with pytest.raises((AssertionError, ValueError), match=r"[Ss]inks"):
        impl(8, 64, 0.125, 2, None, None, "auto", sinks=wrong)


def test_the_warning_comes_once(upstream_import: Load, sinks: Callable[[str | None], None], log: list[str]) -> None:
    sinks("false")
    for _ in range(3):
        assert selection(upstream_import, supports=False) == []
    assert len([line for line in log if "VLLM_ATTENTION_SINKS" in line]) == 1


@pytest.mark.parametrize(("value", "kept"), [("auto", True), ("false", False)])
def test_the_layer_and_its_parameters(
    upstream_import: Load, sinks: Callable[[str | None], None], config: Any, monkeypatch: pytest.MonkeyPatch,
    value: str, kept: bool,
) -> None:  # fmt: skip
    layer, utils = first_of(upstream_import, *LAYER), upstream_import("vllm.v1.attention.backends.utils")
    backend = upstream_import("vllm.v1.attention.backends.flashinfer")
    setup.without_gpu(backend, monkeypatch)
    asked = []
    monkeypatch.setattr(
        layer, "get_attn_backend", lambda *a, has_sink, **k: asked.append(has_sink) or backend.FlashInferBackend
    )
    sinks(value)
    made = layer.Attention(8, 64, 0.125, num_kv_heads=2, prefix="model.layers.0.attn", sinks=SINKS)
    assert asked == [kept]
    assert made.has_sink is kept
    assert (made.impl.sinks is not None) is kept
    made.impl.sinks = SINKS  # whatever an implementation kept
    (parameters,) = utils.get_per_layer_parameters(config, ["model.layers.0.attn"], backend.FlashInferImpl).values()
    assert parameters.has_sinks is kept
    del made.impl.sinks  # nor does every implementation have the attribute
    (parameters,) = utils.get_per_layer_parameters(config, ["model.layers.0.attn"], backend.FlashInferImpl).values()
    assert parameters.has_sinks is False


@pytest.mark.parametrize("value", [None, "auto", "false"])
@pytest.mark.parametrize("given", [{}, {"sinks": None}, {"sinks": SINKS}], ids=["none", "None", "sinks"])
def test_a_backend_that_takes_no_sinks_is_given_none(
    upstream_import: Load, sinks: Callable[[str | None], None], config: Any, monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any], value: str | None,
) -> None:  # fmt: skip
    layer, got = first_of(upstream_import, *LAYER), {}

    class Impl:
        supports_quant_query_input = False

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            got.update(kwargs)

    flex = SimpleNamespace(
        get_impl_cls=lambda: Impl, get_name=lambda: "FLEX_ATTENTION", accept_output_buffer=True,
        supports_alibi_sqrt=lambda: False, forward_includes_kv_cache_update=True,
    )  # fmt: skip
    monkeypatch.setattr(layer, "get_attn_backend", lambda *a, **k: flex)
    sinks(value)
    made = layer.Attention(8, 64, 0.125, num_kv_heads=2, prefix="a", **given)
    kept = given.get("sinks") is not None and value != "false"
    assert made.has_sink is kept
    assert ("sinks" in got) is kept
    assert got.get("sinks") is (SINKS if kept else None)


def test_it_is_part_of_the_compile_factors(upstream_import: Load, sinks: Callable[[str | None], None]) -> None:
    envs = upstream_import("vllm.envs")
    found = []
    for value in ("auto", "false"):
        sinks(value)
        found.append(envs.compile_factors()["VLLM_ATTENTION_SINKS"])
    assert found == ["auto", "false"]


def test_a_model_without_sinks_is_not_warned(
    upstream_import: Load, sinks: Callable[[str | None], None], backend: Any, log: list[str]
) -> None:
    sinks("false")
    layers = setup.make_layers(backend.module, [setup.Spec("a")], 8, 2, 64)
    setup.make_builder(backend.module, layers, 8, 2, 64)
    assert not [line for line in log if "SINKS" in line]
