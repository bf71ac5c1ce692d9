"""Import a release archive or a plain folder as one deterministic commit in the store.

The commit has a fixed author and date, and a message that depends only on the pin, so that its id is the same on every
machine.
Archives are untrusted. Each member is checked before git receives it, and archives that would unpack to an
excessive size are refused.
"""

from __future__ import annotations

import io
import lzma
import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchq.errors import FormatError, SourceError
from patchq.formats import tar as tar_format
from patchq.formats.diff import EXECUTABLE, REGULAR, SYMLINK
from patchq.formats.lock import Pin
from patchq.formats.treepath import is_tree_path
from patchq.git.fastimport import fast_import, quote_path
from patchq.git.repository import Git
from patchq.names import CommitId, show_path
from patchq.system.progress import Progress

#: Limits that no source archive reaches, but an archive bomb does.
MAX_MEMBER, MAX_TOTAL, MAX_MEMBERS = 2 << 30, 16 << 30, 2_000_000
#: Longest target of a link on Linux (PATH_MAX).
_MAX_LINK = 4096
_CHUNK = 1 << 20
_AUTHOR = b"patchq <patchq@localhost> 946684800 +0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchiveMember:
    """File to import. ``data`` is the file's content, or the target of a symlink."""

    path: bytes
    mode: bytes
    size: int
    data: IO[bytes] | bytes


def import_archive(
    store: Git,
    path: Path,
    pin: Pin,
    *,
    skip: Iterable[str] = (),
    say: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> CommitId:
    """Import a tar archive as one deterministic commit, and return the commit's id.

    The archive is read as a stream. Its single top folder is stripped. If ``pin.subdir`` is set, only the files below
    that folder are imported. ``skip`` names folders that belong to nested upstreams. A submodule may leave a file
    named ``.git`` in an sdist. Such a file is not part of the tree and git can't store it, so it is skipped and
    reported to ``say``.

    :raises FormatError: for a path or link that leaves the tree, a device, or a damaged archive. In these cases,
        nothing is imported.
    """
    message = f"{pin.upstream} {pin.ref}\n\nImported from {pin.archive}\nsha256 {pin.sha256}\n"
    if pin.subdir:
        message += f"folder {pin.subdir}\n"
    with path.open("rb") as file, opened_archive(_Told(file, path, progress) if progress else file, path.name) as tar:
        return _import(
            store, _without_links(members(tar, path.name), path.name, say), message, pin.subdir, skip, path.name
        )


class _Told(io.RawIOBase):
    """File object that reports how many of its bytes were read."""

    def __init__(self, file: IO[bytes], path: Path, progress: Progress) -> None:
        self._file, self._name, self._progress = file, path.name, progress
        self._done, self._size = 0, path.stat().st_size

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes, and report the progress."""
        data = self._file.read(size)
        self._done += len(data)
        if data:
            self._progress(f"importing {self._name}", self._done, self._size)
        return data


def import_release(
    store: Git, path: Path, pin: Pin, archive: str, *, only: Callable[[bytes], bool], skip: Iterable[str] = ()
) -> CommitId:
    """Import selected files of another release's archive as a commit. The commit may be empty.

    :param only: function that selects files by their path in the tree.
    :raises FormatError: in the same cases as :func:`import_archive`.
    """
    with path.open("rb") as file, opened_archive(file, path.name) as tar:
        found = _without_links(members(tar, path.name), path.name, None)
        return _import(store, found, f"Some files of {archive}\n", pin.subdir, skip, path.name, only)


def _without_links(
    found: Iterator[_ArchiveMember], where: str, say: Callable[[str], None] | None
) -> Iterator[_ArchiveMember]:
    """Yield members, except the ``.git`` files that link a worktree or a submodule to its repository."""
    for member in found:
        folder, _, name = member.path.rpartition(b"/")
        harmless = member.mode == REGULAR and member.size <= _MAX_LINK and (not folder or is_tree_path(folder))
        if name == b".git" and harmless:
            if say:
                say(f"{where}: {show_path(member.path)} is skipped: it only names the path of a repository")
            continue
        yield member


@contextmanager
def opened_archive(file: IO[bytes] | io.RawIOBase, where: str) -> Iterator[tarfile.TarFile]:
    """Open a tar archive, compressed or not, as a stream.

    :raises FormatError: if the archive is damaged; also raised while the archive is read.
    """
    try:
        tar = tar_format.open_stream(file)
    except Exception as error:  # tarfile raises many kinds of exceptions for damaged headers
        raise _damaged(where, error) from None
    try:
        with tar:
            yield tar
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise _damaged(where, error) from None
    except OSError as error:
        if error.errno:
            raise
        raise _damaged(where, error) from None  # raised by gzip and bzip2


def _damaged(where: str, error: Exception) -> FormatError:
    message = str(error) or type(error).__name__
    return FormatError(f"{where} is damaged: {message}; nothing was imported", hint="get the archive again")


def import_folder(store: Git, folder: Path, pin: Pin, *, skip: Iterable[str] = ()) -> CommitId:
    """Import a plain folder (no repository) as one deterministic commit, and return its id.

    :raises FormatError: in the same cases as :func:`import_archive`.
    :raises SourceError: for a file that can't be read.
    """
    message = f"{pin.upstream} {pin.ref}\n\nImported from a folder\n"
    return _import(store, _folder_members(folder), message, "", skip, str(folder))


def _import(
    store: Git,
    found: Iterator[_ArchiveMember],
    message: str,
    subdir: str,
    skip: Iterable[str],
    where: str,
    only: Callable[[bytes], bool] | None = None,
) -> CommitId:
    ref = "refs/patchq/scratch/import"
    prefix = b""
    if subdir:
        prefix = subdir.encode() + b"/"
    skipped = tuple(s.encode() + b"/" for s in skip)
    body = message.encode()
    seen: set[bytes] = set()
    links: dict[bytes, bytes] = {}
    with fast_import(store) as out:
        out.write(
            b"commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n" % (ref.encode(), _AUTHOR, _AUTHOR, len(body), body)
        )
        for member in found:
            if not is_tree_path(member.path):
                raise _refused(where, member.path, "is outside of the tree, in .git, or too long for a file system")
            if not member.path.startswith(prefix):
                continue
            path = member.path[len(prefix) :]
            if path.startswith(skipped) or (only and not only(path)):
                continue
            if path in seen:
                raise _refused(where, path, "is listed twice")
            seen.add(path)
            out.write(b"M %s inline %s\ndata %d\n" % (member.mode, quote_path(path), member.size))
            if isinstance(member.data, bytes):
                links[path] = member.data
                out.write(member.data)
            else:
                left = member.size
                while left and (chunk := member.data.read(min(left, _CHUNK))):
                    out.write(chunk)
                    left -= len(chunk)
                if left:
                    raise FormatError(
                        f"{where} is truncated at {show_path(path)}; nothing was imported", hint="get the archive again"
                    )
            out.write(b"\n")
        _check_links(links, seen, where)
        if not seen and not only:
            raise FormatError(
                f"{where} contains no files" + (f" below {subdir}" if subdir else ""),
                hint="check --archive and --subdir",
            )
        out.write(b"done\n")
    commit = store.ref_or_none(ref)
    assert commit
    store.run("update-ref", "-d", ref)
    return commit


def _refused(where: str, path: bytes, why: str) -> FormatError:
    return FormatError(
        f"{where}: {show_path(path)!r} {why}; nothing was imported",
        hint="check where this archive comes from before you use it",
    )


def members(tar: tarfile.TarFile, where: str) -> Iterator[_ArchiveMember]:
    """Yield the files and links below an archive's single top folder. Each member is checked before it is read.

    :raises FormatError: for a member that doesn't belong in a source tree.
    """
    count = total = 0
    top: bytes | None = None
    found = tar_format.members(tar)
    while True:
        try:
            info = next(found, None)
        except Exception as error:
            raise _damaged(where, error) from None
        if info is None:
            return
        count, total = count + 1, total + info.size
        name = info.name.encode("utf-8", "surrogateescape")
        if info.size > MAX_MEMBER or total > MAX_TOTAL or count > MAX_MEMBERS:
            raise _refused(where, name, "the archive is larger than any source tree")
        _check_member(info, name, where)
        first, _, path = name.removeprefix(b"./").partition(b"/")
        if info.isdir():
            continue
        if top is None:
            top = first
        if first != top or not path:
            raise _refused(where, name, f"is not below the archive's one folder {show_path(top)!r}")
        if info.issym():
            target = _link_target(info, path, where)
            yield _ArchiveMember(path=path, mode=SYMLINK, size=len(target), data=target)
        elif info.isreg() and not info.issparse():
            data = tar.extractfile(info)
            assert data
            yield _ArchiveMember(
                path=path, mode=EXECUTABLE if info.mode & 0o100 else REGULAR, size=info.size, data=data
            )
        else:
            raise _refused(where, name, "is neither a file nor a symbolic link")


def _check_member(info: tarfile.TarInfo, name: bytes, where: str) -> None:
    if info.size < 0:  # possible with an extended header
        raise _refused(where, name, "gives a negative size")
    if name.startswith(b"/") or b".." in name.split(b"/"):
        raise _refused(where, name, "is outside of the tree")


def _link_target(info: tarfile.TarInfo, path: bytes, where: str) -> bytes:
    target = info.linkname.encode("utf-8", "surrogateescape")
    if not 0 < len(target) < _MAX_LINK or b"\0" in target:
        raise _refused(where, path, "is a link whose target is not a valid path")
    return target


def _folder_members(folder: Path) -> Iterator[_ArchiveMember]:
    """Yield a folder's files in byte order of their names, so that every machine creates the same commit."""

    def walk(at: bytes) -> Iterator[bytes]:
        for name in sorted(os.listdir(os.path.join(root, at))):
            if name == b".git":
                continue
            if at:
                path = at + b"/" + name
            else:
                path = name
            full = os.path.join(root, path)
            if os.path.isdir(full) and not os.path.islink(full):
                yield from walk(path)
            else:
                yield path

    root = os.fsencode(folder)
    try:
        yield from _read(root, walk(b""), str(folder))
    except OSError as error:
        if isinstance(error.filename, bytes):
            name = show_path(error.filename)
        else:
            name = str(folder)
        raise SourceError(
            f"{name} can't be read: {error.strerror}", hint="make it readable; nothing was imported"
        ) from None


def _read(root: bytes, paths: Iterable[bytes], where: str) -> Iterator[_ArchiveMember]:
    for path in paths:
        full = os.path.join(root, path)
        st = os.lstat(full)
        if stat.S_ISLNK(st.st_mode):
            target = os.readlink(full)
            yield _ArchiveMember(path=path, mode=SYMLINK, size=len(target), data=target)
        elif stat.S_ISREG(st.st_mode):
            with open(full, "rb") as file:
                yield _ArchiveMember(
                    path=path, mode=EXECUTABLE if st.st_mode & 0o100 else REGULAR, size=st.st_size, data=file
                )
        else:
            raise _refused(where, path, "is neither a file nor a symbolic link")


def _check_links(links: Mapping[bytes, bytes], files: Iterable[bytes], where: str) -> None:
    """Refuse links that leave the tree, and files whose path leads through a link or a file."""
    for path, target in links.items():
        landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith(b"/") or landing.startswith(b"../") or landing == b"..":
            raise _refused(where, path, f"is a link out of the tree, to {show_path(target)!r}")
    files = frozenset(files)
    for path in files:
        parts = path.split(b"/")
        above = b""
        for part in parts[:-1]:
            if above:
                above = above + b"/" + part
            else:
                above = part
            if above in links:
                raise _refused(where, path, "would be written through a symbolic link")
            if above in files:
                raise _refused(where, path, f"is below {show_path(above)}, which is a file")
