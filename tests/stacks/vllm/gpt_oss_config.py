"""A gpt-oss configuration on disk, of the real shapes but few layers, for vLLM's own ModelConfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 2,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
    "num_local_experts": 128, "num_experts_per_tok": 4, "vocab_size": 201088, "sliding_window": 128,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "layer_types": ["sliding_attention", "full_attention"], "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip


def write(folder: Path, **changes: Any) -> str:
    """Write config.json; returns the folder, as `--model` takes it."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    return str(folder)
