"""What a command names, whatever it is, as patches that were found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchq.adopt.folders import places
from patchq.adopt.found import Found, Reading
from patchq.adopt.headers import settle
from patchq.adopt.mails import read_data
from patchq.errors import UserError
from patchq.formats.header import Ident, clean_message, clean_subject
from patchq.git.borrow import Borrowed, borrow
from patchq.git.command import author_ident
from patchq.git.gitlinks import refuse_repositories
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.project.project import Project
from patchq.stacks.edit import Loaded
from patchq.stacks.export import slug
from patchq.system import runner

#: The name of standard input.
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Request:
    """From where to adopt.

    :ivar paths: files and folders, ``-`` for ``stdin``; with ``git_range`` one repository.
    """

    paths: Sequence[Path] = ()
    stdin: bytes = b""
    git_range: str = ""
    reading: Reading = field(default_factory=Reading)


def gather(project: Project, loaded: Loaded, request: Request) -> list[Found]:
    """The patches of a request, in their order.

    :raises UserError: if there is none.
    """
    if request.git_range:
        return from_range(project, request.paths, request.git_range)
    return from_files(request.paths, request.stdin, request.reading)


def from_files(paths: Sequence[Path], stdin: bytes = b"", reading: Reading | None = None) -> list[Found]:
    """The patches in files and folders, in their order, mails without a patch among them.

    :raises UserError: if there is no patch at all, or a path isn't there.
    :raises FormatError: for a mail that git can't read.
    """
    reading = reading or Reading()
    found: list[Found] = []
    for path in paths:
        if path == STDIN:
            found += _of(read_data(stdin, "standard input", "patch", 1), "", reading, "")
            continue
        for place in places(path):
            read = read_data(place.data, place.where, place.name, place.strip)
            found += _of(read, place.folder, reading, place.origin)
    if all(f.left_out for f in found):
        told = [*dict.fromkeys(said for f in found for said in f.said)] or [f"{paths[0]} holds no diff"]
        raise UserError("; ".join(told), hint="is it a patch?")
    return found


def _of(found: Sequence[Found], folder: str, reading: Reading, origin: str) -> list[Found]:
    folder = "/".join(part for part in (reading.folder.strip("/"), folder.strip("/")) if part)
    return [
        replace(f, folder=folder, origin=origin, strip=f.strip if reading.strip is None else reading.strip)
        for f in found
    ]


def from_range(project: Project, paths: Sequence[Path], spec: str) -> list[Found]:
    """The commits ``A..B`` of a repository.

    :raises UserError: if it has no such range, or a merge in it.
    """
    if len(paths) != 1 or ".." not in spec:
        raise UserError("--range takes one repository and A..B", hint="patchq import NAME REPOSITORY --range A..B")
    path = paths[0].resolve()
    if not path.is_dir():
        raise UserError(f"{path} is no git repository", hint="name a repository's folder")
    first, _, last = spec.partition("..")
    found = of_commits(project, borrow(project.store, path, first, last.lstrip(".") or "HEAD"), str(path), path.name)
    if not found:
        raise UserError(f"{spec} of {path} holds no commits", hint="is it the wrong way round?")
    return found


def of_commits(project: Project, commits: Sequence[Borrowed], where: str, origin: str) -> list[Found]:
    """Commits whose trees are in the store.

    :raises UserError: for a merge.
    """
    found = []
    for borrowed in commits:
        commit = borrowed.info
        if len(commit.parents) != 1 or not borrowed.before:
            raise UserError(f"{commit.commit[:12]} is a merge; a stack is linear", hint="rebase that branch first")
        named = f"{where}: commit {commit.commit[:12]}"
        refuse_repositories(project.store, named, borrowed.before, commit.tree, "there")
        message = clean_message(commit.message)
        subject = clean_subject(message.split("\n", 1)[0])
        said = settle(message, author="kept")
        author = _author(project.store, commit)
        trees = (borrowed.before, commit.tree)
        name = slug(said.name or subject)
        place = f"{origin}@{commit.commit}"
        found.append(Found(name, named, author, said.message, trees=trees, origin=place, topic=said.topic))
    return found


def _author(git: Git, commit: CommitInfo) -> Ident:
    """A commit's author as git would write it today: old commits, and those of other tools, have any bytes there."""
    who = commit.author
    try:
        return author_ident(git, who.name or who.email, who.email, f"@{who.when} {who.zone}")
    except runner.CommandError as error:
        said = error.said.removeprefix("fatal: ")
        raise UserError(f"{commit.commit[:12]}: {said}", hint="`git commit --amend --author` mends it") from None
