"""Two servers asked in turn, stubs in their place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_two_servers_are_compared_and_ended(tmp_path: Path) -> None:
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
        "20", "--generate", "6", "--keep-free", "0", "--", "--max-model-len", "64",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out/serve.json").read_text())
    assert found["arguments"] == ["--max-model-len", "64"]
    assert found["answers"]["first tokens that both builds share"] == [6, 6]
    for what in ("tokens", "text"):
        assert found["answers"][f"streamed {what} as not streamed"] == {"patched": True, "unpatched": True}
    assert found["answers"]["events"]["patched"] == [6, 6]
    assert [(t["users"], len(t["decode"]["patched"])) for t in found["in turn"]] == [(1, 2), (3, 2)]
    assert all(t[kind]["ratio"] > 0 for t in found["in turn"] for kind in ("prefill", "decode"))
    assert found["ended"]["exit"] == {"patched": 0, "unpatched": 0}
