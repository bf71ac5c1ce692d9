"""Command ``test --upstream``: run upstream's own tests of the code that a stack changes, without and with
the stack.

Only regressions count: tests that pass without the patches and don't pass with them. Tests that can't run on
this machine fail or are skipped in both runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from patchq.names import counted
from patchq.project.project import Project
from patchq.proofs.plan import Variant, planning
from patchq.proofs.run import PytestRun, checkout, in_slots, run_pytest

#: Timeout in seconds for a test file on one variant.
TIMEOUT = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult:
    """Result of one of upstream's test files.

    :ivar before: number of tests by outcome, without the stack.
    :ivar after: number of tests by outcome, with the stack.
    :ivar regressions: tests that pass without the stack, but not with it.
    :ivar message: last line of the output of a run that gave no outcomes; empty if both runs gave outcomes.
    :ivar timed_out: True if the run without outcomes exceeded the timeout.
    """

    upstream: str
    path: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    regressions: tuple[str, ...]
    message: str = ""
    timed_out: bool = False


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
    """Run test files (pairs of upstream and path) on two variants.

    :param timeout: time limit in seconds for one file on one variant.
    """

    def run(item: tuple[Variant, str, str], slot: int) -> PytestRun:
        variant, upstream, path = item
        trees = checkout(project, variant, slot)
        found = run_pytest(project, trees, [path], cwd=trees / upstream, timeout=timeout)
        count = counted(len(found.tests or ()), "test")
        project.say(f"{upstream}: {path}: {count} {'before' if variant is bare else 'after'}")
        return found

    # One variant after the other, so that each slot's trees change only once.
    items = [(bare, *file) for file in files] + [(here, *file) for file in files]
    done = list(in_slots(project, items, run))
    found = []
    for (upstream, path), run_before, run_after in zip(files, done[: len(files)], done[len(files) :], strict=True):
        before, after = _outcomes(run_before), _outcomes(run_after)
        worse = []
        for test, outcome in before.items():
            if outcome == "passed" and after.get(test) != "passed":
                worse.append(test)
        if run_after.timed_out:
            worse = []  # a timeout shows nothing about the change, but a crash does
        silent = next((one for one in (run_after, run_before) if not one.tests), None)
        message = ""
        if silent:
            message = (silent.output.strip().splitlines() or ["pytest printed nothing"])[-1]
        found.append(
            FileResult(
                upstream=upstream,
                path=path,
                before=_count(before),
                after=_count(after),
                regressions=tuple(worse),
                message=message,
                timed_out=silent is not None and silent.timed_out,
            )
        )
    return found


def _outcomes(found: PytestRun) -> dict[str, str]:
    return {test["test"]: test["outcome"] for test in found.tests or ()}


def _count(outcomes: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for outcome in outcomes.values():
        word = "failed"
        if outcome != "assertion":
            word = outcome
        found[word] = found.get(word, 0) + 1
    return found


def select(project: Project, commit: str, touched: Sequence[str]) -> list[str]:
    """Return the test files of a tree that import a changed module or were changed themselves."""
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
    """Return the modules that a file may import. ``from a import b`` yields both ``a`` and ``a.b``."""
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
