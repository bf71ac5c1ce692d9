"""The program for a GB10's owner, from its checks to its file, a stub in vLLM's place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from patchq.formats.measurements import read_file

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import gb10_serve  # noqa: E402

STUB = ROOT / "tests/serving/stub"


@pytest.fixture
def pythons(tmp_path: Path) -> dict[str, str]:
    """One that has a patched vLLM and one that has upstream's."""
    found = {}
    manifest = {"stack_id": "ab" * 32, "set": "gb10-newest", "upstreams": [
        {"name": "vllm", "patches": [{"name": n} for n in ("mxfp4-qkv-o", "mxfp4-lm-head", "moe-triton-topk")]}]}  # fmt: skip
    for build in ("patched", "stock"):
        site = tmp_path / build / "vllm/entrypoints/cli"
        site.mkdir(parents=True)
        for folder in (site, site.parent, site.parent.parent):
            (folder / "__init__.py").touch()
        (site / "main.py").write_text((STUB / "vllm/entrypoints/cli/main.py").read_text())
        if build == "patched":
            (tmp_path / build / "vllm/_patchq.json").write_text(json.dumps(manifest))
        python = tmp_path / f"{build}-python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path / build}" exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        found[build] = str(python)
    # A GPU, as far as nvidia-smi says.
    smi = tmp_path / "bin/nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho NVIDIA GB10, 12.1, 580.1\n")
    smi.chmod(0o755)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def command(tmp_path: Path, pythons: dict[str, str], *more: str) -> list[str]:
    return [
        sys.executable, str(ROOT / "benchmarks/gb10_serve.py"), "--patched", pythons["patched"], "--need", "0",
        "--keep-free", "0", "--out", str(tmp_path / "found.md"), "--users", "1,3", "--prompt", "20", "--generate", "6",
        "--repeats", "2", "--port", str(free_port()), *more,
    ]  # fmt: skip


def run(tmp_path: Path, pythons: dict[str, str], *more: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, pythons, *more), capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **env},
    )  # fmt: skip


def test_what_is_measured_is_what_bench_import_takes(tmp_path: Path, pythons: dict[str, str]) -> None:
    done = run(tmp_path, pythons, "--stock", pythons["stock"], "--", "--max-model-len", "4096")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read_file((tmp_path / "found.md").read_bytes(), "found.md")
    assert [(r.config, r.test, r.depth) for r in found[:4]] == [
        ("stock, 1 user", "pp20", 0), ("stock, 1 user", "tg6", 20),
        ("stock, 3 users", "pp20", 0), ("stock, 3 users", "tg6", 20),
    ]  # fmt: skip
    assert [r.config for r in found[4::4]] == ["patched, 1 user", "recipe, 1 user"]
    assert all(r.engine == "vLLM" and r.model == "openai/gpt-oss-120b" and r.value > 0 for r in found)
    logs = {name: (tmp_path / f"found-{name}.log").read_text() for name in ("stock", "patched", "recipe")}
    assert all("'--max-model-len', '4096'" in log and "ended cleanly" in log for log in logs.values())
    assert "'--mxfp4-layers', 'all'" in logs["recipe"]
    assert "mxfp4-layers" not in logs["patched"] + logs["stock"]
    assert "Send it back" in done.stdout


@pytest.mark.parametrize(
    ("fails", "message"),
    [("start", "the server ended with 1"), ("hang", "no answer after 1 s"), ("short", "the stream ended before")],
)
def test_a_server_that_fails_is_said_and_ended(
    tmp_path: Path, pythons: dict[str, str], fails: str, message: str
) -> None:
    done = run(tmp_path, pythons, "--start-limit", "1" if fails == "hang" else "60", STUB_FAILS=fails)
    assert done.returncode == 1
    assert message in done.stderr
    assert message in (tmp_path / "found.md").read_text()


def test_nothing_is_left_running(tmp_path: Path, pythons: dict[str, str]) -> None:
    """Neither what a server left behind, nor the server of a run that is ended from outside."""
    mark = tmp_path.name
    env = {"STUB_FAILS": "child", "STUB_MARK": mark}
    assert run(tmp_path, pythons, **env).returncode == 0
    path = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    started = subprocess.Popen(
        command(tmp_path, pythons, "--repeats", "100000"), env={**os.environ, **path, **env},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = tmp_path / "found-patched.log"
    log.unlink()
    while not (log.exists() and "serving" in log.read_text()):
        assert started.poll() is None
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    started.wait(90)
    assert started.stdout is not None
    started.stdout.close()
    left = [p.name for p in Path("/proc").iterdir() if p.name.isdigit() and mark in said_by(p)]
    assert not left


def said_by(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_what_is_missing_is_said_before_anything_is_started(tmp_path: Path, pythons: dict[str, str]) -> None:
    swapped = {"patched": pythons["stock"]}
    assert "upstream's vLLM" in run(tmp_path, swapped).stderr
    assert "GiB are free" in run(tmp_path, pythons, "--need", "1000000").stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        message = run(tmp_path, pythons, "--port", str(taken.getsockname()[1])).stderr
    assert "something answers on port" in message
    (tmp_path / "bin/nvidia-smi").write_text("#!/bin/sh\necho NVIDIA H100, 9.0, 580.1\n")
    assert "needs an SM12x GPU" in run(tmp_path, pythons).stderr
    assert not (tmp_path / "found.md").exists()


def test_a_plan_starts_nothing(tmp_path: Path, pythons: dict[str, str]) -> None:
    done = run(tmp_path, pythons, "--plan", "--stock", pythons["stock"])
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["stock", "patched", "recipe"]


def test_a_server_is_ended_when_memory_runs_short(tmp_path: Path, pythons: dict[str, str]) -> None:
    """The guard is on from the server's start."""
    given: Any = gb10_serve.arguments().parse_args(
        ["--keep-free", "1000000", "--start-limit", "60", "--port", str(free_port())]
    )
    os.environ["STUB_FAILS"] = "hang"
    try:
        found = gb10_serve.measure(
            gb10_serve.Setup("stock", pythons["stock"], (), {}), given, time.monotonic() + 60, tmp_path / "log"
        )
    finally:
        del os.environ["STUB_FAILS"]
    assert "less than 1e+06 GiB were left" in found["stopped"]


def test_the_recipe_is_the_one_of_the_page() -> None:
    page = (ROOT / "docs/how-to/on-a-gb10.md").read_text()
    for there in ({"vllm/mxfp4-lm-head"}, {"vllm/mxfp4-lm-head", "vllm/mxfp4-qkv-o"}):
        arguments = gb10_serve.setups("p", None, there, [])[-1].arguments
        assert all(argument in page for argument in arguments), arguments
    assert [s.name for s in gb10_serve.setups("p", "s", set(), [])] == ["stock", "patched"]


def test_speeds_are_of_all_users() -> None:
    timed = [gb10_serve.Timed(0.0, 1.0, 3.0, 100, 11), gb10_serve.Timed(0.0, 2.0, 4.0, 100, 11)]
    prefill, decode = gb10_serve.speeds(timed)
    assert prefill == pytest.approx(100.0)  # 200 tokens until second 2
    assert decode == pytest.approx(20 / 3)  # from second 1 to 4
