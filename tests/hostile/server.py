"""Run patchq commands for the hostile corpus, each in a forked process: ``python server.py``.

Importing patchq takes longer than most commands, so one process imports it and forks for each order. A line of JSON on
standard input is an order, a line on standard output is its answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

#: prctl: orphans of a command become children of this process, which can then see and end them.
PR_SET_CHILD_SUBREAPER = 36
#: prctl and capset, as <linux/prctl.h> and <linux/capability.h> have them.
PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
LINUX_CAPABILITY_VERSION_3 = 0x20080522
#: Seconds that a helper of a finished command, such as `git cat-file`, has to end by itself.
GRACE = 5.0
#: Memory that no command can pass, so that a bomb takes down no machine. The judge's own limit is lower.
ADDRESSES = 6 << 30


def serve() -> None:
    """Carry out orders until standard input ends."""
    import patchq.cli.commands

    for module in pkgutil.iter_modules(patchq.cli.commands.__path__):
        importlib.import_module(f"patchq.cli.commands.{module.name}")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        answer = carry_out(json.loads(line))
        print(json.dumps(answer), flush=True)


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Run one command; return its exit code (negative: the signal that ended it), seconds, and what it left running."""
    master = -1
    if order["terminal"]:
        master, slave = os.openpty()
        order["stdin"] = order["stdout"] = order["stderr"] = os.ttyname(slave)
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        become(order)
    shown: list[bytes] = []
    ended = wait_for(pid, began + order["seconds"], master, shown)
    if not ended:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    left = leftovers(GRACE if ended else 0)
    if master >= 0:
        os.close(slave)
        drain(master, shown)
        os.close(master)
        Path(order["shown"]).write_bytes(b"".join(shown))
    return {
        "code": os.waitstatus_to_exitcode(status),
        "hung": not ended,
        "wall": time.monotonic() - began,
        "cpu": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss * 1024,
        "left": left,
    }


def become(order: dict[str, Any]) -> None:
    """Turn the forked process into the ordered command; doesn't return."""
    os.setsid()
    os.umask(order["umask"])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    open_streams(order)
    os.chdir(order["cwd"])
    if order["remove_cwd"]:
        Path(order["cwd"]).rmdir()
    if order["unprivileged"] and os.geteuid() == 0:
        obey_permissions()
    if order["program"]:
        os.execve(order["program"][0], [*order["program"], *order["arguments"]], order["environment"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", errors="surrogateescape" if number == 0 else "strict", closefd=False)
        for number, mode in enumerate("rww")
    )
    sys.argv = ["patchq", *order["arguments"]]
    from patchq.cli import main

    sys.exit(main())


def obey_permissions() -> None:
    """Give up root's right to read and write whatever the permissions of a file say, here and in children."""
    libc = ctypes.CDLL(None, use_errno=True)
    keep = 0
    for capability in range(64):
        if capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        elif libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
            keep |= 1 << capability
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    low, high = keep & 0xFFFFFFFF, keep >> 32
    data = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())


def open_streams(order: dict[str, Any]) -> None:
    """Put the ordered files in the places of the standard streams; None closes one."""
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.close(number)
        if order[name] is not None:
            opened = os.open(order[name], flags[number] | os.O_NOCTTY, 0o666)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)


def wait_for(pid: int, until: float, master: int, shown: list[bytes]) -> bool:
    """Wait until a process ends; return False if it runs on past ``until``."""
    watched = os.pidfd_open(pid)
    try:
        while True:
            files = [watched] if master < 0 else [watched, master]
            ready = select.select(files, [], [], max(0.0, until - time.monotonic()))[0]
            if master in ready:
                drain(master, shown)
            if watched in ready:
                return True
            if time.monotonic() >= until:
                return False
    finally:
        os.close(watched)


def drain(master: int, shown: list[bytes]) -> None:
    """Copy what a terminal was sent."""
    os.set_blocking(master, False)
    with contextlib.suppress(BlockingIOError, OSError):
        while data := os.read(master, 1 << 16):
            shown.append(data)


def children() -> list[int]:
    """Return the processes whose parent is this one."""
    return [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def leftovers(grace: float) -> list[str]:
    """Name and end the processes that a command left running."""
    until = time.monotonic() + grace
    named: list[str] = []
    while True:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                return named
        if time.monotonic() > until:
            for pid in children():
                with contextlib.suppress(OSError):
                    named.append(
                        Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


if __name__ == "__main__":
    serve()
