"""README and the tutorials as a new user follows them: in a fresh environment, on each Python from 3.10 that is here.

The environment is made by README's own install lines in a copy of the tracked files, and has nothing else. The
tutorials' outputs are compared with the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kit import ROOT

pytestmark = pytest.mark.index

PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def find_python(version: str) -> str:
    """Return a Python of a version that runs: this one, one of PATH, or one of pyenv or uv; empty if there is none."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = home / ".local" / "share" / "uv" / "python"
    candidates = [sys.executable, shutil.which(f"python{version}") or ""]
    candidates += map(str, [*pyenv.glob(f"{version}.*/bin/python"), *uv.glob(f"cpython-{version}.*/bin/python3")])
    asks = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", asks], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return candidate
    return ""


def block(marker: str) -> str:
    """Return README's block of a marker, as ``.ci/run`` does."""
    text = (ROOT / "README.md").read_text()
    return text.partition(f"<!-- command: {marker} -->\n```sh\n")[2].partition("```")[0]


def environment(home: Path, programs: Path) -> dict[str, str]:
    """Return the variables of a new user: an identity for git, and the programs of a virtual environment."""
    home.mkdir(exist_ok=True)
    (home / ".gitconfig").write_text("[user]\n\tname = New User\n\temail = new@example.org\n")
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "TMPDIR"}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**kept, "PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module", params=PYTHONS)
def user(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a user who has followed README's install lines with one Python."""
    python = find_python(request.param)
    if not python:
        pytest.skip(f"not run: there is no Python {request.param}")
    folder = tmp_path_factory.mktemp("user")
    clone = folder / "clone"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        if name.startswith(("tools/", "locks/", ".ci/")) or "/" not in name:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    env = environment(folder / "home", folder / "venv" / "bin")
    shell("git init -q && git add -A", clone, env)
    shell(block("install"), clone, env)
    return env


def shell(script: str, cwd: Path, env: dict[str, str]) -> str:
    """Run a block, which must succeed, and return all that it printed."""
    done = subprocess.run(["bash", "-e", "-c", script], cwd=cwd, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def steps(text: str) -> list[tuple[str, str]]:
    """Return each command with the lines that are shown below it."""
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
    """Return a pattern of the shown output, with an … for anything."""
    return r"[\s\S]*?".join(re.escape(part) for part in shown.strip("\n").split("…")) + r"\s*"


@pytest.mark.parametrize("page", ["first-stack", "adopt-a-dockerfile"])
def test_a_tutorial_does_what_it_shows(user: dict[str, str], tmp_path: Path, page: str) -> None:
    every = steps((ROOT / "docs" / "tutorial" / f"{page}.md").read_text())
    assert len(every) > 15
    script = "".join(f"{command}\necho '@@@'\n" for command, _ in every)
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=user, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)  # fmt: skip
    printed = done.stdout.split("@@@\n")
    assert len(printed) == len(every) + 1
    for (command, shown), said in zip(every, printed, strict=False):
        quiet = "git " in command and not shown
        # Progress of downloads comes first; the first line that is shown is where to begin.
        wanted = pattern(shown)
        assert quiet or re.search(rf"(?:^|\n){wanted}$", said), f"$ {command}\nprinted:\n{said}\nnot:\n{shown}"
        assert shown or "error" not in said, f"$ {command}\n{said}"


def test_readmes_wheel_installs_by_hash(user: dict[str, str], tmp_path: Path) -> None:
    """In an environment that has nothing else, with the folder alone."""
    clone = Path(user["HOME"]).parent / "clone"
    make, install = block("release").splitlines()
    shell(make, clone, user)
    shutil.move(clone / "dist" / "release", tmp_path / "release")
    empty = environment(tmp_path / "home", tmp_path / "venv" / "bin")
    shell("python -m venv venv", tmp_path, user)
    shell(install.replace("dist/release", "release"), tmp_path, empty)
    assert shell("python -m pip check && patchq --version", tmp_path, empty).endswith("0.1.0\n")


def test_readmes_block_names_the_sed_and_verifies_the_wheel(user: dict[str, str], tmp_path: Path) -> None:
    printed = shell(block("try"), tmp_path, user)
    shown = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(shown) == 2
    for text in shown:
        assert re.search(rf"(?:^|\n){pattern(text)}", printed), f"printed:\n{printed}\nnot:\n{text}"
