"""The patched and the unpatched OpenAI server beside each other on one GPU, asked in turn.

    python tests/serving/serve_both.py MODEL OUT --patched PYTHON --unpatched PYTHON [-- arguments of vllm serve]

Both are asked for the same tokens, twice, and then streamed; rounds of one and of sixteen users at once alternate
between them, and ``vllm bench serve`` asks each. With ``--control`` each build is served twice, so that what two servers
of one build differ by stands beside what the builds do. Speeds are told as ratios: the model is small, and no GB10's.
All are ended as a user would end them, and what they said then is kept.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import comparing
import plan

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import gb10_serve

BUILDS = ("patched", "unpatched")
AGAIN = ", again"
#: Started in this order: neither build is always first, last or on the lower port.
CONTROLLED = ("patched", "unpatched", "unpatched" + AGAIN, "patched" + AGAIN)


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
    """How many first tokens are the same: of the two builds, of one asked twice, and of one that streams."""
    prompts = plan.prompts(given.vocabulary, given.lengths)

    def asked(ask: Callable[..., tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
        return {build: [ask(ports[build], given.model, p, given.generate) for p in prompts] for build in BUILDS}

    first, second, streams = asked(complete), asked(complete), asked(streamed)

    def tokens(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> list[int]:
        return [shared(a[0], b[0]) for a, b in zip(one, other, strict=True)]

    return {
        "prompts": given.lengths, "tokens": given.generate,
        "first tokens that are the same": {
            "of both builds": tokens(first["patched"], first["unpatched"]),
            "of one asked twice": {build: tokens(first[build], second[build]) for build in BUILDS},
            "streamed and not": {build: tokens(first[build], streams[build]) for build in BUILDS},
        },
        "streamed tokens": {build: [len(said) for said, *_ in streams[build]] for build in BUILDS},
        "events of a stream": {build: [count for *_, count in streams[build]] for build in BUILDS},
        "streamed text is the tokens'": {
            build: all(s[1] == a[1] for s in streams[build] for a in (*first[build], *second[build]) if s[0] == a[0])
            for build in BUILDS
        },
    }  # fmt: skip


def shared(first: list[int], second: list[int]) -> int:
    """How many tokens two answers begin with alike."""
    return next(
        (n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def in_turn(setups: dict[str, argparse.Namespace], users: int, repeats: int) -> dict[str, Any]:
    """Ratios of prefill and decode, patched to unpatched, medians of rounds that alternate."""
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in setups}
    for given in setups.values():
        gb10_serve.round_of(users, given, seed=-users)
    for repeat in range(repeats):
        for name in list(setups) if repeat % 2 else list(setups)[::-1]:
            rounds[name].append(gb10_serve.round_of(users, setups[name], seed=100 * users + repeat))
    found: dict[str, Any] = {"users": users, "rounds": repeats}
    for n, kind in enumerate(("prefill", "decode")):
        values = {name: [round(r[n], 1) for r in rounds[name]] for name in setups}
        found[kind] = {**ratios(values), **values}
    return found


def ratios(values: dict[str, list[float]]) -> dict[str, Any]:
    """Patched to unpatched, and where a build is served twice, the second server of each to its first."""
    pooled = {build: [v for name in values if name.startswith(build) for v in values[name]] for build in BUILDS}
    found: dict[str, Any] = {"ratio": comparing.ratio(*(statistics.median(pooled[build]) for build in BUILDS))}
    again = {build: values[build + AGAIN] for build in BUILDS if build + AGAIN in values}
    if again:
        found["ratio of two of one build"] = {
            build: comparing.ratio(statistics.median(told), statistics.median(values[build]))
            for build, told in again.items()
        }
    return found


def bench(name: str, python: str, users: int, given: argparse.Namespace) -> dict[str, Any]:
    """``vllm bench serve``'s own file."""
    file = f"vllm-bench-serve-{name.replace(', ', '-')}-c{users}.json"
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "vllm", "--model", given.model,
        "--port", str(given.port), "--dataset-name", "random", "--random-input-len", "256", "--random-output-len", "64",
        "--num-prompts", str(given.bench_prompts * users), "--max-concurrency", str(users), "--ignore-eos", "--save-result",
        "--result-dir", str(given.out), "--result-filename", file,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return {"command": command[1:], "error": (done.stdout + done.stderr)[-1500:]}
    said = json.loads((given.out / file).read_text())
    kept = ("completed", "duration", "output_throughput", "mean_ttft_ms", "mean_tpot_ms", "max_concurrency")
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
    parser.add_argument("--control", action="store_true", help="serve each build twice")
    parser.add_argument("--bench-prompts", type=int, default=4, help="of each user of vllm bench serve")
    parser.add_argument("--no-bench", action="store_true")
    own, more = gb10_serve.split(sys.argv[1:])
    given = argparse.Namespace(**vars(parser.parse_args(own)), more=more)
    given.out.mkdir(parents=True, exist_ok=True)
    pythons = {"patched": given.patched, "unpatched": given.unpatched}
    names = CONTROLLED if given.control else BUILDS
    setups = {name: argparse.Namespace(**vars(given), port=8017 + n) for n, name in enumerate(names)}
    python = {name: pythons[name.removesuffix(AGAIN)] for name in names}
    servers = {
        name: gb10_serve.Server(
            gb10_serve.Setup(name, python[name], tuple(given.more), {}),
            setups[name],
            given.out / f"serve-{name.replace(', ', '-')}.log",
        )
        for name in names
    }
    result: dict[str, Any] = {"arguments": given.more}
    with ExitStack() as stack:
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(stack.enter_context, servers.values()))
        result["seconds to healthy"] = {name: round(server.seconds, 1) for name, server in servers.items()}
        result["answers"] = same_answers({name: own.port for name, own in setups.items()}, given)
        result["in turn"] = [in_turn(setups, users, given.repeats) for users in given.users]
        (given.out / "serve.json").write_text(json.dumps(result, indent=1) + "\n")
        if not given.no_bench:
            result["vllm bench serve"] = [
                {"build": name, "users": users, **bench(name, python[name], users, setups[name])}
                for users in given.users[-1:]
                for name in names
            ]
        start = time.monotonic()
    result["ended"] = {"exit": {name: server.exit for name, server in servers.items()},
                       "seconds": round(time.monotonic() - start, 1)}  # fmt: skip
    (given.out / "serve.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
