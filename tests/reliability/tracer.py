"""Runs a function in a child and meddles with one of its system calls, or of its children's.

The child is traced (ptrace), and a seccomp filter stops it, and all that it starts, before each
system call that creates, writes, renames or removes something or starts a program. The stops are
counted over all its processes; at the chosen one a process is killed, all of them are, or from
there on the disk is full. That is every point at which a power switch, an out-of-memory killer or
a full disk can meet a command, git's own system calls among them.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import platform
import signal
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]

# System calls by number (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
_X86_64 = {
    "write": 1, "pwrite64": 18, "writev": 20, "sendfile": 40, "execve": 59, "truncate": 76, "ftruncate": 77,
    "rename": 82, "mkdir": 83, "rmdir": 84, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "fchmod": 91,
    "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266,
    "fchmodat": 268, "utimensat": 280, "renameat2": 316, "copy_file_range": 326,
    "fsync": 74, "fdatasync": 75, "sync": 162, "syncfs": 306,
}  # fmt: skip
_AARCH64 = {
    "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46,
    "fchmod": 52, "fchmodat": 53, "openat": 56, "write": 64, "writev": 66, "pwrite64": 68, "sendfile": 71,
    "utimensat": 88, "execve": 221, "renameat2": 276, "copy_file_range": 285,
    "fsync": 82, "fdatasync": 83, "sync": 81, "syncfs": 267,
}  # fmt: skip
CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}[platform.machine()]
_NAMES = list(CALLS)
#: Those that need room on the disk: with a full one they fail.
_NEED_ROOM = {
    "write", "pwrite64", "writev", "openat", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "link", "linkat",
    "symlink", "symlinkat", "sendfile", "copy_file_range",
}  # fmt: skip
_TO_A_FILE = {"write", "pwrite64", "writev"}
_CHANGE_CONTENT = {*_TO_A_FILE, "ftruncate"}
#: Those that make what was written last. They change nothing themselves, and are no stops.
_SYNC = {"fsync", "fdatasync", "sync", "syncfs"}

_TRACEME, _CONT, _SETOPTIONS, _POKEUSER, _SYSCALL_INFO = 0, 7, 0x4200, 6, 0x420E
_OPTIONS = 0x100000 | 0x80 | 0x10 | 0x8 | 0x4 | 0x2  # EXITKILL, SECCOMP, EXEC, CLONE, VFORK, FORK
_EVENT_SECCOMP = 7
_WALL = 0x40000000


class Fault(enum.Enum):
    """What happens at the chosen stop."""

    NONE = "none"
    KILL_ALL = "every process killed"
    KILL_ONE = "the process that is there killed"
    DISK_FULL = "the disk full from there on"
    POWER_CUT = "the power cut there"


@dataclass(slots=True)
class Outcome:
    """How the child ended: its wait status, its stops, and what was at the chosen one.

    :ivar unsynced: device and inode of the files whose last writes no fsync has made last.
    """

    status: int = 0
    stops: int = 0
    at: str = ""
    calls: list[str] = field(default_factory=list)
    unsynced: set[tuple[int, int]] = field(default_factory=set)

    def note(self, pid: int, call: str, fd: int) -> None:
        """Keep account of what a power cut would take."""
        if call in ("sync", "syncfs"):
            self.unsynced.clear()
        elif call in _SYNC or call in _CHANGE_CONTENT:
            try:
                found = os.stat(f"/proc/{pid}/fd/{fd}")
            except OSError:
                return
            if stat.S_ISREG(found.st_mode):
                (self.unsynced.discard if call in _SYNC else self.unsynced.add)((found.st_dev, found.st_ino))

    @property
    def exit_code(self) -> int:
        """The exit code; a signal's number, negative, where one ended it."""
        return os.waitstatus_to_exitcode(self.status)


def _filter() -> bytes:
    """The seccomp filter: the calls of the table stop, with their index; the others pass."""

    def statement(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, k)

    load, equal, has, answer = 0x20, 0x15, 0x45, 0x06
    out = [statement(load, 0)]
    for index, name in enumerate(_NAMES):
        trace = statement(answer, 0x7FF00000 | index)
        if name == "openat":  # only one that makes or empties a file; its flags are the third argument
            flags = os.O_CREAT | os.O_TRUNC
            block = [statement(load, 16 + 8 * 2), statement(has, flags, 0, 1), trace, statement(answer, 0x7FFF0000)]
        else:
            block = [trace]
        out += [statement(equal, CALLS[name], 0, len(block)), *block]
    return b"".join([*out, statement(answer, 0x7FFF0000)])


def _watch_me() -> None:
    """In the child: be traced, and stop at the calls of the table from here on."""
    code = _filter()
    program = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(program)))
    if _libc.ptrace(_TRACEME, 0, None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.kill(os.getpid(), signal.SIGSTOP)
    if _libc.prctl(38, 1, 0, 0, 0) or _libc.prctl(22, 2, ctypes.addressof(header), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) and ctypes.get_errno() != errno.ESRCH:
        raise OSError(ctypes.get_errno(), f"ptrace {request}")


def _stopped_at(pid: int) -> tuple[str, int]:
    """The call that ``pid`` is about to make, and its first argument."""
    info = ctypes.create_string_buffer(96)
    _libc.ptrace(_SYSCALL_INFO, pid, ctypes.c_void_p(len(info)), ctypes.addressof(info))
    # struct ptrace_syscall_info: op, padding, arch, two pointers; then nr, args[6], the filter's data
    index = struct.unpack_from("I", info, 24 + 8 * 7)[0]
    return _NAMES[index], struct.unpack_from("Q", info, 32)[0]


def _counts(pid: int, call: str, first: int) -> bool:
    """Whether the call changes something that lasts: a write to a pipe or a device doesn't."""
    if call not in _TO_A_FILE:
        return True
    try:
        return stat.S_ISREG(os.stat(f"/proc/{pid}/fd/{first}").st_mode)
    except OSError:
        return False


def _fail(pid: int, code: int) -> None:
    """Let the call that ``pid`` is about to make not happen and fail with ``code``."""
    assert platform.machine() == "x86_64", "failing a call is written for x86-64 alone"
    for register, value in ((15, -1), (10, -code)):  # orig_rax, rax in struct user_regs_struct
        _libc.ptrace(_POKEUSER, pid, ctypes.c_void_p(8 * register), ctypes.c_void_p(value & (2**64 - 1)))


def _program(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "?"


def traced(work: Callable[[], int], fault: Fault = Fault.NONE, at: int = 0) -> Outcome:
    """Run ``work`` in a child, whose exit code it returns, and meddle at stop ``at`` (from 1)."""
    child = os.fork()
    if child == 0:
        code = 120
        try:
            _watch_me()
            code = work()
        finally:
            os._exit(code)
    os.waitpid(child, _WALL)
    _ptrace(_SETOPTIONS, child, _OPTIONS)
    _ptrace(_CONT, child)
    outcome, alive = Outcome(), {child}
    try:
        while alive:
            pid, status = os.waitpid(-1, _WALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                alive.discard(pid)
                if pid == child:
                    outcome.status = status
                continue
            event = status >> 16
            known = pid in alive
            alive.add(pid)
            if event == _EVENT_SECCOMP:
                call, first = _stopped_at(pid)
                outcome.note(pid, call, first)
                if call not in _SYNC and _counts(pid, call, first):
                    outcome.stops += 1
                    if fault is Fault.NONE:
                        outcome.calls.append(f"{_program(pid)}: {call}")
                    elif outcome.stops == at:
                        outcome.at = f"{_program(pid)}: {call}"
                        at_once = fault in (Fault.KILL_ALL, Fault.POWER_CUT)
                        for victim in alive if at_once else [pid] if fault is Fault.KILL_ONE else []:
                            os.kill(victim, signal.SIGKILL)
                    if fault is Fault.DISK_FULL and outcome.stops >= at and call in _NEED_ROOM:
                        _fail(pid, errno.ENOSPC)
                _ptrace(_CONT, pid)
            elif event or (not known and os.WSTOPSIG(status) == signal.SIGSTOP):
                _ptrace(_CONT, pid)  # a fork, an exec, or a new child's first stop
            else:
                passed = os.WSTOPSIG(status)
                _ptrace(_CONT, pid, 0 if passed == signal.SIGTRAP else passed)
    finally:
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
    return outcome
