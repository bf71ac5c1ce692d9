"""A gpt-oss made on the spot: random weights, in the format that the hub's checkpoint has. And an Eagle3 draft for it.

    python tests/serving/checkpoint.py FOLDER [--size full|tiny] [--layers 2] [--echo] [--device cuda]

Experts are MXFP4 blocks and scales, everything else is BF16, a file for each layer and an index. The router's logits
are spread wide, so that a rounding seldom chooses another expert, and if it does, one of little weight. The tokenizer
has a word for each token (``t17``), so that programs which want text can be used.

Nothing that a random draft says is accepted. With ``--echo`` the head leans on the embeddings so far that in about
half of all places the likeliest token is the last one again, and the draft says what it last saw.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mxfp4
import torch
from safetensors.torch import save_file


@dataclass(frozen=True)
class Size:
    """What of a gpt-oss is chosen; ``full`` is the 120b in all but its number of layers."""

    layers: int
    hidden: int
    intermediate: int
    experts: int
    heads: int
    kv_heads: int
    vocabulary: int
    head_dim: int = 64
    active: int = 4
    window: int = 128


SIZES = {
    "full": Size(2, 2880, 2880, 128, 64, 8, 201088),
    "tiny": Size(2, 64, 64, 8, 4, 2, 512),
}
PAD, END = 0, 1
#: Words that vLLM's own parser of gpt-oss's answers looks up when a server starts.
HARMONY = ("<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>", "<|constrain|>")


def config(size: Size) -> dict[str, Any]:
    """``config.json``, with the keys of the hub's."""
    kinds = ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in range(size.layers)]
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True,
        "attention_dropout": 0.0, "bos_token_id": END, "eos_token_id": END, "pad_token_id": PAD,
        "experts_per_token": size.active, "num_experts_per_tok": size.active, "num_local_experts": size.experts,
        "head_dim": size.head_dim, "hidden_act": "silu", "hidden_size": size.hidden,
        "intermediate_size": size.intermediate, "initial_context_length": 4096, "initializer_range": 0.02,
        "layer_types": kinds, "max_position_embeddings": 131072, "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers, "num_key_value_heads": size.kv_heads, "output_router_logits": False,
        "rms_norm_eps": 1e-05, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": size.window,
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                         "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": False},
        "swiglu_limit": 7.0, "tie_word_embeddings": False, "use_cache": True, "vocab_size": size.vocabulary,
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"],
        },
    }  # fmt: skip


class Weights:
    """Random tensors, BF16, the same for the same seed and device."""

    def __init__(self, seed: int, device: str) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def normal(self, *shape: int, std: float, mean: float = 0.0) -> torch.Tensor:
        made = torch.randn(shape, generator=self.generator, device=self.generator.device)
        return (made * std + mean).bfloat16()

    def experts(self, count: int, rows: int, k: int, std: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Blocks ``[count, rows, k / 32, 16]`` and scales of so many matrices, one after the other."""
        made = [mxfp4.quantise(self.normal(rows, k, std=std)) for _ in range(count)]
        return torch.stack([blocks for blocks, _ in made]), torch.stack([scales for _, scales in made])


def layer(weights: Weights, size: Size, number: int) -> dict[str, torch.Tensor]:
    """The tensors of one layer, by the names that they have in the hub's files."""
    hidden, width = size.hidden, size.heads * size.head_dim
    kv = size.kv_heads * size.head_dim
    found: dict[str, torch.Tensor] = {"sinks": weights.normal(size.heads, std=1.0, mean=1.0)}
    for name, rows, k in (("q", width, hidden), ("k", kv, hidden), ("v", kv, hidden), ("o", hidden, width)):
        found[f"{name}_proj.weight"] = weights.normal(rows, k, std=k**-0.5)
        found[f"{name}_proj.bias"] = weights.normal(rows, std=0.1)
    tensors = {f"self_attn.{name}": tensor for name, tensor in found.items()}
    tensors["mlp.router.weight"] = weights.normal(size.experts, hidden, std=4 * hidden**-0.5)
    tensors["mlp.router.bias"] = weights.normal(size.experts, std=0.5)
    for name, rows, k in (("gate_up", 2 * size.intermediate, hidden), ("down", hidden, size.intermediate)):
        blocks, scales = weights.experts(size.experts, rows, k, std=k**-0.5)
        tensors[f"mlp.experts.{name}_proj_blocks"], tensors[f"mlp.experts.{name}_proj_scales"] = blocks, scales
        tensors[f"mlp.experts.{name}_proj_bias"] = weights.normal(size.experts, rows, std=0.1)
    for norm in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"{norm}.weight"] = weights.normal(hidden, std=0.1, mean=1.0)
    return {f"model.layers.{number}.{name}": tensor for name, tensor in tensors.items()}


def leaning(size: Size) -> float:
    """How much of the head is the embeddings, for an echo: the last token's logit is then about the largest of the others.

    That one is some ``sqrt(2 ln V)`` standard deviations up; the last token's is ``sqrt(hidden)`` times as much as its
    part in the head, less what the layers add to its embedding.
    """
    return 1.6 * math.sqrt(2 * math.log(size.vocabulary) / size.hidden)


def shards(size: Size, seed: int, device: str, echo: bool) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors of the model, a layer at a time, so that no more than one is in memory."""
    weights = Weights(seed, device)
    for number in range(size.layers):
        yield layer(weights, size, number)
    embeddings = weights.normal(size.vocabulary, size.hidden, std=1.0)
    norm = weights.normal(size.hidden, std=0.1, mean=1.0)
    head = weights.normal(size.vocabulary, size.hidden, std=3 * size.hidden**-0.5)
    if echo:
        part = leaning(size)
        head = math.sqrt(1 - part**2) * head + part * 3 * size.hidden**-0.5 * embeddings
    yield {"model.embed_tokens.weight": embeddings, "model.norm.weight": norm, "lm_head.weight": head}


def write(folder: Path, size: Size, seed: int = 0, device: str = "cpu", echo: bool = False) -> None:
    """Make the checkpoint: config, weights, index, tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(size), indent=1) + "\n")
    places: dict[str, str] = {}
    for number, tensors in enumerate(shards(size, seed, device, echo), 1):
        name = f"model-{number:05}-of-{size.layers + 1:05}.safetensors"
        save_file({key: tensor.cpu().contiguous() for key, tensor in tensors.items()}, folder / name, {"format": "pt"})
        places |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index) + "\n")
    write_tokenizer(folder, size.vocabulary)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """A word for each token: ``t17`` is 17; the last few are harmony's."""
    pattern = {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": False}
    words = {f"t{token}": token for token in range(vocabulary - len(HARMONY))}
    words |= {word: len(words) + n for n, word in enumerate(HARMONY)}
    model = {"type": "WordLevel", "vocab": words, "unk_token": f"t{PAD}"}
    special = [
        {"id": token, "content": content, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for content, token in ((f"t{PAD}", PAD), (f"t{END}", END), *((word, words[word]) for word in HARMONY))
    ]  # fmt: skip
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                 "pre_tokenizer": pattern, "post_processor": None, "decoder": None, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": f"t{END}", "pad_token": f"t{PAD}",
            "model_max_length": 131072, "clean_up_tokenization_spaces": False}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=1) + "\n")


def write_draft(folder: Path, size: Size, seed: int = 7, device: str = "cpu", echo: bool = False) -> None:
    """An Eagle3 draft of one layer: no sinks, no window, so that its attention differs from each of the target's.

    An echo's adds up what it sees, its layer adds little to that, and its head is the target's.
    """
    weights, hidden = Weights(seed, device), size.hidden
    width, kv, inner = size.heads * size.head_dim, size.kv_heads * size.head_dim, 2 * size.hidden
    folder.mkdir(parents=True, exist_ok=True)
    said = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "attention_bias": False,
        "attention_dropout": 0.0, "bos_token_id": END, "eos_token_id": END, "pad_token_id": PAD,
        "draft_vocab_size": size.vocabulary, "head_dim": size.head_dim, "hidden_act": "silu", "hidden_size": hidden,
        "initializer_range": 0.02, "intermediate_size": size.intermediate, "max_position_embeddings": 131072,
        "mlp_bias": False, "num_attention_heads": size.heads, "num_hidden_layers": 1,
        "num_key_value_heads": size.kv_heads, "rms_norm_eps": 1e-05, "rope_theta": 150000,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": size.vocabulary,
        # What the draft sees of the target: its embeddings, and what the first and second layer give.
        "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n")
    tensors = {"fc.weight": weights.normal(hidden, 3 * hidden, std=(3 * hidden) ** -0.5),
               "norm.weight": weights.normal(hidden, std=0.1, mean=1.0),
               "lm_head.weight": weights.normal(size.vocabulary, hidden, std=3 * hidden**-0.5)}  # fmt: skip
    for name, rows, k in (
        ("self_attn.q_proj", width, inner), ("self_attn.k_proj", kv, inner), ("self_attn.v_proj", kv, inner),
        ("self_attn.o_proj", hidden, width), ("mlp.gate_proj", size.intermediate, hidden),
        ("mlp.up_proj", size.intermediate, hidden), ("mlp.down_proj", hidden, size.intermediate),
    ):  # fmt: skip
        tensors[f"midlayer.{name}.weight"] = weights.normal(rows, k, std=k**-0.5)
    for norm in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        tensors[f"midlayer.{norm}.weight"] = weights.normal(hidden, std=0.1, mean=1.0)
    if echo:
        tensors["fc.weight"] = torch.eye(hidden, dtype=torch.bfloat16).repeat(1, 3)
        for name in ("midlayer.self_attn.o_proj.weight", "midlayer.mlp.down_proj.weight"):
            tensors[name] = 0.25 * tensors[name]
        del tensors["lm_head.weight"]  # vLLM then takes the target's
    save_file({key: tensor.cpu() for key, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder, size.vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="gets target/ and draft/")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--echo", action="store_true", help="a model that repeats itself, and a draft that is accepted")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    size = SIZES[given.size]
    if given.layers:
        size = Size(**{**vars(size), "layers": given.layers})
    write(given.folder / "target", size, device=given.device, echo=given.echo)
    write_draft(given.folder / "draft", size, device=given.device, echo=given.echo)


if __name__ == "__main__":
    main()
