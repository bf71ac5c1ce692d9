"""Search for a pattern's matches in texts. Regular expressions run in a process that can be killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from patchq.records import dataclass
from patchq.system import runner

#: Seconds and bytes of memory that an expression may take for all files of a rule.
SECONDS, MEMORY = 10, 1 << 30

#: JSON has no bytes: each byte is passed as one Latin-1 character.
_SCRIPT = """
import json, re, sys
request = json.load(sys.stdin)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
except (ImportError, ValueError, OSError):
    pass
def fail(said):
    json.dump({"error": said}, sys.stdout)
    raise SystemExit
try:
    pattern = re.compile(request["find"].encode("latin-1"), re.MULTILINE)
    new, left, found = request["replace"].encode("latin-1"), request["most"] + 1, []
    for text in request["texts"]:
        edits = []
        for match in pattern.finditer(text.encode("latin-1")):
            if match.start() == match.end():
                fail("it matches empty text")
            if left == 0:
                break
            left -= 1
            edits.append([match.start(), match.end(), match.expand(new).decode("latin-1")])
        found.append(edits)
except (re.error, IndexError, OverflowError) as error:
    fail(str(error))
except (MemoryError, RecursionError):
    fail("it takes too much memory")
json.dump({"found": found}, sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class ByteEdit:
    """Replacement of the bytes from ``start`` to ``end`` in a text."""

    start: int
    end: int
    new: bytes


class RegexError(Exception):
    """Error for a regular expression that is invalid, matches empty text, or takes too long."""


def find_literal(find: bytes, new: bytes, text: bytes) -> list[ByteEdit]:
    """Return all matches of ``find`` in a text, including overlapping ones.

    If ``find`` begins or ends with a newline, it matches only at the beginning of a line.
    """
    lines = find.startswith(b"\n") or find.endswith(b"\n")
    found = []
    at = text.find(find)
    while at >= 0:
        if not lines or at == 0 or text[at - 1 : at] == b"\n":
            found.append(ByteEdit(at, at + len(find), new))
        at = text.find(find, at + 1)
    return found


def find_regex(find: bytes, new: bytes, texts: Sequence[bytes], most: int) -> list[list[ByteEdit]]:
    """Return the matches of a regular expression in each text. Stop after ``most + 1`` matches.

    ``^`` and ``$`` match at the beginning and end of each line.

    :raises RegexError: if the expression fails or takes too long.
    """
    request = {
        "find": find.decode("latin-1"),
        "replace": new.decode("latin-1"),
        "texts": [text.decode("latin-1") for text in texts],
        "most": most,
        "memory": MEMORY,
    }
    argv = [sys.executable, "-I", "-S", "-c", _SCRIPT]
    try:
        done = runner.run(argv, data=json.dumps(request).encode(), timeout=SECONDS)
    except runner.CommandError as error:
        if error.code == runner.TIMED_OUT:
            raise RegexError(f"its expression takes more than {SECONDS} seconds") from None
        raise RegexError(f"its expression failed: {error.output.splitlines()[-1:]}") from None
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise RegexError(f"its expression: {answer['error']}")
    found: list[list[ByteEdit]] = []
    for edits in answer["found"]:
        found.append([ByteEdit(start, end, text.encode("latin-1")) for start, end, text in edits])
    return found


def patched(text: bytes, edits: Sequence[ByteEdit], crlf: bool) -> bytes:
    """Return a text after making the edits.

    :param crlf: True if the edits were found after replacing CRLF by LF in the text.
    """
    if crlf:
        text = text.replace(b"\r\n", b"\n")
    parts, at = [], 0
    for edit in edits:
        parts += [text[at : edit.start], edit.new]
        at = edit.end
    result = b"".join([*parts, text[at:]])
    if crlf:
        return result.replace(b"\n", b"\r\n")
    return result
