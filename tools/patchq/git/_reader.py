"""Persistent ``git cat-file`` and ``git merge-tree`` processes, reused to avoid start-up cost.

Reusing a process is safe, because git's objects are immutable and a merge of trees always gives the same result. If a
persistent process fails, or if another thread is using it, the caller starts a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar, cast

from patchq.git.command import Command, pinned
from patchq.system import runner

Name = TypeVar("Name", bound=str)
T = TypeVar("T")
#: Maximum number of names in one batch. A batch is smaller than a memory page and fits into any pipe, so writing it
#: can't deadlock.
AT_ONCE = 64
#: Maximum number of persistent processes. Each serves one repository and environment.
_MOST = 6
#: Number of merges after which a process is ended.
_MOST_MERGES = 2000


class _Persistent:
    """Git process that answers requests, for one thread at a time."""

    def __init__(self, git: Command, argv: Sequence[str]) -> None:
        self._open = contextlib.ExitStack()
        self._process = self._open.enter_context(git.answering(*argv))
        self._lock = threading.Lock()
        self.ended = False

    def _use(self, ask: Callable[[IO[bytes]], T]) -> T | None:
        """Call ``ask`` with a reader of the process's output; return None if the process can't be used."""
        if not self._lock.acquire(blocking=False):
            return None  # in use by another thread
        try:
            with self._said() as source:
                return ask(source)
        except (OSError, ValueError):
            self.ended = True
            return None
        except BaseException:
            self.ended = True  # the rest of an answer is still in the pipe
            raise
        finally:
            if self.ended:
                self._end()
            self._lock.release()

    @contextlib.contextmanager
    def _said(self) -> Iterator[IO[bytes]]:
        """Yield a buffered reader of the process's output.

        The buffer is created for each call. A permanent buffer has a lock, and a fork could copy the lock while it is
        held.
        """
        source = io.BufferedReader(cast(io.RawIOBase, self._process.stdout))
        try:
            yield source
        finally:
            with contextlib.suppress(ValueError):  # closed by another thread
                source.detach()

    def _send(self, requests: str) -> None:
        target, data = self._process.stdin, requests.encode()
        assert target
        while data:
            data = data[target.write(data) :]

    def close(self) -> None:
        """End the process. Later requests return None."""
        self.ended = True
        self._process.kill()
        if self._lock.acquire(blocking=False):  # otherwise the thread that holds the lock cleans up
            try:
                self._end()
            finally:
                self._lock.release()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._open.close()

    def abandon(self) -> None:
        """Stop using the process in a forked child, because it belongs to the parent."""
        self._process.returncode = 0
        self._open.pop_all()


class ObjectReader(_Persistent):
    """Persistent ``git cat-file`` process."""

    def __init__(self, git: Command) -> None:
        super().__init__(git, ("cat-file", "--batch-command"))

    def contents(self, names: Sequence[Name]) -> dict[Name, bytes] | None:
        """Return the contents of objects by name. Leave out missing objects. None if the process can't be used."""
        return self._ask("contents", names)

    def ids(self, names: Sequence[Name]) -> dict[Name, str] | None:
        """Return the ids of objects by name. Leave out missing objects. None if the process can't be used."""
        found = self._ask("info", names)
        if found is None:
            return None
        return {name: oid.decode() for name, oid in found.items()}

    def _ask(self, command: str, names: Sequence[Name]) -> dict[Name, bytes] | None:
        if any("\n" in name for name in names):
            return None  # a newline in a name would split the request
        return self._use(lambda source: self._answers(source, command, names))

    def _answers(self, source: IO[bytes], command: str, names: Sequence[Name]) -> dict[Name, bytes]:
        found: dict[Name, bytes] = {}
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            self._send("".join(f"{command} {name}\n" for name in part))
            for name in part:
                line = source.readline()
                words = line.split()
                if not line.endswith(b"\n"):
                    raise OSError("it ended")
                if len(words) != 3 or not words[2].isdigit():
                    continue  # `NAME missing`, or `ambiguous`
                found[name] = words[0]
                if command == "contents":
                    size = int(words[2])
                    found[name] = source.read(size)
                    if len(found[name]) != size or source.read(1) != b"\n":
                        raise OSError("it ended")
        return found


class TreeMerger(_Persistent):
    """Persistent ``git merge-tree --stdin`` process. git must be 2.50 or newer, because it must flush each result.

    git keeps some memory for each merged tree, so the process is ended after :data:`_MOST_MERGES` merges.

    :param argv: arguments of git, with its configuration.
    """

    def __init__(self, git: Command, argv: Sequence[str]) -> None:
        super().__init__(git, argv)
        self._count = 0

    def merge(self, lines: Sequence[str]) -> bytes | None:
        """Return the results for these lines of input; None if the process can't be used."""
        return self._use(lambda source: self._results(source, lines))

    def _results(self, source: IO[bytes], lines: Sequence[str]) -> bytes:
        found = bytearray()
        for start in range(0, len(lines), AT_ONCE // 4):
            part = lines[start : start + AT_ONCE // 4]
            self._send("".join(part))
            for _ in part:
                # A result ends with an empty field: the status and the tree come before it.
                found += _field(source) + _field(source)
                while (field := _field(source)) != b"\0":
                    found += field
                found += b"\0"
        self._count += len(lines)
        self.ended = self._count >= _MOST_MERGES
        return bytes(found)


def _field(source: IO[bytes]) -> bytes:
    """Read one field, including the NUL byte that ends it."""
    found = bytearray()
    while byte := source.read(1):
        found += byte
        if byte == b"\0":
            return bytes(found)
    raise OSError("it ended")


P = TypeVar("P", bound=_Persistent)
_Key = tuple[Path, tuple[tuple[str, str], ...], tuple[str, ...], int]
_staying: OrderedDict[_Key, _Persistent] = OrderedDict()
#: Reentrant: garbage collection may close a scratch repository at any time, and this calls `forget`.
_changing = threading.RLock()


def reader(git: Command) -> ObjectReader | None:
    """Return the persistent reader of a repository in the current environment; None if git can't start."""
    return _find(git, (), 0, lambda: ObjectReader(git))


def merger(git: Command, argv: Sequence[str], number: int) -> TreeMerger | None:
    """Return a persistent process that merges trees of a repository; None if git can't start.

    :param number: number that identifies one of several processes with the same command.
    """
    return _find(git, tuple(argv), number, lambda: TreeMerger(git, argv))


def _find(git: Command, argv: tuple[str, ...], number: int, start: Callable[[], P]) -> P | None:
    """Return the persistent process for a repository, a command and the current environment. Start it if necessary."""
    environment = runner.clean_environment({**pinned(), **git.place()})
    key = (git.folder, tuple(sorted(environment.items())), argv, number)
    with _changing:
        found = cast("P | None", _staying.get(key))
        if found is None or found.ended:
            try:
                found = start()
            except OSError:
                return None
            _staying[key] = found
        _staying.move_to_end(key)
        while len(_staying) > _MOST:
            _staying.popitem(last=False)[1].close()
        return found


def forget(folder: Path) -> None:
    """End the persistent processes of a repository."""
    with _changing:
        for key in [key for key in _staying if key[0] == folder]:
            _staying.pop(key).close()


def _forget_all() -> None:
    with _changing:
        while _staying:
            _staying.popitem()[1].close()


def _abandon_all() -> None:
    global _changing
    _changing = threading.RLock()  # a thread of the parent may have held the old lock
    for found in _staying.values():
        found.abandon()
    _staying.clear()


atexit.register(_forget_all)
os.register_at_fork(after_in_child=_abandon_all)
