"""Sandbox for untrusted commands. A command can change only a copy of files, and can't use the network.

Time, processes, memory, disk space and output are limited. patchq checks these limits from outside the
sandbox, because users can't create control groups on every system. Some values can grow faster than patchq checks
them. Therefore, the kernel also limits the size of a file, the memory of one process and the number of processes.
For root, the number of processes is only limited since Linux 6.14, because ``RLIMIT_NPROC`` doesn't apply to root.

The sandbox uses Linux namespaces (``unshare`` of util-linux). They need no privileges if unprivileged user namespaces
are enabled. The command can read programs and libraries (``/usr``, ``/bin``, ``/lib``), and can write to its own
``/tmp`` and to the copy at ``/src``. It runs without capabilities, and without the user's environment variables. It has
its own process namespace, so all its child processes end with it. If the sandbox can't be set up, the command isn't
run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from patchq.errors import UserError
from patchq.names import sh, show_path
from patchq.system import runner

#: Paths of the copy and of the read-only folder inside the sandbox.
SOURCE, BESIDE = "/src", "/context"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Arguments: $1 an empty folder; $2 the copy; $3 a read-only folder, or empty; $4 Python's folder, or empty; $5 size
#: limit of a file, in blocks; $6 limit of the user's processes; $7 highest process id; $8 memory limit of one process;
#: $9 the root folder, or empty; $10 commands that mount folders below the root folder. The command follows.
_SETUP = r"""
root=$1 copy=$2 beside=$3 python=$4 blocks=$5 processes=$6 last=$7 memory=$8 image=$9 more=${10}; shift 10
read_only() {
    found=
    while read -r _ _ _ _ point options _; do
        case $point in "$1"|"$1"/*)
            options=${options#r[ow]}
            mount -o "remount,bind,ro$options" "$point"
            found=1;;
        esac
    done < /proc/self/mountinfo
    # The kernel writes blanks in names otherwise: what isn't found there is writable still.
    [ "$found" ] || { echo "$1 can't be made read-only" >&2; exit 1; }
}
show() {
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    read_only "$root$2"
}
place() {
    mount --bind "$2" "$root$3"
    if [ "$1" = ro ]; then read_only "$root$3"; else mount -o remount,bind,nosuid,nodev "$root$3"; fi
}
mount --make-rprivate /
if [ "$image" ]; then mount --bind "$image" "$root"
else mount -t tmpfs -o nosuid,nodev,size=16m,mode=755 tmpfs "$root"; fi
for name in usr bin sbin lib lib32 lib64 libx32; do
    if [ -L "$root/$name" ]; then :
    elif [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$root/$name"
    elif [ -d "/$name" ]; then show "/$name" "/$name"; fi
done
if [ "$image" ]; then
    show /usr /.host/usr
    [ -d "$root/old" ] || mkdir "$root/old"
    mount -t tmpfs -o nosuid,nodev,size=1m,mode=755 tmpfs "$root/dev"
else
    mkdir "$root/etc" "$root/dev" "$root/proc" "$root/tmp" "$root/src" "$root/old"
    for name in ld.so.cache alternatives; do
        if [ -e "/etc/$name" ]; then cp -a "/etc/$name" "$root/etc/"; fi
    done
    echo 'root:x:0:0:root:/tmp:/bin/sh' > "$root/etc/passwd"
fi
for name in null zero urandom; do : > "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
if mount -t proc -o nosuid,nodev,noexec proc "$root/proc" 2>/dev/null; then
    # Each namespace of processes has a limit of its own since Linux 6.14; before, it is the machine's and isn't ours.
    (echo "$last" > "$root/proc/sys/kernel/pid_max") 2>/dev/null || :
    mount -o remount,ro,nosuid,nodev,noexec "$root/proc"
fi
if [ -z "$image" ]; then
    mount -t tmpfs -o nosuid,nodev,size=512m tmpfs "$root/tmp"
    place rw "$copy" /src
fi
[ -z "$beside" ] || show "$beside" /context
[ -z "$python" ] || show "$python" "$python"
eval "$more"
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
if [ "$image" ]; then mount -o remount,bind,nosuid,nodev /; cd /
else mount -o remount,ro,nosuid,nodev /; cd /src; fi
ulimit -c 0
ulimit -f "$blocks"
exec nice -n 19 prlimit --nproc="$processes" --data="$memory" -- \
    setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
"""


class Limit(Enum):
    """Resource that is limited for a sandboxed command."""

    TIME = "time"
    PROCESSES = "processes"
    MEMORY = "memory"
    DISK = "disk"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a sandboxed command.

    :ivar seconds: time from the command's start to its end.
    :ivar processes: number of processes and threads at the same time.
    :ivar memory: memory of all the command's processes together, in bytes, without mapped files.
    :ivar disk: number of bytes by which the copy of the files may grow. Each file or folder counts as at least 4 KiB.
    :ivar output: number of bytes written to standard output and standard error.
    """

    seconds: float = 300
    processes: int = 1024
    memory: int = 1 << 30
    disk: int = 2 << 30
    output: int = 64 << 20

    def of(self, limit: Limit) -> str:
        """Return the value of a limit as text."""
        return {
            Limit.TIME: f"{self.seconds:g} seconds",
            Limit.PROCESSES: f"{self.processes} processes at once",
            Limit.MEMORY: f"{self.memory >> 20} MiB of memory",
            Limit.DISK: f"{self.disk >> 20} MiB on disk",
            Limit.OUTPUT: f"{self.output >> 20} MiB of output",
        }[limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Folder or file of this machine that is mounted at ``target`` for a sandboxed command."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Root file system for sandboxed commands: a folder that keeps the files which the commands write.

    Commands see this machine's programs and libraries (``/usr``, ``/bin``, ``/lib``), read-only. ``/.host/usr`` is this
    machine's ``/usr`` without ``mounts``.

    :ivar folder: path of the root folder. It must contain :data:`ROOT_FOLDERS` and a folder for each mount.
    :ivar mounts: folders and files to mount, in this order.
    """

    folder: Path
    mounts: tuple[Mount, ...] = ()

    def check(self) -> None:
        """Check that no mount point is a symbolic link, and that no folder above a mount point is one.

        A command could have replaced a folder by a link. The mount commands run before the root file system is
        changed, so such a link would lead out of the sandbox.

        :raises UserError: if a path contains a symbolic link.
        """
        points = [*ROOT_FOLDERS, _python_outside().lstrip("/")]
        for mount in self.mounts:
            if not mount.target.startswith("/usr/"):
                points.append(mount.target.lstrip("/"))
        for point in points:
            path = self.folder
            for part in point.split("/"):
                path = path / part
                if path.is_symlink():
                    shown = show_path(os.fsencode(f"/{point}"))
                    raise UserError(f"a command has replaced {shown} by a link", hint="nothing was adopted")


#: Folders that a :class:`Root` must have.
ROOT_FOLDERS = ("etc", "dev", "proc", "tmp", "old", "usr", ".host/usr")


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a command: exit code, last part of standard error, and the exceeded limit (None if there is none)."""

    code: int
    message: str
    over: Limit | None = None


def run_isolated(
    argv: Sequence[str],
    copy: Path,
    *,
    context: Path | None = None,
    env: Mapping[str, str] | None = None,
    data: bytes = b"",
    limits: Limits | None = None,
    root: Root | None = None,
) -> Ran:
    """Run a sandboxed command that may change only the files in the folder ``copy``.

    The folder ``copy`` is mounted at :data:`SOURCE`. If the command exceeds a limit, it is killed together with all
    its child processes.

    :param context: folder that the command may read. It is mounted at ``/context``.
    :param root: root file system in which the command starts. With ``root``, ``copy`` must be the folder that contains
        all writable folders, and it isn't mounted.
    :raises UserError: if this machine can't sandbox the command. The command isn't run then.
    """
    limits = limits or Limits()
    watch = _Watch(limits, copy)
    python = _python_outside()
    if python:
        path = f"{python}/bin:{_PATH}"
    else:
        path = _PATH
    own = {"PATH": path, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp", **(env or {})}
    # This line separates a failure of the command from a failure to set up the sandbox.
    command = [
        "env",
        "-i",
        *(f"{k}={v}" for k, v in own.items()),
        "sh",
        "-c",
        'echo walled >&2; exec "$@"',
        "sh",
        *argv,
    ]
    if root:
        root.check()
    with tempfile.TemporaryDirectory(prefix="patchq-") as empty:
        unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork"]
        walls = [
            *unshare,
            "--kill-child",
            "--",
            "sh",
            "-euc",
            _SETUP,
            "sandbox",
            empty,
            str(copy),
            str(context or ""),
            python,
            # Above the limit, so that the check sees a file that exceeds the limit.
            str((limits.disk + _BLOCK) // 512),
            # Before Linux 5.14, this limit also counts the user's processes outside the sandbox.
            str(limits.processes + _FEW + _threads_now()),
            str(max(_LEAST_LAST, limits.processes + _FEW)),
            # Twice the limit, so that the check sees a process that exceeds the limit.
            str(2 * limits.memory),
            str(root.folder) if root else "",
            _mounting(root.mounts) if root else "",
        ]
        code, message = runner.overhear(
            [*walls, *command], cwd=Path("/"), data=data, timeout=limits.seconds, watch=watch, end=_end
        )
    before, walled, after = message.partition(b"walled\n")
    if not walled:
        text = (before.decode("utf-8", "replace").strip() or str(code)).splitlines()[-1]
        raise UserError(
            f"this machine can't run commands in a sandbox: {text}",
            hint="a sandbox needs Linux with unprivileged user namespaces, and unshare and setpriv (util-linux); "
            "without a sandbox, edit the worktree and run `patchq new`",
        )
    over = watch.over
    if code == runner.TIMED_OUT:
        over = Limit.TIME
    if over is None and _size(copy) - watch.before > limits.disk:
        over = Limit.DISK
    return Ran(code, after.decode("utf-8", "replace").strip()[-2000:], over)


def _mounting(mounts: Sequence[Mount]) -> str:
    """Return shell commands that mount folders and files."""
    lines = []
    for mount in mounts:
        how = "ro"
        if mount.writable:
            how = "rw"
        lines.append(f"place {how} {sh(mount.source)} {sh(mount.target)}\n")
    return "".join(lines)


_BLOCK = 4096
#: Number of processes above the limit that the kernel still allows, so that the check sees them; and the minimum for
#: the highest process id.
_FEW, _LEAST_LAST = 64, 400


def _threads_now() -> int:
    """Return the number of threads on this machine."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


class _Watch:
    """Check of a command's resources from outside the sandbox. ``over`` is the first limit that was exceeded."""

    def __init__(self, limits: Limits, copy: Path) -> None:
        self.limits, self.copy = limits, copy
        self.over: Limit | None = None
        self.before = self._measured()

    def __call__(self, pid: int, message: int) -> bool:
        self.over = self._passed(pid, message)
        return self.over is not None

    def _passed(self, pid: int, message: int) -> Limit | None:
        if message > self.limits.output:
            return Limit.OUTPUT
        threads = memory = 0
        processes = list(_below(pid))
        if _stand_still([process for process, _ in processes]):
            return Limit.TIME  # no process is left that could continue the others, so they would wait until the timeout
        for process, count in processes:
            threads += count
            memory += _own_memory(process)
        if threads > self.limits.processes:
            return Limit.PROCESSES
        if memory > self.limits.memory:
            return Limit.MEMORY
        if time.monotonic() > self._next and self._measured() - self.before > self.limits.disk:
            return Limit.DISK
        return None

    def _measured(self) -> int:
        """Return the size of the copy on disk, and decide when to measure it again.

        Measurements take at most a tenth of the time.
        """
        start = time.monotonic()
        size = _size(self.copy)
        self._next = time.monotonic() + 10 * (time.monotonic() - start)
        return size


def _below(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the descendants of a process, each with its number of threads."""
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # Split after the name, which may contain blanks and brackets: see proc(5).
            fields = Path("/proc", str(int(name)), "stat").read_bytes().rpartition(b")")[2].split()
            children.setdefault(int(fields[1]), []).append((int(name), max(1, int(fields[17]))))
    todo = [pid]
    while todo:
        found = children.get(todo.pop(), [])
        todo += [process for process, _ in found]
        yield from found


def _stand_still(processes: list[int]) -> bool:
    """Return True if every process without children was stopped by a signal or a tracer. Ignore ended processes."""
    states: dict[int, bytes] = {}
    parents: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            state, parent = Path("/proc", str(process), "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":  # ended, but its stopped parent doesn't reap it
                states[process] = state
                parents.add(int(parent))
    last = states.keys() - parents
    return bool(last) and all(states[process] in (b"T", b"t") for process in last)


def _own_memory(pid: int) -> int:
    """Return the memory of a process in bytes, without memory that maps a file's content."""
    with contextlib.suppress(OSError):
        lines = Path("/proc", str(pid), "status").read_bytes().split(b"\n")
        return sum(int(x.split()[1]) << 10 for x in lines if x.startswith((b"RssAnon:", b"RssShmem:")))
    return 0


def _size(folder: Path) -> int:
    """Return the number of bytes that a folder takes on disk. A file with several hard links counts several times."""
    size, todo = 0, [str(folder)]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    about = entry.stat(follow_symlinks=False)
                    size += max(_BLOCK, about.st_blocks * 512)
                    if stat.S_ISDIR(about.st_mode):
                        todo.append(entry.path)
    return size


def _end(process: runner.Running) -> None:
    """Kill the first process of the command's namespace, so that the kernel ends all other processes of the namespace.

    Wait up to ten seconds for the command to end.
    """
    for child, _ in list(_below(process.pid))[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(runner.TookTooLong):
            process.wait(10)
    process.kill()


def python_program() -> str:
    """Return the path that the running Python has inside a sandbox with a :class:`Root`."""
    outside = _python_outside()
    prefix = outside or f"/.host{Path(sys.base_prefix).resolve()}"
    return f"{prefix}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"


def _python_outside() -> str:
    """Return the folder of the running Python; empty if Python is below ``/usr``, which every sandbox contains."""
    prefix = str(Path(sys.base_prefix).resolve())
    if prefix.startswith("/usr"):
        return ""
    return prefix
