"""What happens to a diff on its way: by hand, by mailers, by those who mean harm."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_HEADERS = (b"diff --git ", b"index ", b"--- ", b"+++ ", b"old mode ", b"new mode ", b"deleted file mode ", b"new file mode ",
            b"similarity index ", b"dissimilarity index ", b"rename ", b"copy ")  # fmt: skip
NO_NEWLINE = b"\\ No newline at end of file"
#: Header lines that may be put anywhere.
LINES = [
    b"deleted file mode 100644", b"new file mode 100644", b"new file mode 100755", b"new file mode 120000", b"old mode 100644",
    b"new mode 100755", b"new mode 120000", b"old mode 100755", b"rename from a.txt", b"rename to b.txt", b"rename from d/g",
    b"rename to moved", b"rename old a.txt", b"rename new moved", b"copy from a.txt", b"copy to b.txt", b"copy to copied",
    b"similarity index 100%", b"similarity index 7", b"dissimilarity index 90%", b"index 1234567..89abcde 100644",
    b"index 1234567..89abcde 100755", b"index 1234567..89abcde 120000", b"index 0..0", b"index zzz", b"index 1234567..89abcde",
    b"--- a/a.txt", b"+++ b/a.txt", b"--- /dev/null", b"+++ /dev/null", b"--- a/b.txt", b"+++ b/b.txt", b"@@ -1 +1 @@",
    b"@@ -0,0 +1 @@", b"@@ -1,2 +1,2 @@ def", b"diff --git a/a.txt b/a.txt", b"diff --git a/a.txt b/b.txt", b"GIT binary patch",
    b"Binary files a/a.txt and b/a.txt differ", b"", b" ", b"+", b"-", b"-- ", b"2.39.5", b"garbage", NO_NEWLINE, b"\\", b"\\ x",
    b"Index: a.txt", b"=" * 67, b"---", b"+++", b"@@", b"diff -u a.txt b.txt", b"Only in d: x", b"\r", b" a", b"+a", b"-a",
    b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001", b"new file mode 160000", b"old mode 100666",
    b"new mode 0100755", b"deleted file mode 120000", b"index 1234567..89abcde 160000", b"\\ Kein Zeilenumbruch am Ende",
]  # fmt: skip
PATHS = [b"a.txt", b"b.txt", b"d/a.txt", b"d", b"d/g/h", b"link", b"link/x", b"new.txt", b"empty", b"run.sh", b"with space.txt",
         b"/a.txt", b"../a.txt", b".git/x", b"./a.txt", b"d//a.txt", b"a.txt/", b"", b"d/../a.txt", b"A.TXT",
         b".git::$INDEX_ALLOCATION/x", b".gitmodules", b"\"a.txt\"", b"dev/null"]  # fmt: skip


def _choose(dice: random.Random, lines: Sequence[bytes], test: Callable[[bytes], object]) -> int | None:
    found = [n for n, line in enumerate(lines) if test(line)]
    return dice.choice(found) if found else None


def _is_header(line: bytes) -> bool:
    return line.startswith(_HEADERS)


def _numbers(dice: random.Random, lines: list[bytes]) -> None:
    """A hunk's header: other numbers."""
    at = _choose(dice, lines, _HUNK.match)
    if at is None:
        return
    match = _HUNK.match(lines[at])
    assert match
    values = [int(match[i]) if match[i] is not None else 1 for i in (1, 2, 3, 4)]
    for _ in range(dice.choice([1, 1, 2])):
        which = dice.randrange(4)
        values[which] = max(0, values[which] + dice.choice([-7, -3, -1, -1, 1, 1, 2, 5, 30]))
    if dice.random() < 0.2:
        values[dice.randrange(4)] = dice.choice([0, 0, 1, 1, 99999, 10**9 + 1, 2**31, 2**32 + 1, 2**64, 2**64 + 1])
    text = b"@@ -%d,%d +%d,%d @@" % tuple(values)
    if dice.random() < 0.3:
        text = text.replace(b",1 ", b" ")
    lines[at] = text + match[5]


def _odd_hunk_header(dice: random.Random, lines: list[bytes]) -> None:
    at = _choose(dice, lines, _HUNK.match)
    if at is not None:
        line = lines[at]
        lines[at] = dice.choice([
            line.replace(b"@@ -", b"@@ - ", 1), line.replace(b" @@", b" @@@", 1), line + b"\r", line.replace(b" @@", b"@@", 1),
            line.replace(b" +", b"  +", 1), line.replace(b"-", b"-0", 1), b" " + line, line.replace(b" @@", b" @@x", 1),
            line.replace(b",", b", ", 1), line.replace(b"-", b"+", 1), line.partition(b" @@")[0], line.replace(b"+", b"-", 1),
        ])  # fmt: skip


def _shift(dice: random.Random, lines: list[bytes]) -> None:
    """All line numbers of a hunk by as much: an offset."""
    at = _choose(dice, lines, _HUNK.match)
    if at is None:
        return
    match = _HUNK.match(lines[at])
    assert match
    by = dice.choice([-20, -5, -2, -1, 1, 2, 5, 20])
    old, new = max(0, int(match[1]) + by), max(0, int(match[3]) + by)
    lines[at] = b"@@ -%d,%s +%d,%s @@%s" % (old, match[2] or b"1", new, match[4] or b"1", match[5])


def _hunks(dice: random.Random, lines: list[bytes]) -> None:
    """Hunks taken out, doubled, swapped."""
    starts = [n for n, line in enumerate(lines) if _HUNK.match(line)]
    if not starts:
        return
    spans = []
    for start in starts:
        end = start + 1
        while end < len(lines) and lines[end][:1] in (b" ", b"+", b"-", b"\\", b""):
            end += 1
        spans.append((start, end))
    start, end = dice.choice(spans)
    kind = dice.randrange(3)
    if kind == 0:
        del lines[start:end]
    elif kind == 1:
        lines[end:end] = lines[start:end]
    elif len(spans) > 1:
        (a, b), (c, d) = sorted(dice.sample(spans, 2))
        lines[a:d] = [*lines[c:d], *lines[b:c], *lines[a:b]]


def _body(dice: random.Random, lines: list[bytes]) -> None:
    """A line of a hunk: another kind, gone, doubled, edited, without its blank."""
    at = _choose(dice, lines, lambda s: s[:1] in (b" ", b"+", b"-") and not s.startswith((b"--- ", b"+++ ")))
    if at is None:
        return
    kind, line = dice.randrange(8), lines[at]
    if kind == 0:
        lines[at] = dice.choice([b" ", b"+", b"-"]) + line[1:]
    elif kind == 1:
        del lines[at]
    elif kind == 2:
        lines.insert(at, line)
    elif kind == 3:
        lines[at] = line + dice.choice([b" ", b"\r", b"x", b"\t"])
    elif kind == 4:
        lines[at] = line[1:]
    elif kind == 5:
        lines[at] = b"" if line == b" " else line[:1]
    elif kind == 6:
        lines.insert(at + 1, NO_NEWLINE)
    else:
        lines[at] = b" " + line


def _header(dice: random.Random, lines: list[bytes]) -> None:
    """A header line: gone, doubled, moved, with a CR, a tab, another prefix, another path."""
    at = _choose(dice, lines, _is_header)
    if at is None:
        return
    kind, line = dice.randrange(14), lines[at]
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, line)
    elif kind == 2 and at + 1 < len(lines):
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    elif kind == 3:
        lines[at] = line + dice.choice(
            [b"\r", b"\t", b" ", b"\t2026-01-02 03:04:05.000000000 +0100", b"x", b"\t1970-01-01 00:00:00 +0000"]
        )
    elif kind == 4:
        lines[at] = line.replace(b" a/", dice.choice([b" ", b" b/", b" x/", b" a//", b" a/./", b" /a/", b' "a/']), 1)
    elif kind == 5:
        lines[at] = line.replace(b" b/", dice.choice([b" ", b" a/", b" x/", b" b//", b" b/./", b" /b/", b' "b/']), 1)
    elif kind == 6:
        head = next(h for h in _HEADERS if line.startswith(h))
        path = dice.choice(PATHS)
        rest = {b"--- ": b"a/" + path, b"+++ ": b"b/" + path, b"diff --git ": b"a/%s b/%s" % (path, path)}
        lines[at] = head + rest.get(head, path)
    elif kind == 7:
        # One path for another all through, as somebody who renames by hand does.
        old, new = dice.choice(PATHS), dice.choice(PATHS)
        for number, other in enumerate(lines):
            if _is_header(other):
                lines[number] = other.replace(b"/" + old, b"/" + new) if old else other
    elif kind == 8:
        lines[at] = line.replace(
            b"100644", dice.choice([b"100755", b"120000", b"160000", b"100664", b"644", b"", b"100644 x"])
        )
    elif kind == 9:
        # Git would not quote these; it reads them all the same.
        words = line.split(b" ")
        words[-1] = (
            b'"'
            + words[-1].replace(b"a", dice.choice([b"a", b"\\141", b"\\x61", b"\\a"]), 1)
            + dice.choice([b'"', b""])
        )
        lines[at] = b" ".join(words)
    elif kind == 10:
        lines[at] = line.upper() if dice.random() < 0.3 else line.replace(b" ", b"  ", 1)
    elif kind == 11:
        lines[at] = dice.choice([b"--- /dev/null", b"+++ /dev/null"])
    elif kind == 12:
        lines[at] = line[: dice.randint(0, len(line))]
    else:
        lines[at] = dice.choice(LINES)


def _put(dice: random.Random, lines: list[bytes]) -> None:
    """A line where none was."""
    near = _choose(dice, lines, lambda s: _is_header(s) or _HUNK.match(s)) if dice.random() < 0.7 else None
    at = dice.randint(0, len(lines)) if near is None else near + dice.randint(0, 1)
    lines.insert(at, dice.choice(LINES))


def _lines(dice: random.Random, lines: list[bytes]) -> None:
    """Any line gone, doubled or swapped with the next."""
    if len(lines) < 2:
        return
    at = dice.randrange(len(lines) - 1)
    kind = dice.randrange(3)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    else:
        lines[at], lines[at + 1] = lines[at + 1], lines[at]


def _blanks(dice: random.Random, lines: list[bytes]) -> None:
    """A mailer that cuts blanks at line ends, one that sends CRLF, one that turns tabs into blanks."""
    kind = dice.randrange(4)
    change: Callable[[bytes], bytes] = [
        lambda s: s.rstrip(), lambda s: s + b"\r", lambda s: s.replace(b"\t", b"    "), lambda s: b"" if s == b" " else s,
    ][kind]  # fmt: skip
    lines[:-1] = [change(line) for line in lines[:-1]]


KINDS = [_numbers, _numbers, _odd_hunk_header, _shift, _shift, _shift, _shift, _hunks, _body, _body, _header, _header, _header, _header, _put, _put,
         _lines, _blanks]  # fmt: skip


def damage(dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """``data`` damaged in none to four ways; ``others`` are diffs that may be put behind it."""
    if dice.random() < 0.05:
        data += dice.choice(others)
    lines = data.split(b"\n")
    for _ in range(dice.choice([0, 0, 0, 1, 1, 1, 1, 2, 3, 4])):
        dice.choice(KINDS)(dice, lines)
    data = b"\n".join(lines)
    if dice.random() < 0.03:
        at = dice.randint(0, len(data))
        data = data[:at] if dice.random() < 0.5 else data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
    return data
