"""Git diffs, parsed and applied in process with the exact semantics of ``git apply``.

With git, each patch would take up to three processes, which would make patchq slow. Applying in process is safe
because this module reads only what ``git diff`` writes. For any other diff, :class:`Unsupported` is raised, and the
caller runs git for that patch. Examples are headers that contradict each other, binary patches, submodules, a path
that occurs twice, and text between two files' diffs. Hunks are placed by the rules of git's ``apply.c`` (search order,
anchoring, no overlap, no fuzz). ``tests/reliability/differential.py`` compares the results of this module and git for
damaged diffs. docs/reference/formats.md lists the diffs that git accepts but this module refuses, with the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field

from patchq.errors import ConflictKind, FormatError
from patchq.formats._diffheader import FileHeader, read_header, read_paths
from patchq.formats.leftovers import leftovers
from patchq.formats.treepath import check_tree_path, is_for_git
from patchq.names import show_path
from patchq.records import dataclass

REGULAR, EXECUTABLE, SYMLINK, GITLINK = b"100644", b"100755", b"120000", b"160000"


class Unsupported(Exception):
    """Error for a diff that only git can apply.

    ``files`` contains the parsed files if git is needed only for a binary patch; otherwise, it is None.
    """

    def __init__(self, reason: str, files: Sequence[FilePatch] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.files = reason, files


class Mismatch(Exception):
    """Error for a change of a file that doesn't apply.

    ``hunk`` is the hunk that doesn't apply; None if the cause is the whole file, such as a missing file. ``places`` are
    the lines (from 1) at which the hunk fits, if there are several. ``kind`` is the kind of conflict to report.
    """

    def __init__(
        self,
        reason: str,
        hunk: Hunk | None = None,
        places: Sequence[int] = (),
        kind: ConflictKind = ConflictKind.LINES,
    ) -> None:
        super().__init__(reason)
        self.reason, self.hunk, self.places, self.kind = reason, hunk, tuple(places), kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunk:
    """Hunk of a diff.

    ``old`` and ``new`` are the lines before and after the change, with context lines and line ends. ``context`` is the
    number of context lines. ``trailing`` is the number of context lines after the last change.
    """

    header: bytes
    old_start: int
    new_start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    trailing: int
    context: int


@dataclass(slots=True, kw_only=True)
class FilePatch:
    """Changes to one file: one ``diff --git`` block of a diff.

    Paths don't include ``a/`` and ``b/``. A path of None means that the file doesn't exist on that side.
    """

    old_path: bytes | None
    new_path: bytes | None
    old_mode: bytes | None = None
    new_mode: bytes | None = None
    copy: bool = False
    binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def paths(self) -> set[bytes]:
        """Old and new path of the file, without None."""
        return {p for p in (self.old_path, self.new_path) if p is not None}

    @property
    def path(self) -> bytes:
        """Path of the file, for messages."""
        return self.new_path or self.old_path or b""


_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: .*)?")
_NO_NEWLINE = b"\\ No newline at end of file"
#: Line beginnings at which git starts to read, whatever precedes them.
_STARTS = (b"diff ", b"--- ", b"+++ ", b"@@ -")


def parse(data: bytes, where: str) -> list[FilePatch]:
    """Parse the diff of a patch file.

    :param where: name of the patch file, for error messages.
    :raises FormatError: for a path that leaves the tree, or a line of the diff that git would skip.
    :raises Unsupported: for a diff that only git can interpret. Some paths of the diff may not have been checked.
    """
    lines = data.split(b"\n")
    if lines.pop():
        raise Unsupported("its last line has no newline")
    at, end = _end_of_text(lines, where), len(lines)
    if at == end:
        if any(lines) and not _is_signature(lines, 0):
            raise Unsupported("there is text, but no diff")
        return []
    files: list[FilePatch] = []
    paths: set[bytes] = set()
    reasons: list[str] = []
    while at < end and lines[at].startswith(b"diff --git "):
        about, file, at = _parse_header(lines, at, where)
        reasons.append(_for_git(file, paths))
        for path in file.paths:
            paths.add(check_tree_path(path, where))
        if about.hunks:
            at = _parse_hunks(file, lines, at, where)
        elif about.binary:
            at = _end_of_binary(lines, at)
        files.append(file)
    for number in range(at, end):
        _refuse_damaged(lines[number], number, where)
    if at < end and not _is_signature(lines, at):
        raise Unsupported(f"line {at + 1} is not a line of a diff")
    _leave_to_git(reasons, files)
    return files


def paths_of(data: bytes) -> set[bytes]:
    """Return the paths of all files in a diff, even if only git can apply the diff."""
    lines = data.split(b"\n")
    found: set[bytes] = set()
    for at, line in enumerate(lines):
        if line.startswith(b"diff --git "):
            found |= read_paths(lines, at)
    return found


def _end_of_text(lines: Sequence[bytes], where: str) -> int:
    """Return the index of the first line that git reads as a diff."""
    for at, line in enumerate(lines):
        if line.startswith(_STARTS):
            return at
        _refuse_damaged(line, at, where)
    return len(lines)


def _end_of_binary(lines: Sequence[bytes], at: int) -> int:
    """Return the index of the next ``diff --git`` line; the number of lines if there is none."""
    while at < len(lines) and not lines[at].startswith(b"diff --git "):
        at += 1
    return at


def _parse_header(lines: Sequence[bytes], at: int, where: str) -> tuple[FileHeader, FilePatch, int]:
    """Return the header at ``lines[at]``, a :class:`FilePatch` without hunks for it, and the index of the next line."""
    found = read_header(lines, at)
    if found is None:
        raise Unsupported(f"the header in line {at + 1} is not as git writes it")
    header, after = found
    file = FilePatch(
        old_path=header.old_path,
        new_path=header.new_path,
        old_mode=header.old_mode,
        new_mode=header.new_mode,
        copy=header.copy,
        binary=header.binary,
    )
    if file.new_mode == SYMLINK and file.old_path is None and not header.hunks and not file.binary:
        raise FormatError(
            f"{where}: {show_path(file.path)} is a symlink without a target, which no file system can store",
            hint="restore the symlink's hunk; the patch file may be truncated",
        )
    return header, file, after


#: Line of a diff that a mail program has indented or quoted (``> @@ -1 +1 @@``). git skips such a line.
_DAMAGED = re.compile(rb"[ \t>]+(?:diff --git \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|GIT binary patch)")


def _refuse_damaged(line: bytes, at: int, where: str) -> None:
    """Raise FormatError if ``line`` is an indented or quoted line of a diff, which git would skip as text."""
    if _DAMAGED.match(line):
        raise FormatError(
            f"{where}: line {at + 1} of its diff is indented or quoted, and git would skip it: {show_path(line[:60])}",
            hint="remove the blanks or `>` at the start of this line, and of the lines in its hunks",
        )


def refuse_damaged(diff: bytes, where: str) -> None:
    """Refuse a diff if git would ignore part of it. Call this before git applies a diff.

    :raises FormatError: if a line outside hunks is an indented or quoted line of a diff, or if a file header has no
        change after it.
    """
    for number, line in leftovers(diff):
        _refuse_damaged(line, number - 1, where)
        if line.startswith((b"GIT binary patch", b"diff --git ")):
            raise FormatError(
                f"{where}: line {number} of its diff is a file header without a change after it, or a change without "
                f"a file header before it; git would skip this line: {show_path(line[:60])}",
                hint="restore the patch file, or make the change in the worktree",
            )


_BINARY = "a binary patch"


def _for_git(file: FilePatch, seen: set[bytes]) -> str:
    """Return the reason why only git can apply a file's change; empty if this module can apply it."""
    if not file.paths.isdisjoint(seen):
        return "the patch contains a path twice"
    if GITLINK in (file.old_mode, file.new_mode):
        return "a submodule"
    if (
        file.new_path
        and file.old_path != file.new_path
        and file.new_mode in (None, SYMLINK)
        and is_for_git(file.new_path)
    ):
        return "a file that git reads is replaced by a symbolic link"
    if file.binary:
        return _BINARY
    return ""


def _leave_to_git(reasons: Sequence[str], files: Sequence[FilePatch]) -> None:
    """Raise Unsupported if only git can apply one of the changes.

    A binary patch is the weakest reason: the caller checks the places of the other files' hunks in process.
    """
    for reason in reasons:
        if reason and reason != _BINARY:
            raise Unsupported(reason)
    if _BINARY in reasons:
        raise Unsupported(_BINARY, files)


def _is_signature(lines: Sequence[bytes], at: int) -> bool:
    """Return True if the lines from ``at`` on are blank or a mail signature, and contain no start of a diff."""
    rest = []
    for line in lines[at:]:
        if line.strip():
            rest.append(line)
    return not rest or (
        rest[0] in (b"-- ", b"---") and not any(line.startswith(_STARTS) for line in rest[1:]) and len(rest) < 9
    )


def _parse_hunks(file: FilePatch, lines: Sequence[bytes], at: int, where: str) -> int:
    end = len(lines)
    while at < end and lines[at].startswith(b"@@ -"):
        at = _parse_hunk(file, lines, at)
        header = file.hunks[-1].header
        if at < end and lines[at][:1] in (b" ", b"+", b"-") and lines[at] != b"-- ":
            raise FormatError(
                f"{where}: {show_path(file.path)}: {_show(header)} has more lines than its header says; "
                "git would silently skip them",
                hint=f"check {where}:{at + 1}; if you edited the hunk by hand, its header needs new line counts "
                "(`patchq export` writes them)",
            )
    if (file.old_path is None or file.new_path is None) and (
        len(file.hunks) > 1 or any(h.old if file.old_path is None else h.new for h in file.hunks)
    ):
        raise Unsupported(f"{show_path(file.path)}: a new file with old lines, or a removed file with new lines")
    return at


def _parse_hunk(file: FilePatch, lines: Sequence[bytes], at: int) -> int:
    """Parse the hunk whose header is ``lines[at]``, and add it to the file.

    :returns: the index of the line after the hunk.
    """
    end = len(lines)
    match = _HUNK.fullmatch(lines[at])
    if not match:
        raise Unsupported(f"the hunk's header in line {at + 1} is not as git writes it")
    header, begin = lines[at], at + 1
    a, b, c, d = match.groups()
    old_left, new_left = int(b) if b is not None else 1, int(d) if d is not None else 1
    old: list[bytes] = []
    new: list[bytes] = []
    context = trailing = 0
    at += 1
    while old_left > 0 or new_left > 0:
        line = b"?"
        if at < end:
            line = lines[at]
        kind = line[:1]
        if (kind == b" " or not kind) and old_left > 0 and new_left > 0:
            # Some mailers drop the blank of an empty context line; git accepts that.
            text = line[1:] + b"\n"
            old.append(text)
            new.append(text)
            old_left, new_left = old_left - 1, new_left - 1
            trailing += 1
            context += 1
        elif kind == b"-" and old_left > 0:
            old.append(line[1:] + b"\n")
            old_left, trailing = old_left - 1, 0
        elif kind == b"+" and new_left > 0:
            new.append(line[1:] + b"\n")
            new_left, trailing = new_left - 1, 0
        elif kind == b"\\" and at > begin and line == _NO_NEWLINE:
            _drop_newline(lines[at - 1], old, new, old_left, new_left)
        else:
            raise Unsupported(
                f"{show_path(file.path)}: {_show(header)} is damaged: its line counts don't match its lines"
            )
        at += 1
    if at < end and lines[at] == _NO_NEWLINE:
        _drop_newline(lines[at - 1], old, new, 0, 0)
        at += 1
    if context == len(old) == len(new):
        raise Unsupported(f"{show_path(file.path)}: {_show(header)} changes nothing")
    file.hunks.append(
        Hunk(
            header=header,
            old_start=int(a),
            new_start=int(c),
            old=tuple(old),
            new=tuple(new),
            trailing=trailing,
            context=context,
        )
    )
    return at


def _show(header: bytes) -> str:
    return f"the hunk {header.decode('utf-8', 'replace')!r}"


def _drop_newline(above: bytes, old: list[bytes], new: list[bytes], old_left: int, new_left: int) -> None:
    """Remove the newline from the line ``above`` a ``No newline at end of file`` line.

    :raises Unsupported: if ``above`` isn't the last old line or the last new line of the hunk.
    """
    kind = above[:1]
    if kind not in (b" ", b"-", b"+") or (kind != b"+" and old_left) or (kind != b"-" and new_left):
        raise Unsupported("a line before the last one has no newline")
    if kind != b"+":
        old[-1] = old[-1].removesuffix(b"\n")
    if kind != b"-":
        new[-1] = new[-1].removesuffix(b"\n")


def split_lines(content: bytes) -> list[bytes]:
    """Return the lines of a file, including line ends. Only LF ends a line, as in git."""
    lines = content.split(b"\n")
    last = lines.pop()
    found = [line + b"\n" for line in lines]
    if last:
        found.append(last)
    return found


def apply_hunks(hunks: Sequence[Hunk], content: bytes) -> tuple[bytes, list[tuple[Hunk, int]]]:
    """Apply the hunks of one file to its content.

    :returns: the new content, and the hunks that applied at another line than their header states, each with its
        offset in lines.
    :raises Mismatch: for the first hunk whose place is unclear: its old lines are not in the file, or they are at
        several places, but not at the line that the header states. git would choose the nearest of these places.
    """
    image = split_lines(content)
    # A later hunk can't match lines that an earlier hunk wrote (git: LINE_PATCHED).
    done: list[tuple[int, int]] = []
    moved: list[tuple[Hunk, int]] = []
    for hunk in hunks:
        want = max(hunk.new_start - 1, 0)
        at = _find(hunk, image, want, done)
        if at < 0:
            raise Mismatch("the hunk's old lines are not in the file", hunk)
        if at != want:
            places = _places(hunk, image, done)
            if len(places) > 1:
                raise Mismatch(
                    f"the hunk's old lines are in more than one place (lines {_and(places)}), but not in line "
                    f"{want + 1}, where the header places them; git would guess line {at + 1}",
                    hunk,
                    places,
                )
            moved.append((hunk, at - want))
        grown = len(hunk.new) - len(hunk.old)
        image[at : at + len(hunk.old)] = hunk.new
        if grown:
            done = [(a + grown, b + grown) if a >= at + len(hunk.old) else (a, b) for a, b in done]
        done.append((at, at + len(hunk.new)))
    return b"".join(image), moved


def _and(places: Sequence[int]) -> str:
    more = ""
    if len(places) > 8:
        more = f" and {len(places) - 8} more"
    names = [str(place) for place in places[:8]]
    if more:
        return ", ".join(names) + more
    return ", ".join(names[:-1]) + " and " + names[-1]


def _fits(hunk: Hunk, image: list[bytes], at: int, done: Sequence[tuple[int, int]]) -> bool:
    """Return True if the hunk's old lines are at index ``at`` of ``image``, and git would accept this place.

    :param done: line ranges that earlier hunks wrote. A hunk can't match these lines.
    """
    size, total = len(hunk.old), len(image)
    if at + size > total or (hunk.trailing == 0 and at + size != total) or (hunk.old_start <= 1 and at):
        return False
    if not size:
        return True
    if (image[at] != hunk.old[0] and size > 1) or any(a < at + size and at < b for a, b in done):
        return False
    return tuple(image[at : at + size]) == hunk.old or _glues(hunk, image, at)


def _glues(hunk: Hunk, image: list[bytes], at: int) -> bool:
    """Raise Mismatch if the hunk's last context line has no newline, but this line of the file has a newline.

    git would accept such a hunk, and continue in the middle of the file's line.

    :returns: False for any other hunk.
    """
    if hunk.trailing == 0 or hunk.old[-1].endswith(b"\n"):
        return False
    there = tuple(image[at : at + len(hunk.old)])
    short, long = hunk.old[-1], there[-1]
    if there[:-1] == hunk.old[:-1] and long.startswith(short) and not long[len(short) :].strip(b" \t\r\n\0"):
        raise Mismatch("the hunk's last line has no newline, but this line of the file has a newline", hunk)
    return False


def _find(hunk: Hunk, image: list[bytes], want: int, done: Sequence[tuple[int, int]]) -> int:
    """Return the index at which the hunk's old lines begin in the file; -1 if the file doesn't contain them.

    Search outward from ``want``, in the same order as git.
    """
    total = len(image)
    if hunk.old_start <= 1:
        line = 0
    elif hunk.trailing == 0:
        line = total - len(hunk.old)
    else:
        line = want
    if not 0 <= line <= total:
        line = total
    if _fits(hunk, image, line, done):
        return line
    return next((at for at in _around(line, total) if _fits(hunk, image, at, done)), -1)


def _places(hunk: Hunk, image: list[bytes], done: Sequence[tuple[int, int]]) -> list[int]:
    """Return all line numbers (from 1) at which the hunk's old lines begin."""
    places: list[int] = []
    for at in range(len(image) - len(hunk.old) + 1):
        if _fits(hunk, image, at, done):
            places.append(at + 1)
    return places


def _around(line: int, total: int) -> Iterator[int]:
    """Yield line numbers in increasing distance from ``line``; at equal distance, the later line first."""
    back, forward = line, line
    while back > 0 or forward < total:
        if forward < total:
            forward += 1
            yield forward
        if back > 0:
            back -= 1
            yield back
