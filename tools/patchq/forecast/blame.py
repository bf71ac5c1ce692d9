"""``forecast --blame``: binary search for the first upstream commit at which each patch stops.

The search needs upstream's history, which the store doesn't contain. The history is fetched into a repository
under ``.patchq``. If the git host can't be reached, only releases are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from patchq.errors import UserError
from patchq.git.repository import Git, bare_repository, scratch
from patchq.git.transport import fetch_history
from patchq.merge.patches import STOPS, Patch, read_patches
from patchq.merge.threeway import carry
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.project.stack import load_stack
from patchq.stacks.apply import Carried, carried_stacks
from patchq.system import runner
from patchq.upstream.commits import pull_request_of
from patchq.upstream.history import no_git_source


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Upstream commit that broke a patch.

    :ivar pull_request: number of the commit's pull request; empty if unknown.
    """

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
    """Find the upstream commits that broke patches.

    Search along first parents. The search for a patch ends at the first ref at which the patch stops, and begins at the
    ref before it (or at the pin). If several commits break the patch, one of them is reported.

    :param breaks: first ref at which each patch (``upstream/name``) stops.
    :param refs: refs in order, oldest first.
    :param from_ref: pinned ref of the stack (default: the ref in the set).
    :raises SourceError: if no history is available.
    """
    set_name = project.choose_set(set_name)
    if not breaks:
        return []
    with project.locked("blame"):
        pin = project.lock.upstreams[upstream].pins[from_ref or project.lock.sets[set_name][upstream]]
        (carried,) = carried_stacks(project, [load_stack(project.layout, pin)], set_name)
    if not pin.url:
        raise no_git_source(upstream, pin.ref)
    # Not in the store, whose commits have no parents.
    history = bare_repository(project.layout.private / "history" / f"{upstream}.git")
    commits = {ref: fetch_history(history, pin.url, ref) for ref in dict.fromkeys([pin.ref, *refs])}
    with scratch(project.store, history) as both:
        search = _BlameSearch(history, both, carried)
        found = []
        for patch, ref in breaks.items():
            at = 0
            if ref in refs:
                at = refs.index(ref)
            if at:
                before = refs[at - 1]
            else:
                before = pin.ref
            culprit = search.first_stop(patch, ref, good=commits[before], bad=commits[ref])
            if culprit:
                found.append(culprit)
    return found


class _BlameSearch:
    def __init__(self, history: Git, both: Git, carried: Carried) -> None:
        self.history, self.both = history, both
        self.patches: list[Patch] = read_patches(both, carried.commits)
        self.upstream, self.base = carried.stack.pin.upstream, carried.base
        self.stops: dict[CommitId, set[str]] = {}

    def _stops_at(self, commit: CommitId) -> set[str]:
        """Return the patches that conflict with a commit's tree, or that can't be applied to it.

        All patches are merged onto the commit in one call.
        """
        if commit not in self.stops:
            (column,) = carry(self.both, self.patches, [commit], self.base)
            stopped = set()
            for landing in column.landings.values():
                if landing.outcome in STOPS:
                    stopped.add(f"{self.upstream}/{landing.patch}")
            self.stops[commit] = stopped
        return self.stops[commit]

    def first_stop(self, patch: str, ref: str, good: CommitId, bad: CommitId) -> Culprit | None:
        """Return the first commit of ``good..bad`` on which a patch stops."""
        try:
            out = self.history.run("rev-list", "--first-parent", "--reverse", f"{good}..{bad}")
        except runner.CommandError as error:
            raise UserError(
                f"git can't list the commits up to {ref}: {error.output}", hint="run `patchq forecast` without --blame"
            ) from None
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
        author = f"{info.author.name} <{info.author.email}>"
        return Culprit(
            patch=patch,
            ref=ref,
            commit=line[high],
            author=author,
            subject=subject,
            pull_request=pull_request_of(subject),
            tried=tried,
        )
