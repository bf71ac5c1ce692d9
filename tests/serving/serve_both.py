"""The patched and the unpatched OpenAI server beside each other on one GPU, asked in turn.

    python tests/serving/serve_both.py MODEL OUT --patched PYTHON --unpatched PYTHON [-- arguments of vllm serve]

Both are asked for the same tokens, streamed and not; then rounds of one and of sixteen users at once alternate between
them, and ``vllm bench serve`` asks each. Speeds are told as ratios: the model is small, and no GB10's. Both are ended
as a user would end them, and what they said then is kept.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import comparing
import plan

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gb10_serve

BUILDS = ("patched", "unpatched")


def complete(port: int, model: str, prompt: list[int], generate: int) -> tuple[list[int], str]:
    """Tokens and text of one answer that isn't streamed."""
    body = {"model": model, "prompt": prompt, "max_tokens": generate, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    said = json.loads(connection.getresponse().read())
    connection.close()
    [choice] = said["choices"]
    return choice["token_ids"], choice["text"]


def streamed(port: int, model: str, prompt: list[int], generate: int) -> tuple[list[int], str, int]:
    """Tokens and text of a streamed answer, and the number of events that had some."""
    body = {"model": model, "prompt": prompt, "max_tokens": generate, "temperature": 0, "ignore_eos": True,
            "stream": True, "return_token_ids": True}  # fmt: skip
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    choices = [event["choices"][0] for event in gb10_serve.events(connection.getresponse())]
    connection.close()
    tokens = [token for choice in choices for token in choice.get("token_ids") or ()]
    return tokens, "".join(choice["text"] for choice in choices), len(choices)


def same_answers(ports: dict[str, int], given: argparse.Namespace) -> dict[str, Any]:
    """Whether streaming changes nothing, and how many first tokens the two builds share."""
    prompts = plan.prompts(given.vocabulary, given.lengths)
    answers = {
        build: [complete(port, given.model, p, given.generate) for p in prompts] for build, port in ports.items()
    }
    streams = {
        build: [streamed(port, given.model, p, given.generate) for p in prompts] for build, port in ports.items()
    }
    found: dict[str, Any] = {
        "prompts": given.lengths, "tokens": given.generate,
        "first tokens that both builds share": [shared(*(answers[build][n][0] for build in BUILDS))
                                                for n in range(len(prompts))],
        "events": {build: [count for *_, count in streams[build]] for build in BUILDS},
    }  # fmt: skip
    for what, at in (("tokens", 0), ("text", 1)):
        pairs = {build: list(zip(answers[build], streams[build], strict=True)) for build in BUILDS}
        found[f"streamed {what} as not streamed"] = {b: all(a[at] == s[at] for a, s in pairs[b]) for b in BUILDS}
        differing = [(a[at], s[at]) for build in BUILDS for a, s in pairs[build] if a[at] != s[at]]
        if differing:
            found[f"first streamed {what} that differ"] = differing[0]
    return found


def shared(first: list[int], second: list[int]) -> int:
    """How many tokens two answers begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), len(first))


def in_turn(setups: dict[str, argparse.Namespace], users: int, repeats: int) -> dict[str, Any]:
    """Ratios of prefill and decode, patched to unpatched, medians of rounds that alternate."""
    rounds: dict[str, list[tuple[float, float]]] = {build: [] for build in setups}
    for given in setups.values():
        gb10_serve.round_of(users, given, seed=-users)
    for repeat in range(repeats):
        for build in BUILDS if repeat % 2 else BUILDS[::-1]:
            rounds[build].append(gb10_serve.round_of(users, setups[build], seed=100 * users + repeat))
    found: dict[str, Any] = {"users": users, "rounds": repeats}
    for n, kind in enumerate(("prefill", "decode")):
        values = {build: [r[n] for r in rounds[build]] for build in BUILDS}
        found[kind] = {
            "ratio": comparing.ratio(*(statistics.median(values[build]) for build in BUILDS)),
            **{build: [round(v, 1) for v in values[build]] for build in BUILDS},
        }
    return found


def bench(build: str, python: str, port: int, users: int, given: argparse.Namespace) -> dict[str, Any]:
    """``vllm bench serve``'s own file."""
    name = f"vllm-bench-serve-{build}-c{users}.json"
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "vllm", "--model", given.model,
        "--port", str(port), "--dataset-name", "random", "--random-input-len", "256", "--random-output-len", "64",
        "--num-prompts", str(4 * users), "--max-concurrency", str(users), "--ignore-eos", "--save-result",
        "--result-dir", str(given.out), "--result-filename", name,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return {"command": command[1:], "error": (done.stdout + done.stderr)[-1500:]}
    said = json.loads((given.out / name).read_text())
    kept = ("completed", "output_throughput", "mean_ttft_ms", "mean_tpot_ms", "max_concurrency")
    return {key: said.get(key) for key in kept}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--patched", required=True)
    parser.add_argument("--unpatched", required=True)
    parser.add_argument("--users", type=lambda text: [int(n) for n in text.split(",")], default=[1, 16])
    parser.add_argument("--lengths", type=lambda text: [int(n) for n in text.split(",")], default=[7, 129, 500])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=199000)
    parser.add_argument("--keep-free", type=float, default=2)
    parser.add_argument("--start-limit", type=float, default=300)
    parser.add_argument("--request-limit", type=float, default=120)
    parser.add_argument("--no-bench", action="store_true")
    own, more = gb10_serve.split(sys.argv[1:])
    given = argparse.Namespace(**vars(parser.parse_args(own)), more=more)
    given.out.mkdir(parents=True, exist_ok=True)
    pythons = {"patched": given.patched, "unpatched": given.unpatched}
    setups = {build: argparse.Namespace(**vars(given), port=8017 + n) for n, build in enumerate(BUILDS)}
    servers = {
        build: gb10_serve.Server(
            gb10_serve.Setup(build, pythons[build], tuple(given.more), {}),
            setups[build],
            given.out / f"serve-{build}.log",
        )
        for build in BUILDS
    }
    result: dict[str, Any] = {"arguments": given.more}
    with ExitStack() as stack:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(stack.enter_context, servers.values()))
        result["seconds to healthy"] = {build: round(server.seconds, 1) for build, server in servers.items()}
        ports = {build: given.port for build, given in setups.items()}
        result["answers"] = same_answers(ports, given)
        result["in turn"] = [in_turn(setups, users, given.repeats) for users in given.users]
        (given.out / "serve.json").write_text(json.dumps(result, indent=1) + "\n")
        if not given.no_bench:
            result["vllm bench serve"] = [
                {"build": build, "users": users, **bench(build, pythons[build], ports[build], users, given)}
                for users in given.users[-1:]
                for build in BUILDS
            ]
        start = time.monotonic()
    result["ended"] = {"exit": {build: server.exit for build, server in servers.items()},
                       "seconds": round(time.monotonic() - start, 1)}  # fmt: skip
    (given.out / "serve.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
