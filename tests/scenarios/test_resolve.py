"""`conflict` and `resolve`: a stop as a brief, and resolutions that the proof judges, whoever made them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, commit_files, git, numbered

PROOF = """\
import os, pathlib

def test_the_line() -> None:
    text = (pathlib.Path(os.environ["PATCHQ_TREES"]) / "up" / "a.txt").read_text()
    assert "changed" in text.splitlines()[4], text.splitlines()[4]
"""


def with_line(number: int, text: bytes) -> bytes:
    lines = numbered(40).splitlines(keepends=True)
    lines[number - 1] = text
    return b"".join(lines)


def release(upstream: Path, tag: str, files: dict[str, bytes | None], message: str = "") -> None:
    commit_files(upstream, files, message or tag)
    git(upstream, "tag", tag)


def add_proof(patchq: Patchq, name: str, text: str) -> None:
    proof = patchq.root / "tests" / "stacks" / "up" / f"test_{name}.py"
    proof.parent.mkdir(parents=True, exist_ok=True)
    proof.write_text(text)
    path = patchq.patch_file(name)
    path.write_text(path.read_text().replace("Topic: test\n", f"Topic: test\nProof: tests/stacks/up/test_{name}.py\n"))
    patchq.ok("apply")


@pytest.fixture
def proven(stack: Patchq) -> Patchq:
    """The stack, its first patch with a proof."""
    add_proof(stack, "first", PROOF)
    return stack


@pytest.fixture
def stopped(proven: Patchq, upstream: Path) -> Patchq:
    """The first patch stops on v2."""
    release(upstream, "v2", {"a.txt": with_line(5, b"otherwise\n")}, "Say it otherwise (#12)")
    proven.fails(3, "rebase", "up", "--onto", "v2")
    return proven


def said(patchq: Patchq, code: int, *args: str) -> dict[str, Any]:
    done = patchq.run(*args, "--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def checks(found: dict[str, Any]) -> dict[str, str]:
    return {c["name"]: c["state"] for c in found["checks"]}


def parked(patchq: Patchq, ref: str = "v2") -> Path:
    return patchq.layout.tree(f"up@{ref}")


def everything(patchq: Patchq) -> dict[str, bytes]:
    found = patchq.snapshot()
    found["state"] = (patchq.layout.private / "rebase" / "up.json").read_bytes()
    return found


# The brief


def test_a_stop_as_a_brief(stopped: Patchq, upstream: Path) -> None:
    path = stopped.patch_file("third")
    path.write_text(path.read_text().replace("Topic: test\n", "Topic: test\nRequires: up/first\n"))
    found = said(stopped, 0, "conflict")
    assert (found["upstream"], found["patch"], found["from_ref"], found["onto"]) == ("up", "first", "v1", "v2")
    assert (found["subject"], found["why"], found["topic"]) == ("Change a.txt at 5", "Because of the test.", "test")
    (file,) = found["files"]
    assert (file["path"], file["kind"], set(file["sides"])) == ("a.txt", "both changed it", {"base", "ours", "theirs"})
    assert git(stopped.layout.store, "cat-file", "blob", file["sides"]["ours"]).splitlines()[4] == "otherwise"
    assert file["collisions"] == [{"line": 5, "base": ["line 5"], "ours": ["otherwise"], "theirs": ["changed"]}]
    (cause,) = found["causes"]
    assert (cause["commit"], cause["subject"], cause["pull_request"], cause["paths"]) == (
        git(upstream, "rev-parse", "v2"), "Say it otherwise (#12)", "12", ["a.txt"],
    )  # fmt: skip
    assert found["dependents"] == ["up/third"]
    assert (found["proofs"], found["command"]) == (["tests/stacks/up/test_first.py"], "patchq resolve up --dry-run")
    assert found["suggestions"] == []
    text = stopped.ok("conflict", "up")
    sides = "    v2 changes 1 line:\n      …\n      -line 5\n      +otherwise\n    the patch changes 1 line:\n"
    for words in ("Because of the test.", sides, "      -line 5\n      +changed\n", "otherwise (#12)"):
        assert words in text


def test_who_can_not_do_without_it_is_named(stopped: Patchq, upstream: Path) -> None:
    stopped.ok("rebase", "up", "--abort")
    path = stopped.tree() / "a.txt"
    path.write_bytes(path.read_bytes().replace(b"changed\nline 6\n", b"changed\nand more\nline 6\n"))
    stopped.ok("new", "up", "on-top", "-m", "On top", "-s")
    stopped.fails(3, "rebase", "up", "--onto", "v2")
    assert said(stopped, 0, "conflict", "up")["dependents"] == ["up/on-top"]


def test_who_needs_it_through_another_is_named(stopped: Patchq) -> None:
    stopped.ok("rebase", "up", "--abort")
    path = stopped.tree() / "a.txt"
    path.write_bytes(path.read_bytes().replace(b"changed\nline 6\n", b"changed\nand more\nline 6\n"))
    stopped.ok("new", "up", "on-top", "-m", "On top", "-s")
    path.write_bytes(path.read_bytes().replace(b"and more\nline 6\n", b"and much more\nline 6\n"))
    stopped.ok("new", "up", "higher", "-m", "Higher", "-s")
    (stopped.tree() / "apart.txt").write_text("apart\n")
    stopped.ok("new", "up", "apart", "-m", "Apart", "-s")
    stopped.fails(3, "rebase", "up", "--onto", "v2")
    assert said(stopped, 0, "conflict", "up")["dependents"] == ["up/on-top", "up/higher"]


def test_a_file_that_upstream_removed_has_no_lines(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"b.txt": None}, "Take it away")
    stack.fails(3, "rebase", "up", "--onto", "v2")
    found = said(stack, 0, "conflict", "up")
    (file,) = found["files"]
    assert (file["kind"], file["collisions"]) == ("upstream removed it, the patch changes it", [])
    assert [c["subject"] for c in found["causes"]] == ["Take it away"]


def test_without_history_the_brief_says_how_to_get_it(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"a.txt": with_line(5, b"otherwise\n")})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    upstream.rename(upstream.with_name("elsewhere"))
    found = said(stack, 0, "conflict", "up")
    assert (found["causes"], found["history"]) == ([], "")
    assert "`patchq conflict up --history` fetches upstream's history from" in found["hint"]
    upstream.with_name("elsewhere").rename(upstream)
    assert len(said(stack, 0, "conflict", "up", "--history")["causes"]) == 1


def test_no_stop_no_brief(stack: Patchq) -> None:
    assert "no rebase of up is under way" in stack.fails(1, "conflict", "up")
    assert "no rebase is under way" in stack.fails(1, "resolve")


# Resolutions


def test_a_file_is_taken_if_the_proof_agrees(stopped: Patchq, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(with_line(5, b"otherwise, changed\n"))
    dry = said(stopped, 0, "resolve", "--from", str(file), "--dry-run")
    assert (dry["kept"], dry["rebase"], "+otherwise, changed" in dry["diff"]) == (False, None, True)
    found = said(stopped, 0, "resolve", "--from", str(file))
    names = ["settled", "applies", "upstream lines", "text", "python", "passes with", "fails without"]
    assert checks(found) == dict.fromkeys(names, "passed")
    assert (found["kept"], found["rebase"]["state"]) == (True, "done")
    step = found["rebase"]["steps"][0]
    assert (step["outcome"], step["proof"], step["how"]) == ("resolved", "passed", f"from {file}")
    stopped.ok("apply", "--set", "default-up-v2")
    assert (stopped.tree() / "a.txt").read_bytes().splitlines()[4] == b"otherwise, changed"
    assert list((stopped.root / "patches" / "up" / "rr-cache").glob("*/postimage"))  # and it is recorded


@pytest.mark.parametrize(
    ("content", "code", "refused", "words"),
    [
        (with_line(5, b"otherwise, wrong\n"), 5, "passes with", "with the patch its proof failed"),
        (with_line(5, b"otherwise\n"), 3, "settled", "nothing is left of the patch"),
        (with_line(5, b"<<<<<<< up v2\nchanged\n"), 3, "settled", "a.txt has conflict markers"),
        (with_line(5, b"otherwise, changed\nbreakpoint()\n"), 5, "text", "debugger call"),
    ],
)
def test_what_is_refused_changes_nothing(
    stopped: Patchq, tmp_path: Path, content: bytes, code: int, refused: str, words: str
) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    before = everything(stopped)
    found = said(stopped, code, "resolve", "up", "--from", str(tmp_path / "a.txt"))
    assert (found["kept"], found["refused"]) == (False, [refused])
    assert words in found["checks"][-1]["message"]
    assert everything(stopped) == before
    assert "nothing was changed" in stopped.fails(code, "resolve", "up", "--from", str(tmp_path / "a.txt"))


def test_a_proof_that_can_not_fail_judges_nothing(proven: Patchq, upstream: Path, tmp_path: Path) -> None:
    (proven.root / "tests" / "stacks" / "up" / "test_first.py").write_text("def test_it() -> None:\n    pass\n")
    release(upstream, "v2", {"a.txt": with_line(5, b"otherwise\n")})
    proven.fails(3, "rebase", "up", "--onto", "v2")
    (tmp_path / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    found = said(proven, 5, "resolve", "--from", str(tmp_path / "a.txt"))
    assert found["refused"] == ["fails without"]


def test_a_patch_without_a_proof_is_taken_and_that_is_named(stack: Patchq, upstream: Path, tmp_path: Path) -> None:
    """`rebase --continue` and `resolve` agree."""
    release(upstream, "v2", {"a.txt": with_line(5, b"otherwise\n")})
    stack.fails(3, "rebase", "up", "--onto", "v2")
    (tmp_path / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    found = said(stack, 0, "resolve", "--from", str(tmp_path / "a.txt"), "--dry-run")
    assert found["checks"][-1] == {"name": "passes with", "state": "not run", "message": "the patch names no proof"}
    assert found["refused"] == []
    (parked(stack) / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    found = said(stack, 0, "rebase", "up", "--continue")
    assert found["steps"][0]["proof"] == "not run: the patch names no proof"


def test_python_must_compile(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    patchq.ok("apply")
    (patchq.tree() / "pkg" / "mod.py").write_bytes(b"def f():\n    return 2\n")
    patchq.ok("new", "up", "two", "-m", "Two\n\nFor the test.", "--topic", "test", "-s")
    release(upstream, "v2", {"pkg/mod.py": b"def f():\n    return 3\n"})
    patchq.fails(3, "rebase", "up", "--onto", "v2")
    (tmp_path / "mod.py").write_bytes(b"def f(:\n    return 3 + 4\n")
    found = said(patchq, 5, "resolve", "--from", str(tmp_path / "mod.py"))
    assert found["refused"] == ["python"]
    assert "pkg/mod.py doesn't compile" in found["checks"][-1]["message"]


def test_a_patch_file_is_a_resolution(stopped: Patchq, tmp_path: Path) -> None:
    new = with_line(5, b"otherwise, changed\n")
    (parked(stopped) / "a.txt").write_bytes(new)
    diff = git(parked(stopped), "diff", "HEAD", "--", "a.txt") + "\n"
    git(parked(stopped), "checkout", "-q", "HEAD", "--", "a.txt")
    (tmp_path / "fix.patch").write_text(diff.replace("-otherwise\n", "-something else\n"))
    assert "first doesn't apply" in stopped.fails(3, "resolve", "--from", str(tmp_path / "fix.patch"), "--dry-run")
    (tmp_path / "fix.patch").write_text(diff)
    dry = said(stopped, 0, "resolve", "--from", str(tmp_path / "fix.patch"), "--dry-run")
    assert "+otherwise, changed" in dry["diff"]


def test_edits_in_the_worktree_are_not_lost(stopped: Patchq, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    (parked(stopped) / "a.txt").write_bytes(with_line(5, b"otherwise, precious\n"))
    assert "holds edits of the stopped patch" in stopped.fails(1, "resolve", "--from", str(tmp_path / "a.txt"))
    assert (parked(stopped) / "a.txt").read_bytes() == with_line(5, b"otherwise, precious\n")
    assert said(stopped, 5, "resolve")["refused"] == ["passes with"]  # the worktree is judged
    (parked(stopped) / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    assert said(stopped, 0, "resolve")["kept"] is True


def test_which_file_is_meant(stopped: Patchq, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    assert "doesn't match exactly one of the conflicting files" in stopped.fails(
        1, "resolve", "--from", str(tmp_path / "other.txt")
    )
    assert "doesn't exist" in stopped.fails(1, "resolve", "--from", "a.txt=nowhere")
    assert "is not a relative path inside its folder" in stopped.fails(
        1, "resolve", "--from", f"../a.txt={tmp_path / 'other.txt'}"
    )
    assert said(stopped, 0, "resolve", "--from", f"a.txt={tmp_path / 'other.txt'}")["kept"] is True


def test_a_file_is_removed_by_naming_none(patchq: Patchq, upstream: Path) -> None:
    patchq.ok("apply")
    (patchq.tree() / "b.txt").unlink()
    (patchq.tree() / "a.txt").write_bytes(with_line(5, b"changed\n"))
    patchq.ok("new", "up", "first", "-m", "First\n\nFor the test.", "--topic", "test", "-s")
    add_proof(patchq, "first", PROOF)
    release(upstream, "v2", {"b.txt": with_line(5, b"otherwise\n")})
    patchq.fails(3, "rebase", "up", "--onto", "v2")
    assert said(patchq, 3, "resolve")["refused"] == ["settled"]
    assert said(patchq, 0, "resolve", "--from", "b.txt=", "--drop-upstream-line", "b.txt:5")["kept"] is True
    patchq.ok("apply", "--set", "default-up-v2")
    assert not (patchq.tree() / "b.txt").exists()


def test_another_refs_resolution_is_suggested_and_taken(stopped: Patchq, upstream: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(with_line(5, b"otherwise, changed\n"))
    said(stopped, 0, "resolve", "--from", str(tmp_path / "a.txt"))
    release(upstream, "v3", {"a.txt": with_line(5, b"otherwise\n"), "new.txt": b"new\n"})
    git(stopped.root, "init", "-q")
    for cache in (stopped.root / "patches" / "up" / "rr-cache").rglob("*image"):
        cache.unlink()
    stopped.fails(3, "rebase", "up", "--onto", "v3", "--from", "v1", "--new-set", "three")
    (one,) = said(stopped, 0, "conflict")["suggestions"]
    assert (one["source"], one["command"]) == ("v2", "patchq resolve up --ref v2")
    assert one["message"] == "the patch of up v2 applies here"
    assert "+otherwise, changed" in one["diff"]
    found = said(stopped, 0, "resolve", "--ref", "v2")
    assert (found["kept"], found["how"]) == (True, "as at v2")


def test_why_another_refs_version_is_not_taken(stopped: Patchq, upstream: Path) -> None:
    def refused(ref: str) -> str:
        return stopped.fails(1, "resolve", "--ref", ref)

    assert "error: up v9 is not pinned\n" in refused("v9")
    assert "error: up v1 contains the version of first that stopped\n" in refused("v1")
    release(upstream, "v3", {"a.txt": with_line(6, b"third\n")})
    stopped.ok("pin", "up", "--ref", "v3", "--set", "three")
    assert "error: the stack of up v3 has no patch first\n" in refused("v3")
    other = stopped.layout.stack("up", "v3")
    other.mkdir(parents=True)
    (other / "series").write_text("first.patch\n")
    text = stopped.patch_file("first").read_text()
    (other / "first.patch").write_text(text)
    assert "error: up v3 is not available locally\nhint: run `patchq fetch --all`\n" in refused("v3")
    stopped.ok("fetch", "--all")
    said = refused("v3")
    assert "error: the stack of up v3 doesn't apply: up: first doesn't apply: a.txt: " in said
    (other / "first.patch").write_text(text.replace(" line 6\n", " third\n"))
    assert "error: first of up v3 doesn't apply here either\n" in refused("v3")


def test_what_was_recorded_is_suggested(stopped: Patchq, upstream: Path) -> None:
    """Its proof failed with it; the brief still shows it."""
    (parked(stopped) / "a.txt").write_bytes(with_line(5, b"otherwise, wrong\n"))
    stopped.ok("rebase", "up", "--continue", "--no-proof")
    release(upstream, "v3", {"a.txt": with_line(5, b"otherwise\n"), "new.txt": b"new\n"})
    stopped.fails(3, "rebase", "up", "--onto", "v3", "--from", "v1")
    found = {s["source"]: s for s in said(stopped, 0, "conflict")["suggestions"]}
    assert "+otherwise, wrong" in found["recorded"]["diff"]
    assert found["recorded"]["message"] == "the recorded resolution of a.txt"
    assert said(stopped, 5, "resolve", "--recorded")["refused"] == ["passes with"]


def merger(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program on the path that is called as mergiraf is."""
    path = folder / "bin" / "some-merger"
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


UNION = """\
#!/bin/sh
[ "$1" = merge ] && [ "$5" = --output ] || exit 2
git merge-file -p --union "$3" "$2" "$4" > "$6"
sed -i 's/^otherwise$/otherwise, changed/; /^changed$/{5,6d}' "$6"
"""


def test_a_merger_is_tried_when_asked_for_and_judged(
    stopped: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no merger 'some'" in stopped.fails(1, "resolve", "--merger", "some")
    with stopped.layout.lock.open("a") as lock:
        lock.write('\n[mergers.some]\nprogram = "some-merger"\n')
    assert "is not installed" in stopped.fails(1, "resolve", "--merger", "some")
    merger(tmp_path, monkeypatch, "#!/bin/sh\nexit 1\n")
    assert "didn't merge a.txt: exit code 1\n" in stopped.fails(1, "resolve", "--merger", "some")
    merger(tmp_path, monkeypatch, "#!/bin/sh\ncat $3 > $6\necho no >&2\nexit 1\n")
    assert "didn't merge a.txt: no\n" in stopped.fails(1, "resolve", "--merger", "some")
    merger(tmp_path, monkeypatch, '#!/bin/sh\ncat $3 > "$6"\n')
    assert said(stopped, 3, "resolve", "--merger", "some")["refused"] == ["settled"]
    merger(tmp_path, monkeypatch, UNION)
    found = said(stopped, 0, "resolve", "--merger", "some")
    assert (found["kept"], found["how"]) == (True, "by the merger some")


@pytest.mark.parametrize("program", ["/bin/sh", "sh -c", "", "../x", "-x"])
def test_a_lock_names_a_merger_and_no_command(stack: Patchq, program: str) -> None:
    with stack.layout.lock.open("a") as lock:
        lock.write(f'\n[mergers.some]\nprogram = "{program}"\n')
    assert "mergers.some" in stack.fails(1, "list")


def test_usage(stopped: Patchq) -> None:
    assert "one of --from" in stopped.fails(2, "resolve", "--recorded", "--ref", "v2")
