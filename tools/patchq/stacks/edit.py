"""Changing a stack: new patches, dropping, moving, and adopting patches from elsewhere."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from patchq.errors import Conflict, ConflictError, FormatError, UserError
from patchq.formats.header import Header, Ident, mail_safe, split_mail, with_trailer
from patchq.formats.header import parse as parse_mail
from patchq.formats.series import SUFFIX
from patchq.git.replay import pick
from patchq.git.repository import CommitInfo, Git
from patchq.names import CommitId, TreeId
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import Stack, State, find_patch, load_stack, load_state
from patchq.stacks.apply import bases_of, current, plan
from patchq.stacks.export import Entry, Exported, slug, unique, write_stack
from patchq.system import fsio, runner
from patchq.system.paths import check_name


def user_ident(project: Project, author: str = "") -> Ident:
    """The author ``Name <email>``, else the user of git's configuration, now.

    :raises UserError: if neither says who that is.
    """
    match = re.fullmatch(r"\s*(.+?)\s*<([^<>]+)>\s*", author)
    if author and not match:
        raise UserError(f"{author!r} is not 'Name <email>'", hint="--author 'Name <email>'")
    own = {k: v for k, v in os.environ.items() if k.startswith("GIT_AUTHOR_")}
    if match:
        own.update(GIT_AUTHOR_NAME=match[1], GIT_AUTHOR_EMAIL=match[2])
    done = runner.run(["git", "var", "GIT_AUTHOR_IDENT"], cwd=project.layout.root, env=own, ok_codes=(0, 128))
    found = re.fullmatch(r"(.*) <(.*)> (\d+) ([+-]\d{4})", done.stdout.decode().strip())
    if not found or done.returncode:
        raise UserError(
            "git doesn't know who you are", hint="`git config --global user.name NAME` and user.email, or --author"
        )
    return Ident(found[1], found[2], int(found[3]), found[4])


def new(
    project: Project, upstream: str, name: str, *, message: str = "", topic: str = "", proof: str = "",
    author: str = "", signoff: bool = False,
) -> Exported:  # fmt: skip
    """Make a patch of what was edited in the worktree, on top of the stack; empty if nothing was.

    :raises UserError: for a name that is taken or isn't one.
    """
    check_name(name, "a patch")
    with project.locked("new"):
        stack, state = current(project, upstream)
        if name in stack.names:
            raise UserError(f"{upstream} has a patch {name} already", hint=f"`patchq export --amend {name}` adds to it")
        if len(state.patches) < len(stack.names):
            raise UserError(f"{upstream} is not wholly applied", hint=f"`patchq apply {upstream}`")
        worktree = project.worktree(upstream)
        head = worktree.head()
        if head != state.tip:
            raise UserError(
                f"{upstream}: the worktree has commits that are not in the stack",
                hint=f"`patchq export {upstream}` first",
            )
        ident = user_ident(project, author)
        text = _with_trailers(message or name.replace("-", " ").capitalize(), topic, proof, ident if signoff else None)
        tree = worktree.snapshot()
        commits = [*_entries(project.store, state), Entry(name, _info(project.store, tree, state.tip, ident, text))]
        change = Change("new", f"new {upstream}/{name}")
        result = write_stack(project, change, stack, state, commits, head, adopt=True)
        project.journal.perform(change)
        return result


def _with_trailers(message: str, topic: str, proof: str, signer: Ident | None) -> str:
    text = message.rstrip() + "\n"
    for key, value in (("Upstream-Status", "Pending"), ("Topic", topic), ("Proof", proof)):
        if value and not re.search(rf"^{key}:", text, re.MULTILINE):
            text = with_trailer(text, key, value)
    if signer and f"Signed-off-by: {signer.name} <{signer.email}>" not in text:
        text = with_trailer(text, "Signed-off-by", f"{signer.name} <{signer.email}>")
    return text


def _info(store: Git, tree: TreeId, parent: CommitId, author: Ident, message: str) -> CommitInfo:
    commit = store.commit_tree(tree, [parent], author, mail_safe(message))
    return CommitInfo(commit, tree, (parent,), author, message)


def _entries(store: Git, state: State) -> list[Entry]:
    commits = store.log(f"{state.base}..{state.tip}") if state.patches else []
    return [Entry(p.applied.name, c) for p, c in zip(state.patches, commits, strict=True)]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A stack with its commits in the store, and its worktree's place."""

    stack: Stack
    state: State
    entries: list[Entry]
    head: CommitId | None
    follows: bool


def _load(project: Project, stack: Stack, set_name: str) -> _Loaded:
    """Commits for the whole stack, in the store; the worktree must hold nothing of the user's."""
    upstream = stack.pin.upstream
    before = load_state(project.layout, upstream)
    worktree = project.worktree(upstream)
    same = before is not None and before.ref == stack.pin.ref
    head = worktree.refuse_edits(before.tip if before else None).head if same else worktree.head()
    base = bases_of(project, [stack], {upstream: before}, False)[0]
    state = plan(project, stack, base, before, set_name).after
    return _Loaded(stack, state, _entries(project.store, state), head, same and head is not None)


def _rewrite(project: Project, loaded: _Loaded, entries: Sequence[Entry], change: Change) -> Exported:
    """Write a stack of these entries, each carried onto the one before it."""
    store = project.store
    onto = store.tree_of([loaded.state.base])[0]
    trees = {e.commit.commit: e.commit.tree for e in loaded.entries} | {loaded.state.base: onto}
    carried = []
    for entry in entries:
        onto = pick(
            store, loaded.stack.pin.upstream, entry.name, trees[entry.commit.parents[0]], entry.commit.tree, onto
        )
        carried.append(Entry(entry.name, replace(entry.commit, tree=onto)))
    result = write_stack(project, change, loaded.stack, loaded.state, carried, loaded.head, move=loaded.follows)
    project.journal.perform(change)
    return result


def drop(project: Project, patch: str, *, set_name: str = "") -> Exported:
    """Take a patch out of its stack; those above it are carried over the gap.

    A stack that doesn't apply just loses the patch: that may be how it is mended.

    :raises UserError: if another patch requires it.
    :raises ConflictError: if one above can't do without it.
    """
    set_name = project.choose_set(set_name)
    with project.locked("drop"):
        stacks = project.stacks(set_name)
        stack, name = find_patch(stacks, patch)
        full = f"{stack.pin.upstream}/{name}"
        for other in stacks:
            for its_name, header in other.headers() if other.names else ():
                if its_name != name and full in header.values("Requires"):
                    raise UserError(
                        f"{other.pin.upstream}/{its_name} requires {full}",
                        hint=f"drop {its_name} first, or edit its Requires:",
                    )
        change = Change("drop", f"drop {full}")
        try:
            loaded = _load(project, stack, set_name)
        except ConflictError as error:
            if all(c.patch != name for c in error.conflicts):
                raise
            rest = [n for n in stack.names if n != name]
            change.files[stack.relative(project.layout, name)] = None
            change.files[stack.series_relative(project.layout)] = stack.series.with_names(rest).dump()
            project.journal.perform(change)
            return Exported(
                stack.pin.upstream, (), (), (name,), len(rest), ("it did not apply; the others are as they were",)
            )
        return _rewrite(project, loaded, [e for e in loaded.entries if e.name != name], change)


def move(project: Project, patch: str, *, before: str = "", after: str = "", set_name: str = "") -> Exported:
    """Put a patch right before or after another one of its stack.

    With neither, it becomes the first.

    :raises ConflictError: if the patches don't commute.
    """
    set_name = project.choose_set(set_name)
    with project.locked("move"):
        stack, name = find_patch(project.stacks(set_name), patch)
        loaded = _load(project, stack, set_name)
        moving = next(e for e in loaded.entries if e.name == name)
        rest = [e for e in loaded.entries if e.name != name]
        at = 0
        if before or after:
            anchor = (before or after).removesuffix(SUFFIX).rpartition("/")[2]
            places = [i for i, e in enumerate(rest) if e.name == anchor]
            if not places:
                raise UserError(
                    f"{anchor} is not another patch of {stack.pin.upstream}", hint="`patchq list` names them"
                )
            at = places[0] + bool(after)
        return _rewrite(
            project, loaded, [*rest[:at], moving, *rest[at:]], Change("move", f"move {stack.pin.upstream}/{name}")
        )


def set_upstream_status(project: Project, upstream: str, names: Sequence[str], value: str) -> list[str]:
    """Write what upstream made of patches into each stack that has them, at any ref; returns the stacks' refs.

    :param value: the trailer's, such as ``Submitted [https://…]``.
    :raises EditedTreeError: if an applied stack's worktree holds work that isn't in it.
    """
    with project.locked("pr"):
        change = Change("pr", f"{upstream}: {value}")
        changed = []
        for pin in project.lock.upstreams[upstream].pins.values():
            stack = load_stack(project.layout, pin)
            if not set(names) & set(stack.names):
                continue
            loaded = _load(project, stack, project.choose_set(""))
            entries = [_with_status(e, value) if e.name in names else e for e in loaded.entries]
            if entries != loaded.entries:
                write_stack(project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows)
                changed.append(pin.ref)
        if changed:
            project.journal.perform(change)
        return changed


def _with_status(entry: Entry, value: str) -> Entry:
    trailer = f"Upstream-Status: {value}"
    message = re.sub(r"^Upstream-Status:.*$", lambda _: trailer, entry.commit.message, count=1, flags=re.MULTILINE)
    if message == entry.commit.message:
        return entry
    return Entry(entry.name, replace(entry.commit, commit=CommitId(""), message=message))


# Adopting


@dataclass(frozen=True, slots=True)
class _Found:
    """A patch to adopt: ``strip`` is patch's ``-p``, ``header`` None for a plain diff."""

    name: str
    where: str
    header: Header | None
    diff: bytes
    strip: int = 1
    described: str = ""


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
        loaded = _load(project, stacks[0], set_name)
        entries = list(loaded.entries)
        if git_range:
            added = _from_range(project, loaded, paths, git_range)
        else:
            found = [f for path in paths for f in _read_path(path)]
            added = _from_patches(project, loaded, found, author)
        names = [e.name for e in entries]
        signer = user_ident(project, author) if signoff else None
        for entry in added:
            name = unique(entry.name, names)
            names.append(name)
            text = _with_trailers(entry.commit.message, topic, "", signer)
            entries.append(Entry(name, replace(entry.commit, commit=CommitId(""), message=text)))
        change = Change("import", f"import {len(added)} into {upstream}")
        result = write_stack(project, change, loaded.stack, loaded.state, entries, loaded.head, move=loaded.follows)
        project.journal.perform(change)
        return result


def _from_range(project: Project, loaded: _Loaded, paths: Sequence[Path], spec: str) -> list[Entry]:
    if len(paths) != 1 or ".." not in spec:
        raise UserError("--range takes one repository and A..B", hint="patchq import NAME REPOSITORY --range A..B")
    source = Git(paths[0].resolve())
    first, _, last = spec.partition("..")
    ends = [source.ref_or_none(name) for name in (first, last.lstrip(".") or "HEAD")]
    if not all(ends):
        raise UserError(f"{paths[0]} has no range {spec}", hint=f"`git -C {paths[0]} log {spec}` must work")
    argv = ["git", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(source.folder), str(ends[1])]
    runner.run(argv, cwd=project.store.folder)
    commits = source.log(f"{ends[0]}..{ends[1]}")
    onto = loaded.state.tree
    found = []
    for commit in commits:
        if len(commit.parents) != 1:
            raise UserError(f"{commit.commit[:12]} is a merge; a stack is linear", hint="rebase that branch first")
        subject = commit.message.split("\n", 1)[0]
        parent = project.store.tree_of([commit.parents[0]])[0]
        onto = pick(project.store, loaded.stack.pin.upstream, subject, parent, commit.tree, onto)
        found.append(Entry(slug(subject), replace(commit, tree=onto)))
    return found


def _from_patches(project: Project, loaded: _Loaded, found: Sequence[_Found], author: str) -> list[Entry]:
    store, upstream = project.store, loaded.stack.pin.upstream
    added = []
    tree = loaded.state.tree
    nested = project.lock.nested_in(upstream)
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        store.run("read-tree", tree, env=env)
        for patch in found:
            header = patch.header or Header(user_ident(project, author), _describe(patch))
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
            changed = (
                store.run("diff-tree", "-r", "--name-only", "-z", tree, after).decode("utf-8", "replace").split("\0")
            )
            for path in changed:
                owner = next((n for p, n in nested.items() if path == p or path.startswith(p + "/")), "")
                if owner:
                    raise UserError(
                        f"{patch.where} changes {path}, which belongs to {owner}", hint=f"`patchq import {owner}`"
                    )
            tree = after
            info = CommitInfo(CommitId(""), tree, (), header.author, header.message)
            added.append(Entry(patch.name, info))
    return added


def _describe(patch: _Found) -> str:
    return patch.described or patch.name.replace("-", " ").capitalize()


def _read_path(path: Path) -> list[_Found]:
    if not path.exists():
        raise UserError(f"{path} is not there", hint="name a patch, an mbox, or a folder with a series")
    if path.is_dir():
        return _read_folder(path)
    return _read_file(path, slug(path.name), 1)


def _read_folder(folder: Path) -> list[_Found]:
    series = fsio.read_or_none(folder / "series")
    if series is None:
        raise UserError(f"{folder} has no series file", hint="name the patches themselves, in their order")
    found: list[_Found] = []
    for line in series.decode("utf-8", "replace").splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        strip = next((int(w[2:]) for w in words[1:] if re.fullmatch(r"-p\d", w)), 1)
        file = (folder / words[0]).resolve()
        if folder.resolve() not in file.parents:
            raise FormatError(
                f"{folder / 'series'} names {words[0]}, outside its folder", hint="copy that patch into it"
            )
        if not file.is_file():
            raise UserError(f"{folder / 'series'} names {words[0]}, which is not there", hint="restore it")
        found += _read_file(file, slug(file.name), strip)
    return found


def _read_file(path: Path, name: str, strip: int) -> list[_Found]:
    data = path.read_bytes()
    if data.startswith(b"From ") and data.count(b"\nFrom ") == 0:
        try:
            header, text = parse_mail(data, str(path))
            return [_Found(name, str(path), _without_patch_tag(header), text, strip)]
        except FormatError:
            pass
    if re.match(rb"(From [^\n]*\n)?([A-Za-z][A-Za-z-]*: [^\n]*\n([ \t][^\n]*\n)*)+\n", data) and re.search(
        rb"^(From|Subject): ", data, re.MULTILINE | re.IGNORECASE
    ):
        return _read_mbox(path, data, name, strip)
    _, message, text = split_mail(b"From x\n\n" + data)
    if not text.strip():
        raise UserError(f"{path} holds no diff", hint="is it a patch?")
    # quilt's descriptions are free text above the diff.
    return [_Found(name, str(path), None, text, strip, message.decode("utf-8", "replace").strip())]


def _read_mbox(path: Path, data: bytes, name: str, strip: int) -> list[_Found]:
    """Mails by git's own parsers, which know charsets, quoted-printable and attachments."""
    found: list[_Found] = []
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder = Path(text)
        runner.run(["git", "mailsplit", "--keep-cr", "-b", f"-o{folder}", "--", str(path.resolve())])
        mails = sorted(p for p in folder.iterdir() if p.name.isdigit())
        for mail in mails:
            body, patch = folder / "body", folder / "patch"
            info = runner.run(
                ["git", "mailinfo", "-k", str(body), str(patch)], data=mail.read_bytes(), cwd=folder
            ).stdout.decode("utf-8", "replace")
            fields = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
            date = fields.get("Date", "Sat, 1 Jan 2000 00:00:00 +0000")
            try:
                when = parsedate_to_datetime(date)
                seconds, zone = max(0, int(when.timestamp())), when.strftime("%z") or "+0000"
            except (ValueError, OverflowError):
                raise FormatError(
                    f"{path} (mail {int(mail.name)}): {date!r} is no date", hint="mend its Date:"
                ) from None
            author = Ident(fields.get("Author", "unknown"), fields.get("Email", "unknown@localhost"), seconds, zone)
            message = f"{fields.get('Subject', name)}\n\n{body.read_text('utf-8', 'replace')}"
            header = _without_patch_tag(Header(author, message))
            own = name if len(mails) == 1 else slug(header.subject)
            found.append(_Found(own, f"{path} (mail {int(mail.name)})", header, patch.read_bytes(), strip))
    return found


def _without_patch_tag(header: Header) -> Header:
    """``[PATCH 1/3]`` says how a mail was sent, not what the patch does."""
    return replace(header, message=re.sub(r"\A\[(RFC )?PATCH[^\]]*\]\s*", "", header.message))
