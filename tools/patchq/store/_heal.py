"""Repair of a store in which objects are missing or damaged.

All objects that patchq writes to the store can be restored with the same ids: bases from their sources, and
commits of patches from the patch files. Damaged files are moved to ``.patchq/damaged``, and the objects that
can still be read from them are put back into the store. Only commits that the user made in a worktree and
hasn't exported exist nowhere else. If such commits are lost, patchq reports this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from patchq.errors import PatchqError, SourceError
from patchq.formats.lock import Pin
from patchq.git.worktree import branch_of
from patchq.names import CommitId, counted, sh
from patchq.project.project import Project
from patchq.project.stack import load_stack, load_state
from patchq.sources.bases import Base
from patchq.stacks.apply import plan
from patchq.system import fsio, runner

_LOOSE = re.compile(rb"\bobjects/[0-9a-f]{2}/[0-9a-f]{38}")
_DANGLING = re.compile(r"^dangling commit ([0-9a-f]{40})$", re.MULTILINE)

#: git accepts a ref without a line end, and other programs write such refs.
_REF = re.compile(rb"[0-9a-f]{40}\s*|ref: *refs/[^\0\n]+\n?")
_PACKED = re.compile(rb"(?:#[^\0\n]*\n|\^?[0-9a-f]{40}(?: refs/[^\0\n]+)?\n)*")
_SHALLOW = re.compile(rb"(?:[0-9a-f]{40}\n)*")


def repair_objects(project: Project, bases: Sequence[Base], refetch: Callable[[Pin], Base]) -> list[str]:
    """Restore missing objects of ``bases`` and of the applied branches. Return messages for the user.

    :param refetch: function that fetches a pin from its source, even if the store seems to contain it.
    :raises SourceError: if an object exists nowhere else, or if no source can provide it.
    """
    store = project.store
    tips = _tips(project)
    if store.is_whole([*(base.commit for base in bases), *tips.values()]):
        return []
    messages = _set_aside(project)
    for base in bases:
        if not store.is_whole([base.commit]):
            refetch(base.pin)
            messages.append(f"{base.pin.upstream} {base.pin.ref}: fetched again from its {base.source}")
    for upstream, tip in tips.items():
        if not store.is_whole([tip]):
            messages.append(_replay(project, upstream))
    # After all replays: nested upstreams share objects.
    lost = []
    for upstream, tip in tips.items():
        if not store.is_whole([tip]):
            lost.append(upstream)
    if lost:
        tree = project.layout.tree(lost[0])
        raise SourceError(
            f"the store has lost commits of {', '.join(lost)} that are in no patch file; "
            "the files in the worktree are unchanged",
            hint=f"copy what you need out of {tree}, move .patchq away and run `patchq apply`",
        )
    return messages


def repair_records(project: Project) -> list[str]:
    """Repair refs, HEADs and indexes that a power cut emptied. Return messages for the user.

    Unreadable refs are moved to ``.patchq/damaged``. The next fetch restores the refs of bases. Branches are
    restored from the state that ``apply`` recorded. A worktree's index is rebuilt from its commit, and the
    worktree's files aren't changed.
    """
    if not (project.layout.store / "objects").is_dir():
        return []
    damaged = _set_aside_records(project)
    messages = [f"{name} is unreadable; its old contents are in {at}" for name, at in damaged.items()]
    for upstream in sorted(project.lock.upstreams):
        if branch_of(upstream) in damaged:
            messages += _restore_branch(project, upstream)
    trees = project.layout.tree("x").parent
    if trees.is_dir():
        for tree in sorted(trees.iterdir()):
            messages += _repair_worktree(project, tree.name)
    return messages


def _set_aside_records(project: Project) -> dict[str, Path]:
    """Move unreadable refs out of the store. Return their names and new paths."""
    store = project.layout.store
    damaged = {}
    for path, pattern in _records(store):
        data = fsio.read_or_none(path)
        if data is None or pattern.fullmatch(data):
            continue
        name = path.relative_to(store)
        target = project.layout.private / "damaged" / name
        fsio.make_folder(target.parent)
        fsio.rename(path, target)
        damaged[name.as_posix()] = target
    if not (store / "HEAD").exists():
        fsio.write_atomic(store / "HEAD", b"ref: refs/heads/none\n")
    return damaged


def _records(store: Path) -> Iterator[tuple[Path, re.Pattern[bytes]]]:
    """Yield the files that contain refs, each with a pattern for its contents."""
    yield store / "HEAD", _REF
    yield store / "packed-refs", _PACKED
    yield store / "shallow", _SHALLOW
    for path in sorted((store / "refs").rglob("*")):
        # git's lock of a ref is empty until git writes it.
        if path.is_file() and path.suffix != ".lock":
            yield path, _REF


def _restore_branch(project: Project, upstream: str) -> list[str]:
    """Set a branch to the tip that ``apply`` recorded. Report commits of the user that may be lost by this."""
    state = load_state(project.layout, upstream)
    if not state:
        return []
    store = project.store
    store.run("update-ref", branch_of(upstream), state.tip)
    argv = ["fsck", "--connectivity-only", "--no-reflogs", "--no-progress", "--dangling"]
    tree = sh(project.layout.tree(upstream))
    messages = []
    for commit in _DANGLING.findall(store.ask(*argv).stdout.decode()):
        if store.ask("merge-base", "--is-ancestor", state.tip, commit).returncode == 0:
            messages.append(
                f"{upstream}: the branch is reset to the stack's last patch; commit {commit} "
                "followed that patch, and is now in no ref. If this commit is yours, restore it with "
                f"`git -C {tree} reset --soft {commit}`"
            )
    return messages


def _repair_worktree(project: Project, name: str) -> list[str]:
    """Repair git's files about a worktree, and the worktree's index. Return messages for the user."""
    worktree = project.worktree(name)
    worktree.mend()
    aside = project.layout.private / "damaged" / "worktrees" / name / "index"
    if not worktree.exists or not worktree.mend_index(aside):
        return []
    return [
        f"{name}: the index was damaged and is rebuilt from its commit; staged changes are "
        f"unstaged now, and the old index is {aside}"
    ]


def _tips(project: Project) -> dict[str, CommitId]:
    """Return the tip of each upstream's branch. A branch may contain commits that aren't exported yet."""
    refs = project.store.refs("refs/heads")
    tips = {}
    for name in project.lock.upstreams:
        tip = refs.get(branch_of(name))
        if tip:
            tips[name] = CommitId(tip)
    return tips


def _replay(project: Project, upstream: str) -> str:
    """Write the commits of a stack again from its patch files. Return a message for the user."""
    state = load_state(project.layout, upstream)
    pin = None
    if state:
        pin = project.lock.upstreams[upstream].pins.get(state.ref)
    if not state or not pin:
        return f"{upstream}: the lock has no pin of the applied release"
    stack = load_stack(project.layout, pin)
    applied = tuple(record.applied.name for record in state.patches)
    if stack.names[: len(applied)] != applied:
        return f"{upstream}: the stack has changed since it was applied"
    base = Base(pin, state.base, state.source)
    try:
        plan(project, stack, base, None, state.set_name, count=len(applied))
    except PatchqError as error:
        return f"{upstream}: the stack's patches can't be replayed: {error.message}"
    return f"{upstream}: the commits of the stack's patches are restored"


def _set_aside(project: Project) -> list[str]:
    """Move damaged packs and objects out of the store, and put their readable objects back."""
    store = project.store
    aside = project.layout.private / "damaged"
    damaged = [*_damaged_packs(project), *_damaged_objects(project)]
    for path in damaged:
        target = aside / path.relative_to(store.folder / "objects")
        target.parent.mkdir(parents=True, exist_ok=True)
        fsio.rename(path, target)
        if path.suffix == ".pack":
            # -r: continue after unreadable objects.
            store.ask("unpack-objects", "-r", "-q", data=target.read_bytes())
    if not damaged:
        return []
    return [f"{counted(len(damaged), 'damaged file')} of the store moved to {aside}"]


def _damaged_packs(project: Project) -> list[Path]:
    """Return the files of packs that git can't verify."""
    store = project.store
    packs = set()
    for path in (store.folder / "objects" / "pack").glob("pack-*"):
        if path.suffix in (".pack", ".idx"):
            packs.add(path.with_suffix(""))
    damaged = []
    for pack in sorted(packs):
        try:
            store.run("verify-pack", str(pack.with_suffix(".idx")))
        except runner.CommandError:
            paths = [pack.with_suffix(suffix) for suffix in (".pack", ".idx", ".rev")]
            for path in paths:
                if path.exists():
                    damaged.append(path)
    return damaged


def _damaged_objects(project: Project) -> list[Path]:
    """Return the loose objects that git can't read."""
    store = project.store
    checked = store.ask("fsck", "--full", "--no-dangling", "--no-progress")
    names = set(_LOOSE.findall(checked.stderr + checked.stdout))
    paths = sorted(store.folder / name.decode() for name in names)
    objects: list[Path] = []
    for path in paths:
        if path.exists():
            objects.append(path)
    return objects
