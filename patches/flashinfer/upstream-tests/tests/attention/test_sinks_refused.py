import pytest
import torch

import flashinfer.decode
import flashinfer.prefill
from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper
from flashinfer.prefill import BatchPrefillWithPagedKVCacheWrapper

WRAPPERS = [BatchPrefillWithPagedKVCacheWrapper, BatchDecodeWithPagedKVCacheWrapper]


class Reached(Exception):
    """run() got past its checks."""


@pytest.fixture(autouse=True)
def stop_before_the_kernel(monkeypatch):
    def reach(*args):
        raise Reached

    for module in (flashinfer.prefill, flashinfer.decode):
        monkeypatch.setattr(module, "_unpack_paged_kv_cache", reach)


def reaches_the_kernel(wrapper, backend, sinks):
    made = object.__new__(wrapper)
    made.__dict__.update(_backend=backend, _kv_layout="HND", _cudnn_auto=False)
    try:
        made.run(torch.zeros(1, 8, 64), torch.zeros(1), enable_pdl=False, sinks=sinks)
    except Reached:
        return True
    return False


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("backend", ["fa2", "fa3"])
def test_a_backend_that_would_leave_sinks_out_refuses_them(wrapper, backend):
    with pytest.raises(ValueError, match="would leave sinks out"):
        reaches_the_kernel(wrapper, backend, torch.zeros(8))


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    "backend, sinks",
    [
        ("trtllm-gen", torch.zeros(8)),
        ("cute-dsl", torch.zeros(8)),
        ("cudnn", torch.zeros(8)),
        ("fa2", None),
        ("fa3", None),
    ],
)
def test_all_else_goes_on(wrapper, backend, sinks):
    assert reaches_the_kernel(wrapper, backend, sinks)
