import itertools

import pytest
import torch

from flashinfer.attention import BatchAttentionWithAttentionSinkWrapper
from flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper

BASE = dict(
    kv_layout="HND",
    backend="fa2",
    q_data_type=torch.bfloat16,
    kv_data_type=torch.bfloat16,
    head_dim_qk=64,
    head_dim_vo=64,
    window_left=-1,
)
VARIANTS = [
    {},
    {"q_data_type": torch.float16, "kv_data_type": torch.float16},
    {"kv_data_type": torch.float8_e4m3fn},
    {"head_dim_qk": 128, "head_dim_vo": 128},
    {"window_left": 127},
    {"pos_encoding_mode": "ROPE_LLAMA"},
    {"use_fp16_qk_reduction": True},
    {"backend": "fa3"},
]


@pytest.fixture
def uri_of(monkeypatch):
    """The name of the JIT module that a wrapper would be compiled as."""
    seen = []

    def note(self, *args, jit_args, **kwargs):
        seen.append(jit_args[0])

    monkeypatch.setattr(BatchPrefillWithPagedKVCacheWrapper, "__init__", note)

    def construct(**changes):
        workspace = torch.empty(16, dtype=torch.uint8)
        BatchAttentionWithAttentionSinkWrapper(workspace, **{**BASE, **changes})
        return seen[-1]

    return construct


@pytest.mark.parametrize("one, other", list(itertools.combinations(VARIANTS, 2)))
def test_different_modules_have_different_names(uri_of, one, other):
    assert uri_of(**one) != uri_of(**other)


def test_the_width_of_the_window_is_no_part_of_the_name(uri_of):
    assert uri_of(window_left=127) == uri_of(window_left=255)
