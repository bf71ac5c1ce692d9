"""``test --upstream``: run upstream's tests of the code that a stack changes, before and after it.

Only regressions count: tests that pass without patches and don't pass with them. Tests that can't
run on this machine fail or are skipped on both sides.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchq.names import counted
from patchq.project.project import Project
from patchq.proofs.plan import Variant, planning
from patchq.proofs.run import checkout, in_slots, run_pytest

#: Start of the message about a test file that exceeds its timeout.
LATE = "no answer in"
#: Timeout in seconds for a test file on one side.
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """Result of an upstream's test file: outcome counts before and after, and regressions."""

    upstream: str
    path: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    regressions: tuple[str, ...]
    message: str = ""


def run_upstream_tests(
    project: Project, names: Sequence[str] = (), *, set_name: str = "", timeout: float = TIMEOUT
) -> list[FileResult]:
    """Select and run upstream's tests for the stacks of a set.

    :param names: upstreams; all if empty.
    """
    set_name = project.choose_set(set_name)
    with planning(project, set_name) as whole:
        project.check_names([s.pin for s in whole.stacks], names, set_name)
        bare = whole.bare()
        chosen: dict[str, list[str]] = {}
        for upstream, tip in whole.variant.tips.items():
            if names and upstream not in names:
                continue
            out = project.store.run("diff-tree", "-r", "-z", "--name-only", bare.tips[upstream], tip)
            touched = []
            for p in out.split(b"\0"):
                if p:
                    touched.append(p.decode("utf-8", "replace"))
            chosen[upstream] = select(project, tip, touched)
    files = []
    for upstream, paths in chosen.items():
        for path in paths:
            files.append((upstream, path))
    return compare(project, files, bare, whole.variant, timeout)


def compare(
    project: Project, files: Sequence[tuple[str, str]], bare: Variant, here: Variant, timeout: float = TIMEOUT
) -> list[FileResult]:
    """Run test files, given as upstream and path, on two variants.

    :param timeout: seconds for one file on one variant.
    """

    def run(item: tuple[Variant, str, str], slot: int) -> tuple[dict[str, str], str]:
        variant, upstream, path = item
        trees = checkout(project, variant, slot)
        outcomes, words = run_pytest(project, trees, [path], cwd=trees / upstream, timeout=timeout)
        tests = outcomes or []
        project.say(f"{upstream}: {path}: {counted(len(tests), 'test')} {'before' if variant is bare else 'after'}")
        return {t["test"]: t["outcome"] for t in tests}, (words.strip().splitlines() or ["pytest printed nothing"])[-1]

    # One variant after the other, so that each slot's trees change only once.
    items = [(bare, *file) for file in files] + [(here, *file) for file in files]
    done = list(in_slots(project, items, run))
    found = []
    for (upstream, path), (before, said_before), (after, said_after) in zip(
        files, done[: len(files)], done[len(files) :], strict=True
    ):
        worse = []
        for test, outcome in before.items():
            if outcome == "passed" and after.get(test) != "passed":
                worse.append(test)
        message = ""
        if not after:
            message = said_after
        elif not before:
            message = said_before
        if not after and LATE in said_after:
            worse = []  # a timeout shows nothing about the change, but a crash does
        found.append(
            FileResult(
                upstream=upstream,
                path=path,
                before=_count(before),
                after=_count(after),
                regressions=tuple(worse),
                message=message,
            )
        )
    return found


def _count(outcomes: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for outcome in outcomes.values():
        word = "failed"
        if outcome != "assertion":
            word = outcome
        found[word] = found.get(word, 0) + 1
    return found


def select(project: Project, commit: str, touched: Sequence[str]) -> list[str]:
    """Return the test files of a tree that import a touched module or are touched themselves."""
    entries = project.store.list_tree(commit)
    tests = []
    for p in entries:
        if _is_test(p.decode("utf-8", "replace")):
            tests.append(p)
    modules = set()
    for name in touched:
        if name.endswith(".py"):
            modules.add(_module(name))
    blobs = project.store.read_blobs(entries[p].blob for p in tests)
    found = []
    for path in tests:
        name = path.decode("utf-8", "replace")
        if name in touched or modules & _imports(blobs[entries[path].blob]):
            found.append(name)
    return sorted(found)


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return path.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def _module(path: str) -> str:
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(source: bytes) -> set[str]:
    """Return the modules that a file may import: ``from a import b`` names ``a`` and ``a.b``."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.add(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            for alias in node.names:
                found.add(f"{node.module}.{alias.name}")
    return found
