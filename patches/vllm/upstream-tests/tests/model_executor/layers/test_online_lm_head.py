# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM project
"""Which targets of quantization_config quantize an lm_head."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaConfig, LlavaConfig

from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
from vllm.config.quantization import QuantizationConfigArgs
from vllm.model_executor.layers.quantization.base_config import resolve_quant_method
from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config
from vllm.model_executor.layers.quantization.online.base import (
    OnlineQuantizationConfig,
)
from vllm.model_executor.layers.quantization.online.fp8 import (
    Fp8PerTensorOnlineLinearMethod,
)
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)

pytestmark = pytest.mark.skip_global_cleanup


@pytest.fixture
def vllm_config():
    """A config for a CPU, whose model is untied."""
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    config.model_config = SimpleNamespace(
        dtype=torch.bfloat16, hf_config=LlamaConfig(tie_word_embeddings=False)
    )
    with set_current_vllm_config(config):
        yield config


def _make_lm_head() -> ParallelLMHead:
    return ParallelLMHead(64, 64, params_dtype=torch.bfloat16, disable_tp=True)


def _make_config(targets: list[str], ignore: list[str] | None = None):
    config = GptOssMxfp4Config()
    config.online_quantization_config = OnlineQuantizationConfig(
        QuantizationConfigArgs(
            targets=dict.fromkeys(targets, "fp8_per_tensor"), ignore=ignore or []
        )
    )
    return config


@pytest.mark.parametrize(
    "targets,ignore,prefix,target",
    [
        (["lm_head"], [], "lm_head", "lm_head"),
        (["*lm_head"], [], "language_model.lm_head", "*lm_head"),
        (["re:.*(o_proj|lm_head)"], [], "lm_head", "re:.*(o_proj|lm_head)"),
        (["*", "lm_head"], [], "lm_head", "lm_head"),
        (["*"], [], "lm_head", None),
        (["re:.*_head"], [], "lm_head", None),
        (["*"], [], "", None),
        (["lm_head"], ["lm_head"], "lm_head", None),
    ],
)
def test_targets_that_name_an_lm_head(vllm_config, targets, ignore, prefix, target):
    config = _make_config(targets, ignore)
    method = resolve_quant_method(config, _make_lm_head(), prefix)
    quantized = config.online_quantization_config.quantized_layers
    if target is None:
        assert method is None
        assert quantized == {}
    else:
        assert isinstance(method, Fp8PerTensorOnlineLinearMethod)
        assert quantized == {prefix: ("targets", "fp8_per_tensor", target)}


@pytest.mark.parametrize("level", ["model", "text"])
def test_targets_leave_a_tied_lm_head_alone(vllm_config, level):
    text_config = LlamaConfig(tie_word_embeddings=level == "text")
    hf_config = LlavaConfig(text_config=text_config)
    hf_config.tie_word_embeddings = level == "model"
    vllm_config.model_config.hf_config = hf_config
    config = _make_config(["lm_head"])
    assert resolve_quant_method(config, _make_lm_head(), "lm_head") is None
    assert config.online_quantization_config.quantized_layers == {}


def test_tie_weights_takes_online_quantization_back(vllm_config):
    config = _make_config(["lm_head"])
    lm_head = _make_lm_head()
    lm_head.quant_config, lm_head.prefix = config, "lm_head"
    lm_head.quant_method = resolve_quant_method(config, lm_head, "lm_head")
    assert isinstance(lm_head.quant_method, Fp8PerTensorOnlineLinearMethod)

    embedding = VocabParallelEmbedding(
        64, 64, params_dtype=torch.bfloat16, disable_tp=True
    )
    assert lm_head.tie_weights(embedding) is lm_head
    assert lm_head.weight is embedding.weight
    assert isinstance(lm_head.quant_method, UnquantizedEmbeddingMethod)
    assert config.online_quantization_config.quantized_layers == {}
