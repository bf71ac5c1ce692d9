"""How good `drift` is inside one upstream: listed changes put into real trees, one at a time.

    python benchmarks/drift_inside.py benchmarks/drift_inside/*.toml [--only NAME] [--verbose]
    python benchmarks/drift_inside.py LIST.toml --check    # only check that the entries can be judged

A list is a TOML file of `[[change]]` tables. Each is one change that upstream might make:

    [[change]]
    name = "another default of the helper"   # unique in all lists
    upstream = "vllm"                        # as in upstream.lock
    ref = "v0.13.0"                          # pinned ref that has a stack: the change is made to this base
    kind = "default"                         # free word; the table of results has a row for each
    patch = "marlin-fp4-warning"             # patch that must be named; "" if the change is benign
    [[change.edits]]
    file = "vllm/utils/helper.py"
    before = "def helper(a, b=1):"
    after = "def helper(a, b=2):"

An edit is one of these; paths are those of the base, without the patches, and edits of one change apply in order:

    file, before, after   `before` must occur exactly once in the file and is replaced by `after`. Give whole lines
                          where a part is not unique. Use ''' for text of several lines; a newline right after the
                          opening ''' is dropped by TOML.
    file, after           `after` is appended to the file, or is the content of a new file.
    file, move            the file is moved to the path `move`.
    file, delete = true   the file is removed.

Where several patches are affected, name one in `patch`: the others are not counted. A change that conflicts with the
patch is not drift, and `--check` (and every run) refuses it: the stack is carried onto the changed tree in memory.
The files must still parse unless that is what the change is about.

A change is found near if a finding of `patchq drift` names `patch` (also one that it only counts without `--far`), and far
if one of the changes in reach does. A benign change (`patch = ""`) is a false alarm if there is any alarm of that sort at all.
As a tool that names all patches for each change would find everything, the number of patches that are named per
change is printed, too. What `patchq drift` does between two pinned refs is done between the base and the changed base.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from patchq.drift.alarms import Alarm, Reached
from patchq.drift.bodies import language_of
from patchq.drift.inside import Inside, PatchFacts
from patchq.formats import toml
from patchq.git.repository import Git, scratch
from patchq.merge.patches import STOPS, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.apply import Carried, carried_stacks

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Change:
    """Entry of a list; ``source`` is the list's name."""

    name: str
    upstream: str
    ref: str
    kind: str
    patch: str
    edits: Sequence[Mapping[str, Any]]
    source: str = ""


class UnusableError(Exception):
    """Entry that can't be judged."""


def read_list(path: Path) -> Iterator[Change]:
    for entry in toml.loads(path.read_bytes())["change"]:
        yield Change(**entry, source=path.stem)


def edited(change: Change, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Return the files that a change edits; None for a removed file.

    :param files: contents in the base of all files that the edits name.
    """
    now = dict(files)
    for edit in change.edits:
        file = edit["file"]
        source = now[file]
        if "move" in edit:
            now[edit["move"]], now[file] = source, None
        elif edit.get("delete"):
            now[file] = None
        elif "before" not in edit:
            now[file] = (source or b"") + edit["after"].encode()
        else:
            before = edit["before"].encode()
            count = (source or b"").count(before)
            if count != 1:
                raise UnusableError(f"{file} has {edit['before']!r} {count} times")
            now[file] = (source or b"").replace(before, edit["after"].encode())
    return now


def commit_change(git: Git, base: CommitId, change: Change) -> CommitId:
    """Commit a change on top of its base."""
    entries = git.list_tree(base)
    named = {edit["file"] for edit in change.edits}
    files: dict[str, bytes | None] = {}
    for name in named:
        entry = entries.get(os.fsencode(name))
        files[name] = git.read_blobs([entry.blob])[entry.blob] if entry else None
    lines = []
    for name, content in edited(change, files).items():
        if content is None:
            lines.append(f"0 {'0' * 40}\t{name}")
            continue
        blob = git.run("hash-object", "-w", "--stdin", data=content).decode().strip()
        lines.append(f"100644 {blob}\t{name}")
    env = {"GIT_INDEX_FILE": str(git.folder / "change.index")}
    git.run("read-tree", base, env=env)
    git.run("update-index", "--add", "--index-info", data="".join(f"{line}\n" for line in lines).encode(), env=env)
    tree = git.run("write-tree", env=env).decode().strip()
    (info,) = git.log("--no-walk=unsorted", base)
    return git.commit_tree(tree, [], info.author, change.name)


def must_apply(git: Git, carried: Carried, commit: CommitId, change: Change) -> None:
    """Raise if a patch conflicts with a change."""
    patches = read_patches(git, carried.commits)
    (column,) = carry(git, patches, [commit], carried.base)
    for landing in column.landings.values():
        if landing.outcome in STOPS and change.patch in ("", landing.patch):
            raise UnusableError(f"{landing.patch} doesn't apply: {landing.outcome}")
    if change.patch and change.patch not in {patch.name for patch in patches}:
        raise UnusableError(f"{change.upstream} {change.ref} has no patch {change.patch}")


def carried_of(project: Project, changes: Sequence[Change]) -> dict[tuple[str, str], Carried]:
    found = {}
    with project.locked("drift"):
        for upstream, ref in dict.fromkeys((c.upstream, c.ref) for c in changes):
            stack = load_stack(project.layout, project.lock.upstreams[upstream].pins[ref])
            (found[upstream, ref],) = carried_stacks(project, [stack], project.lock.default_set)
    return found


class Judge:
    """Alarms for changed bases. Blobs of the real trees are read once."""

    def __init__(self, project: Project, git: Git) -> None:
        self.project, self.git = project, git
        self.facts: dict[CommitId, PatchFacts] = {}

    def alarms(self, carried: Carried, commit: CommitId) -> Inside:
        """Return the alarms for a changed base. The facts of other bases are dropped."""
        if carried.base not in self.facts:
            self.facts.clear()
            changes = self.git.changes_of([info.commit for _, info in carried.commits])
            patches = [(name, made) for (name, _), made in zip(carried.commits, changes, strict=True)]
            upstream = carried.stack.pin.upstream
            self.facts[carried.base] = PatchFacts(
                upstream, patches, self.git.list_tree(carried.base), self.git.read_blobs
            )
        build = self.project.lock.upstreams[carried.stack.pin.upstream].build
        return self.facts[carried.base].compare(
            self.git.list_tree(commit),
            moved=lambda path: self.git.moved(carried.base, commit, path),
            ignored=build.ignore if build else (),
            far=True,
        )


@dataclass(frozen=True)
class Result:
    """Alarms for a change."""

    change: Change
    inside: Inside

    def alarms(self, *, far: bool) -> Sequence[Alarm | Reached]:
        """Return the alarms, with or without the changes in reach."""
        return (*self.inside.alarms, *self.inside.far) if far else self.inside.alarms

    def right(self, *, far: bool) -> bool:
        """Return whether the alarms are right: the patch is named, or nothing is for a benign change."""
        if self.change.patch:
            return any(a.patch == self.change.patch for a in self.alarms(far=far))
        return not self.alarms(far=far)

    @property
    def language(self) -> str:
        """Language of the first file of the change."""
        return language_of(self.change.edits[0]["file"].encode()) or "other"


def show(results: Sequence[Result], verbose: bool) -> None:
    """Print the changes that were judged wrongly, and the tables of results."""
    for result in results:
        change = result.change
        near, far = result.right(far=False), result.right(far=True)
        if not (near and far) or verbose:
            word = "right" if near and far else "far" if far else "near" if near else "missed"
            print(f"{'FALSE' if not change.patch and word != 'right' else word}: {change.name} [{change.kind}]")
        only = change.patch if not verbose else ""
        if verbose or not (far and near):
            for a in result.inside.alarms:
                if only in ("", a.patch):
                    print(f"    {a.patch}: {a.kind} {a.function} {a.callee}: {a.was} -> {a.now} {a.at}")
            for reached in result.inside.far[:20]:
                if only in ("", reached.patch):
                    said = f"{reached.definition} by {reached.shared}: {reached.was} -> {reached.now}"
                    print(f"    {reached.score} {reached.patch}: {said} {reached.at}")
    drifts = [r for r in results if r.change.patch]
    for title in ("list", "language", "kind"):
        rows: dict[str, list[Result]] = {}
        for result in results if title == "list" else drifts:
            names = {"list": result.change.source, "language": result.language, "kind": result.change.kind}
            rows.setdefault(names[title], []).append(result)
        print(f"| {title} | changes | right: near | near or far | wrong |\n|---|---|---|---|---|")
        for name, mine in rows.items():
            counts = [sum(r.right(far=far) for r in mine) for far in (False, True)]
            print(f"| {name} | {len(mine)} | {counts[0]} | {counts[1]} | {len(mine) - counts[1]} |")
        print()
    for far in (False, True):
        title = "near or far" if far else "near"
        for what, mine in (
            ("recall", drifts),
            ("benign changes without alarm", [r for r in results if not r.change.patch]),
        ):
            if mine:
                count = sum(r.right(far=far) for r in mine)
                print(f"{title}: {what} {count / len(mine):.3f} ({count} of {len(mine)})")
        named = sorted(len({a.patch for a in r.alarms(far=far)}) for r in drifts)
        if named:
            print(
                f"{title}: patches named per change: median {named[len(named) // 2]}, mean {sum(named) / len(named):.1f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("lists", nargs="+", type=Path)
    parser.add_argument("--only", default="", help="name of one change")
    parser.add_argument("--json", type=Path, help="write the alarms of all changes to this file")
    parser.add_argument("--verbose", action="store_true", help="print the alarms of all changes")
    parser.add_argument("--check", action="store_true", help="check the lists and judge nothing")
    options = parser.parse_args()
    changes = [c for path in options.lists for c in read_list(path) if options.only in ("", c.name)]
    names = [c.name for c in changes]
    if len(set(names)) < len(names):
        sys.exit(f"names occur twice: {sorted({n for n in names if names.count(n) > 1})}")
    os.chdir(ROOT)
    project = Project.find(ROOT)
    carried = carried_of(project, changes)
    unusable = 0
    results: list[Result] = []
    with ExitStack() as stack:
        git = stack.enter_context(scratch(project.store))
        judging = Judge(project, git)
        start = time.process_time()
        for change in sorted(changes, key=lambda c: (c.upstream, c.ref)):
            mine = carried[change.upstream, change.ref]
            try:
                commit = commit_change(git, mine.base, change)
                must_apply(git, mine, commit, change)
            except UnusableError as error:
                unusable += 1
                print(f"unusable: {change.name}: {error}")
                continue
            if not options.check:
                results.append(Result(change, judging.alarms(mine, commit)))
        seconds = time.process_time() - start
    if results:
        show(results, options.verbose)
        print(f"{seconds / len(results):.2f} s of CPU per change")
    if options.json:
        found = []
        for result in results:
            alarms = [[asdict(a) for a in side] for side in (result.inside.alarms, result.inside.far)]
            found.append({**asdict(result.change), "near": alarms[0], "far": alarms[1]})
        options.json.write_text(json.dumps(found, indent=1))
    print(f"{len(changes)} changes, {unusable} unusable")


if __name__ == "__main__":
    main()
