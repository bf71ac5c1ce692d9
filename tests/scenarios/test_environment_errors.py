"""An error of the environment is printed and not remembered, and a Python without pytest is one error."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import ROOT, Patchq, commit_files, git, with_lines

Run = Callable[..., subprocess.CompletedProcess[str]]
PROOFS = {"first": ("a.txt", 5), "second": ("a.txt", 30), "third": ("b.txt", 10)}


@pytest.fixture
def proven(stack: Patchq) -> Patchq:
    """The three patches, each with a proof of its own."""
    for name, (file, line) in PROOFS.items():
        proof = stack.root / "tests" / "stacks" / "up" / f"test_{name}.py"
        proof.parent.mkdir(parents=True, exist_ok=True)
        proof.write_text(
            f"def test_it(trees):\n    lines = (trees / 'up' / '{file}').read_text().splitlines()\n"
            f"    assert lines[{line - 1}].startswith('changed')\n"
        )
        path = stack.patch_file(name)
        path.write_text(
            path.read_text().replace("\nSigned-off-by:", f"\nProof: tests/stacks/up/{proof.name}\nSigned-off-by:", 1)
        )
    stack.ok("apply")
    return stack


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with this one's packages, all but pytest."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for path in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        for entry in path.iterdir():
            if "pytest" not in entry.name and entry.suffix != ".pth" and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture
def bare(proven: Patchq, bare_python: Path) -> Run:
    """Run the command line by a Python without pytest."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(bare_python), "-m", "patchq", "--project", str(proven.root), *args],
            capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        )  # fmt: skip

    return run


def results(patchq: Patchq) -> list[Path]:
    return [p for p in (patchq.layout.private / "results").glob("*.json") if p.name != "last.json"]


def refused(done: subprocess.CompletedProcess[str], python: Path) -> None:
    """It ended for want of pytest, in one error."""
    assert done.returncode == 6, done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "hint: "))]
    assert errors == [f"error: {python} has no pytest, which runs the proofs", f"hint: {python} -m pip install pytest"]
    assert "failed" not in done.stdout + done.stderr


@pytest.mark.parametrize("args", [(), ("--prove",), ("--mutate",), ("--fresh", "up/first")])
def test_without_pytest_no_patch_fails(proven: Patchq, bare: Run, bare_python: Path, args: tuple[str, ...]) -> None:
    refused(bare("test", *args), bare_python)
    assert not results(proven)
    assert not (proven.layout.private / "results" / "last.json").exists()
    assert "(known)" not in proven.ok("test", "--prove")
    assert {json.loads(p.read_text())["state"] for p in results(proven)} == {"passed", "failed"}
    # What is known needs no pytest.
    assert bare("test", "--prove").returncode == 0


def test_in_json(bare: Run, bare_python: Path) -> None:
    done = bare("test", "--json")
    body = json.loads(done.stdout)
    assert (done.returncode, body["exit"], body["error"]) == (6, 6, "EnvironmentFault")
    assert body["hint"] == f"{bare_python} -m pip install pytest"


def test_a_rebase_waits_for_pytest(proven: Patchq, upstream: Path, bare: Run, bare_python: Path) -> None:
    commit_files(upstream, {"a.txt": with_lines({5: b"otherwise\n"})}, "v2")
    git(upstream, "tag", "v2")
    assert bare("rebase", "up", "--onto", "v2").returncode == 3
    tree = proven.layout.tree("up@v2")
    (tree / "a.txt").write_bytes(with_lines({5: b"changed otherwise\n"}))
    before = proven.snapshot()
    refused(bare("rebase", "up", "--continue"), bare_python)
    refused(bare("resolve", "up"), bare_python)
    refused(bare("rebase", "up", "--continue", "--retire", "--how", "upstream does the same"), bare_python)
    assert proven.snapshot() == before
    proven.ok("rebase", "up", "--continue")
    proven.ok("undo")
    # A recorded resolution is believed for its proof alone.
    refused(bare("rebase", "up", "--onto", "v2"), bare_python)
    assert "first: replayed" in proven.ok("rebase", "up", "--onto", "v2")


def test_a_stored_error_is_not_believed(proven: Patchq) -> None:
    proven.ok("test", "--prove")
    for path in results(proven):
        path.write_text(json.dumps({**json.loads(path.read_text()), "state": "error", "message": "No module named x"}))
    said = proven.ok("test", "--prove")
    assert "(known)" not in said
    assert said.count("proven ") == 3


def test_an_error_is_told_and_runs_again(proven: Patchq) -> None:
    proof = proven.root / "tests" / "stacks" / "up" / "test_first.py"
    text = proof.read_text()
    proof.write_text("import os\nif not os.environ.get('THERE'):\n    import nothing_like_that\n" + text)
    assert "No module named 'nothing_like_that'" in proven.fails(5, "test", "up/first")
    assert not results(proven)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("THERE", "1")
        assert "passed" in proven.ok("test", "up/first")


@pytest.mark.parametrize("others", ["passed", "failed"])
def test_a_killed_proof_has_no_result(proven: Patchq, tmp_path: Path, others: str) -> None:
    proven.ok("test", "--prove")
    last = (proven.layout.private / "results" / "last.json").read_bytes()
    folder = proven.root / "tests" / "stacks" / "up"
    (folder / "test_first.py").write_text("import os\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n")
    if others == "failed":
        (folder / "test_second.py").write_text("def test_it():\n    assert False, 'wrong'\n")
    junit = tmp_path / "junit.xml"
    code = 6 if others == "passed" else 5
    said = proven.fails(code, "test", "--prove", "--junit", str(junit), "--sarif", str(tmp_path / "it.sarif"))
    assert "no result  up/first: with the patch: the process was killed by signal 9" in said
    assert '<error message="the process was killed by signal 9"' in junit.read_text()
    kept = json.loads((proven.layout.private / "results" / "last.json").read_text())["proofs"]
    assert "no result" not in {p["state"] for p in kept}
    assert json.loads(last)["counts"] == {"proven": 3}
    body = json.loads(proven.fails(6, "test", "up/first", "--json"))
    assert (body["ok"], body["counts"]) == (False, {"no result": 1})


def test_a_killed_proof_ends_a_resolution(proven: Patchq, upstream: Path) -> None:
    commit_files(upstream, {"a.txt": with_lines({5: b"otherwise\n"})}, "v2")
    git(upstream, "tag", "v2")
    proven.fails(3, "rebase", "up", "--onto", "v2")
    (proven.layout.tree("up@v2") / "a.txt").write_bytes(with_lines({5: b"changed otherwise\n"}))
    proof = proven.root / "tests" / "stacks" / "up" / "test_first.py"
    proof.write_text("import os\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n")
    before = proven.snapshot()
    assert "the proof of up/first gave no result" in proven.fails(6, "resolve", "up")
    assert "killed by signal 9" in proven.fails(6, "rebase", "up", "--continue")
    assert proven.snapshot() == before


def test_a_crash_is_the_programs_own(proven: Patchq) -> None:
    proof = proven.root / "tests" / "stacks" / "up" / "test_first.py"
    proof.write_text("import os, signal\n\ndef test_it():\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    said = proven.fails(5, "test", "up/first")
    assert "failed     up/first: with the patch: no test ran: the process was killed by signal 11" in said
    assert not results(proven)
