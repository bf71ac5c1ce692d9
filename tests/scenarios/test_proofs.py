"""Proofs are run on both sides, and seeded falsehoods are caught."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kit import Patchq, commit_files, edit, git
from patchq.project.project import Project
from patchq.proofs import cluster as cluster_module
from patchq.proofs.judge import CellResult
from patchq.proofs.plan import ProofCell
from patchq.proofs.prove import run_proofs

HONEST = "def test_it(trees):\n    assert (trees / 'up' / 'a.txt').read_text().splitlines()[4] == 'changed'\n"
PROOFS = {
    "first": HONEST,
    "second": "def test_it(trees):\n    assert (trees / 'up' / 'a.txt').read_text().splitlines()[29] == 'changed'\n",
    "third": "from up_import import check\n\ndef test_it(trees):\n    check(trees)\n",
}


@pytest.fixture
def proven(stack: Patchq) -> Patchq:
    """The three patches, each with a proof of its own."""
    for name, text in PROOFS.items():
        set_proof(stack, name, text)
    folder = stack.root / "tests" / "stacks" / "up"
    (folder / "up_import.py").write_text(
        "def check(trees):\n    assert b'changed' in (trees / 'up' / 'b.txt').read_bytes()\n"
    )
    stack.ok("apply")
    return stack


def set_proof(patchq: Patchq, name: str, text: str, needs: str = "") -> None:
    path = patchq.root / "tests" / "stacks" / "up" / f"test_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    file = patchq.patch_file(name)
    data = file.read_bytes()
    if b"\nProof:" not in data:
        more = f"Proof: tests/stacks/up/test_{name}.py\n" + (f"Needs: {needs}\n" if needs else "")
        file.write_bytes(data.replace(b"\nSigned-off-by:", b"\n" + more.encode() + b"Signed-off-by:"))


def states(patchq: Patchq, *args: str, code: int = 0) -> dict[str, tuple[str, str]]:
    done = patchq.run("test", "--json", *args)
    assert done.exit_code == code, done.output
    return {p["patch"]: (p["state"], p["message"]) for p in json.loads(done.output)["proofs"]}


def test_honest_proofs_are_proven(proven: Patchq) -> None:
    assert {s for s, _ in states(proven, "--prove").values()} == {"proven"}
    assert {s for s, _ in states(proven).values()} == {"passed"}


def test_nothing_is_run_twice_for_the_same_inputs(proven: Patchq) -> None:
    states(proven, "--prove")
    assert proven.ok("test", "--prove").count("(known)") == 6
    set_proof(proven, "first", HONEST + "\n")
    assert proven.ok("test", "--prove").count("(known)") == 4, "another proof is another result"
    edit(proven.tree() / "b.txt", 40, b"else\n")
    proven.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    assert proven.run("test", "first", "--prove").output.count("(known)") == 0, "so are other trees"


def test_what_compiles_is_begun_first(proven: Patchq) -> None:
    data = proven.patch_file("second").read_bytes()
    proven.patch_file("second").write_bytes(data.replace(b"\nProof:", b"\nNeeds: nvcc\nProof:"))
    begun: list[tuple[str, str]] = []

    def run(project: Project, cells: Sequence[ProofCell]) -> Iterator[CellResult]:
        begun.extend((cell.proof.patch, cell.variant.kind) for cell in cells)
        return (CellResult(proof=cell.proof.name, variant=cell.variant.kind, state="not run") for cell in cells)

    message = run_proofs(proven.project, prove=True, run_cells=run)
    assert begun == [(name, kind) for name in ("second", "first", "third") for kind in ("with", "without")]
    assert [verdict.proof.patch for verdict in message] == ["first", "second", "third"]


@pytest.mark.parametrize(
    "meddled",
    [
        {"tests": 1}, {"tests": ["x"]}, {"tests": [{"outcome": "assertion"}]}, {"left_out": 3}, {"machine": []},
        {"trees": {"up": 1}}, {"state": None}, {"unknown": 1}, {"seconds": "x"}, {"proof": ["x"]},
    ],
)  # fmt: skip
def test_a_kept_result_of_any_other_shape_is_none(proven: Patchq, meddled: dict[str, object]) -> None:
    """It is a file that other programs can reach: the proof runs again, and the file is what it was."""
    assert states(proven, "first")["up/first"][0] == "passed"
    (path,) = (p for p in (proven.layout.private / "results").iterdir() if "tests" in json.loads(p.read_text()))
    meant = json.loads(path.read_text())
    path.write_text(json.dumps({**meant, **meddled}))
    assert states(proven, "first")["up/first"][0] == "passed"
    assert set(json.loads(path.read_text())) == set(meant)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def test_it(trees):\n    assert True\n", "can't fail"),
        ("def test_it(trees):\n    assert (trees / 'up' / 'run.sh').exists()\n", "can't fail"),
        (
            "def test_it(trees):\n    if 'changed' not in (trees / 'up' / 'a.txt').read_text().splitlines()[:10]:\n        import nothing_like_that\n",
            "ends with an error, not a failed assertion",
        ),
        (
            "from pathlib import Path\nimport os\nlines = Path(os.environ['PATCHQ_TREES'], 'up', 'a.txt').read_text().splitlines()\n"
            "assert lines[4] == 'changed'\n\ndef test_it():\n    pass\n",
            "ends with an error, not a failed assertion",
        ),
        (
            "def test_it(trees):\n    {'changed': 1}[(trees / 'up' / 'a.txt').read_text().splitlines()[4]]\n",
            "ends with an error, not a failed assertion",
        ),
        ("def helper():\n    pass\n", "no test ran"),
        ("def test_it(trees):\n    assert False, 'wrong'\n", "with the patch: "),
        ("import pytest\n\ndef test_it():\n    pytest.skip('not run: needs a unicorn')\n", "needs a unicorn"),
    ],
)
def test_seeded_falsehoods(proven: Patchq, text: str, message: str) -> None:
    set_proof(proven, "first", text)
    code = 0 if "unicorn" in message else 5
    state, words = states(proven, "first", "--prove", code=code)["up/first"]
    assert state in ("not proven", "failed", "not run")
    assert message in words


def test_a_patch_that_upstream_absorbed(proven: Patchq, upstream: Path) -> None:
    """On a ref that holds the change already, the patch is empty there, and so is its proof."""
    commit_files(upstream, {"a.txt": (upstream / "a.txt").read_bytes().replace(b"line 5\n", b"changed\n")}, "took it")
    git(upstream, "tag", "v2")
    proven.ok("pin", "up", "--ref", "v2")
    new = proven.layout.stack("up", "v2")
    new.mkdir()
    data = proven.patch_file("first").read_bytes()
    (new / "first.patch").write_bytes(data[: data.index(b"diff --git")])
    (new / "series").write_text("first.patch\n")
    state, words = states(proven, "first", "--prove", code=5)["up/first"]
    assert state == "not proven"
    assert "upstream already has the change" in words


def test_those_that_require_it_are_left_out_too(proven: Patchq) -> None:
    data = proven.patch_file("third").read_bytes()
    proven.patch_file("third").write_bytes(data.replace(b"\nProof:", b"\nRequires: up/first\nProof:"))
    done = json.loads(proven.ok("test", "first", "--prove", "--json"))
    left = [c["left_out"] for c in done["proofs"][0]["cells"]]
    assert left == [[], ["up/first", "up/third"]]


def test_those_that_do_not_apply_without_it_are_left_out_too(proven: Patchq) -> None:
    edit(proven.tree() / "a.txt", 5, b"changed again\n")
    proven.ok("new", "up", "onto", "-m", "On top of first\n\nWhy.")
    set_proof(proven, "first", HONEST.replace("== 'changed'", ".startswith('changed')"))
    done = json.loads(proven.ok("test", "first", "--prove", "--json"))
    assert done["proofs"][0]["cells"][1]["left_out"] == ["up/first", "up/onto"]


def test_what_is_not_here_is_not_run_and_not_green(proven: Patchq, tmp_path: Path) -> None:
    data = proven.patch_file("first").read_bytes()
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", b"\nNeeds: sm121\nProof:"))
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.sarif"
    out = proven.ok("test", "--prove", "--junit", str(junit), "--sarif", str(sarif))
    assert "not run    up/first: needs sm121" in out
    assert "on a machine that has it: patchq test up/first --prove" in out
    shown = proven.ok("report", "--junit", str(tmp_path / "again.xml"))
    assert "2 proven" in shown
    assert (tmp_path / "again.xml").read_bytes() == junit.read_bytes()
    suites = {s.get("name"): s for s in ElementTree.parse(junit).getroot()}
    assert suites["up/first"].get("skipped") == "2"
    assert suites["up/second"].get("failures") == "0"
    results = json.loads(sarif.read_text())["runs"][0]["results"]
    assert [(r["ruleId"], r["level"]) for r in results] == [("not-run", "note")]


def test_one_more_proof_for_what_few_machines_have(proven: Patchq, tmp_path: Path) -> None:
    """Judged beside the first, which a machine without that has all the same; mutants and the page ask the first."""
    data = proven.patch_file("first").read_bytes()
    on = b"\nProof-On: sm121 tests/stacks/up/test_far.py\nProof-On: sm121\ttests/stacks/up/test_third.py\nProof:"
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", on))
    assert "Proof-On: tests/stacks/up/test_far.py doesn't exist" in proven.run("check").output
    (proven.root / "tests" / "stacks" / "up" / "test_far.py").write_text(HONEST)
    assert "all good" in proven.run("check").output
    junit = tmp_path / "j.xml"
    out = proven.ok("test", "--prove", "--junit", str(junit))
    assert "proven     up/first: " in out
    assert "not run    up/first on sm121: needs sm121" in out
    assert out.endswith("3 proven, 1 not run\n")
    assert proven.ok("test", "--prove").count("(known)") == 6, "the results of the others are as they were"
    last = proven.layout.private / "results" / "last.json"
    last.write_text(last.read_text().replace('"message"', '"words"'))
    assert "is damaged; the file is written again" in proven.run("test", "second", "--prove").output
    proven.ok("test", "--prove")
    found = json.loads(proven.ok("test", "first", "--prove", "--json"))["proofs"]
    far = ["tests/stacks/up/test_far.py", "tests/stacks/up/test_third.py"]
    assert [(p["patch"], p["on"], p["needs"], p["files"]) for p in found][1] == ("up/first", "sm121", ["sm121"], far)
    suites = [s.get("name") for s in ElementTree.parse(junit).getroot()]
    assert suites == ["up/first", "up/first on sm121", "up/second", "up/third"]
    proven.ok("report", "--junit", str(tmp_path / "again.xml"))
    assert (tmp_path / "again.xml").read_bytes() == junit.read_bytes()
    mutants = json.loads(proven.ok("test", "first", "--mutate", "--json", "--at-most", "1"))["patches"]
    assert [m["patch"] for m in mutants] == ["up/first"]


def test_a_kept_result_with_an_unknown_state_is_damaged(stack: Patchq) -> None:
    stack.fails(5, "test", "first")
    last = stack.layout.private / "results" / "last.json"
    body = json.loads(last.read_text())
    body["proofs"][0]["state"] = "fine"
    last.write_text(json.dumps(body))
    assert "is damaged" in stack.fails(1, "report", "--json")


def test_where_it_is_there_both_are_proven(proven: Patchq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = proven.patch_file("first").read_bytes()
    on = b"\nProof-On: nvcc tests/stacks/up/test_far.py\nProof:"
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", on))
    (proven.root / "tests" / "stacks" / "up" / "test_far.py").write_text("def test_nothing():\n    pass\n")
    program = proven.root / "bin" / "nvcc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho release 13.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    done = proven.run("test", "first", "--prove")
    assert "proven     up/first: " in done.output
    assert "not proven up/first on nvcc: passes without the patch" in done.output
    assert done.exit_code == 5
    # Where there is one place for a patch, it has what isn't as it should be.
    page = tmp_path / "page.html"
    proven.ok("report", "--html", str(page))
    assert "passes without the patch: the proof can" in page.read_text()
    # What the headers no longer name is gone from what is kept, too.
    proven.patch_file("first").write_bytes(data)
    assert proven.ok("test", "first", "--prove").endswith("1 proven\n")
    assert "on nvcc" not in proven.ok("report")


def leave_without_proof(patchq: Patchq, *names: str) -> None:
    for name in names:
        file = patchq.patch_file(name)
        file.write_bytes(b"\n".join(li for li in file.read_bytes().split(b"\n") if not li.startswith(b"Proof:")))


def test_a_patch_without_a_proof_fails_only_where_the_rules_require_one(proven: Patchq, tmp_path: Path) -> None:
    leave_without_proof(proven, "second", "third")
    proven.ok("apply")
    expected = {"up/first": "proven", "up/second": "no proof", "up/third": "no proof"}
    assert {name: state for name, (state, _) in states(proven, "--prove", code=5).items()} == expected
    (step,) = json.loads(proven.ok("report", "--json"))["todo"]
    assert (step["step"], step["patches"]) == ("no proof", ["up/second", "up/third"])
    assert step["command"] == "patchq reword up/second --trailer 'Proof: tests/stacks/up/test_second.py'"
    lock = proven.layout.lock
    lock.write_text(lock.read_text() + '\n[upstreams.up.check]\noff = ["proof"]\nreason = "a test"\n')
    out = proven.ok("test", "--prove", "--junit", str(tmp_path / "junit.xml"))
    assert "1 proven, 2 no proof" in out
    assert "error" not in out
    assert "no proof   up/second: the patch names no test in `Proof:`\n" in out
    assert [s.get("failures") for s in ElementTree.parse(tmp_path / "junit.xml").getroot()] == ["0", "0", "0"]
    body = json.loads(proven.ok("test", "--json"))
    assert (body["ok"], body["counts"]) == (True, {"passed": 1, "no proof": 2})
    page = tmp_path / "page.html"
    proven.ok("report", "--html", str(page))
    said = page.read_text()
    assert "no proof</span> 2: write a test" in said
    assert "patchq test --prove" not in said
    assert "not proven" not in said.partition('id="summary"')[0]
    set_proof(proven, "first", "def test_it():\n    assert False\n")
    assert "1 failed, 2 no proof" in proven.fails(5, "test")


def test_one_file_for_both_is_run_for_each(proven: Patchq) -> None:
    """What is kept of the first is no result on a machine that isn't there, nor the other way round."""
    proven.ok("test", "first", "--prove")
    data = proven.patch_file("first").read_bytes()
    on = b"\nProof-On: sm121 tests/stacks/up/test_first.py\nProof:"
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", on))
    assert "Proof-On: tests/stacks/up/test_first.py is named twice" in proven.run("check").output
    for _ in range(2):
        out = proven.ok("test", "first", "--prove")
        assert "proven     up/first: " in out
        assert "not run    up/first on sm121: needs sm121" in out


@pytest.mark.parametrize(
    "value", ["nvcc", "", "nvcc ../out.py", "sm121 /etc/hostname", "sm121 tests/stacks/../../x.py"]
)
def test_what_names_no_proof_is_run_nowhere(proven: Patchq, value: str) -> None:
    data = proven.patch_file("first").read_bytes()
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", f"\nProof-On: {value}\nProof:".encode()))
    assert "names no proof" in proven.fails(1, "test", "first")


@pytest.mark.parametrize(
    ("value", "message"), [("gb10 tests/stacks/up/test_first.py", "gb10 is unknown"), ("", "nothing")]
)
def test_what_it_is_for_is_checked(proven: Patchq, value: str, message: str) -> None:
    data = proven.patch_file("first").read_bytes()
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", f"\nProof-On: {value}\nProof:".encode()))
    assert f"Proof-On: {message}" in proven.run("check").output


def test_a_failure_is_in_junit_and_sarif(proven: Patchq, tmp_path: Path) -> None:
    set_proof(proven, "first", "def test_it():\n    assert False, '\\x1b <b>&'\n")
    junit, sarif = tmp_path / "j.xml", tmp_path / "s.sarif"
    proven.fails(5, "test", "first", "--junit", str(junit), "--sarif", str(sarif))
    assert ElementTree.parse(junit).getroot().find(".//failure") is not None
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "patches/up/v1/first.patch"


def test_a_module_from_elsewhere_is_an_error(proven: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The patched package must be what the test sees: another copy in front of it is caught."""
    text = proven.layout.lock.read_text()
    proven.layout.lock.write_text(text + '\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n')
    elsewhere = tmp_path / "elsewhere" / "pkg"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("")
    (elsewhere / "mod.py").write_text("def f():\n    return 1\n")
    set_proof(
        proven, "first", f"import sys\nsys.path.insert(0, {str(elsewhere.parent)!r})\nimport pkg.mod\n\n" + HONEST
    )
    state, words = states(proven, "first", code=5)["up/first"]
    assert state == "failed"
    assert "not from" in words


def test_a_proof_is_not_charged_for_what_it_does_not_import(
    proven: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin of hypothesis imports all of it when a run ends; half a second for each proof that has no use for it."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    told = tmp_path / "output"
    (proven.root / "tests" / "stacks" / "up" / "conftest.py").write_text(
        f"import sys\n\ndef pytest_unconfigure():\n"
        f"    with open({str(told)!r}, 'a') as out:\n        out.write(f\"{{'hypothesis' in sys.modules}} \")\n"
    )
    assert states(proven, "first")["up/first"][0] == "passed"
    set_proof(proven, "first", "import hypothesis\n\n" + HONEST)
    assert states(proven, "first")["up/first"][0] == "passed"
    assert told.read_text() == "False True "


@pytest.fixture
def in_forks(monkeypatch: pytest.MonkeyPatch) -> str:
    """All cells in forks of one process; an expression that is true in one, which is its session's leader."""
    monkeypatch.setattr("patchq.proofs.warm.FEW", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    return "os.getsid(0) == os.getpid()"


def test_what_a_fork_says_and_was_not_expected_is_said_by_a_process(proven: Patchq, in_forks: str) -> None:
    noting = (
        "import os\n\ndef test_where(trees):\n    with open(os.environ['PATCHQ_TREES'] + '.seen', 'a') as out:\n"
        f"        print({in_forks}, file=out)\n"
    )
    set_proof(proven, "first", HONEST + noting)
    set_proof(proven, "second", PROOFS["second"] + noting + f"    assert not ({in_forks})\n")
    assert {s for s, _ in states(proven, "--prove").values()} == {"proven"}
    (seen,) = proven.root.rglob("slot*.seen")
    assert seen.read_text().split() == ["True", "True", "True", "False", "True"], "the fourth is the second's, again"
    set_proof(proven, "first", "def test_it():\n    pass\n")
    assert states(proven, "--prove", code=5)["up/first"][0] == "not proven"


def test_a_fork_has_no_module_that_only_another_proof_imported(proven: Patchq, in_forks: str) -> None:
    """With it a proof could pass that fails in a process of its own, and so could a patch."""
    set_proof(proven, "first", f"import os, wsgiref.validate\n\ndef test_fork():\n    assert {in_forks}\n\n" + HONEST)
    asking = "    import wsgiref\n    wsgiref.validate\n"
    set_proof(proven, "second", PROOFS["second"] + asking)
    set_proof(proven, "third", "import os, wsgiref.util\n\n" + PROOFS["third"] + f"    assert {in_forks}\n")
    found = states(proven, code=5)
    assert [found[f"up/{name}"][0] for name in PROOFS] == ["passed", "failed", "passed"], found
    assert "no attribute 'validate'" in found["up/second"][1]


def test_a_fork_keeps_no_module_of_a_tree(proven: Patchq, in_forks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")  # with those that are installed, too
    text = proven.layout.lock.read_text()
    proven.layout.lock.write_text(text + '\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n')
    (proven.tree() / "pkg" / "mod.py").write_text("def f():\n    return 2\n")
    proven.ok("new", "up", "two", "-m", "Two\n\nWhy.\n\nProof: tests/stacks/up/test_two.py")
    proof = f"import os\n\nimport pkg.mod\n\ndef test_it():\n    assert {in_forks}\n    assert pkg.mod.f() == 2\n"
    (proven.root / "tests" / "stacks" / "up" / "test_two.py").write_text(proof)
    found = json.loads(proven.ok("test", "--prove", "--json"))["proofs"]
    assert {p["state"] for p in found} == {"proven"}, found
    assert "1 == 2" in next(p["message"] for p in found if p["patch"] == "up/two")


# Upstream's own tests


def test_upstreams_own_tests_show_regressions_only(patchq: Patchq, upstream: Path) -> None:
    own = (
        b"from pkg.mod import f\n\ndef test_f():\n    assert f() == 1\n\ndef test_type():\n    assert isinstance(f(), int)\n\n"
        b"def test_broken_anyway():\n    assert f() == 7\n\ndef test_no_gpu_here():\n    import no_such_gpu_library\n"
    )
    commit_files(
        upstream, {"tests/test_mod.py": own, "tests/test_else.py": b"def test_x():\n    pass\n", "pkg/__init__.py": b""}
    )
    git(upstream, "tag", "v2")
    patchq.ok("pin", "up", "--ref", "v2")
    text = patchq.layout.lock.read_text()
    patchq.layout.lock.write_text(text + '\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n')
    patchq.ok("apply")
    edit(patchq.tree() / "pkg" / "mod.py", 2, b"    return 2\n")
    patchq.ok("new", "up", "two", "-m", "Two\n\nWhy.")
    done = json.loads(patchq.fails(5, "test", "--upstream", "--json"))
    (file,) = done["files"]
    assert file["path"] == "tests/test_mod.py"
    assert file["before"] == {"passed": 2, "failed": 1, "error": 1}
    assert file["regressions"] == ["tests/test_mod.py::test_f"]


# Other machines


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A real scheduler and two workers on loopback, each with one ``sm121``."""
    env = {**os.environ, "PATCHQ_CACHE": str(tmp_path / "workers-cache"), "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
    place = tmp_path / "scheduler.json"
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not place.exists() or not place.read_text():
        assert time.monotonic() < end
        time.sleep(0.1)
    address = json.loads(place.read_text())["address"]
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", address, "--host", "127.0.0.1", "--no-nanny", "--no-dashboard",
             "--nthreads", "1", "--resources", "sm121=1", "--local-directory", str(tmp_path / f"w{n}")],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path,
        )
        for n in range(2)
    ]  # fmt: skip
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_scheduler_and_a_worker_that_dies(
    proven: Patchq, cluster: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    """Six cells on two workers; the first worker to begin is killed while it is at it."""
    address, workers = cluster
    mark = tmp_path / "began"
    # It lasts until its worker is gone, and holds the lock of the workers' common folder as long.
    slow = f"import os, time\nfrom pathlib import Path\np, mine = Path({str(mark)!r}), os.getppid()\nif not p.exists():\n    p.write_text(str(mine))\n    while os.getppid() == mine:\n        time.sleep(0.05)\n\n"
    set_proof(proven, "first", slow + HONEST)
    argv = [
        sys.executable,
        "-m",
        "patchq",
        "--project",
        str(proven.root),
        "test",
        "--prove",
        "--json",
        "--scheduler",
        address,
    ]
    run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 90
    while not mark.exists() or not mark.read_text():
        assert time.monotonic() < end, "no worker began"
        assert run.poll() is None, run.stderr.read().decode() if run.stderr else ""
        time.sleep(0.05)
    victim = int(mark.read_text())
    assert victim in [w.pid for w in workers]
    os.kill(victim, signal.SIGKILL)
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, err.decode()
    proofs = json.loads(out)["proofs"]
    assert {p["patch"]: p["state"] for p in proofs} == dict.fromkeys(("up/first", "up/second", "up/third"), "proven")


def test_no_worker_has_it(proven: Patchq, cluster: tuple[str, list[subprocess.Popen[bytes]]]) -> None:
    data = proven.patch_file("first").read_bytes()
    proven.patch_file("first").write_bytes(data.replace(b"\nProof:", b"\nNeeds: sm90\nProof:"))
    out = proven.ok("test", "first", "--scheduler", cluster[0])
    assert "not run    up/first: needs sm90" in out


def test_no_scheduler_is_a_clear_error(proven: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER_S", 1)
    assert "no scheduler at tcp://127.0.0.1:9" in proven.fails(1, "test", "--scheduler", "tcp://127.0.0.1:9")
