"""The command ``follow``: a pull request in the project that rebases a stack onto a new release.

The pull request is opened once, and edited afterwards. A closed pull request is not opened again. If a user has
pushed to the pull request's branch, the branch isn't changed.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath

from patchq.errors import FormatError, UserError
from patchq.formats.header import Ident
from patchq.formats.outcomes import Outcome
from patchq.formats.render import render
from patchq.git import person
from patchq.names import TextEnum, sh
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.refs import newest_release, older_first, pin_at
from patchq.proofs.judge import Verdict
from patchq.proofs.verdicts import by_patch
from patchq.rebase import run
from patchq.rebase.state import PatchStep, RebaseState, Result, tally_result
from patchq.rebase.stops import Prove
from patchq.sources.forge import Forge, Pull
from patchq.stacks.rangediff import CHANGED, compare
from patchq.system import fsio, project_files
from patchq.system.paths import LOCK_NAME, check_inside, check_name, check_ref, ref_to_folder

#: Only the text between the markers is replaced; text around them stays.
BEGIN, END = "<!-- patchq:begin", "<!-- patchq:end -->"
_OURS = re.compile(re.escape(BEGIN) + r" ([0-9a-f]{64}) -->\n.*?" + re.escape(END), re.DOTALL)
#: Trailer of commits by ``follow``; the branch is only replaced if its tip has the trailer.
TRAILER = "Patchq-Follow:"
#: Limits in characters for a body and for all diffs in a body; forges accept 65,536.
MOST, MOST_DIFF = 60_000, 40_000
#: File that a dry run writes for :func:`send`, its version and its size limit in bytes.
PREPARED, _VERSION, _MOST_PREPARED = "prepared.json", 1, 64 << 20
_AGAIN = "run `patchq follow --dry-run` again, and send its new output"
NOBODY = Ident("patchq", "patchq@localhost", 0, "+0000")

Verdicts = Callable[[str, Sequence[str]], Sequence[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRow:
    """Row for one patch in the table of a pull request's body."""

    patch: str
    outcome: str
    proof: str
    message: str
    open: bool = False


class FollowState(TextEnum):
    """Result of ``follow``."""

    #: No source of releases is known.
    UNKNOWN = "unknown"
    #: There is no newer release.
    NOTHING = "nothing"
    #: The stack is already carried.
    THERE = "there"
    #: The pull request was closed or merged.
    CLOSED = "closed"
    #: The pull request is up to date.
    SAME = "same"
    OPENED = "opened"
    EDITED = "edited"
    DRY_RUN = "dry run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Result of ``follow``.

    :ivar pushed: pushed commit; empty if nothing was pushed.
    """

    upstream: str
    from_ref: str
    onto: str
    state: FollowState
    branch: str = ""
    url: str = ""
    pushed: str = ""
    title: str = ""
    body: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowTarget:
    """Destination of the pull request: the project's git host (forge), remote and base branch."""

    forge: Forge
    remote: str = "origin"
    base: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Content of a branch and its pull request, prepared by a dry run.

    :ivar files: old SHA-256 (None for an added file) and new content (None for a removed file), by path.
    """

    upstream: str
    from_ref: str
    onto: str
    title: str
    body: str
    notes: tuple[str, ...]
    files: dict[str, tuple[str | None, str | None]]


def follow(
    project: Project,
    upstream: str,
    target: FollowTarget,
    *,
    prove: Prove,
    verdicts: Verdicts,
    onto: str = "",
    set_name: str = "",
    save: Path | None = None,
) -> Followed:
    """Rebase a set's stack onto upstream's newest release, and open or update the pull request.

    Conflicting patches are skipped. A patch that upstream has is dropped if its proof passes without the
    patch. The changes are committed to the pull request's branch, and then the files in the project's folder
    are restored. If the forge is in dry-run mode, nothing is pushed or sent.

    :param onto: ref to use instead of the newest release.
    :param verdicts: function that runs the proofs of patches in a set.
    :param save: folder to write the prepared content to, for a later :func:`send`.
    :raises UserError: if the files to commit have uncommitted changes.
    :raises SourceError: if upstream, the remote or the forge can't be reached.
    """
    forge = target.forge
    set_name = project.choose_set(set_name)
    project.check_names(project.lock.pins_of(set_name), [upstream], set_name)
    pin = next(p for p in project.lock.pins_of(set_name) if p.upstream == upstream)
    ref = onto or newest_release(project, pin)
    if not ref:
        note = f"{upstream} has neither a release archive nor a git source, so newer releases can't be found"
        return Followed(upstream=upstream, from_ref=pin.ref, onto="", state=FollowState.UNKNOWN, notes=(note,))
    if ref == pin.ref or (not onto and older_first([pin, pin_at(project, pin, ref)])[-1] == pin):
        return Followed(upstream=upstream, from_ref=pin.ref, onto=ref, state=FollowState.NOTHING)
    if project.layout.stack(upstream, ref).joinpath("series").exists():
        return Followed(upstream=upstream, from_ref=pin.ref, onto=ref, state=FollowState.THERE)
    _check_committed(project, upstream)
    branch = _branch(upstream, ref)
    pull = forge.pull_of(branch)
    if pull and pull.state != "open":
        return Followed(
            upstream=upstream, from_ref=pin.ref, onto=ref, state=FollowState.CLOSED, branch=branch, url=pull.url
        )
    before = _own_files(project, upstream)
    done = run.start(project, upstream, ref, prove=prove, set_name=set_name, retire=True, leave_out=True)
    if done.state == RebaseState.NOTHING:
        return Followed(
            upstream=upstream,
            from_ref=pin.ref,
            onto=ref,
            state=FollowState.THERE,
            branch=branch,
            url=pull.url if pull else "",
        )
    try:
        title, body = _text(project, done, set_name, verdicts)
        prepared = Prepared(
            upstream=upstream,
            from_ref=done.from_ref,
            onto=ref,
            title=title,
            body=body,
            notes=done.notes,
            files=_changes(before, _own_files(project, upstream)),
        )
        if save:
            fsio.write_atomic(save / PREPARED, fsio.dump_json({"version": _VERSION, **asdict(prepared)}))
        if forge.dry_run:
            forge.open(title, branch, _base(project, target), _marked(body, _digest(project, upstream, body)))
            return Followed(
                upstream=upstream,
                from_ref=done.from_ref,
                onto=ref,
                state=FollowState.DRY_RUN,
                branch=branch,
                title=title,
                body=body,
                notes=done.notes,
            )
        return _send(project, target, prepared, pull)
    finally:
        _take_back(project)


def send(project: Project, folder: Path, target: FollowTarget, *, set_name: str = "") -> Followed:
    """Push the branch that a dry run prepared, and open or update the branch's pull request.

    Nothing is fetched from upstream and no proof runs. The dry run executed upstream's code, so its
    output is not trusted: only the lock and the files of one upstream's stacks may change.

    :raises FormatError: if the prepared file is malformed or changes other files.
    :raises UserError: if the project has changed since the dry run.
    """
    prepared = _read(folder / PREPARED)
    upstream, ref = prepared.upstream, prepared.onto
    pins = project.lock.pins_of(project.choose_set(set_name))
    project.check_names(pins, [upstream], set_name)
    if prepared.from_ref != next(p.ref for p in pins if p.upstream == upstream):
        raise UserError(f"{upstream} is no longer pinned at {prepared.from_ref}", hint=_AGAIN)
    _check_committed(project, upstream)
    pull = target.forge.pull_of(_branch(upstream, ref))
    if pull and pull.state != "open":
        return Followed(
            upstream=upstream,
            from_ref=prepared.from_ref,
            onto=ref,
            state=FollowState.CLOSED,
            branch=_branch(upstream, ref),
            url=pull.url,
        )
    before = _own_files(project, upstream)
    for path, (was, _) in prepared.files.items():
        if above := before.keys() & set(map(str, PurePosixPath(path).parents)):
            raise FormatError(f"{path} would be below the file {min(above)}", hint=_AGAIN)
        if was != (hashlib.sha256(before[path]).hexdigest() if path in before else None):
            raise UserError(f"{path} has changed since the dry run", hint=_AGAIN)
    with project.locked("follow"):
        contents = {}
        for path, (_, text) in prepared.files.items():
            contents[path] = None if text is None else _bytes(text)
        project.journal.perform(Change(verb="follow", summary=f"carry {upstream} to {ref}", files=contents))
    try:
        return _send(project, target, prepared, pull)
    finally:
        _take_back(project)


def _take_back(project: Project) -> None:
    with project.locked("follow"):
        project.journal.undo(redo=False)
    project.__dict__.pop("lock", None)


def _read(path: Path) -> Prepared:
    """Read the content that :func:`follow` saved.

    :raises FormatError: if the file is malformed or changes files other than the lock and the
        upstream's stacks.
    :raises UserError: if the file is missing.
    """
    data = fsio.read_limited(path, _MOST_PREPARED)
    if data is None:
        raise UserError(
            f"{path} doesn't exist", hint=f"`patchq follow --dry-run {sh(path.parent.parent)}` writes this file"
        )
    raw = fsio.load_state(data, path, _VERSION)
    try:
        texts, files = {}, {}
        folders: set[str] = set()
        for key in ("upstream", "from_ref", "onto", "title", "body"):
            texts[key] = raw[key]
        for name, (was, after) in raw["files"].items():
            files[name] = (was, after)
            folders.update(map(str, PurePosixPath(name).parents))
        for text in (*texts.values(), *raw["notes"]):
            if not isinstance(text, str):
                raise ValueError(f"{text!r} is not text")
        if not texts["title"].isprintable() or len(texts["title"]) + len(texts["body"]) > 2 * MOST or not files:
            raise ValueError("its title, body or number of files is invalid")
        check_name(texts["upstream"], "an upstream")
        check_ref(texts["onto"], "a ref")
        "".join([*texts.values(), *raw["notes"], *files]).encode()  # fails on lone surrogates
        if both := folders & files.keys():
            raise ValueError(f"{min(both)} is both a file and a folder")
        for name, (was, after) in files.items():
            _check_file(name, was, after, f"patches/{texts['upstream']}/")
        return Prepared(**texts, notes=tuple(raw["notes"]), files=files)
    except (KeyError, TypeError, ValueError, AttributeError, FormatError) as error:
        raise FormatError(f"{path} is not the output of a dry run: {error}", hint=_AGAIN) from None


def _check_file(name: str, was: object, after: object, folder: str) -> None:
    """Check one file of a prepared branch.

    :raises ValueError: if the file is neither the lock nor in the upstream's folder, or if its old or new
        content is not text.
    """
    inside = str(check_inside(name, "the file")) == name
    if not inside or not (name == LOCK_NAME or name.startswith(folder)):
        raise ValueError(name)
    for text in (was, after):
        if text is not None and not isinstance(text, str):
            raise ValueError(name)
    if isinstance(after, str):
        _bytes(after)


def _branch(upstream: str, ref: str) -> str:
    return f"patchq/{upstream}-{ref_to_folder(ref).replace('%', '-')}"


def _check_committed(project: Project, upstream: str) -> None:
    if changed := person.changed(project.layout.root, *_paths(upstream)):
        raise UserError(f"{changed[0]} has uncommitted changes", hint="commit them first")


def _paths(upstream: str) -> list[str]:
    """Return the paths of the project's files that the branch changes."""
    return [LOCK_NAME, f"patches/{upstream}"]


def _own_files(project: Project, upstream: str) -> dict[str, bytes]:
    """Return the lock and the files of an upstream's stacks, by their paths in the project."""
    root = project.layout.root
    files = project_files.list_files(root, root / "patches" / upstream)
    found: dict[str, bytes] = {}
    for path in (root / LOCK_NAME, *files):
        found[path.relative_to(root).as_posix()] = project_files.read(root, path) or b""
    return found


def _changes(before: dict[str, bytes], after: dict[str, bytes]) -> dict[str, tuple[str | None, str | None]]:
    changes: dict[str, tuple[str | None, str | None]] = {}
    for path in sorted(before | after):
        if before.get(path) != after.get(path):
            changes[path] = (
                hashlib.sha256(before[path]).hexdigest() if path in before else None,
                after[path].decode("utf-8", "surrogateescape") if path in after else None,
            )
    return changes


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _send(project: Project, target: FollowTarget, done: Prepared, pull: Pull | None) -> Followed:
    """Push the branch, and open or update the pull request."""
    root, forge = project.layout.root, target.forge
    title, body, branch = done.title, done.body, _branch(done.upstream, done.onto)
    marked = _marked(body, _digest(project, done.upstream, body))
    result = Followed(
        upstream=done.upstream,
        from_ref=done.from_ref,
        onto=done.onto,
        state=FollowState.SAME,
        branch=branch,
        title=title,
        body=body,
    )
    notes = list(done.notes)
    ours = None
    if pull:
        ours = _OURS.search(pull.body)
    if pull and ours and ours[0] == marked:
        return replace(result, url=pull.url, notes=tuple(notes))
    remote = person.find_remote(root, target.remote)
    there = person.refs_at(root, remote, f"refs/heads/{branch}").get(f"refs/heads/{branch}", "")
    pushed = ""
    if there and TRAILER not in forge.message_of(there):
        notes.append(f"{branch} is at {there[:12]}, which patchq didn't push; the branch is left unchanged")
        if not pull:
            raise UserError(notes[-1], hint="open a pull request of that branch, or delete the branch on the remote")
    else:
        who = person.author(root) or NOBODY
        pushed = person.commit(
            root, _paths(done.upstream), f"{title}\n\n{_plain(body)}\n\n{TRAILER} {done.upstream} {done.onto}", who
        )
        person.push_own(root, remote, pushed, branch, expected=there)
    if pull is None:
        opened = forge.open(title, branch, _base(project, target), marked)
        url = ""
        if opened:
            url = opened.url
        return replace(result, state=FollowState.OPENED, url=url, pushed=pushed, notes=tuple(notes))
    if ours is None:
        notes.append("patchq's part of the pull request's text was removed, so the text is left unchanged")
    else:
        forge.edit(pull, pull.body[: ours.start()] + marked + pull.body[ours.end() :])
    return replace(result, state=FollowState.EDITED, url=pull.url, pushed=pushed, notes=tuple(notes))


def _base(project: Project, target: FollowTarget) -> str:
    base = target.base or person.branch(project.layout.root)
    if not base:
        raise UserError("no branch is checked out to merge the pull request into", hint="give the branch with --base")
    return base


def _plain(body: str) -> str:
    """Return the first line of a pull request's body, without markup."""
    return re.sub(r"[*\\]", "", body.split("\n", 1)[0])


def _marked(body: str, digest: str) -> str:
    return f"{BEGIN} {digest} -->\n{body}{END}"


def _digest(project: Project, upstream: str, body: str) -> str:
    """Return a hash of the body and the files. The ledger is left out, because its timestamps change."""
    digest = hashlib.sha256(body.encode())
    for path, data in _own_files(project, upstream).items():
        if not path.endswith("/ledger.jsonl"):
            digest.update(path.encode() + b"\0" + data + b"\0")
    return digest.hexdigest()


# The text


def _text(project: Project, done: Result, set_name: str, verdicts: Verdicts) -> tuple[str, str]:
    """Return the title and the body of the pull request: counts, verdicts, open patches and changed diffs."""
    summary = tally_result(done).message
    names = []
    for step in done.steps:
        if step.commit:
            names.append(f"{done.upstream}/{step.patch}")
    judged, pairs = {}, []
    if names:
        judged = by_patch(verdicts(done.set_name, names))
        old, new = f"{done.upstream}@{done.from_ref}", f"{done.upstream}@{done.onto}"
        pairs = [pair for pair in compare(project, old, new, set_name) if pair.kind == CHANGED]
    rows, still_open = [], []
    counts: Counter[str] = Counter()
    for step in done.steps:
        row = _row(step, judged.get(f"{done.upstream}/{step.patch}"))
        rows.append(row)
        counts[row.outcome] += 1
        if row.open:
            still_open.append(row)
    shown, size = [], 0
    for pair in pairs:
        size += len(pair.text)
        if size <= MOST_DIFF:
            longest = max(map(len, re.findall("`+", pair.text)), default=0)
            shown.append({"name": pair.new, "text": pair.text, "fence": "`" * max(3, longest + 1)})
    left = len(pairs) - len(shown)
    body = render(
        "follow/body.md.j2",
        upstream=done.upstream,
        from_ref=done.from_ref,
        onto=done.onto,
        summary=summary,
        counts=sorted(counts.items()),
        total=len(rows),
        rows=rows,
        open=still_open,
        changed=shown,
        kept=len(names),
        set_name=done.set_name,
        set_option=f" --set {set_name}" if set_name else "",
        left_out_text=f"{left} more differ; `patchq diff {done.upstream}@{sh(done.from_ref)} "
        f"{done.upstream}@{sh(done.onto)}` shows all."
        if left
        else "",
    )
    if len(body) > MOST:
        body = body[:MOST] + "\n\n… cut at the forge's limit; `patchq ledger` shows everything.\n"
    return f"Carry {done.upstream} {done.from_ref} to {done.onto}: {summary}", body


def _row(step: PatchStep, verdict: Verdict | None) -> FollowRow:
    files = ", ".join(f"{path} ({hunks})" if hunks > 1 else path for path, hunks in step.files)
    if step.commit:
        if verdict:
            proof = str(verdict.state)
        else:
            proof = step.proof or "not run"
        if verdict and not verdict.ok:
            output = verdict.message
        else:
            output = step.how
        return FollowRow(patch=step.patch, outcome=step.outcome, proof=proof, message=output)
    if step.outcome == Outcome.ABSORBED and step.proof:
        return FollowRow(patch=step.patch, outcome="upstream has it", proof=step.proof, message=step.evidence)
    has = ""
    if step.grade and (step.undecided or step.outcome != Outcome.ABSORBED):
        has = f"upstream has it, {step.grade}: {step.evidence}"
    how = step.how
    if step.undecided:
        how = step.stopped
    return FollowRow(
        patch=step.patch, outcome=step.outcome, proof="", message="; ".join(filter(None, (files, has, how))), open=True
    )
