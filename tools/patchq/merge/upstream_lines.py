"""Search for new upstream lines that a carried patch removes, but the original patch doesn't.

For example, upstream adds a line next to a line that the patch changes. If the conflict is resolved by taking
the patch's side, upstream's line is lost. The patch applies and its proof passes, so no other check fails.
Therefore, every resolution, replay and merge is compared with upstream's own edits.

Lines are compared without blanks, so moved or indented lines don't count as lost. A line that both the patch
and upstream changed doesn't count as lost if the result contains upstream's new words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain, product
from operator import itemgetter
from pathlib import Path

from patchq.errors import UserError
from patchq.formats import diff
from patchq.formats import ledger as ledgers
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import BlobId, CommitId, show_path
from patchq.project.cached import ResultCache
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import ledger_path, read_ledger
from patchq.records import dataclass
from patchq.stacks.apply import ApplyPlan
from patchq.system import project_files

_TOKEN = re.compile(rb"\w+|[^\w\s]")
_WORD = re.compile(rb"\w")
_MOST_SHOWN = 10
#: Distance in lines up to which the same line added by both sides counts as one addition.
_NEAR = 20


@dataclass(frozen=True, slots=True)
class UpstreamLine:
    """Line of upstream that a carried patch removes.

    :ivar line: number of the line in the file before the patch, from 1.
    """

    path: str
    line: int
    text: str

    @property
    def name(self) -> str:
        """Return the line's name on the command line, ``PATH:LINE``."""
        return f"{self.path}:{self.line}"

    def is_one_of(self, names: Sequence[str]) -> bool:
        """Return whether ``names`` contains this line (``PATH:LINE``) or its file (``PATH``)."""
        return self.name in names or self.path in names


@dataclass(frozen=True, slots=True)
class _LineHunk:
    """Difference between two texts: the lines ``before`` of the first text are replaced by the lines ``after``.

    :ivar at: line number (from 1) at which ``after`` begins in the second text.
    """

    at: int
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]


def dropped_lines(
    *, old_before: bytes, old_after: bytes, new_before: bytes, new_after: bytes, upstream: bytes | None = None
) -> list[tuple[int, bytes]]:
    """Return the lines that upstream added and the carried patch removes, with their line numbers in ``new_before``.

    :param old_before: file for which the patch was written.
    :param old_after: this file after the patch.
    :param new_before: file to which the patch is carried.
    :param new_after: this file after the carried patch.
    :param upstream: upstream's own file, if earlier patches of the stack have changed ``new_before``.
    """
    old, patched = old_before.splitlines(), old_after.splitlines()
    new, result = new_before.splitlines(), new_after.splitlines()
    short = _missing(old, patched, new, result)
    if upstream is not None:
        for key in short.keys() - set(map(_key, upstream.splitlines())):
            del short[key]
    if not short:
        return []
    added = {}
    for hunk in _hunks(old, new):
        added.update(dict.fromkeys(range(hunk.at, hunk.at + len(hunk.after)), hunk.before))
    found: list[tuple[int, bytes]] = []
    for hunk in _hunks(result, new):
        for number, line in enumerate(hunk.after, hunk.at):
            key = _key(line)
            if number not in added or short[key] <= 0 or _is_still_there(line, added[number], hunk.before):
                continue
            short[key] -= 1
            found.append((number, line))
    return found


def _missing(
    old: Sequence[bytes], patched: Sequence[bytes], new: Sequence[bytes], result: Sequence[bytes]
) -> Counter[bytes]:
    """Count upstream's lines that are missing in the result, except lines that the old patch removed.

    If the patch and upstream add the same line at places far apart, the result must contain it twice.
    """
    o, p, n, r = map(_counted, (old, patched, new, result))
    both = set()
    for key in (p - o).keys() & (n - o).keys():
        if r[key] < n[key] + p[key] - o[key]:
            both.add(key)
    if both:  # the diffs are slow
        by_patch, by_upstream = _added(old, patched), _added(old, new)
        for key in both:
            if _are_far_apart(by_patch.get(key, ()), by_upstream.get(key, ())):
                n[key] += p[key] - o[key]
    missing = n - r - (o - p)
    for key in list(missing):
        if not _WORD.search(key):
            del missing[key]
    return missing


def _counted(lines: Iterable[bytes]) -> Counter[bytes]:
    return Counter(map(b"".join, map(bytes.split, lines)))


def _are_far_apart(some: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether all line numbers in ``some`` are far from all in ``others``. Return False if either is empty."""
    for one, other in product(some, others):
        if abs(one - other) <= _NEAR:
            return False
    return bool(some and others)


def _added(old: Sequence[bytes], lines: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Return a dictionary from each added line to the numbers of the old lines before which it was inserted."""
    found: dict[bytes, list[int]] = {}
    for hunk in _hunks(lines, old):
        for line in hunk.before:
            found.setdefault(_key(line), []).append(hunk.at)
    return found


def _key(line: bytes) -> bytes:
    return b"".join(line.split())


def _hunks(before: Sequence[bytes], after: Sequence[bytes]) -> Iterator[_LineHunk]:
    """Yield the differences between two texts. ``at`` is a line number (from 1) in ``after``."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    one, other = before[start : len(before) - end], after[start : len(after) - end]
    for tag, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _LineHunk(start + c + 1, tuple(one[a:b]), tuple(other[c:d]))


def _is_still_there(line: bytes, replaced: Sequence[bytes], instead: Sequence[bytes]) -> bool:
    """Return whether the result still contains upstream's new words of a line.

    :param replaced: old lines of upstream that the line replaced.
    :param instead: lines of the result at the same place.
    """
    tokens = _TOKEN.findall(line)
    there = _tokens_of(instead)
    if not replaced:
        return _holds(there, tokens)
    before = Counter(_tokens_of(replaced))
    new = set()
    for token in Counter(tokens) - before:
        if _WORD.match(token):
            new.add(token)
    return bool(instead) and new <= set(there) and _alike(tokens, there)


def _tokens_of(lines: Sequence[bytes]) -> list[bytes]:
    """Split lines into words and punctuation characters."""
    found = []
    for line in lines:
        found += _TOKEN.findall(line)
    return found


def _holds(there: Sequence[bytes], tokens: Sequence[bytes]) -> bool:
    """Return whether the list ``there`` contains these tokens in sequence."""
    size = len(tokens)
    return any(there[at : at + size] == list(tokens) for at in range(len(there) - size + 1))


def _alike(tokens: Sequence[bytes], there: Sequence[bytes]) -> bool:
    """Return whether more than half of a line's words are in the result's lines, in the same order."""
    words = list(filter(_WORD.match, tokens))
    others = list(filter(_WORD.match, there))
    blocks = SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) * 2 > len(words)


def find_dropped(store: Git, *, old: CommitId, new: CommitId, upstream: CommitId) -> list[UpstreamLine]:
    """Return upstream's lines that a carried patch removes and the original patch doesn't.

    :param old: commit of the patch in the stack from which it is carried.
    :param new: commit of the patch in the new stack.
    :param upstream: base commit of the new stack.
    """
    before, after = store.changes_of([old, new])
    origins = _origins(store, old, new, before, after)
    compared, paths, new_paths = [], [], []
    for change in after:
        own = origins.get(change.path)
        if change.old and _is_text(change, own):
            compared.append((change, own))
            paths.append(change.path)
            if own is None:
                new_paths.append(change.path)
    if not compared:
        return []
    own_files = store.list_tree(upstream, paths)
    untouched = _untouched(store, old, new_paths)
    blobs = list(_blobs(compared))
    for e in (*own_files.values(), *untouched.values()):
        if e.mode != diff.GITLINK:
            blobs.append(e.blob)
    texts = store.read_blobs(blobs)
    removed = _removed(before, texts, store)
    found = []
    for change, own in compared:
        assert change.old
        there = own_files.get(change.path)
        same = untouched.get(change.path)
        lines = dropped_lines(
            old_before=_text_of(own.old if own else same, texts),
            old_after=_text_of(own.new if own else same, texts),
            new_before=texts[change.old.blob],
            new_after=_text_of(change.new, texts),
            upstream=texts.get(there.blob) if there else None,
        )
        for number, line in lines:
            # Upstream may have moved a line that the old patch removed into another file.
            if own or _key(line) not in removed:
                found.append(UpstreamLine(show_path(change.path), number, line.decode("utf-8", "replace")))
    return found


def _text_of(entry: TreeEntry | None, texts: Mapping[BlobId, bytes]) -> bytes:
    """Return the content of a file; empty if there is no file, or if it is not in ``texts``."""
    if entry:
        return texts.get(entry.blob, b"")
    return b""


def _origins(
    store: Git, old: CommitId, new: CommitId, before: Sequence[PathChange], after: Sequence[PathChange]
) -> dict[bytes, PathChange]:
    """For each file that the new patch changes, return the old patch's change of the same file, by new path.

    Renamed files are found by git's rename detection, else by file name if the name is unique.
    """
    found = {own.path: own for own in before}
    lost = found.keys() - {change.path for change in after}
    lost -= store.list_tree(f"{new}^", sorted(lost)).keys() if lost else set()
    # The caller compares no files that the new patch adds.
    if lost and any(change.old and change.path not in found for change in after):
        renames = store.renames_between(f"{old}^", f"{new}^")
        by_name: dict[bytes, list[PathChange]] = {}
        for path in lost:
            by_name.setdefault(path.rpartition(b"/")[2], []).append(found[path])
            if path in renames:
                found[renames[path]] = found[path]
        for change in after:
            same_name = by_name.get(change.path.rpartition(b"/")[2], ())
            if change.path not in found and len(same_name) == 1:
                found[change.path] = same_name[0]
    return found


def _untouched(store: Git, old: CommitId, paths: Sequence[bytes]) -> dict[bytes, TreeEntry]:
    """Return the old version of files that the old patch doesn't change."""
    if paths:
        return store.list_tree(f"{old}^", paths)
    return {}


def _removed(before: Sequence[PathChange], texts: Mapping[BlobId, bytes], store: Git) -> set[bytes]:
    """Return the lines, without blanks, that the old patch removes from any file."""
    sides = []
    for own in before:
        if own.old and _is_text(own):
            sides.append((own.old, own.new))
    wanted = {entry.blob for entry in chain.from_iterable(sides) if entry}
    known = {**texts, **store.read_blobs(wanted - texts.keys())}
    found: set[bytes] = set()
    for first, last in sides:
        lines, left = _text_of(first, known).splitlines(), _text_of(last, known).splitlines()
        found |= (_counted(lines) - _counted(left)).keys()
    return found


def _is_text(*changes: PathChange | None) -> bool:
    return all(entry.mode not in (diff.GITLINK, diff.SYMLINK) for entry in _entries(changes))


def _blobs(pairs: Sequence[tuple[PathChange, PathChange | None]]) -> Iterator[BlobId]:
    for entry in _entries(chain.from_iterable(pairs)):
        yield entry.blob


def _entries(changes: Iterable[PathChange | None]) -> Iterator[TreeEntry]:
    """Yield the old and new entry of each change, if they exist."""
    for change in changes:
        if change and change.old:
            yield change.old
        if change and change.new:
            yield change.new


def show_dropped(lines: Sequence[UpstreamLine], commits: Mapping[UpstreamLine, str] | None = None) -> str:
    """Format each removed line with its file, number and text, and with upstream's commit if it is known."""
    parts = []
    for line in lines[:_MOST_SHOWN]:
        commit = (commits or {}).get(line, "")
        parts.append(f"{line.name} {line.text.strip()[:80]!r}" + (f" (upstream's {commit[:12]})" if commit else ""))
    if len(lines) > _MOST_SHOWN:
        parts.append(f"and {len(lines) - _MOST_SHOWN} more")
    return "; ".join(parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedInStack:
    """Lines of upstream that a patch of an existing stack removes, and that the user hasn't accepted.

    :ivar attempt: last entry of the ledger about the patch at this ref.
    """

    upstream: str
    ref: str
    patch: str
    lines: tuple[UpstreamLine, ...]
    attempt: ledgers.Attempt


def dropped_in_stacks(project: Project, plans: Mapping[tuple[str, str], ApplyPlan]) -> list[DroppedInStack]:
    """Return the lines of upstream that carried patches remove, and that the user hasn't accepted.

    Compare each patch with the older version from which it was carried. The ledger contains the older version's ref.

    :param plans: the applied stacks, by upstream and ref.
    """
    carried = []
    for upstream in dict.fromkeys(map(itemgetter(0), plans)):
        for attempt in read_ledger(project.layout, upstream).latest().values():
            before = plans.get((upstream, attempt.from_ref))
            after = plans.get((upstream, attempt.onto))
            if not before or not after or attempt.outcome not in ledgers.CARRIED:
                continue
            old, new = _commit_of(before, attempt.patch), _commit_of(after, attempt.patch)
            if old and new:
                carried.append((upstream, attempt, old, new, after.after.base))
    commits: list[CommitId] = []
    for _, _, old, new, _ in carried:
        commits += (old, new)
    ids = dict(zip(commits, project.store.patch_ids_of(commits), strict=True))
    known = ResultCache(project.layout, "upstream-lines", modules=(Path(__file__),))
    found = []
    for upstream, attempt, old, new, base in carried:
        if ids[old] == ids[new]:  # the same change
            continue
        accepted = {(line.path, line.text.strip()) for line in attempt.dropped}
        left = []
        rows = known.find(f"{old} {new} {base}")
        if rows is None:
            lines = find_dropped(project.store, old=old, new=new, upstream=base)
            rows = known.add(f"{old} {new} {base}", [(line.path, str(line.line), line.text) for line in lines])
        for path, number, text in rows:
            line = UpstreamLine(path, int(number), text)
            if (line.path, line.text.strip()) not in accepted:
                left.append(line)
        if left:
            found.append(
                DroppedInStack(
                    upstream=upstream, ref=attempt.onto, patch=attempt.patch, lines=tuple(left), attempt=attempt
                )
            )
    known.keep(forget={upstream for upstream, _ in plans} >= project.lock.upstreams.keys())
    return found


def _commit_of(plan: ApplyPlan, patch: str) -> CommitId | None:
    return next((p.applied.commit for p in plan.after.patches if p.applied.name == patch), None)


def accept_dropped(project: Project, found: Sequence[DroppedInStack], names: Sequence[str]) -> list[DroppedInStack]:
    """Record in the ledger that patches may remove the named lines; return the other lines.

    :param names: ``UPSTREAM/PATCH:PATH:LINE``, or ``UPSTREAM/PATCH:PATH`` for all lines of a file.
    :raises UserError: for a name that matches none of the lines.
    """
    change = Change(verb="check", summary="accept dropped lines of upstream's")
    unused, left = set(names), []
    for item in found:
        start = f"{item.upstream}/{item.patch}:"
        own = []
        for name in names:
            if name.startswith(start):
                own.append(name.removeprefix(start))
        accepted, rest = [], []
        for line in item.lines:
            if line.is_one_of(own):
                accepted.append(line)
                unused -= {start + line.name, start + line.path}
            else:
                rest.append(line)
        if rest:
            left.append(replace(item, lines=tuple(rest)))
        if accepted:
            _note_accepted(project, change, item, accepted)
    if unused:
        raise UserError(
            f"no dropped line is named {sorted(unused)[0]}",
            hint="`patchq check` prints each line's name, such as vllm/my-patch:vllm/envs.py:12",
        )
    if not change.empty:
        with project.locked("check"):
            project.journal.perform(change)
    return left


def _note_accepted(project: Project, change: Change, item: DroppedInStack, lines: Sequence[UpstreamLine]) -> None:
    path = ledger_path(project.layout, item.upstream)
    relative = path.relative_to(project.layout.root).as_posix()
    before = change.files.get(relative) or project_files.read(project.layout.root, path) or b""
    dropped = tuple(ledgers.DroppedLine(line.path, line.line, line.text) for line in lines)
    attempt = replace(item.attempt, dropped=(*item.attempt.dropped, *dropped))
    # The attempt's own line is changed, because a new line would count as another attempt.
    if item.attempt.line() in before:
        change.files[relative] = before.replace(item.attempt.line(), attempt.line())
    else:
        change.files[relative] = ledgers.add(before, [attempt])
