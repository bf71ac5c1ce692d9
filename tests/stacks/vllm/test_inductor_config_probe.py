"""A model compiles where inductor has no assume_32bit_indexing, and the option is set where it has.

A real module goes through vLLM's support_torch_compile; inductor's own configuration is what differs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

Load = Callable[[str], ModuleType]


def compiled(upstream_import: Load) -> tuple[Any, bool]:
    """Compile and run a small module with vLLM's decorator; returns the option's value while it did, and vLLM's."""
    decorators = upstream_import("vllm.compilation.decorators")
    vllm_config = upstream_import("vllm.config")
    seen = []
    call = decorators.TorchCompileWithNoGuardsWrapper.__call__

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(getattr(torch._inductor.config, "assume_32bit_indexing", "absent"))
        return call(self, *args, **kwargs)

    config = vllm_config.VllmConfig(
        device_config=vllm_config.DeviceConfig(device="cpu"),
        compilation_config=vllm_config.CompilationConfig(
            mode=vllm_config.CompilationMode.DYNAMO_TRACE_ONCE, backend="eager"
        ),
    )

    @decorators.support_torch_compile(dynamic_arg_dims={"x": 0})
    class Double(torch.nn.Module):
        def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
            super().__init__()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    with pytest.MonkeyPatch.context() as context, vllm_config.set_current_vllm_config(config):
        context.setenv("VLLM_USE_AOT_COMPILE", "0")
        context.setattr(decorators.TorchCompileWithNoGuardsWrapper, "__call__", noting)
        model = Double(vllm_config=config)
        assert torch.equal(model(torch.ones(4)), torch.full((4,), 2.0))
    (value,) = seen
    shapes = getattr(config.compilation_config, "dynamic_shapes_config", None)
    return value, getattr(shapes, "assume_32_bit_indexing", True)  # vLLM has a switch from v0.14.0, False from v0.20.0


def test_without_the_option(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config as inductor

    monkeypatch.delitem(inductor._config, "assume_32bit_indexing")
    try:
        value, _ = compiled(upstream_import)
    except AttributeError as error:
        pytest.fail(f"the first compilation failed: {error}")
    assert value == "absent"


def test_with_the_option(upstream_import: Load) -> None:
    value, asked = compiled(upstream_import)
    assert value is asked
