"""The commands ``check --fix`` and ``reword``, which change messages and authors, but not diffs.

``check --fix`` also resolves conflict markers in a ``series`` by keeping the lines of both sides, and adds
missing lines to ``.gitattributes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.errors import PatchqError, UserError, nearest
from patchq.formats.header import Header, clean_message, parse_trailers, split_trailers, with_trailer
from patchq.formats.series import MOST_BYTES, SUFFIX, has_conflict, parse, unite
from patchq.git import person
from patchq.names import CommitId
from patchq.patterns.rules import with_rules
from patchq.patterns.trees import infer_rules
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.scaffold import ATTRIBUTES_NAME, with_attributes
from patchq.project.stack import find_patch, load_stack
from patchq.stacks.edit import load, user_ident
from patchq.stacks.export import Exported, write_stack
from patchq.stacks.reconcile import ReconciledEntry
from patchq.system import project_files


@dataclass(frozen=True, slots=True)
class Fixed:
    """Result of ``check --fix``: patches as ``upstream/ref/name``, and paths of other files."""

    written: tuple[str, ...]


def fix(project: Project, names: Sequence[str] = ()) -> Fixed:
    """Add missing upstream statuses and the user's sign-off, and rewrite patch files as ``export`` does.

    Before that, add missing lines to the project's ``.gitattributes``, and resolve ``series`` files with
    conflict markers. If a stack can't be loaded, it stays unchanged and a message is printed.

    :raises SeriesConflictError: if one side of a series with conflict markers removed or moved lines.
    """
    with project.locked("check"):
        known = list(project.lock.upstreams)
        for name in names:
            if name not in known:
                raise UserError(
                    f"no upstream {name!r} in upstream.lock", hint=nearest(name, known, f"it has {', '.join(known)}")
                )
        written = _fix_files(project, names)
        count = len(written)
        change = Change(verb="check", summary="check --fix")
        for upstream in project.lock.upstreams.values():
            for pin in upstream.pins.values() if not names or upstream.name in names else ():
                stack = load_stack(project.layout, pin)
                if not stack.names:
                    continue
                try:
                    loaded = load(project, stack, project.choose_set(""))
                except PatchqError as error:
                    project.say(f"{pin.upstream} {pin.ref} is unchanged: {error.message}")
                    continue
                importer = upstream.check.sign_off == "importer"
                entries = [_with_trailers(project, entry, importer) for entry in loaded.entries]
                done = write_stack(project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows)
                for name in done.written:
                    written.append(f"{pin.upstream}/{pin.ref}/{name}")
        if len(written) > count:
            project.journal.perform(change)
        return Fixed(tuple(written))


def _fix_files(project: Project, names: Sequence[str]) -> list[str]:
    """Write missing attributes and resolved series, and return their paths."""
    layout, change = project.layout, Change(verb="check", summary="check --fix: attributes and series")
    if (attributes := with_attributes(layout.root)) is not None:
        change.files[ATTRIBUTES_NAME] = attributes
    for upstream in project.lock.upstreams.values():
        for pin in upstream.pins.values() if not names or upstream.name in names else ():
            folder = layout.stack(pin.upstream, pin.ref)
            path = (folder / "series").relative_to(layout.root).as_posix()
            data = project_files.read(layout.root, folder / "series", MOST_BYTES)
            if data is None or not has_conflict(data):
                continue
            base = None
            if person.has_repository(layout.root):
                base = person.base_of_conflict(layout.root, path)
            united = unite(data, str(folder / "series"), base)
            for name in parse(united, path).names:
                if not (folder / (name + SUFFIX)).exists():
                    raise UserError(
                        f"{path} has a merge conflict, and one side removed the patch {name}",
                        hint=f"remove the marker lines; also remove the line {name}, or restore its file",
                    )
            change.files[path] = united
    if not change.empty:
        project.journal.perform(change)
    return list(change.files)


def _with_trailers(project: Project, entry: ReconciledEntry, importer: bool) -> ReconciledEntry:
    """Add a missing upstream status and the user's missing sign-off to a patch.

    :param importer: True if the user who imported the patch must sign it off, instead of its author.
    """
    message = entry.commit.message
    header = Header(entry.commit.author, message)
    if not header.values("Upstream-Status"):
        message = with_trailer(message, "Upstream-Status", "Pending")
    signed = header.values("Signed-off-by")
    author = f"{header.author.name} <{header.author.email}>"
    you = user_ident(project)
    yours = f"{you.name} <{you.email}>"
    # A sign-off is a personal statement, so patchq adds only the user's own.
    if (importer and not signed) or (not importer and author == yours and author not in signed):
        message = with_trailer(message, "Signed-off-by", yours)
    if message == entry.commit.message:
        return entry
    return ReconciledEntry(entry.name, replace(entry.commit, commit=CommitId(""), message=message))


def reword(
    project: Project,
    patch: str,
    *,
    message: str = "",
    trailers: Sequence[tuple[str, str]] = (),
    author: str = "",
    as_rules: bool = False,
    set_name: str = "",
) -> Exported:
    """Change the message, trailers or author of a patch, but not its diff.

    :param message: subject and body. Old trailers are kept unless the message contains a trailer with the
        same key.
    :param trailers: trailers to set. Each trailer replaces all trailers with the same key. An empty value removes
        these trailers.
    :param as_rules: generate rules from the patch's diff, and replace its old rules.
    :raises UserError: if the message is empty, the author is malformed, or no rules are found.
    """
    set_name = project.choose_set(set_name)
    with project.locked("reword"):
        stack, name = find_patch(project.stacks(set_name), patch)
        loaded = load(project, stack, set_name)
        entries = []
        for entry in loaded.entries:
            if entry.name != name:
                entries.append(entry)
                continue
            text = _reworded(entry.commit.message, message, trailers)
            if as_rules:
                text = _as_rules(project, entry, text)
            who = entry.commit.author
            if author:
                new = user_ident(project, "" if author == "me" else author)
                who = replace(who, name=new.name, email=new.email)
            entries.append(ReconciledEntry(name, replace(entry.commit, commit=CommitId(""), message=text, author=who)))
        change = Change(verb="reword", summary=f"reword {stack.pin.upstream}/{name}")
        result = write_stack(project, change, stack, loaded.state, entries, loaded.head, move=loaded.follows)
        project.journal.perform(change)
        return result


def _as_rules(project: Project, entry: ReconciledEntry, message: str) -> str:
    """Return a message with rules that make the patch's changes."""
    rules, lacking = infer_rules(project.store, entry.commit.parents[0], entry.commit.commit)
    if lacking or not rules:
        raise UserError(
            f"no rules make the changes of {entry.name} in {lacking or 'any file'}",
            hint="a rule changes the text of existing files; put other changes into a separate patch",
        )
    return with_rules(message, rules)


def _reworded(old: str, message: str, trailers: Sequence[tuple[str, str]]) -> str:
    text, block = split_trailers(clean_message(old))
    if message:
        text, own = split_trailers(clean_message(message))
        named = {key.lower() for key, _ in parse_trailers(message)}
        for line in block:
            if line.split(":")[0].strip().lower() not in named:
                own.append(line)
        block = own
    if not text.strip():
        raise UserError("a message needs a subject", hint="-m 'SUBJECT' -m 'WHY'")
    values: dict[str, list[str]] = {}
    for key, value in trailers:
        values.setdefault(key.lower(), []).extend([f"{key}: {value}"] if value else [])
    for key, lines in values.items():
        rest, at = [], None
        for line in block:
            if not line.lower().startswith(f"{key}:"):
                rest.append(line)
            elif at is None:
                at = len(rest)
        if at is None:
            at = len(rest)
        block = [*rest[:at], *lines, *rest[at:]]
    return clean_message("\n".join([text.rstrip(), "", *block]))
