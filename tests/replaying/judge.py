"""A judge that knows nothing of patchq: it really runs a Dockerfile's instructions in a root folder.

The folder has the package in a virtual environment, pip's own program, and programs that stand in for a network. After
each instruction it lists the files of the package.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import re
import shlex
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dockerfile_parse import DockerfileParser
from dockerfile_parse.util import WordSplitter

from replaying.packages import SITE, Layout, installed, write, write_wheels

_BASE = Path(sys.base_prefix).resolve()
_ENTER = r"""
set -e
root=$1 base=$2
mount --make-rprivate /
for name in usr bin sbin lib lib32 lib64; do
    if [ -L "/$name" ]; then ln -s "$(readlink "/$name")" "$root/$name"
    elif [ -d "/$name" ]; then mkdir "$root/$name"; mount --rbind "/$name" "$root/$name"; fi
done
mkdir -p "$root/dev" "$root/proc" "$root/tmp" "$root/etc" "$root/root"
cp -a /etc/ld.so.cache /etc/alternatives "$root/etc/"
touch "$root/dev/null"; mount --bind /dev/null "$root/dev/null"
touch "$root/dev/urandom"; mount --bind /dev/urandom "$root/dev/urandom"
mount -t proc proc "$root/proc" || :
case $base in /usr*) ;; *) mkdir -p "$root$base"; mount --rbind "$base" "$root$base";; esac
exec chroot "$root" /bin/sh /judge.sh
"""
#: List the package's files with their hashes, for one line of the Dockerfile.
_LIST = r"""
list() {
    cd SITE
    { find widget -type f ! -name '*.pyc' -exec sha1sum {} + ; find widget -type f -perm -100 -exec echo x {} + ;
      find widget -type l -printf '%l %p\n'; } > /listed/$1 2>/dev/null
}
""".replace("SITE", SITE)
#: What the network would give: a script that edits the package, or a file for it.
_CURL = f"""#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -o|-O) shift; echo 'FETCHED = 1' > "$1"; exit;; esac; shift; done
printf '%s\\n' "print('FETCHED = 1', file=open('{SITE}/widget/settings.py', 'a'))"
"""


@dataclass(frozen=True)
class Listing:
    """Files of the package after each line that has an instruction; 0 is the start."""

    by_line: dict[int, dict[str, str]]

    @property
    def last(self) -> dict[str, str]:
        return self.by_line[max(self.by_line)]

    def lines_that_changed(self, path: str) -> set[int]:
        lines = sorted(self.by_line)
        changed = set()
        for before, line in pairwise(lines):
            if self.by_line[before].get(path) != self.by_line[line].get(path):
                changed.add(line)
        return changed


def run(dockerfile: str, context: Path, layout: Layout, root: Path, by_hand: dict[int, str]) -> Listing:
    """Run the instructions of a Dockerfile, and list the package after each.

    :param by_hand: shell commands for the instructions (by line) that the library can't read.
    """
    write(root / SITE[1:], {**installed(layout), "no_such_dependency.py": b""})
    _write_programs(root, layout)
    (root / "context").mkdir()
    subprocess.run(["cp", "-a", f"{context}/.", f"{root}/context"], check=True)
    (root / "listed").mkdir()
    (root / "judge.sh").write_text(_script(dockerfile, context, by_hand))
    enter = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--net", "--fork", "--kill-child", "--"]
    done = subprocess.run(
        [*enter, "sh", "-c", _ENTER, "judge", str(root), str(_BASE)],
        capture_output=True, timeout=120, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert (root / "listed" / "end").exists(), done.stderr.decode()
    assert not (root / "failed").exists(), f"a build would fail: {done.stderr.decode()}"
    found = {}
    for path in (root / "listed").iterdir():
        if path.name != "end":
            found[int(path.name)] = _files(path.read_text())
    return Listing(found)


def _files(text: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for line in text.splitlines():
        first, *names = line.split()
        for name in names:
            files[name] = files.get(name, "") + ("+x" if first == "x" else first)
    return files


def _write_programs(root: Path, layout: Layout) -> None:
    programs = root / "opt/venv/bin"
    programs.mkdir(parents=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    real = _BASE / "bin" / version
    (root / "opt/venv/pyvenv.cfg").write_text(f"home = {_BASE}/bin\ninclude-system-site-packages = false\n")
    for name in ("python", "python3", version):
        (programs / name).symlink_to(real)
    pip = (
        f'#!/bin/sh\nexec {real} -m pip --python /opt/venv/bin/python --no-cache-dir --disable-pip-version-check "$@"\n'
    )
    quiet = "#!/bin/sh\nexit 0\n"
    (programs / "activate").write_text("PATH=/opt/venv/bin:$PATH\n")
    for name, text in {"pip": pip, "pip3": pip, "curl": _CURL, "wget": _CURL, "apt-get": quiet, "only-in-image": (
        f"#!/bin/sh\necho 'TOOL = 1' >> {SITE}/widget/settings.py\n"
    )}.items():  # fmt: skip
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    write_wheels(layout, root / "wheels")


def _script(dockerfile: str, context: Path, by_hand: dict[int, str]) -> str:
    """Return a shell script that does what a build would."""
    lines = [
        "export PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin HOME=/root PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels",
        "export PYTHONDONTWRITEBYTECODE=1",
        _LIST,
        "(list 0)",
        "cd /",
    ]
    env = {"PATH": "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"}
    working, shell = "/", ["/bin/sh", "-c"]
    last = 0
    for item in DockerfileParser(fileobj=io.BytesIO(dockerfile.encode())).structure:
        word, value, line = item["instruction"], item["value"], item["startline"] + 1
        if line < last or word == "COMMENT":
            continue
        if line in by_hand:
            lines.append(by_hand[line])
            last = max([line, *(n + 1 for n in _heredoc_lines(dockerfile, line))])
        elif word in ("ENV", "ARG"):
            env |= _variables(value, env)
            lines += [f"export {name}={shlex.quote(text)}" for name, text in env.items()]
        elif word == "WORKDIR":
            working = posixpath.normpath(posixpath.join(working, _expanded(value, env)))
            lines.append(f"mkdir -p {working}; cd {working}")
        elif word == "SHELL":
            shell = json.loads(value)
        elif word == "RUN":
            value = re.sub(r"^(--\S+\s+)+", "", value)
            argv = json.loads(value) if value.startswith('["') else [*shell, value]
            lines.append(f"({shlex.join(argv)}) < /dev/null || echo {line} >> /failed")
        elif word in ("COPY", "ADD"):
            lines.append(_copying(value, context, env, working))
        lines.append(f"(list {line})")
    return "\n".join([*lines, "touch /listed/end", ""])


def _heredoc_lines(dockerfile: str, line: int) -> range:
    """Return the lines of the here-documents that begin on a line."""
    text = dockerfile.split("\n")
    names = re.findall(r"<<-?[\"']?([\w.]+)", text[line - 1])
    at = line
    for name in names:
        while text[at].strip("\t") != name:
            at += 1
        at += 1
    return range(line, at + 1)


def _expanded(text: str, env: dict[str, str]) -> str:
    return WordSplitter(text, envs=env).dequote()


def _variables(value: str, env: dict[str, str]) -> dict[str, str]:
    if "=" not in value.split()[0]:
        name, *rest = value.split(None, 1)
        return {name: _expanded(rest[0], env)} if rest else {}
    found = {}
    for word in WordSplitter(value).split(dequote=False):
        name, _, text = word.partition("=")
        found[name] = _expanded(text, env)
    return found


def _copying(value: str, context: Path, env: dict[str, str], working: str) -> str:
    """Return cp commands for a simple COPY or ADD of files, folders and archives."""
    words = [word for word in WordSplitter(value, envs=env).split() if not word.startswith("--")]
    *sources, target = words
    folder = target.endswith("/") or len(sources) > 1
    target = posixpath.normpath(posixpath.join(working, target))
    lines = []
    for source in sources:
        pattern = posixpath.normpath(source.strip("/") or ".")
        for path in sorted(context.glob(pattern)) if pattern != "." else [context]:
            inside = posixpath.normpath(f"/context/{path.relative_to(context)}")
            if path.is_dir():
                lines.append(f"mkdir -p {target} && cp -a {inside}/. {target}/")
            elif path.suffix == ".tar" and tarfile.is_tarfile(path):
                lines.append(f"mkdir -p {target} && tar -xf {inside} -C {target} --no-same-owner")
            elif folder:
                lines.append(f"mkdir -p {target} && cp --remove-destination -p {inside} {target}/")
            else:
                lines.append(f"mkdir -p {posixpath.dirname(target)} && cp --remove-destination -p {inside} {target}")
    mode = re.search(r"--chmod=(\d+)", value)
    if mode:
        lines.append(f"chmod {mode[1]} {target}")
    return "\n".join(lines)


def listing_of(files: dict[str, tuple[str, bytes]]) -> dict[str, str]:
    """Return files, each with its mode, as the judge lists them."""
    found = {}
    for name, (mode, data) in files.items():
        if mode == "120000":
            found[name] = data.decode()
        else:
            found[name] = hashlib.sha1(data).hexdigest() + ("+x" if mode == "100755" else "")
    return found
