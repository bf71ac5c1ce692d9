"""Measure how fast the stack serves gpt-oss-120b on a GB10, compared with stock vLLM.

    python benchmarks/gb10_serve.py --patched /opt/patched/bin/python --stock /opt/stock/bin/python [-- SERVE-ARGUMENTS]

One Python has the set's wheels installed, the other upstream's. There are three servers: stock, the patched build with
stock's settings, and the patched build with the recipe's settings. Each OpenAI server listens on loopback, is warmed up,
and answers 1, 2, 4, 8 and 16 users at once. The requirements are checked first. On a machine whose GPU shares its memory,
a server that takes too much memory stops the machine. The script therefore ends the server if less than ``--keep-free``
is left, or if it doesn't answer within ``--start-limit`` seconds. No process is left running. The output is a file for
``patchq bench import``. ``--plan`` prints the plan, on any machine.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The recipe of docs/how-to/on-a-gb10.md, by the patches that a build has.
LAYERS = ("--mxfp4-layers", "all")
TARGETS = ("--linear-backend", "marlin", "--quantization-config",
           '{"targets": {"re:.*[.][qkvo]_proj": "mxfp4", "lm_head": "mxfp4"}}')  # fmt: skip
#: Of a GB10's 121.7 GiB, 101 are available after boot. vLLM's default needs 112.
MEMORY = ("--gpu-memory-utilization", "0.77")
GIB = 1 << 30


class Refused(Exception):
    """A requirement of a measurement is not met."""


@dataclass(frozen=True)
class Setup:
    """Server to measure."""

    name: str
    python: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Timed:
    """Streamed request; seconds since the start of the round."""

    begun: float
    first: float
    last: float
    prompt_tokens: int
    tokens: int


def manifest(python: str) -> dict[str, Any]:
    """Return the ``_patchq.json`` of the installed vLLM without importing vLLM; empty for upstream's."""
    code = (
        "import importlib.util, json, pathlib; s = importlib.util.find_spec('vllm'); "
        "p = pathlib.Path(list(s.submodule_search_locations)[0], '_patchq.json') if s else None; "
        "print(p.read_text() if p and p.exists() else '{}' if s else 'null')"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    if done.returncode or done.stdout.strip() == "null":
        raise Refused(f"{python} has no vLLM: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout))


def patches(said: Mapping[str, Any]) -> set[str]:
    """Return ``upstream/name`` of each patch in a manifest."""
    return {f"{of['name']}/{patch['name']}" for of in said.get("upstreams", []) for patch in of.get("patches", [])}


def setups(patched: str, stock: str | None, there: set[str], more: Sequence[str]) -> list[Setup]:
    """Return the servers to measure, in order."""
    more = (*MEMORY, *more)
    arguments: tuple[str, ...] = ()
    if "vllm/mxfp4-lm-head" in there:
        arguments = LAYERS if "vllm/mxfp4-qkv-o" in there else TARGETS
    found = [Setup("stock", stock, tuple(more), {})] if stock else []
    found.append(Setup("patched", patched, tuple(more), {}))
    return [*found, Setup("recipe", patched, (*more, *arguments), {})] if arguments else found


# The machine


def available() -> int:
    """Return the bytes of memory that are available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise Refused("/proc/meminfo has no MemAvailable")


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {"memory available GiB": round(available() / GIB, 1), "cores": os.cpu_count()}
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=60)
        found["gpu"] = done.stdout.strip() or done.stderr.strip()[-200:]
    return found


def checks(given: argparse.Namespace, facts: Mapping[str, Any]) -> list[str]:
    """Return the reasons not to measure on this machine now."""
    found = []
    if "gpu" not in facts:
        found.append("nvidia-smi is not there: no GPU that vLLM could use")
    elif "12." not in facts["gpu"] and not given.any_gpu:
        found.append(f"needs an SM12x GPU, here is {facts['gpu']}; --any-gpu rehearses on another")
    need = given.need + given.keep_free
    if facts["memory available GiB"] < need:
        found.append(f"{facts['memory available GiB']} GiB are free, {need:g} are needed; end what runs, or say --need")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", given.port)) == 0:
            found.append(f"something answers on port {given.port}; end it, or say --port")
    return found


def verified(python: str) -> str:
    """Return the output of ``patchq verify-installed`` for an environment, if patchq is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "patchq", "verify-installed", "--python", python], capture_output=True, text=True
    )
    return f"exit {done.returncode}\n{(done.stdout + done.stderr).strip()[-2000:]}"


# A server


class Server:
    """``vllm serve`` on loopback, in a process group of its own; a context that ends it in any case.

    :raises Refused: if it doesn't answer in time, or ends.
    """

    def __init__(self, setup: Setup, given: argparse.Namespace, log: Path) -> None:
        self.setup, self.given, self.log = setup, given, log
        self.short, self.over = threading.Event(), threading.Event()
        self.exit: int | None = None
        self.seconds = 0.0

    def command(self) -> list[str]:
        return [
            self.setup.python, "-m", "vllm.entrypoints.cli.main", "serve", self.given.model, "--host", "127.0.0.1",
            "--port", str(self.given.port), *self.setup.arguments,
        ]  # fmt: skip

    def __enter__(self) -> Server:
        env = {**os.environ, "VLLM_NO_USAGE_STATS": "1", **self.setup.env}
        self.out = self.log.open("wb")
        start = time.monotonic()
        self.process = subprocess.Popen(
            self.command(), stdout=self.out, stderr=subprocess.STDOUT, env=env, start_new_session=True,
            # What runs in a shell's background ignores an interrupt, and so would its children: it ends a server.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        try:
            threading.Thread(target=self._watch, daemon=True).start()
            while not self._healthy():
                if self.process.poll() is not None:
                    said = self.log.read_text(errors="replace")[-1500:]
                    raise Refused(f"{self.setup.name}: the server ended with {self.process.returncode}\n{said}")
                if time.monotonic() - start > self.given.start_limit:
                    raise Refused(f"{self.setup.name}: no answer after {self.given.start_limit:g} s, see {self.log}")
                time.sleep(0.5)
        except BaseException:
            self.stop()
            raise
        self.seconds = time.monotonic() - start
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.given.port, timeout=5)
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
            finally:
                connection.close()
        return False

    def _watch(self) -> None:
        while not self.over.wait(0.5):
            if available() < self.given.keep_free * GIB:
                self.short.set()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                return

    def stop(self) -> None:
        """Terminate the server as a user would. Kill the rest of its process group after a minute."""
        self.over.set()
        for sign, wait in ((signal.SIGINT, 60.0), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                if sign == signal.SIGINT and self.process.poll() is None:
                    self.process.send_signal(sign)
                elif sign == signal.SIGKILL:
                    os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.exit = self.process.wait(wait)
        self.out.close()


# A client


def stream(port: int, model: str, prompt: list[int], generate: int, since: float, limit: float) -> Timed:
    """Request this many tokens after a prompt, and time the answer."""
    body = {
        "model": model, "prompt": prompt, "max_tokens": generate, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    begun = time.monotonic() - since
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=limit)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(f"the server says {response.status}: {response.read(500).decode(errors='replace')}")
        first = last = 0.0
        usage: dict[str, int] = {}
        for event in events(response):
            now = time.monotonic() - since
            if event.get("error"):
                raise Refused(f"the server says {event['error']}")
            if event.get("choices"):
                first, last = first or now, now
            usage = event.get("usage") or usage
    finally:
        connection.close()
    if (usage.get("completion_tokens"), usage.get("prompt_tokens")) != (generate, len(prompt)):
        raise Refused(f"asked for {generate} tokens after {len(prompt)}, got {usage or 'no usage'}")
    return Timed(begun, first, last, len(prompt), generate)


def events(response: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The JSON of server-sent events, up to ``[DONE]``.

    :raises Refused: if the stream ends before.
    """
    for line in response:
        text = line.decode().strip()
        if text == "data: [DONE]":
            return
        if text.startswith("data:"):
            yield json.loads(text.removeprefix("data:"))
    raise Refused("the stream ended before [DONE]")


def speeds(timed: Sequence[Timed]) -> tuple[float, float]:
    """Return prefill and decode speed of a round in tokens per second of all users.

    Prefill is the tokens of all prompts until the last user's first token. Decode is the tokens after each user's first,
    while any were decoded.
    """
    prefill = sum(t.prompt_tokens for t in timed) / (max(t.first for t in timed) - min(t.begun for t in timed))
    span = max(t.last for t in timed) - min(t.first for t in timed)
    return prefill, sum(t.tokens - 1 for t in timed) / span


def round_of(users: int, given: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Return prefill and decode speed with this many users at once, each with a new prompt."""
    chosen = random.Random(seed)
    prompts = [[chosen.randrange(2, given.vocabulary) for _ in range(given.prompt)] for _ in range(users)]
    since = time.monotonic()
    with ThreadPoolExecutor(users) as pool:
        asked = [
            pool.submit(stream, given.port, given.model, prompt, given.generate, since, given.request_limit)
            for prompt in prompts
        ]
        return speeds([one.result() for one in asked])


def measure(setup: Setup, given: argparse.Namespace, until: float, log: Path) -> dict[str, Any]:
    """Return the rows of one server, and the reason in ``stopped`` if it failed."""
    found: dict[str, Any] = {"name": setup.name, "arguments": list(setup.arguments), "env": dict(setup.env), "rows": []}
    server = Server(setup, given, log)
    try:
        with server:
            found["seconds to healthy"] = round(server.seconds, 1)
            for users in given.users:
                round_of(users, given, seed=-users)  # warm: graphs, tuning
                rounds = []
                for repeat in range(given.repeats):
                    if time.monotonic() > until:
                        raise Refused("the time is over (--limit)")
                    rounds.append(round_of(users, given, seed=1000 * users + repeat))
                for kind, values in zip(("prefill", "decode"), zip(*rounds, strict=True), strict=True):
                    spread = statistics.stdev(values) if len(values) > 1 else 0.0
                    row = {"kind": kind, "users": users, "value": statistics.fmean(values), "spread": spread}
                    found["rows"].append(row)
                    print(
                        f"{setup.name:8} {users:3} users  {kind:7} {row['value']:9.1f} ± {spread:.1f} t/s", flush=True
                    )
    except (Refused, OSError, http.client.HTTPException) as error:
        short = f"less than {given.keep_free:g} GiB were left; " if server.short.is_set() else ""
        found["stopped"] = f"{short}{type(error).__name__}: {error}"
        print(f"{setup.name}: {found['stopped']}", file=sys.stderr)
    found["exit of the server"] = server.exit
    return found


# What is written


def report(facts: Mapping[str, Any], done: Sequence[Mapping[str, Any]], given: argparse.Namespace) -> str:
    """Return the output file: environment, results, and a table for ``patchq bench import``."""
    lines = ["# Serving, measured", "", "```json", json.dumps(facts, indent=1), "```", ""]
    for one in done:
        said = {key: value for key, value in one.items() if key != "rows"}
        lines += ["```json", json.dumps(said, indent=1), "```", ""]
    lines += ["| engine | model | config | test | t/s |", "|---|---|---|---|---|"]
    model = Path(given.model).name if Path(given.model).exists() else given.model
    for one in done:
        for row in one["rows"]:
            users = f"{row['users']} user" + "s" * (row["users"] > 1)
            test = f"pp{given.prompt}" if row["kind"] == "prefill" else f"tg{given.generate} @ d{given.prompt}"
            speed = f"{row['value']:.2f} ± {row['spread']:.2f}"
            lines.append(f"| vLLM | {model} | {one['name']}, {users} | {test} | {speed} |")
    return "\n".join([*lines, ""])


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patched", default=sys.executable, help="a Python that has the set's wheels")
    parser.add_argument("--stock", help="a Python that has upstream's")
    parser.add_argument("--model", default="openai/gpt-oss-120b", help="name or folder")
    parser.add_argument("--out", type=Path, default=Path("gb10-serve.md"))
    parser.add_argument("--users", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8, 16])
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of each prompt")
    parser.add_argument("--generate", type=int, default=128, help="tokens that each user asks for")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=199000, help="prompts are of tokens below this")
    parser.add_argument("--need", type=float, default=80, help="GiB that a server needs")
    parser.add_argument("--keep-free", type=float, default=6, help="GiB of memory; with less, the server is ended")
    parser.add_argument("--start-limit", type=float, default=1800, help="seconds until a server has to answer")
    parser.add_argument("--request-limit", type=float, default=600, help="seconds without a byte of an answer")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for everything")
    parser.add_argument("--port", type=int, default=8017)
    parser.add_argument("--any-gpu", action="store_true", help="a rehearsal on another GPU than a GB10's")
    parser.add_argument("--plan", action="store_true", help="say what would be run")
    return parser


def split(given: list[str]) -> tuple[list[str], list[str]]:
    """Return the script's own arguments, and those after ``--`` for every ``vllm serve``."""
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


def main() -> int:
    own, more = split(sys.argv[1:])
    given = argparse.Namespace(**vars(arguments().parse_args(own)), more=more)
    # Ended from outside, it ends its server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        said = manifest(given.patched)
        if not said:
            raise Refused(f"{given.patched} has upstream's vLLM: name a Python that has the set's wheels")
        todo = setups(given.patched, given.stock, patches(said), given.more)
        if given.plan:
            for setup in todo:
                variables = " ".join(f"{k}={v}" for k, v in setup.env.items())
                print(f"{setup.name}: {variables} {' '.join(Server(setup, given, given.out).command())}")
            return 0
        facts = {"machine": machine(), "stack": said.get("stack_id"), "set": said.get("set"), "command": sys.argv[1:]}
        against = checks(given, facts["machine"])
        if against:
            raise Refused("\n".join(against))
    except Refused as error:
        print(error, file=sys.stderr)
        return 3
    facts["verify-installed"] = verified(given.patched)
    until, done = time.monotonic() + given.limit, []
    try:
        for setup in todo:
            log = given.out.with_name(f"{given.out.stem}-{setup.name}.log")
            done.append(measure(setup, given, until, log))
    finally:
        given.out.write_text(report(facts, done, given))
        print(f"wrote {given.out}. Send it back, and {given.out.stem}-*.log with it, whatever they say;")
        print(f"or keep it: patchq bench import {given.out} --machine GB10 --python {given.patched}")
    return 1 if any("stopped" in one for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
