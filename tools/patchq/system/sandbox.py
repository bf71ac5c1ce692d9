"""Somebody's command in a copy of files, cut off from all else: no network, no other file that it could write.

By Linux namespaces (``unshare``, of util-linux), which need no rights where unprivileged users may have them. What the
command sees: programs and libraries (``/usr``, ``/bin``, ``/lib``), read-only, a ``/tmp`` of its own, and the copy at
``/src``. It runs without capabilities, in a process namespace that ends with it, and with an environment that names
nothing of the person's. Where that can't be had, nothing is run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import UserError
from patchq.system import runner

#: Where the copy is for the command, and where files beside it are.
SOURCE, BESIDE = "/src", "/context"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: $1 an empty folder, $2 the copy, $3 a folder to read or nothing, $4 a Python's folder or nothing; then the command.
_SETUP = r"""
root=$1 copy=$2 beside=$3 python=$4; shift 4
read_only() {
    found=
    while read -r _ _ _ _ point options _; do
        options=$(echo "$options" | sed 's/^r[ow],\{0,1\}//')
        case $point in "$1"|"$1"/*) mount -o "remount,bind,ro,$options" "$point"; found=1;; esac
    done < /proc/self/mountinfo
    # The kernel writes blanks in names otherwise: what isn't found there is writable still.
    [ "$found" ] || { echo "$1 can't be made read-only" >&2; exit 1; }
}
show() {
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    read_only "$root$2"
}
mount --make-rprivate /
mount -t tmpfs -o nosuid,nodev,size=16m,mode=755 tmpfs "$root"
for name in usr bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$root/$name"
    elif [ -d "/$name" ]; then show "/$name" "/$name"; fi
done
mkdir "$root/etc" "$root/dev" "$root/proc" "$root/tmp" "$root/src" "$root/old"
for name in ld.so.cache alternatives; do
    if [ -e "/etc/$name" ]; then cp -a "/etc/$name" "$root/etc/"; fi
done
echo 'root:x:0:0:root:/tmp:/bin/sh' > "$root/etc/passwd"
for name in null zero urandom; do : > "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"; done
mount -t proc -o ro,nosuid,nodev,noexec proc "$root/proc" 2>/dev/null || :
mount -t tmpfs -o nosuid,nodev,size=512m tmpfs "$root/tmp"
mount --bind "$copy" "$root/src"
mount -o remount,bind,nosuid,nodev "$root/src"
[ -z "$beside" ] || show "$beside" /context
[ -z "$python" ] || show "$python" "$python"
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
mount -o remount,ro,nosuid,nodev /
cd /src
ulimit -c 0
exec setpriv --no-new-privs --inh-caps=-all --ambient-caps=-all --bounding-set=-all -- "$@"
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and the end of what it said."""

    code: int
    said: str


def run_isolated(
    argv: Sequence[str], copy: Path, *, beside: Path | None = None, env: Mapping[str, str] | None = None,
    data: bytes = b"", timeout: float = 300,
) -> Ran:  # fmt: skip
    """Run a command that may change the files in ``copy``, which it has as :data:`SOURCE`, and nothing else.

    :param beside: a folder that it may read, as :data:`BESIDE`.
    :raises UserError: where this machine can't keep it from all else; nothing was run then.
    """
    python = _python_outside()
    path = f"{python}/bin:{_PATH}" if python else _PATH
    own = {"PATH": path, "HOME": "/tmp", "LC_ALL": "C.UTF-8", "TMPDIR": "/tmp", **(env or {})}
    # A line of its own tells a command that failed from walls that couldn't be put up.
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
    with tempfile.TemporaryDirectory(prefix="patchq-") as root:
        unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork"]
        walls = [
            *unshare,
            "--kill-child",
            "--",
            "sh",
            "-euc",
            _SETUP,
            "sandbox",
            root,
            str(copy),
            str(beside or ""),
            python,
        ]
        code, said = runner.overhear([*walls, *command], cwd=Path("/"), data=data, timeout=timeout)
    before, walled, after = said.partition(b"walled\n")
    if not walled:
        text = (before.decode("utf-8", "replace").strip() or str(code)).splitlines()[-1]
        raise UserError(
            f"a command is run only where it can be kept from all else, and here it can't: {text}",
            hint="it needs Linux with unprivileged user namespaces, and unshare and setpriv (util-linux); "
            "or make the edit in the worktree, and `patchq new`",
        )
    return Ran(code, after.decode("utf-8", "replace").strip()[-2000:])


def _python_outside() -> str:
    """Where the Python that runs this lies, if that isn't among what a command sees anyway."""
    prefix = str(Path(sys.base_prefix).resolve())
    return "" if prefix.startswith("/usr") else prefix
