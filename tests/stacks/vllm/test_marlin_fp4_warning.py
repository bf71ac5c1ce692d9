"""The Marlin FP4 path warns of missing FP4 support only on devices that lack it.

The real preparation of a layer is begun and left at its first use of the layer; the device
capability is what is faked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest
import torch

EQUIVALENT_MUTANTS = {"f689f699d1": "no GPU has capability 9.9, which alone lies between 99 and 100"}


class Left(Exception):
    """The preparation got to the layer: whatever it had to warn of, it has."""


class Layer:
    def __getattr__(self, name: str) -> object:
        raise Left(name)


@pytest.fixture
def warnings_on(
    upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    marlin = upstream_import("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    interface = upstream_import("vllm.platforms.interface")
    modules = [marlin]
    try:
        # From v0.20.0 the linear kernel warns, before it prepares the layer.
        kernel = upstream_import("vllm.model_executor.kernels.linear.nvfp4.marlin")
    except ModuleNotFoundError:
        calls = {"linear": marlin.prepare_fp4_layer_for_marlin, "moe": marlin.prepare_moe_fp4_layer_for_marlin}
    else:
        if hasattr(kernel, "logger"):
            modules.append(kernel)

        def linear(layer: object) -> None:
            kernel.MarlinNvFp4LinearKernel.process_weights_after_loading(None, layer)

        def moe(layer: object) -> None:
            marlin.prepare_nvfp4_moe_layer_for_marlin(layer, *[None] * 6, is_act_and_mul=True)

        calls = {"linear": linear, "moe": moe}
    compressed = compressed_tensors(upstream_import, monkeypatch, modules)
    # A release whose MXFP4 experts of compressed tensors don't warn before they are prepared has none of their own.
    calls["compressed"] = compressed or calls["moe"]

    def prepare(function: str, *capability: int) -> list[str]:
        class Faked(interface.Platform):  # type: ignore[name-defined, misc]
            _enum = interface.PlatformEnum.CUDA if capability else interface.PlatformEnum.XPU

            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> object:
                return interface.DeviceCapability(*capability) if capability else None

        said: list[str] = []
        monkeypatch.setattr(marlin, "current_platform", Faked())
        for module in modules:
            monkeypatch.setattr(module.logger, "warning_once", lambda text, *args: said.append(text))
        try:
            calls[function](Layer())
        except Left:
            return said
        except AttributeError as error:
            pytest.fail(f"the layer is used before it is prepared: {error}")
        pytest.fail("the layer is not prepared")

    return prepare


def compressed_tensors(
    upstream_import: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, modules: list[ModuleType]
) -> Callable[[object], None] | None:
    """Give MXFP4 experts of compressed tensors to Marlin, where a release warns there, and note its module."""
    folder = "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe"
    try:
        module = upstream_import(f"{folder}.compressed_tensors_moe_w4a4_mxfp4")
    except ModuleNotFoundError:
        return None
    words = inspect.getsource(module)
    if "warn_if_no_native_fp4()" not in words and "native support for FP4" not in words:
        return None
    modules.append(module)

    def leave(layer: object) -> None:
        raise Left

    def prepare(layer: object) -> None:
        packed = {f"{name}_weight_packed": torch.zeros(2, 4, 4, dtype=torch.uint8) for name in ("w13", "w2")}
        monkeypatch.setattr(module, "prepare_moe_fp4_layer_for_marlin", leave)
        method = SimpleNamespace(use_cutlass_mxfp4=False, mxfp4_backend=None)
        cls = module.CompressedTensorsW4A4Mxfp4MoEMethod
        cls.process_weights_after_loading(method, SimpleNamespace(**packed))

    return prepare


FUNCTIONS = ["linear", "moe", "compressed"]
WARNING = (
    "Your GPU does not have native support for FP4 computation but FP4 quantization is being used. Weight-only FP4 "
    "compression will be used leveraging the Marlin kernel. This may degrade performance for compute-heavy workloads."
)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("capability", [(10, 0), (10, 3), (11, 0), (12, 0), (12, 1), (13, 0)])
def test_no_warning_with_native_fp4(
    warnings_on: Callable[..., list[str]], function: str, capability: tuple[int, int]
) -> None:
    assert warnings_on(function, *capability) == []


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), ()])
def test_the_warning_stays_without(
    warnings_on: Callable[..., list[str]], function: str, capability: tuple[int, ...]
) -> None:
    """A device that has no compute capability is warned as before, and the words are upstream's."""
    assert warnings_on(function, *capability) == [WARNING]


def test_a_layer_is_prepared_without_a_type_of_its_input(
    upstream_import: Callable[[str], ModuleType], request: pytest.FixtureRequest
) -> None:
    """As before the patch; from v0.20.0 on another module prepares it."""
    module = upstream_import("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    try:
        upstream_import("vllm.model_executor.kernels.linear.nvfp4.marlin")
    except ModuleNotFoundError:
        request.getfixturevalue("marlin")
        zeros = {"weight": (128, 64), "weight_scale": (128, 4)}
        layer = SimpleNamespace(
            output_size_per_partition=128, input_size_per_partition=128, params_dtype=torch.bfloat16,
            **{name: torch.zeros(shape, dtype=torch.uint8) for name, shape in zeros.items()},
        )  # fmt: skip
        module.prepare_fp4_layer_for_marlin(layer)
        assert (layer.weight.dtype, layer.weight.shape) == (torch.int32, (16, 128))
