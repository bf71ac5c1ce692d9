"""Data of the command ``conflict``: a stopped patch's files, sides, conflicting lines, causes and suggestions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from patchq.formats.header import Header, parse_trailers
from patchq.formats.outcomes import Grade, Outcome
from patchq.git.repository import Git, bare_repository
from patchq.git.transport import fetch_history
from patchq.names import CommitId, sh, show_path
from patchq.project.project import Project
from patchq.rebase import stops
from patchq.rebase.resolve import at_refs, carried_range, commits_of, dropped_by, recorded_files
from patchq.rebase.state import RebaseProgress, Stop, load, stop_worktree, stopped
from patchq.stacks.apply import carried_stacks
from patchq.stacks.deps import dependents
from patchq.system import runner
from patchq.upstream.commits import pull_request_of
from patchq.upstream.history import at_hand, fetched

#: Maximum number of lines to search for in history, per side. Also the maximum number of commits in the report.
_MOST_SEARCHED, _MOST_SHOWN = 3, 10
#: Source of a suggestion from the project's recorded resolutions.
RECORDED = "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collision:
    """Conflict in a file: the conflicting lines of each side, without context.

    :ivar line: line number (from 1) of the conflict's ``<<<<<<<`` marker.
    """

    line: int
    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


class DisputeKind(str, Enum):
    """Kind of conflict in a file: how each of the two sides changed it."""

    BOTH_CHANGED = "both changed it"
    BOTH_ADDED = "both added it"
    UPSTREAM_REMOVED = "upstream removed it, the patch changes it"
    PATCH_REMOVES = "the patch removes it, upstream changed it"
    OTHER = "one side has it where the other has something else"


#: Sides of a merge by git's stage number.
_SIDES = {1: "base", 2: "ours", 3: "theirs"}
#: Kind of conflict, by the stage numbers of the sides that contain the file.
_KINDS = {
    ("base", "ours", "theirs"): DisputeKind.BOTH_CHANGED,
    ("ours", "theirs"): DisputeKind.BOTH_ADDED,
    ("base", "theirs"): DisputeKind.UPSTREAM_REMOVED,
    ("base", "ours"): DisputeKind.PATCH_REMOVES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disputed:
    """Conflicting file of the stopped patch.

    :ivar sides: id of the file's blob in the store, by side: ``base`` (before the patch), ``ours`` (the new ref
        with the patches applied so far) and ``theirs`` (the patch). A side without the file is left out.
    """

    path: str
    kind: DisputeKind
    sides: Mapping[str, str]
    collisions: tuple[Collision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Upstream commit that added or removed conflicting lines."""

    commit: str
    author: str
    date: str
    subject: str
    pull_request: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """Existing resolution that may resolve the conflict.

    :ivar source: :data:`RECORDED` for a recorded resolution; otherwise, the ref whose version of the patch applies.
    :ivar paths: files that the recorded resolution resolves.
    :ivar left: number of conflicting files that the recorded resolution doesn't resolve.
    :ivar diff: diff from the side ``ours`` to the resolution.
    """

    source: str
    diff: str
    command: str
    paths: tuple[str, ...] = ()
    left: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedNow:
    """Line that upstream added. It is missing in the conflict worktree's files."""

    path: str
    line: int
    text: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """Conflict report of a stopped patch.

    :ivar why: message of the patch, without trailers.
    :ivar dependents: patches (``upstream/name``) that require the patch or don't apply without it.
    :ivar history: range of refs in which patchq searched for the causes, such as ``vllm v1..v2``. Empty if the
        history isn't available locally; then ``hint`` contains the command that fetches the history.
    """

    upstream: str
    from_ref: str
    onto: str
    patch: str
    outcome: Outcome
    subject: str
    why: str
    topic: str
    status: str
    message: str
    grade: Grade
    evidence: str
    worktree: str
    files: tuple[Disputed, ...]
    causes: tuple[Cause, ...]
    history: str
    hint: str
    dependents: tuple[str, ...]
    dropped: tuple[DroppedNow, ...]
    suggestions: tuple[Suggestion, ...]
    proofs: tuple[str, ...]
    needs: tuple[str, ...]
    command: str


def brief(project: Project, upstream: str, *, fetch: bool = False) -> Brief:
    """Return the conflict report of the stopped patch.

    :param fetch: fetch upstream's history first, to find the commits that caused the conflicts.
    :raises UserError: if no patch is stopped.
    :raises SourceError: if the history cannot be fetched.
    """
    with project.locked("conflict"):
        progress = load(project, upstream)
        stop = stopped(progress)
        header = stops.header_of(project, progress, stop.patch)
        files = _files(project, stop)
        if fetch:
            _fetch_history(project, progress)
        history, causes = _causes(project, progress, files)
        host = _host(project, progress)
        if history or not host:
            hint = ""
        else:
            hint = f"`patchq conflict {upstream} --history` fetches upstream's history from {host}"
        return Brief(
            upstream=upstream,
            from_ref=progress.from_ref,
            onto=progress.onto.ref,
            patch=stop.patch,
            outcome=stop.outcome,
            subject=header.subject,
            why=_why(header),
            topic=header.value("Topic"),
            status=header.value("Upstream-Status"),
            message=stop.message,
            grade=stop.grade,
            evidence=stop.evidence,
            worktree=str(stop_worktree(project, progress).path),
            files=files,
            causes=causes,
            history=history,
            hint=hint,
            dependents=_dependents(project, progress, stop),
            dropped=_dropped(project, progress, stop),
            suggestions=tuple(_suggestions(project, progress, stop)),
            proofs=header.values("Proof"),
            needs=header.needs,
            command=f"patchq resolve {upstream} --dry-run",
        )


def _why(header: Header) -> str:
    paragraphs = re.split(r"\n[ \t]*\n", header.message.strip())[1:]
    return "\n\n".join(paragraphs[:-1] if parse_trailers(header.message) else paragraphs)


# Files


def _files(project: Project, stop: Stop) -> tuple[Disputed, ...]:
    stages = stops.stop_stages(stop)
    entries = {}
    if stages:
        entries = project.store.list_tree(stop.parked, stop.paths)
    contents = project.store.texts(entries)
    sides: dict[bytes, dict[str, str]] = {}
    for stage in stages:
        sides.setdefault(stage.path, {})[_SIDES[stage.number]] = str(stage.entry.blob)
    found = []
    for path, blobs in sides.items():
        clashes: tuple[Collision, ...] = ()
        if {"ours", "theirs"} <= blobs.keys():
            clashes = tuple(collisions(contents.get(path, b"")))
        in_order = {side: blobs[side] for side in _SIDES.values() if side in blobs}
        kind = _KINDS.get(tuple(in_order), DisputeKind.OTHER)
        found.append(Disputed(path=show_path(path), kind=kind, sides=in_order, collisions=clashes))
    return tuple(found)


def collisions(parked: bytes) -> Iterator[Collision]:
    """Yield the conflicts in a file with conflict markers in git's style ``zdiff3``."""
    marks = {"<<<<<<<": "ours", "|||||||": "base", "=======": "theirs", ">>>>>>>": ""}
    sides: dict[str, list[str]] = {}
    side, start = "", 0
    for number, line in enumerate(parked.decode("utf-8", "replace").split("\n"), 1):
        mark = ""
        if line[:7] in marks and (len(line) == 7 or line[7] == " "):
            mark = line[:7]
        if mark == "<<<<<<<":
            side, start, sides = "ours", number, {"ours": [], "base": [], "theirs": []}
        elif mark and side:
            side = marks[mark]
            if not side:
                yield Collision(
                    line=start, base=tuple(sides["base"]), ours=tuple(sides["ours"]), theirs=tuple(sides["theirs"])
                )
        elif side:
            sides[side].append(line)


# Upstream's commits


def _host(project: Project, progress: RebaseProgress) -> str:
    return progress.onto.url or project.lock.upstreams[progress.upstream].url


def _fetch_history(project: Project, progress: RebaseProgress) -> None:
    repository = bare_repository(fetched(project, progress.upstream))
    for ref in (progress.from_ref, progress.onto.ref):
        fetch_history(repository, _host(project, progress), ref)


def _causes(project: Project, progress: RebaseProgress, files: Sequence[Disputed]) -> tuple[str, tuple[Cause, ...]]:
    """Return the range of refs that was searched, and the commits in this range that caused the conflicts.

    Both are empty if upstream's history isn't available locally.
    """
    paths: dict[str, list[str]] = {}
    infos, dates = [], ""
    with at_hand(project, progress.upstream) as history:
        between = carried_range(project, progress, history)
        if history is None or not between:
            return "", ()
        git = history.git
        try:
            for file in files:
                for commit in _made(git, between, file):
                    paths.setdefault(commit, []).append(file.path)
            if shown := list(paths)[:_MOST_SHOWN]:
                infos = git.log("--no-walk=unsorted", *shown)
                dates = git.run("log", "--no-walk=unsorted", "--format=%H %as", *shown).decode()
        except runner.CommandError:  # the history is incomplete
            return "", ()
    on = dict(map(str.split, dates.splitlines()))
    causes = []
    for info in sorted(infos, key=lambda i: on[i.commit]):
        subject = info.message.split("\n", 1)[0]
        author = f"{info.author.name} <{info.author.email}>"
        causes.append(
            Cause(
                commit=info.commit,
                author=author,
                date=on[info.commit],
                subject=subject,
                pull_request=pull_request_of(subject),
                paths=tuple(paths[info.commit]),
            )
        )
    return f"{progress.upstream} {progress.from_ref}..{progress.onto.ref}", tuple(causes)


def _made(git: Git, between: str, file: Disputed) -> list[str]:
    """Return the commits that added or removed conflicting lines of a file.

    If the file has no conflicting lines, because one side removed the file, return the last commit that changed it.
    """
    lines: list[str] = []
    for clash in file.collisions:
        base, ours = set(clash.base), set(clash.ours)
        for side in (ours - base, base - ours):
            lines += sorted(filter(str.strip, side), key=len, reverse=True)[:_MOST_SEARCHED]
    found: dict[str, None] = {}
    for line in dict.fromkeys(lines):
        out = git.run("log", "--format=%H", f"-S{line}", between, "--", f":(literal){file.path}")
        found.update(dict.fromkeys(out.decode().split()))
    if not file.collisions:
        out = git.run("log", "--format=%H", between, "--", f":(literal){file.path}")
        found.update(dict.fromkeys(out.decode().split()[:1]))
    return list(found)


# Other sections of the report


def _dependents(project: Project, progress: RebaseProgress, stop: Stop) -> tuple[str, ...]:
    patch = f"{progress.upstream}/{stop.patch}"
    found: dict[str, None] = {}
    stacks = project.stacks(progress.set_name)
    for stack in stacks:
        for other, header in stack.headers():
            if patch in header.values("Requires"):
                found[f"{stack.pin.upstream}/{other}"] = None
    own = []
    for s in stacks:
        if s.pin.upstream == progress.upstream and stop.patch in s.names:
            own.append(s)
    if own:
        (carried,) = carried_stacks(project, own, progress.set_name)
        for name in dependents(project.store, carried, stop.patch):
            found[f"{progress.upstream}/{name}"] = None
    return tuple(found)


def _dropped(project: Project, progress: RebaseProgress, stop: Stop) -> tuple[DroppedNow, ...]:
    """Return upstream's lines that the files in the conflict worktree lack, although the patch doesn't remove them.

    The result is empty while a file has conflict markers.
    """
    worktree = stop_worktree(project, progress)
    if not stop.parked or not worktree.exists:
        return ()
    taken = stops.take_own(project, progress, stop, worktree, ())
    marked, _ = stops.unsettled(project, stop, taken.tree, ())
    if marked:
        return ()
    step = stops.as_step(project, progress, stop, taken.tree, "")
    lines = dropped_by(project, progress, stop, CommitId(step.commit))
    commits = commits_of(project, progress, lines)
    found: list[DroppedNow] = []
    for line in lines:
        found.append(DroppedNow(path=line.path, line=line.line, text=line.text, commit=commits.get(line, "")))
    return tuple(found)


def _suggestions(project: Project, progress: RebaseProgress, stop: Stop) -> Iterator[Suggestion]:
    paths = stop.paths
    if not paths:
        return
    ours = {}
    for stage in stops.stop_stages(stop):
        if stage.number == 2:
            ours[stage.path] = stage.entry
    sides = project.store.texts(ours)
    resolve = f"patchq resolve {progress.upstream}"
    recorded = recorded_files(project, progress, stop)
    if recorded:
        yield Suggestion(
            source=RECORDED,
            diff=_diff(sides, recorded),
            command=f"{resolve} --recorded",
            paths=tuple(map(show_path, sorted(recorded))),
            left=len(paths) - len(recorded),
        )
    for ref, tree in at_refs(project, progress, stop):
        after = project.store.texts(project.store.list_tree(tree, paths))
        yield Suggestion(source=ref, diff=_diff(sides, after), command=f"{resolve} --ref {sh(ref)}")


def say_suggestion(upstream: str, one: Suggestion) -> str:
    """Describe a suggestion in words."""
    if one.source != RECORDED:
        return f"the patch of {upstream} {one.source} applies here"
    left = ""
    if one.left:
        left = f"; {one.left} are left"
    return f"the recorded resolution of {', '.join(one.paths)}{left}"


def report_json(found: Brief) -> dict[str, Any]:
    """Return the conflict report as a JSON object."""
    suggestions = []
    for one in found.suggestions:
        message = say_suggestion(found.upstream, one)
        suggestions.append({"source": one.source, "message": message, "diff": one.diff, "command": one.command})
    return {**asdict(found), "suggestions": suggestions}


def _diff(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> str:
    found: list[str] = []
    for path, content in sorted(after.items()):
        name = show_path(path)
        found += difflib.unified_diff(_lines(before.get(path, b"")), _lines(content), f"a/{name}", f"b/{name}")
    text = ""
    for line in found:
        text += line.removesuffix("\n") + "\n"
    return text


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines(keepends=True)
