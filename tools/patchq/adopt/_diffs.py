"""Conversion of other tools' diffs to the form of ``git diff``.

These forms are supported: ``diff -u``, ``Index:`` and Subversion headers, ``--no-prefix``, names with further leading
folders (``pkg-1.0.orig/src/a.c``), and CR LF line ends. Files are found by matching their names against the tree. Hunks
stay unchanged, apart from line ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from patchq.adopt.found import FoundPatch
from patchq.errors import FormatError
from patchq.formats.leftovers import end_of_hunk, leftovers, line_count
from patchq.names import counted, show_path

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_EXTENDED = re.compile(
    rb"(old mode|new mode|new file mode|deleted file mode|similarity index|dissimilarity index|rename from|rename to|"
    rb"copy from|copy to|index) "
)
#: Time that ``diff -N`` writes for a missing file, in any time zone.
_EPOCH = re.compile(rb"\t(?:1970-01-01 \d\d:00:00|1969-12-31 \d\d:00:00|Thu Jan  1 \d\d:00:00 1970)")
#: Line outside the hunks that looks like part of a damaged diff.
_DAMAGED = re.compile(
    rb"[ \t>]*(?:diff --git \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|GIT binary patch|(?:old|new) mode \d{6}|"
    rb"(?:new|deleted) file mode \d{6}|rename (?:from|to) \S|copy (?:from|to) \S|(?:literal|delta) \d+\r?$|"
    rb"index [0-9a-f]{7,64}\.\.[0-9a-f]{7,64}|(?:---|\+\+\+) [ab]/\S|old mode\r?$|new mode\r?$|"
    rb"(?:new|deleted) file(?: mode)?\r?$)|[+-](?!- ?\r?$|--)"
)
_MOST_SHOWN = 3


class OddDiff(Exception):
    """Diff that this module can't read but ``git apply`` may, such as a binary patch."""


@dataclass(slots=True, kw_only=True)
class Section:
    """Part of a diff that changes one file: its names as written, git's extended header, and the unchanged hunks."""

    old: bytes
    new: bytes
    extended: list[bytes] = field(default_factory=list)
    hunks: list[bytes] = field(default_factory=list)
    created: bool = False
    deleted: bool = False

    @property
    def fresh(self) -> bool:
        """True if the old file has no lines: it doesn't exist or is empty."""
        return self.created or (bool(self.hunks) and self.hunks[0].startswith(b"@@ -0,0 "))

    @property
    def renamed(self) -> bool:
        """True if git's header declares a rename or copy."""
        return self.has(b"rename ", b"copy ")

    def has(self, *starts: bytes) -> bool:
        """Return True if a line of git's extended header begins with one of the given texts."""
        return any(line.startswith(starts) for line in self.extended)


def sections(diff: bytes) -> list[Section]:
    """Split a diff into one section for each file.

    :raises OddDiff: for binary files, quoted names, a file name that no hunk follows, and hunks whose
        lines don't match their counts.
    """
    lines = diff.split(b"\n")
    found: list[Section] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"diff --git "):
            at = _git_section(lines, at, found)
        elif line.startswith(b"--- ") and at + 2 < len(lines) and lines[at + 1].startswith(b"+++ "):
            section = Section(old=b"", new=b"")
            at = _plain_section(lines, at, section)
            found.append(section)
        elif line.startswith((b"@@ -", b"GIT binary", b"Binary files ")):
            raise OddDiff
        else:
            at += 1
    return found


def _git_section(lines: Sequence[bytes], at: int, found: list[Section]) -> int:
    half = lines[at][11:]
    middle = len(half) // 2
    section = Section(old=half[:middle], new=half[middle + 1 :])
    at += 1
    while at < len(lines) and _EXTENDED.match(lines[at]):
        section.extended.append(lines[at])
        at += 1
    section.created = section.has(b"new file mode")
    section.deleted = section.has(b"deleted file mode")
    if at < len(lines) and lines[at].startswith((b"GIT binary", b"Binary files ")):
        raise OddDiff
    if at < len(lines) and lines[at].startswith(b"--- "):
        at = _plain_section(lines, at, section)
    elif section.renamed:
        names = {}
        for line in section.extended:
            if b" from " in line or b" to " in line:
                names[line.split(b" ")[1]] = line.split(b" ", 2)[2]
        # git writes the prefix in the first line, but not in the rename lines.
        prefix = b""
        if half.startswith(b"a/"):
            prefix = half.split(b"/")[0] + b"/"
        section.old = prefix + names.get(b"from", b"")
        section.new = prefix + names.get(b"to", b"")
    elif _tail(section.old) != _tail(section.new) or not section.extended:
        raise OddDiff
    if b'"' in section.old + section.new:
        raise OddDiff
    found.append(section)
    return at


def _tail(name: bytes) -> bytes:
    return name.split(b"/", 1)[-1]


def _plain_section(lines: Sequence[bytes], at: int, section: Section) -> int:
    if at + 1 == len(lines) or not lines[at + 1].startswith(b"+++ "):
        raise OddDiff
    old, new = lines[at][4:], lines[at + 1][4:]
    at += 2
    section.created |= old.split(b"\t")[0] == b"/dev/null" or bool(_EPOCH.search(old))
    section.deleted |= new.split(b"\t")[0] == b"/dev/null" or bool(_EPOCH.search(new))
    section.old = old.split(b"\t")[0].rstrip(b"\r")
    section.new = new.split(b"\t")[0].rstrip(b"\r")
    if re.search(rb" \d{4}-\d\d-\d\d ", section.old) or b'"' in section.old + section.new:
        raise OddDiff
    first = at
    while at < len(lines) and (match := _HUNK.match(lines[at])):
        end = end_of_hunk(lines, at + 1, line_count(match[2]), line_count(match[4]))
        if end is None:
            raise OddDiff
        section.hunks += lines[at:end]
        at = end
        after = b""
        if at < len(lines):
            after = lines[at].rstrip()
        if after[:1] in (b"+", b"-", b" ") and not lines[at].startswith((b"--- ", b"-- ")):
            raise OddDiff
    if at == first:
        raise OddDiff
    # A name or date can suggest a new or deleted file, but only the line counts are proof.
    if re.match(rb"@@ -0,0 ", section.hunks[0]) is None:
        section.created = False
    if re.match(rb"@@ -\S+ \+0,0 ", section.hunks[0]) is None:
        section.deleted = False
    return at


@dataclass(frozen=True, slots=True)
class Placing:
    """Mapping of a diff's file names to tree paths: remove ``strip`` leading folders, then prepend ``folder``."""

    strip: int = 1
    folder: str = ""

    def place(self, name: bytes) -> bytes:
        """Return the tree path of a name; empty if ``strip`` removes the whole name."""
        parts = [p for p in re.split(rb"/+", name.strip()) if p != b"."]
        kept = b"/".join(parts[self.strip :])
        if self.folder and kept:
            return self.folder.encode() + b"/" + kept
        return kept

    def __str__(self) -> str:
        words = []
        if self.strip != 1:
            words = [f"-p{self.strip}"]
        return " ".join([*words, *([f"--directory {self.folder}"] if self.folder else [])])


def _names(section: Section) -> list[bytes]:
    """Return the names that the old file may have in the tree; none for a new file."""
    if section.fresh:
        return []
    if section.renamed:
        both = [section.old]
    else:
        both = [section.new, section.old]
    return [name for name in both if name != b"/dev/null"]


def find_placing(
    found: Sequence[Section], files: Collection[bytes], given: Placing, *, exact: bool = False
) -> Placing | None:
    """Return the mapping that turns the names of a diff's changed files into paths of existing files in the tree.

    Try ``given``, then other strip levels, then each folder of the tree as a prefix. If no folder fits, or several
    folders fit, return None.

    :param exact: True if a recipe sets the strip level of ``given``. A diff that only adds files is then always read
        with this level.
    """
    there = list(filter(None, map(_names, found)))
    if not there:
        if not exact and given.strip == 1 and _unprefixed(found, files):
            return Placing(0, given.folder)
        return given
    if _fits(given, there, files):
        return given
    depth = 0
    for names in there:
        depth = max(depth, *(name.count(b"/") for name in names))
    for strip in range(depth + 1):
        placing = Placing(strip, given.folder)
        if _fits(placing, there, files):
            return placing
    for strip in (1, 0):
        placings = _in_common_folder(strip, there, files)
        if len(placings) == 1:
            return placings[0]
        if placings:
            return None
    return None


def _fits(placing: Placing, there: Sequence[Sequence[bytes]], files: Collection[bytes]) -> bool:
    """Return True if the tree contains, for each section, a file with one of the section's names."""

    def has_file(names: Sequence[bytes]) -> bool:
        return any(placing.place(name) in files for name in names)

    return all(map(has_file, there))


def _in_common_folder(strip: int, there: Sequence[Sequence[bytes]], files: Collection[bytes]) -> list[Placing]:
    """Return the mappings with this strip level and one common folder under which all files exist in the tree."""
    tails = set(map(Placing(strip).place, there[0]))
    folders = set()
    for tail in tails - {b""}:
        for path in files:
            if path.endswith(b"/" + tail):
                folders.add(path[: -len(tail) - 1])
    placings = []
    for folder in sorted(folders):
        placing = Placing(strip, folder.decode("utf-8", "surrogateescape"))
        if _fits(placing, there, files):
            placings.append(placing)
    return placings


def _unprefixed(found: Sequence[Section], files: Collection[bytes]) -> bool:
    """Return True if the names of new files begin with folders of the tree, not with a prefix such as ``a/``.

    For a diff that only adds files, the tree doesn't show the strip level. With ``-p1``, ``src/new.c`` would become
    ``new.c``.
    """
    tops = set()
    for path in files:
        top, slash, _ = path.partition(b"/")
        if slash and top not in (b"a", b"b"):
            tops.add(top)
    for section in found:
        name = section.old if section.new == b"/dev/null" else section.new
        top, slash, _ = name.partition(b"/")
        if not slash or top not in tops:
            return False
    return bool(found)


def as_git(found: Sequence[Section], placing: Placing, files: Collection[bytes]) -> bytes:
    """Return a diff in git's form, with its file names mapped to tree paths.

    :raises OddDiff: if a name is empty after stripping, or needs quotes.
    """
    out: list[bytes] = []
    for section in found:
        old, new = _placed(placing, section.old), _placed(placing, section.new)
        if not section.renamed:
            old = new = _changed_file(new, old, files, fresh=section.fresh)
        if not old or not new or re.search(rb'["\\\x00-\x1f\x7f]', old + new):
            raise OddDiff
        created = section.created or (section.fresh and old not in files)
        out.append(b"diff --git a/%s b/%s" % (old, new))
        extended = []
        for line in section.extended:
            if not line.startswith((b"rename ", b"copy ")):
                extended.append(line)
        if created and not section.has(b"new file"):
            extended.insert(0, b"new file mode 100644")
        if section.deleted and not section.has(b"deleted"):
            extended.insert(0, b"deleted file mode 100644")
        if section.renamed:
            word = b"copy" if section.has(b"copy ") else b"rename"
            at = 0
            while at < len(extended) and not extended[at].startswith(b"index "):
                at += 1
            extended[at:at] = [word + b" from " + old, word + b" to " + new]
        out += extended
        if section.hunks:
            out.append(b"--- /dev/null" if created else b"--- a/" + _named(old))
            out.append(b"+++ /dev/null" if section.deleted else b"+++ b/" + _named(new))
            out += section.hunks
    if out:
        return b"\n".join(out) + b"\n"
    return b""


def _placed(placing: Placing, name: bytes) -> bytes:
    """Return the tree path of a name; empty for ``/dev/null``."""
    if name == b"/dev/null":
        return b""
    return placing.place(name)


def _changed_file(new: bytes, old: bytes, files: Collection[bytes], *, fresh: bool) -> bytes:
    """Return the path of the file that a section changes; empty if the section names no file.

    Like ``patch``, prefer an existing file, then the shorter name. The longer name often belongs to a backup such as
    ``x.orig``.

    :param fresh: True if the file is new.
    """
    names = list(filter(None, (new, old)))
    known = [name for name in names if fresh or name in files]
    return min(known or names, key=_length, default=b"")


def _length(name: bytes) -> tuple[int, int, int]:
    return name.count(b"/"), len(name.rsplit(b"/", 1)[-1]), len(name)


def _named(name: bytes) -> bytes:
    """Return a name as it is written after ``---`` or ``+++``.

    Like git, end a name that contains a blank with a tab.
    """
    if b" " in name:
        return name + b"\t"
    return name


def without_returns(diff: bytes) -> bytes:
    """Return a diff with LF line ends instead of CR LF."""
    return diff.replace(b"\r\n", b"\n")


def name_leftovers(found: FoundPatch) -> FoundPatch:
    """Return a patch with a note that quotes the lines outside its diff.

    If one of these lines looks like part of a damaged diff, set ``problem`` instead.
    """
    if found.left_out or found.problem or not found.diff:
        return found
    left = leftovers(found.diff)
    for number, line in left:
        if _DAMAGED.match(line):
            error = FormatError(
                f"{found.where}: line {number} of the diff is damaged, and git would skip it: {show_path(line[:60])}",
                hint="remove the text before this line, or restore the lines missing above it",
            )
            return replace(found, problem=error)
    if not left:
        return found
    lines = []
    for _, line in left[:_MOST_SHOWN]:
        lines.append(repr(line.decode("utf-8", "replace").strip()[:60]))
    shown = ", ".join(lines)
    if len(left) > _MOST_SHOWN:
        shown += f" and {counted(len(left) - _MOST_SHOWN, 'more line')}"
    return replace(found, notes=(*found.notes, f"{found.where}: left out, because it isn't part of the diff: {shown}"))
