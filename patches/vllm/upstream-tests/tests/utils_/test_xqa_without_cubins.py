# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""XQA is compiled on the machine: on SM12x it needs no cubins."""

from unittest.mock import MagicMock, patch

import pytest

from vllm.platforms.interface import DeviceCapability, Platform
from vllm.utils import flashinfer as flashinfer_utils
from vllm.utils.flashinfer import supports_trtllm_attention

pytestmark = pytest.mark.skip_global_cleanup


@pytest.fixture
def supports(monkeypatch):
    """What is supported on a GPU, for decode and prefill, and whether the cubins
    were looked for."""

    def ask(capability: tuple[int, int], has_cubins: bool) -> tuple[bool, bool, bool]:
        platform = Platform()
        lookup = MagicMock(return_value=has_cubins)
        with (
            patch.object(
                Platform,
                "get_device_capability",
                lambda **kwargs: DeviceCapability(*capability),
            ),
            patch.object(flashinfer_utils, "current_platform", platform),
            patch.object(flashinfer_utils, "has_nvidia_artifactory", lookup),
        ):
            supports_trtllm_attention.cache_clear()
            decode = supports_trtllm_attention(is_prefill=False)
            prefill = supports_trtllm_attention(is_prefill=True)
        return decode, prefill, lookup.called

    monkeypatch.delenv("VLLM_BATCH_INVARIANT", raising=False)
    yield ask
    supports_trtllm_attention.cache_clear()


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
@pytest.mark.parametrize("has_cubins", [True, False])
def test_sm12x_has_xqa_decode_without_cubins(supports, capability, has_cubins):
    assert supports(capability, has_cubins) == (True, False, False)


@pytest.mark.parametrize("has_cubins", [True, False])
def test_sm90_has_xqa_decode_with_cubins(supports, has_cubins):
    assert supports((9, 0), has_cubins) == (has_cubins, False, True)


@pytest.mark.parametrize("capability", [(10, 0), (10, 3)])
@pytest.mark.parametrize("has_cubins", [True, False])
def test_sm100_has_both_with_cubins(supports, capability, has_cubins):
    assert supports(capability, has_cubins) == (has_cubins, has_cubins, True)


@pytest.mark.parametrize("capability", [(8, 9), (11, 0)])
def test_others_have_neither(supports, capability):
    assert supports(capability, True)[:2] == (False, False)


@pytest.mark.parametrize("capability", [(9, 0), (10, 0), (12, 1)])
def test_batch_invariance_disables_it(supports, monkeypatch, capability):
    monkeypatch.setattr(flashinfer_utils.envs, "VLLM_BATCH_INVARIANT", True)
    assert supports(capability, True) == (False, False, False)
