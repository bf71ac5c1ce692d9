"""Two servers asked in turn, stubs in their place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import serve_both

HERE = Path(__file__).parent


@pytest.mark.parametrize("control", [False, True])
def test_two_servers_are_compared_and_ended(tmp_path: Path, control: bool) -> None:
    python = tmp_path / "python"
    # Of the stub only the server: the rest wants torch.
    site = tmp_path / "vllm/entrypoints/cli"
    site.mkdir(parents=True)
    for folder in (site, site.parent, site.parent.parent):
        (folder / "__init__.py").touch()
    (site / "main.py").write_text((HERE / "stub/vllm/entrypoints/cli/main.py").read_text())
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    command = [
        sys.executable, str(HERE / "serve_both.py"), "model", str(tmp_path / "out"), "--patched", str(python),
        "--unpatched", str(python), "--no-bench", "--users", "1,3", "--lengths", "5,9", "--repeats", "2", "--prompt",
        "20", "--generate", "6", "--keep-free", "0", *(["--control"] if control else []), "--", "--max-model-len", "64",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/serve.json").read_text())
    assert found["arguments"] == ["--max-model-len", "64"]
    same = found["answers"]["first tokens that are the same"]
    assert same["of both builds"] == [6, 6]
    assert same["of one asked twice"] == same["streamed and not"] == {"patched": [6, 6], "unpatched": [6, 6]}
    for what in ("streamed tokens", "events of a stream"):
        assert found["answers"][what] == {"patched": [6, 6], "unpatched": [6, 6]}
    assert found["answers"]["streamed text is the tokens'"] == {"patched": True, "unpatched": True}
    assert [(t["users"], len(t["decode"]["patched"])) for t in found["in turn"]] == [(1, 2), (3, 2)]
    assert all(t[kind]["ratio"] > 0 for t in found["in turn"] for kind in ("prefill", "decode"))
    assert all(("ratio of two of one build" in t["decode"]) is control for t in found["in turn"])
    names = ["patched", "unpatched", *(["unpatched, again", "patched, again"] if control else [])]
    assert found["ended"]["exit"] == dict.fromkeys(names, 0)


def test_answers_that_go_apart_are_told_from_where_on() -> None:
    assert serve_both.shared([1, 2, 3], [1, 2, 3]) == 3
    assert serve_both.shared([1, 2, 3], [1, 5, 3]) == 1
    assert serve_both.shared([1, 2, 3], [1, 2]) == 2


def test_what_one_build_differs_by_stands_beside_what_the_builds_do() -> None:
    told = serve_both.ratios(
        {"patched": [8.0], "unpatched": [4.0], "unpatched, again": [4.0], "patched, again": [10.0]}
    )
    assert told == {"ratio": 2.25, "ratio of two of one build": {"patched": 1.25, "unpatched": 1.0}}
