"""Read versions of a project from git's history, apply their stacks, and merge the versions.

Files are written to a temporary folder. The work tree is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from patchq.errors import PatchqError, UserError
from patchq.formats.header import Ident
from patchq.formats.lock import parse as parse_lock
from patchq.formats.series import SUFFIX
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, show_path
from patchq.project.project import Project
from patchq.project.stack import Stack, State, load_stack, load_state
from patchq.sources.pins import is_local_archive
from patchq.stacks.apply import ApplyPlan, bases_of
from patchq.stacks.apply import plan as plan_stack
from patchq.system.paths import KERNELS, LOCK_NAME, Layout, folder_to_ref

#: Upstream and ref.
At = tuple[str, str]
Name = TypeVar("Name", str, bytes)
#: Files of a project that ``check`` judges.
PARTS = (LOCK_NAME, "patches", "tests/stacks", KERNELS)
_MERGER = Ident("patchq", "patchq@localhost", 946684800, "+0000")


class ProjectVersion:
    """Project at one commit.

    :param git: repository that contains the commit.
    :param prefix: path of the project in the repository.
    :param label: name of the version for messages.
    :param folder: new folder into which the version's files are written.
    """

    def __init__(self, project: Project, git: Git, prefix: str, *, commit: CommitId, label: str, folder: Path) -> None:
        self.git, self.commit, self.label = git, commit, label
        self._around, self._prefix, self._folder = project, prefix, folder
        self._written: set[str] = set()
        layout = Layout(folder.resolve(), project.layout.store)
        self.project = Project(layout=layout, say=project.say, wait=project.wait, progress=project.progress)

    @cached_property
    def files(self) -> dict[str, BlobId]:
        """Files that ``check`` reads, keyed by path in the project."""
        wanted = [f"{self._prefix}{part}".encode() for part in PARTS]
        return self.list_files(wanted)

    def list_files(self, paths: Sequence[bytes]) -> dict[str, BlobId]:
        """Return the regular files at or below paths of the repository, keyed by path in the project."""
        found = {}
        for path, entry in self.git.list_tree(self.commit, paths).items():
            if entry.mode in (b"100644", b"100755"):
                found[show_path(path).removeprefix(self._prefix)] = entry.blob
        return found

    @cached_property
    def stacks(self) -> dict[At, dict[str, BlobId]]:
        """Files in each stack's folder, keyed by file name."""
        found: dict[At, dict[str, BlobId]] = {}
        for path, blob in self.files.items():
            parts = path.split("/")
            if len(parts) == 4 and parts[0] == "patches" and parts[2] != "rr-cache":
                found.setdefault((parts[1], folder_to_ref(parts[2])), {})[parts[3]] = blob
        return found

    @property
    def proofs(self) -> dict[str, BlobId]:
        """Files below ``tests/stacks``."""
        proofs: dict[str, BlobId] = {}
        for path, blob in self.files.items():
            if path.startswith("tests/stacks/"):
                proofs[path] = blob
        return proofs

    def read(self, path: str) -> bytes:
        """Return the content of a file; empty if the version doesn't contain it."""
        blob = self.files.get(path)
        if blob:
            return self.git.read_blobs([blob])[blob]
        return b""

    def write(self, paths: Iterable[str]) -> None:
        """Write files into the version's folder."""
        wanted = {}
        for path in paths:
            if path in self.files and path not in self._written:
                wanted[path] = self.files[path]
        contents = self.git.read_blobs(wanted.values())
        for path, blob in wanted.items():
            target = self._folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(contents[blob])
        self._written.update(wanted)

    def write_all(self) -> None:
        """Write all files that ``check`` reads, including the keyrings and archives that the lock names."""
        self.write(self.files)
        lock = parse_lock(self.read(LOCK_NAME), LOCK_NAME)
        named = [upstream.keyring for upstream in lock.upstreams.values()]
        for upstream in lock.upstreams.values():
            for pin in upstream.pins.values():
                if is_local_archive(pin.archive):
                    named.append(pin.archive)
        wanted = []
        for name in named:
            if name and not name.startswith(("/", "..")):
                wanted.append(f"{self._prefix}{name}".encode())
        if wanted:
            self.files.update(self.list_files(wanted))
            self.write(self.files)

    def stack(self, at: At) -> Stack | None:
        """Write the files of a stack, and return the stack; None if it isn't pinned or can't be read."""
        folder = self.project.layout.stack(*at).relative_to(self.project.layout.root).as_posix()
        self.write([LOCK_NAME, *(f"{folder}/{name}" for name in self.stacks.get(at, ()))])
        try:
            upstream = self.project.lock.upstreams.get(at[0])
            pin = None
            if upstream:
                pin = upstream.pins.get(at[1])
            if pin:
                return load_stack(self.project.layout, pin)
            return None
        except PatchqError:
            return None

    def plan(self, at: At, offline: bool) -> ApplyPlan | None:
        """Apply a stack in the store, and return the result; None if it doesn't apply."""
        stack = self.stack(at)
        if stack is None:
            return None
        try:
            before = self._state(at)
            (base,) = bases_of(self.project, [stack], {at[0]: before}, offline)
            return plan_stack(self.project, stack, base, before, "")
        except PatchqError:
            return None

    def _state(self, at: At) -> State | None:
        state = load_state(self._around.layout, at[0])
        if state and state.ref == at[1]:
            return state
        return None


def patch_text(data: bytes) -> bytes:
    """Return the diff of a patch file, without its message."""
    _, mark, rest = data.partition(b"\ndiff --git ")
    return mark + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """Merge of one branch into the branches that were merged before.

    :ivar conflicts: files of the project that git can't merge.
    """

    base: ProjectVersion
    ours: ProjectVersion
    theirs: ProjectVersion
    merged: ProjectVersion
    conflicts: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, str]:
        """Labels of both sides of the merge."""
        return self.ours.label, self.theirs.label


def merge_versions(
    make: Callable[[CommitId, str], ProjectVersion], git: Git, prefix: str, ours: ProjectVersion, theirs: ProjectVersion
) -> MergeStep:
    """Merge two versions of a project as git would, with the project's git attributes.

    :param make: function that returns the project's version at a commit, given a label.
    :raises UserError: if the versions have no common history.
    """
    base = git.run("merge-base", ours.commit, theirs.commit, ok_codes=(0, 1)).decode().split()
    if not base:
        raise UserError(
            f"{ours.label} and {theirs.label} have no common commit",
            hint="fetch the whole history: `git fetch --unshallow`",
        )
    merge = git.merge([(ours.commit, theirs.commit)], follow_folders=False)[0]
    commit = git.commit_tree(merge.tree, (ours.commit, theirs.commit), _MERGER, "merge\n")
    conflicts = []
    for path in merge.paths:
        shown = show_path(path)
        inside = shown.removeprefix(prefix)
        if shown.startswith(prefix) and any(inside == part or inside.startswith(part + "/") for part in PARTS):
            conflicts.append(inside)
    return MergeStep(
        base=make(CommitId(base[0]), "the common commit"),
        ours=ours,
        theirs=theirs,
        merged=make(commit, f"{ours.label} with {theirs.label}"),
        conflicts=tuple(conflicts),
    )


def changed_names(before: Mapping[Name, BlobId], after: Mapping[Name, BlobId]) -> set[Name]:
    """Return the names or paths whose files differ between two versions."""
    names: set[Name] = set()
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            names.add(name)
    return names


def patches_of(names: Collection[str]) -> set[str]:
    """Return the names of patches, given the names of their files."""
    found: set[str] = set()
    for name in names:
        if name.endswith(SUFFIX):
            found.add(name.removesuffix(SUFFIX))
    return found
