"""Replay of shell commands and scripts. Each command runs in a sandboxed copy of the source tree."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from patchq.errors import UserError
from patchq.formats.diff import GITLINK
from patchq.git.objects import blob_id
from patchq.git.repository import Git, copy_tree
from patchq.names import CommitId, TreeId
from patchq.replay._shell import ShellStep, script_steps, steps_of
from patchq.replay._verdicts import is_edit
from patchq.replay.limits import walk_edited
from patchq.replay.outcomes import Account, NotTaken, Reason, StepStatus, short
from patchq.replay.package import read_file, with_lines
from patchq.system import fsio
from patchq.system.sandbox import SOURCE, Limits, Ran, run_isolated

#: Trailer with the command that made a patch.
CODEMOD = "Codemod"
_PATHS = re.compile(r"(?<![\w.$/-])/[\w.+@-]+(?:/[\w.+@-]+)+")


def is_dockerfile(path: Path) -> bool:
    """Return True if a file has the name of a Dockerfile.

    Examples are ``Dockerfile``, ``Dockerfile.x``, ``x.dockerfile`` and ``Containerfile``.
    """
    return bool(re.fullmatch(r"(Dockerfile|Containerfile)([._-].*)?|.*\.(dockerfile|containerfile)", path.name, re.I))


def is_script(path: Path, data: bytes) -> bool:
    """Return True if a file is a script, judged by its first line or its name."""
    return data.startswith(b"#!") or path.suffix in (".sh", ".bash", ".py")


def replay_script(
    store: Git, tip: CommitId, data: bytes, path: Path, say: Callable[[str], None], *, limits: Limits | None = None
) -> list[Account]:
    """Replay the commands of a script; see :func:`_replay`.

    The commands can read the script itself, and those files and folders next to it that the script names.
    """
    steps = script_steps(data, str(path))
    with fsio.temporary_folder() as folder:
        _copy_named(path.resolve(), data.decode("utf-8", "replace"), folder)
        return _replay(store, tip, steps, say, folder, limits=limits, must_edit=False)


def _special_files(folder: str, names: list[str]) -> list[str]:
    """Return the pipes, sockets and devices in a folder, because they can't be copied."""
    special = []
    for name in names:
        mode = Path(folder, name).lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            special.append(name)
    return special


def _copy_named(script: Path, text: str, target: Path) -> None:
    """Copy a script, and those files of its folder that the script names. Commands can read only these copies."""
    found = {script}
    for word in re.findall(r"[\w./+@*?\[\]-]+", text):
        parts = [part for part in word.split("/") if part not in ("", ".")]
        for start in range(len(parts)):
            rest = parts[start:]
            if ".." not in rest and rest[0].strip("*?[]."):
                with suppress(OSError):  # a word that is longer than a name may be
                    found.update(script.parent.glob(re.sub(r"\*+", "*", "/".join(rest))))
    for path in sorted(found):
        copy = target / path.relative_to(script.parent)
        if copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy, symlinks=True, ignore=_special_files)
        elif path.is_file():
            shutil.copy2(path, copy)


def replay_commands(
    store: Git, tip: CommitId, commands: Sequence[str], say: Callable[[str], None], *, limits: Limits | None = None
) -> list[Account]:
    """Replay shell commands; see :func:`_replay`. Each command must change a file."""
    steps = []
    for number, text in enumerate(commands, 1):
        steps += steps_of(text, f"--run {number}" if len(commands) > 1 else "--run")
    return _replay(store, tip, steps, say, None, limits=limits, must_edit=True)


def run_command(store: Git, tip: CommitId, command: str) -> TreeId:
    """Run a shell command in a sandboxed copy of the tree of ``tip``; return the resulting tree.

    :raises NotTaken: if the command fails or changes nothing.
    :raises UserError: if there is no sandbox, or the command exceeds its limits.
    """
    step = ShellStep(text=command, where=CODEMOD)
    (account,) = _replay(store, tip, [step], lambda text: None, None, limits=None, must_edit=True)
    if not account.trees:
        raise NotTaken([account])
    return account.trees[1]


def _replay(
    store: Git,
    tip: CommitId,
    steps: Sequence[ShellStep],
    say: Callable[[str], None],
    context: Path | None,
    *,
    limits: Limits | None,
    must_edit: bool,
) -> list[Account]:
    """Run each command in a copy of the tree of ``tip``, and return its outcome.

    Each command sees the changes of earlier ones. All commands are printed before the first one
    runs.

    :param context: folder that the commands can read.
    :param limits: limits of each command.
    :raises UserError: if there is no command or no sandbox, or a command exceeds its limits.
    """
    if not steps:
        raise UserError("no command edits a file of the tree", hint="give a command that edits a file: --run 'COMMAND'")
    tree = store.tree_of([tip])[0]
    moved = find_moves(steps, store.list_tree(tip))
    for old, new in moved.items():
        say(f"{old} is replaced by {new + ' in the tree' if new else 'the tree'}")
    for step in steps:
        say(f"{step.where}: {short(step.text)}")
    found = []
    limits = limits or Limits()
    with fsio.temporary_folder() as folder:
        copy = folder / "tree"
        copy_tree(store, tip, copy)
        for step in steps:
            account = Account(
                where=step.where,
                text=step.text,
                status=StepStatus.UNRELATED,
                comment=step.comment,
                alone=not step.setup and step.program == ("bash",),
            )
            ran = _run(step, copy, moved, context, limits)
            check_limits(account, ran, limits)
            after = snapshot(store, copy, tree, step.where)
            found.append(_judge(account, ran, (tree, after), must_edit=must_edit))
            if ran.code and after != tree:
                # Changes of a failed command must not become part of the next patch.
                fsio.remove_folder(copy)
                copy_tree(store, tree, copy)
            elif not ran.code:
                tree = after
    return found


def _judge(account: Account, ran: Ran, trees: tuple[TreeId, TreeId], *, must_edit: bool) -> Account:
    if ran.code:
        return _with(account, StepStatus.REFUSED, Reason.FAILED, ran)
    if trees[0] != trees[1]:
        return replace(account, status=StepStatus.TAKEN, trees=trees)
    if must_edit or is_edit(account.text):
        return _with(account, StepStatus.REFUSED, Reason.CHANGES_NOTHING, ran)
    return account


def _with(account: Account, status: StepStatus, reason: Reason, ran: Ran) -> Account:
    return replace(account, status=status, reason=reason, code=ran.code, message=ran.message)


def _run(step: ShellStep, copy: Path, moved: dict[str, str], context: Path | None, limits: Limits) -> Ran:
    script = "\n".join([*(_inside(line, moved) for line in step.setup), _inside(step.text, moved)]) + "\n"
    if step.program == ("bash",):
        argv = ["bash", "-s"]
    else:
        argv = [*step.program, "-"]
    return run_isolated(argv, copy, context=context, data=script.encode(), limits=limits)


def check_limits(account: Account, ran: Ran, limits: Limits) -> None:
    """Check that a command stayed within its limits.

    :raises UserError: if it exceeded one.
    """
    if ran.over:
        raise UserError(
            f"{account.where}: `{short(account.text)}` was stopped: the limit is {limits.of(ran.over)}",
            hint="see the limits in docs/reference/formats.md; nothing was adopted: make the edit in the worktree, and "
            "run `patchq new`",
        )


def snapshot(store: Git, folder: Path, before: TreeId, where: str) -> TreeId:
    """Store a folder's files in git, byte for byte, and return their tree.

    git's attributes and ignore rules have no effect.

    :param where: command that wrote the files.
    :raises UserError: if folders are nested too deeply.
    """
    old = store.list_tree(before)
    there: set[bytes] = set()
    lines = []
    for key in walk_edited(folder, where):
        mode, data = read_file(folder / os.fsdecode(key))
        if not mode:
            continue
        there.add(key)
        blob = blob_id(data)
        if key not in old or (old[key].mode, old[key].blob) != (mode, blob):
            store.run("hash-object", "-w", "--stdin", data=data)
            lines.append(b"%s %s\t%s\0" % (mode, blob.encode(), key))
    gone = []
    for path, entry in old.items():
        if path not in there and entry.mode != GITLINK:
            gone.append(path)
    zero = b"0" * 40
    return with_lines(store, before, [*(b"0 %s\t%s\0" % (zero, path) for path in gone), *lines])


def find_moves(steps: Sequence[ShellStep], files: Collection[bytes]) -> dict[str, str]:
    """Return the absolute folders that commands name, each with the corresponding folder of the tree.

    >>> step = ShellStep(text="sed -i s/a/b/ /usr/lib/python3/dist-packages/pkg/x.py", where="it")
    >>> find_moves([step], [b"src/pkg/x.py", b"y"])
    {'/usr/lib/python3/dist-packages': 'src'}
    """
    by_name: dict[str, list[list[str]]] = {}
    for path in files:
        parts = path.decode("utf-8", "replace").split("/")
        by_name.setdefault(parts[-1], []).append(parts)
    found: dict[str, str] = {}
    words = []
    for s in steps:
        for text in (s.text, *s.setup):
            words += _PATHS.findall(text)
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
    """Return a command in which absolute folders are replaced by the folders of the copy."""
    for old in sorted(moved, key=len, reverse=True):
        new = f"{SOURCE}/{moved[old]}".rstrip("/")
        text = re.sub(rf"(?<![\w.$/-]){re.escape(old)}(?![\w.-])", new, text)
    return text
