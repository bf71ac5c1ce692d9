"""What a command is started in: variables, streams, folders, limits, and an environment that it is to look at."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Base, Case, Way, World

LOOK = ("status", "list", "diff HEAD")
WORK = ("apply --to first", "drop third", "pin up --ref v2")
PATCHQ = (sys.executable, "-m", "patchq")
TRAP = "{programs}/trap"
#: Variables of git's, Python's and others', in each command's environment.
VARIABLES = {
    "git's folder": {"GIT_DIR": "{outside}", "GIT_WORK_TREE": "{outside}"}, "git's index": {"GIT_INDEX_FILE": "{outside}/index"}, "git's objects": {"GIT_OBJECT_DIRECTORY": "{outside}/objects", "GIT_ALTERNATE_OBJECT_DIRECTORIES": "{outside}"}, "git's settings": {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": TRAP, "GIT_CONFIG_KEY_1": "core.hooksPath", "GIT_CONFIG_VALUE_1": "{programs}"},
    "git's parameters": {"GIT_CONFIG_PARAMETERS": "'core.fsmonitor={programs}/trap'"}, "git's global settings": {"GIT_CONFIG_GLOBAL": "{inputs}/evil.config"}, "git's system settings": {"GIT_CONFIG_SYSTEM": "{inputs}/evil.config", "GIT_CONFIG_NOSYSTEM": "0"}, "git's programs": {"GIT_EXEC_PATH": "{programs}"}, "git's ssh": {"GIT_SSH_COMMAND": TRAP, "GIT_SSH": TRAP, "GIT_PROXY_COMMAND": TRAP}, "git's askpass": {"GIT_ASKPASS": TRAP, "SSH_ASKPASS": TRAP},
    "git's pager": {"GIT_PAGER": TRAP, "PAGER": TRAP, "LESSOPEN": "|{programs}/trap"}, "git's editor": {"GIT_EDITOR": TRAP, "GIT_SEQUENCE_EDITOR": TRAP, "EDITOR": TRAP, "VISUAL": TRAP}, "git's diff": {"GIT_EXTERNAL_DIFF": TRAP}, "git's trace": {"GIT_TRACE": "{outside}/trace", "GIT_TRACE2": "{outside}/trace2", "GIT_TRACE2_EVENT": "{outside}/trace3", "GIT_TRACE_PACKET": "{outside}/trace4"}, "git's trace on the terminal": {"GIT_TRACE": "1", "GIT_CURL_VERBOSE": "1"}, "git's template": {"GIT_TEMPLATE_DIR": "{programs}"},
    "git's namespace": {"GIT_NAMESPACE": "evil", "GIT_REPLACE_REF_BASE": "refs/heads", "GIT_GRAFT_FILE": "{outside}/grafts"}, "git's paths": {"GIT_LITERAL_PATHSPECS": "1", "GIT_GLOB_PATHSPECS": "1", "GIT_ICASE_PATHSPECS": "1"}, "git's ceiling": {"GIT_CEILING_DIRECTORIES": "/", "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}, "git's protocols": {"GIT_ALLOW_PROTOCOL": "ext:file", "GIT_PROTOCOL_FROM_USER": "1"}, "git's dates": {"GIT_AUTHOR_DATE": "evil", "GIT_COMMITTER_DATE": "@-1", "GIT_TEST_DATE_NOW": "1"}, "git's author": {"GIT_AUTHOR_NAME": "Eve\n<x>", "GIT_AUTHOR_EMAIL": "<>\x1b[31m", "GIT_COMMITTER_NAME": ""},
    "git's attributes": {"GIT_ATTR_SOURCE": "HEAD", "GIT_ATTR_NOSYSTEM": "0"}, "git's locks": {"GIT_OPTIONAL_LOCKS": "1", "GIT_FLUSH": "x"}, "git's hash": {"GIT_DEFAULT_HASH": "sha256", "GIT_DEFAULT_REF_FORMAT": "reftable", "GIT_TEST_DEFAULT_HASH": "sha256"}, "git's quarantine": {"GIT_QUARANTINE_PATH": "{outside}", "GIT_SHALLOW_FILE": "{outside}/shallow"}, "GitPython's": {"GIT_PYTHON_GIT_EXECUTABLE": TRAP, "GIT_PYTHON_TRACE": "full", "GIT_PYTHON_REFRESH": "raise"},
    "another PATH": {"PATH": "{inputs}/nothing"}, "empty PATH": {"PATH": ""}, "loader": {"LD_LIBRARY_PATH": "{outside}"}, "shell's": {"BASH_ENV": TRAP, "ENV": TRAP, "SHELL": TRAP, "PS4": "$({programs}/trap)", "IFS": "/", "BASH_FUNC_git%%": "() {{ {programs}/trap; }}"}, "gpg's": {"GNUPGHOME": "{outside}", "GPG_TTY": "/dev/zero", "SSH_AUTH_SOCK": "{outside}/x"}, "XDG": {"XDG_CONFIG_HOME": "{outside}", "XDG_CACHE_HOME": "{outside}", "XDG_DATA_HOME": "{outside}"}, "proxies": {"http_proxy": "http://127.0.0.1:9", "ALL_PROXY": "socks5://x", "NO_PROXY": "\x1b"},
    "pip's": {"PIP_INDEX_URL": "file:///{outside}", "PIP_CONFIG_FILE": "{outside}/secret.txt", "PIP_TARGET": "{outside}", "PIP_LOG": "{inputs}/pip.log", "PIP_CACHE_DIR": "{outside}", "PIP_REQUIRE_VIRTUALENV": "1"}, "uv's": {"UV_CONFIG_FILE": "{outside}/secret.txt", "UV_CACHE_DIR": "{outside}", "UV_INDEX_URL": "file:///"},
    "patchq's cache": {"PATCHQ_CACHE": "{inputs}/a file"}, "patchq's cache is a device": {"PATCHQ_CACHE": "/dev/null"}, "patchq's cache is empty": {"PATCHQ_CACHE": ""}, "patchq's cache has a NUL's look": {"PATCHQ_CACHE": "~/\\x00"}, "patchq's set": {"PATCHQ_SET": "../../evil\x1b[31m"}, "patchq's key": {"PATCHQ_SIGNING_KEY": "{outside}/secret.txt"}, "patchq's completion": {"_PATCHQ_COMPLETE": "bash_complete", "COMP_WORDS": "patchq show ", "COMP_CWORD": "2"}, "patchq's odd completion": {"_PATCHQ_COMPLETE": "\x1b[31m_source"},
    "no home": {"HOME": ""}, "home is nowhere": {"HOME": "/nonexistent"}, "home is a file": {"HOME": "{outside}/secret.txt"}, "home is relative": {"HOME": "."}, "home is a device": {"HOME": "/dev/null"}, "no TMPDIR": {"TMPDIR": "/nonexistent"}, "TMPDIR is a file": {"TMPDIR": "{outside}/secret.txt"}, "TMPDIR is relative": {"TMPDIR": "."}, "TMPDIR is odd": {"TMPDIR": "{temporary}/\x1b[31m"},
    "C locale": {"LANG": "C", "LC_ALL": "C"}, "no such locale": {"LANG": "evil", "LC_ALL": "evil"}, "Latin-1": {"LANG": "de_DE.ISO-8859-1", "PYTHONIOENCODING": "latin-1"}, "ASCII output": {"PYTHONIOENCODING": "ascii:strict"}, "other tongue": {"LANGUAGE": "de", "LANG": "de_DE.UTF-8"}, "columns of nothing": {"COLUMNS": "0", "LINES": "0"}, "columns below nothing": {"COLUMNS": "-1"}, "columns of letters": {"COLUMNS": "evil", "LINES": "\x1b"}, "columns of all": {"COLUMNS": "99999999999"}, "terminal": {"TERM": "../../evil", "TERMINFO": "{outside}", "COLORTERM": "x"}, "forced colour": {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"},
    "malloc": {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "debug"}, "hash seed": {"PYTHONHASHSEED": "0"}, "bytes": {"EVIL": "\udcff\udcfe", "PATCHQ_EVIL": "\udcff"}, "CI": {"CI": "1", "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "{inputs}/nothing/summary", "GITHUB_TOKEN": "x", "GITHUB_EVENT_PATH": "{outside}/secret.txt"}, "epoch": {"SOURCE_DATE_EPOCH": "evil"}, "many": {f"EVIL_{n}": "x" * 1000 for n in range(1000)},
}  # fmt: skip
PYTHON = {
    "optimised": {"PYTHONOPTIMIZE": "2"}, "warnings": {"PYTHONWARNINGS": "always"}, "utf8 off": {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}, "verbose": {"PYTHONVERBOSE": ""}, "safe path": {"PYTHONSAFEPATH": "1"}, "faults": {"PYTHONFAULTHANDLER": "1", "PYTHONDEVMODE": "1"}, "digits": {"PYTHONINTMAXSTRDIGITS": "0"}, "breakpoint": {"PYTHONBREAKPOINT": "os.abort"}, "inspect": {"PYTHONINSPECT": ""}, "unbuffered": {"PYTHONUNBUFFERED": "1"},
}  # fmt: skip


def inputs(world: World) -> None:
    world.write(
        world.inputs / "evil.config",
        f'[core]\n\tfsmonitor = {world.trap}\n\tpager = {world.trap}\n\tsshCommand = {world.trap}\n[diff]\n\texternal = {world.trap}\n[filter "x"]\n\tsmudge = {world.trap}\n',
    )
    world.write(world.inputs / "a file", "x")
    world.write(world.project / ".gitattributes", "* diff=x filter=x\n")


def read_only(world: World) -> None:
    for folder in (
        world.project,
        *(path for path in world.project.rglob("*") if path.is_dir() and not path.is_symlink()),
    ):
        folder.chmod(0o555)


def unreadable(name: str) -> Callable[[World], None]:
    return lambda world: (world.root / name).chmod(0)


def site(world: World) -> Path:
    (found,) = (world.root / "env" / "lib").glob("python*/site-packages")
    return found


def installed(change: Callable[[World, Path], object]) -> Callable[[World], None]:
    """An environment whose site-packages are another's."""
    return lambda world: change(world, site(world)) and None


def meta(world: World, name: str) -> Path:
    return next(site(world).glob("lib-*.dist-info")) / name


VERIFY = ("verify-installed --python {root}/env/bin/python",)
ENVIRONMENTS: dict[str, Callable[[World, Path], object]] = {
    "start-up file": lambda world, place: world.write(place / "evil.pth", f"import os; {world.mark_code('start-up')}"), "start-up of escapes": lambda world, place: world.write(place / "evil.pth", "import sys; sys.stderr.write('\\x1b[31mevil\\n'); print('\\x1b]0;x\\x07')\n"), "start-up that ends": lambda world, place: world.write(place / "evil.pth", "import os; os._exit(0)\n"),
    "start-up that answers": lambda world, place: world.write(place / "evil.pth", "import os; os.write(1, b'{}\\n'); os._exit(0)\n"), "start-up that answers much": lambda world, place: world.write(place / "evil.pth", "import os; os.write(1, b'[' * 200000); os._exit(0)\n"), "start-up that fails": lambda world, place: world.write(place / "evil.pth", "import evil_that_is_nowhere\n"),
    "METADATA of escapes": lambda world, _: world.write(meta(world, "METADATA"), "Metadata-Version: 2.1\nName: \x1b[31mlib\nVersion: \x1b]0;x\x07\u202e\n"), "METADATA of another": lambda world, _: world.write(meta(world, "METADATA"), "Name: ../../evil\nVersion: --x\n"), "METADATA of megabytes": lambda world, _: world.write(meta(world, "METADATA"), "Name: lib\n" + "X: y\n" * 500_000), "METADATA is a link out": lambda world, _: (meta(world, "METADATA").unlink(), meta(world, "METADATA").symlink_to(world.secret)),
    "METADATA is a pipe": lambda world, _: (meta(world, "METADATA").unlink(), os.mkfifo(meta(world, "METADATA"))), "METADATA is a device": lambda world, _: (meta(world, "METADATA").unlink(), meta(world, "METADATA").symlink_to("/dev/zero")), "RECORD is a pipe": lambda world, _: (meta(world, "RECORD").unlink(), os.mkfifo(meta(world, "RECORD"))), "RECORD is a device": lambda world, _: (meta(world, "RECORD").unlink(), meta(world, "RECORD").symlink_to("/dev/zero")), "RECORD is a link out": lambda world, _: (meta(world, "RECORD").unlink(), meta(world, "RECORD").symlink_to(world.secret)),
    "RECORD names outside": lambda world, _: world.append(f"../../../../../outside/secret.txt,sha256=x,1\n{world.secret},,\n/etc/passwd,,\n", meta(world, "RECORD")), "RECORD names a device": lambda world, _: world.append("/dev/zero,sha256=x,1\n/proc/kcore,,\n", meta(world, "RECORD")), "RECORD of quotes": lambda world, _: world.append('"' * 100_001, meta(world, "RECORD")), "RECORD of NULs": lambda world, _: world.append("\0,\0,\0\n", meta(world, "RECORD")), "RECORD of lines": lambda world, _: world.append("x,,\n" * 300_000, meta(world, "RECORD")),
    "RECORD of escapes": lambda world, _: world.append("lib/\x1b[31m\u202e.py,sha256=x,1\n", meta(world, "RECORD")), "RECORD of bytes": lambda world, _: world.append(b"lib/\xff.py,,\n", meta(world, "RECORD")), "RECORD is huge": lambda world, _: os.truncate(meta(world, "RECORD"), 1 << 40), "manifest of brackets": lambda world, place: world.write(place / "lib" / "_patchq.json", "[" * 200_000), "manifest of escapes": lambda world, place: world.write(place / "lib" / "_patchq.json", '{"schema": "patchq/wheel/1", "set": "\\u001b[31m", "stack_id": "\\u202e", "files": {"../../../outside/secret.txt": "x"}}'),
    "manifest is a link out": lambda world, place: ((place / "lib" / "_patchq.json").unlink(), (place / "lib" / "_patchq.json").symlink_to(world.secret)), "manifest is a pipe": lambda world, place: ((place / "lib" / "_patchq.json").unlink(), os.mkfifo(place / "lib" / "_patchq.json")), "manifest is huge": lambda world, place: os.truncate(place / "lib" / "_patchq.json", 1 << 40), "module is a link out": lambda world, place: ((place / "lib" / "other.py").unlink(), (place / "lib" / "other.py").symlink_to(world.secret)),
    "module is a pipe": lambda world, place: ((place / "lib" / "other.py").unlink(), os.mkfifo(place / "lib" / "other.py")), "module is a device": lambda world, place: ((place / "lib" / "other.py").unlink(), (place / "lib" / "other.py").symlink_to("/dev/zero")), "module is huge": lambda world, place: os.truncate(place / "lib" / "other.py", 1 << 40), "package is a link out": lambda world, place: (shutil.rmtree(place / "lib"), (place / "lib").symlink_to(world.outside)), "package is a circle": lambda world, place: (place / "lib" / "lib").symlink_to("."),
    "package runs": lambda world, place: world.append(world.mark_code("package"), place / "lib" / "__init__.py"), "cache of rubbish": lambda world, place: world.write(place / "lib" / "__pycache__" / f"other.{sys.implementation.cache_tag}.pyc", b"\0" * 16 + b"\xff" * 1000), "cache is a pipe": lambda world, place: ((place / "lib" / "__pycache__").mkdir(), os.mkfifo(place / "lib" / "__pycache__" / f"other.{sys.implementation.cache_tag}.pyc")),
    "cache that recurses": lambda world, place: world.write(place / "lib" / "__pycache__" / f"other.{sys.implementation.cache_tag}.pyc", Path(importlib.util.cache_from_source(os.__file__)).read_bytes()[:16] + b"\xa9\x01" * 100_000), "names of escapes": lambda world, place: world.write(place / "lib" / "\x1b[31m\n.py", ""), "names of bytes": lambda world, place: world.write(place / "lib" / os.fsdecode(b"\xff.py"), ""), "many folders": lambda world, place: [world.write(place / f"d{n}-1.dist-info" / "METADATA", "Name: d\nVersion: 1\n") for n in range(1000)],
    "another copy": lambda world, place: shutil.copytree(next(place.glob("lib-*.dist-info")), place / "lib-9.9.dist-info"), "link of itself": lambda world, place: (place / "lib" / "l").symlink_to("l"), "deep folders": lambda world, place: (place / "lib" / "/".join(["d" * 50] * 60)).mkdir(parents=True), "direct address": lambda world, _: world.write(meta(world, "direct_url.json"), '{"url": "file:///\\u001b[31m", "dir_info": {"editable": true}}'), "entry points": lambda world, _: world.write(meta(world, "entry_points.txt"), "[console_scripts]\n\x1b[31m=\n[" * 2000),
}  # fmt: skip


def streams(**fields: Any) -> Way:
    """A way that only a process of its own can be run in."""
    return Way(process=PATCHQ, **fields)


STREAMS = {
    "full output": streams(stdout="/dev/full"), "full errors": streams(stderr="/dev/full"), "both full": streams(stdout="/dev/full", stderr="/dev/full"), "closed output": streams(stdout=None), "closed errors": streams(stderr=None), "closed input": streams(stdin=None), "all closed": streams(stdin=None, stdout=None, stderr=None), "endless input": streams(stdin="/dev/zero"), "input is a folder": streams(stdin="{outside}"),
    "no mask": streams(umask=0), "full mask": streams(umask=0o777), "folder is gone": streams(cwd="{log}/gone", remove_cwd=True), "folder is outside": streams(cwd="/"), "on a terminal": streams(terminal=True), "narrow terminal": streams(terminal=True, environment={"COLUMNS": "1"}),
}  # fmt: skip


def gone(world: World) -> None:
    (world.log / "gone").mkdir()


CASES = [
    *(Case(name=f"variables: {name}", make=inputs, verbs=("diff HEAD", "apply --to first", "drop third", "pin up --ref v2"), way=Way(environment=values)) for name, values in VARIABLES.items()),
    *(Case(name=f"Python: {name}", make=inputs, verbs=("list",), way=Way(environment=values, process=PATCHQ)) for name, values in PYTHON.items()),
    *(Case(name=f"streams: {name}", make=gone, verbs=("--project {project} show first --diff",), way=way) for name, way in STREAMS.items()),
    Case(name="read-only project", make=read_only, verbs=(*LOOK, *WORK), way=Way(unprivileged=True)),
    *(Case(name=f"unreadable {name}", make=unreadable(name), verbs=(*LOOK, *WORK), way=Way(unprivileged=True)) for name in (
        "home", "home/.gitconfig", "project/.patchq", "project/patches", "project/upstream.lock", "project/.git", "project/patches/up/v1/first.patch", "project/.patchq/store.git/objects", "project/.patchq/state", "upstream", "cache", "tmp",
    )),
    *(Case(name=f"installed: {name}", base=Base.WHEELS, make=installed(change), verbs=VERIFY, runs=frozenset({"start-up"}), opens=frozenset({"secret.txt"})) for name, change in ENVIRONMENTS.items()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_surroundings(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 140
