"""The tutorial's commands, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from kit import ROOT


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial" / "first-stack.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    script = ["set -e"]
    for line in "".join(blocks).splitlines():
        if line.startswith("$ "):
            command = line[2:]
            # `check` finds what is still to say, and says so by its exit code.
            script.append(f"{command} || test $? = 1" if command == "patchq check" else command)
        elif script[-1].count("'") % 2:
            script.append(line)  # a message that goes on
            script[-2:] = ["\n".join(script[-2:])]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "patchq"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m patchq "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("widget: added longer-timeout", "widget: added retries", "Proof: is missing [proof]"):
        assert said in done.stdout
    assert "RETRIES = 5" in (tmp_path / "fork/.patchq/trees/widget/client.py").read_text()
