"""Detection of lines outside a patch's diff, and of damaged parts of the diff."""

from __future__ import annotations

import re
from dataclasses import replace

from patchq.adopt.found import FoundPatch
from patchq.errors import FormatError
from patchq.formats.leftovers import leftovers
from patchq.names import show_path

_DAMAGED = re.compile(
    rb"[ \t>]*(?:diff --git \S|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|GIT binary patch|(?:old|new) mode \d{6}|"
    rb"(?:new|deleted) file mode \d{6}|rename (?:from|to) \S|copy (?:from|to) \S|(?:literal|delta) \d+\r?$|"
    rb"index [0-9a-f]{7,64}\.\.[0-9a-f]{7,64}|(?:---|\+\+\+) [ab]/\S|old mode\r?$|new mode\r?$|"
    rb"(?:new|deleted) file(?: mode)?\r?$)|[+-](?!- ?\r?$|--)"
)
_MOST_SHOWN = 3


def name_leftovers(found: FoundPatch) -> FoundPatch:
    """Return a patch with a note that lists the lines outside its diff.

    If one of these lines is a damaged part of the diff, set the patch's problem.
    """
    if found.left_out or found.problem or not found.diff:
        return found
    left = leftovers(found.diff)
    damaged = next(((number, line) for number, line in left if _DAMAGED.match(line)), None)
    if damaged:
        error = FormatError(
            f"{found.where}: line {damaged[0]} of its diff is damaged, and git would skip it: "
            f"{show_path(damaged[1][:60])}",
            hint="take away what stands before it, or put back what is missing above it",
        )
        return replace(found, problem=error)
    if not left:
        return found
    shown = ", ".join(repr(line.decode("utf-8", "replace").strip()[:60]) for _, line in left[:_MOST_SHOWN])
    more = ""
    if len(left) > _MOST_SHOWN:
        more = f" and {len(left) - _MOST_SHOWN} more lines"
    return replace(found, notes=(*found.notes, f"{found.where}: left out, as no part of its diff: {shown}{more}"))
