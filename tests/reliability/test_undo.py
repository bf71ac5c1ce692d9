"""A random run of verbs, taken back by as many ``undo``, each redone once: every file and ref has its bytes again.

Hypothesis picks verbs and edits (its state machine), and minimises what fails. What a person did
by hand between two verbs, the test takes back by hand.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from extent import LONG, record
from kit import Patchq, commit_files, edit, git, numbered

#: What is fetched stays: it is a copy of upstream's, and belongs to no operation.
FETCHED = ("refs/patchq/base/", "refs/patchq/archive/")


def seen(patchq: Patchq) -> dict[str, bytes]:
    """Every file of the user's, every ref, and what git says of the worktree."""
    found = patchq.snapshot()
    found["refs"] = b"\n".join(
        line for line in found["refs"].splitlines() if line.split(b"\t")[1].decode().startswith(FETCHED) is False
    )
    if (patchq.tree() / ".git").exists():
        found["head"] = git(patchq.tree(), "symbolic-ref", "HEAD").encode()
        found["status"] = git(patchq.tree(), "status", "--porcelain").encode()
    return found


@dataclass
class Step:
    """What the project was before a person's edit, before the verb, and how the edit is taken back."""

    before_edit: dict[str, bytes]
    before_verb: dict[str, bytes]
    unedit: Callable[[], object]
    verb: str


class Verbs(RuleBasedStateMachine):
    """The verbs that change a project, on a copy of ``template``."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="undo-"))
        self.root = self.template  # git's worktrees know where they are: the copy is put in its place
        shutil.rmtree(self.root)
        shutil.copytree(self.template.with_name("saved"), self.root, symlinks=True)
        self.patchq = Patchq(self.root)
        self.steps: list[Step] = []
        self.count = 0

    def series(self) -> list[str]:
        path = self.patchq.layout.stack("up", self.ref()) / "series"
        return [line.removesuffix(".patch") for line in path.read_text().split()] if path.exists() else []

    def ref(self) -> str:
        return self.patchq.project.lock.sets[self.patchq.project.lock.default_set]["up"]

    def step(
        self, *args: str, change: Callable[[], object] = lambda: None, unedit: Callable[[], object] = lambda: None
    ) -> None:
        """One verb after an edit. One that refuses must leave everything; then the edit goes too."""
        before_edit = seen(self.patchq)
        change()
        before_verb = seen(self.patchq)
        operations = self.operations()
        done = self.patchq.run(*args)
        assert done.exit_code in (0, 1, 3), f"{args}: {done.output}"
        if self.operations() > operations:
            self.steps.append(Step(before_edit, before_verb, unedit, " ".join(args)))
            return
        assert seen(self.patchq) == before_verb, f"{args} changed something and can't be undone: {done.output}"
        unedit()

    def operations(self) -> int:
        return len(list((self.patchq.layout.private / "journal" / "operations").glob("*.json")))

    @rule(line=st.integers(1, 40), file=st.sampled_from(["a.txt", "b.txt"]))
    def new(self, line: int, file: str) -> None:
        self.count += 1
        name, path = f"n{self.count}", self.patchq.tree() / file
        if not path.exists():
            return
        old = path.read_bytes()
        self.step(
            "new", "up", name, "-m", f"Patch {name}\n\nWhy.",
            change=lambda: edit(path, line, b"%d\n" % self.count), unedit=lambda: path.write_bytes(old),
        )  # fmt: skip

    @rule(line=st.integers(1, 40), amend=st.booleans(), pick=st.integers(0, 9))
    def export(self, line: int, amend: bool, pick: int) -> None:
        tree, names = self.patchq.tree(), self.series()
        if not (tree / "a.txt").exists():
            return
        self.count += 1
        old, head = (tree / "a.txt").read_bytes(), git(tree, "rev-parse", "HEAD")
        if amend and names:
            args = ("export", "up", "--amend", names[pick % len(names)])
            self.step(
                *args, change=lambda: edit(tree / "a.txt", line, b"amended\n"),
                unedit=lambda: (tree / "a.txt").write_bytes(old),
            )  # fmt: skip
            return

        def commit() -> None:
            edit(tree / "a.txt", line, b"by hand %d\n" % self.count)
            git(tree, "commit", "-qam", f"By hand {self.count}\n\nWhy.")

        self.step("export", "up", change=commit, unedit=lambda: git(tree, "reset", "-q", "--hard", head))

    @rule(pick=st.integers(0, 9))
    def drop(self, pick: int) -> None:
        if names := self.series():
            self.step("drop", names[pick % len(names)])

    @rule(pick=st.integers(0, 9), to=st.integers(0, 9), where=st.sampled_from(["--before", "--after", "--first"]))
    def move(self, pick: int, to: int, where: str) -> None:
        if names := self.series():
            other = [] if where == "--first" else [names[to % len(names)]]
            self.step("move", names[pick % len(names)], where, *other)

    @rule(pick=st.integers(0, 9), whole=st.booleans())
    def apply(self, pick: int, whole: bool) -> None:
        names = self.series()
        self.step("apply", *([] if whole or not names else ["--to", names[pick % len(names)]]))

    @rule(ref=st.sampled_from(["v1", "v2"]), chosen=st.sampled_from(["default", "other"]))
    def pin(self, ref: str, chosen: str) -> None:
        self.step("pin", "up", "--ref", ref, "--set", chosen)

    @rule()
    def import_(self) -> None:
        self.count += 1
        diff = self.folder / f"extra-{self.count}.diff"
        diff.write_text(f"--- /dev/null\n+++ b/extra-{self.count}.txt\n@@ -0,0 +1 @@\n+extra\n")
        self.step("import", "up", str(diff), "--author", "me")

    @rule(pick=st.integers(0, 9), url=st.sampled_from(["https://example.org/pull/1", "https://example.org/pull/2"]))
    def pr_status(self, pick: int, url: str) -> None:
        if names := self.series():
            self.step("pr", names[pick % len(names)], "--status", "--url", url)

    @precondition(lambda self: self.ref() == "v1")
    @rule(how=st.sampled_from([("--leave-out",), ("--leave-out", "--new-set", "next")]))
    def rebase(self, how: tuple[str, ...]) -> None:
        if not self.patchq.layout.stack("up", "v2").exists():
            self.step("rebase", "up", "--onto", "v2", *how)

    def teardown(self) -> None:
        try:
            for step in reversed(self.steps):
                after = seen(self.patchq)
                self.patchq.ok("undo")
                undone = seen(self.patchq)
                self.patchq.ok("redo")
                redone = seen(self.patchq)
                assert redone == after, f"redo of {step.verb}: {[k for k in after if redone.get(k) != after[k]]}"
                self.patchq.ok("undo")
                now = seen(self.patchq)
                assert now == undone
                differ = [k for k in now.keys() | step.before_verb.keys() if now.get(k) != step.before_verb.get(k)]
                assert not differ, f"undo of {step.verb}: {differ}"
                step.unedit()
                assert seen(self.patchq) == step.before_edit, f"the edit before {step.verb}"
            Verbs.undone += len(self.steps)
        finally:
            shutil.rmtree(self.folder)

    undone = 0


@pytest.fixture
def template(stack: Patchq, upstream: Path) -> Path:
    lines = numbered(40).splitlines(keepends=True)
    lines[9] = b"upstream's own\n"  # where the third patch is
    commit_files(upstream, {"b.txt": b"".join(lines), "c.txt": b"new\n"}, "second")
    git(upstream, "tag", "v2")
    shutil.rmtree(stack.layout.private / "journal")
    saved = stack.root.with_name("saved")
    subprocess.run(["cp", "-a", str(stack.root), str(saved)], check=True)
    return stack.root


def test_as_many_undos_as_verbs(template: Path) -> None:
    Verbs.template, Verbs.undone = template, 0
    count = 60 if LONG else 8
    run_state_machine_as_test(
        Verbs,
        settings=settings(
            max_examples=count, stateful_step_count=12 if LONG else 8, deadline=None, database=None,
            derandomize=not LONG, suppress_health_check=list(HealthCheck), print_blob=True,
        ),
    )  # fmt: skip
    assert Verbs.undone > count
    record("undo", sequences=count, undone=Verbs.undone)


def operations(patchq: Patchq) -> int:
    return len(list((patchq.layout.private / "journal" / "operations").glob("*.json")))


@pytest.mark.parametrize("seed", range(20 if LONG else 3))
def test_undo_and_redo_go_back_and_forth(stack: Patchq, seed: int) -> None:
    """Undo some operations, redo them, and undo them again. Edits that ``undo`` hands back stay in the tree."""
    dice = random.Random(seed)
    count = operations(stack)
    for number in range(5):
        names = (stack.layout.stack("up", "v1") / "series").read_text().replace(".patch", "").split()
        verb = dice.choice(["new", "amend", "apply to", "apply", "move", "drop", "reword"])
        if verb in ("new", "amend"):
            edit(stack.tree() / dice.choice(["a.txt", "b.txt"]), dice.randrange(1, 41), b"mine %d\n" % number)
        args = {
            "new": ("new", "up", f"n{number}", "-m", f"N{number}\n\nWhy."),
            "amend": ("export", "up", "--amend", dice.choice(names)),
            "apply to": ("apply", "--to", dice.choice(names)),
            "apply": ("apply",),
            "move": ("move", dice.choice(names), "--first"),
            "drop": ("drop", dice.choice(names)),
            "reword": ("reword", dice.choice(names), "-m", f"Other {number}\n\nWhy."),
        }[verb]
        if stack.run(*args).exit_code:
            git(stack.tree(), "reset", "-q", "--hard")
    count = operations(stack) - count
    states = [seen(stack)]
    for _ in range(count):
        stack.ok("undo")
        states.append(seen(stack))
    for before in reversed(states[:-1]):
        stack.ok("redo")
        now = seen(stack)
        assert now == before, [name for name in now if now[name] != before.get(name)]
    assert "nothing to redo" in stack.fails(1, "redo")
    for after in states[1:]:
        stack.ok("undo")
        # A commit that keeps edits has another time.
        assert {**seen(stack), "refs": b""} == {**after, "refs": b""}
