"""File ``series``, which defines the order of a stack. Each line is a patch name; ``#`` starts a comment.

The format is that of quilt, so quilt can read the file, too. Comments and blank lines are kept when the file
is rewritten. A ``series`` with git's conflict markers is refused, and the error lists the patches of each
side. If both sides only add lines, :func:`unite` combines them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from patchq.errors import FormatError
from patchq.names import sh
from patchq.records import dataclass
from patchq.system.paths import check_name, find_twins

SUFFIX = ".patch"
#: Limits: patches in a stack, and bytes of a series file.
MOST, MOST_BYTES = 100_000, 16 << 20
_MARKER = re.compile(r"(<{7}|\|{7}|={7}|>{7})(?: (.*))?")


class SeriesConflictError(FormatError):
    """Error for a ``series`` file with git's conflict markers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeriesConflict:
    """Both versions of a ``series`` file with conflict markers.

    :ivar base: lines of the common ancestor. Inside a conflict, only git's ``diff3`` style contains these lines.
    :ivar only: for each side, its lines between the conflict markers.
    """

    labels: tuple[str, str]
    ours: list[str]
    theirs: list[str]
    base: list[str]
    only: tuple[list[str], list[str]]

    def __str__(self) -> str:
        sides = []
        for label, lines in zip(self.labels, self.only, strict=True):
            names = []
            for line in lines:
                if name := _name_of(line):
                    names.append(name)
            sides.append(f"{label} has {', '.join(names) or 'no patch'}")
        return "; ".join(sides)


@dataclass(frozen=True, slots=True)
class Series:
    """Parsed ``series``. ``names`` are the patch names without their suffix, in order."""

    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def with_names(self, names: Sequence[str]) -> Series:
        """Return a series with these patches in this order, and with the comments of this series.

        A comment stays above its patch. Comments of a removed patch move to the next patch.
        """
        above: dict[str, list[str]] = {}
        pending: list[str] = []
        kept = set(names)
        for line in self.lines:
            name = _name_of(line)
            if name is None:
                pending.append(line)
            elif name not in kept:
                if "#" in line:
                    pending += [f"#{line.split('#', 1)[1]}"]
            else:
                above[name] = [*pending, line]
                pending = []
        lines: list[str] = []
        for name in names:
            lines += above.get(name, [name + SUFFIX])
        return Series(tuple(names), tuple(lines + pending))

    def dump(self) -> bytes:
        """Return the contents of the file."""
        return "".join(line + "\n" for line in self.lines).encode()


def _name_of(line: str) -> str | None:
    text = line.split("#", 1)[0].strip()
    if text:
        return text.removesuffix(SUFFIX)
    return None


def parse(data: bytes, where: str) -> Series:
    """Parse a ``series`` file.

    :param where: name of the file, for error messages.
    :raises FormatError: for an invalid name, a repeated name, or quilt options (``-p0``).
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8: {error}", hint=f"rewrite {where} as UTF-8") from None
    lines = tuple(text.splitlines())
    if conflict := _conflict(lines):
        raise SeriesConflictError(
            f"{where} has a merge conflict: {conflict}",
            hint="`patchq check --fix` keeps both sides if they only add lines; otherwise, remove the marker lines by "
            f"hand; to keep one side, run `git checkout --ours {sh(where)}` or `git checkout --theirs {sh(where)}`",
        )
    names: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        name = _name_of(line)
        if name is None:
            continue
        if " " in name or "\t" in name:
            raise FormatError(
                f"{where}:{number}: {name!r}: options after a name are not supported",
                hint="adopt such a series with `patchq import`, which rewrites its patches",
            )
        check_name(name, f"a patch ({where}:{number})")
        if name in names:
            raise FormatError(f"{where}:{number}: {name} is listed twice", hint=f"edit {where}")
        if len(names) == MOST:
            raise FormatError(
                f"{where}: more than {MOST} patches, the limit of a stack",
                hint="check that the file is a series of patches",
            )
        names[name] = None
    if twins := find_twins(names):
        raise FormatError(
            f"{where}: {twins[0]} and {twins[1]} are the same file on macOS and Windows",
            hint=f"rename {twins[1]}{SUFFIX}, and its line in {where}",
        )
    return Series(tuple(names), lines)


def _conflict(lines: Sequence[str]) -> _SeriesConflict | None:
    """Split a file at its conflict markers; return None if it contains none."""
    sides: dict[str, list[str]] = {"<": [], "|": [], "=": []}
    only: dict[str, list[str]] = {"<": [], "=": []}
    labels = {"<": "", ">": ""}
    at = ""
    found = False
    for line in lines:
        marker = _MARKER.fullmatch(line.rstrip())
        if marker:
            found, at = True, marker[1][0]
            labels[at] = labels.get(at) or marker[2] or ""
        elif at in sides:
            sides[at].append(line)
            if at in only:
                only[at].append(line)
        else:
            for side in sides.values():
                side.append(line)
    if not found:
        return None
    return _SeriesConflict(
        labels=(labels["<"] or "ours", labels[">"] or "theirs"),
        ours=sides["<"],
        theirs=sides["="],
        base=sides["|"],
        only=(only["<"], only["="]),
    )


def has_conflict(data: bytes) -> bool:
    """Return True if a file contains git's conflict markers."""
    return any(_MARKER.fullmatch(line.rstrip()) for line in data.decode("utf-8", "replace").splitlines())


def unite(data: bytes, where: str, base: bytes | None) -> bytes:
    """Resolve a ``series`` with conflict markers: keep the lines of both sides, ours before theirs.

    :param base: contents of the file in the common ancestor; None if git no longer has them.
    :raises SeriesConflictError: if a side removed or moved lines.
    :raises FormatError: if the result isn't a valid series.
    """
    conflict = _conflict(data.decode("utf-8", "surrogateescape").splitlines())
    assert conflict, "there are no conflict markers"
    if base is None:
        start = conflict.base
    else:
        start = base.decode("utf-8", "surrogateescape").splitlines()
    gaps = [_gaps(start, side) for side in (conflict.ours, conflict.theirs)]
    if not all(gaps):
        raise SeriesConflictError(
            f"{where} has a merge conflict, and a side removed or moved lines: {conflict}",
            hint="remove the marker lines and the lines that you don't want; or, to keep one side, run "
            f"`git checkout --ours {sh(where)}` or `git checkout --theirs {sh(where)}`",
        )
    lines: list[str] = []
    for number, (ours, theirs) in enumerate(zip(*gaps, strict=True)):
        lines += [*ours, *(line for line in theirs if line not in ours), *start[number : number + 1]]
    text = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
    parse(text, where)
    return text


def _gaps(base: Sequence[str], side: Sequence[str]) -> list[list[str]]:
    """Return the lines that a side added before each line of ``base``, and after the last line.

    Return an empty list if the side has removed a line of ``base``.
    """
    gaps: list[list[str]] = [[]]
    for line in side:
        if len(gaps) <= len(base) and line == base[len(gaps) - 1]:
            gaps.append([])
        else:
            gaps[-1].append(line)
    if len(gaps) > len(base):
        return gaps
    return []
