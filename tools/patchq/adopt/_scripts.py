"""Import of commands: each runs in a sandboxed copy of the tree, and its changes become a patch."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from patchq.adopt._shell import ShellStep
from patchq.adopt.found import Found
from patchq.adopt.limits import read_edited, walk_edited
from patchq.errors import UserError
from patchq.formats.diff import GITLINK
from patchq.git.objects import blob_id
from patchq.git.repository import Git, copy_tree
from patchq.names import CommitId, TreeId, show_path
from patchq.stacks.export import slug
from patchq.system import fsio
from patchq.system.sandbox import SOURCE, Limits, run_isolated

_PATHS = re.compile(r"(?<![\w.$/-])/[\w.+@-]+(?:/[\w.+@-]+)+")


class StepFailed(UserError):
    """Error for a command that failed or changed nothing."""


def run_steps(
    store: Git,
    tip: CommitId,
    steps: Sequence[ShellStep],
    say: Callable[[str], None],
    beside: Path | None = None,
    *,
    limits: Limits | None = None,
) -> list[Found]:
    """Run each command in a copy of the tree of ``tip``, and return its changes as a patch.

    Each command sees the changes of earlier ones. All commands are printed before the first one
    runs. If a command fails or changes nothing, its patch has a problem.

    :param beside: folder that the commands can read.
    :param limits: limits of each command.
    :raises UserError: if there is no command or no sandbox, or a command exceeds its limits.
    """
    if not steps:
        raise UserError("no command in it edits a file of the tree", hint="--run 'COMMAND' names one")
    tree = store.tree_of([tip])[0]
    files = store.list_tree(tip)
    moved = find_moves(steps, files)
    for old, new in moved.items():
        say(f"{old} is read as {new + ' in the tree' if new else 'the tree'}")
    for step in steps:
        say(f"{step.where}: {_short(step.text)}")
    found = []
    with fsio.temporary_folder() as folder:
        copy = folder / "tree"
        copy_tree(store, tip, copy)
        for step in steps:
            try:
                after = _run(store, step, copy, moved, beside, tree, limits or Limits())
            except StepFailed as error:
                found.append(Found(name=slug(step.where), where=step.where, author=None, message="", problem=error))
                # Changes of a failed command must not become part of the next patch.
                tree = snapshot(store, copy, tree, step.where)
                continue
            names = [show_path(c.path) for c in store.changes(tree, after)]
            found.append(_found(step, names, tree, after))
            tree = after
    return found


def _short(text: str) -> str:
    first, *rest = text.strip().split("\n")
    return first + (f" … ({len(rest) + 1} lines)" if rest else "")


def _run(
    store: Git, step: ShellStep, copy: Path, moved: dict[str, str], beside: Path | None, before: TreeId, limits: Limits
) -> TreeId:
    script = "\n".join([*(_inside(s, moved) for s in step.setup), _inside(step.text, moved)]) + "\n"
    ran = run_isolated(
        [*step.program, "-"] if step.program != ("bash",) else ["bash", "-s"],
        copy,
        beside=beside,
        data=script.encode(),
        limits=limits,
    )
    if ran.over:
        raise UserError(
            f"{step.where}: `{_short(step.text)}` was stopped: {limits.of(ran.over)} are the most",
            hint="see the limits in docs/reference/formats.md; nothing was adopted: make the edit in the worktree, and "
            "`patchq new`",
        )
    if ran.code:
        raise StepFailed(
            f"{step.where}: `{_short(step.text)}` ended with {ran.code}: {ran.said or 'it said nothing'}",
            hint="it is run in a copy of the pinned tree, without a network; nothing was adopted",
        )
    after = snapshot(store, copy, before, step.where)
    if after == before:
        said = f" (it said: {ran.said})" if ran.said else ""
        raise StepFailed(
            f"{step.where}: `{_short(step.text)}` changes nothing{said}",
            hint="nothing was adopted; what it looks for is gone: find out what became of it, or leave it out",
        )
    return after


def snapshot(store: Git, folder: Path, before: TreeId, where: str) -> TreeId:
    """Return the tree of a folder's files, byte for byte, without git attributes or ignore rules.

    :param where: command that wrote the files.
    :raises UserError: if folders are nested too deeply.
    """
    old = store.list_tree(before)
    there: set[bytes] = set()
    lines = []
    for key in walk_edited(folder, where):
        path = os.path.join(os.fsencode(folder), key)
        about = os.lstat(path).st_mode
        if stat.S_ISLNK(about):
            mode, data = b"120000", os.readlink(path)
        elif stat.S_ISREG(about):
            mode, data = b"100755" if about & 0o100 else b"100644", read_edited(Path(os.fsdecode(path)))
        else:
            continue
        there.add(key)
        blob = blob_id(data)
        if key not in old or (old[key].mode, old[key].blob) != (mode, blob):
            store.run("hash-object", "-w", "--stdin", data=data)
            lines.append(b"%s %s\t%s\0" % (mode, blob.encode(), key))
    zero = b"0" * 40
    gone = [path for path, entry in old.items() if path not in there and entry.mode != GITLINK]
    lines = [*(b"0 %s\t%s\0" % (zero, path) for path in gone), *lines]
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        env = {"GIT_INDEX_FILE": str(Path(text) / "index")}
        store.run("read-tree", before, env=env)
        store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
        return TreeId(store.run("write-tree", env=env).decode().strip())


def _found(step: ShellStep, names: Sequence[str], before: TreeId, after: TreeId) -> Found:
    stem = Path(names[0]).stem
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    subject = step.comment.strip().rstrip(".") or f"Edit {names[0]}{more}"
    command = "\n".join(f"    {line}" for line in step.text.strip().split("\n")[:40])
    name = slug(step.comment) if step.comment else f"edit-{slug(stem)}"
    message = f"{subject}\n\nWas done by a command:\n\n{command}\n"
    return Found(name=name, where=step.where, author=None, message=message, trees=(before, after), origin=step.where)


def find_moves(steps: Sequence[ShellStep], files: Collection[bytes]) -> dict[str, str]:
    """Map folders of absolute paths in commands to folders of the tree.

    >>> step = ShellStep(text="sed -i s/a/b/ /usr/lib/python3/dist-packages/pkg/x.py", where="it")
    >>> find_moves([step], [b"src/pkg/x.py", b"y"])
    {'/usr/lib/python3/dist-packages': 'src'}
    """
    by_name: dict[str, list[list[str]]] = {}
    for path in files:
        parts = path.decode("utf-8", "replace").split("/")
        by_name.setdefault(parts[-1], []).append(parts)
    found: dict[str, str] = {}
    words = [w for s in steps for text in (s.text, *s.setup) for w in _PATHS.findall(text)]
    for word in sorted(words, key=len):
        if word.startswith((SOURCE + "/", "/context/", "/usr/bin/", "/bin/")) or any(
            word.startswith(f + "/") for f in found
        ):
            continue
        ours = word[1:].split("/")
        best: tuple[int, list[str]] = (0, [])
        for theirs in by_name.get(ours[-1], []):
            same = 0
            while same < min(len(ours), len(theirs)) and ours[-same - 1] == theirs[-same - 1]:
                same += 1
            if same > best[0]:
                best = (same, theirs)
        same, theirs = best
        if same and same < len(ours) and (same > 1 or len(theirs) == 1):
            found["/" + "/".join(ours[:-same])] = "/".join(theirs[:-same])
    return found


def _inside(text: str, moved: dict[str, str]) -> str:
    """Return a command with its folders replaced by those of the copy."""
    for old in sorted(moved, key=len, reverse=True):
        new = f"{SOURCE}/{moved[old]}".rstrip("/")
        text = re.sub(rf"(?<![\w.$/-]){re.escape(old)}(?![\w.-])", new, text)
    return text
