"""The only door to subprocesses.

Arguments are lists, data is bytes, the working folder is passed and never changed. Git's
variables are scrubbed from the environment: an inherited ``GIT_DIR`` or ``GIT_INDEX_FILE`` (as
hooks and ``git rebase --exec`` set them) would send a command to somebody else's repository.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from patchq.errors import PatchqError

#: File descriptors that children inherit. The project lock is one: a child that outlives a
#: killed patchq keeps the lock until it has ended, so that nobody starts beside it.
inherited_fds: set[int] = set()
#: Exit code of a command that was killed because it took too long.
TIMED_OUT = 124

#: A command that has ended, and one that runs.
Done = subprocess.CompletedProcess[bytes]
Running = subprocess.Popen[bytes]
#: What other libraries raise when a command of theirs fails, and what waiting for one raises.
ProcessFailed = subprocess.CalledProcessError
TookTooLong = subprocess.TimeoutExpired


class CommandError(PatchqError):
    """A command failed; shows what was run, its code and what it said."""

    def __init__(self, argv: Sequence[str], code: int, stdout: bytes, stderr: bytes) -> None:
        self.argv, self.code, self.stdout, self.stderr = tuple(argv), code, stdout, stderr
        said = (stderr or stdout).decode("utf-8", "replace").strip()
        super().__init__(
            f"`{shlex.join(argv)}` ended with {code}:\n{said}",
            hint="run that command by hand to see more",
        )

    @property
    def said(self) -> str:
        """What it wrote to standard error, for people."""
        return self.stderr.decode("utf-8", "replace").strip()


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without git's variables, plus ``extra``."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") or k.startswith("GIT_SSL_")}
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

    :param timeout: seconds; past it the command is killed and counts as failed with code 124.
    :param ok_codes: exit codes that are answers, not failures.
    :param inherit: False for a command that isn't to hold the project's lock.
    :param most_said: bytes of the beginning and of the end of its standard error that are kept; else all.
    :raises CommandError: for any other exit code, or a program that isn't there (127) or can't be run (126).
    """
    ends = _Ends(most_said) if most_said is not None else None
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
        said = (ends.kept if ends else error.stderr) or b""
        raise CommandError(argv, TIMED_OUT, b"", said + f"no answer in {timeout:g} s".encode()) from None
    if done.returncode not in ok_codes:
        raise CommandError(argv, done.returncode, done.stdout, done.stderr)
    return done


class _Ends:
    """The beginning and the end of what is said, each ``most`` bytes, however much that is."""

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
        """A file descriptor for a child to write to; what comes there is kept so, by the end of the block."""
        source, target = os.pipe()

        def read() -> None:
            with open(source, "rb", buffering=0) as said:
                while chunk := said.read(1 << 16):
                    self.add(chunk)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield target
        finally:
            os.close(target)
            # A child of the child may hold it open, and say nothing: it isn't waited for.
            reader.join(1)


#: Seconds between two looks at a command that is watched, and its exit code if it was ended for what was seen.
_LOOK, STOPPED = 0.05, 125


def overhear(
    argv: Sequence[str],
    *,
    cwd: Path,
    data: bytes = b"",
    timeout: float,
    most: int = 1 << 16,
    watch: Callable[[int, int], bool] = lambda pid, said: False,
    end: Callable[[Running], None] = Running.kill,
) -> tuple[int, bytes]:
    """Run somebody else's command, which doesn't hold the project's lock; returns its code and what it complained of.

    However much it says: of its standard error the beginning and the end are kept, each ``most`` bytes; of its
    standard output nothing.

    :param timeout: seconds; past it the command is killed and counts as failed with code 124.
    :param watch: called again and again with its process id and the bytes that it wrote to both outputs; if it returns
        True, the command is killed and counts as failed with :data:`STOPPED`.
    :param end: how to kill it.
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
        said, look = 0, 0.0
        try:
            while (now := time.monotonic()) < until:
                if now >= look:
                    if watch(process.pid, said):
                        return STOPPED, ends.kept
                    look = time.monotonic() + _LOOK
                left = max(0.0, min(look, until) - now)
                if not ready.get_map():
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(left), ends.kept
                for key, _ in ready.select(left) if ready.get_map() else ():
                    chunk = os.read(key.fd, most)
                    said += len(chunk)
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
    """A running command whose standard input is open for writing.

    It is killed when the block raises; when the block ends, its input is closed and a failure
    raises :class:`CommandError`.
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
            pass  # the command died; its own words are told below
        except BaseException:
            process.kill()
            # What is still in the buffer has no reader: its BrokenPipeError would hide the real error.
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
    """A command that answers on its standard output what it is asked on its standard input, until the block ends.

    :param buffered: both are; a buffer has a lock, which a fork could find held for ever.
    """
    with subprocess.Popen(
        list(argv),
        bufsize=-1 if buffered else 0,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=clean_environment(env),
        # No lock is inherited: it outlives what is done under one, and ends with its standard input.
    ) as process:
        try:
            yield process
        finally:
            process.kill()
