"""The tutorial's commands, run as they stand there; what they print is what stands below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kit import ROOT


def steps(text: str) -> list[tuple[str, str]]:
    """Each command with the lines that are shown below it."""
    found: list[tuple[str, str]] = []
    for line in "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif "<<'END'" in found[-1][0] and not found[-1][0].endswith("\nEND\n"):
            found[-1] = (found[-1][0] + line, "")  # a file
        elif "<<'END'" not in found[-1][0] and found[-1][0].count("'") % 2:
            found[-1] = (found[-1][0] + line, "")  # a message that goes on
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def pattern(shown: str) -> str:
    """What is shown, with an … for anything."""
    return r"[\s\S]*?".join(re.escape(part) for part in shown.strip("\n").split("…")) + r"\s*"


@pytest.mark.parametrize("page", ["first-stack", "adopt-a-dockerfile"])
def test_the_tutorial_does_what_it_says(tmp_path: Path, page: str) -> None:
    program = tmp_path / "bin" / "patchq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m patchq "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "tools")}
    # The tutorial makes a package of its own, with what tests are installed with.
    env["PATH"] = f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    every = steps((ROOT / "docs" / "tutorial" / f"{page}.md").read_text())
    assert len(every) > 20
    script = "".join(f"{command}\necho '@@@'\n" for command, _ in every)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    printed = done.stdout.split("@@@\n")
    assert len(printed) == len(every) + 1
    for (command, shown), said in zip(every, printed, strict=False):
        quiet = "git " in command and not shown
        # What git fetches is told in between; the first line that is shown is where to begin.
        wanted = pattern(shown)
        assert quiet or re.search(rf"(?:^|\n){wanted}$", said), f"$ {command}\nprinted:\n{said}\nnot:\n{shown}"
        assert shown or "error" not in said, f"$ {command}\n{said}"
