"""Choose the reader for each input of ``import``, and convert git commits to patches.

For files and folders, ``_folders.places`` distinguishes patches, recipes and archives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from patchq.adopt._diffs import name_leftovers
from patchq.adopt._folders import FolderPlace, origin_of, places
from patchq.adopt._headers import settle
from patchq.adopt._hosts import Address, fetch_commit_of, fetch_pull_request, mails_of, parse_address
from patchq.adopt._image import from_image
from patchq.adopt._mails import read_data
from patchq.adopt._monkey import from_monkey_patches, replacements
from patchq.adopt._overlay import from_overlay, from_site_packages
from patchq.adopt._replayed import from_replay, with_carried
from patchq.adopt._stgit import has_stgit, stgit_patches
from patchq.adopt.found import FoundPatch, ReadOptions, ReplayOptions
from patchq.errors import PatchqError, SourceError, UserError
from patchq.formats.diff import GITLINK
from patchq.formats.header import Ident, clean_message, clean_subject, split_trailers
from patchq.formats.lock import Pin
from patchq.git.borrow import Borrowed, borrow
from patchq.git.command import author_ident
from patchq.git.gitlinks import refuse_repositories
from patchq.git.objects import CommitInfo
from patchq.git.repository import Git
from patchq.names import sh
from patchq.project.project import Project
from patchq.recipes.entries import LEFT, UNAPPLIED
from patchq.recipes.recipe import is_recipe
from patchq.replay.limits import MOST_ALL, MOST_SCRIPT, read_stream, too_large
from patchq.replay.scripts import is_dockerfile, is_script
from patchq.sources.folders import git_source
from patchq.stacks.edit import Loaded
from patchq.stacks.export import slug
from patchq.system import fsio, runner

#: Path for standard input.
STDIN = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptRequest:
    """Inputs of an import.

    :ivar paths: files and folders (``-`` for ``stdin``), or one repository if ``git_range`` is set.
    :ivar first_parent: convert each merge of ``git_range`` into one patch.
    :ivar urls: URLs of pull requests and commits.
    :ivar pull_requests: numbers of pull requests at the upstream's own host.
    :ivar commands: shell commands, from ``--run``.
    :ivar overlay: folder of whole files that replace files of the tree.
    :ivar image: container image to compare with the release's wheel.
    :ivar platform: platform to choose if ``image`` contains several.
    :ivar site_packages: folder in which the edited package is installed.
    """

    paths: Sequence[Path] = ()
    stdin: bytes = b""
    git_range: str = ""
    urls: Sequence[str] = ()
    pull_requests: Sequence[int] = ()
    commands: Sequence[str] = ()
    overlay: Path | None = None
    image: Path | None = None
    platform: str = ""
    site_packages: Path | None = None
    replaying: ReplayOptions = field(default_factory=ReplayOptions)
    reading: ReadOptions = field(default_factory=ReadOptions)
    first_parent: bool = False


def gather(project: Project, loaded: Loaded, request: AdoptRequest) -> list[FoundPatch]:
    """Return the patches that a request names, in order.

    :raises UserError: if an input contains no patch.
    """
    store, base = project.store, project.store.tree_of([loaded.state.base])[0]
    if request.git_range:
        return from_range(
            project, loaded.stack.pin, request.paths, request.git_range, first_parent=request.first_parent
        )
    found = _from_paths(project, loaded, request)
    found += _from_hosts(project, loaded.stack.pin, request)
    if request.image:
        found += from_image(project, loaded, request.image, request.replaying, platform=request.platform)
    if request.overlay:
        found.append(from_overlay(store, base, request.overlay, request.reading.folder))
    if request.site_packages:
        build = project.lock.upstreams[loaded.stack.pin.upstream].build
        if build:
            name = build.distribution
        else:
            name = loaded.stack.pin.upstream
        found.append(from_site_packages(store, base, request.site_packages, name))
    return found


def _from_paths(project: Project, loaded: Loaded, request: AdoptRequest) -> list[FoundPatch]:
    """Return the patches of StGit stacks, then of patch files, then of scripts and commands."""
    stacks, scripts, files = [], [], []
    for path in request.paths:
        if has_stgit(path):
            stacks.append(path)
        elif path.is_file() and not is_recipe(path) and (is_dockerfile(path) or _is_script(path)):
            scripts.append(path)
        else:
            files.append(path)
    found = []
    for path in stacks:
        found += from_stgit(project, path)
    if files:
        read = from_files(files, loaded.stack.pin, request.stdin, request.reading)
        whole = all(path.is_dir() or is_recipe(path) for path in files)
        found += with_carried(project, loaded, read, request.reading, whole=whole)
    if scripts:
        found += _take_monkey_patches(project, loaded, scripts)
    if scripts or request.commands:
        found += from_replay(project, loaded, scripts, request.commands, request.replaying)
    return found


def _take_monkey_patches(project: Project, loaded: Loaded, scripts: list[Path]) -> list[FoundPatch]:
    """Return the patches made from Python scripts that replace attributes. Remove these scripts from ``scripts``."""
    store, base = project.store, project.store.tree_of([loaded.state.base])[0]
    listing = store.list_tree(base)
    found = []
    for path in list(scripts):
        if path.suffix != ".py":
            continue
        text = (fsio.read_limited(path, MOST_SCRIPT) or b"").decode("utf-8", "replace")
        if replacements(text, listing):
            scripts.remove(path)
            found += from_monkey_patches(store, base, text, str(path), origin_of(path))
    return found


def _from_hosts(project: Project, pin: Pin, request: AdoptRequest) -> list[FoundPatch]:
    """Return the patches of the request's pull requests and URLs."""
    url = git_source(project.layout, pin.url)
    if request.pull_requests and not url:
        raise UserError(
            f"{pin.upstream} has no git host",
            hint="name the pull request by its URL instead of --pr",
        )
    found = []
    for number in request.pull_requests:
        found += from_host(project, Address(repository=url, number=number))
    for text in request.urls:
        address = parse_address(text)
        if not address:
            raise UserError(f"{text} is not the URL of a pull request or commit", hint="…/pull/N or …/commit/ID")
        found += from_host(project, address)
    return found


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return is_script(path, file.read(2))


def from_stgit(project: Project, folder: Path) -> list[FoundPatch]:
    """Return the applied patches of a repository's StGit stack, under their StGit names."""
    first, last, names = stgit_patches(folder)
    commits = borrow(project.store, folder.resolve(), first, last)
    found = of_commits(project, commits, str(folder), folder.resolve().name)
    return [replace(patch, name=slug(name)) for patch, name in zip(found, names, strict=True)]


def from_host(project: Project, address: Address) -> list[FoundPatch]:
    """Return the commits of a pull request, or one commit, from a git host.

    :raises SourceError: if the host doesn't provide them.
    """
    url = address.repository
    try:
        if address.commit:
            return of_commits(project, fetch_commit_of(project.store, url, address.commit), url, url)
        commits, notes = fetch_pull_request(project.store, url, address.number)
    except (SourceError, UserError):
        if not address.patch:
            raise
        project.say(f"git can't fetch it from {url}; downloading {address.patch}")
        return _of(read_data(mails_of(address), address.patch, "patch", 1), "", ReadOptions(), address.patch)
    found = of_commits(project, commits, f"{url}#{address.number}", f"{url}#{address.number}")
    if notes:
        return [replace(f, notes=(*f.notes, f"{f.where}: {notes}")) for f in found]
    return found


def from_files(
    paths: Sequence[Path], pin: Pin, stdin: bytes = b"", reading: ReadOptions | None = None
) -> list[FoundPatch]:
    """Return the patches in files and folders in order, including entries that the import skips.

    :raises UserError: if there is no patch at all, or a path doesn't exist.
    :raises FormatError: if git can't read a piped mail, or a folder's list is invalid.
    """
    reading = reading or ReadOptions()
    found: list[FoundPatch] = []
    left = MOST_ALL
    for path in paths:
        if path == STDIN:
            found += _of(read_data(stdin, "standard input", "patch", 1), "", reading, "")
            continue
        if _is_piped(path):
            with path.open("rb") as file:
                data = read_stream(file, str(path))
            found += _of(read_data(data, str(path), "patch", 1), "", reading, "")
            continue
        for place in places(path, pin):
            if skipped := _skipped(place, pin.upstream):
                found.append(skipped)
                continue
            try:
                data = place.read()
                left -= len(data)
                if left < 0:
                    raise too_large(f"{place.where} and the files before it", f"more than {MOST_ALL} bytes", MOST_ALL)
                read = read_data(data, place.where, place.name, place.strip)
            except PatchqError as error:
                read = [FoundPatch(name=place.name, where=place.where, author=None, message="", problem=error)]
            for patch in _of(read, place.folder, reading, place.origin):
                found.append(_as_recipe(patch, place))
    if all(patch.left_out for patch in found):
        remarks: dict[str, None] = {}
        for patch in found:
            remarks |= dict.fromkeys(patch.notes)
        raise UserError("; ".join(remarks) or f"{paths[0]} holds no diff", hint="is it a patch?")
    return found


def _skipped(place: FolderPlace, upstream: str) -> FoundPatch | None:
    """Return the result for an entry that the import skips or refuses; None for an entry to read."""
    entry = place.entry
    problem = None
    if entry:
        problem = entry.error(upstream)
    note = ""
    if place.unlisted:
        note = f"{place.where} is not listed in {place.unlisted}: left out"
    if entry and entry.state in LEFT:
        note = entry.words(upstream)
    if not note and not problem:
        return None
    notes: tuple[str, ...] = ()
    if note:
        notes = (note,)
    origin = place.origin if entry and entry.state not in UNAPPLIED else ""
    return FoundPatch(
        name=place.name,
        where=entry.where if entry else place.where,
        author=None,
        message="",
        notes=notes,
        left_out=bool(notes),
        problem=problem,
        origin=origin,
    )


def _as_recipe(found: FoundPatch, place: FolderPlace) -> FoundPatch:
    """Return a patch with the options of the recipe that lists it."""
    entry = place.entry
    if entry is None:
        return found
    author = None
    if not entry.reverse:
        author = found.author
    if entry.reverse and found.message:
        message = f'Revert "{found.message.partition(chr(10))[0]}"\n'
    else:
        message = found.message
    return replace(
        found,
        author=author,
        message=message,
        exact=entry.strip is not None,
        reverse=entry.reverse,
        remove_empty=entry.remove_empty,
    )


def _is_piped(path: Path) -> bool:
    """Return True for a pipe, such as the path that a shell passes for ``<(command)``."""
    return str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/")) and path.is_fifo()


def _of(found: Sequence[FoundPatch], folder: str, reading: ReadOptions, origin: str) -> list[FoundPatch]:
    """Return the patches with strip level, folder and origin set, and with notes about text outside their diffs."""
    folder = "/".join(filter(None, (reading.folder.strip("/"), folder.strip("/"))))
    result: list[FoundPatch] = []
    for patch in found:
        strip = patch.strip if reading.strip is None else reading.strip
        result.append(replace(name_leftovers(patch), folder=folder, origin=origin, strip=strip))
    return result


def from_range(
    project: Project, pin: Pin, paths: Sequence[Path], spec: str, *, first_parent: bool = False
) -> list[FoundPatch]:
    """Return the commits ``A..B`` of a repository.

    :param first_parent: convert each merge into one patch with all its changes.
    :raises UserError: if the repository has no such range, or the range has merges and
        ``first_parent`` is not set.
    """
    if len(paths) != 1 or ".." not in spec:
        folder = Path("..", pin.upstream)
        if paths:
            folder = paths[0]
        raise UserError(
            "--range takes one repository and A..B",
            hint=f"`patchq import {pin.upstream} {sh(folder)} --range {sh(pin.ref)}..HEAD`",
        )
    path = paths[0].resolve()
    if not path.is_dir():
        raise UserError(f"{path} is not a git repository", hint="name the folder of a repository")
    first, _, last = spec.partition("..")
    commits = borrow(project.store, path, first, last.lstrip(".") or "HEAD")
    merges = []
    for borrowed in commits:
        if len(borrowed.info.parents) > 1:
            merges.append(borrowed.info.commit)
    if merges and not first_parent:
        more = f" (and {len(merges) - 1} more)" if len(merges) > 1 else ""
        raise UserError(
            f"{merges[0][:12]}{more} is a merge; a stack is linear",
            hint="`--first-parent` makes one patch of each merge, and lists the merged commits in its message; "
            "or rebase the branch",
        )
    if not commits:
        raise UserError(f"{spec} of {path} holds no commits", hint="is the order of the range right?")
    found = []
    patches = of_commits(project, list(map(_linear, commits)), str(path), path.name)
    for patch, borrowed in zip(patches, commits, strict=True):
        found.append(replace(patch, merge=borrowed.info.commit in merges))
    return found


def _linear(borrowed: Borrowed) -> Borrowed:
    """Convert a merge to a commit with only the first parent. Its message lists the merged commits.

    Any other commit is returned unchanged.
    """
    info = borrowed.info
    if len(info.parents) < 2:
        return borrowed
    lines = []
    for commit in borrowed.brought:
        subject = clean_subject(commit.message.partition("\n")[0])
        lines.append(f"- {commit.commit[:12]} {subject} ({commit.author.name} <{commit.author.email}>)")
    text, trailers = split_trailers(clean_message(info.message))
    if lines:
        text = "\n".join([text.rstrip(), "", "The merged commits:", *lines])
    message = "\n".join([text, *(["", *trailers] if trailers else [])]) + "\n"
    return replace(borrowed, info=replace(info, parents=info.parents[:1], message=message))


def of_commits(project: Project, commits: Sequence[Borrowed], where: str, origin: str) -> list[FoundPatch]:
    """Return commits as patches. The commits' trees must be in the store.

    :raises UserError: if a commit doesn't have exactly one parent.
    """
    found = []
    pairs = []
    for borrowed in commits:
        if borrowed.before:
            pairs.append((borrowed.before, borrowed.info.tree))
    linked = set()
    for pair, changes in zip(pairs, project.store.changes_between(pairs), strict=True):
        if any(c.new and c.new.mode == GITLINK for c in changes):
            linked.add(pair)
    for borrowed in commits:
        commit = borrowed.info
        if len(commit.parents) != 1 or not borrowed.before:
            raise UserError(f"{commit.commit[:12]} is a merge; a stack is linear", hint="rebase that branch first")
        named = f"{where}: commit {commit.commit[:12]}"
        if (borrowed.before, commit.tree) in linked:
            refuse_repositories(project.store, named, borrowed.before, commit.tree, "there")
        message = clean_message(commit.message)
        subject = clean_subject(message.split("\n", 1)[0])
        notes = settle(message, author="kept")
        author = _author(project.store, commit)
        trees = (borrowed.before, commit.tree)
        name = slug(notes.name or subject)
        place = f"{origin}@{commit.commit}"
        found.append(
            FoundPatch(
                name=name,
                where=named,
                author=author,
                message=notes.message,
                trees=trees,
                origin=place,
                topic=notes.topic,
            )
        )
    return found


def _author(git: Git, commit: CommitInfo) -> Ident:
    """Return a commit's author with invalid bytes cleaned up as git does.

    Old commits, and commits of other tools, can hold arbitrary bytes.
    """
    who = commit.author
    try:
        return author_ident(git, who.name or who.email, who.email, f"@{who.when} {who.zone}")
    except runner.CommandError as error:
        notes = error.output.removeprefix("fatal: ")
        raise UserError(f"{commit.commit[:12]}: {notes}", hint="`git commit --amend --author` corrects it") from None
