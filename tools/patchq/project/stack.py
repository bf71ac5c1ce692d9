"""A stack on disk: the series, its patch files, and the state that ``apply`` stores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchq.errors import FormatError, PatchqError, UserError, nearest
from patchq.formats.header import Header
from patchq.formats.header import parse as parse_mail
from patchq.formats.lock import Pin
from patchq.formats.series import MOST_BYTES, SUFFIX, Series
from patchq.formats.series import parse as parse_series
from patchq.names import AppliedPatch, CommitId, Offset, TreeId, sh
from patchq.records import dataclass
from patchq.system import fsio, project_files
from patchq.system.paths import Layout, folder_to_ref

if TYPE_CHECKING:
    from patchq.formats.ledger import Attempt, Ledger

STATE_VERSION = 1
_ID = re.compile(r"[0-9a-f]{40}")
#: Largest patch file, in bytes.
MOST_PATCH = 256 << 20


class SeriesMissing(FormatError):
    """Error for a stack's folder that contains patches but no series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Ordered patches for one pin. The folder of an empty stack may not exist.

    :ivar root: Folder of the project.
    """

    root: Path
    pin: Pin
    folder: Path
    series: Series

    @property
    def names(self) -> tuple[str, ...]:
        return self.series.names

    def path(self, name: str) -> Path:
        """Return the path of a patch file."""
        return self.folder / (name + SUFFIX)

    def read(self, name: str) -> bytes:
        """Return the content of a patch file.

        :raises UserError: if the file doesn't exist.
        """
        data = project_files.read(self.root, self.path(name), MOST_PATCH)
        if data is None:
            raise UserError(
                f"{self.folder / 'series'} names {name}, but {self.path(name)} doesn't exist",
                hint=f"restore the file, or `patchq drop {name}`",
            )
        return data

    def load(self, name: str) -> tuple[Header, bytes]:
        """Return the header and diff of a patch.

        :raises FormatError: if the file is malformed.
        """
        return parse_mail(self.read(name), str(self.path(name)))

    def headers(self) -> Iterator[tuple[str, Header]]:
        """Yield the name and the header of each patch, in order."""
        for name in self.names:
            yield name, self.load(name)[0]

    def without_proof(self) -> list[str]:
        """Return the patches that name no proof. Damaged patches are skipped: the rule ``format`` reports them."""
        found = []
        for name in self.names:
            with suppress(PatchqError):
                header = self.load(name)[0]
                if not header.values("Proof") and not header.proofs_on:
                    found.append(name)
        return found

    def relative(self, layout: Layout, name: str) -> str:
        """Return the path of a patch file, relative to the project."""
        return self.path(name).relative_to(layout.root).as_posix()

    def series_relative(self, layout: Layout) -> str:
        """Return the path of the series, relative to the project."""
        return (self.folder / "series").relative_to(layout.root).as_posix()


def load_stack(layout: Layout, pin: Pin) -> Stack:
    """Read the series of a stack.

    :raises FormatError: if the series is malformed, if there are patches but no series, or if the upstream has a second
        folder for the same ref.
    """
    folder = layout.stack(pin.upstream, pin.ref)
    _refuse_misnamed(folder, pin)
    path = folder / "series"
    data = project_files.read(layout.root, path, MOST_BYTES)
    if data is None:
        _refuse_without_series(folder)
        series = Series()
    else:
        series = parse_series(data, str(path))
    return Stack(root=layout.root, pin=pin, folder=folder, series=series)


def _refuse_without_series(folder: Path) -> None:
    """Refuse a folder that contains patches but no series, because its stack would count as empty.

    :raises SeriesMissing: if the folder contains patches.
    """
    files = sorted(path.name for path in folder.glob("*" + SUFFIX))
    if files:
        path = folder / "series"
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        raise SeriesMissing(
            f"{path} doesn't exist, but its folder has {', '.join(files[:3])}{more}",
            hint=f"`git checkout -- {sh(path)}` restores the series; or write it again, with the names of the patch "
            "files in order, one per line",
        )


def _refuse_misnamed(folder: Path, pin: Pin) -> None:
    """Refuse a second folder for a stack's ref, with a differently encoded name.

    :raises FormatError: if there is such a folder.
    """
    parent = folder.parent
    if "/" in pin.ref:
        names = {pin.ref}
    else:
        names = set()
    if parent.is_dir():
        names.update(name for name in os.listdir(parent) if folder_to_ref(name) == pin.ref)
    for name in sorted(names - {folder.name}):
        other = parent / name
        if other.is_dir():
            raise FormatError(
                f"{other} is not read: the stack of {pin.upstream} {pin.ref} belongs in {folder}",
                hint=f"rename that folder to {folder.name}, or remove it",
            )


def read_ledger(layout: Layout, upstream: str) -> Ledger:
    """Read the ledger of an upstream. If the file is missing, the ledger is empty."""
    from patchq.formats.ledger import parse  # most commands read no ledger

    return parse(project_files.read(layout.root, ledger_path(layout, upstream)) or b"")


def ledger_with(layout: Layout, upstream: str, attempts: Sequence[Attempt]) -> dict[str, bytes]:
    """Add attempts to the ledger of an upstream, and return the ledger as a file for :attr:`Change.files`."""
    from patchq.formats.ledger import add

    path = ledger_path(layout, upstream)
    data = add(project_files.read(layout.root, path) or b"", attempts)
    return {path.relative_to(layout.root).as_posix(): data}


def ledger_path(layout: Layout, upstream: str) -> Path:
    """Return the path of the ledger of an upstream's stacks."""
    return layout.root / "patches" / upstream / "ledger.jsonl"


@dataclass(frozen=True, slots=True)
class Remembered:
    """Applied patch in the stored state.

    ``key`` comes from the file's stat data; ``sha256`` is the hash of its content.
    """

    applied: AppliedPatch
    key: tuple[int, int, int]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Stored state of a worktree: base, tip and applied patches. A lost state file is created again."""

    set_name: str
    ref: str
    pin_key: tuple[str, str, str]
    base: CommitId
    source: str
    tip: CommitId
    tree: TreeId
    patches: tuple[Remembered, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the applied patches."""
        return tuple(patch.applied.name for patch in self.patches)

    def says_the_same(self, other: State) -> bool:
        """Return whether both states have the same commits and files, ignoring stat keys."""
        return self._without_keys() == other._without_keys()

    def _without_keys(self) -> State:
        patches = tuple(replace(patch, key=(0, 0, 0)) for patch in self.patches)
        return replace(self, patches=patches)

    def dump(self) -> bytes:
        """Return the content of the state file."""
        patches: list[list[object]] = []
        for patch in self.patches:
            applied = patch.applied
            offsets = [[offset.path, offset.hunk, offset.lines] for offset in applied.offsets]
            row = [applied.name, patch.key, patch.sha256, applied.commit, offsets, applied.empty]
            if applied.by_rule:
                row.append(True)
            patches.append(row)
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
                "patches": patches,
            }
        )


def pin_key(pin: Pin) -> tuple[str, str, str]:
    """Return the key of a base commit. If it changes, the applied state is invalid."""
    return (pin.commit or "", pin.sha256 + ":" + pin.subdir, pin.source)


def load_state(layout: Layout, upstream: str) -> State | None:
    """Return the state that ``apply`` stored; None if its file is missing or damaged.

    :raises StateTooNew, StateTooOld: if another version of patchq wrote it.
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
    patches = []
    for name, key, sha256, commit, offsets, *flags in raw["patches"]:
        moved = tuple(Offset(*offset) for offset in offsets)
        applied = AppliedPatch(
            name=name, commit=CommitId(commit), offsets=moved, empty=flags[:1] == [True], by_rule=flags[1:] == [True]
        )
        patches.append(Remembered(applied, _three(*key), sha256))
    # These ids become arguments of git.
    commits = [patch.applied.commit for patch in patches]
    for value in (raw["base"], raw["tip"], raw["tree"], *commits):
        if not _ID.fullmatch(value):
            raise ValueError(value)
    commit, sha256, source = raw["pin"]
    return State(
        set_name=raw["set"],
        ref=raw["ref"],
        pin_key=(commit, sha256, source),
        base=CommitId(raw["base"]),
        source=raw["source"],
        tip=CommitId(raw["tip"]),
        tree=TreeId(raw["tree"]),
        patches=tuple(patches),
    )


def remember(stack: Stack, applied: AppliedPatch, data: bytes | None = None) -> Remembered:
    """Return an applied patch as it is stored in the state. The patch file must exist unless ``data`` is given."""
    from hashlib import sha256  # loads OpenSSL, and most commands hash nothing

    path = stack.path(applied.name)
    if data is None:
        content = stack.read(applied.name)
    else:
        content = data
    try:
        key = fsio.stat_key(path)
    except FileNotFoundError:
        key = (0, 0, 0)
    return Remembered(applied, key, sha256(content).hexdigest())


def find_patch(stacks: list[Stack], name: str) -> tuple[Stack, str]:
    """Return the stack that contains a patch (named ``patch`` or ``upstream/patch``), and the patch's name.

    :raises UserError: if no stack or more than one contains the patch.
    """
    upstream, slash, short = name.removesuffix(SUFFIX).rpartition("/")
    found = []
    for stack in stacks:
        if short in stack.names and (not slash or stack.pin.upstream == upstream):
            found.append(stack)
    if len(found) == 1:
        return found[0], short
    if found:
        names = ", ".join(f"{stack.pin.upstream}/{short}" for stack in found)
        raise UserError(f"{name} is in more than one stack", hint=f"choose one: {names}")
    full: list[str] = []
    plain: list[str] = []
    for stack in stacks:
        full += [f"{stack.pin.upstream}/{patch}" for patch in stack.names]
        plain += stack.names
    raise UserError(f"no patch {name}", hint=nearest(name, [*full, *plain], "`patchq list` names them"))
