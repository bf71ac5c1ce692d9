"""A lock that names programs, options and places outside, or that is no lock at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Base, Case, World
from kit import git

LOCK = """version = 1
default-set = "default"

[upstreams.up]
url = {url}

[upstreams.up.pins."v1"]
commit = "{commit}"

[sets.default]
up = "v1"
"""
ASK = ("status", "pin --check", "fetch --all")


def commit_of(world: World) -> str:
    return git(world.upstream, "rev-parse", "v1")


def toml(text: str) -> str:
    """A TOML string with everything in it, also what JSON has otherwise."""
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


def filled(world: World, text: str) -> str:
    places = {**world.places, "trap": str(world.trap), "commit": commit_of(world), "secret": str(world.secret)}
    for name, value in places.items():
        text = text.replace(f"<{name}>", value)
    return text


def lock(world: World, url: str = "<upstream>", more: str = "", **replaced: str) -> None:
    text = LOCK.format(url=toml(filled(world, url)), commit=commit_of(world))
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    world.write(world.lock, text + filled(world, more))


def url(text: str) -> Callable[[World], None]:
    return lambda world: lock(world, text)


def more(text: str) -> Callable[[World], None]:
    return lambda world: lock(world, more=text)


def instead(old: str, new: str) -> Callable[[World], None]:
    """Replace a part of a good lock."""

    def make(world: World) -> None:
        lock(world)
        text = filled(world, old)
        world.replace(text, filled(world, new), count=-1)

    return make


def whole(data: str | bytes) -> Callable[[World], None]:
    return lambda world: world.write(world.lock, filled(world, data) if isinstance(data, str) else data) and None


def archived(text: str) -> Callable[[World], None]:
    """A pin whose archive is something else."""
    return instead('commit = "<commit>"', f'archive = {toml("@")}\nsha256 = "{"0" * 64}"'.replace('"@"', text))


#: Addresses of an upstream.
URLS = {
    "ext": "ext::<trap>", "ext in capitals": "EXT::<trap>", "ext with a shell": "ext::sh -c <trap>% x", "fd": "fd::17",
    "option": "--upload-pack=<trap>", "one dash": "-u<trap>", "option as host": "ssh://-oProxyCommand=<trap>/x",
    "option as user": "ssh://-oProxyCommand=<trap>@127.0.0.1:9/x", "option as scp": "-oProxyCommand=<trap>:x",
    "option behind a host": "ssh://127.0.0.1:9/--upload-pack=<trap>", "home": "~", "somebody's home": "~root/x", "home of file": "file://~/x",
    "outside": "<outside>", "secret": "<secret>", "file": "file://<outside>", "file of a host": "file://127.0.0.1/<outside>",
    "climbing": "../outside", "root": "/", "home folder": "<home>", "variable": "$HOME", "command": "$(<trap>)", "backticks": "`<trap>`",
    "pipe": "|<trap>", "newline": "https://127.0.0.1:9/x\nHost: evil", "carriage return": "https://127.0.0.1:9/x\r\nX: y",
    "NUL": "x\0y", "escape": "\x1b]0;evil\x07", "turned": "https://127.0.0.1:9/\u202egpj", "closed port": "https://127.0.0.1:9/x.git",
    "git of closed port": "git://127.0.0.1:9/x.git", "password": "https://me:secret@127.0.0.1:9/x", "ftp": "ftp://127.0.0.1:9/x",
    "javascript": "javascript:pwned()", "data": "data:text/html,pwned", "dict": "dict://127.0.0.1:9/x", "gopher": "gopher://127.0.0.1:9/x",
    "http to file": "http::file://<outside>", "bundle": "<secret>", "empty": "", "blank": " ", "dot": ".", "long": "a" * 100_000,
    "UNC": "\\\\127.0.0.1\\x", "device": "/dev/zero", "standard input": "/dev/stdin", "process": "/proc/self/environ",
    "processes": "/proc", "system": "/sys", "devices": "/dev", "transport": "transport::address", "percent": "file://%2e%2e/%00",
}  # fmt: skip
#: Names of upstreams, pins and sets.
NAMES = {
    "climbing": "../evil", "absolute": "/tmp/evil", "option": "--upload-pack=x", "dash": "-x", "NUL": "a\0b", "escape": "a\x1b[31m",
    "newline": "a\nb", "turned": "\u202ea", "git": ".git", "dot": ".", "dots": "..", "empty": "", "long": "a" * 5000, "pattern": "*",
    "replaced": "refs/replace/x", "own": "refs/patchq/x", "head": "HEAD", "lock": "a.lock", "at": "@{u}", "range": "a..b", "colon": "a:b",
    "blank": "a b", "slash": "a//b", "backslash": "a\\..\\b", "accent": "cafe\u0301", "device": "CON", "percent": "%2e%2e%2fevil",
}  # fmt: skip
#: Archives of a pin.
ARCHIVES = {
    "climbing": "../outside/secret.txt", "absolute": "/etc/passwd", "option": "--index-url=http://127.0.0.1:9", "option and name": "-r secret.txt==1",
    "requirement": "evil @ file:///etc/passwd", "two": "evil==1 other==2", "marker": "evil==1; sys_platform", "extra": "evil[x]==1",
    "address": "https://127.0.0.1:9/x.tar.gz", "git": "git+file:///x==1", "newline": "evil==1\n--index-url x", "escape": "\x1b[31m==1",
    "version": "evil==not a version", "wild": "evil==*", "long": "a" * 5000 + "==1", "device": "/dev/zero", "folder": "./", "NUL": "./a\0b.tar.gz",
    "home": "~/x.tar.gz", "turned": "\u202eevil==1",
}  # fmt: skip
BUILD = '\n[upstreams.up.build]\ndistribution = "up"\n'
BUILDS = {
    "requirement is an option": BUILD + 'requires = ["--index-url=http://127.0.0.1:9"]\n',
    "requirement is a file": BUILD + 'requires = ["-r<secret>"]\n',
    "requirement is an address": BUILD + 'requires = ["evil @ file://<outside>"]\n',
    "requirement is a folder": BUILD + 'requires = ["./evil"]\n',
    "environment is Python's": BUILD + 'empty-env = { PYTHONPATH = "<outside>" }\n',
    "environment is a loader's": BUILD + 'empty-env = { LD_PRELOAD = "<trap>" }\n',
    "environment is git's": BUILD + 'empty-env = { GIT_SSH_COMMAND = "<trap>" }\n',
    "environment of newlines": BUILD + 'empty-env = { UP_X = "a\\nb" }\n',
    "environment is no name": BUILD + 'empty-env = { "UP_=x" = "y", "UP_\\u0000" = "y" }\n',
    "version file outside": BUILD + 'version-file = "../../outside/secret.txt"\n',
    "version file is absolute": BUILD + 'version-file = "<secret>"\n',
    "links out": BUILD + 'links = { "a" = "../../../outside", "../x" = "a.txt" }\n',
    "package is a path": BUILD + 'package = "../../evil"\n',
    "package is code": BUILD + 'package = "os; import evil"\n',
    "distribution is an option": '\n[upstreams.up.build]\ndistribution = "--evil"\n',
    "distribution is a path": '\n[upstreams.up.build]\ndistribution = "../evil"\n',
    "profile": BUILD + 'profile = "evil"\n',
    "ignore is a bomb": BUILD + 'ignore = ["' + "*a" * 200 + 'b"]\n',
    "wheel outside": '\n[upstreams.up.pins.v1.wheels]\n"../../evil.whl" = "' + "0" * 64 + '"\n',
    "wheel of an option": '\n[upstreams.up.pins.v1.wheels]\n"--evil.whl" = "' + "0" * 64 + '"\n',
    "keyring outside": "KEYRING../outside/secret.txt",
    "keyring absolute": "KEYRING<secret>",
    "keyring is a device": "KEYRING/dev/zero",
    "keyring is an option": "KEYRING--keyserver=x",
    "keyring is a script": "KEYRINGkeys/up.asc",
    "into itself": '\n[upstreams.down]\nurl = "<upstream>"\ninto = "down:x"\n',
    "into outside": '\n[upstreams.down]\nurl = "<upstream>"\ninto = "up:../../evil"\n[upstreams.down.pins.v1]\ncommit = "<commit>"\n',
    "into git": '\n[upstreams.down]\nurl = "<upstream>"\ninto = "up:.git/hooks"\n[upstreams.down.pins.v1]\ncommit = "<commit>"\n',
    "into a circle": '\n[upstreams.down]\nurl = "<upstream>"\ninto = "more:x"\n[upstreams.more]\nurl = "<upstream>"\ninto = "down:x"\n',
    "merger with a folder": '\n[mergers.m]\nprogram = "<trap>"\n',
    "merger with arguments": '\n[mergers.m]\nprogram = "trap --x"\n',
    "merger is an option": '\n[mergers.m]\nprogram = "--x"\n',
    "signing key outside": '\n[signing]\nkey = "<secret>"\n',
    "signing issuer": '\n[signing]\nidentity = "--offline"\nissuer = "file://<secret>"\n',
    "check rule": '\n[upstreams.up.check]\noff = ["applies", "\\u001b[31m"]\nreason = "x"\n',
    "mismatch": '\n[mismatches.default]\n"\\u001b]0;x\\u0007" = "\\u202e"\n',
    "unknown keys": '\n[evil]\n"\\u001b[31m" = "\\u202e"\n',
}  # fmt: skip
IMAGE = '\n[environments.default]\nimage = "{}"\n'
ENVIRONMENTS = {
    "image of lines": IMAGE.format("base\\nRUN <trap>"), "image of an option": IMAGE.format("--platform=x base"),
    "image of a variable": IMAGE.format("$HOME"), "image of a command": IMAGE.format("$(<trap>)"), "image of escapes": IMAGE.format("\\u001b[31m"),
    "requirement of an option": IMAGE.format("b") + 'requires = ["--index-url http://127.0.0.1:9"]\n',
    "requirement of a command": IMAGE.format("b") + 'requires = ["torch==1; $(<trap>)"]\n',
    "requirement of a file": IMAGE.format("b") + 'requires = ["-r <secret>"]\n',
    "index of lines": IMAGE.format("b") + 'index = "https://127.0.0.1:9/\\nRUN <trap>"\n',
    "index of an option": IMAGE.format("b") + 'index = "--trusted-host=x"\n',
    "environment of lines": IMAGE.format("b") + 'env = { A = "b\\nRUN <trap>" }\n',
    "environment of a name": IMAGE.format("b") + 'env = { "A=b\\nRUN <trap>" = "c" }\n',
    "environment of a loader": IMAGE.format("b") + 'env = { LD_PRELOAD = "/x", PATH = "" }\n',
    "caches outside": IMAGE.format("b") + 'caches = ["/", "../../x", "/etc:/etc"]\n',
    "caches of lines": IMAGE.format("b") + 'caches = ["/x\\n  privileged: true"]\n',
    "serve of quotes": IMAGE.format("b") + 'serve = ["a\\"b", "c\'d", "$X", "\\n", "\\u0000"]\n',
    "serve of nothing": IMAGE.format("b") + "serve = []\n", "port": IMAGE.format("b") + "port = 99999999\n",
    "port of a text": IMAGE.format("b") + 'port = "80\\n  privileged: true"\n', "gpu of a number": IMAGE.format("b") + "gpu = 3\n",
}  # fmt: skip
#: Files that are no lock.
WHOLE: dict[str, str | bytes] = {
    "nothing": b"", "NUL": b"\0" * 1000, "no text": b"\xff\xfe\x00", "byte order mark": b"\xef\xbb\xbfversion = 1\n", "escapes": b"\x1b[31m = 1\n",
    "UTF-16": "version = 1\n".encode("utf-16"), "JSON": b'{"version": 1}\n', "duplicate key": b"version = 1\nversion = 1\n",
    "duplicate table": b"version = 1\n[sets]\n[sets]\n", "deep arrays": b"version = " + b"[" * 100_000, "closed arrays": b"version = " + b"[" * 20_000 + b"]" * 20_000,
    "deep tables": b"version = " + b"{a=" * 50_000, "deep names": b"a." * 50_000 + b"b = 1\n", "header of names": b"[" + b"a." * 30_000 + b"b]\n",
    "many tables": b"version = 1\n" + b"".join(b"[sets.s%d]\n" % n for n in range(10_000)), "many pins": b"version = 1\n[upstreams.up]\nurl = 'x'\n"
    + b"".join(b"[upstreams.up.pins.v%d]\ncommit = '%040d'\n" % (n, n) for n in range(20_000)),
    "long number": b"version = " + b"9" * 1_000_000, "hex number": b"version = 0x" + b"f" * 100_000, "infinite": b"version = inf\n", "negative": b"version = -1\n",
    "date": b"version = 2026-01-02\n", "float": b"version = 1e999999\n", "text": b'version = "1"\n', "future": b"version = 999\n",
    "long string": b'version = """' + b"a" * 3_000_000, "quotes": b'version = "' + b'\\"' * 500_000, "large": b"# x\n" * 1_500_000, "comments": b"#" * 4_000_000,
    "sets is a list": b"version = 1\nsets = []\n", "upstreams is a text": b'version = 1\nupstreams = "x"\n',
    "upstream is a number": b"version = 1\n[upstreams]\nup = 3\n", "pins is a list": b'version = 1\n[upstreams.up]\nurl = "x"\npins = [1]\n',
    "pin is a list": b'version = 1\n[upstreams.up]\nurl = "x"\n[upstreams.up.pins]\nv1 = ["x"]\n',
    "set of nothing": b'version = 1\ndefault-set = "x"\n[sets.x]\nup = "v1"\n', "surrogate": b'version = 1\ndefault-set = "\\ud800"\n',
}  # fmt: skip
COMMITS = {
    "option": "--output=evil", "short": "1234567", "branch": "main", "capitals": "ABCDEF" + "0" * 34, "zeros": "0" * 40, "newline": "0" * 39 + "\n",
    "SHA-256": "0" * 64, "range": "a..b", "path": "../../evil", "escape": "\x1b[31m", "tree": "TREE", "long": "0" * 100_000,
}  # fmt: skip


def keyed(text: str) -> Callable[[World], None]:
    """A lock with a keyring, which is also there as a file that is no keyring."""

    def make(world: World) -> None:
        world.write(world.project / "keys" / "up.asc", f"#!/bin/sh\n{world.trap}\n", 0o755)
        instead("[upstreams.up]\n", f"[upstreams.up]\nkeyring = {toml(filled(world, text))}\n")(world)

    return make


def build(text: str) -> Callable[[World], None]:
    return keyed(text.removeprefix("KEYRING")) if text.startswith("KEYRING") else more(text)


def pinned(commit: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        other = git(world.upstream, "rev-parse", "v1^{tree}") if commit == "TREE" else commit
        instead('"<commit>"', toml(other))(world)

    return make


#: A lock may name a folder of this machine, whose files are then read to see which commit they are; git asks .netrc.
READ = {
    "outside": frozenset({"secret.txt", "deeper.txt"}), "file": frozenset({"secret.txt", "deeper.txt"}),
    "climbing": frozenset({"secret.txt", "deeper.txt"}), "turned": frozenset({".netrc"}), "closed port": frozenset({".netrc"}),
    "password": frozenset({".netrc"}),
}  # fmt: skip
SSH = frozenset({"ssh"})
GPG = frozenset({"gpg", "gpg2"})
CASES = [
    *(Case(name=f"url: {name}", base=Base.EMPTY, make=url(text), verbs=ASK, runs=SSH, opens=READ.get(name, frozenset())) for name, text in URLS.items()),
    *(Case(name=f"url to pin: {name}", base=Base.EMPTY, make=lambda _: None, runs=SSH,
           verbs=("pin evil --ref v1 --url='" + URLS[name].replace("<", "{").replace(">", "}").replace("{trap}", "{programs}/trap") + "'", "status"))
      for name in ("ext", "option", "one dash", "option as host", "option as scp", "newline", "command")),
    *(Case(name=f"upstream: {name}", base=Base.EMPTY, make=instead("upstreams.up", f"upstreams.{toml(text)}"), verbs=("status", "apply"))
      for name, text in NAMES.items()),
    *(Case(name=f"pin: {name}", base=Base.EMPTY, make=instead('"v1"', toml(text)), verbs=("status", "fetch --all", "bundle {out}/b")) for name, text in [*NAMES.items()][::2]),
    *(Case(name=f"set: {name}", base=Base.EMPTY, verbs=("status", "bundle {out}/b", "build --offline"),
           make=lambda world, text=text: (instead('"default"', toml(text))(world), world.replace("sets.default", f"sets.{toml(text)}")))
      for name, text in [*NAMES.items()][1::4]),
    *(Case(name=f"archive: {name}", base=Base.EMPTY, make=archived(toml(text)), verbs=("fetch --all",), opens=READ["outside"]) for name, text in ARCHIVES.items()),
    *(Case(name=f"commit: {name}", base=Base.EMPTY, make=pinned(text), verbs=("fetch --all", "apply")) for name, text in COMMITS.items()),
    *(Case(name=f"build: {name}", base=Base.EMPTY, make=build(text), verbs=("apply", "build --offline", "bundle {out}/b"), runs=GPG)
      for name, text in BUILDS.items()),
    *(Case(name=f"environment: {name}", base=Base.EMPTY, make=more(text), verbs=("apply", "compose", "check --text"))
      for name, text in ENVIRONMENTS.items()),
    *(Case(name=f"whole: {name}", base=Base.EMPTY, make=whole(data), verbs=("status", "pin up --ref v1 --url {upstream}"))
      for name, data in WHOLE.items()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_lock(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 210
