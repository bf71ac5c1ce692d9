"""The command ``check``: test the patches of all stacks against rules."""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from patchq.errors import ConflictError, FormatError, PatchqError, UserError, nearest
from patchq.formats.header import NEEDS, STATUS_WORDS, Header, mail_safe
from patchq.formats.lock import Pin, Upstream
from patchq.formats.outcomes import FindingLevel
from patchq.formats.series import SUFFIX
from patchq.git.repository import Git
from patchq.names import AppliedPatch, BlobId, CommitId, TreeId, proof_path, sh, show_path
from patchq.patterns.regenerate import RuleStop
from patchq.patterns.rules import TRAILER, rules_of
from patchq.patterns.trees import is_made_by
from patchq.project.cached import ResultCache
from patchq.project.project import Project
from patchq.project.stack import SeriesMissing, Stack, load_stack, load_state
from patchq.sources.rules import upstream_test
from patchq.stacks import siblings
from patchq.stacks.apply import ApplyPlan, bases_of, plan
from patchq.stacks.export import format_patches
from patchq.system import project_files
from patchq.system.paths import check_inside, folder_to_ref

#: Line and message.
_SyntaxError = tuple[int, str]

_STATUS = re.compile(r"(?P<word>[A-Za-z-]+)(?: \[(?P<detail>[^\]]+)\])?")
_TOPIC = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_UNFINISHED = re.compile(r"\b(wip|fixup!|squash!|amend!|do not merge|tmp|hack)(?=\W|$)", re.IGNORECASE)
#: Patches are meant for upstream, so they must not mention this tool.
SELF = re.compile(r"\bpatchq\b|_patchq\b", re.IGNORECASE)
#: Commands in hints that take ``--set``, each with its first argument.
_COMMAND = re.compile(r"patchq (?:reword|move|drop|apply) (?:'[^']*'|[^ `]+)")
_DEBUG = re.compile(rb"^\+.*\b(breakpoint\(\)|pdb\.set_trace|<<<<<<<|>>>>>>>)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Violation of one rule.

    :ivar patch: name of the patch; empty if the violation concerns no single patch.
    :ivar rule: stable identifier for filters.
    """

    upstream: str
    ref: str
    patch: str
    rule: str
    message: str
    hint: str
    level: FindingLevel = FindingLevel.PROBLEM


def check(
    project: Project,
    names: Sequence[str] = (),
    *,
    offline: bool = False,
    text_only: bool = False,
    plans: dict[tuple[str, str], ApplyPlan] | None = None,
    allow_empty: bool = False,
    set_name: str = "",
) -> list[Finding]:
    """Check all stacks of the lock, or only the stacks of the named upstreams.

    :param set_name: set whose pins are compared with each other. If empty, compare the pins of every set.
    :param allow_empty: accept patches that change nothing.
    :param text_only: skip the checks that need the upstreams' trees.
    :param plans: dictionary to which the plan of each applied stack is added, by upstream and ref.
    """
    with project.locked("check"):
        known = list(project.lock.upstreams)
        for name in names:
            if name not in known:
                raise UserError(
                    f"no upstream {name!r} in upstream.lock", hint=nearest(name, known, f"it has {', '.join(known)}")
                )
        found = []
        if not names:
            found = _strays(project)
        bases: dict[tuple[str, str], CommitId] = {}
        syntax = ResultCache(project.layout, "syntax", modules=(Path(__file__),))
        for upstream in project.lock.upstreams.values():
            for pin in upstream.pins.values() if not names or upstream.name in names else ():
                off = {"empty", *upstream.check.off} if allow_empty else set(upstream.check.off)
                try:
                    stack = load_stack(project.layout, pin)
                except SeriesMissing as error:
                    found.append(_finding(pin, "", "format", error.message, error.hint))
                    continue
                headers = _headers(project, stack, found)
                if not text_only and stack.names and len(headers) == len(stack.names):
                    _check_bytes(project, stack, found, offline, bases, {} if plans is None else plans, syntax)
                found = list(_levelled(found, upstream, off))
        syntax.keep(forget=not names)
        for name in () if names or text_only else project.lock.sets:
            if set_name in ("", name):
                found += _check_siblings(project, name, bases)
    return [_for_its_set(project, finding) for finding in found]


def _for_its_set(project: Project, finding: Finding) -> Finding:
    """Add the option ``--set`` to the command in a finding's hint, if the stack isn't in the default set."""
    if not _COMMAND.search(finding.hint):
        return finding
    sets = []
    for name, refs in project.lock.sets.items():
        if refs.get(finding.upstream) == finding.ref:
            sets.append(name)
    if project.lock.default_set in sets:
        return finding
    if not sets:
        return replace(finding, hint=f"the stack of {finding.ref} is in no set, so no command changes it")
    option = project.set_option(sets[0])
    return replace(finding, hint=_COMMAND.sub(lambda match: match[0] + option, finding.hint))


def _check_siblings(project: Project, set_name: str, bases: Mapping[tuple[str, str], CommitId]) -> Iterator[Finding]:
    """Yield a finding for each unintended mismatch between pins.

    Also yield a finding for each unused entry of ``[mismatches]``.

    :param bases: commits of the pins to check. Unused entries are found only if ``bases`` contains every pin of the
        set.
    """
    refs = project.lock.sets[set_name]
    known = {u: bases[u, ref] for u, ref in refs.items() if (u, ref) in bases}
    differences = siblings.differences(project, set_name, known)
    for difference in differences:
        if not difference.meant:
            hint = siblings.hint_for(difference)
            yield Finding(
                upstream=difference.upstream,
                ref=difference.ref,
                patch="",
                rule="siblings",
                message=difference.message,
                hint=hint,
            )
    if len(known) < len(refs):
        return
    for name in project.lock.mismatches.get(set_name, {}):
        if canonicalize_name(name) not in {d.distribution for d in differences}:
            message = f"[mismatches.{set_name}] {name}: no pin of the set requires another version"
            yield Finding(
                upstream="", ref="", patch="", rule="siblings", message=message, hint="remove it from upstream.lock"
            )


def _levelled(found: Iterable[Finding], upstream: Upstream, off: Collection[str]) -> Iterator[Finding]:
    """Yield the findings with the level that the lock sets for their rules. Omit findings of disabled rules."""
    for finding in found:
        if finding.upstream != upstream.name:
            yield finding
        elif finding.rule in upstream.check.warn and finding.rule not in off:
            yield replace(finding, level=FindingLevel.WARNING)
        elif finding.rule not in off:
            yield finding


def _strays(project: Project) -> list[Finding]:
    """Return a finding for each stack folder that belongs to no pin."""
    found = []
    root = project.layout.root / "patches"
    for series in sorted(root.glob("*/*/series")):
        upstream, ref = series.parent.parent.name, folder_to_ref(series.parent.name)
        if upstream not in project.lock.upstreams or ref not in project.lock.upstreams[upstream].pins:
            found.append(
                Finding(
                    upstream=upstream,
                    ref=ref,
                    patch="",
                    rule="no-pin",
                    message=f"{series.parent} is a stack without a pin",
                    hint=f"patchq pin {upstream} --ref {sh(ref)} …",
                )
            )
    return found


def _finding(pin: Pin, patch: str, rule: str, message: str, hint: str) -> Finding:
    return Finding(upstream=pin.upstream, ref=pin.ref, patch=patch, rule=rule, message=message, hint=hint)


def _headers(project: Project, stack: Stack, found: list[Finding]) -> dict[str, Header]:
    pin = stack.pin
    headers: dict[str, Header] = {}
    for path in sorted(stack.folder.glob("*")) if stack.folder.is_dir() else ():
        name = path.name.removesuffix(SUFFIX)
        if path.name != "series" and name not in stack.names:
            message = f"{path.name} is not in the series, so it is never applied"
            hint = f"add it to {stack.folder / 'series'}, or `rm {sh(path)}`"
            found.append(_finding(pin, name, "not-in-series", message, hint))
    for name in stack.names:
        try:
            header, text = stack.load(name)
        except PatchqError as error:
            found.append(_finding(pin, name, "format", error.message, error.hint))
            continue
        headers[name] = header
        full = f"{pin.upstream}/{name}"
        for rule, message, hint in [
            *_check_message(full, header),
            *_check_trailers(project, full, header),
            *_check_requires(project, stack, name, header),
            *check_diff(text, pin.upstream),
            *_check_empty(full, text),
        ]:
            found.append(_finding(pin, name, rule, message, hint))
    return headers


_Problem = tuple[str, str, str]


def broken_rules(project: Project, upstream: str, name: str, header: Header) -> set[str]:
    """Return the rules that a patch's message and trailers break."""
    full = f"{upstream}/{name}"
    found = [*_check_message(full, header), *_check_trailers(project, full, header)]
    return {rule for rule, _, _ in found}


def _check_message(full: str, header: Header) -> list[_Problem]:
    found: list[_Problem] = []
    reword = f"`patchq reword {sh(full)}` opens the message in an editor"
    if _UNFINISHED.search(header.subject):
        found.append(("unfinished", f"the subject {header.subject!r} marks it as unfinished", reword))
    if len(header.subject) > 100:
        found.append(("subject", f"the subject has {len(header.subject)} characters; the limit is 100", reword))
    body = header.message.split("\n", 1)[1].strip()
    trailers = "\n".join(f"{k}: {v}" for k, v in header.trailers)
    if not body or body == trailers:
        found.append(
            ("why", "the message gives no reason", f"{reword}: explain it to a reader who has never seen the fork")
        )
    for line in header.message.splitlines():
        if SELF.search(line) and not line.startswith(("Proof:", "Proof-On:", "Origin:")):
            found.append(("self-reference", "the message names patchq", reword))
            break
    if mail_safe(header.message) != header.message:
        found.append(("message", "`git am` would change the message", "`patchq check --fix` rewrites it"))
    return found


def _check_trailers(project: Project, full: str, header: Header) -> list[_Problem]:
    found: list[_Problem] = []
    upstream = full.partition("/")[0]
    reword = f"`patchq reword {sh(full)} --trailer"
    statuses = header.values("Upstream-Status")
    match = None
    if len(statuses) == 1:
        match = _STATUS.fullmatch(statuses[0])
    if not match or match["word"] not in STATUS_WORDS or (match["word"] != "Pending" and not match["detail"]):
        shown = ", ".join(f"{w} […]" if w != "Pending" else w for w in STATUS_WORDS)
        hint = f"{reword} 'Upstream-Status: Pending'`; or another of {shown}"
        found.append(("upstream-status", f"Upstream-Status: is {', '.join(statuses) or 'missing'}", hint))
    topics = header.values("Topic")
    if len(topics) != 1 or not _TOPIC.fullmatch(topics[0]):
        hint = f"{reword} 'Topic: {_slug(topics[0]) if topics else upstream}'`, or another word such as attention"
        found.append(("topic", f"Topic: is {', '.join(topics) or 'missing'}", hint))
    proofs = header.values("Proof")
    if not proofs:
        test = proof_path(full)
        hint = f"write {test}, a test that fails without the patch, then {reword} 'Proof: {test}'`"
        found.append(("proof", "Proof: is missing", hint))
    found += _check_proofs(project, header)
    for test in header.values("Upstream-Test"):
        found += _check_upstream_test(project, upstream, test)
    for need in header.needs:
        if need not in NEEDS:
            found.append(("needs", f"Needs: {need} is unknown", f"one of {', '.join(NEEDS)}"))
    for value in header.values("Build"):
        if value != "source":
            found.append(("build", f"Build: {value} is unknown", "source, or no such trailer"))
    for value in header.values("CVE"):
        if not re.fullmatch(r"CVE-\d{4}-\d{4,}", value):
            found.append(("cve", f"CVE: {value} is not a CVE number", "CVE-2026-12345, one line each"))
    found += _check_sign_off(project, upstream, header)
    return found


def _check_proofs(project: Project, header: Header) -> list[_Problem]:
    found: list[_Problem] = []
    named = list(header.values("Proof"))
    for proof in named:
        found += _check_proof(project, proof, "Proof:")
    for need, proof in header.proofs_on:
        if need not in NEEDS:
            found.append(
                ("proof-file", f"Proof-On: {need or 'nothing'} is unknown", f"{', '.join(NEEDS)}, then a path")
            )
        if proof in named:
            found.append(
                ("proof-file", f"Proof-On: {proof} is named twice", "name each proof once, in Proof: or Proof-On:")
            )
        found += _check_proof(project, proof, "Proof-On:")
        named.append(proof)
    return found


def _check_sign_off(project: Project, upstream: str, header: Header) -> list[_Problem]:
    signed = header.values("Signed-off-by")
    sign_off = project.lock.upstreams[upstream].check.sign_off
    author = f"{header.author.name} <{header.author.email}>"
    if sign_off == "importer" and not signed:
        return [("dco", "the patch has no sign-off", "`patchq check --fix` adds your sign-off")]
    if sign_off == "author" and author not in signed:
        hint = (
            f'`patchq check --fix` by {author}; for other people\'s patches, `sign-off = "none"` below '
            f"[upstreams.{upstream}.check] in upstream.lock"
        )
        return [("dco", "the author has not signed off", hint)]
    return []


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "other"


def _check_proof(project: Project, proof: str, trailer: str) -> list[_Problem]:
    path = proof.split("::")[0]
    try:
        inside = check_inside(path, trailer)
        there = project_files.exists(project.layout.root, project.layout.root / inside)
    except PatchqError as error:
        return [("proof-file", error.message, error.hint)]
    if inside.parts[:2] != ("tests", "stacks"):
        return [
            (
                "proof-file",
                f"{trailer} {proof} is not below tests/stacks/",
                f"move {path} there, and name it in {trailer}",
            )
        ]
    if not there:
        return [("proof-file", f"{trailer} {proof} doesn't exist", f"write {path}, or name another test in {trailer}")]
    return []


def _check_upstream_test(project: Project, upstream: str, test: str) -> list[_Problem]:
    path = upstream_test(project.layout, upstream, test)
    try:
        check_inside(test, "Upstream-Test:")
        there = project_files.exists(project.layout.root, path)
    except PatchqError as error:
        return [("upstream-test", error.message, error.hint)]
    if not there:
        where = path.relative_to(project.layout.root)
        return [("upstream-test", f"Upstream-Test: {where} doesn't exist", f"write {where}, or name another test")]
    return []


def _check_requires(project: Project, stack: Stack, name: str, header: Header) -> list[_Problem]:
    found: list[_Problem] = []
    full = f"{stack.pin.upstream}/{name}"
    remove = f"`patchq reword {sh(full)}` opens the message in an editor, to correct or remove it"
    for required in header.values("Requires"):
        upstream, _, other = required.partition("/")
        if upstream == stack.pin.upstream:
            if other not in stack.names:
                found.append(("requires", f"Requires: {required} is not a patch of this stack", remove))
            elif stack.names.index(other) >= stack.names.index(name):
                hint = f"`patchq move {sh(required)} --before {sh(name)}`"
                found.append(("requires", f"Requires: {required} comes later in the series", hint))
            continue
        names: list[str] = []
        for pin in _used_with(project, stack.pin, upstream):
            with suppress(SeriesMissing):  # another finding reports this
                names += load_stack(project.layout, pin).names
        if other not in names:
            found.append(("requires", f"Requires: {required} is in no stack of the same set", remove))
    return found


def _used_with(project: Project, pin: Pin, upstream: str) -> Iterator[Pin]:
    """Yield the pins of another upstream that are in a set together with ``pin``."""
    for refs in project.lock.sets.values():
        if refs.get(pin.upstream) == pin.ref and upstream in refs and upstream in project.lock.upstreams:
            yield project.lock.upstreams[upstream].pins[refs[upstream]]


def _check_empty(full: str, text: bytes) -> list[_Problem]:
    if text.strip():
        return []
    upstream = full.partition("/")[0]
    hint = (
        f"`patchq drop {sh(full)}`; to keep it, `patchq check --allow-empty`, or "
        f'`off = ["empty"]` below [upstreams.{upstream}.check] in upstream.lock'
    )
    return [("empty", "it changes nothing", hint)]


def check_diff(text: bytes, upstream: str) -> list[_Problem]:
    """Return a problem for each rule that an added line of a diff breaks."""
    found: list[_Problem] = []
    edit = f"`patchq apply {upstream}`, correct the line in .patchq/trees/{upstream}, then `patchq fold {upstream}`"
    added = []
    for line in text.split(b"\n"):
        if line.startswith(b"+") and not line.startswith(b"+++ "):
            added.append(line)
    if SELF.search(b"\n".join(added).decode("utf-8", "replace")):
        found.append(("self-reference", "an added line names patchq", edit))
    if any(map(_DEBUG.match, added)):
        found.append(("debugging", "an added line is a debugger call or a conflict marker", edit))
    return found


def _check_bytes(
    project: Project,
    stack: Stack,
    found: list[Finding],
    offline: bool,
    bases: dict[tuple[str, str], CommitId],
    plans: dict[tuple[str, str], ApplyPlan],
    syntax: ResultCache,
) -> None:
    """Check that a stack's patches apply without offsets, and that exporting them gives the same bytes.

    The stack's base is added to ``bases`` and its plan to ``plans``.

    :param syntax: syntax errors of known files, by blob id.
    """
    pin = stack.pin
    state = load_state(project.layout, pin.upstream)
    usable = None
    if state and state.ref == pin.ref:
        usable = state
    try:
        base = bases_of(project, [stack], {pin.upstream: usable}, offline)[0]
        bases[pin.upstream, pin.ref] = base.commit
        made = plans[pin.upstream, pin.ref] = plan(project, stack, base, usable, "")
        after = made.after
    except ConflictError as error:
        for conflict in error.conflicts:
            message = f"{conflict.path}: {conflict.reason}"
            found.append(_finding(pin, conflict.patch, "applies", message, error.hint))
        return
    except PatchqError as error:
        found.append(_finding(pin, "", "applies", error.message, error.hint))
        return
    mails = format_patches(project.store, base.commit, after.tip, len(after.patches))
    again = f"patchq apply {pin.upstream} && patchq export {pin.upstream}"
    found += _check_syntax(project.store, stack, base.commit, [item.applied for item in after.patches], syntax)
    for item, mail in zip(after.patches, mails, strict=True):
        name = item.applied.name
        for offset in item.applied.offsets:
            message = f"{offset.path}: {offset.hunk} applies {offset.lines:+d} lines away"
            found.append(_finding(pin, name, "offset", message, again))
        found += _check_rules(project, stack, item.applied, again)
        if not item.applied.offsets and mail != stack.read(name):
            found.append(_finding(pin, name, "bytes", "the file differs from the one that export writes", again))


@dataclass(frozen=True, slots=True)
class BrokenSource:
    """Python file with a syntax error that a change caused. Contains the line and the parser's message."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def find_broken_sources(
    store: Git, pairs: Sequence[tuple[TreeId, TreeId]], known: ResultCache | None = None
) -> list[list[BrokenSource]]:
    """For each change, return the Python files in which the change causes a syntax error.

    Files with a syntax error before the change, such as templates, are ignored.

    :param pairs: for each change, the trees before and after it.
    :param known: cache of syntax errors, by blob id. Results for blobs that it doesn't contain are added.
    """
    changes: list[list[tuple[bytes, BlobId, BlobId]]] = []
    errors: dict[BlobId, _SyntaxError | None] = {}
    for changed in store.changes_between(pairs):
        python = []
        for one in changed:
            if one.path.endswith(b".py") and one.old and one.new:
                python.append((one.path, one.old.blob, one.new.blob))
        changes.append(python)
    _add_syntax_errors(errors, store, {new for python in changes for _, _, new in python}, known)
    # Parsing takes long: the file before the change matters only if the change leaves an error.
    _add_syntax_errors(errors, store, {old for python in changes for _, old, new in python if errors[new]}, known)
    found = []
    for python in changes:
        broken = []
        for path, old, new in python:
            error = errors[new]
            if error and errors[old] is None:
                broken.append(BrokenSource(show_path(path), *error))
        found.append(broken)
    return found


def _add_syntax_errors(
    errors: dict[BlobId, _SyntaxError | None], store: Git, blobs: Collection[BlobId], known: ResultCache | None
) -> None:
    """Add each blob to ``errors`` with its syntax error, or with None if it has no error."""
    unknown = []
    for blob in sorted(set(blobs) - errors.keys()):
        rows = known.find(blob) if known else None
        if rows is None:
            unknown.append(blob)
        else:
            errors[blob] = next(((int(line), message) for line, message in rows), None)
    for blob, data in store.read_blobs(unknown).items():
        error = errors[blob] = _syntax_error(data)
        if known:
            known.add(blob, [(str(error[0]), error[1])] if error else [])


def _syntax_error(data: bytes) -> _SyntaxError | None:
    """Return the line and message of a source's first syntax error; None if this Python can parse it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "source", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or type(error).__name__
    return None


def _check_syntax(
    store: Git, stack: Stack, base: CommitId, patches: Sequence[AppliedPatch], known: ResultCache
) -> Iterator[Finding]:
    """Yield a finding for each Python file in which a patch leaves a syntax error."""
    upstream = stack.pin.upstream
    hint = f"`patchq apply {upstream}`, correct the line in .patchq/trees/{upstream}, then `patchq fold {upstream}`"
    trees = store.tree_of([base, *(patch.commit for patch in patches)])
    broken = find_broken_sources(store, list(itertools.pairwise(trees)), known)
    for patch, sources in zip(patches, broken, strict=True):
        for source in sources:
            yield Finding(
                upstream=upstream,
                ref=stack.pin.ref,
                patch=patch.name,
                rule="syntax",
                message=f"it leaves a syntax error: {source}",
                hint=hint,
            )


def _check_rules(project: Project, stack: Stack, applied: AppliedPatch, again: str) -> Iterator[Finding]:
    """Yield a finding if the patch's rules don't produce the patch's diff."""
    header = stack.load(applied.name)[0]
    message = ""
    hint = f"correct its {TRAILER}: trailers, or make new ones with `patchq reword {applied.name} --as-rules`"
    try:
        rules = rules_of(header.message, applied.name)
        if applied.by_rule:
            message, hint = "its diff doesn't apply; the change was made by its rules instead", again
        elif rules and not is_made_by(rules, project.store, f"{applied.commit}^", applied.commit):
            message = "its rules and its diff give different results"
    except (RuleStop, FormatError) as error:
        message = str(error)
    if message:
        yield _finding(stack.pin, applied.name, "pattern", message, hint)
