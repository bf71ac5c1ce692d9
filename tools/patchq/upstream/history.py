"""Upstream's history on this machine: upstream's own repository, if it is local, or a fetched copy.

The commits of pins are fetched without their history. If `patchq fetch --history` has fetched the history
without files, missing files are fetched when they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

from patchq.errors import SourceError
from patchq.formats.lock import Pin
from patchq.git.diffs import PathChange
from patchq.git.repository import Foreign, Git, partial_repository, scratch
from patchq.git.transport import check_owner, fetch_blobs, fetch_history
from patchq.merge.patches import Patch
from patchq.names import BlobId, CommitId, sh
from patchq.project.project import Project
from patchq.sources.folders import git_source, is_repository, local_folder
from patchq.system import runner
from patchq.upstream.commits import Landed, Lineage, SideBranches


class History:
    """History of one upstream. ``git`` can read every object that is available locally."""

    def __init__(self, git: Git, refs: dict[str, str], partial: Git | None = None, url: str = "") -> None:
        self.git, self._refs, self._partial, self._url = git, refs, partial, url
        # Shared by all refs.
        self._known: dict[CommitId, list[PathChange]] = {}
        self._ids: dict[CommitId, str] = {}
        self._releases: dict[CommitId, str] | None = None

    def bring(self, pin: Pin) -> None:
        """Fetch a pin's history if the copy was fetched without files and lacks the pin's commit."""
        if self._partial and pin.commit and not self.git.ref_or_none(pin.commit):
            with suppress(SourceError):  # the ref stays unavailable
                self._releases = None
                self._refs[f"refs/tags/{pin.ref}"] = fetch_history(self._partial, self._url, pin.ref, files=False)

    def need(self, blobs: Iterable[BlobId]) -> None:
        """Fetch the files that are missing, in one batch.

        :raises SourceError: if the files can't be fetched.
        """
        if self._partial and (lacking := self.git.lacking(blobs)):
            fetch_blobs(self._partial, self._url, lacking)

    def commit(self, pin: Pin) -> CommitId | None:
        """Return a pin's commit; None if its history isn't available locally."""
        names = (f"refs/tags/{pin.ref}", f"refs/heads/{pin.ref}")
        for name in (pin.commit, *map(self._refs.get, names)):
            found = None
            if name:
                found = self.git.ref_or_none(f"{name}^{{commit}}")
            if found:
                return found
        return None

    def releases(self) -> dict[CommitId, str]:
        """Return the tag name of each commit that has a tag."""
        if self._releases is None:
            self._releases = {commit: tag for tag, commit in self.tags().items()}
        return self._releases

    def tags(self) -> dict[str, CommitId]:
        """Return the commit to which each tag points."""
        tags = []
        for name in self._refs:
            if name.startswith("refs/tags/"):
                tags.append(name)
        data = "".join(f"{self._refs[name]}^{{commit}}\n" for name in tags).encode()
        out = []
        if tags:
            out = self.git.run("cat-file", "--batch-check=%(objectname)", data=data).decode().splitlines()
        found = zip(out, tags, strict=True)
        result: dict[str, CommitId] = {}
        for c, name in found:
            if " " not in c:
                result[name.removeprefix("refs/tags/")] = CommitId(c)
        return result

    def past(self, old: Pin, new: Pin, patches: Sequence[Patch]) -> Landed | None:
        """Return an object that searches for patches between two pins; None if the history isn't available."""
        self.bring(new)
        base, target = self.commit(old), self.commit(new)
        if base is None or target is None:
            return None
        try:
            commits = self.git.log(f"{base}..{target}")
            line = Lineage(self.git, commits, {**self.releases(), target: new.ref}, self.need, self._known)
        except runner.CommandError:  # the history is incomplete
            return None
        wanted = [p.commit.commit for p in patches if p.commit.commit not in self._ids]
        self._ids.update(zip(wanted, self.git.patch_ids_of(wanted), strict=True))
        paths = chain.from_iterable(patch.paths for patch in patches)
        sides = SideBranches(line, base, target, paths)
        return Landed(line, {patch.name: self._ids[patch.commit.commit] for patch in patches}, sides)

    def distance(self, one: CommitId, other: CommitId) -> int | None:
        """Return the number of commits that are in the history of only one of two commits; None if unknown."""
        try:
            return int(self.git.line("rev-list", "--count", f"{one}...{other}", "--"))
        except runner.CommandError:
            return None


def fetched(project: Project, upstream: str, *, files: bool = True) -> Path:
    """Return the repository in which an upstream's fetched history is stored.

    :param files: True for the repository that contains all files, False for the one without files.
    """
    return project.layout.private / "history" / (f"{upstream}.git" if files else f"{upstream}.partial.git")


def no_git_source(upstream: str, ref: str) -> SourceError:
    """Return the error for an upstream whose pins come only from archives.

    :param ref: pinned ref for the command in the hint.
    """
    return SourceError(
        f"{upstream} has no git source",
        hint=f"add the source: `patchq pin {upstream} --ref {sh(ref)} --url GIT-URL`",
    )


def fetch(project: Project, upstream: str) -> str:
    """Fetch the history of an upstream's pins, without files if the host supports that.

    :returns: a message that names the history now available.
    :raises SourceError: if the upstream has no git source, or if its host doesn't answer.
    """
    found = project.lock.upstreams[upstream]
    folder = None
    if found.url:
        folder = local_folder(project.layout, found.url)
    if folder and _objects_of(folder):
        check_owner(folder)
        return f"{upstream}: its history is in {folder}"
    if not found.url:
        raise no_git_source(upstream, next(iter(found.pins)))
    with project.locked("fetch"):
        repository = partial_repository(fetched(project, upstream, files=False))
        refs = [pin.ref for pin in found.pins.values()]
        for ref in refs:
            fetch_history(repository, git_source(project.layout, found.url), ref, files=False)
    return f"{upstream}: the history of {', '.join(refs)}"


@contextmanager
def at_hand(project: Project, upstream: str) -> Iterator[History | None]:
    """Yield an upstream's history; None if it isn't available locally."""
    found: list[Git] = []
    refs: dict[str, str] = {}
    partial: Git | None = None
    for files in (True, False):
        own = Git(fetched(project, upstream, files=files))
        if (own.folder / "HEAD").exists():
            found.append(own)
            partial = None
            if not files:
                partial = own
            refs.update((unquote(name.rpartition("/")[2]), c) for name, c in own.refs("refs/history").items())
    known = project.lock.upstreams.get(upstream)
    url = ""
    if known:
        url = known.url
    folder = None
    if url:
        folder = local_folder(project.layout, url)
    if folder and (place := _readable(project, folder)):
        found.append(Git(place))
        refs.update(Foreign(folder).refs("refs/tags", "refs/heads"))
    if not found:
        yield None
        return
    with scratch(project.store, *found) as both:
        yield History(both, refs, partial, git_source(project.layout, url))


def _readable(project: Project, folder: Path) -> Path | None:
    """Return the git folder of a local repository; None if the repository is missing or another user owns it."""
    if not folder.is_dir() or not is_repository(folder):
        return None
    try:
        check_owner(folder)
    except SourceError as error:
        project.say(f"upstream's history is not used: {error.message}")
        return None
    return _objects_of(folder)


def _objects_of(folder: Path) -> Path | None:
    """Return a repository's git folder; None if the repository only refers to another repository's objects."""
    dot = folder / ".git"
    if dot.is_dir():
        found = dot
    else:
        found = folder
    if (found / "objects").is_dir():
        return found
    return None
