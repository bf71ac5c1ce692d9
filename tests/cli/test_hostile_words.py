"""Somebody else's words on a terminal, in each field of each verb: shown as escapes, and never obeyed."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import sys
import termios
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import patchq as package
from kit import Patchq, commit_files, edit, git, numbered
from patchq.cli import VERBS, cli, terminal

#: The title set, the screen cleared, colour by an 8-bit control, text turned around, nothing that is something, rubbed out.
EVIL = "\x1b]0;x\x07\x1b[2J\x9b31m\u202e\u2066\u200b\u200d\ufeff\x7f\x08"
#: Of that, what may be in the name of a git ref.
EVIL_REF = "\x9b31m\u202e\u2066\u200b\u200d\ufeff"
REF, LATER = f"v1{EVIL_REF}(ref)", f"v2{EVIL_REF}(later)"
PATH = f"{EVIL}(path).py"


def evil(field: str) -> str:
    """A field's words; on the screen it is known by its name in brackets."""
    return f"{EVIL}({field})"


def toml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def shown(char: str) -> bool:
    return char in "\n\t" or char.isprintable() or unicodedata.category(char) == "Zs"


@contextmanager
def terminal_of(columns: int) -> Iterator[list[bytes]]:
    """A pseudo-terminal in the place of the standard streams, files and descriptors both; gives what went to it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    got: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(master, 65536):
                got.append(chunk)

    kept = [os.dup(n) for n in (0, 1, 2)]
    streams = sys.stdin, sys.stdout, sys.stderr
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in (0, 1, 2):
            os.dup2(slave, n)
        os.close(slave)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(n, m, encoding="utf-8", closefd=False) for n, m in enumerate("rww")
        )
        yield got
    finally:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()
        sys.stdin, sys.stdout, sys.stderr = streams
        for n, old in enumerate(kept):
            os.dup2(old, n)
            os.close(old)
        reader.join()  # the terminal has no writer any more
        os.close(master)


class Screen:
    """Runs verbs on a terminal, looks at every byte, and keeps what was to be seen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen = ""
        self.verbs: set[str] = set()

    def __call__(self, *args: str) -> str:
        self.verbs.add(args[0])
        with terminal_of(3000) as got:
            assert sys.stdout.isatty()
            assert sys.stderr.isatty()
            cli.main(["--project", str(self.root), *args], prog_name="patchq", standalone_mode=False)
        # What a line ends with there, and what a progress begins with.
        text = b"".join(got).decode().replace("\r\n", "\n").replace("\r", "\n")
        assert {c for c in text if not shown(c)} == set(), f"{args}: {text!r}"
        assert "This is a bug" not in text, text
        self.seen += text
        return text


MESSAGE = f"""{evil("subject")}

{evil("body")}

Upstream-Status: Submitted [https://{evil("status")}]
Topic: {evil("topic")}
Proof: tests/{evil("proof")}
Requires: up/{evil("requires")}
Needs: {evil("needs")}
Signed-off-by: {evil("signed")} <a@b>
"""
FUNCTION = f"def {evil('function')}(a):\n".encode() + b"    x = 1\n" * 8 + b"    return a\n"
AUTHOR = {"GIT_AUTHOR_NAME": evil("author"), "GIT_AUTHOR_EMAIL": f"{evil('email')}@x"}


@pytest.fixture
def hostile(empty: Patchq, upstream: Path) -> Patchq:
    """A project that is hostile in all that a git repository, a patch, a ledger and a report can hold."""
    text = numbered(40).replace(b"line 7\n", f"{evil('found')}\n".encode())
    commit_files(upstream, {PATH: FUNCTION, "a.txt": text}, "base")
    git(upstream, "tag", REF)
    empty.ok("pin", "up", "--url", str(upstream), "--ref", REF)
    empty.ok("apply")
    tree = empty.tree()
    (tree / PATH).write_bytes(FUNCTION.replace(b"    return a", f"    return {evil('diff')}".encode()))
    git(tree, "commit", "-qam", MESSAGE, env=AUTHOR)
    edit(tree / "a.txt", 5, f"{evil('expected')}\n".encode())
    git(tree, "commit", "-qam", "Second\n\nWhy.\n\nProof: tests/stacks/up/test_second.py\n", env=AUTHOR)
    empty.ok("export", "up")
    edit(upstream / "a.txt", 5)
    git(upstream, "commit", "-qam", f"{evil('culprit')} (#1)", env=AUTHOR)
    (upstream / PATH).write_bytes(FUNCTION.replace(b"x = 1", b"x = 2", 1))
    git(upstream, "commit", "-qam", "Change")
    git(upstream, "tag", LATER)
    attempt = {"v": 1, "patch": evil("ledger-patch"), "patch_id": "0" * 40, "from_ref": evil("ledger-from"), "onto": evil("ledger-onto"),
               "outcome": "resolved", "evidence": evil("ledger-evidence"), "how": evil("ledger-how"), "tool": "t", "broke": "",
               "files": [{"path": evil("ledger-path"), "hunks": 1}], "proof": evil("ledger-proof"), "time": "2026-11-21T00:00:00Z"}  # fmt: skip
    lines = [attempt, {**attempt, "grade": evil("ledger-grade")}, {**attempt, evil("ledger-field"): 1}]
    (empty.root / "patches" / "up" / "ledger.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    measured = {"v": 1, "machine": "GB10", "engine": "e", "model": "m", "test": "tg32", "depth": 0, "value": 1.0, "spread": 0.1, "samples": 1,
                "config": evil("config"), "file": "measurements/files/x", "sha256": "0" * 64, "place": "line 1",
                "time": "2026-11-21T22:31:48Z", "stack_id": "", "patches": [], "reported": evil("reported")}  # fmt: skip
    folder = empty.root / "measurements"
    folder.mkdir()
    lines = [{**measured, "config": ""}, measured]
    (folder / "ledger.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    proof = empty.root / "tests" / "stacks" / "up" / "test_second.py"
    proof.parent.mkdir(parents=True)
    proof.write_text(f"def test_it(trees):\n    raise AssertionError({evil('asserted')!r})\n")
    return empty


def of_the_stack(screen: Screen, hostile: Patchq) -> None:
    first = json.loads(hostile.ok("list", "--json"))["patches"][0]["name"]
    for args in (
        ("status",), ("list",), ("list", "--topic", evil("a topic")), ("show", first, "--diff"), ("show", "second", "--diff"), ("show", evil("a patch")),
        ("check",), ("deps",), ("deps", "--dot"), ("ledger",), ("ledger", "--cost"), ("drift", "up", "--from", REF, "--to", evil("a ref")),
        ("pin", "--check"), ("pin", "up", "--ref", evil("a new ref")), ("pin", "up", "--url", f"file:///{evil('url')}", "--ref", "x"),
        ("fetch", evil("to fetch")), ("fetch", "--all"), ("bench", "show"), ("bench", "import", evil("no file"), "--machine", "m", "--reported", "w"),
        ("test",), ("report",), ("report", "--look-ahead", "--markdown", "m.md"), ("issue", first, "--no-run"), ("issue", "second", "--no-run"),
        ("pr", first, "--no-proof", "--no-gates", "--upstream", "up"), ("pr", "--topic", evil("to propose")),
        ("pr", "second", "--no-proof", "--no-gates", "--onto", REF), ("doctor",), ("verify-installed",), ("build",), ("compose",),
        ("bundle", str(hostile.root / evil("bundle"))), ("forecast", "up", "--onto", LATER, "--annotate"),
        ("forecast", "up", "--onto", LATER, "--why"), ("fetch", "--history"), ("retire", "second", "--onto", LATER),
        ("retire", "--onto", LATER, "--evidence"), ("retire", first, "--onto", LATER, "--how", evil("how")),
        ("forecast", "up", "--onto", LATER, "--blame"), ("forecast", "up", "--onto", evil("unknown")), ("move", first, "--after", evil("anchor")),
        ("drop", evil("dropped")), ("new", "up", evil("new")), ("status", evil("too many")), ("status", f"--{evil('option')}"),
        ("log",), ("redo",), ("split", first), ("split", evil("to split")), ("fold", "up"), ("compare", evil("other")),
        ("init", str(hostile.root.parent / evil("folder"))), ("apply", "--set", evil("set")), ("apply", "--to", evil("to")),
    ):  # fmt: skip
        screen(*args)
    for args in (("show", first, "--diff"), ("ledger",), ("check",), ("show", evil("a patch"))):
        json.loads(screen(*args, "--json"))
    targets = hostile.root / "measurements" / "targets.toml"
    targets.write_text(f'[[target]]\nmachine = "GB10"\ntest = "tg32"\nvalue = 2.0\nwhy = {toml(evil("why"))}\n')
    screen("bench", "show")
    targets.unlink()


def of_changes(screen: Screen, hostile: Patchq, tmp_path: Path) -> None:
    tree = hostile.tree()
    (tree / evil("untracked")).write_text("x\n")
    screen("status")
    screen("export", "up")
    edit(tree / PATH, 3, b"    x = 3\n")
    for verb in (("status",), ("apply", "--to", "second"), ("export", "up")):
        screen(*verb)
    git(tree, "checkout", "-q", "--", ".")
    (tree / evil("untracked")).unlink()
    (tree / evil("nested")).mkdir()
    git(tree / evil("nested"), "init", "-q")
    screen("new", "up", "more", "-m", "More")
    (tree / evil("nested")).rename(tmp_path / "away")
    git(tree, "commit", "-q", "--allow-empty", "-m", f"fixup! {evil('fixup')}")
    screen("export", "up")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    mail = f"From: {evil('sender')} <a@b>\nDate: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: [PATCH 0/1] {evil('cover')}\n\nWords.\n"
    diff = f"diff --git a/{evil('place')} b/x\n--- a/{evil('place')}\n+++ b/{evil('place')}\n@@ -1 +1 @@\n-a\n+b\n"
    (tmp_path / f"{evil('mail')}.eml").write_text(mail)
    (tmp_path / "patch.eml").write_text(mail.replace("0/1", "1/1").replace("Words", diff))
    (tmp_path / "date.eml").write_text(
        mail.replace("2 Jan 2026 03:04:05 +0100", evil("date")).replace("0/1", "1/1").replace("Words", diff)
    )
    for name in (f"{evil('mail')}.eml", "patch.eml", "date.eml"):
        screen("import", "up", str(tmp_path / name))
    screen("import", "up", str(tmp_path / "upstream"), "--range", f"{evil('range')}..HEAD")
    screen("rebase", "up", "--onto", LATER, "--no-proof")
    screen("status")
    screen("conflict", "up", "--history")
    screen("resolve", "up", "--from", evil("resolution"), "--dry-run")
    screen("rebase", "up", "--skip", "--how", evil("how"))
    screen("rebase", "up", "--abort")
    screen("diff", evil("revision"))
    screen("diff", f"up@{REF}", f"up@{LATER}")
    screen("drop", "second")
    screen("undo")
    for args in (
        ("reword", evil("nobody"), "-m", "Words"), ("use", evil("set")), ("publish", evil("nothing"), "--dry-run"),
        ("follow", "up", "--onto", LATER, "--no-proof", "--dry-run", str(tmp_path / "follow")),
        ("verify-image", evil("image")),
    ):  # fmt: skip
        screen(*args)


def of_conflicts_and_broken_files(screen: Screen, hostile: Patchq) -> None:
    second = hostile.patch_file("second", ref=REF)
    if not second.exists():
        (second,) = (p for p in hostile.root.glob("patches/up/*/second.patch") if "ref" in p.parent.name)
    whole = second.read_bytes()
    second.write_bytes(whole.replace(b" line 4\n", f" {evil('context')}\n".encode()))
    for verb in ("apply", "check", "status", "deps"):
        screen(verb)
    second.write_bytes(whole.replace(b"\nFrom: ", f"\nFrom: {evil('broken')}".encode(), 1))
    screen("show", "second")
    second.write_bytes(whole)
    series = second.parent / "series"
    names = series.read_text()
    series.write_text(names + f"{evil('series')}.patch\n")
    screen("apply")
    series.write_text(names)
    lock, key = hostile.layout.lock.read_text(), toml(evil("key"))
    for more in (
        f"{key} = 1\n",
        f"[sets.{key}]\nup = {key}\n",
        f"[upstreams.{key}]\nurl = {key}\n",
        f"{evil('syntax')}\n",
    ):
        hostile.layout.lock.write_text(lock + more)
        screen("status")
    hostile.layout.lock.write_text(lock.replace("/upstream", "/(gone)"))
    screen("fetch", "--all")
    screen("pin", "--check")
    hostile.layout.lock.write_text(lock)


def of_an_environment(screen: Screen, tmp_path: Path) -> None:
    """A wheel of somebody who says of it what they like."""
    site = tmp_path / "site"
    (site / "pkg").mkdir(parents=True)
    (site / "pkg" / "__init__.py").write_text("")
    (site / "pkg-1.dist-info").mkdir()
    (site / "pkg-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg\nVersion: 1\n")
    (site / "pkg-1.dist-info" / "RECORD").write_text(
        f"pkg/__init__.py,,\npkg/_patchq.json,,\npkg/{evil('wheel-file')}.py,,\n", "utf-8"
    )
    (site / "pkg" / f"{evil('wheel-file')}.py").write_text("")
    patch = {"name": evil("live"), "subject": evil("live-subject"), "topic": "t", "upstream_status": "Pending"}
    manifest = {
        "schema": "patchq/wheel/1", "set": evil("wheel-set"), "stack_id": evil("stack-id"), "distribution": "pkg", "package": "pkg", "version": evil("version"),
        "profile": "source", "contains": ["up"], "upstreams": [{"name": evil("up"), "ref": evil("wheel-ref"), "patches": [patch]}], "left_out": [evil("left-out")],
        "siblings": {}, "files": {evil("wheel-file"): "0" * 64},
    }  # fmt: skip
    (site / "pkg" / "_patchq.json").write_text(json.dumps(manifest))
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    screen("verify-installed", "--python", str(script))
    screen("verify-installed", "--python", evil("python"))
    screen("doctor", "--python", str(script))


#: Fields that must have been on the screen: a test of what nobody sees would pass for nothing.
FIELDS = (
    "subject body status topic proof requires needs signed author email function diff path expected found ref later culprit "
    "ledger-patch ledger-from ledger-onto ledger-grade ledger-evidence ledger-how ledger-field ledger-path ledger-proof "
    "config reported why url option set to dropped anchor untracked nested fixup asserted "
    "cover mail place date range context broken series key gone wheel-file python"
)


def test_every_field_of_every_verb(hostile: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)
    screen = Screen(hostile.root)
    of_the_stack(screen, hostile)
    of_changes(screen, hostile, tmp_path)
    of_conflicts_and_broken_files(screen, hostile)
    of_an_environment(screen, tmp_path)
    assert set(VERBS) - screen.verbs == set(), "a verb that was not tried"
    missing = [f for f in FIELDS.split() if f"({f})" not in screen.seen]
    assert not missing, f"fields that no verb showed: {missing}"


def test_colour_is_patchqs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    with terminal_of(80) as got:
        terminal.echo(evil("words"), fg="red", bold=True)
    assert b"".join(got) == f"\x1b[31m\x1b[1m{terminal.safe(evil('words'))}\x1b[0m\r\n".encode()


def test_a_bug_is_told_without_obeying_it(empty: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(*_: object) -> None:
        raise ValueError(evil("bug"))

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr("patchq.project.project.Project.choose_set", fall)
    with terminal_of(80) as got:
        assert cli.main(["--project", str(empty.root), "status"], standalone_mode=False) == 4
    text = b"".join(got).decode().replace("\r\n", "\n")
    assert "(bug)" in text
    assert all(shown(c) for c in text)


@given(st.text())
def test_what_is_shown_is_printable_and_plain_text_is_as_it_was(text: str) -> None:
    found = terminal.safe(text)
    assert all(shown(c) for c in found)
    if all(shown(c) for c in text):
        assert found == text


@given(
    st.dictionaries(
        st.text(), st.recursive(st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
    )
)
def test_json_reads_back_and_holds_nothing_that_is_not_printable(body: dict[str, object]) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        terminal.echo_json(body)
    assert json.loads(out.getvalue()) == body
    assert all(c == "\n" or c.isprintable() for c in out.getvalue())


#: What writes to a terminal, or makes text that it obeys.
WRITERS = {
    "echo",
    "secho",
    "style",
    "confirm",
    "prompt",
    "echo_via_pager",
    "progressbar",
    "pause",
    "edit",
    "getchar",
    "clear",
}


def test_one_module_writes_to_terminals() -> None:
    root = Path(package.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        name = path.relative_to(root).as_posix()
        if name in ("environment/_probe.py", "environment/_compiled.py", "proofs/_forked.py"):
            continue  # they run in a process of their own, and what they print is read as JSON
        if name in ("thin/_base.py", "thin/_place.py"):
            continue  # parts of thin wheels, which patchq doesn't run
        if name == "cli/commands/reword.py":
            continue  # a person's editor shows them the message
        if name == "cli/meter.py":
            continue  # it is given what writes, and what makes words harmless
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name("print")) | ast.ImportFrom(module="rich" | "rich.console"):
                    found.add(name)
                case ast.Attribute(ast.Name("click"), attr) if attr in WRITERS:
                    found.add(name)
                case ast.Attribute(ast.Attribute(ast.Name("sys"), "stdout" | "stderr"), "write" | "buffer"):
                    found.add(name)
                case ast.Attribute(ast.Name("traceback"), attr) if attr.startswith("print"):
                    found.add(name)
                case ast.Attribute(ast.Name("error"), "show"):
                    found.add(name)
                case _:
                    pass
    assert found == {"cli/terminal.py"}
