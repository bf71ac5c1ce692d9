"""Adopting patches from elsewhere: mails, an mbox, plain diffs, a folder with a series, a repository's commits."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from patchq.errors import Conflict, ConflictError, FormatError, UserError
from patchq.formats.header import Header, Ident, split_mail
from patchq.formats.header import parse as parse_mail
from patchq.git.borrow import borrow
from patchq.git.command import Outside
from patchq.git.objects import CommitInfo
from patchq.git.replay import pick
from patchq.names import CommitId, TreeId
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.stacks.edit import Loaded, load, user_ident, with_trailers
from patchq.stacks.export import Entry, Exported, slug, unique, write_stack
from patchq.system import fsio, runner


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
        loaded = load(project, stacks[0], set_name)
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
            text = with_trailers(entry.commit.message, topic, "", signer)
            entries.append(Entry(name, replace(entry.commit, commit=CommitId(""), message=text)))
        change = Change("import", f"import {len(added)} into {upstream}")
        result = write_stack(project, change, loaded.stack, loaded.state, entries, loaded.head, move=loaded.follows)
        project.journal.perform(change)
        return result


def _from_range(project: Project, loaded: Loaded, paths: Sequence[Path], spec: str) -> list[Entry]:
    if len(paths) != 1 or ".." not in spec:
        raise UserError("--range takes one repository and A..B", hint="patchq import NAME REPOSITORY --range A..B")
    first, _, last = spec.partition("..")
    onto = loaded.state.tree
    found = []
    for borrowed in borrow(project.store, paths[0].resolve(), first, last.lstrip(".") or "HEAD"):
        commit = borrowed.info
        if len(commit.parents) != 1 or not borrowed.before:
            raise UserError(f"{commit.commit[:12]} is a merge; a stack is linear", hint="rebase that branch first")
        subject = commit.message.split("\n", 1)[0]
        onto = pick(project.store, loaded.stack.pin.upstream, subject, borrowed.before, commit.tree, onto)
        found.append(Entry(slug(subject), replace(commit, tree=onto)))
    return found


def _from_patches(project: Project, loaded: Loaded, found: Sequence[_Found], author: str) -> list[Entry]:
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
        git = Outside(folder)
        git.run("mailsplit", "--keep-cr", "-b", f"-o{folder}", "--", str(path.resolve()))
        mails = sorted(p for p in folder.iterdir() if p.name.isdigit())
        for mail in mails:
            body, patch = folder / "body", folder / "patch"
            info = git.run("mailinfo", "-k", str(body), str(patch), data=mail.read_bytes()).decode("utf-8", "replace")
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
