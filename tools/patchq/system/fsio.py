"""Files that are either as before or as after, and the lock that keeps two commands apart."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from patchq.errors import BusyError, FormatError, StateError, StateTooNew, StateTooOld, UserError
from patchq.system import runner

try:
    import fcntl
except ImportError:
    raise UserError(
        "patchq needs file locks that this system doesn't have (no fcntl)", hint="use Linux, macOS or WSL"
    ) from None

#: How the name of a file ends while it is being written.
UNFINISHED = ".unfinished"
#: Bytes of a file that is read as a whole and has no limit of its own. One with a hole can say it has more than a disk.
MOST = 256 << 20


def sync_folder(folder: Path) -> None:
    """Make the renames in ``folder`` last through a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: Path) -> None:
    """Make what another program wrote to ``path`` last; nothing where there is no such file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        os.fsync(file.fileno())


def sync_file_system(folder: Path) -> None:
    """Make everything last that was written on the file system of ``folder``: of many files, one call."""
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


def write_atomic(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: written beside it, fsynced, renamed."""
    write_all({path: data})


def write_output(path: Path, data: bytes) -> None:
    """Replace a file that lies anywhere, and remove what killed commands left next to it."""
    remove_unfinished(path)
    write_atomic(path, data)


def remove_unfinished(path: Path) -> None:
    """Remove what killed commands left next to `path` when they were replacing it."""
    for left in path.parent.glob(glob.escape(f".{path.name[:40]}.") + "*" + UNFINISHED):
        with contextlib.suppress(OSError, FormatError):
            if file := _open_regular(left):
                with file:
                    lock_now(file.fileno())  # a command that is still writing holds it
                    left.unlink()


#: Files from which on one sync of the whole file system takes less time than one of each file.
_MANY = 64


def write_all(files: Mapping[Path, bytes]) -> None:
    """Replace several files, each by one step of its own; when this returns, all of them last."""
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
    """Make a folder, and those above it that aren't there; each lasts when this returns."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def _replace(path: Path, data: bytes) -> None:
    beside, fd = _begin(path)
    try:
        with os.fdopen(fd, "wb") as file:
            _write(file, data, path)
            os.fsync(fd)
            os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _replace_many(files: Mapping[Path, bytes]) -> None:
    """Replace files of patchq's own: the project's lock keeps other commands away from what isn't renamed yet."""
    beside: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            beside[path], fd = _begin(path)
            with os.fdopen(fd, "wb") as file:
                _write(file, data, path)
        for folder in {path.parent.stat().st_dev: path.parent for path in files}.values():
            sync_file_system(folder)
        for path in files:
            os.replace(beside[path], path)
            del beside[path]
    except BaseException:
        for left in beside.values():
            left.unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, data: bytes, path: Path) -> None:
    """Write what is to replace `path`, with its permissions where it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(file.fileno(), stat.S_IMODE(path.lstat().st_mode) & 0o666)
    file.write(data)
    file.flush()


def _begin(path: Path) -> tuple[Path, int]:
    """Make the file that is to replace `path`, and lock it: what is locked isn't a killed command's."""
    while True:
        beside = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}{UNFINISHED}")
        # As the user's umask has it, or as the file is that this one replaces.
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return beside, fd
        os.close(fd)  # another command has removed it before it was locked


@contextmanager
def temporary_folder(prefix: str = "patchq-", inside: Path | None = None) -> Iterator[Path]:
    """A folder that is gone afterwards, in the system's for such or ``inside`` another."""
    import tempfile  # brings much, and most commands make none

    made = tempfile.TemporaryDirectory(prefix=prefix, dir=inside)
    try:
        yield Path(made.name)
    finally:
        try:
            made.cleanup()
        except (RecursionError, OSError):  # folders so deep that Python has no stack or no descriptors for them
            runner.run(["rm", "-rf", "--", made.name], cwd=Path("/"))


def remove(path: Path) -> None:
    """Remove the file ``path`` if it is there."""
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove the folder ``path`` and all that is in it."""
    import shutil  # brings much, and most commands remove none

    shutil.rmtree(path)


def rename(old: Path, new: Path) -> None:
    """Rename within one file system, replacing ``new``."""
    os.replace(old, new)
    sync_folder(new.parent)


def read_or_none(path: Path) -> bytes | None:
    """The bytes of ``path``, or None where there is no such file.

    :raises FormatError: if it is something else than a file, or has more than :data:`MOST` bytes.
    """
    return read_limited(path, MOST)


def read_limited(path: Path, most: int) -> bytes | None:
    """The bytes of a file that somebody else may have written; None where there is none.

    :raises FormatError: if it has more than ``most`` bytes, or is a pipe, a device or a folder; then it isn't read.
    """
    file = _open_regular(path)
    return read_all(file, path, most) if file else None


def read_all(file: BinaryIO, path: Path, most: int) -> bytes:
    """Return the bytes of an open file, which is closed.

    :raises FormatError: if it has more than ``most`` bytes.
    """
    with file:
        check_size(file, path, most)
        return file.read(most)


def check_size(file: BinaryIO, path: Path, most: int) -> None:
    """:raises FormatError: if an open file has more than ``most`` bytes."""
    refuse_larger(path, os.fstat(file.fileno()).st_size, most)


def refuse_larger(path: Path, size: int, most: int) -> None:
    """:raises FormatError: if the size of a file is more than ``most`` bytes."""
    if size > most:
        raise FormatError(
            f"{path} has {size} bytes; {most} are the most",
            hint="see the limits in docs/reference/formats.md",
        )


def _open_regular(path: Path) -> BinaryIO | None:
    try:
        # A pipe is not waited for.
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
    """Return the error for a pipe, a socket, a device or a folder in the place of a file."""
    return FormatError(f"{path} is no file", hint="put the file back, or take its name out of what names it")


def folds_case(path: Path) -> bool:
    """Whether the file system takes another name, in capitals or small letters, for ``path``, which exists."""
    try:
        return path.with_name(path.name.swapcase()).samefile(path)
    except FileNotFoundError:
        return False


def stat_key(path: Path) -> tuple[int, int, int]:
    """What changes when a file's content does: modification time in ns, size, inode.

    :raises FileNotFoundError: if there is no such file.
    """
    st = path.lstat()
    return st.st_mtime_ns, st.st_size, st.st_ino


def sha256_file(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits.

    :raises FileNotFoundError: if there is no such file.
    :raises FormatError: if it is something else than a file.
    """
    file = _open_regular(path)
    if file is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return sha256_open(file)


def sha256_open(file: BinaryIO) -> str:
    """Return the SHA-256 of an open file, which is closed."""
    with file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def dump_json(value: object) -> bytes:
    """JSON for files: sorted keys, indented, one newline at the end, UTF-8."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")


def load_state(data: bytes, path: Path, version: int) -> dict[str, Any]:
    """Parse a versioned state file.

    :raises StateTooNew, StateTooOld: if it was written for another version.
    :raises StateError: if it isn't a JSON object with a version.
    """
    hint = f"move {path} away and run `patchq apply`: state under .patchq is rebuilt from the lock"
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
        found = value["version"]
        if type(found) is not int:  # true is 1 elsewhere
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
    """Lock an open file until it is closed.

    :raises OSError: if another process holds the lock, or the file system has none.
    """
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def lock(path: Path, *, verb: str, wait: float) -> Iterator[bool]:
    """Hold the project's lock.

    It is a flock, so the kernel drops it when its holder dies, and the children inherit it, so
    that one that outlives a killed patchq still holds it (no library's lock does that). Beside
    it a file says who holds it. Yields whether the holder before was killed.

    :param wait: seconds to wait for another holder.
    :raises BusyError: naming the holder, when it hasn't let go by then.
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
                        f"the file system of {path.parent} keeps no locks ({error.strerror}), and patchq can't tell "
                        "two commands apart without",
                        hint="put the project on a local disk, or mount that one with locks",
                    ) from None
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                if time.monotonic() >= end:
                    raise BusyError(
                        f"another patchq is at work: {_describe_owner(owner)}",
                        hint="wait for it to end, or raise --wait SECONDS",
                    ) from None
                time.sleep(0.05)
        killed = owner.exists()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        said = f"pid {os.getpid()} on {os.uname().nodename}: patchq {verb}, since {now}\n"
        with os.fdopen(_open_own(owner, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(said)
        runner.inherited_fds.add(fd)
        try:
            yield killed
        finally:
            runner.inherited_fds.discard(fd)
            owner.unlink(missing_ok=True)
    finally:
        os.close(fd)


def _open_own(path: Path, flags: int) -> int:
    """Open a file of patchq's own: no link is followed, and no pipe is waited for.

    :raises StateError: if it is a link; FormatError: if it is something else than a file.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe or a socket
            raise not_regular(path) from None
        if error.errno != errno.ELOOP:
            raise
        raise StateError(f"{path} is a symbolic link; patchq follows none there", hint=f"remove {path}") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise not_regular(path)
    return fd


def _describe_owner(owner: Path) -> str:
    try:
        return (read_or_none(owner) or b"").decode(errors="replace").strip() or "unknown"
    except (OSError, FormatError):
        return "unknown"
