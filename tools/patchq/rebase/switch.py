"""Name of the set that a rebase makes, and removal of the sets that this set replaces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from patchq.errors import UserError
from patchq.formats import relock
from patchq.formats.ledger import CARRIED, Attempt
from patchq.formats.lock import Lock, Pin
from patchq.formats.lock import parse as parse_lock
from patchq.git import person
from patchq.names import sh
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.refs import older_first
from patchq.project.stack import load_stack, read_ledger
from patchq.rebase.state import load, upstreams_under_way
from patchq.records import dataclass
from patchq.system import project_files
from patchq.system.paths import LOCK_NAME, check_name, ref_to_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """Result of making a set the default.

    :ivar before: previous default set.
    :ivar sets: replaced sets, removed from the lock.
    :ivar pins: removed pins, which only the replaced sets used.
    :ivar files: removed files of the pins' stacks. They are still in git's history.
    """

    set_name: str
    before: str
    sets: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def name_for(lock: Lock, set_name: str, upstream: str, ref: str) -> str:
    """Return the name for a copy of a set with ``upstream`` at another ref.

    If the name already contains the upstream's old ref, the new ref replaces it: ``gb10-vllm-v1`` becomes
    ``gb10-vllm-v2``. So names don't grow with every rebase.
    """
    new = _part(upstream, ref)
    old = lock.sets[set_name].get(upstream)
    at = None
    if old:
        at = _find_part(set_name, _part(upstream, old))
    if at:
        return set_name[: at.start()] + new + set_name[at.end() :]
    return set_name + new


def use(project: Project, set_name: str, *, name: str = "", keep: bool = False, replaces: Sequence[str] = ()) -> Used:
    """Make a set the default, and remove the sets that it replaces.

    A set replaces the older sets from which it was rebased. patchq identifies these sets by their names and the ledger.
    The pins and stacks of these sets are removed unless another set uses them. The ledger and the recorded resolutions
    are kept.

    :param name: new name of the set.
    :param keep: remove nothing.
    :param replaces: more sets to remove, regardless of their names.
    :raises UserError: if a file to remove isn't in git's history, if a rebase of an affected set is in
        progress, or if the name is taken.
    """
    with project.locked("use"):
        root = project.layout.root
        lock, data = project.lock, project_files.read(root, project.layout.lock) or b""
        for wanted in (set_name, *replaces):
            lock.pins_of(wanted)
        gone: list[str] = []
        unsure: list[str] = []
        if not keep:
            gone, unsure = _replaced(project, lock, set_name, replaces)
        if name:
            called = check_name(name, "a set")
        else:
            called = set_name
        if called != set_name and called in lock.sets and called not in gone:
            raise UserError(f"a set {called} already exists", hint="give another name with --as")
        _refuse_under_way(project, [*gone, *([set_name] if called != set_name else [])])
        pins = _unused_pins(lock, gone)
        change = Change(verb="use", summary=f"use {called}")
        files = _stack_files(project, pins)
        _refuse_unkept(project, lock, gone, pins, files)
        change.files = dict.fromkeys(files, None)
        change.files[LOCK_NAME] = _rewrite(lock, data, set_name, called, gone, pins)
        parse_lock(change.files[LOCK_NAME] or b"")
        project.journal.perform(change)
        for pin in pins:
            with suppress(OSError):  # the folder has other files
                project.layout.stack(pin.upstream, pin.ref).rmdir()
        project.__dict__.pop("lock", None)
        heir = _environments(lock, set_name, gone)[0]
        notes = [f"kept {s}: `patchq use {sh(called)} --replaces {sh(s)}` removes it" for s in unsure]
        if unsure:
            notes.insert(0, f"the ledger doesn't show that {called} was rebased from {' or '.join(unsure)}")
        if heir and heir != called:
            notes += [f"{called} takes over the container settings of {heir}"]
        names = tuple(f"{p.upstream} {p.ref}" for p in pins)
        return Used(
            set_name=called,
            before=lock.default_set,
            sets=tuple(gone),
            pins=names,
            files=tuple(files),
            notes=tuple(notes),
        )


def _replaced(project: Project, lock: Lock, set_name: str, replaces: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the sets that ``set_name`` replaces, and other sets that it possibly replaces.

    The ledger records the refs of a rebase, but not its set. So a set is certainly replaced only if its name and its
    refs both indicate this.
    """
    mine = lock.sets[set_name]
    origins = {u: _origins(read_ledger(project.layout, u).attempts, ref) for u, ref in mine.items()}
    gone, named, carried = [], [], []
    for s, refs in lock.sets.items():
        if s == set_name:
            continue
        older = _older(lock, s, set_name)
        recorded = refs.keys() == mine.keys() and all(ref in origins[u] for u, ref in refs.items())
        if s in replaces or (older and recorded):
            gone.append(s)
        elif older:
            named.append(s)
        elif recorded and refs != mine:
            carried.append(s)
    if not named:
        carried = []  # the name alone shows the origin
    return gone, named + carried


def _origins(attempts: Sequence[Attempt], ref: str) -> set[str]:
    """Return ``ref`` and all refs from which rebases carried patches to it, directly or indirectly."""
    found, left = {ref}, [ref]
    while left:
        onto = left.pop()
        new = {a.from_ref for a in attempts if a.onto == onto and a.outcome in CARRIED} - found
        found |= new
        left += new
    return found


def _unused_pins(lock: Lock, gone: Sequence[str]) -> list[Pin]:
    """Return the pins that no remaining set uses."""
    used: list[Pin] = []
    for name in lock.sets.keys() - gone:
        used += lock.pins_of(name)
    pins: list[Pin] = []
    for name in gone:
        for pin in lock.pins_of(name):
            if pin not in used and pin not in pins:
                pins.append(pin)
    return pins


def _rewrite(lock: Lock, data: bytes, set_name: str, called: str, gone: Sequence[str], pins: Sequence[Pin]) -> bytes:
    heir, others = _environments(lock, set_name, gone)
    data = relock.with_default(data, called)
    tables: list[tuple[str, ...]] = []
    for name in gone:
        tables.append(("sets", name))
        # The mismatches were accepted for the removed pins only.
        if name in lock.mismatches:
            tables.append(("mismatches", name))
    for pin in pins:
        tables.append(("upstreams", pin.upstream, "pins", pin.ref))
    for name in others:
        tables.append(("environments", name))
    data = relock.without(data, tables)
    for table, known in (("sets", lock.sets), ("environments", lock.environments), ("mismatches", lock.mismatches)):
        if called != set_name and set_name in known:
            data = relock.renamed(data, (table, set_name), called)
    if heir and heir != called:
        data = relock.renamed(data, ("environments", heir), called)
    return data


def _environments(lock: Lock, set_name: str, gone: Sequence[str]) -> tuple[str, list[str]]:
    """Return the removed set whose container settings the new default set inherits, and the other removed sets.

    Removed sets without container settings are ignored. The first value is empty if the new default set has
    container settings itself, or if no removed set has any.
    """
    having = sorted((s for s in gone if s in lock.environments), key=lambda s: s != lock.default_set)
    if set_name in lock.environments or not having:
        return ("", having)
    return (having[0], having[1:])


def _part(upstream: str, ref: str) -> str:
    return f"-{upstream}-{ref_to_folder(ref).replace('%', '-')}"


def _find_part(set_name: str, part: str) -> re.Match[str] | None:
    return re.search(re.escape(part) + "(?=-|$)", set_name)


def _root(lock: Lock, set_name: str) -> str:
    """Return a set's name without the parts that rebases have added to it."""
    root = set_name
    for upstream, ref in lock.sets[set_name].items():
        if at := _find_part(root, _part(upstream, ref)):
            root = root[: at.start()] + root[at.end() :]
    return root


def _older(lock: Lock, other: str, set_name: str) -> bool:
    """Return whether ``other`` has the same root name as ``set_name``, and none of its refs is newer."""
    mine = {pin.upstream: pin for pin in lock.pins_of(set_name)}
    theirs = {pin.upstream: pin for pin in lock.pins_of(other)}
    if _root(lock, other) != _root(lock, set_name) or mine.keys() != theirs.keys():
        return False
    return all(pin == mine[u] or older_first([mine[u], pin])[0] == pin for u, pin in theirs.items())


def _refuse_under_way(project: Project, sets: Sequence[str]) -> None:
    for upstream in upstreams_under_way(project):
        progress = load(project, upstream)
        if progress.set_name in sets or progress.new_set in sets:
            raise UserError(
                f"a rebase of {upstream} from the set {progress.set_name} is under way",
                hint=f"first run `patchq rebase {upstream} --continue` or `--abort`",
            )


def _stack_files(project: Project, pins: Sequence[Pin]) -> list[str]:
    """Return the files of the pins' stacks, relative to the project."""
    found = []
    for pin in pins:
        stack = load_stack(project.layout, pin)
        if stack.folder.is_dir():
            paths = project_files.list_files(project.layout.root, stack.folder)
            found += [p.relative_to(project.layout.root).as_posix() for p in paths]
    return found


def _refuse_unkept(
    project: Project, lock: Lock, sets: Sequence[str], pins: Sequence[Pin], files: Sequence[str]
) -> None:
    """Check that git's history has the current state of the files and of the lock's tables to remove.

    :raises UserError: if git's history lacks any of them; the message names up to three.
    """
    if not sets:
        return
    root = project.layout.root
    hint = "commit it first; `--keep` removes nothing"
    try:
        kept = {str(path): data for path, data in person.files_at(root, "HEAD", LOCK_NAME, *files).items()}
    except UserError as error:
        raise UserError(f"git's history has none of the files to remove: {error.message}", hint=hint) from None
    missing = []
    for f in files:
        if kept.get(f) != project_files.read(root, root / f):
            missing.append(f)
    if LOCK_NAME in kept:
        before = parse_lock(kept[LOCK_NAME], f"HEAD:{LOCK_NAME}")
    else:
        before = replace(lock, sets={})
    for s in sets:
        if before.sets.get(s) != lock.sets[s]:
            missing.append(f"the set {s}")
    for pin in pins:
        there = before.upstreams.get(pin.upstream)
        if not there or there.pins.get(pin.ref) != pin:
            missing.append(f"the pin of {pin.upstream} {pin.ref}")
    if missing:
        more = ""
        if len(missing) > 3:
            more = f" and {len(missing) - 3} more"
        raise UserError(f"git's history lacks the current state of {', '.join(missing[:3])}{more}", hint=hint)
