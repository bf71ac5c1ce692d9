"""Programs that replace installers and other programs in a replay.

Each replacement records its calls. Replacements of programs that can't change the package, such as
``apt-get``, do nothing else. Replacements of programs that need the network fail.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

#: Folder of the programs in the sandbox.
FOLDER = "/.patchq"
#: Programs that need a network or special rights, and that can't change the package.
QUIET = tuple(
    "apt apt-get apk yum dnf microdnf zypper add-apt-repository apt-key update-alternatives ldconfig "  # noqa: SIM905
    "locale-gen useradd "
    "groupadd adduser addgroup usermod chown chgrp update-ca-certificates dpkg rpm npm yarn systemctl service "
    "debconf-set-selections dpkg-reconfigure".split()
)
NETWORK = ("curl", "wget", "aria2c", "hf", "huggingface-cli", "rsync", "ssh", "scp")
#: Installers other than pip.
INSTALLERS = ("conda", "mamba", "micromamba", "poetry", "pdm", "pipenv", "pipx", "easy_install")
#: First word of the record of a program that would need the network.
CONNECTS = "network"
#: First word of the record of a line in a requirements file.
REQUIREMENT = "requirement"

_NOTE = """#!/bin/sh
printf '%s\\0' "$(($#+1))" "${0##*/}" "$@" >> /.patchq/log
"""
_GIT = """#!/bin/sh
skip=
for word in "$@"; do
    if [ "$skip" ]; then skip=; continue; fi
    case $word in
        -C|-c) skip=1;;
        -*) ;;
        clone|fetch|pull|ls-remote|submodule)
            printf '%s\\0' "$(($#+1))" git "$@" >> /.patchq/log
            echo "fatal: no network" >&2; exit 128;;
        *) break;;
    esac
done
exec /usr/bin/git "$@"
"""
_SUDO = """#!/bin/sh
while :; do case $1 in -*|*=*) shift;; *) break;; esac; done
exec "$@"
"""
_PYTHON = """#!/bin/sh
if [ "$1" = -m ]; then
    case $2 in
        venv|virtualenv|ensurepip) exit 0;;
        pip|uv) shift 2; exec /.patchq/bin/pip "$@";;
    esac
fi
exec {python} "$@"
"""
_UV = """#!/bin/sh
case $1 in
    pip) shift; exec /.patchq/bin/pip "$@";;
    venv) exit 0;;
esac
printf '%s\\0' "$(($#+1))" "${0##*/}" "$@" >> /.patchq/log
"""
#: Option ``-I`` ignores ``sitecustomize.py``, which is only for the Dockerfile's own programs.
_PIP = """#!/bin/sh
exec {python} -I /.patchq/pip.py "$@"
"""
_PIP_PY = r"""
import os, sys

NAME, VERSION, SITE = @pip@

def note(*words):
    with open("/.patchq/log", "ab") as log:
        for word in (str(len(words)), *words):
            log.write(os.fsencode(word) + b"\0")

def lines_of(path, depth=0):
    if depth > 9 or "://" in path:
        yield "file://" + path
        return
    try:
        text = open(path, errors="replace").read()
    except OSError:
        yield "file://" + path
        return
    for line in text.replace("\\\n", " ").split("\n"):
        line = line.split(" #")[0].strip()
        if line.startswith(("-r", "--requirement")):
            rest = line.removeprefix("--requirement").removeprefix("-r").strip(" =")
            yield from lines_of(os.path.join(os.path.dirname(path), rest), depth + 1)
        elif line and not line.startswith(("#", "-")):
            yield line.split(" --")[0].split(";")[0].strip()
        elif line.startswith(("-e", "--editable")):
            yield "file://" + line

args = sys.argv[1:]
command = next((word for word in args if not word.startswith("-")), "")
same = lambda word: word.replace("_", "-").replace(".", "-").lower() == NAME
if command in ("install", "uninstall", "sync", "download", "wheel"):
    note("pip", *args)
    for word, after in zip(args, [*args[1:], ""]):
        joined = word.split("=", 1)[1] if word.startswith("--requirement=") else ""
        joined = joined or (word[2:] if word.startswith("-r") and not word.startswith("--") else "")
        if word in ("-r", "--requirement"):
            joined = after
        for line in lines_of(joined) if joined else ():
            note("requirement", line)
    sys.exit(command in ("download", "wheel"))
if command == "show":
    if not any(map(same, args)):
        sys.exit(1)
    print(f"Name: {NAME}\nVersion: {VERSION}\nLocation: {SITE}")
elif command in ("freeze", "list"):
    print(f"{NAME}=={VERSION}")
"""
_SITECUSTOMIZE = r"""
import sys

SITE, TOPS = @site@

def _start():
    import importlib.machinery
    import os
    import site
    import sysconfig

    paths, path = sysconfig.get_paths, sysconfig.get_path
    both = ("purelib", "platlib")

    def get_paths(*args, **more):
        return {**paths(*args, **more), **dict.fromkeys(both, SITE)}

    def get_path(name, *args, **more):
        return SITE if name in both else path(name, *args, **more)

    site.getsitepackages = lambda prefixes=None: [SITE]
    sysconfig.get_paths, sysconfig.get_path = get_paths, get_path

    class Finder:
        # Import a package that lacks its dependencies as far as possible: its location is what commands ask for.
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name not in TOPS:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            real = getattr(spec and spec.loader, "exec_module", None)
            if real:
                def exec_module(module):
                    try:
                        real(module)
                    except Exception:
                        pass
                spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Finder)

    def hook(event, args):
        if event == "socket.getaddrinfo" or event == "socket.connect" and isinstance(args[1], tuple):
            with open("/.patchq/log", "ab") as log:
                log.write(b"2\0network\0python\0")

    sys.addaudithook(hook)

_start()
"""
#: First word of the record of a file or an expression without which a ``sed -i`` has the same result.
NO_EFFECT = "sed"
#: Run sed. If it edits files in place, record the files that it leaves unchanged, and each of several
#: expressions without which the other ones give the same result.
_SED = """#!/bin/sh
case " $* " in
    *" -"*i*|*" --in-place"*) exec {python} -I /.patchq/sed.py "$@";;
esac
PATH=/usr/bin:/bin exec sed "$@"
"""
_SED_PY = r"""
import getopt, os, subprocess, sys

REAL = next(path for path in ("/usr/bin/sed", "/bin/sed") if os.path.exists(path))
LONG = (
    "quiet silent debug expression= file= follow-symlinks in-place== line-length= null-data zero-terminated posix "
    "regexp-extended sandbox separate unbuffered"
)

def note(word):
    with open("/.patchq/log", "ab") as log:
        log.write(b"2\0sed\0" + os.fsencode(word) + b"\0")

def read(path):
    with open(path, "rb") as file:
        return file.read()

def run(words, **options):
    return subprocess.run(["sed", *words], executable=REAL, **options)

def split(words):
    # getopt knows no option whose value is optional: ``-i.bak`` has one.
    words = ["--in-place=" + word[2:] if word.startswith("-i") else word for word in words]
    return getopt.gnu_getopt(words, "ne:f:El:rsuz", [name.replace("==", "=") for name in LONG.split()])

def main(words):
    try:
        options, files = split(words)
    except getopt.GetoptError:
        return run(words).returncode
    scripts = [number for number, (name, _) in enumerate(options) if name in ("-e", "--expression", "-f", "--file")]
    if not scripts:
        files = files[1:]
    before = {path: read(path) for path in files if os.path.isfile(path)}
    code = run(words).returncode
    after = {path: read(path) for path in before if os.path.isfile(path)}
    if code or before == after:
        return code
    for path in before:
        if before[path] == after.get(path):
            note(path)
    if len(scripts) < 2 or len(before) != len(after):
        return code
    for left_out in scripts:
        rest = [word for number, pair in enumerate(options) if number != left_out for word in pair if word]
        rest = [word for word in rest if not word.startswith("--in-place")]
        same = True
        for path, data in before.items():
            found = run(rest, input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            same = same and found == after[path]
        if same:
            note(options[left_out][1])
    return code

sys.exit(main(sys.argv[1:]))
"""
#: Exit code of ``copy.py`` if a source is missing. Its output is then the source.
MISSING = 66
#: Copy files as COPY and ADD do: ``copy.py FILE``, a file with JSON.
_COPY = r"""
import json, os, re, shutil, sys, tarfile

wish = json.load(open(sys.argv[1]))
ROOT, TARGET, UNPACK, MODE = wish["root"], wish["target"], wish["unpack"], wish["mode"]

def pattern(text):
    out = ""
    for part in re.findall(r"\*\*/?|\*|\?|\[[^]]*\]|\\.|.", text, re.DOTALL):
        if part.startswith("**"):
            out += "(?:.*/)?" if part.endswith("/") else ".*"
        elif part == "*":
            out += "[^/]*"
        elif part == "?":
            out += "[^/]"
        elif part.startswith("[") and len(part) > 1:
            out += part
        else:
            out += re.escape(part[-1])
    return re.compile(out, re.DOTALL)

IGNORED = [(line.startswith("!"), pattern(line.lstrip("!").strip("/"))) for line in wish["ignored"]]

def is_ignored(path):
    rel = os.path.relpath(path, ROOT)
    parents = ["/".join(rel.split("/")[:n]) for n in range(1, rel.count("/") + 2)]
    found = False
    for back, rule in IGNORED:
        if any(rule.fullmatch(parent) for parent in parents):
            found = not back
    return found

def sources(text):
    clean = os.path.normpath("/" + text).lstrip("/")
    if not re.search(r"[*?[]", clean):
        path = os.path.join(ROOT, clean)
        return [path] if os.path.lexists(path) and not is_ignored(path) else []
    found = [ROOT]
    for part in clean.split("/"):
        rule = pattern(part)
        below = [os.path.join(at, name) for at in found if os.path.isdir(at) for name in sorted(os.listdir(at))]
        found = [path for path in below if rule.fullmatch(os.path.basename(path))]
    return [path for path in found if not is_ignored(path)]

def put(source, target):
    if os.path.islink(source) and not os.path.exists(source):
        sys.exit(f"{source}: is a link to nothing")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.path.islink(target)):
        os.unlink(target)
    shutil.copy2(source, target)
    if MODE:
        os.chmod(target, int(MODE, 8))

def put_below(folder, target):
    os.makedirs(target, exist_ok=True)
    for at, folders, names in os.walk(folder):
        there = os.path.normpath(os.path.join(target, os.path.relpath(at, folder)))
        os.makedirs(there, exist_ok=True)
        for name in sorted(names + [f for f in folders if os.path.islink(os.path.join(at, f))]):
            source, into = os.path.join(at, name), os.path.join(there, name)
            if is_ignored(source):
                continue
            if os.path.islink(source):
                if os.path.isdir(into) and not os.path.islink(into):
                    continue
                if os.path.lexists(into):
                    os.unlink(into)
                os.symlink(os.readlink(source), into)
            elif os.path.isfile(source):
                put(source, into)

for name, text in wish["texts"]:
    path = os.path.join(TARGET, name) if wish["is_folder"] or os.path.isdir(TARGET) else TARGET
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, int(MODE or "644", 8))
found = []
for text in wish["sources"]:
    matches = sources(text)
    if not matches:
        sys.stderr.write(text)
        sys.exit(MISSING)
    found += matches
many = len(found) > 1 or wish["is_folder"]
for source in found:
    if os.path.isdir(source):
        put_below(source, TARGET)
    elif UNPACK and tarfile.is_tarfile(source):
        os.makedirs(TARGET, exist_ok=True)
        with tarfile.open(source) as tar:
            tar.extractall(TARGET)
    elif many or os.path.isdir(TARGET):
        put(source, os.path.join(TARGET, os.path.basename(source)))
    else:
        put(source, TARGET)
"""


def write_shims(
    folder: Path, python: str, *, site: str, tops: Collection[str], distribution: str, version: str
) -> None:
    """Write the replacement programs to a folder, which the sandbox mounts as :data:`FOLDER`.

    :param python: path of a real Python in the sandbox.
    """
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    programs = dict.fromkeys(QUIET, _NOTE) | dict.fromkeys(INSTALLERS, _NOTE)
    programs |= dict.fromkeys(NETWORK, _NOTE + "echo 'no network' >&2\nexit 7\n")
    programs |= {"git": _GIT, "sudo": _SUDO, "uv": _UV, "uvx": _UV}
    version_name = python.rpartition("/")[2]
    programs |= dict.fromkeys(("python", "python3", version_name), _PYTHON.format(python=python))
    programs |= dict.fromkeys(("pip", "pip3", version_name.replace("python", "pip")), _PIP.format(python=python))
    programs["sed"] = _SED.format(python=python)
    for name, text in programs.items():
        path = folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    about = repr((distribution, version, site))
    (folder / "sed.py").write_text(_SED_PY)
    (folder / "pip.py").write_text(_PIP_PY.replace("@pip@", about))
    start = _SITECUSTOMIZE.replace("@site@", repr((site, tuple(tops))))
    (folder / "lib" / "sitecustomize.py").write_text(start)
    (folder / "copy.py").write_text(f"MISSING = {MISSING}\n{_COPY}")
    (folder / "log").touch()
    (folder / "script").touch()


def read_log(data: bytes) -> Iterator[tuple[str, ...]]:
    """Yield the calls that the replacement programs recorded, each as a tuple of words.

    >>> list(read_log(b"2\\0curl\\0-O\\0001\\0uv\\0"))
    [('curl', '-O'), ('uv',)]
    """
    words = [os.fsdecode(word) for word in data.split(b"\0")[:-1]]
    at = 0
    while at < len(words):
        # A command can write to the log, too.
        count = 0
        if words[at].isdigit() and len(words[at]) < 6:
            count = int(words[at])
        if count:
            yield tuple(words[at + 1 : at + 1 + count])
        at += 1 + count
