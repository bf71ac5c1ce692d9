"""What transformers says of the model, with the same values that the served model has.

    python tests/serving/reference.py CHECKPOINT JOBS.json OUT.json

MXFP4 blocks are dequantised, which BF16 holds exactly, and everything is computed in float32. A job has ``sequences``
of tokens, and in ``otherwise`` what is not as in the checkpoint: ``qkv``, ``o`` and ``lm_head`` go through MXFP4 too,
``no sinks``, ``bfloat16``. The answer has for each position but the last the log-probability of the token that follows,
the likeliest token and its log-probability.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mxfp4
import torch
from safetensors import safe_open

#: The layers that ``--mxfp4-layers`` names besides the experts, by the ends of their weights' names.
LAYERS = {
    "qkv": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "o": ("o_proj.weight",),
    "lm_head": ("lm_head.weight",),
}
#: A sink so low that it takes nothing.
NO_SINK = -1e4


def tensors(
    folder: Path, quantised: Iterable[str], device: str, dtype: torch.dtype = torch.bfloat16, saturating: bool = False
) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors by transformers' names, dequantised; no more than one is there in two dtypes."""
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    ends = tuple(end for name in quantised for end in LAYERS[name])
    found: dict[str, torch.Tensor] = {}
    for shard in sorted(set(places.values())):
        with safe_open(folder / shard, "pt", device=device) as file:
            for name in file.keys():  # noqa: SIM118  it is no mapping
                if name.endswith("_scales"):
                    continue
                if name.endswith("_blocks"):
                    scales = file.get_tensor(name.removesuffix("_blocks") + "_scales")
                    # [experts, rows, k] in the file, [experts, k, rows] in transformers.
                    value = mxfp4.dequantise(file.get_tensor(name), scales).transpose(1, 2).contiguous()
                    found[name.removesuffix("_blocks")] = value.to(dtype)
                    continue
                value = file.get_tensor(name)
                if name.endswith(ends):
                    value = mxfp4.dequantise(*mxfp4.quantise(value, saturating))
                found[name] = value.to(dtype)
    return found


def load(
    folder: Path, quantised: Iterable[str] = (), sinks: bool = True, dtype: torch.dtype = torch.float32,
    device: str = "cpu", saturating: bool = False,
) -> Any:  # fmt: skip
    """transformers' model of the checkpoint, its attention in the plain implementation."""
    from transformers import GptOssConfig, GptOssForCausalLM

    said = json.loads((folder / "config.json").read_text())
    said.pop("quantization_config")
    config = GptOssConfig(**said, attn_implementation="eager")
    # Newer ones group the experts' products, in BF16 alone.
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    with torch.device("meta"):
        model = GptOssForCausalLM(config)
    weights = tensors(folder, quantised, device, dtype, saturating)
    if not sinks:
        weights |= {name: torch.full_like(t, NO_SINK) for name, t in weights.items() if name.endswith(".sinks")}
    model.load_state_dict(weights, strict=True, assign=True)
    # Of the frequencies, which are no weights, the meta device made none.
    with torch.device(device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


@torch.no_grad()
def score(model: Any, sequences: list[list[int]]) -> list[dict[str, list[Any]]]:
    """For each sequence and each position but the last: what follows, and what is likeliest."""
    device = model.lm_head.weight.device
    found = []
    for sequence in sequences:
        tokens = torch.tensor(sequence, device=device)
        # In pieces, since float32 logits over 201088 words are 0.8 MB a token.
        hidden = model.model(tokens[None], use_cache=False).last_hidden_state[0]
        rows: dict[str, list[Any]] = {"logprobs": [], "top": [], "top_logprobs": []}
        for start in range(0, len(sequence) - 1, 512):
            piece = slice(start, min(start + 512, len(sequence) - 1))
            logprobs = torch.log_softmax(model.lm_head(hidden[piece]).float(), -1)
            best = logprobs.max(-1)
            follows = tokens[piece.start + 1 : piece.stop + 1, None]
            rows["logprobs"] += logprobs.gather(-1, follows)[:, 0].tolist()
            rows["top"] += best.indices.tolist()
            rows["top_logprobs"] += best.values.tolist()
        found.append(rows)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    # TF32 keeps 10 bits of the mantissa, little more than what is to be judged.
    torch.backends.cuda.matmul.allow_tf32 = False
    found = []
    for job in json.loads(given.jobs.read_text()):
        quantised = [name for name in job["otherwise"] if name in LAYERS]
        dtype = torch.bfloat16 if "bfloat16" in job["otherwise"] else torch.float32
        model = load(
            given.checkpoint, quantised, "no sinks" not in job["otherwise"], dtype, given.device,
            "saturating" in job["otherwise"],
        )  # fmt: skip
        found.append({**job, "rows": score(model, job["sequences"])})
        given.out.write_text(json.dumps(found) + "\n")
        print(job["otherwise"], len(job["sequences"]), flush=True)
        del model
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
