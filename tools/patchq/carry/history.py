"""An upstream's history, where it is at hand: its repository on this machine, or what was fetched of it.

Pins bring no history, and nobody is asked for it here: commits, and the trees of those that matter, are read from
wherever they lie already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from patchq.carry.landed import Landed, Line
from patchq.carry.landing import Patch
from patchq.formats.lock import Pin
from patchq.git.repository import Foreign, Git, scratch
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.sources.pins import is_repository, local_folder
from patchq.system import runner


class History:
    """The commits of one upstream; ``git`` has the objects of all that is at hand."""

    def __init__(self, git: Git, refs: dict[str, str]) -> None:
        self.git, self._refs = git, refs

    def commit(self, pin: Pin) -> CommitId | None:
        """The commit that a pin is, if it is at hand with its history."""
        names = (f"refs/tags/{pin.ref}", f"refs/heads/{pin.ref}")
        asked = [pin.commit or "", *(self._refs.get(name, "") for name in names)]
        return next((found for name in asked if name and (found := self.git.ref_or_none(f"{name}^{{commit}}"))), None)

    def releases(self) -> dict[CommitId, str]:
        """The tags, by the commits that they are of."""
        tags = [name for name in self._refs if name.startswith("refs/tags/")]
        data = "".join(f"{self._refs[name]}^{{commit}}\n" for name in tags).encode()
        out = self.git.run("cat-file", "--batch-check=%(objectname)", data=data).decode().splitlines() if tags else []
        found = zip(out, tags, strict=True)
        return {CommitId(c): name.removeprefix("refs/tags/") for c, name in found if " " not in c}

    def past(self, old: Pin, new: Pin, patches: Sequence[Patch]) -> Landed | None:
        """What to ask whether upstream took patches between two pins; None where that can't be said here."""
        base, target = self.commit(old), self.commit(new)
        if base is None or target is None:
            return None
        try:
            line = Line(self.git, base, target, {**self.releases(), target: new.ref})
        except runner.CommandError:  # it ends before it gets there
            return None
        ids = self.git.patch_ids_of([patch.commit.commit for patch in patches])
        return Landed(line, dict(zip((patch.name for patch in patches), ids, strict=True)))

    def distance(self, one: CommitId, other: CommitId) -> int | None:
        """How many commits two don't share; None where that can't be said."""
        try:
            return int(self.git.line("rev-list", "--count", f"{one}...{other}", "--"))
        except runner.CommandError:
            return None


def fetched(project: Project, upstream: str) -> Path:
    """Where the history that was fetched of an upstream is kept."""
    return project.layout.private / "history" / f"{upstream}.git"


@contextmanager
def at_hand(project: Project, upstream: str) -> Iterator[History | None]:
    """What is here of an upstream's history; None where nothing is."""
    found: list[Git] = []
    refs: dict[str, str] = {}
    own = Git(fetched(project, upstream))
    if (own.folder / "HEAD").exists():
        found.append(own)
        refs.update((unquote(name.rpartition("/")[2]), commit) for name, commit in own.refs("refs/history").items())
    url = project.lock.upstreams[upstream].url
    folder = local_folder(project.layout, url) if url else None
    if folder and folder.is_dir() and is_repository(folder) and (place := _objects_of(folder)):
        found.append(Git(place))
        refs.update(Foreign(folder).refs("refs/tags", "refs/heads"))
    if not found:
        yield None
        return
    with scratch(project.store, *found) as both:
        yield History(both, refs)


def _objects_of(folder: Path) -> Path | None:
    """A repository without its files; None for one that only refers to another."""
    dot = folder / ".git"
    found = dot if dot.is_dir() else folder
    return found if (found / "objects").is_dir() else None
