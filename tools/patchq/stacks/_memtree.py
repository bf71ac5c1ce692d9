"""Tree in memory to which patches are applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from patchq.errors import ConflictKind
from patchq.formats import diff
from patchq.formats.diff import GITLINK, REGULAR, SYMLINK, FilePatch, Mismatch
from patchq.formats.treepath import parents_of
from patchq.git.repository import Git
from patchq.names import CommitId, Offset, show_path


class FileMismatch(Exception):
    """Error if the change of one file doesn't apply to the tree."""

    def __init__(self, file: FilePatch, mismatch: Mismatch) -> None:
        super().__init__(mismatch.reason)
        self.file, self.mismatch = file, mismatch


Result = tuple[bytes, tuple[bytes, bytes] | None]


class View:
    """Tree in memory: a commit's tree with the changes of the patches applied so far."""

    def __init__(self, store: Git, commit: CommitId) -> None:
        self.store = store
        self._listed = store.list_tree(commit)
        self.files: dict[bytes, bytes] = {path: entry.mode for path, entry in self._listed.items()}
        self._contents: dict[bytes, bytes] = {}
        self._folders: Counter[bytes] | None = None

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Read the blobs of all given paths that exist, in one batch."""
        wanted = {}
        for p in paths:
            if p in self.files and self.files[p] != GITLINK:
                wanted[p] = self._listed[p].blob
        blobs = self.store.read_blobs(wanted.values())
        for path, blob in wanted.items():
            self._contents[path] = blobs[blob]

    def content(self, path: bytes | None) -> bytes:
        """Return a file's current content; empty if no content is loaded for the path."""
        if path is not None:
            return self._contents.get(path, b"")
        return b""

    def file_paths(self) -> list[bytes]:
        """Return the paths of the regular files."""
        return [path for path, mode in self.files.items() if mode not in (SYMLINK, GITLINK)]

    def read_files(self, paths: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the current contents of the given paths that are regular files."""
        regular, unread = [], []
        for path in paths:
            if self.files.get(path, SYMLINK) not in (SYMLINK, GITLINK):
                regular.append(path)
                if path not in self._contents:
                    unread.append(path)
        self.prefetch(unread)
        return {path: self._contents[path] for path in regular}

    def put(self, contents: Mapping[bytes, bytes]) -> list[Result]:
        """Replace the contents of files, and return the changed paths."""
        changed: list[Result] = []
        for path, content in contents.items():
            if content != self._contents[path]:
                self._contents[path] = content
                changed.append((path, (self.files[path], content)))
        return changed

    def apply(self, files: Sequence[FilePatch], offsets: list[Offset]) -> list[Result]:
        """Apply one patch, and return the changed paths.

        Like git, remove files first, and then add files.
        """
        removed: list[Result] = []
        written: list[Result] = []
        for file in files:
            try:
                result = self.patched(file, offsets)
            except Mismatch as error:
                raise FileMismatch(file, error) from None
            if file.old_path is not None and file.new_path != file.old_path and not file.copy:
                removed.append((file.old_path, None))
            if result is not None and file.new_path is not None:
                written.append((file.new_path, result))
        gone = dict(removed)
        self._refuse_obstructed(files, gone.keys())
        for path in gone:
            self._forget(path)
        for path, result in written:
            assert result
            self._store(path, *result)
        return removed + written

    def patched(self, file: FilePatch, offsets: list[Offset]) -> tuple[bytes, bytes] | None:
        """Return the mode and content of a patched file; None if the patch removes the file.

        :param offsets: list to which an :class:`Offset` is added for each hunk that applies at a different line.
        :raises Mismatch: if the file's change doesn't apply.
        """
        if file.old_path is None:
            mode, content = file.new_mode or REGULAR, b""
        else:
            found = self.files.get(file.old_path)
            if found is None:
                raise Mismatch("the file doesn't exist", kind=ConflictKind.MISSING)
            if found == GITLINK:
                raise Mismatch("is a submodule", kind=ConflictKind.OTHER)
            if file.old_mode and (file.old_mode == SYMLINK) != (found == SYMLINK):
                raise Mismatch("the patch expects a file, but finds a symlink, or the reverse", kind=ConflictKind.OTHER)
            mode, content = file.new_mode or found, self._contents[file.old_path]
        content, moved = diff.apply_hunks(file.hunks, content)
        for hunk, lines in moved:
            offsets.append(Offset(show_path(file.path), hunk.header.decode("utf-8", "replace"), lines))
        if file.new_path is None:
            if content:
                raise Mismatch("the patch removes the file, but not all of its content")
            return None
        return mode, content

    def _refuse_obstructed(self, files: Sequence[FilePatch], gone: Collection[bytes]) -> None:
        """Raise FileMismatch if the path of an added or renamed file is taken, or a parent folder is a file."""
        # If the patch gives no mode for a renamed symlink, git still treats its old path as a link.
        links = set()
        for f in files:
            if f.old_mode is None and f.old_path and self.files[f.old_path] == SYMLINK:
                links.add(f.old_path)
        fresh = {}
        for f in files:
            if f.new_path is not None and f.new_path != f.old_path:
                fresh[f.new_path] = f.new_mode
        for file in files:
            if file.new_path is not None and file.new_path != file.old_path:
                reason = self._in_the_way(file.new_path, gone, fresh, links)
                if reason:
                    raise FileMismatch(file, Mismatch(reason, kind=ConflictKind.OBSTRUCTED))

    def _in_the_way(
        self, path: bytes, gone: Collection[bytes], fresh: Mapping[bytes, bytes | None], links: Collection[bytes]
    ) -> str:
        """Return a message that names the obstacle at a new path; empty if there is none."""
        if path in self.files and path not in gone:
            return "the file exists already"
        for parent in parents_of(path):
            there = parent in self.files and (parent not in gone or parent in links)
            if there or parent in fresh:
                if (self.files[parent] if there else fresh[parent]) == SYMLINK:
                    return f"{show_path(parent)} is a symbolic link: nothing is written through it"
                return f"{show_path(parent)} is a file, not a folder"
        if self._count_folders()[path] > sum(g.startswith(path + b"/") for g in gone):
            return "a folder of that name is there"
        return ""

    def _count_folders(self) -> Counter[bytes]:
        """Return the number of files below each folder. The first call counts all files of the tree."""
        if self._folders is None:
            self._folders = Counter()
            for path in self.files:
                self._folders.update(parents_of(path))
        return self._folders

    def _forget(self, path: bytes) -> None:
        del self.files[path]
        self._contents.pop(path, None)
        if self._folders is not None:
            self._folders.subtract(parents_of(path))

    def _store(self, path: bytes, mode: bytes, content: bytes) -> None:
        if path not in self.files and self._folders is not None:
            self._folders.update(parents_of(path))
        self.files[path] = mode
        self._contents[path] = content
