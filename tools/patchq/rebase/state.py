"""State file of a rebase in progress. All other data of the rebase can be recreated from this file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from patchq.errors import FormatError, StateError, UserError
from patchq.forecast.summary import ForecastCell, RefTally, summary
from patchq.formats import ledger as ledgers
from patchq.formats.ledger import Drop, FileOffset, drop_reason
from patchq.formats.lock import Pin
from patchq.formats.outcomes import DropReason, Grade, Outcome
from patchq.git.worktree import Worktree
from patchq.merge.patches import FileConflict
from patchq.names import CommitId, TextEnum
from patchq.project.project import Project
from patchq.records import dataclass
from patchq.system import fsio
from patchq.system.paths import check_name, ref_to_folder

VERSION = 1
_ID = re.compile(r"[0-9a-f]{40}")
#: Phases of a rebase: applying patches, writing the new stack, aborting.
CARRYING, FINISHING, ABORTING = "carrying", "finishing", "aborting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchStep:
    """Result of carrying one patch.

    :ivar commit: commit of the patch, or an empty string if the new stack doesn't have the patch.
    :ivar offsets: line offsets of the hunks.
    :ivar checked: evidence that the hunks belong at these offsets.
    :ivar dropped: lines of upstream that the user allowed the patch to remove, each as path, line number and text.
    :ivar undecided: True if the patch is left for a later rebase. Then ``stopped`` contains the reason for the stop.
    """

    patch: str
    outcome: Outcome
    commit: str = ""
    files: tuple[tuple[str, int], ...] = ()
    grade: Grade = Grade.NONE
    evidence: str = ""
    how: str = ""
    lines: int = 0
    proof: str = ""
    known: bool = False
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    dropped: tuple[tuple[str, int, str], ...] = ()
    undecided: bool = False
    stopped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Stopped patch, for which the user must decide.

    :ivar conflicts: conflicting paths, each with the line numbers at which its conflicts begin; see
        :class:`patchq.merge.patches.FileConflict`.
    :ivar parked: commit that was checked out in the conflict worktree. Its files contain conflict markers.
    :ivar carries: number of later patches that apply without this one.
    :ivar stops: number of later patches that don't apply without it.
    :ivar ready: True if the conflict worktree is ready for the user.
    :ivar by_history: True if upstream's history contains a commit with the same patch id and no revert of
        that commit.
    :ivar replayed: tree of a recorded resolution that needs review.
    :ivar resolution: tree of the resolution that ``undo`` has reverted.
    """

    patch: str
    outcome: Outcome
    conflicts: tuple[tuple[str, tuple[int, ...]], ...]
    parked: str
    stages: tuple[tuple[str, str, str, int], ...]
    grade: Grade = Grade.NONE
    evidence: str = ""
    message: str = ""
    carries: int = 0
    stops: int = 0
    ready: bool = False
    replayed: str = ""
    by_history: bool = False
    resolution: str = ""

    @property
    def paths(self) -> list[bytes]:
        """Return the conflicting paths, sorted."""
        return sorted({os.fsencode(path) for path, *_ in self.stages})


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """Stopped patch that the user has resolved, dropped or skipped. ``undo`` returns to it.

    :ivar steps: number of steps before the stopped patch.
    :ivar tree: tree of the conflict worktree at the time of the decision.
    """

    stop: Stop
    steps: int
    tree: str


@dataclass(slots=True, kw_only=True)
class RebaseProgress:
    """Content of the state file of a rebase.

    :ivar target_digest: digest of the new ref's stack when the rebase began; empty if an older
        version of patchq began the rebase.
    """

    upstream: str
    set_name: str
    new_set: str
    from_ref: str
    onto: Pin
    old_base: CommitId
    base: CommitId
    source: str
    order: tuple[str, ...]
    commits: dict[str, str]
    target: tuple[str, ...]
    retire: bool = False
    leave_out: bool = False
    codemods: bool = False
    phase: str = CARRYING
    files: str = ""
    done: list[PatchStep] = field(default_factory=list)
    stop: Stop | None = None
    attempts: list[ledgers.Attempt] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    dropped: list[Drop] = field(default_factory=list)
    target_digest: str = ""

    @property
    def tip(self) -> CommitId:
        """Return the commit of the last applied patch. If no patch is applied, return the base."""
        return CommitId(next((s.commit for s in reversed(self.done) if s.commit), self.base))


class RebaseState(TextEnum):
    """State of a rebase after a command."""

    DONE = "done"
    STOPPED = "stopped"
    ABORTED = "aborted"
    #: There is no patch to carry.
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of a command for a rebase.

    :ivar set_name: set of the new pin; empty if no set was created, because no patch is left.
    :ivar dropped: patches that were not tried because the ledger drops them.
    """

    upstream: str
    from_ref: str
    onto: str
    state: RebaseState
    steps: tuple[PatchStep, ...] = ()
    left: int = 0
    stop: Stop | None = None
    worktree: str = ""
    set_name: str = ""
    notes: tuple[str, ...] = ()
    dropped: tuple[Drop, ...] = ()


def result(project: Project, progress: RebaseProgress, state: RebaseState) -> Result:
    """Return the state of a rebase as a :class:`Result`."""
    stop = None
    if state == RebaseState.STOPPED:
        stop = progress.stop
    folder = ""
    if stop:
        folder = str(stop_worktree(project, progress).path)
    left = len(progress.order) - len(progress.done)
    return Result(
        upstream=progress.upstream,
        from_ref=progress.from_ref,
        onto=progress.onto.ref,
        state=state,
        steps=tuple(progress.done),
        left=left,
        stop=stop,
        worktree=folder,
        set_name=progress.new_set,
        notes=(),
        dropped=tuple(progress.dropped),
    )


def upstreams_under_way(project: Project) -> list[str]:
    """Return the names of upstreams with a rebase in progress."""
    return sorted(path.stem for path in (project.layout.private / "rebase").glob("*.json"))


def under_way(project: Project) -> list[Result]:
    """Return the rebases in progress."""
    return [result(project, load(project, name), RebaseState.STOPPED) for name in upstreams_under_way(project)]


def tally_result(found: Result) -> RefTally:
    """Count the steps of a rebase by outcome, as :func:`summary` counts the cells of a forecast."""
    dropped = []
    cells = []
    for s in found.steps:
        name = f"{found.upstream}/{s.patch}"
        if not s.commit and drop_reason(s.outcome, undecided=s.undecided) and s.outcome != Outcome.ABSORBED:
            dropped.append(name)
            continue
        files = (FileConflict(path, (0,) * hunks) for path, hunks in s.files)
        cells.append(ForecastCell(patch=name, ref=found.onto, outcome=s.outcome, files=tuple(files), known=s.known))
    dropped += [f"{found.upstream}/{drop.patch}" for drop in found.dropped]
    return summary(found.onto, cells, dropped)


def ready_stop(progress: RebaseProgress) -> Stop | None:
    """Return the stopped patch if it is ready for the user.

    Return None if no patch is stopped or if patchq was killed before the worktree was ready.
    """
    if progress.phase == CARRYING and progress.stop and progress.stop.ready:
        return progress.stop
    return None


def stopped(progress: RebaseProgress) -> Stop:
    """Return the stopped patch of a rebase.

    :raises UserError: if no patch is stopped.
    """
    if stop := ready_stop(progress):
        return stop
    raise UserError(
        f"the rebase of {progress.upstream} was interrupted before a patch stopped",
        hint=f"`patchq rebase {progress.upstream} --continue`",
    )


def take(project: Project, progress: RebaseProgress, step: PatchStep) -> None:
    """Add a step to the state of the rebase, and report the progress."""
    progress.done.append(step)
    project.say(f"{len(progress.done)}/{len(progress.order)} {step.patch}: {'there' if step.known else step.outcome}")
    what = f"{progress.upstream} onto {progress.onto.ref}"
    project.count(what, len(progress.done), len(progress.order), "patches")


def stop_worktree(project: Project, progress: RebaseProgress) -> Worktree:
    """Return the conflict worktree, which is separate from the worktree of the applied stack."""
    return project.worktree(f"{progress.upstream}@{ref_to_folder(progress.onto.ref)}")


def state_path(project: Project, upstream: str) -> Path:
    """Return the path of an upstream's state file. The file exists only during a rebase."""
    return project.layout.private / "rebase" / f"{upstream}.json"


def resolution_path(project: Project, upstream: str) -> str:
    """Return the path, relative to the project, of the file that identifies the last resolution."""
    return f"{project.layout.private.name}/rebase/{upstream}.resolved"


def proposals_path(project: Project, upstream: str) -> Path:
    """Return the path of the file with the proposed resolutions of the stopped patch."""
    return project.layout.private / "rebase" / f"{upstream}.proposals"


def save(project: Project, progress: RebaseProgress) -> None:
    """Write the state file of a rebase atomically."""
    fsio.write_atomic(state_path(project, progress.upstream), fsio.dump_json({"version": VERSION, **asdict(progress)}))


def load(project: Project, upstream: str) -> RebaseProgress:
    """Read the state file of a rebase.

    :raises UserError: if no rebase of the upstream is in progress.
    :raises StateError: if the file is invalid.
    """
    path = state_path(project, upstream)
    data = fsio.read_or_none(path)
    if data is None:
        raise UserError(
            f"no rebase of {upstream} is under way",
            hint=f"`patchq forecast {upstream} --newest` shows which patches conflict with the newest release; "
            f"`patchq rebase {upstream} --onto TAG` starts a rebase",
        )
    raw = fsio.load_state(data, path, VERSION)
    try:
        return _progress(raw, upstream)
    except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
        raise StateError(
            f"{path} is not the state of a rebase: {error}",
            hint=f"move the file away, and start the rebase of {upstream} again",
        ) from None


def _progress(raw: dict[str, Any], upstream: str) -> RebaseProgress:
    """Parse the state. Names and ids are checked, because they are used as paths and as arguments of git."""
    raw.pop("version")
    if raw["upstream"] != upstream or raw["onto"]["upstream"] != upstream:
        raise ValueError("the state belongs to another upstream")
    for name in (raw["set_name"], raw["new_set"]):
        check_name(name, "a set")
    for value in _ids_of(raw):
        if not _ID.fullmatch(value):
            raise ValueError(f"{value!r} is not a git id")
    stop = raw.pop("stop")
    done = list(map(_step, raw.pop("done")))
    attempts = list(map(_attempt, raw.pop("attempts")))
    # Older versions of patchq did not write `settled` and `dropped`.
    settled = []
    for item in raw.pop("settled", ()):
        settled.append(Settled(**{**item, "stop": _stop(item["stop"])}))
    dropped = []
    for item in raw.pop("dropped", ()):
        dropped.append(Drop(**{**item, "reason": DropReason(item["reason"])}))
    found = RebaseProgress(
        **{**raw, "onto": Pin(**raw["onto"]), "order": tuple(raw["order"]), "target": tuple(raw["target"])},
        done=done,
        attempts=attempts,
        settled=settled,
        dropped=dropped,
    )
    if stop:
        found.stop = _stop(stop)
    return found


def _ids_of(raw: Mapping[str, Any]) -> list[str]:
    """Return all git ids in the state."""
    ids = [raw["old_base"], raw["base"], *raw["commits"].values()]
    optional = [raw["onto"].get("commit"), raw.get("files")]
    for step in raw["done"]:
        optional.append(step["commit"])
    stops = []
    if raw["stop"]:
        stops.append(raw["stop"])
    for item in raw.get("settled", ()):
        ids.append(item["tree"])
        stops.append(item["stop"])
    for stop in stops:
        ids.append(stop["parked"])
        optional += [stop["replayed"], stop.get("resolution")]
        for _, _, blob, _ in stop["stages"]:
            ids.append(blob)
    return [*ids, *filter(None, optional)]


def _attempt(raw: Mapping[str, Any]) -> ledgers.Attempt:
    files = tuple(ledgers.FileOutcome(**file) for file in raw["files"])
    dropped = tuple(ledgers.DroppedLine(**line) for line in raw.get("dropped", ()))
    return ledgers.Attempt(**{**raw, **_typed(raw), "files": files, "offsets": _offsets(raw), "dropped": dropped})


def _step(raw: Mapping[str, Any]) -> PatchStep:
    files = tuple((path, hunks) for path, hunks in raw["files"])
    dropped = tuple((path, line, text) for path, line, text in raw.get("dropped", ()))
    return PatchStep(**{**raw, **_typed(raw), "files": files, "offsets": _offsets(raw), "dropped": dropped})


def _stop(raw: Mapping[str, Any]) -> Stop:
    conflicts = tuple((path, tuple(lines)) for path, lines in raw["conflicts"])
    stages = tuple((path, mode, blob, number) for path, mode, blob, number in raw["stages"])
    return Stop(**{**raw, **_typed(raw), "conflicts": conflicts, "stages": stages})


def _typed(raw: Mapping[str, Any]) -> dict[str, Outcome | Grade]:
    """Parse the outcome and the grade of a step, a stop or an attempt."""
    return {"outcome": Outcome(raw["outcome"]), "grade": Grade(raw.get("grade", ""))}


def _offsets(raw: Mapping[str, Any]) -> tuple[FileOffset, ...]:
    """Parse the offsets of a step or an attempt. They are missing in files of older versions of patchq."""
    return tuple(FileOffset(f["path"], tuple(f["lines"])) for f in raw.get("offsets", ()))
