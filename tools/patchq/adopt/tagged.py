"""An upstream's releases as its git tags: of its host, and of what is here of its history.

Of a tag that is tried come its trees and those files that the patches name, where the host can leave files out; they
are kept in `.patchq/history`, so that nothing comes twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import SourceError
from patchq.formats.diff import GITLINK
from patchq.formats.lock import Pin
from patchq.git.fastimport import commit_entries
from patchq.git.repository import Git, partial_repository
from patchq.git.transport import Unreachable, fetch_blobs, fetch_trees, kept_trees, tag_commits
from patchq.names import BlobId, CommitId
from patchq.project.project import Project
from patchq.project.refs import tag_versions
from patchq.sources.folders import is_repository, local_folder
from patchq.sources.pins import REACH_TIMEOUT
from patchq.system.allowance import Allowance
from patchq.system.runner import CommandError
from patchq.upstream.history import History

if TYPE_CHECKING:
    from packaging.version import Version


class Tagged:
    """The tags of a pin's upstream.

    :ivar commits: by the tags' names.
    :ivar places: repositories in which what is here of them lies.
    """

    def __init__(self, project: Project, pin: Pin, history: History | None, *, offline: bool) -> None:
        self.pin = pin
        self.commits: dict[str, CommitId] = history.tags() if history else {}
        self.places: list[Git] = [history.git] if history else []
        self._url = ""
        if pin.url and not offline:
            self._ask(project)
        self._partial = self._open(project)
        if self._partial:
            self.places.append(self._partial)

    def _open(self, project: Project) -> Git | None:
        """What is kept, with its commits; where some of it has been lost and can be had again, it is begun anew."""
        folder = _kept(project, self.pin.upstream)
        if folder.exists():
            try:
                kept = kept_trees(Git(folder))
            except CommandError:  # it is no repository
                kept = {"": None}
            whole = {tag: commit for tag, commit in kept.items() if commit}
            if len(whole) < len(kept) and self._url:
                project.say(f"{folder} is damaged, and is made again")
                shutil.rmtree(folder)
            elif whole or not kept:
                self.commits = whole | self.commits
                return Git(folder)
        return partial_repository(folder) if self._url else None

    def _ask(self, project: Project) -> None:
        folder = local_folder(project.layout, self.pin.url)
        if folder and not is_repository(folder):
            return
        url = str(folder) if folder else self.pin.url
        try:
            self.commits.update(tag_commits(url, timeout=REACH_TIMEOUT))
            self._url = url
        except Unreachable as error:
            project.say(f"{self.pin.upstream}: {error.message}")

    def versions(self) -> dict[Version, str]:
        """Those that are releases."""
        return tag_versions(self.commits, self.pin.ref)

    def dates(self, beside: Git, tags: Collection[str]) -> dict[str, int]:
        """When the commits of tags were made, in seconds since 1970; nothing where not all of them are here."""
        data = "".join(f"{self.commits[tag]}\n" for tag in tags).encode()
        out = beside.run("cat-file", "--batch-check=%(objecttype) %(objectname)", data=data).decode().splitlines()
        if any(line.endswith(" missing") for line in out):
            return {}
        data = "".join(f"{line.split()[1]}\n" for line in out if line.startswith("commit ")).encode()
        listed = beside.run("rev-list", "--no-walk", "--timestamp", "--stdin", data=data).decode() if data else ""
        when = {commit: int(seconds) for seconds, commit in (line.split() for line in listed.splitlines())}
        return {tag: when[self.commits[tag]] for tag in tags if self.commits[tag] in when}

    def bring(self, beside: Git, tag: str, only: Callable[[bytes], bool], allowance: Allowance) -> CommitId:
        """A commit of some files of a tag, maybe none, in a repository that reads the objects of ``places``.

        :param only: which, by their paths in the tree.
        :raises Exhausted: if what is lacking is more than may be downloaded.
        :raises SourceError: if it can't be had.
        """
        commit = self.commits[tag]
        if not beside.ref_or_none(commit):
            if not beside.lacking([BlobId(commit)]):
                raise SourceError(f"{tag} is a tag of no commit", hint="it is no release")
            url, partial = self._reached(tag)
            fetch_trees(partial, url, tag, allowance)
        every = beside.list_tree(commit)
        entries = {path: entry for path, entry in every.items() if entry.mode != GITLINK and only(path)}
        if lacking := beside.lacking(entry.blob for entry in entries.values()):
            url, partial = self._reached(tag)
            fetch_blobs(partial, url, lacking, allowance)
        return commit_entries(beside, entries, f"Some files of {tag}\n")

    def _reached(self, tag: str) -> tuple[str, Git]:
        if not self._url or not self._partial:
            raise SourceError(f"{tag} isn't here, and its host wasn't asked", hint="without --offline it is")
        return self._url, self._partial


def _kept(project: Project, upstream: str) -> Path:
    return project.layout.private / "history" / f"{upstream}.releases.git"
