"""A stack on disk: the series and its patch files, with what ``apply`` remembers of them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from patchq.errors import FormatError, UserError
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail
from patchq.formats.lock import Pin
from patchq.formats.series import MOST_BYTES, SUFFIX, Series
from patchq.formats.series import parse as parse_series
from patchq.names import AppliedPatch, CommitId, Offset, TreeId
from patchq.system import fsio, project_files
from patchq.system.paths import Layout, folder_to_ref

STATE_VERSION = 1
_ID = re.compile(r"[0-9a-f]{40}")
#: Bytes of a patch file.
MOST_PATCH = 256 << 20


@dataclass(frozen=True, slots=True)
class Stack:
    """The ordered patches for one pin of the project at ``root``. ``folder`` may not exist yet: an empty stack."""

    root: Path
    pin: Pin
    folder: Path
    series: Series

    @property
    def names(self) -> tuple[str, ...]:
        return self.series.names

    def path(self, name: str) -> Path:
        """The patch file of a name."""
        return self.folder / (name + SUFFIX)

    def read(self, name: str) -> bytes:
        """The bytes of a patch file.

        :raises UserError: if the series names a file that isn't there.
        """
        data = project_files.read(self.root, self.path(name), MOST_PATCH)
        if data is None:
            raise UserError(
                f"{self.folder / 'series'} names {name}, but {self.path(name)} is not there",
                hint=f"restore the file, or `patchq drop {name}`",
            )
        return data

    def load(self, name: str) -> tuple[Header, bytes]:
        """Header and diff of one patch.

        :raises FormatError: if it isn't a patch file.
        """
        return parse_mail(self.read(name), str(self.path(name)))

    def headers(self) -> Iterator[tuple[str, Header]]:
        """Each patch's name and header, in order."""
        for name in self.names:
            yield name, self.load(name)[0]

    def relative(self, layout: Layout, name: str) -> str:
        """A patch file's path inside the project."""
        return self.path(name).relative_to(layout.root).as_posix()

    def series_relative(self, layout: Layout) -> str:
        """The series' path inside the project."""
        return (self.folder / "series").relative_to(layout.root).as_posix()


def load_stack(layout: Layout, pin: Pin) -> Stack:
    """Read a stack's series.

    :raises FormatError: if the series is malformed, or a folder of another name is the ref's, too.
    """
    folder = layout.stack(pin.upstream, pin.ref)
    _refuse_misnamed(folder, pin)
    data = project_files.read(layout.root, folder / "series", MOST_BYTES)
    return Stack(layout.root, pin, folder, parse_series(data, str(folder / "series")) if data is not None else Series())


def _refuse_misnamed(folder: Path, pin: Pin) -> None:
    """:raises FormatError: if a folder next to the stack's is named like its ref, but not in the encoding of one."""
    beside = folder.parent
    names = {pin.ref} if "/" in pin.ref else set()
    if beside.is_dir():
        names.update(name for name in os.listdir(beside) if folder_to_ref(name) == pin.ref)
    for name in sorted(names - {folder.name}):
        if (beside / name).is_dir():
            raise FormatError(
                f"{beside / name} is not read: the stack of {pin.upstream} {pin.ref} belongs in {folder}",
                hint=f"rename that folder to {folder.name}, or remove it",
            )


def ledger_path(layout: Layout, upstream: str) -> Path:
    """Where the ledger of an upstream's stacks lies."""
    return layout.root / "patches" / upstream / "ledger.jsonl"


@dataclass(frozen=True, slots=True)
class Remembered:
    """One applied patch in the state: ``key`` is the file's stat, ``sha256`` its content."""

    applied: AppliedPatch
    key: tuple[int, int, int]
    sha256: str


@dataclass(frozen=True, slots=True)
class State:
    """Where a worktree was put, and by which patches. Rebuilt when it is lost."""

    set_name: str
    ref: str
    pin_key: tuple[str, str, str]
    base: CommitId
    source: str
    tip: CommitId
    tree: TreeId
    patches: tuple[Remembered, ...]

    def says_the_same(self, other: State) -> bool:
        """Whether both put the same commits of the same files there; stat keys aside."""
        mine, theirs = (replace(s, patches=tuple(replace(p, key=(0, 0, 0)) for p in s.patches)) for s in (self, other))
        return mine == theirs

    def dump(self) -> bytes:
        """The bytes of the state file."""
        return fsio.dump_json(
            {
                "version": STATE_VERSION,
                "set": self.set_name,
                "ref": self.ref,
                "pin": self.pin_key,
                "base": self.base,
                "source": self.source,
                "tip": self.tip,
                "tree": self.tree,
                "patches": [
                    [
                        p.applied.name,
                        p.key,
                        p.sha256,
                        p.applied.commit,
                        [[o.path, o.hunk, o.lines] for o in p.applied.offsets],
                        p.applied.empty,
                    ]
                    for p in self.patches
                ],
            }
        )


def pin_key(pin: Pin) -> tuple[str, str, str]:
    """What makes a base another one."""
    return (pin.commit or "", pin.sha256 + ":" + pin.subdir, pin.source)


def load_state(layout: Layout, upstream: str) -> State | None:
    """What ``apply`` remembers, or None. A damaged file is as good as none: it is rebuilt.

    :raises StateTooNew, StateTooOld: if another patchq wrote it.
    """
    path = layout.state(upstream)
    data = fsio.read_or_none(path)
    if data is None:
        return None
    raw = fsio.load_state(data, path, STATE_VERSION)
    try:
        return _state(raw)
    except (KeyError, TypeError, ValueError):
        return None


def _three(mtime: int, size: int, inode: int) -> tuple[int, int, int]:
    return mtime, size, inode


def _state(raw: dict[str, Any]) -> State:
    patches = tuple(
        Remembered(
            AppliedPatch(name, CommitId(commit), tuple(Offset(*o) for o in offsets), empty == [True]),
            _three(*key),
            sha256,
        )
        for name, key, sha256, commit, offsets, *empty in raw["patches"]
    )
    # They become arguments of git's.
    for value in (raw["base"], raw["tip"], raw["tree"], *(p.applied.commit for p in patches)):
        if not _ID.fullmatch(value):
            raise ValueError(value)
    commit, sha256, source = raw["pin"]
    return State(
        raw["set"], raw["ref"], (commit, sha256, source), CommitId(raw["base"]), raw["source"],
        CommitId(raw["tip"]), TreeId(raw["tree"]), patches,
    )  # fmt: skip


def remember(stack: Stack, applied: AppliedPatch, data: bytes | None = None) -> Remembered:
    """The state's record of a patch whose file is on disk."""
    path = stack.path(applied.name)
    content = stack.read(applied.name) if data is None else data
    try:
        key = fsio.stat_key(path)
    except FileNotFoundError:
        key = (0, 0, 0)
    return Remembered(applied, key, hashlib.sha256(content).hexdigest())


def find_patch(stacks: list[Stack], name: str) -> tuple[Stack, str]:
    """The stack that holds a patch, named ``patch`` or ``upstream/patch``.

    :raises UserError: if none or more than one does.
    """
    upstream, slash, short = name.removesuffix(SUFFIX).rpartition("/")
    found = [s for s in stacks if short in s.names and (not slash or s.pin.upstream == upstream)]
    if len(found) == 1:
        return found[0], short
    if found:
        names = ", ".join(f"{s.pin.upstream}/{short}" for s in found)
        raise UserError(f"{name} is in more than one stack", hint=f"say which: {names}")
    import difflib

    every = [f"{s.pin.upstream}/{n}" for s in stacks for n in s.names]
    near = difflib.get_close_matches(name, [*every, *(e.split("/")[1] for e in every)], 1)
    raise UserError(f"no patch {name}", hint=f"did you mean {near[0]}?" if near else "`patchq list` names them")
