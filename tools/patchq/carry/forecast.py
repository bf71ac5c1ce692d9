"""``forecast``: what carrying a stack onto other refs would come to, patch by ref, in memory.

No worktree, branch or stack moves; the store gains objects, and the bases that it lacked, as by `fetch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from patchq.carry.column import Column
from patchq.carry.landing import STOPS, FileConflict, read_patches
from patchq.carry.looking import sights, verdict
from patchq.carry.merging import carry_each
from patchq.errors import UserError
from patchq.formats.ledger import FileOffset, line_map
from patchq.formats.lock import Pin
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.refs import newest, pin_at, releases_of
from patchq.sources.pins import Fetcher
from patchq.stacks.apply import carried_stacks
from patchq.stacks.siblings import Difference, differences


@dataclass(frozen=True, slots=True)
class Cell:
    """A patch on a ref.

    :ivar files: those that conflict, or are gone.
    :ivar offsets: how far its lines moved, and in ``checked``, by what that is known.
    :ivar said: why it stops, where its files don't show it.
    :ivar grade: how much of a patch that stops upstream has; ``evidence`` says where. See :mod:`patchq.carry.absorbed`.
    """

    patch: str
    ref: str
    outcome: str
    files: tuple[FileConflict, ...] = ()
    grade: str = ""
    evidence: str = ""
    offsets: tuple[FileOffset, ...] = ()
    checked: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The matrix of one upstream's stack, refs as they were asked for, patches in the order of the series."""

    upstream: str
    from_ref: str
    refs: tuple[str, ...]
    cells: tuple[Cell, ...]
    #: What each ref asks of the set's other pins that they aren't, where the lock doesn't mean it.
    siblings: tuple[Difference, ...] = ()

    def of(self, ref: str) -> list[Cell]:
        """A ref's cells."""
        return [c for c in self.cells if c.ref == ref]

    def stops(self, ref: str) -> int:
        """How many patches stop for a person there."""
        return sum(c.outcome in STOPS for c in self.of(ref))

    @property
    def cheapest(self) -> str:
        """The ref with the fewest stops; of several, the last one asked for."""
        return min(reversed(self.refs), key=self.stops)

    def breaks(self) -> dict[str, str]:
        """The first ref, in the order asked for, at which each patch stops that does anywhere."""
        found: dict[str, str] = {}
        for ref in self.refs:
            for cell in self.of(ref):
                if cell.outcome in STOPS:
                    found.setdefault(cell.patch, ref)
        return found


def forecast(
    project: Project, upstream: str, refs: Sequence[str], *, releases: str = "", ahead: bool = False, set_name: str = ""
) -> Forecast:
    """Carry a set's stack of an upstream onto each ref.

    A patch that conflicts is left out, and those after it are carried without it.

    :param refs: pinned refs, refs of the git host where it can be reached, or releases of the pin's
        archive: ``v0.14.0`` or ``0.14.0``.
    :param releases: a specifier such as ``>=0.14``: all such releases that have a source archive.
    :param ahead: also onto what is newest upstream: its default branch, or its newest release.
    :raises UserError: if there is no ref, or one can't be found.
    """
    set_name = project.choose_set(set_name)
    with project.locked("forecast"):
        stacks = project.stacks(set_name, [upstream])
        (carried,) = carried_stacks(project, stacks, set_name)
        wanted = [*refs, *(releases_of(carried.stack.pin, releases) if releases else ())]
        last = newest(project, carried.stack.pin)[0] if ahead else None
        wanted = list(dict.fromkeys([*wanted, *([last.ref] if last else ())]))
        if not wanted:
            raise UserError("no ref to forecast", hint="`--onto REF`, `--newest`, or `--releases '>=1.2'`")
        fetcher = Fetcher(project.layout, project.lock, say=project.say, progress=project.progress)
        known = {last.ref: last} if last else {}
        with ThreadPoolExecutor(8) as pool:  # it waits for the index
            pins = list(pool.map(lambda ref: known.get(ref) or pin_at(project, carried.stack.pin, ref), wanted))
        bases = fetcher.fetch(pins)
    patches = read_patches(project.store, carried.commits)
    apart = [d for pin, base in zip(pins, bases, strict=True) for d in _apart(project, set_name, pin, base.commit)]
    columns = carry_each(project.store, patches, [base.commit for base in bases], carried.base)
    (base,) = project.store.tree_of([carried.base])
    first = Column(project.store, base, patches)
    from_ref = carried.stack.pin.ref
    versions = list(zip(wanted, columns, strict=True))
    cells = tuple(
        cell for number in range(len(patches)) for cell in _cells(upstream, from_ref, number, first, versions)
    )
    return Forecast(upstream, from_ref, tuple(wanted), cells, tuple(apart))


def _apart(project: Project, set_name: str, pin: Pin, base: CommitId) -> list[Difference]:
    """What a ref asks of the other pins that it would be put beside."""
    return [d for d in differences(project, set_name, {pin.upstream: base}, instead=pin) if not d.meant]


def _cells(
    upstream: str, from_ref: str, number: int, base: Column, versions: Sequence[tuple[str, Column]]
) -> list[Cell]:
    """The cells of a patch; where it stops, it is looked for in the versions up to there."""
    patch = base.patches[number]
    landings = [column.landings[number] for _, column in versions]
    seen = sights(patch, base, versions, [n for n, landing in enumerate(landings) if landing.outcome in STOPS])
    found = []
    for n, ((ref, _), landing) in enumerate(zip(versions, landings, strict=True)):
        outcome, grade, evidence = verdict(landing, seen[n], ref) if n in seen else (landing.outcome, "", "")
        checked = line_map(from_ref, ref) if landing.offsets else ""
        name = f"{upstream}/{patch.name}"
        found.append(Cell(name, ref, outcome, landing.files, grade, evidence, landing.offsets, checked, landing.said))
    return found
