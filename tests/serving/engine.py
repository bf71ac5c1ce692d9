"""One engine, one process: serve the made model by the vLLM that is installed, and write down what it says.

    python tests/serving/engine.py SPEC.json OUT.json

``SPEC.json``: ``model``, ``engine`` (arguments of ``vllm.LLM``), ``prompts`` (lists of tokens), ``passes`` (each with
``name``, ``max_tokens``, and ``prompt_logprobs``, ``alone``, ``temperature``, ``top_k``, ``top_p``, ``seed`` where
wanted), and ``capability`` where vLLM is to take the GPU for another, as ``sm90_flashinfer.py`` of the proofs does. An
engine that can't be made is an answer too.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

#: One process, so that what is set here holds in the engine; nothing is fetched, nothing is reported.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "FLASHINFER_DISABLE_VERSION_CHECK": "1",
}


def take_for(major: int, minor: int) -> None:
    """Let vLLM take the GPU for one of this capability. FlashInfer still compiles for the one that is there.

    FA3 is what FlashInfer chooses on SM90 alone; elsewhere it is FA2.
    """
    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability

    kind = type(vllm.platforms.current_platform)
    said = DeviceCapability(major, minor)
    kind.get_device_capability = classmethod(lambda cls, device_id=0: said)

    def at_least(cls: Any, capability: Any, device_id: int = 0) -> bool:
        wanted = tuple(capability) if isinstance(capability, tuple) else divmod(capability, 10)
        return (major, minor) >= tuple(wanted)

    kind.has_device_capability = classmethod(at_least)
    import flashinfer.decode
    import flashinfer.prefill

    for module in (flashinfer.decode, flashinfer.prefill):
        if hasattr(module, "determine_attention_backend"):
            module.determine_attention_backend = lambda *args, **kwargs: "fa2"


def row(prompt: list[int], output: Any) -> dict[str, Any]:
    """A finished request as plain data; vLLM's first prompt log-probability is None."""
    found: dict[str, Any] = {"prompt": prompt, "logprobs": [], "top": [], "tokens": [], "token_logprobs": []}
    for token, said in zip(prompt[1:], (output.prompt_logprobs or [])[1:], strict=False):
        found["logprobs"].append(said[token].logprob)
        found["top"].append(min(said, key=lambda t: said[t].rank))
    [answer] = output.outputs
    found["tokens"] = list(answer.token_ids)
    for token, said in zip(found["tokens"], answer.logprobs or [], strict=False):
        found["token_logprobs"].append(said[token].logprob)
    found["cached"] = output.num_cached_tokens
    return found


def run_pass(llm: Any, prompts: list[list[int]], wanted: dict[str, Any]) -> tuple[list[dict[str, Any]], float]:
    """Rows and seconds of a pass."""
    from vllm import SamplingParams

    chosen = [prompts[i] for i in wanted.get("prompts", range(len(prompts)))]
    given = [{"prompt_token_ids": prompt} for prompt in chosen]
    params = [
        SamplingParams(
            max_tokens=wanted["max_tokens"], temperature=wanted.get("temperature", 0), top_k=top_k,
            top_p=wanted.get("top_p", 1.0), seed=wanted.get("seed", 17), ignore_eos=True, detokenize=False,
            logprobs=None if wanted.get("tokens_only") else 1,
            prompt_logprobs=1 if wanted.get("prompt_logprobs") else None,
        )
        for _, top_k in zip(given, itertools.cycle(wanted.get("top_k", [-1])))
    ]  # fmt: skip
    start = time.monotonic()
    if wanted.get("alone"):
        pairs = zip(given, params, strict=True)
        outputs = [llm.generate([one], its, use_tqdm=False)[0] for one, its in pairs]
    else:
        outputs = llm.generate(given, params, use_tqdm=False)
    return [row(p, o) for p, o in zip(chosen, outputs, strict=True)], time.monotonic() - start


def look(worker: Any) -> dict[str, Any]:
    """Bytes of weights by the layer that has them, and the backends that were chosen; in the worker."""
    import torch

    runner = worker.model_runner
    model = runner.get_model()
    found: dict[str, Any] = {"allocated": torch.cuda.memory_allocated(), "weights": {}, "methods": {}}
    for name, tensor in model.named_parameters():
        kind = next((k for k in ("qkv", "o_proj", "lm_head", "experts", "embed_tokens") if k in name), "other")
        found["weights"][kind] = found["weights"].get(kind, 0) + tensor.numel() * tensor.element_size()
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            kind = ".".join(part for part in name.split(".") if not part.isdigit())
            found["methods"][kind] = type(method).__name__
        if hasattr(module, "get_attn_backend"):
            found["attention"] = module.get_attn_backend().get_name()
    if worker.cache_config.kv_cache_memory_bytes is None:
        found["accounting"] = accounting(worker)
    return found


def accounting(worker: Any) -> dict[str, int]:
    """Return what vLLM measured for itself to size the KV cache, in bytes, and the blocks that it made."""
    names = (
        "requested_memory", "total_consumed", "peak_activation_memory", "cudagraph_memory_estimate",
        "available_kv_cache_memory_bytes",
    )  # fmt: skip
    found = {name: int(getattr(worker, name)) for name in names if hasattr(worker, name)}
    found["num_gpu_blocks"] = worker.cache_config.num_gpu_blocks
    return found


def counters(llm: Any) -> dict[str, float]:
    """vLLM's own counters of speculation and of the prefix cache."""
    found = {}
    for metric in llm.get_metrics():
        if ("spec_decode" in metric.name or "prefix_cache" in metric.name) and hasattr(metric, "value"):
            found[metric.name] = metric.value
    return found


def versions() -> dict[str, str]:
    """Of what is installed; NVIDIA's packages have CUDA's major version in their names."""
    names = ("vllm", "flashinfer-python", "torch", "triton", "transformers")
    names += tuple(f"nvidia-{what}-cu{major}" for what in ("nccl", "cudnn") for major in (12, 13))
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """The engine's answer to a spec; ``error`` in it if there is no engine, or a pass fails."""
    import torch

    found: dict[str, Any] = {"name": spec["name"], "versions": versions(), "passes": {}, "seconds": {}}
    if torch.cuda.is_available():
        found["machine"] = {"gpu": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability())}
    start = time.monotonic()
    try:
        if spec.get("capability"):
            take_for(*spec["capability"])
            found["taken_for"] = spec["capability"]
        from vllm import LLM

        llm = LLM(model=spec["model"], **spec["engine"])
        found["seconds"]["start"] = time.monotonic() - start
        try:
            found |= llm.collective_rpc(look)[0]
        except Exception as error:  # what can't be looked at is no reason to compare nothing
            found["not looked at"] = f"{type(error).__name__}: {error}"[:300]
        for wanted in spec["passes"]:
            rows, seconds = run_pass(llm, spec["prompts"], wanted)
            found["passes"][wanted["name"]] = rows
            found["seconds"][wanted["name"]] = seconds
        if spec.get("counters"):
            found["counters"] = counters(llm)
    except BaseException as error:
        traceback.print_exc()
        found["error"] = f"{type(error).__name__}: {error}"[:1500]
        found["raised in"] = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)][
            -3:
        ]
    return found


def main() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    spec = json.loads(Path(sys.argv[1]).read_text())
    found = answer(spec)
    Path(sys.argv[2]).write_text(json.dumps(found) + "\n")
    print(json.dumps({k: v for k, v in found.items() if k != "passes"}), flush=True)
    # Engines leave threads behind; what matters is written.
    os._exit(0)


if __name__ == "__main__":
    main()
