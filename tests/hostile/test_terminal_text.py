"""Text that a terminal, a page, a log or a table would obey, in each place that somebody else writes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harness import Case, Way, World
from kit import commit_files, git, with_lines
from test_lock_files import toml
from test_patches import change, mail

TEXTS = {
    "escapes": "\x1b[2J\x1b[31m\x1b]0;evil\x07\x9b31m\x90x\x9c", "clipboard": "\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://127.0.0.1:9\x07x\x1b]8;;\x07", "overwrites": "good\rbad\x08\x08\x7f\x0b\x0c\x85\u2028\u2029", "turned": "\u202e\u2066\u2069\u200e\u200b\u200d\ufeff\u00ad\U000e0041",
    "page": "</script></title></textarea>--><img src=x onerror=pwned()><script>pwned()</script>", "attribute": "\"' onmouseover=pwned() x='", "log": "::error::pwned\n::stop-commands::x\n##[error]x", "encoded log": "%0A::error::pwned%0D::set-env name=X::y", "markdown": "[x](javascript:pwned()) ![x](http://127.0.0.1:9/x) | x | <script>pwned()</script>\n# x\n```",
    "markup": "]]><!DOCTYPE x [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><x>&x;</x>", "graph": '"]; evil [label="x" URL="javascript:pwned()"];//', "templates": "{{7*7}}{%x%}${x}$(x)`x`%s%n{0.__class__}",
}  # fmt: skip


def in_patch(field: str) -> Callable[[World, str], None]:
    """A patch that has the text in a field, as far as its format lets it."""

    def make(world: World, text: str) -> None:
        one_line = text.replace("\n", " ").encode()
        data = mail(change())
        if field == "subject":
            data = mail(change(), subject=one_line)
        elif field == "author":
            data = mail(change(), author=one_line.replace(b"<", b"").replace(b">", b"") + b" <eve@example.org>")
        elif field == "address":
            data = mail(change(), author=b"Eve <" + one_line.replace(b"<", b"").replace(b">", b"") + b"@x>")
        elif field == "body":
            data = mail(change(), body=text.encode())
        elif field == "topic":
            data = data.replace(b"Topic: test", b"Topic: " + one_line)
        elif field == "status":
            data = data.replace(b"Pending", b"Submitted [" + one_line + b"]")
        elif field == "other":
            data = data.replace(
                b"Topic: test",
                b"Topic: test\nProof: "
                + one_line
                + b"\nRequires: "
                + one_line
                + b"\nNeeds: "
                + one_line
                + b"\nCVE: "
                + one_line,
            )
        elif field == "lines":
            data = mail(change(hunk=b"@@ -1 +1 @@ %s\n-line 1\n+%s\n" % (one_line, one_line)))
        else:
            raise AssertionError(field)
        world.add_patch(data)

    return make


def in_ledger(world: World, text: str) -> None:
    line = {"v": 1, "patch": text, "patch_id": "0" * 40, "from_ref": text, "onto": text, "outcome": "conflict", "files": [{"path": text, "hunks": 1}],
            "grade": text, "evidence": text, "broke": text, "how": text, "proof": text, "tool": text, "time": text}  # fmt: skip
    other = {**line, "patch": "first", "from_ref": "v1", "onto": "v2", "grade": "", "time": "2026-01-02T03:04:05Z"}
    broken = {**line, "outcome": text}
    world.write(
        world.project / "patches" / "up" / "ledger.jsonl",
        "".join(json.dumps(one) + "\n" for one in (line, other, broken)),
    )


def in_results(world: World, text: str) -> None:
    cell = {"proof": text, "variant": "with", "state": "failed", "tests": [{"test": text, "outcome": "failed", "message": text}], "message": text, "seconds": 1.0,
            "machine": text, "trees": {text: text}, "left_out": [text], "cached": False}  # fmt: skip
    proof = {
        "patch": "up/first",
        "ref": "v1",
        "files": [text],
        "needs": [text],
        "on": text,
        "state": "failed",
        "message": text,
        "command": text,
        "cells": [cell],
    }
    world.write(
        world.private / "results" / "last.json",
        json.dumps({"version": 1, "schema": "patchq/test/1", "ok": False, "counts": {text: 1}, "proofs": [proof]}),
    )


def in_measurements(world: World, text: str) -> None:
    line = {"v": 1, "machine": text, "engine": text, "model": text, "test": text, "depth": 0, "value": 1.0, "spread": 0.0, "samples": 1, "config": {text: text}, "file": text,
            "sha256": "0" * 64, "place": text, "time": text, "stack_id": text, "patches": [text], "reported": text}  # fmt: skip
    world.write(world.project / "measurements" / "ledger.jsonl", json.dumps(line) + "\n")
    world.write(
        world.project / "measurements" / "targets.toml",
        f"[[target]]\nmachine = {toml(text)}\ntest = {toml(text)}\nvalue = 1\nwhy = {toml(text)}\n",
    )


def in_upstream(world: World, text: str) -> None:
    """An upstream whose history, authors, files and tags speak."""
    name = "".join(c for c in text if c not in "\n\r/\0")[:100] or "x"
    commit_files(world.upstream, {"a.txt": with_lines({5: b"other\n"}), name: b"x\n"}, text + "\n\n" + text)
    git(world.upstream, "tag", "v3")
    tag = "".join(c for c in text if ord(c) > 0x7F or c.isalnum() or c in "<>=()'\"|`$%&!#;,")
    git(world.upstream, "tag", f"v4{tag}")
    git(world.upstream, "-c", f"user.name={name}", "commit", "-q", "--allow-empty", "--cleanup=verbatim", "-m", text)


def in_lock(world: World, text: str) -> None:
    world.append(
        f'\n[mismatches.default]\nx = {toml(text)}\n[environments.default]\nimage = {toml(text)}\nserve = [{toml(text)}]\nenv = {{ A = {toml(text)} }}\n[upstreams.up.check]\nwarn = ["proof"]\nreason = {toml(text)}\n'
    )


def in_files(world: World, text: str) -> None:
    name = "".join(c for c in text if c not in "/\0")[:100]
    for folder in (world.tree, world.stack, world.project / "patches" / "up"):
        world.write(folder / name, "x\n")
    world.write(world.stack / f"{name}.patch", mail(change()))


def in_import(world: World, text: str) -> None:
    name = "".join(c for c in text if c not in "/\0")[:100]
    world.write(
        world.inputs / "odd" / f"{name}.patch",
        mail(change(hunk=b"@@ -1 +1 @@\n-" + text.encode().replace(b"\n", b" ") + b"\n+x\n")),
    )
    world.write(
        world.inputs / "Dockerfile",
        f"FROM x\nWORKDIR /src\nCOPY . /src\nRUN echo '{text}' >&2; sed -i 's/nothing/x/' a.txt\nRUN cat '{name}' a.txt\n",
    )


def in_state(world: World, text: str) -> None:
    path = world.private / "state" / "up.json"
    path.write_text(path.read_text().replace('"first"', json.dumps(text)).replace('"v1"', json.dumps(text)))


def in_journal(world: World, text: str) -> None:
    record = {
        "version": 1,
        "verb": text,
        "summary": text,
        "time": text,
        "files": {text: [None, text]},
        "refs": [],
        "trees": [],
        "undoes": text,
    }
    world.write(world.private / "journal" / "pending.json", json.dumps(record))


PAGES = ("report --html {out}/r.html", "report --markdown {out}/r.md", "report --json")
PATCH = ("list", "show evil --diff", "check --text", "deps --dot", "list --json")
PLACES: dict[str, tuple[Callable[[World, str], None], tuple[str, ...]]] = {
    "subject": (in_patch("subject"), (*PATCH, "apply", *PAGES)), "author": (in_patch("author"), (*PATCH[:3], "apply")), "address": (in_patch("address"), PATCH[:3]), "body": (in_patch("body"), PATCH[:3]), "topic": (in_patch("topic"), PATCH[:3]),
    "status": (in_patch("status"), PATCH[:3]), "other trailers": (in_patch("other"), PATCH[:3]), "lines": (in_patch("lines"), ("show evil --diff", "apply", "diff HEAD")), "ledger": (in_ledger, ("ledger", "ledger --cost", "ledger --json", PAGES[0])),
    "results": (in_results, ("report --junit {out}/r.xml --sarif {out}/r.sarif", *PAGES)), "measurements": (in_measurements, ("bench show", PAGES[0])), "upstream": (in_upstream, ("fetch --history", "forecast up --onto v3 --blame --why --annotate", "rebase up --onto v3", "conflict up", "rebase --abort")),
    "lock": (in_lock, ("check --text", "compose", "status")), "files": (in_files, ("status", "list", "check --text", "new up evil -m x")), "imports": (in_import, ("import up {inputs}/odd --dry-run", "import up {inputs}/Dockerfile --dry-run")), "state": (in_state, ("status", "apply")), "journal": (in_journal, ("status", "apply", "undo --pending")),
}  # fmt: skip
#: What somebody types, or has in a variable.
ARGUMENTS = (
    "show '{}'",
    "apply --to '{}'",
    "--project '{}' status",
    "list --topic '{}'",
    "diff '{}'",
    "fetch '{}'",
    "pin '{}' --ref x --url x",
    "forecast up --onto '{}'",
    "bundle '{}/x'",
    "'{}'",
    "status '--{}'",
)
#: What is tried in each place; all of it where a page is written, too.
PLAIN = ("escapes", "overwrites", "turned", "log")
PAGED = ("subject", "ledger", "results")
LOG = Way(environment={"GITHUB_ACTIONS": "true"})


def typed(text: str) -> tuple[str, ...]:
    """Arguments have no newlines here, no quotes and no braces."""
    found = "".join(c for c in text if c not in "\n'{}\0")
    return tuple(line.replace("{}", found) for line in ARGUMENTS)


CASES = [
    *(Case(name=f"{name} in {place}", make=lambda world, make=make, text=text: make(world, text), verbs=verbs, way=LOG)
      for place, (make, verbs) in PLACES.items() for name, text in TEXTS.items() if name in PLAIN or place in PAGED),
    *(Case(name=f"{name} in arguments", make=lambda _: None, verbs=typed(text)) for name, text in TEXTS.items()),
    *(Case(name=f"{name} in {place} on a terminal", make=lambda world, make=PLACES[place][0], text=TEXTS[name]: make(world, text),
           verbs=PLACES[place][1], way=Way(terminal=True))
      for place in ("subject", "upstream", "files", "imports") for name in ("escapes", "clipboard", "overwrites", "turned")),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_text(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 110
