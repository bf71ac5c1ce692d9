"""Check that each verb takes, refuses or names every piece that it is handed.

    python tests/reliability/conservation.py [--cases N] [--seed S] [--verb V]

A case is made from a seed: a project, an input with a known number of pieces, and one verb. Afterwards each piece is
looked up. It is *taken* if a fresh ``patchq apply`` of the listed patches has its effect, or if it is still in the
worktree where edits stay edits; *refused* if the verb failed with a reason that names its file or patch, and every
input has its bytes; *named* if the output names it and the place that it names has it. All else is unaccounted for.
"""

from __future__ import annotations

import argparse
import email
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "scenarios"), str(HERE.parent.parent / "tools")]

import pytest  # noqa: E402
from click.testing import Result  # noqa: E402

import conserving_builds  # noqa: E402
from kit import (  # noqa: E402
    Patchq,
    commit_files,
    git,
    new_project,
    release,
    seal,
)
from pieces import (  # noqa: E402
    TRACKED,
    UNTRACKED,
    Editor,
    Message,
    Piece,
    View,
    base_files,
    commit,
    commit_view,
    folder_view,
    has_text,
    message,
)  # fmt: skip

STATES = ("taken", "refused", "named", "unaccounted")
#: Exit codes of a verb that refuses. 4 is a bug in patchq.
REFUSED = (1, 2, 3, 5)


class World:
    """An upstream, a project with three patches on it, and copies to start each case from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.upstream = folder / "upstream"
        self.upstream.mkdir()
        git(self.upstream, "init", "-q")
        commit_files(self.upstream, base_files(), "first")
        git(self.upstream, "tag", "v1")
        self.author = folder / "author"
        git(folder, "clone", "-q", str(self.upstream), str(self.author))
        patchq = new_project(folder / "project")
        patchq.ok("pin", "up", "--url", str(self.upstream), "--ref", "v1")
        patchq.ok("apply")
        (folder / "fresh" / ".patchq").mkdir(parents=True)
        shutil.copytree(patchq.layout.store, folder / "store")
        shutil.rmtree(folder / "store" / "worktrees", ignore_errors=True)
        for name, changes in STACK.items():
            for path, (old, new) in changes.items():
                file = patchq.tree() / path
                file.write_bytes(file.read_bytes().replace(old, new))
            patchq.ok("new", "up", name, "-m", f"Change {name}\n\nBecause of {name}.", "--topic", "test")
        shutil.rmtree(patchq.layout.private / "journal")
        self.save("stack")
        self._stops()
        self.extra: dict[str, object] = {}

    def _stops(self) -> None:
        """Make the projects whose rebase has stopped: at a text, and at a binary and a removed file as well."""
        text = base_files()["a.txt"]
        v2 = text.replace(b"a line 4\n", b"upstream one\nupstream two\nupstream four\n")
        release(self.upstream, "v2", {"a.txt": v2, "c.txt": b"new upstream\n"})
        patchq = Patchq(self.folder / "project")
        patchq.fails(3, "rebase", "up", "--onto", "v2")
        self.save("stopped")
        git(self.upstream, "checkout", "-q", "v1")
        release(self.upstream, "v3", {"a.txt": v2, "gone5.txt": b"upstream's\n", "data3.bin": b"\0upstream"})
        self.restore("stack")
        (patchq.tree() / "gone5.txt").unlink()
        (patchq.tree() / "data3.bin").write_bytes(b"\0patch")
        file = patchq.tree() / "a.txt"
        file.write_bytes(file.read_bytes().replace(b"first changed", b"first changed again"))
        patchq.ok("export", "up", "--amend", "first")
        patchq.fails(3, "rebase", "up", "--onto", "v3")
        self.save("stopped-more")

    def save(self, name: str) -> None:
        """Keep the project as it is, under a name."""
        shutil.copytree(self.folder / "project", self.folder / "saved" / name, symlinks=True)

    def restore(self, name: str) -> Patchq:
        """Put a saved project back in its place."""
        shutil.rmtree(self.folder / "project", ignore_errors=True)
        shutil.copytree(self.folder / "saved" / name, self.folder / "project", symlinks=True)
        return Patchq(self.folder / "project")

    def fresh(self, patchq: Patchq, upstream: str = "up", set_name: str = "") -> View | None:
        """Return the tree and commits that ``apply`` makes of a project's lock and patches alone; None if it fails."""
        root = self.folder / "fresh"
        shutil.rmtree(root)
        (root / ".patchq").mkdir(parents=True)
        shutil.copytree(self.folder / "store", root / ".patchq" / "store.git")
        shutil.copyfile(patchq.layout.lock, root / "upstream.lock")
        shutil.copytree(patchq.root / "patches", root / "patches", symlinks=True)
        other = Patchq(root)
        chosen = ("--set", set_name) if set_name else ()
        if other.run("apply", upstream, *chosen).exit_code:
            return None
        ref = other.project.lock.sets[set_name or other.project.lock.default_set][upstream]
        base = git(self.upstream, "rev-parse", f"{ref}^{{commit}}")
        return folder_view(other.tree(upstream), base)


#: The patches of the stack that cases start from. ``second`` changes a line that ``fourth`` changes again.
STACK = {
    "first": {
        "a.txt": (b"a line 4\n", b"first changed\n"),
        "b.txt": (b"b line 4\n", b"b line 4\nfirst added\n"),
    },
    "second": {"b.txt": (b"b line 22\n", b"second changed\n")},
    "third": {"a.txt": (b"a line 40\n", b""), "pkg/mod.py": (b"return 1", b"return 3  # third")},
    "fourth": {"b.txt": (b"second changed\n", b"fourth changed\n")},
}


def picture(root: Path) -> dict[str, object]:
    """Return all files of a project that belong to its user: kinds, modes, bytes, and each worktree's HEAD and index."""
    found: dict[str, object] = {}
    for top in ("patches", ".patchq/trees", "upstream.lock", "tests"):
        start = root / top
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_symlink():
                found[name] = os.readlink(path)
            elif path.is_file() and path.name != ".git":
                found[name] = (path.stat().st_mode & 0o100, path.read_bytes())
    for tree in (root / ".patchq" / "trees").glob("*"):
        if (tree / ".git").exists():
            found[f"{tree.name} commits"] = git(tree, "log", "--format=%H", "-9")
            found[f"{tree.name} index"] = git(tree, "ls-files", "-s")
    return found


def readable(mail: bytes) -> bytes:
    """Return a file with what it holds in base64 or quoted-printable, if it is a mail."""
    parts = [part.get_payload(decode=True) for part in email.message_from_bytes(mail).walk()]
    return mail + b"".join(part for part in parts if isinstance(part, bytes))


@dataclass
class Case:
    """One case: what was handed to which verb, and what came of each piece.

    :ivar words: files and patches, one of which a reason must name.
    :ivar inputs: files and folders outside the project that a refusal must leave alone.
    :ivar then: finish what the verb began, such as a rebase that stops at a later patch.
    """

    world: World
    verb: str
    dice: random.Random
    patchq: Patchq
    words: list[str] = field(default_factory=list)
    inputs: list[Path] = field(default_factory=list)
    pieces: list[tuple[Piece, str]] = field(default_factory=list)
    states: list[tuple[str, Piece]] = field(default_factory=list)
    args: tuple[str, ...] = ()
    output: str = ""
    code: int = 0
    set_name: str = ""
    notes: list[str] = field(default_factory=list)
    bound: str = "up"

    def __post_init__(self) -> None:
        self.editor = Editor(self.dice)

    def hand(self, pieces: Iterable[Piece], where: str) -> None:
        """Add pieces, with the place where they must be afterwards.

        :param where: ``stack`` (a fresh apply), ``worktree``, ``both``, ``either``, ``commits`` of the worktree,
            ``kept`` (``stack``, or a commit that the output names), or ``any`` (the piece looks for itself).
        """
        self.pieces += [(piece, where) for piece in pieces]

    def hand_stack(self, names: Iterable[str] = tuple(STACK), where: str = "stack") -> None:
        """Add the effect and the message of each of the stack's own patches."""
        for name in names:
            for path, (_, new) in STACK[name].items():
                text = new.split(b"\n")[-2].decode() if b"\n" in new else new.decode()
                if name == "second" and "fourth" in names:
                    continue  # the fourth patch changes the second one's line
                check = has_text(path, text) if text else _third_is_applied
                self.hand(
                    [Piece("patch of the stack", f"{name}: {path}", check, (f"up/{name}", f"{name}.patch"))], where
                )
            message = f"Because of {name}."
            check = lambda v, message=message: any(message in c.message for c in v.commits)  # noqa: E731
            self.hand([Piece("patch of the stack", f"{name}: message", check, (f"up/{name}",))], "stack")

    def hand_series(self) -> None:
        """Put a comment into the series, and add it as a piece."""
        token, path = self.editor.token(), self.patchq.layout.stack("up", "v1") / "series"
        lines = path.read_text().splitlines()
        at = self.dice.randrange(len(lines) + 1)
        lines.insert(at, f"# {token}")
        path.write_text("\n".join(lines) + "\n")
        self.hand([Piece("series line", token, lambda _: f"# {token}" in path.read_text())], "any")

    def run(self, *args: str, input: bytes | None = None) -> Result:
        """Run the verb, and account for each piece."""
        self.args = args
        before = self._before()
        done = self._invoke(args, input)
        self.output, self.code = done.output, done.exit_code
        same = before == self._before()
        self.account(same)
        return done

    def _invoke(self, args: tuple[str, ...], data: bytes | None) -> Result:
        if data is None:
            return self.patchq.run(*args)
        from click.testing import CliRunner

        from patchq.cli import cli

        return CliRunner().invoke(cli, ["--project", str(self.patchq.root), *args], prog_name="patchq", input=data)

    def _before(self) -> dict[str, object]:
        found = picture(self.patchq.root)
        for top in self.inputs:
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and ".git" not in path.parts:
                    found[str(path)] = path.read_bytes()
        return found

    @cached_property
    def _stack_view(self) -> View | None:
        return self.world.fresh(self.patchq, self.bound, self.set_name)

    @cached_property
    def _worktree_view(self) -> View | None:
        tree = self.patchq.tree(self.bound)
        if not tree.exists():
            return None
        return folder_view(tree, git(tree, "rev-list", "--max-parents=0", "HEAD").splitlines()[-1])

    @cached_property
    def _wheel(self) -> tuple[View, str]:
        return conserving_builds.wheel_views(self)

    def views(self, where: str) -> list[View | None]:
        """Return the views in which a piece must be."""
        if where == "wheel":
            return [self._wheel[0]]
        if where == "any":
            return [View(lambda _: None)]
        chosen = {
            "stack": ["_stack_view"],
            "kept": ["_stack_view"],
            "worktree": ["_worktree_view"],
            "commits": ["_worktree_view"],
        }
        return [getattr(self, name) for name in chosen.get(where, ["_stack_view", "_worktree_view"])]

    def account(self, same: bool) -> None:
        """Give each piece its state."""
        refused = self.code in REFUSED and same and self._has_reason()
        for piece, where in self.pieces:
            if refused:
                self.states.append(("refused", piece))
                continue
            held = [view is not None and piece.holds(view) for view in self.views(where)]
            if any(held) if where == "either" else all(held):
                state = "taken"
            elif self._named(piece) or (where == "wheel" and self._is_in_the_bill(piece)):
                state = "named"
            else:
                state = "unaccounted"
            self.states.append((state, piece))

    def _has_reason(self) -> bool:
        return any(word in self.output for word in self.words) or any(
            name in self.output for piece, _ in self.pieces for name in piece.names
        )

    def _named(self, piece: Piece) -> bool:
        """Return whether the output names a piece, and the place that it names has the piece."""
        if self._left(piece):
            return True
        if not any(name in self.output for name in piece.names):
            return False
        for name in dict.fromkeys(re.findall(r"\b[0-9a-f]{12,40}\b", self.output)):
            if piece.holds(commit_view(self.patchq.layout.store, name)):
                return True
        return any(piece.token.encode() in path.read_bytes() and piece.token in self.output for path in self._files())

    def _left(self, piece: Piece) -> bool:
        """Return whether the output names the file or mail of a piece as left, and the file still has the piece."""
        lines = [line for line in self.output.splitlines() if " was left out: " in line or " holds no diff, " in line]
        files = [path for path in self._files() if all(mark in readable(path.read_bytes()) for mark in piece.marks)]
        return any(str(path) in line or "standard input" in line for path in files for line in lines)

    def _files(self) -> list[Path]:
        found = [p for top in self.inputs for p in ([top] if top.is_file() else sorted(top.rglob("*")))]
        return [path for path in found if path.is_file() and ".git" not in path.parts]

    def _is_in_the_bill(self, piece: Piece) -> bool:
        """Return whether a piece is no part of the wheel by its place, and is in the bill of materials or named."""
        if piece.kind.startswith("file outside"):
            return piece.token in self._wheel[1] or any(name in self.output for name in piece.names)
        return any(name in self.output for name in piece.names) and piece.holds(conserving_builds.source_view(self))

    @property
    def lost(self) -> list[Piece]:
        """Return the pieces that are unaccounted for."""
        return [piece for state, piece in self.states if state == "unaccounted"]

    def report(self) -> str:
        """Return all that is needed to look into a loss."""
        lines = [f"{piece.kind}: {piece.token}" for piece in self.lost]
        head = f"{self.verb}: patchq {' '.join(self.args)} (exit {self.code}) {'; '.join(self.notes)}"
        return "\n  ".join([head, *lines]) + f"\n{self.output}"


def _third_is_applied(view: View) -> bool:
    file = view.get("a.txt")
    return bool(file and b"a line 40\n" not in file.data)


# What a worktree holds


def leave_edits(case: Case, count: int, kinds: tuple[str, ...] = ()) -> list[Piece]:
    """Edit the worktree; some of the edits are staged."""
    tree = case.patchq.tree()
    found = case.editor.edits(tree, count, kinds)
    if case.dice.random() < 0.3:
        git(tree, "add", "-A")
        case.notes.append("staged")
    elif case.dice.random() < 0.3:
        for path in git(tree, "ls-files", "-mo", "--exclude-standard", "-z").split("\0"):
            if path and case.dice.random() < 0.5:
                git(tree, "add", "-A", "--", path)
        case.notes.append("partly staged")
    return found


def leave_ignored(case: Case, tree: Path | None = None) -> None:
    """Write an ignored file into a worktree. It must stay there."""
    token = case.editor.token()
    path = f"{token}.log"
    ((tree or case.patchq.tree()) / path).write_text(f"{token}\n")
    case.hand([Piece("ignored file", path, has_text(path, token))], "worktree")


def change_on_disk(case: Case) -> list[str]:
    """Change the stack's files as a colleague's pulled change does; return the patches that are touched."""
    dice, folder = case.dice, case.patchq.layout.stack("up", "v1")
    series = folder / "series"
    how = dice.choice(["edited", "removed", "added", "reordered", "message"])
    case.notes.append(f"on disk: {how}")
    token = case.editor.token()
    # Other verbs than `apply` write the stack; patches after the last applied one are not in the worktree yet.
    where = "both" if case.verb == "apply" else "stack"
    names = [line for line in series.read_text().splitlines() if line and not line.startswith("#")]
    kept = [line for line in series.read_text().splitlines() if line.startswith("#")]
    if how == "edited":
        path = folder / "third.patch"
        path.write_bytes(path.read_bytes().replace(b"# third", f"# third {token}".encode()))
        case.hand([Piece("colleague's edit", token, has_text("pkg/mod.py", token), (token, "third"))], where)
        return ["third"]
    if how == "message":
        path = folder / "third.patch"
        path.write_bytes(path.read_bytes().replace(b"Because of third.", f"Because of third. {token}".encode()))
        holds = lambda v: any(token in c.message for c in v.commits)  # noqa: E731
        case.hand([Piece("colleague's message", token, holds, (token, "third"))], "stack")
        return ["third"]
    if how == "removed":
        (folder / "third.patch").unlink()
        names.remove("third.patch")
        gone = lambda v: not _third_is_applied(v)  # noqa: E731
        case.pieces = [(p, w) for p, w in case.pieces if not p.token.startswith("third:")]
        case.hand([Piece("colleague's removal", "third", gone)], where)
    elif how == "added":
        said, pieces = author_patch(case, 2)
        (folder / "theirs.patch").write_bytes(format_patch(case.world.author))
        names.insert(dice.randrange(len(names) + 1), "theirs.patch")
        case.hand(pieces, where)
        case.hand(said.pieces, "stack")
    else:
        names.remove("third.patch")
        names.insert(0, "third.patch")
        order = lambda v: [c.message for c in v.commits][-1:] and "Because of third" in v.commits[-1].message  # noqa: E731
        case.hand([Piece("colleague's order", "third", order)], "stack")
    series.write_text("".join(f"{line}\n" for line in [*kept, *names]))
    return ["third", "theirs"]


def author_patch(case: Case, count: int, kinds: tuple[str, ...] = ()) -> tuple[Message, list[Piece]]:
    """Commit edits in the repository of another author, on v1 if it is the first one of this case."""
    folder = case.world.author
    if "author" not in case.editor.used:
        case.editor.used.add("author")
        git(folder, "checkout", "-q", "-f", "--detach", "v1")
        git(folder, "clean", "-fdxq")
    found: list[Piece] = []
    while not found:
        found = case.editor.edits(folder, count, kinds)
    said = message(case.editor)
    git(folder, "add", "-fA")
    commit(folder, said)
    return said, found


def format_patch(folder: Path, spec: str = "-1", *args: str) -> bytes:
    """Return mails of commits."""
    import subprocess

    argv = ["git", "format-patch", "--stdout", "--keep-subject", "--full-index", "--binary", "-M", *args, spec]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True).stdout


# The verbs


def case_new(case: Case) -> None:
    """``new``: edits of every kind, a message, a colleague's change on disk."""
    dice = case.dice
    case.hand_stack()
    case.hand(leave_edits(case, dice.randrange(1, 9)), "both")
    if (
        not case.patchq.project.worktree("up").status().edited
        and not case.patchq.project.worktree("up").status().untracked
    ):
        case.hand(case.editor.edit(case.patchq.tree(), "new_file"), "both")
    said = message(case.editor)
    case.hand([p for p in said.pieces if p.kind != "date"], "stack")
    common(case, disk=0.35)
    case.words += ["mine", "worktree"]
    case.run("new", "up", "mine", "-m", said.text, "--author", said.author)


def common(case: Case, *, disk: float) -> None:
    """Add what any verb must leave alone or merge."""
    if case.dice.random() < 0.5:
        leave_ignored(case)
    if case.dice.random() < 0.5:
        case.hand_series()
    if case.dice.random() < disk:
        case.words += change_on_disk(case)


def case_amend(case: Case) -> None:
    """``export --amend``: edits, and in some cases commits as well."""
    dice = case.dice
    case.hand_stack()
    if dice.random() < 0.3:
        commits(case, 1)
    case.hand(leave_edits(case, dice.randrange(1, 7)), "both")
    name = dice.choice(["first", "second", "third", "fourth"])
    common(case, disk=0.25)
    case.words += ["worktree", name]
    case.run("export", "up", "--amend", name)


def commits(case: Case, count: int) -> None:
    """Commit in the worktree: patches of their own, fixups and reworded ones."""
    tree, dice = case.patchq.tree(), case.dice
    for _ in range(count):
        how = dice.choice(["commit", "commit", "fixup", "squash", "amend"])
        found: list[Piece] = []
        while not found:
            found = case.editor.edits(tree, dice.randrange(1, 5))
        case.hand(found, "both")
        git(tree, "add", "-A")
        said = message(case.editor)
        if how == "commit":
            commit(tree, said)
            case.hand(said.pieces, "stack")
        elif how == "amend":
            said.text = f"Change fourth\n\nBecause of fourth.\n\n{said.text}"
            keep = [p for p in said.pieces if p.kind in ("body line", "trailer")]
            if git(tree, "log", "-1", "--format=%s") != "Change fourth":
                git(tree, "commit", "-q", "-m", "fixup! Change fourth")
            else:
                git(tree, "commit", "-q", "--amend", "-F", "-", data=said.text.encode())
                amended = [p for p, _ in case.pieces if p.kind == "amended message"]
                case.pieces = [(p, w) for p, w in case.pieces if p not in amended]
                for piece in keep:
                    piece.kind = "amended message"
                case.hand(keep, "stack")
        else:
            name = dice.choice(list(STACK))
            git(tree, "commit", "-q", "-m", f"{how}! Change {name}", "-m", f"{said.pieces[1].token}")
            if how == "squash":
                token = said.pieces[1].token
                holds = lambda v, token=token: any(token in c.message for c in v.commits)  # noqa: E731
                case.hand([Piece("message of a squash!", token, holds)], "stack")
        case.notes.append(how)


def case_export(case: Case) -> None:
    """``export``: commits, fixups, and files that no commit has."""
    dice = case.dice
    case.hand_stack()
    commits(case, dice.randrange(1, 4))
    if dice.random() < 0.4:
        case.hand(case.editor.edits(case.patchq.tree(), dice.randrange(1, 8), UNTRACKED), "worktree")
    if dice.random() < 0.1:
        case.hand(case.editor.edits(case.patchq.tree(), 2, TRACKED), "worktree")
    common(case, disk=0.25)
    case.words += ["worktree", *STACK]
    case.run("export", "up")


def case_apply(case: Case) -> None:
    """``apply``: a colleague's change on disk, damaged patch files, edits of the user's own."""
    import mail_headers

    dice = case.dice
    case.hand_stack()
    for piece, where in list(case.pieces):
        if where == "stack" and "message" not in piece.token:
            case.hand([piece], "worktree")
    case.words += ["worktree", *STACK]
    what = dice.choice(["disk", "disk", "damage", "edits", "options"])
    if what in ("disk", "edits") or dice.random() < 0.3:
        common(case, disk=0.8)
    if what == "damage":
        said, pieces = author_patch(case, dice.randrange(1, 6))
        mail = format_patch(case.world.author, "-1", "--no-signature", "--zero-commit")
        change = dice.choice(SAFE_CHANGES(mail_headers))
        mail = change(dice, mail)
        folder = case.patchq.layout.stack("up", "v1")
        (folder / "theirs.patch").write_bytes(mail)
        with (folder / "series").open("a") as series:
            series.write("theirs.patch\n")
        case.notes.append(f"damaged: {getattr(change, '__name__', change)}")
        left = [p for p in [*pieces, *said.pieces] if all(m in mail for m in p.marks)]
        tree = [p for p in left if p in pieces]
        case.hand(tree, "both")
        case.hand([p for p in left if p not in pieces], "stack")
        case.words += ["theirs"]
    if what == "options":
        path = case.patchq.layout.stack("up", "v1") / "series"
        line = dice.choice(
            ["second.patch -p1", "second.patch -p0", "second.patch -R", "second.patch # why", "missing.patch"]
        )
        path.write_text(path.read_text().replace("second.patch", line, 1))
        case.words += ["series", line]
        case.hand([Piece("options line", line, lambda _: line in path.read_text())], "any")
    if what == "edits":
        case.hand(leave_edits(case, dice.randrange(1, 5)), "worktree")
        if dice.random() < 0.4:
            git(case.patchq.tree(), "add", "-A")
            said = message(case.editor)
            commit(case.patchq.tree(), said, "--allow-empty")
            case.hand(said.pieces, "commits")
    to = ["--to", dice.choice(list(STACK))] if what == "edits" and dice.random() < 0.3 else []
    if to:  # what comes after it is in the stack, not in the worktree
        case.pieces = [
            (p, {"both": "stack"}.get(w, w))
            for p, w in case.pieces
            if (p.kind, w) != ("patch of the stack", "worktree")
        ]
    case.run("apply", *to)


def SAFE_CHANGES(module: object) -> list[Callable[[random.Random, bytes], bytes]]:
    """Return the changes of a mail that give none of its parts another meaning."""
    lines = module._lines  # type: ignore[attr-defined]
    return [
        module._all_crlf, lines(module._header_crlf), lines(module._some_crlf), lines(module._blanks_on_blank_lines),  # type: ignore[attr-defined]
        lines(module._blank_after_header), lines(module._more_blank_lines), lines(module._swap_headers),  # type: ignore[attr-defined]
        lines(module._fold), lines(module._other_case), lines(module._cut), lines(module._indent_diff), damaged_counts,  # type: ignore[attr-defined]
    ]  # fmt: skip


def damaged_counts(dice: random.Random, mail: bytes) -> bytes:
    """Change a number in a hunk's header."""
    places = list(re.finditer(rb"^@@ -\d+(?:,\d+)? \+\d+(?:,(\d+))? @@", mail, re.MULTILINE))
    places = [p for p in places if p[1]]
    if not places:
        return mail
    place = dice.choice(places)
    number = int(place[1]) + dice.choice([-2, -1, 1, 2])
    return mail[: place.start(1)] + b"%d" % max(0, number) + mail[place.end(1) :]


def case_drop(case: Case) -> None:
    """``drop``: the whole patch is named, and ``undo`` brings it back; the others stay."""
    dice = case.dice
    name = dice.choice(list(STACK))
    case.hand_stack([n for n in STACK if n != name])
    if name == "fourth":
        case.hand([Piece("patch of the stack", "second: b.txt", has_text("b.txt", "second changed"))], "stack")
    common(case, disk=0.2)
    _some_edits(case)
    case.words += [name, "worktree"]
    case.pieces = [(p, w) for p, w in case.pieces if not (p.kind.startswith("colleague") and name in p.names)]
    path = case.patchq.patch_file(name)
    data = path.read_bytes() if path.exists() else b""
    case.run("drop", name, *(["--why", "Not needed"] if dice.random() < 0.5 else []))
    if case.code == 0:
        named = f"removed {name}" in case.output
        case.patchq.ok("undo")
        back = path.read_bytes() == data and f"{name}.patch" in (path.parent / "series").read_text()
        case.states.append(
            ("named" if named and back else "unaccounted", Piece("dropped patch", name, lambda _: False))
        )


def _some_edits(case: Case) -> None:
    """Leave edits or files of its own in the worktree, in some cases."""
    if case.dice.random() < 0.25:
        case.hand(leave_edits(case, 2), "worktree")
    elif case.dice.random() < 0.4:
        case.hand(case.editor.edits(case.patchq.tree(), 2, UNTRACKED), "worktree")


def case_move(case: Case) -> None:
    """``move``: every patch stays, in the order that was asked for."""
    dice = case.dice
    names = list(STACK)
    name, other = dice.sample(names, 2)
    how = dice.choice(["--before", "--after", "--first"])
    case.hand_stack(where="both")
    common(case, disk=0.2)
    _some_edits(case)
    case.words += [name, "worktree"]
    # The order on disk is what `move` changes.
    case.pieces = [(p, w) for p, w in case.pieces if p.kind != "colleague's order"]

    def in_order(view: View) -> bool:
        said = [c.message.split("\n")[0].removeprefix("Change ") for c in reversed(view.commits)]
        if name not in said or (how != "--first" and other not in said):
            return False
        at = said.index(name)
        if how == "--first":
            return at == 0
        return said[at + 1 : at + 2] == [other] if how == "--before" else at > 0 and said[at - 1] == other

    case.hand([Piece("order", f"{name} {how} {other}", in_order, (name,))], "stack")
    case.run("move", name, how, *([] if how == "--first" else [other]))


def case_undo(case: Case) -> None:
    """``undo`` after another verb: what that verb took is an edit or a commit again, and later edits stay."""
    dice, patchq, tree = case.dice, case.patchq, case.patchq.tree()
    verb = dice.choice(["new", "amend", "export", "drop", "move", "import", "apply"])
    case.notes.append(f"undo of {verb}")
    series = patchq.layout.stack("up", "v1") / "series"
    before = series.read_text()
    if verb in ("new", "amend"):
        edits = leave_edits(case, dice.randrange(1, 7))
        if not git(tree, "status", "--porcelain"):
            edits += case.editor.edit(tree, "new_file")
        args = ("new", "up", "mine", "-m", "Mine\n\nWhy.") if verb == "new" else ("export", "up", "--amend", "third")
        done = patchq.run(*args)
        case.hand(edits, "worktree")
    elif verb == "export":
        said = message(case.editor)
        found = case.editor.edits(tree, 3) + case.editor.edit(tree, "new_file")
        git(tree, "add", "-A")
        commit(tree, said)
        done = patchq.run("export", "up")
        case.hand([*found, *said.pieces], "commits")
    elif verb == "drop":
        done = patchq.run("drop", dice.choice(list(STACK)))
    elif verb == "move":
        done = patchq.run("move", "third", "--first")
    elif verb == "import":
        author_patch(case, 3)
        mail = case.world.folder / "mine.eml"
        mail.write_bytes(format_patch(case.world.author))
        done = patchq.run("import", "up", str(mail))
    else:
        done = patchq.run("apply", "--to", dice.choice(["first", "second"]))
    if done.exit_code:
        case.notes.append("refused before")
    case.hand_stack()
    case.hand([Piece("series", "series", lambda _: series.read_text() == before)], "any")
    if dice.random() < 0.5:
        leave_ignored(case)
    if dice.random() < 0.4:
        case.hand(case.editor.edits(tree, 2, UNTRACKED if dice.random() < 0.5 else TRACKED), "worktree")
    case.words += ["worktree", *STACK]
    case.run("undo")


def case_continue(case: Case) -> None:
    """``rebase --continue`` and ``resolve``: the resolution, upstream's lines, and other files of the worktree."""
    dice = case.dice
    more = dice.random() < 0.3
    case.patchq = case.world.restore("stopped-more" if more else "stopped")
    ref = "v3" if more else "v2"
    case.set_name = f"default-up-{ref}"
    folder = case.patchq.layout.tree(f"up@{ref}")
    editor, token = case.editor, case.editor.token()
    text = (folder / "a.txt").read_bytes()
    mine = b"first changed again\n" if more else b"first changed\n"
    lines = [b"upstream one\n", b"upstream two\n", b"upstream four\n"]
    dropped = dice.random() < 0.15 and lines.pop(dice.randrange(2))
    resolved = re.sub(
        rb"<<<<<<<.*?>>>>>>>[^\n]*\n", b"".join(lines) + token.encode() + b" " + mine, text, flags=re.DOTALL
    )
    word = f"{token} first changed"
    case.hand([Piece("resolution", token, has_text("a.txt", word), (token, "a.txt"))], "stack")
    for line in ("upstream one", "upstream two", "upstream four"):
        case.hand([Piece("line of upstream's", line, has_text("a.txt", line))], "stack")
    case.hand([Piece("hunk that lands", "first added", has_text("b.txt", "first added"), ("b.txt",))], "stack")
    case.hand_stack(["second", "third", "fourth"])
    from_file = case.verb == "resolve" and not more and dice.random() < 0.4
    extra: list[str] = []
    if from_file:
        file = case.world.folder / "a.txt"
        file.write_bytes(resolved)
        case.inputs.append(file)
        extra += ["--from", str(file)]
    else:
        (folder / "a.txt").write_bytes(resolved)
        if dice.random() < 0.3:
            git(folder, "add", "a.txt")
    if more:
        _decide_the_rest(case, folder)
    for _ in range(dice.choice([0, 1, 1, 2])):
        what = dice.choice(["orig", "unrelated", "untracked", "many", "staged", "include", "own", "ignored", "commit"])
        case.notes.append(what)
        if what == "orig":
            path, word = f"a.txt.{editor.token()}.orig", editor.token()
            (folder / path).write_text(f"{word}\n")
            case.hand([Piece("mergetool's file", path, has_text(path, word))], "kept")
        elif what in ("unrelated", "untracked", "many"):
            kinds = TRACKED if what == "unrelated" else UNTRACKED
            case.hand(editor.edits(folder, 8 if what == "many" else 2, kinds), "kept")
        elif what == "staged":
            found = editor.edits(folder, 2, UNTRACKED)
            git(folder, "add", "--", *{p.names[-1] for p in found})
            case.hand(found, "stack")
        elif what == "include":
            found = editor.edit(folder, "new_file")
            case.hand(found, "stack")
            extra += ["--include", found[0].names[-1]]
        elif what == "own":
            if "own" in case.notes[:-1]:
                continue
            path, word = folder / "b.txt", editor.token()
            path.write_bytes(path.read_bytes().replace(b"b line 58\n", f"{word}\n".encode()))
            case.hand([Piece("edit of the patch's file", word, has_text("b.txt", word), (word, "b.txt"))], "stack")
        elif what == "ignored":
            path, word = f"{editor.token()}.log", editor.token()
            (folder / path).write_text(f"{word}\n")
            case.hand([_ignored(folder, path, word)], "any")
        elif not from_file and not more:
            said = message(editor)
            git(folder, "add", "-A")
            commit(folder, said, "--allow-empty")
            for piece in said.pieces:
                piece.names = (*piece.names, "the patch keeps its own message")
            case.hand([p for p in said.pieces if p.kind in ("body line", "subject")], "stack")
    if dropped:
        case.words += ["a.txt"]
    case.words += ["worktree", "first", "a.txt", "b.txt"]
    verb = ("rebase", "up", "--continue") if case.verb == "rebase --continue" else ("resolve", "up")
    case.run(*verb, *extra)


def _ignored(folder: Path, path: str, word: str) -> Piece:
    """Return an ignored file of a worktree that may go: it must be there, or in a commit that is named."""

    def holds(view: View) -> bool:
        full = folder / path
        return (full.exists() and word in full.read_text()) or has_text(path, word)(view)

    return Piece("ignored file", path, holds)


def _decide_the_rest(case: Case, folder: Path) -> None:
    """Resolve a binary file that both changed, and one that the patch removes and upstream changed."""
    dice = case.dice
    token = case.editor.token()
    if dice.random() < 0.85:
        data = b"\0" + token.encode()
        (folder / "data3.bin").write_bytes(data)
        case.hand([Piece("resolution of a binary file", token, has_text("data3.bin", token), ("data3.bin",))], "stack")
        if dice.random() < 0.5:
            git(folder, "add", "data3.bin")
    if dice.random() < 0.85:
        word = case.editor.token()
        (folder / "gone5.txt").write_text(f"upstream's\n{word}\n")
        git(folder, "add", "gone5.txt")
        case.hand([Piece("resolution of a removed file", word, has_text("gone5.txt", word), ("gone5.txt",))], "stack")
    case.words += ["data3.bin", "gone5.txt"]


# What `import` reads


def case_import(case: Case) -> None:
    """``import``: mails and diffs in every form, changed as mail programs, editors and hands change them."""
    import mail_headers

    dice, world = case.dice, case.world
    case.hand_stack()
    common(case, disk=0)
    count = dice.randrange(1, 4)
    patches: list[tuple[bytes, bytes, Message, list[Piece]]] = []
    for _ in range(count):
        said, pieces = author_patch(case, dice.randrange(1, 6))
        diff = format_diff(world.author)
        patches.append((format_patch(world.author), diff, said, pieces))
    if dice.random() < 0.3:  # a later patch changes the same line again
        patches.append(_again(case))
    place = world.folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    case.inputs.append(place)
    form = dice.choice(["mails", "mails", "mbox", "numbered", "series", "series", "diffs", "range", "stdin", "encoded"])
    case.notes.append(form)
    case.words += [str(place), "standard input", "mail 1", *STACK]
    args: list[str] = []
    data: bytes | None = None
    texts = [mail for mail, *_ in patches]
    wanted: list[list[Piece]] = [[*pieces, *said.pieces] for _, _, said, pieces in patches]
    if form == "range":
        args = [str(world.author), "--range", f"v1..{git(world.author, 'rev-parse', 'HEAD')}"]
        case.words += [str(world.author)]
    elif form == "series":
        texts, wanted = _write_series(case, place, patches)
        args = [str(place), "--author", "me"]
    else:
        if form == "diffs":
            texts, wanted = [diff for _, diff, *_ in patches], [pieces for *_, pieces in patches]
            args = ["--author", "me"]
        if form == "encoded":
            texts = [encoded(dice, text) for text in texts]
        elif dice.random() < 0.6:
            at = dice.randrange(len(texts))
            change = dice.choice([*SAFE_CHANGES(mail_headers), *HAND_CHANGES])
            if form == "diffs" and _name_of(change) == "_other_case":
                change = damaged_counts  # a name in another case is another file's
            case.notes.append(_name_of(change))
            texts[at], more = _changed(case, change, texts[at])
            if change is mail_headers._append:
                more = []
            wanted[at] = [p for p in wanted[at] if all(mark in texts[at] for mark in p.marks)]
            wanted[at] += more
        if form in ("mbox", "stdin"):
            if dice.random() < 0.3:
                texts.insert(0, _cover(case))
            whole = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
            (place / "box").write_bytes(whole)
            if form == "stdin":
                data, args = whole, [*args, "-"]
            else:
                args = [*args, str(place / "box")]
        else:
            for number, text in enumerate(texts, 1):
                (place / f"{number:04}-{case.editor.token()}.patch").write_bytes(text)
            if dice.random() < 0.2 and form != "diffs":
                (place / "0000-cover.patch").write_bytes(_cover(case))
            args = [*args, str(place)] if form == "numbered" else [*args, *map(str, sorted(place.iterdir()))]
    for pieces in wanted:
        case.hand(pieces, "stack")
    if dice.random() < 0.15:
        args.append("--partial")
    case.run("import", "up", *args, input=data)


def _again(case: Case) -> tuple[bytes, bytes, Message, list[Piece]]:
    """Return a patch that changes a line, and then one that changes that line again is the case's last."""
    folder, token = case.world.author, case.editor.token()
    path = folder / "plain0.txt"
    if path.is_symlink() or "plain0.txt" in case.editor.used:
        said, pieces = author_patch(case, 1)
    else:
        case.editor.used.add("plain0.txt")
        path.write_text(f"{token}\n")
        said, pieces = author_patch(case, 1)
        pieces = [*pieces, Piece("added line", token, has_text("plain0.txt", token))]
    return format_patch(folder), format_diff(folder), said, pieces


def format_diff(folder: Path) -> bytes:
    """Return the last commit as a plain diff."""
    import subprocess

    argv = ["git", "diff", "--binary", "--full-index", "-M", "HEAD~1", "HEAD"]
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True).stdout


def _cover(case: Case) -> bytes:
    """Return a cover letter, whose subject is a piece: the output must name it."""
    token = case.editor.token()
    case.hand([Piece("cover letter", token, lambda _: False)], "any")
    head = "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: Ann <ann@example.org>\n"
    head += "Date: Fri, 2 Jan 2026 03:04:05 +0100\n"
    return f"{head}Subject: [PATCH 0/3] All about {token}\n\nWhat it does.\n\n-- \n2.39.5\n\n".encode()


def encoded(dice: random.Random, mail: bytes) -> bytes:
    """Return a mail in another transfer encoding."""
    import base64
    import quopri

    mail = re.sub(rb"^(MIME-Version|Content-[A-Za-z-]+): [^\n]*\n", b"", mail, flags=re.MULTILINE)
    head, _, body = mail.partition(b"\n\n")
    how = dice.choice(["quoted-printable", "base64", "flowed"])
    if how == "flowed":
        kind = b"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8; format=flowed\nContent-Transfer-Encoding: 8bit"
        return head + b"\n" + kind + b"\n\n" + re.sub(rb"^( |From |>)", rb" \1", body, flags=re.MULTILINE)
    kind = f"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: {how}".encode()
    text = base64.encodebytes(body) if how == "base64" else quopri.encodestring(body)
    return head + b"\n" + kind + b"\n\n" + text


def _behind(case: Case, mail: bytes) -> tuple[bytes, list[Piece]]:
    """Put a line behind the diff."""
    token = case.editor.token()
    return mail.partition(b"\n-- \n")[0] + f"\n{token} behind the diff\n".encode(), [
        _text_piece("line behind the diff", token)
    ]


def _between(case: Case, mail: bytes) -> tuple[bytes, list[Piece]]:
    """Put a line above a hunk or a file's diff that isn't the first one."""
    token = case.editor.token()
    places = [m.start() for m in re.finditer(rb"^(@@ |diff --git)", mail, re.MULTILINE)][1:]
    if not places:
        return mail, []
    at = case.dice.choice(places)
    return mail[:at] + f"{token} between\n".encode() + mail[at:], [_text_piece("line between hunks", token)]


def _notes(case: Case, mail: bytes) -> tuple[bytes, list[Piece]]:
    """Put notes below the separator of the message."""
    token = case.editor.token()
    if b"\n---\n" not in mail:
        return mail, []
    return mail.replace(b"\n---\n", f"\n---\n{token} since v1\n\n".encode(), 1), [_text_piece("notes", token)]


def _text_piece(kind: str, token: str) -> Piece:
    """Return a piece of text that belongs to a message, or is named."""
    return Piece(kind, token, lambda v: any(token in c.message for c in v.commits))


HAND_CHANGES = (_behind, _between, _notes)


def _changed(case: Case, change: Callable[..., object], text: bytes) -> tuple[bytes, list[Piece]]:
    if change in HAND_CHANGES:
        return change(case, text)  # type: ignore[return-value]
    return change(case.dice, text), []  # type: ignore[return-value]


def _name_of(change: Callable[..., object]) -> str:
    inner = [c.cell_contents for c in getattr(change, "__closure__", None) or ()]
    return getattr(inner[0] if inner else change, "__name__", "change")


def _write_series(
    case: Case, place: Path, patches: list[tuple[bytes, bytes, Message, list[Piece]]]
) -> tuple[list[bytes], list[list[Piece]]]:
    """Write a quilt folder: options, comments, mails and plain diffs, and a patch that no line lists."""
    dice, lines, wanted = case.dice, [], []
    for number, (mail, diff, said, pieces) in enumerate(patches):
        name = f"{case.editor.token()}-{number}.patch"
        text, option = (mail, "") if dice.random() < 0.5 else (diff, dice.choice(["", " -p1"]))
        wanted.append([*pieces, *(said.pieces if text is mail else [])])
        (place / name).write_bytes(text)
        if dice.random() < 0.3:
            lines.append(f"# {case.editor.token()}")
        lines.append(f"{name}{option}")
    if dice.random() < 0.2:
        token = case.editor.token()
        (place / f"{token}.patch").write_text(f"--- a/t0.txt\n+++ b/t0.txt\n@@ -1 +1,2 @@\n t0 line 1\n+{token}\n")
        case.hand([Piece("patch that the series doesn't list", token, has_text("t0.txt", token))], "stack")
        case.notes.append("unlisted")
    (place / "series").write_text("\n".join(lines) + "\n")
    return [], wanted


VERBS: dict[str, Callable[[Case], None]] = {
    "import": case_import,
    "new": case_new,
    "export": case_export,
    "export --amend": case_amend,
    "apply": case_apply,
    "drop": case_drop,
    "move": case_move,
    "undo": case_undo,
    "rebase --continue": case_continue,
    "resolve": case_continue,
    "build": conserving_builds.case_build,
}


def run_case(world: World, verb: str, seed: str) -> Case:
    """Run one case; its pieces have their states afterwards."""
    case = Case(world, verb, random.Random(f"{verb} {seed}"), world.restore("stack"))
    VERBS[verb](case)
    return case


@dataclass
class Figures:
    """Counts by verb, the cases with a loss, and those that could not be made."""

    cases: Counter[str] = field(default_factory=Counter)
    states: dict[str, Counter[str]] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    losses: list[tuple[str, Case]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add(self, seed: str, case: Case) -> None:
        """Count a case."""
        self.cases[case.verb] += 1
        self.codes[f"{case.verb}: exit {case.code}"] += 1
        self.states.setdefault(case.verb, Counter()).update(state for state, _ in case.states)
        if case.lost:
            self.losses.append((seed, case))

    def table(self) -> str:
        """Return a line a verb."""
        head = f"{'verb':<18} {'cases':>6} {'pieces':>7} " + " ".join(f"{state:>11}" for state in STATES)
        rows = [(verb, self.cases[verb], self.states[verb]) for verb in VERBS if verb in self.states]
        total: Counter[str] = Counter()
        for _, _, counts in rows:
            total.update(counts)
        rows.append(("all", sum(self.cases.values()), total))
        return "\n".join(
            [head, *(f"{v:<18} {n:>6} {c.total():>7} " + " ".join(f"{c[s]:>11}" for s in STATES) for v, n, c in rows)]
        )


def run(folder: Path, seed: int, cases: int, verbs: Iterable[str] = ()) -> Figures:
    """Run so many cases, the verbs in turn."""
    world, figures = World(folder), Figures()
    chosen = list(verbs) or list(VERBS)
    for number in range(cases):
        verb, name = chosen[number % len(chosen)], f"{seed}-{number}"
        try:
            figures.add(name, run_case(world, verb, name))
        except AssertionError as error:
            figures.broken.append(f"--only {name} --verb '{verb}': the case can't be made: {error}")
    return figures


def main() -> int:
    """Run, print the table and each loss; 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--verb", action="append", default=[], choices=list(VERBS))
    parser.add_argument("--only", metavar="SEED-NUMBER", help="run one case, of --verb, and print its output")
    parser.add_argument("--codes", action="store_true", help="print how often each verb ended with which exit code")
    given = parser.parse_args()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as text, pytest.MonkeyPatch.context() as patch:
        seal(patch, Path(text, "home"))
        if given.only:
            case = run_case(World(Path(text)), given.verb[0], given.only)
            print(case.report())
            return int(bool(case.lost))
        figures = run(Path(text), given.seed, given.cases, given.verb)
    print(figures.table())
    if given.codes:
        print("\n".join(f"{key}: {count}" for key, count in sorted(figures.codes.items())))
    for seed, case in figures.losses:
        print(f"\n--only {seed} --verb '{case.verb}'\n{case.report()}")
    print("\n".join(figures.broken))
    return int(bool(figures.losses or figures.broken))


if __name__ == "__main__":
    sys.exit(main())
