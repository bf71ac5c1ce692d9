# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""The Marlin FP4 path warns of missing FP4 support only where it is missing."""

import pytest

from vllm.logger import _print_warning_once
from vllm.model_executor.kernels.linear.nvfp4.marlin import MarlinNvFp4LinearKernel
from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4
from vllm.platforms.interface import DeviceCapability

pytestmark = pytest.mark.skip_global_cleanup


class LayerUsed(Exception):
    """The preparation got to the layer: it has warned, or it won't."""


class Layer:
    def __getattr__(self, name: str):
        raise LayerUsed(name)


@pytest.fixture
def warnings_on(monkeypatch, caplog_vllm):
    def prepare(capability: tuple[int, int]) -> str:
        _print_warning_once.cache_clear()
        platform = marlin_utils_fp4.current_platform
        monkeypatch.setattr(
            type(platform),
            "get_device_capability",
            classmethod(lambda cls, device_id=0: DeviceCapability(*capability)),
        )
        kernel = object.__new__(MarlinNvFp4LinearKernel)
        with pytest.raises(LayerUsed):
            kernel.process_weights_after_loading(Layer())
        return caplog_vllm.text

    return prepare


@pytest.mark.parametrize("capability", [(10, 0), (11, 0), (12, 0), (12, 1)])
def test_silent_with_native_fp4(warnings_on, capability):
    assert "native support for FP4" not in warnings_on(capability)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0)])
def test_warns_without(warnings_on, capability):
    assert "native support for FP4" in warnings_on(capability)
