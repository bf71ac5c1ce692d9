"""The command ``publish``: generated branches and tags of the applied stacks, for cloning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchq.errors import SourceError, UserError, without_secrets
from patchq.formats.header import Ident
from patchq.git import person
from patchq.names import CommitId, counted, sh
from patchq.project.project import Project
from patchq.stacks.applied import Applied, compute_stack_id, read_applied
from patchq.system.paths import ref_to_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Result of publishing one stack.

    :ivar was: commit of the branch before it was published again; empty for a new branch.
    """

    upstream: str
    ref: str
    branch: str
    tag: str
    commit: str
    was: str


def publish(
    project: Project,
    to: str,
    names: Sequence[str] = (),
    *,
    set_name: str = "",
    on_upstream: bool = False,
    dry_run: bool = False,
) -> tuple[str, list[Published]]:
    """Push all applied stacks of a set, or the named ones, to a repository.

    Each stack gets a branch ``patchq/SET/UPSTREAM``. The branch is moved only if its current commit was
    published by patchq. Each stack also gets an annotated tag ``patchq/UPSTREAM-REF-ID``, which never moves.
    ``ID`` is the first eight characters of the stack id.

    :param to: path or URL of the repository, or the name of a remote of the project's repository;
        empty for the project's repository.
    :param on_upstream: start at upstream's commit, which requires a repository with upstream's
        history. If False, the branch starts with a root commit that contains upstream's tree.
    :returns: the stack id and the published stacks.
    :raises UserError: if a stack is not fully applied, or if the branch is at a commit that patchq didn't publish.
    :raises SourceError: with the message of git or the remote.
    """
    set_name = project.choose_set(set_name)
    with project.locked("publish"):
        project.check_names(project.lock.pins_of(set_name), names, set_name)
        applied = read_applied(project, set_name)
        for one in applied:
            if len(one.state.patches) < len(one.stack.names):
                raise UserError(
                    f"{one.stack.pin.upstream} is only partly applied", hint=f"`patchq apply --set {set_name}` first"
                )
        stack_id = compute_stack_id(applied)
        root = project.layout.root
        own = next((str(p) for p in (root, *root.parents) if (p / ".git").exists()), str(root))
        remote = person.find_remote(root, to or own)
        there = person.refs_at(root, remote, "refs/heads/patchq/*", "refs/tags/patchq/*")
        ours = {found for ref, found in there.items() if ref.startswith("refs/tags/")}
        done: list[Published] = []
        refs: dict[str, str] = {}
        expected: dict[str, str] = {}
        for one in applied:
            if names and one.stack.pin.upstream not in names:
                continue
            if on_upstream:
                tip = one.state.tip
            else:
                tip = _from_the_root(project, one)
            found = _published(one, tip, set_name, stack_id, there)
            # A branch at the commit to publish is patchq's own, even if its tag was deleted.
            if found.was not in ours | {"", found.commit}:
                kept, removed = f"origin/{found.branch}:refs/heads/kept", f":{found.branch}"
                raise UserError(
                    f"{remote.name or remote.url}: {found.branch} is at {found.was[:12]}, and no tag of patchq names "
                    "that commit, so someone else pushed to the branch",
                    hint=f"give that branch another name, in a clone: `git push origin {sh(kept)} {sh(removed)}`; "
                    "then publish again",
                )
            branch, tag = f"refs/heads/{found.branch}", f"refs/tags/{found.tag}"
            refs |= {branch: found.commit}
            if found.was:
                expected[branch] = found.was
            if there.get(f"{tag}^{{}}", found.commit) != found.commit:
                raise SourceError(
                    f"{remote.name or remote.url}: the tag {found.tag} is at another commit",
                    hint="patchq never moves a tag; if the tag is wrong, delete the tag there and publish again",
                )
            if tag not in there:
                refs[tag] = _tag(project, found, stack_id, set_name, one)
            done.append(found)
        if not dry_run:
            person.push_refs(project.store, root, remote, refs, expected)
    return stack_id, done


def _from_the_root(project: Project, one: Applied) -> CommitId:
    """Commit the stack on top of a root commit with upstream's tree. The commit ids are reproducible."""
    store, pin = project.store, one.stack.pin
    wanted = [one.state.base, *(p.applied.commit for p in one.state.patches)]
    infos = {}
    for info in store.log("--no-walk=unsorted", *wanted):
        infos[info.commit] = info
    base, *patches = map(infos.__getitem__, wanted)
    author = Ident("patchq", "patchq@localhost", base.author.when, "+0000")
    source = f"commit {one.state.base}" + (f" of {without_secrets(pin.url)}" if pin.url else "")
    tip = store.commit_tree(base.tree, [], author, f"{pin.upstream} {pin.ref}\n\nThe tree of {source}.\n")
    for info in patches:
        tip = store.commit_tree(info.tree, [tip], info.author, info.message)
    return tip


def _published(one: Applied, tip: CommitId, set_name: str, stack_id: str, there: dict[str, str]) -> Published:
    pin = one.stack.pin
    branch = f"patchq/{set_name}/{pin.upstream}"
    tag = f"patchq/{pin.upstream}-{ref_to_folder(pin.ref).replace('%', '-')}-{stack_id[:8]}"
    return Published(
        upstream=pin.upstream,
        ref=pin.ref,
        branch=branch,
        tag=tag,
        commit=tip,
        was=there.get(f"refs/heads/{branch}", ""),
    )


def _tag(project: Project, found: Published, stack_id: str, set_name: str, one: Applied) -> str:
    """Write an annotated tag to the store.

    The tag's date is the date of the last patch, so that the tag is reproducible.
    """
    (info,) = project.store.log("--no-walk=unsorted", CommitId(found.commit))
    patches = "".join(f"  {p.applied.name} {p.sha256}\n" for p in one.state.patches)
    text = (
        f"object {found.commit}\ntype commit\ntag {found.tag}\n"
        f"tagger patchq <patchq@localhost> {info.author.when} +0000\n\n"
        f"{found.upstream} {found.ref} with {counted(len(one.state.patches), 'patch')}\n\n"
        f"stack id {stack_id}, of the set {set_name}\n{patches}"
    )
    return project.store.run("mktag", data=text.encode()).decode().strip()
