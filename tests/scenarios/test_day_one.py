"""A new project is green: rules of ``check`` that fit adopted patches, and build settings from the tree."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from kit import Patchq, commit_files, git

PYPROJECT = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\nname = "my-pkg"\nversion = "1"\n'
DIFF = "From: Al <al@example.org>\nSubject: [PATCH] Change it\n\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n line 1\n-line 2\n+two\n line 3\n"


def adopted(patchq: Patchq, tmp_path: Path) -> str:
    patch = tmp_path / "change.patch"
    patch.write_text(DIFF)
    return patchq.ok("import", "up", str(patch))


def findings(patchq: Patchq) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(patchq.run("check", "--json").output)["findings"]
    return found


def test_an_adopted_patch_is_green(patchq: Patchq, tmp_path: Path) -> None:
    said = adopted(patchq, tmp_path)
    assert "`patchq check` leaves out topic, proof, why, dco: see [upstreams.up.check] in upstream.lock" in said
    assert patchq.ok("check") == "no proof: 1 of 1 patch in the default set\nall good: 1 patch in the default set\n"
    assert json.loads(patchq.ok("check", "--json"))["without_proof"] == ["up/change"]
    patchq.ok("undo")
    assert "[upstreams.up.check]" not in patchq.layout.lock.read_text()


def second(patchq: Patchq, tmp_path: Path, *options: str) -> str:
    """Import another patch, whose subject is unfinished."""
    patch = tmp_path / "other.patch"
    patch.write_text(DIFF.replace("Change it", "WIP: other").replace("a.txt", "b.txt"))
    return patchq.ok("import", "up", str(patch), *options)


def test_a_second_import_adds_rules_and_names_them(patchq: Patchq, tmp_path: Path) -> None:
    adopted(patchq, tmp_path)
    assert "`patchq check` now also leaves out unfinished: see [upstreams.up.check] in" in second(patchq, tmp_path)
    assert "all good: 2 patches" in patchq.ok("check")


@pytest.mark.parametrize("edited", ['off = ["proof", "why"]', 'off = ["proof", "why"]\nwarn = ["topic", "unfinished"]'])
def test_a_second_import_does_not_loosen_rules(patchq: Patchq, tmp_path: Path, edited: str) -> None:
    """The user requires topics and sign-offs again."""
    adopted(patchq, tmp_path)
    lock = patchq.layout.lock
    text = lock.read_text().replace('off = ["topic", "proof", "why"]', edited).replace('"none"', '"importer"')
    lock.write_text(text)
    patchq.ok("reword", "change", "--trailer", "Topic: ours")
    patchq.ok("check", "--fix")
    said = second(patchq, tmp_path)
    lacks = "dco" if "warn" in edited else "topic, dco"
    assert (
        f"the new patches break {lacks}, which [upstreams.up.check] in upstream.lock requires: `patchq check`" in said
    )
    found = {finding["rule"] for finding in findings(patchq) if finding["level"] == "problem"}
    assert found == set(lacks.split(", "))
    assert 'sign-off = "importer"' in lock.read_text()
    if "warn" in edited:
        assert edited in lock.read_text()


def test_a_signed_stack_asks_for_the_next_sign_off(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "mine.patch").write_text(DIFF.replace("From: Al <al@example.org>\n", ""))
    patchq.ok("import", "up", str(tmp_path / "mine.patch"), "--author", "me", "-s")
    assert "the new patches break dco, which" in second(patchq, tmp_path)
    assert {finding["rule"] for finding in findings(patchq)} == {"dco"}


def test_the_rules_of_the_project_stay(patchq: Patchq, tmp_path: Path) -> None:
    lock = patchq.layout.lock
    lock.write_text(lock.read_text() + '\n[upstreams.up.check]\noff = ["topic"]\nreason = "Ours."\n')
    before = lock.read_bytes()
    adopted(patchq, tmp_path)
    assert lock.read_bytes() == before
    assert {finding["rule"] for finding in findings(patchq)} == {"proof", "why", "dco"}


def test_the_commands_of_findings_are_whole(stack: Patchq) -> None:
    """Run what findings name, without changing it, until nothing is found."""
    stack.ok("reword", "first", "--trailer", "Upstream-Status:", "--trailer", "Topic:", "--trailer", "Signed-off-by:")
    stack.ok("reword", "second", "--trailer", "Requires: up/third")
    seen = set()
    for _ in range(12):
        found = findings(stack)
        if not found:
            break
        seen.add(found[0]["rule"])
        if test := re.search(r"write (\S+), a test", found[0]["hint"]):
            path = stack.root / test[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("def test_it(trees):\n    assert trees\n")
        [command, *_] = re.findall(r"`patchq ([^`]+)`", found[0]["hint"])
        stack.run(*shlex.split(command))
    assert found == []
    assert seen == {"upstream-status", "topic", "proof", "dco", "requires"}
    assert "no proof: 0 of 3 patches" in stack.ok("check")


@pytest.mark.parametrize("metadata", ["pyproject.toml", "setup.cfg"])
def test_build_settings_come_from_the_tree(empty: Patchq, upstream: Path, metadata: str) -> None:
    files: dict[str, bytes | None] = {"pyproject.toml": PYPROJECT, "src/my_pkg/__init__.py": b"X = 1\n"}
    if metadata == "setup.cfg":
        files = {"setup.cfg": b"[metadata]\nname = my-pkg\nversion = 1\n", "my_pkg/__init__.py": b"X = 1\n"}
    commit_files(upstream, files)
    git(upstream, "tag", "v2")
    empty.ok("pin", "up", "--url", str(upstream), "--ref", "v2")
    empty.ok("apply")
    assert "my_pkg" not in empty.layout.lock.read_text()
    empty.ok("build")  # nothing is patched, so nothing is built
    build = empty.project.lock.upstreams["up"].build
    assert build is not None
    assert (build.distribution, build.package, build.profile) == ("my-pkg", "my_pkg", "source")
    assert "add build settings" in empty.ok("log")


def test_a_tree_without_metadata_is_named(patchq: Patchq) -> None:
    patchq.ok("apply")
    said = patchq.fails(1, "build")
    assert "no pyproject.toml names a distribution" in said
    assert "below [upstreams.up.build] in upstream.lock" in said
    assert "up has no build settings" in patchq.fails(1, "build", "up")
