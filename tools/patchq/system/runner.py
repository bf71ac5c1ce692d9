"""Subprocesses. Apart from the pytest plugin, only this module starts subprocesses.

Arguments are lists, data is bytes, and the working folder is a parameter, because patchq never changes its own working
folder. git's variables are removed from the environment. Hooks and ``git rebase --exec`` set ``GIT_DIR`` or
``GIT_INDEX_FILE``, and a command that inherits these variables would use another repository.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar, TypeVar

from patchq.errors import PatchqError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: File descriptors that child processes inherit, such as the project's lock. A child that outlives
#: a killed patchq holds the lock until it ends, so that no other patchq starts next to it.
inherited_fds: set[int] = set()
#: Exit code of a command that was killed because it took too long.
TIMED_OUT = 124

#: Types of an ended and of a running command.
Done = subprocess.CompletedProcess[bytes]
Running = subprocess.Popen[bytes]
#: Exceptions of :mod:`subprocess`: a command failed, and a command took too long.
ProcessFailed = subprocess.CalledProcessError
TookTooLong = subprocess.TimeoutExpired


class CommandError(PatchqError):
    """Error for a failed command, with its arguments, exit code and output."""

    #: True for a git command that failed because its repository lacks an object.
    lacks_object = False
    #: True after a signal has ended any process. That process may have left lock files, even if the error is caught.
    by_signal: ClassVar[bool] = False

    def __init__(self, argv: Sequence[str], code: int, stdout: bytes, stderr: bytes) -> None:
        self.argv, self.code, self.stdout, self.stderr = tuple(argv), code, stdout, stderr
        if code < 0:
            CommandError.by_signal = True
        message = (stderr or stdout).decode("utf-8", "replace").strip()
        super().__init__(
            f"`{shlex.join(argv)}` ended with {code}:\n{message}",
            hint="run that command by hand to see more",
        )

    @property
    def output(self) -> str:
        """Standard error of the command, decoded for display."""
        return self.stderr.decode("utf-8", "replace").strip()


def in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Call ``work`` on each item, each in its own thread, and return the results in the order of the items.

    If an item fails, raise its error after all threads have ended. If several items fail, raise the first item's error.

    ``concurrent.futures`` isn't used: it imports ``logging``, which takes a noticeable part of a short command's time.
    """
    results: dict[int, _Result] = {}
    errors: dict[int, BaseException] = {}

    def do(number: int, item: _Item) -> None:
        try:
            results[number] = work(item)
        except BaseException as error:
            errors[number] = error

    threads = []
    for number, item in enumerate(items):
        threads.append(threading.Thread(target=do, args=(number, item)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for number in sorted(errors):
        raise errors[number]
    return [results[number] for number in range(len(threads))]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment without git's variables, except ``GIT_SSL_*``, and with ``extra`` added."""
    env = {}
    for k, v in os.environ.items():
        if not k.startswith("GIT_") or k.startswith("GIT_SSL_"):
            env[k] = v
    env.update(LC_ALL="C.UTF-8", GIT_TERMINAL_PROMPT="0", GIT_OPTIONAL_LOCKS="0")
    env.update(extra or {})
    return env


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    data: bytes | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    ok_codes: Sequence[int] = (0,),
    inherit: bool = True,
    most_said: int | None = None,
) -> Done:
    """Run ``argv`` and return its output as bytes.

    :param timeout: seconds after which the command is killed and fails with code 124.
    :param ok_codes: exit codes that don't count as failures.
    :param inherit: False for a command that must not hold the project's lock.
    :param most_said: number of bytes to keep from the beginning and from the end of standard error; None for all.
    :raises CommandError: for an exit code that isn't in ``ok_codes``, a missing program (127), or a program that can't
        be run (126).
    """
    ends = None
    if most_said is not None:
        ends = _Ends(most_said)
    try:
        with ends.reading() if ends else nullcontext(subprocess.PIPE) as stderr:
            done = subprocess.run(
                argv,
                cwd=cwd,
                input=data if data is not None else b"",
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=clean_environment(env),
                timeout=timeout,
                pass_fds=tuple(inherited_fds) if inherit else (),
                check=False,
            )
        if ends:
            done.stderr = ends.kept
    except FileNotFoundError as error:
        raise CommandError(argv, 127, b"", f"{error}".encode()) from None
    except OSError as error:
        raise CommandError(argv, 126, b"", f"{error}".encode()) from None
    except subprocess.TimeoutExpired as error:
        message = (ends.kept if ends else error.stderr) or b""
        raise CommandError(argv, TIMED_OUT, b"", message + f"no answer in {timeout:g} s".encode()) from None
    if done.returncode not in ok_codes:
        raise CommandError(argv, done.returncode, done.stdout, done.stderr)
    return done


class _Ends:
    """Buffer for an output of any length. It keeps only the first and the last ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._begin, self._end = most, bytearray(), bytearray()

    @property
    def kept(self) -> bytes:
        return bytes(self._begin + self._end)

    def add(self, chunk: bytes) -> None:
        room = self._most - len(self._begin)
        self._begin += chunk[:room]
        self._end = (self._end + chunk[room:])[-self._most :]

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Yield a file descriptor to which a child process can write. ``kept`` is complete after the block."""
        source, target = os.pipe()

        def read() -> None:
            with open(source, "rb", buffering=0) as message:
                while chunk := message.read(1 << 16):
                    self.add(chunk)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield target
        finally:
            os.close(target)
            # Don't wait for a grandchild that keeps the descriptor open without writing.
            reader.join(1)


#: Seconds between two checks of a watched command, and the exit code of a command that ``watch`` stopped.
_LOOK, STOPPED = 0.05, 125


def overhear(
    argv: Sequence[str],
    *,
    cwd: Path,
    data: bytes = b"",
    timeout: float,
    most: int = 1 << 16,
    watch: Callable[[int, int], bool] = lambda pid, message: False,
    end: Callable[[Running], None] = Running.kill,
) -> tuple[int, bytes]:
    """Run an untrusted command, and return its exit code and its standard error.

    The command doesn't inherit the project's lock. Only the first and the last ``most`` bytes of standard error are
    kept. Standard output is discarded.

    :param timeout: seconds after which the command is killed and fails with code 124.
    :param watch: function that is called repeatedly, with the process id and the number of bytes that the command has
        written to standard output and standard error. If it returns True, the command is killed and fails with
        :data:`STOPPED`.
    :param end: function that kills the command.
    """
    import tempfile

    ends, until = _Ends(most), time.monotonic() + timeout
    with tempfile.TemporaryFile() as source:
        source.write(data)
        source.seek(0)
        try:
            process = subprocess.Popen(
                list(argv),
                cwd=cwd,
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=clean_environment(),
            )
        except OSError as error:
            return 127 if isinstance(error, FileNotFoundError) else 126, f"{error}".encode()
    with process, selectors.DefaultSelector() as ready:
        for output in filter(None, (process.stdout, process.stderr)):
            ready.register(output, selectors.EVENT_READ)
        message, look = 0, 0.0
        try:
            while (now := time.monotonic()) < until:
                if now >= look:
                    if watch(process.pid, message):
                        return STOPPED, ends.kept
                    look = time.monotonic() + _LOOK
                left = max(0.0, min(look, until) - now)
                if not ready.get_map():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(left), ends.kept
                for key, _ in ready.select(left) if ready.get_map() else ():
                    chunk = os.read(key.fd, most)
                    message += len(chunk)
                    if not chunk:
                        ready.unregister(key.fileobj)
                    elif key.fileobj is process.stderr:
                        ends.add(chunk)
            return TIMED_OUT, ends.kept + f"no answer in {timeout:g} s".encode()
        finally:
            if process.poll() is None:
                end(process)


@contextmanager
def feed(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command and yield its process, with the standard input open for writing.

    When the block ends, the input is closed, and the command can finish. If the block raises, the command is killed.

    :raises CommandError: if the command fails.
    """
    with subprocess.Popen(
        list(argv),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=clean_environment(env),
        pass_fds=tuple(inherited_fds),
    ) as process:
        try:
            yield process
        except BrokenPipeError:
            pass  # the command died; its own message is raised below
        except BaseException:
            process.kill()
            # Flushing the buffer would raise a BrokenPipeError, which would hide the real error.
            with contextlib.suppress(OSError):
                process.stdin.close()  # type: ignore[union-attr]
            raise
        _, stderr = process.communicate()
        if process.returncode:
            raise CommandError(argv, process.returncode, b"", stderr)


@contextmanager
def answering(
    argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None, buffered: bool = True
) -> Iterator[Running]:
    """Start a command that answers requests, and yield its process. Kill the command at the end of the block.

    The command reads requests from its standard input and writes answers to its standard output.

    :param buffered: True to buffer both streams. Use False in a process that forks: a buffer has a lock, which a fork
        could copy while it is held.
    """
    with subprocess.Popen(
        list(argv),
        bufsize=-1 if buffered else 0,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment(env),
        # The project's lock isn't inherited: the command outlives the locked work, and ends with
        # its standard input.
    ) as process:
        try:
            yield process
        finally:
            process.kill()
