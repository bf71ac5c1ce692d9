"""The JSON Schemas that the package carries: closed, of the types that the code has, and of what each verb answers."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

import answers
from kit import ROOT, Patchq, commit_files, edit, git, release, with_lines
from patchq.cli import VERBS

NAMES = sorted(path.stem for path in answers.FOLDER.glob("*.json"))
#: Fields that an answer has for some: `build --kernels`.
SOMETIMES = {"modules", "compiled", "found", "seconds", "largest_process_gib"}
SOMETIMES |= {"package", "release", "patches", "left_out", "files", "size"}
TABLE = "| engine | model | config | test | t/s |\n|---|---|---|---|---|\n| vLLM | m | all | tg32 | 48.6 ± 0.2 |\n"
BUILD = '\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n\n[environments."default-up-v1.1"]\nimage = "base:1"\n'
PYPROJECT = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "pkg"\nversion = "1"\n[tool.setuptools]\npackages = ["pkg"]\n'


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((answers.FOLDER / f"{name}.json").read_text())
    return found


def nodes(schema: object) -> Iterator[dict[str, Any]]:
    """Each object of a schema's JSON."""
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from nodes(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_one_and_is_closed(name: str) -> None:
    schema = read(name)
    Draft202012Validator.check_schema(schema)
    assert (schema["$schema"], schema["$id"]) == (
        Draft202012Validator.META_SCHEMA["$id"],
        f"urn:patchq:schema:{name}:1",
    )
    for node in nodes(schema):
        if node.get("type") == "object" and "properties" in node:
            assert node["additionalProperties"] is False
            lacking = set(node["properties"]) - set(node["required"])
            assert lacking <= (SOMETIMES if name == "build" else set()), node


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_has_the_fields_of_the_types_that_it_names(name: str) -> None:
    for node in nodes(read(name)):
        if "$comment" in node:
            module, _, kind = node["$comment"].rpartition(".")
            fields = dataclasses.fields(getattr(importlib.import_module(module), kind))
            assert list(node["properties"]) == [f.name for f in fields], node["$comment"]


def test_every_answer_has_a_schema_and_stands_in_the_reference() -> None:
    emitted = {"error"}
    for path in (ROOT / "tools" / "patchq" / "cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Name("emit"), [ast.Constant(name), _]):
                    emitted.add(name)
                case ast.Call(ast.Name("show_exported" | "show_verdicts"), [_, _, ast.Constant(name)]):
                    emitted.add(name)
                case _:
                    pass
    assert emitted == set(NAMES)
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", (ROOT / "docs/reference/json.md").read_text(), re.MULTILINE)
    told = {word for row in rows for word in re.findall(r"`([a-z-]+)`", row)}
    assert emitted - told == {"error"}
    verbs = {"-".join(name.split("-")[:2]) if name.startswith("verify") else name.split("-")[0] for name in NAMES}
    assert set(VERBS) == verbs - {"error"}


def test_a_key_that_is_lacking_or_of_another_name_is_seen(stack: Patchq) -> None:
    body = json.loads(stack.ok("status", "--json"))
    answers.check(body)
    for node in (body, body["stacks"][0]):
        kept = dict(node)
        key = list(node)[-1]
        for other in ({}, {f"{key}_": kept[key]}):
            node.clear()
            node.update({k: v for k, v in kept.items() if k != key} | other)
            with pytest.raises(AssertionError, match=re.escape("is not what")):
                answers.check(body)
        node.clear()
        node.update(kept)
    with pytest.raises(ValidationError):
        answers.validator("status").validate({**body, "set": 1})


@pytest.fixture
def everything(stack: Patchq, upstream: Path) -> Patchq:
    """A stack with proofs and something to build, and releases that it lands on, is upstream at, and stops on."""
    commit_files(
        upstream, {"pyproject.toml": PYPROJECT, "pkg/__init__.py": b"", "tests/test_mod.py": b"def test_f(): pass\n"}
    )
    git(upstream, "tag", "v1.1")
    folder = stack.root / "tests" / "stacks" / "up"
    folder.mkdir(parents=True)
    for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
        proof = f"def test_it(trees):\n    assert (trees / 'up' / '{file}').read_text().splitlines()[{line - 1}] == 'changed'\n"
        (folder / f"test_{name}.py").write_text(proof)
        path = stack.patch_file(name)
        text = path.read_text().replace("Topic: test\n", f"Topic: test\nProof: tests/stacks/up/test_{name}.py\n")
        path.write_text(text)
    stack.ok("apply")
    stack.ok("rebase", "up", "--onto", "v1.1", "--no-proof")
    stack.ok("use", "default-up-v1.1", "--keep")
    stack.layout.lock.write_text(stack.layout.lock.read_text() + BUILD)
    stack.ok("apply")
    return stack


def of_a_stack(patchq: Patchq, tmp_path: Path) -> None:
    more = tmp_path / "more.patch"
    diff = git(patchq.tree(), "diff", "HEAD~1", "HEAD")
    more.write_text(f"From: A <a@b>\nSubject: [PATCH] More\n\n{diff.replace('b.txt', 'run.sh')}\n")
    for args in (
        ("init", str(tmp_path / "another")), ("pin", "--check"), ("fetch", "--history"), ("apply",), ("status",), ("list",),
        ("show", "first"), ("deps",), ("ledger",), ("drift", "up", "--from", "v1", "--to", "v1.1"), ("diff", "up@v1", "up@v1.1"), ("compare", str(patchq.root)),
        ("forecast", "up", "--onto", "v1"), ("test",), ("test", "--mutate", "--at-most", "1"), ("test", "--upstream"), ("publish",),
        ("bundle", str(tmp_path / "bundle")), ("move", "third", "--before", "first"), ("log",),
        ("undo", "--dry-run"), ("undo",), ("redo", "--dry-run"), ("redo",), ("undo",), ("drop", "third", "--why", "no"),
        ("undo",), ("split", "first"),
        ("reword", "first", "-m", "Say more\n\nWhy."), ("undo",), ("export", "up"), ("report",), ("bench", "show"),
        ("compose",), ("follow", "up", "--onto", "v1.1", "--no-proof", "--dry-run", str(tmp_path / "follow")),
    ):  # fmt: skip
        patchq.ok(*args, "--json")
    patchq.fails(3, "import", "up", str(more), "--dry-run", "--json")
    patchq.run("check", "--json")
    patchq.run("doctor", "--json")
    table = tmp_path / "table.md"
    table.write_text(TABLE)
    patchq.ok("bench", "import", str(table), "--machine", "GB10", "--reported", "notes", "--json")
    edit(patchq.tree() / "b.txt", 30)
    patchq.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.", "--json")
    (patchq.tree() / "b.txt").write_bytes(b"at the top\n" + (patchq.tree() / "b.txt").read_bytes())
    patchq.ok("export", "up", "--amend", "fourth", "--json")
    patchq.ok("split", "fourth", "fifth", "--hunk", "b.txt:1", "--json")
    patchq.ok("undo", "--json")
    patchq.ok("undo", "--json")
    git(patchq.tree(), "checkout", "--", ".")
    edit(patchq.tree() / "b.txt", 30, b"again\n")
    patchq.ok("fold", "up", "--json")
    patchq.ok("build", "--no-isolation", "--json")
    (tmp_path / "root").mkdir()
    patchq.run("verify-image", str(tmp_path / "root"), "--json")
    patchq.run("pr", "first", "--no-proof", "--no-gates", "--json")
    patchq.ok("pr", "first", "--status", "--url", "https://example.org/a/b/pull/1", "--json")
    patchq.ok("issue", "first", "--no-run", "--json")


def of_a_rebase(patchq: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"b.txt": with_lines({10: b"changed\n", 30: b"changed\n"})})
    patchq.ok("retire", "third", "--onto", "v2", "--evidence", "--json")
    release(upstream, "v3", {"a.txt": with_lines({5: b"otherwise\n"})})
    patchq.ok("pin", "up", "--ref", "v2", "--set", "two", "--json")
    patchq.fails(3, "rebase", "up", "--onto", "v3", "--no-proof", "--json")
    patchq.ok("status", "--json")
    patchq.ok("conflict", "up", "--json")
    (patchq.root / ".patchq" / "other").write_bytes(with_lines({5: b"changed\n"}))
    patchq.fails(3, "rebase", "up", "--propose", "--json")
    patchq.run("resolve", "up", "--dry-run", "--json")
    patchq.ok("rebase", "up", "--abort", "--json")
    patchq.ok("use", "two", "--keep", "--json")
    patchq.fails(1, "show", "nobody", "--json")


def test_every_verbs_answer_is_what_its_schema_says(
    everything: Patchq, upstream: Path, tmp_path: Path, answered: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git(everything.root, "init", "-q")
    git(everything.root, "add", "-A")
    git(everything.root, "commit", "-q", "-m", "kept")
    of_a_stack(everything, tmp_path)
    site = tmp_path / "site"
    wheel = next((everything.root / "dist").rglob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(wheel)], check=True
    )
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    everything.run("verify-installed", "--python", str(script), "--json")
    of_a_rebase(everything, upstream)
    assert set(NAMES) - answered == set(), "answers that were not tried"
