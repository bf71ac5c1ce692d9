"""patchq without its extras: the core works, and a command that needs an extra prints the line that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kit import ROOT
from patchq.extras import LIBRARIES, install_command

pytestmark = pytest.mark.index

PACKAGE = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
    '[project]\nname = "widget"\nversion = "1.0"\n[tool.setuptools]\npackages = ["widget"]\n',
    "widget/__init__.py": "",
    "widget/settings.py": "TIMEOUT = 10\n",
    "widget/kernel.cu": "int one() { return 1; }\n",
}


def run(*argv: str | Path, cwd: Path, env: Mapping[str, str] | None = None, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(list(map(str, argv)), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, (argv, done.stdout, done.stderr)
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the base's lock and patchq alone."""
    folder = tmp_path_factory.mktemp("base")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--no-deps"]
    run(*pip, "-r", ROOT / "locks" / "patchq.txt", cwd=folder)
    run(*pip, "--no-build-isolation", "-e", ROOT, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    return python.parent


@pytest.fixture(scope="module")
def widget(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A project whose one upstream has a patch, and the environment that its commands run in."""
    folder = tmp_path_factory.mktemp("widget")
    for name, text in PACKAGE.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    index = folder / "index"
    run(base / "python", "-m", "build", "--no-isolation", "--sdist", "-o", index, ".", cwd=folder / "source")
    env = {
        **os.environ,
        "PATH": f"{base}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(index),
        "PATCHQ_CACHE": str(folder / "cache"),
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
    }
    (folder / "gitconfig").write_text("[user]\nname = Ann\nemail = ann@example.org\n")
    root = folder / "fork"
    run(base / "patchq", "init", root, cwd=folder, env=env)
    run(base / "patchq", "pin", "widget", "--archive", "widget==1.0", "--ref", "v1.0", cwd=root, env=env)
    with (root / "upstream.lock").open("a") as lock:
        lock.write('\n[upstreams.widget.build]\ndistribution = "widget"\npackage = "widget"\nprofile = "source"\n')
    run(base / "patchq", "apply", cwd=root, env=env)
    tree = root / ".patchq" / "trees" / "widget"
    (tree / "widget" / "settings.py").write_text("TIMEOUT = 60\n")
    (tree / "widget" / "kernel.cu").write_text("int one() { return 2; }\n")
    run(base / "patchq", "new", "widget", "longer-timeout", "-m", "Wait a minute", "-s", cwd=root, env=env)
    return root, env


def patchq(base: Path, widget: tuple[Path, dict[str, str]], *argv: str | Path, code: int = 0) -> tuple[str, str]:
    root, env = widget
    return run(base / "patchq", *argv, cwd=root, env=env, code=code)


def test_no_library_of_an_extra_is_there(base: Path) -> None:
    # markdown-it-py is rich's, too
    names = sorted({name for libraries in LIBRARIES.values() for name in libraries} - {"markdown_it"})
    script = f"from importlib.util import find_spec; print([n for n in {names!r} if find_spec(n)])"
    assert run(base / "python", "-c", script, cwd=base)[0] == "[]\n"
    listed = run(base / "python", "-m", "pip", "list", "--format=freeze", cwd=base)[0].splitlines()
    assert len([line for line in listed if not line.startswith("pip==")]) <= 32


def test_the_core_needs_none(base: Path, widget: tuple[Path, dict[str, str]]) -> None:
    assert "up to date, 1 patch" in patchq(base, widget, "apply")[0]
    assert "longer-timeout" in patchq(base, widget, "list")[0]
    assert "1 of 1 applied" in patchq(base, widget, "status")[0]
    root, _ = widget
    assert "dist/default" in patchq(base, widget, "build", "--no-isolation")[0]
    assert list((root / "dist" / "default").glob("widget-1.0+patchq.*.whl"))
    assert (root / "dist" / "default" / "patchq.cdx.json").is_file()


def test_check_says_which_definitions_it_does_not_compare(base: Path, widget: tuple[Path, dict[str, str]]) -> None:
    said = patchq(base, widget, "check", code=1)[1]  # 1: the patch has no proof
    (line,) = [line for line in said.splitlines() if "C++" in line]
    assert install_command("drift") in line


COMMANDS = {
    "adopt, a Dockerfile": ("adopt", ("import", "widget", "Dockerfile", "--dry-run")),
    "adopt, a script": ("adopt", ("import", "widget", "--run", "sed -i s/10/20/ widget/settings.py", "--dry-run")),
    "cluster": ("cluster", ("test", "--scheduler", "tcp://127.0.0.1:9")),
    "contribute, pr": ("contribute", ("pr", "longer-timeout")),
    "contribute, issue": ("contribute", ("issue", "longer-timeout")),
    "drift": ("drift", ("drift", "widget", "--from", "v1.0", "--to", "v1.0")),
    "mutate": ("mutate", ("test", "--mutate")),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_missing_extra_is_one_line(base: Path, widget: tuple[Path, dict[str, str]], case: str) -> None:
    extra, argv = COMMANDS[case]
    (widget[0] / "Dockerfile").write_text("FROM base\nRUN sed -i s/10/20/ /x/site-packages/widget/settings.py\n")
    said = patchq(base, widget, *argv, code=1)[1].splitlines()
    errors = [line for line in said if line.startswith("error: ")]
    assert len(errors) == 1
    assert "not installed" in errors[0]
    assert [line for line in said if "pip install" in line] == [f"hint: {install_command(extra)}"]


def test_a_signature_by_a_key_is_one_line(base: Path, widget: tuple[Path, dict[str, str]]) -> None:
    root, env = widget
    lock = root / "upstream.lock"
    before = lock.read_text()
    (root / "release.pem").write_text("-----BEGIN PUBLIC KEY-----\n")
    try:
        lock.write_text(f'{before}\n[signing]\nkey = "release.pem"\n')
        said = run(
            base / "patchq", "build", "--no-isolation", cwd=root, code=1, env={**env, "PATCHQ_SIGNING_KEY": "key"}
        )[1]
    finally:
        lock.write_text(before)
    assert said.splitlines()[-1] == f"hint: {install_command('attest')}"
