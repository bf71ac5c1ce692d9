"""``forecast --blame``: the first upstream commit at which each patch stops, by binary search over merges in memory.

That takes upstream's history, which pins don't: it is fetched into a repository of its own under ``.patchq``.
Where the git host can't be reached, releases are all there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.errors import SourceError, UserError
from patchq.git.repository import Git, bare_repository, scratch
from patchq.git.transport import fetch_history
from patchq.merge.patches import STOPS, Patch, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId, sh
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.apply import Carried, carried_stacks
from patchq.system import runner

_PULL_REQUEST = re.compile(r"\(#(\d+)\)|^Merge pull request #(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """The commit that broke a patch. ``pull_request`` is its number, or empty."""

    patch: str
    ref: str
    commit: CommitId
    author: str
    subject: str
    pull_request: str
    tried: int


def blame(
    project: Project,
    upstream: str,
    breaks: Mapping[str, str],
    refs: Sequence[str],
    *,
    set_name: str = "",
    from_ref: str = "",
) -> list[Culprit]:
    """Find the commits that broke patches.

    Along first parents, between the last of the refs (or the pin's own) where a patch still lands and the first
    where it doesn't. What breaks, mends and breaks again is blamed for one of its breaks.

    :param breaks: the ref at which each patch (``upstream/name``) stops first.
    :param refs: in order.
    :param from_ref: the pinned ref whose stack is carried; the set's own by default.
    :raises SourceError: if there is no history to be had.
    """
    set_name = project.choose_set(set_name)
    if not breaks:
        return []
    with project.locked("blame"):
        pin = project.lock.upstreams[upstream].pins[from_ref or project.lock.sets[set_name][upstream]]
        (carried,) = carried_stacks(project, [load_stack(project.layout, pin)], set_name)
    if not pin.url:
        raise SourceError(
            f"{upstream} has no git source", hint=f"`patchq pin {upstream} --url URL --ref {sh(pin.ref)}`"
        )
    # Apart from the store, whose commits have no parents.
    history = bare_repository(project.layout.private / "history" / f"{upstream}.git")
    chain = [pin.ref, *refs]
    commits = {ref: fetch_history(history, pin.url, ref) for ref in dict.fromkeys(chain)}
    with scratch(project.store, history) as both:
        search = _Search(history, both, carried)
        found = [
            search.first_stop(
                patch, ref, commits[chain[(chain.index(ref, 1) if ref in chain[1:] else 1) - 1]], commits[ref]
            )
            for patch, ref in breaks.items()
        ]
    return [culprit for culprit in found if culprit]


class _Search:
    def __init__(self, history: Git, both: Git, carried: Carried) -> None:
        self.history, self.both = history, both
        self.patches: list[Patch] = read_patches(both, carried.commits)
        self.upstream, self.base = carried.stack.pin.upstream, carried.base
        self.stops: dict[CommitId, set[str]] = {}

    def _stops_at(self, commit: CommitId) -> set[str]:
        """The patches that stop on a commit; asked once for all of them."""
        if commit not in self.stops:
            (column,) = carry(self.both, self.patches, [commit], self.base)
            self.stops[commit] = {
                f"{self.upstream}/{landing.patch}" for landing in column.landings.values() if landing.outcome in STOPS
            }
        return self.stops[commit]

    def first_stop(self, patch: str, ref: str, good: CommitId, bad: CommitId) -> Culprit | None:
        """The first commit of ``good..bad`` on which a patch stops."""
        try:
            out = self.history.run("rev-list", "--first-parent", "--reverse", f"{good}..{bad}")
        except runner.CommandError as error:
            raise UserError(f"{ref} has no history here: {error.said}", hint="forecast without --blame") from None
        line = [CommitId(c) for c in out.decode().split()]
        low, high, tried = 0, len(line) - 1, 0
        if high < 0 or patch not in self._stops_at(line[high]):
            return None
        while low < high:
            middle = (low + high) // 2
            tried += 1
            if patch in self._stops_at(line[middle]):
                high = middle
            else:
                low = middle + 1
        (info,) = self.history.log("--no-walk=unsorted", line[high])
        subject = info.message.split("\n", 1)[0]
        number = _PULL_REQUEST.search(subject)
        author = f"{info.author.name} <{info.author.email}>"
        return Culprit(
            patch=patch,
            ref=ref,
            commit=line[high],
            author=author,
            subject=subject,
            pull_request=next(filter(None, number.groups()), "") if number else "",
            tried=tried,
        )
