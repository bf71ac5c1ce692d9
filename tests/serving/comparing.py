"""An engine's answers beside the reference's: errors of log-probabilities, likeliest tokens, greedy choices.

Plain data in, plain data out. An engine's answer is what ``engine.py`` writes: for each pass a list of rows with
``prompt`` (its tokens), ``logprobs`` and ``top`` (one for each of its tokens but the first, or none), ``tokens`` and
``token_logprobs`` (what was generated).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
#: What a sequence is looked up by.
Key = tuple[int, ...]


def sequences(answers: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Each sequence that the reference has to score, once: prompts with what was generated after them."""
    found: dict[Key, None] = {}
    for answer in answers:
        for rows in answer.get("passes", {}).values():
            found |= dict.fromkeys((*row["prompt"], *row["tokens"]) for row in rows)
    return [list(key) for key in found]


def beginning(known: Mapping[Key, Mapping[str, Sequence[Any]]], sequence: Sequence[int], least: int) -> dict[str, Any]:
    """What a reference that never saw a sequence says of its beginning, if it saw another that begins like it.

    Nothing that follows changes it, since attention is causal.

    :raises KeyError: if none has the first ``least`` tokens.
    """
    best, length = None, 0
    for key, rows in known.items():
        differing = (n for n, (a, b) in enumerate(zip(key, sequence, strict=False)) if a != b)
        shared = next(differing, min(len(key), len(sequence)))
        if shared >= least and shared > length:
            best, length = rows, shared
    if best is None:
        raise KeyError(f"no sequence begins like {list(sequence[:5])} …")
    return {name: list(values[: length - 1]) for name, values in best.items()}


def prompts(rows: Sequence[Row], reference: Mapping[Key, Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """Over all prompts' positions: mean and worst error of the log-probability, and how often the likeliest agree.

    :raises KeyError: if the reference lacks a sequence.
    """
    errors: list[float] = []
    same = 0
    for row in rows:
        want = reference[(*row["prompt"], *row["tokens"])]
        for got, expected in zip(row["logprobs"], want["logprobs"], strict=False):
            errors.append(abs(got - expected))
        same += sum(a == b for a, b in zip(row["top"], want["top"], strict=False))
    if not errors:
        return {}
    return {
        "positions": len(errors),
        "mean": statistics.fmean(errors),
        "worst": max(errors),
        "top1": same / len(errors),
    }


def greedy(rows: Sequence[Row], reference: Mapping[Key, Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """Over all generated tokens: how many are the reference's likeliest, and how much less likely the worst choice is.

    The reference is asked after each token with those that the engine chose before it, so that one difference isn't
    counted again in all that follows.
    """
    total = same = 0
    regret = 0.0
    errors: list[float] = []
    for row in rows:
        want, start = reference[(*row["prompt"], *row["tokens"])], len(row["prompt"]) - 1
        # A reference that knows only the beginning judges only that.
        for n, token in enumerate(row["tokens"][: len(want["top"]) - start]):
            total += 1
            same += token == want["top"][start + n]
            regret = max(regret, want["top_logprobs"][start + n] - want["logprobs"][start + n])
            if row["token_logprobs"]:
                errors.append(abs(row["token_logprobs"][n] - want["logprobs"][start + n]))
    if not total:
        return {}
    return {"tokens": total, "likeliest": same / total, "worst_regret": regret,
            "mean": statistics.fmean(errors) if errors else None}  # fmt: skip


def between(first: Sequence[Row], second: Sequence[Row]) -> dict[str, Any]:
    """Two runs of the same prompts: tokens equal up to the first that differs, and log-probabilities up to there."""
    equal, total, logprobs, prompt_errors = 0, 0, [], []
    same_rows = 0
    for a, b in zip(first, second, strict=True):
        if a["prompt"] != b["prompt"]:
            raise ValueError("the runs have other prompts")
        agreed = 0
        for x, y in zip(a["tokens"], b["tokens"], strict=False):
            if x != y:
                break
            agreed += 1
        equal, total = equal + agreed, total + max(len(a["tokens"]), len(b["tokens"]))
        same_rows += a["tokens"] == b["tokens"]
        for x, y in zip(a["token_logprobs"][:agreed], b["token_logprobs"][:agreed], strict=False):
            logprobs.append(abs(x - y))
        for x, y in zip(a["logprobs"], b["logprobs"], strict=False):
            prompt_errors.append(abs(x - y))
    return {
        "same_rows": f"{same_rows} of {len(first)}", "same_tokens": equal / total if total else None,
        "worst_token_logprob": max(logprobs, default=None), "worst_prompt_logprob": max(prompt_errors, default=None),
        "mean_prompt_logprob": statistics.fmean(prompt_errors) if prompt_errors else None,
    }  # fmt: skip


def ratio(patched: float, unpatched: float) -> float:
    """How many times as much as the unpatched; more is faster where it is tokens a second."""
    if unpatched <= 0:
        raise ValueError("the unpatched has no speed")
    return patched / unpatched
