"""Stands in for vLLM where there is no GPU: the reference answers, with the errors that a test asks for by variable."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import reference
import torch


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


class LLM:
    def __init__(self, model: str, **given: Any) -> None:
        if given.get("attention_backend") == "FLASHINFER":
            raise ValueError("sinks not supported")
        self.cache: set[tuple[int, ...]] | None = set() if given["enable_prefix_caching"] else None
        sinks = os.environ.get("VLLM_ATTENTION_SINKS") != "false"
        self.model = reference.load(Path(model), sinks=sinks)

    def collective_rpc(self, ask: Any) -> list[Any]:
        raise NotImplementedError("no worker")

    def generate(self, prompts: list[dict[str, list[int]]], params: Any, use_tqdm: bool) -> list[Any]:
        each = params if isinstance(params, list) else [params] * len(prompts)
        return [self._one(prompt["prompt_token_ids"], its) for prompt, its in zip(prompts, each, strict=True)]

    def _one(self, prompt: list[int], params: Any) -> Any:
        tokens, new, past = list(prompt), list(prompt), None
        for _ in range(params.max_tokens):
            with torch.no_grad():
                said = self.model(torch.tensor([new]), past_key_values=past, use_cache=True)
            past, new = said.past_key_values, [int(said.logits[0, -1].argmax())]
            tokens += new
        [scores] = reference.score(self.model, [tokens])
        rows: list[Any] = [None]
        for n, token in enumerate(tokens[1:]):
            rank = 1 if token == scores["top"][n] else 5
            rows.append({scores["top"][n]: SimpleNamespace(logprob=scores["top_logprobs"][n], rank=1),
                         token: SimpleNamespace(logprob=scores["logprobs"][n], rank=rank)})  # fmt: skip
        cut, known = len(prompt), self.cache is not None and tuple(prompt) in self.cache
        if self.cache is not None:
            self.cache.add(tuple(prompt))
        answer = SimpleNamespace(token_ids=tokens[cut:], logprobs=rows[cut:])
        return SimpleNamespace(
            prompt_logprobs=rows[:cut] if params.prompt_logprobs else None, outputs=[answer],
            num_cached_tokens=(cut // 16) * 16 if known else 0,
        )  # fmt: skip
