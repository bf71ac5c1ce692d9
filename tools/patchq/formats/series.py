"""The ``series`` file: the order of a stack. One patch name a line, ``#`` starts a comment.

It is quilt's format, so quilt reads it too. Comments and blank lines survive rewrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from patchq.errors import FormatError
from patchq.system.paths import check_name

SUFFIX = ".patch"
#: Patches of a stack, and bytes of a series file.
MOST, MOST_BYTES = 100_000, 16 << 20


@dataclass(frozen=True, slots=True)
class Series:
    """A parsed ``series``: ``names`` are patch names without their suffix, in order."""

    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def with_names(self, names: Sequence[str]) -> Series:
        """The same file with another order; a comment stays above the patch that it stood above."""
        above: dict[str, list[str]] = {}
        pending: list[str] = []
        for line in self.lines:
            name = _name_of(line)
            if name is None:
                pending.append(line)
            else:
                above[name] = [*pending, line]
                pending = []
        lines: list[str] = []
        for name in names:
            lines += above.get(name, [name + SUFFIX])
        return Series(tuple(names), tuple(lines + pending))

    def dump(self) -> bytes:
        """The bytes of the file."""
        return "".join(line + "\n" for line in self.lines).encode()


def _name_of(line: str) -> str | None:
    text = line.split("#", 1)[0].strip()
    return text.removesuffix(SUFFIX) if text else None


def parse(data: bytes, where: str) -> Series:
    """Parse a ``series`` file.

    :param where: what to call it in an error.
    :raises FormatError: for a name that isn't one, a name twice, or quilt options (``-p0``).
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8: {error}", hint=f"rewrite {where} as UTF-8") from None
    lines = tuple(text.splitlines())
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
            raise FormatError(f"{where}: {MOST} are the most patches of a stack", hint="it is no stack of patches")
        names[name] = None
    return Series(tuple(names), lines)
