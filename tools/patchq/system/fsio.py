"""Atomic file writes, and the lock that prevents two commands from running at the same time."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from patchq.errors import BusyError, FormatError, StateError, StateTooNew, StateTooOld, UserError
from patchq.names import sh
from patchq.system import runner

try:
    import fcntl
except ImportError:
    raise UserError(
        "patchq needs file locks that this system doesn't have (no fcntl)", hint="use Linux, macOS or WSL"
    ) from None

#: Suffix of a file that is still being written.
UNFINISHED = ".temporary"
#: Size limit of files that are read whole and have no limit of their own. A sparse file may claim
#: more bytes than the disk has.
MOST = 256 << 20


def utc_now() -> str:
    """Return the current time in UTC, as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def sync_folder(folder: Path) -> None:
    """Write the renames in ``folder`` to disk, so that they survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Write to disk a file that another program wrote, so that it survives a power cut. Ignore a missing file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def sync_file_system(folder: Path) -> None:
    """Write all changes on the file system of ``folder`` to disk. One call is enough for many files."""
    import ctypes

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(fd):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
    finally:
        os.close(fd)


def is_cut(found: bytes, whole: bytes) -> bool:
    """Return whether ``found`` may be the rest of ``whole`` after a power cut: the beginning of ``whole``, or zeros."""
    if found == whole or len(found) > len(whole):
        return False
    return whole.startswith(found) or not found.strip(b"\0")


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` with ``data``: write a temporary file next to it, fsync, rename."""
    write_all({path: data})


def write_output(path: Path, data: bytes) -> None:
    """Replace a file in any folder. First remove the temporary files that killed commands left next to the file."""
    remove_unfinished(path)
    write_atomic(path, data)


def remove_unfinished(path: Path) -> None:
    """Remove the temporary files that killed commands left next to ``path`` while they replaced the file."""
    for left in path.parent.glob(glob.escape(f".{path.name[:40]}.") + "*" + UNFINISHED):
        with contextlib.suppress(OSError, FormatError):
            if file := _open_regular(left):
                with file:
                    lock_now(file.fileno())  # fails if a running command is still writing this file
                    left.unlink()


#: For this number of files or more, one sync of the whole file system is faster than one sync per file.
_MANY = 64


def write_all(files: Mapping[Path, bytes]) -> None:
    """Replace several files, each atomically. When this function returns, all files are on disk."""
    folders = {path.parent for path in files}
    for folder in folders:
        make_folder(folder)
    if len(files) < _MANY:
        for path, data in files.items():
            _replace(path, data)
    else:
        _replace_many(files)
    for folder in folders:
        sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents. When this function returns, all new folders are on disk."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def _replace(path: Path, data: bytes) -> None:
    temporary, fd = _begin(path)
    try:
        with os.fdopen(fd, "wb") as file:
            _write(file, data, path)
            os.fsync(fd)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _replace_many(files: Mapping[Path, bytes]) -> None:
    """Replace many of patchq's own files with one sync per file system.

    The project's lock protects the temporary files until they are renamed.
    """
    temporary: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            temporary[path], fd = _begin(path)
            with os.fdopen(fd, "wb") as file:
                _write(file, data, path)
        for folder in {path.parent.stat().st_dev: path.parent for path in files}.values():
            sync_file_system(folder)
        for path in files:
            os.replace(temporary[path], path)
            del temporary[path]
    except BaseException:
        for left in temporary.values():
            left.unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, data: bytes, path: Path) -> None:
    """Write the new content of ``path`` to a temporary file.

    The temporary file gets the permissions of an existing ``path``.
    """
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(file.fileno(), stat.S_IMODE(path.lstat().st_mode) & 0o666)
    file.write(data)
    file.flush()


def _begin(path: Path) -> tuple[Path, int]:
    """Create and lock a temporary file that will replace ``path``.

    While the file is locked, other commands don't remove it, because its writer is still running.
    """
    while True:
        temporary = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}{UNFINISHED}")
        # The umask applies here; _write copies the mode of an existing file.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return temporary, fd
        os.close(fd)  # another command has removed it before it was locked


@contextmanager
def temporary_folder(prefix: str = "patchq-", inside: Path | None = None) -> Iterator[Path]:
    """Create a temporary folder in ``inside`` (default: the system's folder). Remove it at the end of the block."""
    import tempfile  # slow to import, and most commands don't need it

    made = tempfile.TemporaryDirectory(prefix=prefix, dir=inside)
    try:
        yield Path(made.name)
    finally:
        try:
            made.cleanup()
        except (RecursionError, OSError):  # folders too deep for Python's stack or descriptors
            runner.run(["rm", "-rf", "--", made.name], cwd=Path("/"))


def remove(path: Path) -> None:
    """Remove the file ``path`` if it exists."""
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove the folder ``path`` and everything in it."""
    import shutil  # slow to import, and most commands don't need it

    shutil.rmtree(path)


def rename(old: Path, new: Path) -> None:
    """Rename a file within one file system, and write the rename to disk. An existing ``new`` is replaced."""
    os.replace(old, new)
    sync_folder(new.parent)


def read_or_none(path: Path) -> bytes | None:
    """Return the content of ``path``; None if the file doesn't exist.

    :raises FormatError: if ``path`` isn't a regular file, or has more than :data:`MOST` bytes.
    """
    return read_limited(path, MOST)


def read_limited(path: Path, most: int) -> bytes | None:
    """Return the content of a file that other programs may have written; None if it doesn't exist.

    :raises FormatError: if the file has more than ``most`` bytes, or is a pipe, a device or a
        folder. These files aren't read.
    """
    file = _open_regular(path)
    if file:
        return read_all(file, path, most)
    return None


def read_all(file: BinaryIO, path: Path, most: int) -> bytes:
    """Return the content of an open file, and close the file.

    :raises FormatError: if the file has more than ``most`` bytes.
    """
    with file:
        check_size(file, path, most)
        return file.read(most)


def check_size(file: BinaryIO, path: Path, most: int) -> None:
    """Raise FormatError if an open file has more than ``most`` bytes."""
    refuse_larger(path, os.fstat(file.fileno()).st_size, most)


def refuse_larger(path: Path, size: int, most: int) -> None:
    """Raise FormatError if ``size``, the size of a file, is more than ``most`` bytes."""
    if size > most:
        raise FormatError(
            f"{path} has {size} bytes; the limit is {most}",
            hint="see the limits in docs/reference/formats.md",
        )


def _open_regular(path: Path) -> BinaryIO | None:
    try:
        # O_NONBLOCK: opening a pipe must not block.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise not_regular(path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise not_regular(path)
    return os.fdopen(fd, "rb")


def not_regular(path: Path) -> FormatError:
    """Return the error for a path that should be a file, but is a pipe, socket, device or folder."""
    return FormatError(f"{path} is not a file", hint="restore the file, or remove the reference to it")


def folds_case(path: Path) -> bool:
    """Return True if the file system ignores case in the file name of ``path``, which must exist."""
    try:
        return path.with_name(path.name.swapcase()).samefile(path)
    except FileNotFoundError:
        return False


def stat_key(path: Path) -> tuple[int, int, int]:
    """Return values that change when a file's content changes: modification time in ns, size, inode.

    :raises FileNotFoundError: if the file doesn't exist.
    """
    st = path.lstat()
    return st.st_mtime_ns, st.st_size, st.st_ino


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    :raises FileNotFoundError: if the file doesn't exist.
    :raises FormatError: if ``path`` isn't a regular file.
    """
    file = _open_regular(path)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return sha256_open(file)


def sha256_open(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file in hexadecimal, and close the file."""
    from hashlib import sha256  # loads OpenSSL, and most commands hash nothing

    with file:
        digest = sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def dump_json(value: object) -> bytes:
    """Return JSON data as stored in files: sorted keys, indented, one newline at the end, UTF-8."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def load_state(data: bytes, path: Path, version: int) -> dict[str, Any]:
    """Parse a versioned state file.

    :raises StateTooNew, StateTooOld: if the file has another format version.
    :raises StateError: if the file isn't a JSON object with a version.
    """
    hint = f"move {path} away and run `patchq apply`: state under .patchq is rebuilt from the lock"
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
        found = value["version"]
        if type(found) is not int:  # isinstance would accept true
            raise TypeError(found)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateError(f"{path} is not a patchq state file", hint=hint) from None
    if found > version:
        raise StateTooNew(
            f"{path} was written by a newer patchq (format {found}, this one reads {version})",
            hint="update patchq, or " + hint,
        )
    if found < version:
        raise StateTooOld(f"{path} has the old format {found}; this patchq reads {version}", hint=hint)
    return dict(value)


def lock_now(fd: int) -> None:
    """Lock an open file without waiting. The lock is held until the file is closed.

    :raises OSError: if another process holds the lock, or the file system has no locks.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


#: Text of the file that names the holder of a lock.
_OWNER = re.compile(r"pid (\d+) on (.+?): patchq (\S+), since (\S+)")


@contextmanager
def lock(path: Path, *, verb: str, wait: float) -> Iterator[bool]:
    """Hold the project's lock. Yield True if the previous holder of the lock was killed.

    The lock is a flock, so the kernel releases the lock when its holder ends. Child processes inherit the lock: if
    patchq is killed, a child that is still running keeps holding the lock. Lock libraries don't offer this, so none
    is used. A file next to the lock names the holder.

    :param verb: command that runs, for the file that names the holder.
    :param wait: seconds to wait until another holder releases the lock.
    :raises BusyError: if the lock is still held after that time. The message names the holder.
    """
    make_folder(path.parent)
    owner = path.with_suffix(".owner")
    fd = _open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        end = time.monotonic() + wait
        while True:
            try:
                lock_now(fd)
                break
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                    raise UserError(
                        f"the file system of {path.parent} has no file locks ({error.strerror}); patchq needs them "
                        "to run only one command at a time",
                        hint="put the project on a local disk, or mount this file system with locks",
                    ) from None
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                if time.monotonic() >= end:
                    raise _busy(owner, wait) from None
                time.sleep(0.05)
        killed = owner.exists()
        message = f"pid {os.getpid()} on {os.uname().nodename}: patchq {verb}, since {utc_now()}\n"
        with os.fdopen(_open_own(owner, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(message)
        runner.inherited_fds.add(fd)
        try:
            yield killed
        finally:
            runner.inherited_fds.discard(fd)
            owner.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _open_own(path: Path, flags: int) -> int:
    """Open one of patchq's own files. Don't follow links, and don't wait for pipes.

    :raises StateError: if ``path`` is a link.
    :raises FormatError: if ``path`` isn't a regular file.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe or a socket
            raise not_regular(path) from None
        if error.errno != errno.ELOOP:
            raise
        raise StateError(f"{path} is a symbolic link, which patchq doesn't follow", hint=f"remove {path}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise not_regular(path)
    return fd


def _busy(owner: Path, wait: float) -> BusyError:
    """Return the error for a lock that another process holds."""
    try:
        found = (read_or_none(owner) or b"").decode(errors="replace").strip()
    except (OSError, FormatError):
        found = ""
    longer = f"`--wait {sh(max(60, round(6 * wait)))}` before the verb waits longer"
    match = _OWNER.fullmatch(found)
    if not match:
        return BusyError("another patchq uses this project", hint=f"wait for it to end; {longer}")
    pid, host, verb, since = match.groups()
    message = f"another patchq uses this project: `patchq {verb}`, process {pid} on {host}, since {since}"
    if host == os.uname().nodename and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
        return BusyError(
            f"{message}; it was killed, and a program that it started still runs",
            hint=f"wait for that program to end, or find it with `fuser {owner.with_suffix('')}` and stop it; {longer}",
        )
    return BusyError(
        message,
        hint=f"wait for it to end; {longer}. If you stop this process (`kill {pid}`), the next command finishes or "
        "reverts its change",
    )
