"""A store that lost objects, or holds damaged ones, made whole again.

All that patchq puts into the store can be had again: bases from their sources, patches' commits
from the patch files, with the same ids. What is damaged is moved to ``.patchq/damaged`` and
whatever can still be read of it is taken back. Commits that a person made in a worktree and has
not exported are in no other place: if they are lost, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from patchq.errors import PatchqError, SourceError
from patchq.formats.lock import Pin
from patchq.git.worktree import branch_of
from patchq.names import CommitId, sh
from patchq.project.project import Project
from patchq.project.stack import load_stack, load_state
from patchq.sources.bases import Base
from patchq.stacks.apply import plan
from patchq.system import fsio, runner

_LOOSE = re.compile(rb"\bobjects/[0-9a-f]{2}/[0-9a-f]{38}")


def heal(project: Project, bases: Sequence[Base], again: Callable[[Pin], Base]) -> list[str]:
    """Mend the store if ``bases`` or what is applied lack something; returns what was done, in words.

    :param again: brings a pin from its source once more, whatever the store has of it.
    :raises SourceError: if something is lost that has no other place, or no source gives it.
    """
    store = project.store
    tips = _tips(project)
    if store.is_whole([*(b.commit for b in bases), *tips.values()]):
        return []
    done = _set_aside(project)
    for base in bases:
        if not store.is_whole([base.commit]):
            again(base.pin)
            done.append(f"{base.pin.upstream} {base.pin.ref}: brought again from its {base.source}")
    for upstream, tip in tips.items():
        if not store.is_whole([tip]):
            done.append(_replay(project, upstream))
    lost = [upstream for upstream, tip in tips.items() if not store.is_whole([tip])]
    if lost:
        raise SourceError(
            f"the store has lost commits of {', '.join(lost)} that are in no patch file; "
            "the files in the worktree are as they were",
            hint=f"copy what you need out of {project.layout.tree(lost[0])}, move .patchq away and run `patchq apply`",
        )
    return done


def mend_records(project: Project) -> list[str]:
    """Make refs, HEADs and indexes whole that a power cut has emptied or zeroed; returns what was done, in words.

    A ref that can't be read is put aside: a base's is made again by what fetches it, a branch's from what ``apply``
    remembers. An index is made again from its commit; the worktree's files stay as they are.
    """
    store, done = project.layout.store, []
    if not (store / "objects").is_dir():
        return []
    for path, pattern in _records(store):
        data = fsio.read_or_none(path)
        if data is not None and not pattern.fullmatch(data):
            name = path.relative_to(store)
            target = project.layout.private / "damaged" / name
            fsio.make_folder(target.parent)
            fsio.rename(path, target)
            done.append(f"{name} could not be read; what it held is in {target}")
    if not (store / "HEAD").exists():
        fsio.write_atomic(store / "HEAD", b"ref: refs/heads/none\n")
    for upstream in sorted(project.lock.upstreams):
        lost = any(line.startswith(f"refs/heads/{upstream} ") for line in done)
        if lost and (state := load_state(project.layout, upstream)):
            project.store.run("update-ref", branch_of(upstream), state.tip)
            done += [f"{upstream}: {words}" for words in _on_top(project, upstream, CommitId(state.tip))]
    trees = project.layout.tree("x").parent
    for tree in sorted(trees.iterdir()) if trees.is_dir() else ():
        worktree = project.worktree(tree.name)
        worktree.mend()
        aside = project.layout.private / "damaged" / "worktrees" / tree.name / "index"
        if worktree.exists and worktree.mend_index(aside):
            done.append(
                f"{tree.name}: the index was made again from its commit; what was staged is as the files have it, "
                f"the old index is {aside}"
            )
    return done


def _on_top(project: Project, upstream: str, tip: CommitId) -> list[str]:
    """What a branch that is set back to the stack may have lost: commits on top of it that no ref has."""
    store = project.store
    found = store.ask("fsck", "--connectivity-only", "--no-reflogs", "--no-progress", "--dangling").stdout.decode()
    ids = re.findall(r"^dangling commit ([0-9a-f]{40})$", found, re.M)
    mine = [i for i in ids if not store.ask("merge-base", "--is-ancestor", tip, i).returncode]
    tree = project.layout.tree(upstream)
    return [
        f"the branch is at the stack's last patch; commit {i} on top of it, which nothing has, may be yours: "
        f"`git -C {sh(tree)} reset --soft {i}`"
        for i in mine
    ]


#: git takes a ref without a line end too; other programs write such.
_REF = re.compile(rb"[0-9a-f]{40}\s*|ref: *refs/[^\0\n]+\n?")
_PACKED = re.compile(rb"(?:#[^\0\n]*\n|\^?[0-9a-f]{40}(?: refs/[^\0\n]+)?\n)*")


def _records(store: Path) -> Iterator[tuple[Path, re.Pattern[bytes]]]:
    yield store / "HEAD", _REF
    yield store / "packed-refs", _PACKED
    yield store / "shallow", re.compile(rb"(?:[0-9a-f]{40}\n)*")
    refs = (path for path in sorted((store / "refs").rglob("*")) if path.is_file())
    yield from ((path, _REF) for path in refs if path.suffix != ".lock")  # a lock is empty while git is at work


def _tips(project: Project) -> dict[str, CommitId]:
    """What is checked out of each upstream: the branch, which may be ahead of the stack."""
    refs = project.store.refs("refs/heads")
    found = {name: refs.get(branch_of(name)) for name in project.lock.upstreams}
    return {name: CommitId(tip) for name, tip in found.items() if tip}


def _replay(project: Project, upstream: str) -> str:
    """Write a stack's commits once more, from its patch files."""
    state = load_state(project.layout, upstream)
    pin = project.lock.upstreams[upstream].pins.get(state.ref) if state else None
    if not state or not pin:
        return f"{upstream}: not applied as the lock has it"
    stack = load_stack(project.layout, pin)
    applied = tuple(p.applied.name for p in state.patches)
    if stack.names[: len(applied)] != applied:
        return f"{upstream}: its stack was changed since it was applied"
    try:
        plan(project, stack, Base(pin, state.base, state.source), None, state.set_name, count=len(applied))
    except PatchqError as error:
        return f"{upstream}: its patches can't be replayed: {error.message}"
    return f"{upstream}: its patches' commits were written again"


def _set_aside(project: Project) -> list[str]:
    """Move damaged packs and objects out of the store, and take back what can be read of them."""
    store, aside = project.store, project.layout.private / "damaged"
    packs = store.folder / "objects" / "pack"
    bad: list[Path] = []
    for pack in sorted({path.with_suffix("") for path in packs.glob("pack-*") if path.suffix in (".pack", ".idx")}):
        try:
            store.run("verify-pack", str(pack.with_suffix(".idx")))
        except runner.CommandError:
            bad += [path for suffix in (".pack", ".idx", ".rev") if (path := pack.with_suffix(suffix)).exists()]
    checked = store.ask("fsck", "--full", "--no-dangling", "--no-progress")
    loose = {store.folder / found.decode() for found in _LOOSE.findall(checked.stderr + checked.stdout)}
    bad += sorted(path for path in loose if path.exists())
    for path in bad:
        target = aside / path.relative_to(store.folder / "objects")
        target.parent.mkdir(parents=True, exist_ok=True)
        fsio.rename(path, target)
        if path.suffix == ".pack":
            # Reads on past what it can't read; what it can is written as loose objects.
            store.ask("unpack-objects", "-r", "-q", data=target.read_bytes())
    return [f"{len(bad)} damaged files of the store are now in {aside}"] if bad else []
