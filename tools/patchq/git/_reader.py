"""A ``git cat-file`` that stays and is asked again: it answers sooner than another one is started.

An object's name is its content, so that what it says stays true, even of one that is gone meanwhile; where it says
nothing, or that something isn't there, a new one is asked.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar, cast

from patchq.git.command import Command, pinned
from patchq.system import runner

Name = TypeVar("Name", bound=str)
#: Names that are asked for together: with what is asked less than a page, which any pipe holds, so that neither side
#: waits for the other.
AT_ONCE = 64
#: Readers that stay, each of another repository or environment.
_MOST = 3


class Reader:
    """One of them, for one thread at a time."""

    def __init__(self, git: Command) -> None:
        self._open = contextlib.ExitStack()
        self._process = self._open.enter_context(git.answering("cat-file", "--batch-command"))
        self._lock = threading.Lock()
        self.ended = False

    def contents(self, names: Sequence[Name]) -> dict[Name, bytes] | None:
        """The bytes of objects by these names, without those that it can't find; None where it has no answer."""
        return self._ask("contents", names)

    def ids(self, names: Sequence[Name]) -> dict[Name, str] | None:
        """The ids of objects that these names lead to, as :meth:`contents`."""
        found = self._ask("info", names)
        return None if found is None else {name: oid.decode() for name, oid in found.items()}

    def _ask(self, command: str, names: Sequence[Name]) -> dict[Name, bytes] | None:
        if any("\n" in name for name in names):
            return None  # it would be two, and each answer after it another's
        if not self._lock.acquire(blocking=False):
            return None  # another thread asks
        try:
            with self._said() as source:
                return self._answers(source, command, names)
        except (OSError, ValueError):
            self.ended = True  # it ended, or was ended
            return None
        except BaseException:
            self.ended = True  # half of an answer is left in it
            raise
        finally:
            if self.ended:
                self._end()
            self._lock.release()

    @contextlib.contextmanager
    def _said(self) -> Iterator[IO[bytes]]:
        """What it answers, buffered for this once: what stays has no lock, which a fork could find held for ever."""
        source = io.BufferedReader(cast(io.RawIOBase, self._process.stdout))
        try:
            yield source
        finally:
            with contextlib.suppress(ValueError):  # it is closed
                source.detach()

    def _answers(self, source: IO[bytes], command: str, names: Sequence[Name]) -> dict[Name, bytes]:
        target = self._process.stdin
        assert target
        found: dict[Name, bytes] = {}
        for start in range(0, len(names), AT_ONCE):
            part = names[start : start + AT_ONCE]
            asked = "".join(f"{command} {name}\n" for name in part).encode()
            while asked:
                asked = asked[target.write(asked) :]
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

    def close(self) -> None:
        """End it; whatever it is asked afterwards, it has no answer."""
        self.ended = True
        self._process.kill()
        if self._lock.acquire(blocking=False):  # else who asks sees that it ended
            try:
                self._end()
            finally:
                self._lock.release()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._open.close()

    def abandon(self) -> None:
        """Leave it to whom it was forked from."""
        self._process.returncode = 0
        self._open.pop_all()


_Key = tuple[Path, tuple[tuple[str, str], ...]]
_staying: OrderedDict[_Key, Reader] = OrderedDict()
#: One thread may have it twice: garbage that is collected anywhere may be a scratch, which forgets.
_changing = threading.RLock()


def reader(git: Command) -> Reader | None:
    """The reader of a repository, in the environment as it is; None where none can be started."""
    key = (git.folder, tuple(sorted(runner.clean_environment({**pinned(), **git.place()}).items())))
    with _changing:
        found = _staying.get(key)
        if found is None or found.ended:
            try:
                found = Reader(git)
            except OSError:
                return None
            _staying[key] = found
        _staying.move_to_end(key)
        while len(_staying) > _MOST:
            _staying.popitem(last=False)[1].close()
        return found


def forget(folder: Path) -> None:
    """End the readers of a repository."""
    with _changing:
        for key in [key for key in _staying if key[0] == folder]:
            _staying.pop(key).close()


def _forget_all() -> None:
    with _changing:
        while _staying:
            _staying.popitem()[1].close()


def _abandon_all() -> None:
    global _changing
    _changing = threading.RLock()  # a thread that isn't here may have had it
    for found in _staying.values():
        found.abandon()
    _staying.clear()


atexit.register(_forget_all)
os.register_at_fork(after_in_child=_abandon_all)
