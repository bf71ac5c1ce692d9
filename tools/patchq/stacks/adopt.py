"""Adopting patches from elsewhere: mails, an mbox, plain diffs, a folder with a series, a repository's commits."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from patchq.errors import Conflict, ConflictError, UserError
from patchq.formats.header import Ident, clean_message, clean_subject
from patchq.git.borrow import borrow
from patchq.git.command import author_ident
from patchq.git.gitlinks import refuse_repositories
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, show_path
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.stacks.edit import Loaded, load, user_ident, with_trailers
from patchq.stacks.export import Entry, Exported, slug, unique, write_stack
from patchq.stacks.mails import Found, read_paths
from patchq.system import runner


def import_patches(
    project: Project, upstream: str, paths: Sequence[Path], *, set_name: str = "", git_range: str = "",
    topic: str = "", author: str = "", signoff: bool = False,
) -> Exported:  # fmt: skip
    """Adopt patches on top of a stack: mails, an mbox, plain diffs, a folder with a ``series``,
    or with ``git_range`` the commits of a repository.

    :raises ConflictError: for one that doesn't apply exactly; nothing is adopted then.
    :raises UserError: for a path that holds no patch.
    """
    set_name = project.choose_set(set_name)
    with project.locked("import"):
        stacks = project.stacks(set_name, [upstream])
        loaded = load(project, stacks[0], set_name)
        entries = list(loaded.entries)
        notes: tuple[str, ...] = ()
        if git_range:
            added = _from_range(project, loaded, paths, git_range)
        else:
            found = read_paths(paths)
            added = _from_patches(project, loaded, [f for f in found if not f.left_out], author)
            notes = tuple(said for f in found for said in f.said)
        names = [e.name for e in entries]
        signer = user_ident(project, author) if signoff else None
        for entry in added:
            name = unique(entry.name, names)
            names.append(name)
            text = with_trailers(entry.commit.message, topic, "", signer)
            entries.append(Entry(name, replace(entry.commit, commit=CommitId(""), message=text)))
        change = Change("import", f"import {len(added)} into {upstream}")
        result = write_stack(project, change, loaded.stack, loaded.state, entries, loaded.head, move=loaded.follows)
        project.journal.perform(change)
        return replace(result, notes=(*result.notes, *notes))


def _from_range(project: Project, loaded: Loaded, paths: Sequence[Path], spec: str) -> list[Entry]:
    if len(paths) != 1 or ".." not in spec:
        raise UserError("--range takes one repository and A..B", hint="patchq import NAME REPOSITORY --range A..B")
    path, upstream = paths[0].resolve(), loaded.stack.pin.upstream
    if not path.is_dir():
        raise UserError(f"{path} is no git repository", hint="name a repository's folder")
    first, _, last = spec.partition("..")
    onto = loaded.state.tree
    found: list[Entry] = []
    for borrowed in borrow(project.store, path, first, last.lstrip(".") or "HEAD"):
        commit = borrowed.info
        if len(commit.parents) != 1 or not borrowed.before:
            raise UserError(f"{commit.commit[:12]} is a merge; a stack is linear", hint="rebase that branch first")
        where = f"{path}: commit {commit.commit[:12]}"
        refuse_repositories(project.store, where, borrowed.before, commit.tree, "there")
        subject = clean_subject(clean_message(commit.message).split("\n", 1)[0])
        onto = pick(project.store, upstream, subject, borrowed.before, commit.tree, onto)
        found.append(Entry(slug(subject), replace(commit, tree=onto, author=_author(project.store, commit))))
    if not found:
        raise UserError(f"{spec} of {path} holds no commits", hint="is it the wrong way round?")
    return found


def _author(git: Git, commit: CommitInfo) -> Ident:
    """A commit's author as git would write it today: old commits, and those of other tools, have any bytes there."""
    who = commit.author
    try:
        return author_ident(git, who.name or who.email, who.email, f"@{who.when} {who.zone}")
    except runner.CommandError as error:
        said = error.said.removeprefix("fatal: ")
        raise UserError(f"{commit.commit[:12]}: {said}", hint="`git commit --amend --author` mends it") from None


def _from_patches(project: Project, loaded: Loaded, found: Sequence[Found], author: str) -> list[Entry]:
    store, upstream = project.store, loaded.stack.pin.upstream
    added = []
    tree = loaded.state.tree
    nested = project.lock.nested_in(upstream)
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        store.run("read-tree", tree, env=env)
        for patch in found:
            if patch.diff.strip():
                try:
                    store.run(
                        "apply", "--cached", "--whitespace=nowarn", f"-p{patch.strip}", "-",
                        data=patch.diff, env=env, config=("core.attributesFile=/dev/null",),
                    )  # fmt: skip
                except runner.CommandError as error:
                    raise ConflictError(
                        f"{patch.where} doesn't apply exactly to {upstream}: {error.said}; nothing was adopted",
                        [Conflict(upstream, patch.name, "", error.said)],
                        hint="make it against the pinned ref (patchq never applies with fuzz), "
                        "or bring its branch: `patchq import NAME REPOSITORY --range A..B` merges",
                    ) from None
            after = TreeId(store.run("write-tree", env=env).decode().strip())
            refuse_repositories(store, patch.where, tree, after, "where it was made")
            for path in (show_path(change.path) for change in store.changes(tree, after)):
                owner = next((n for p, n in nested.items() if path == p or path.startswith(p + "/")), "")
                if owner:
                    raise UserError(
                        f"{patch.where} changes {path}, which belongs to {owner}", hint=f"`patchq import {owner}`"
                    )
            tree = after
            info = CommitInfo(CommitId(""), tree, (), patch.author or user_ident(project, author), _describe(patch))
            added.append(Entry(patch.name, info))
    return added


def _describe(patch: Found) -> str:
    return clean_message(patch.message) or patch.name.replace("-", " ").capitalize()
