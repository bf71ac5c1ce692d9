"""Mail header of a patch file: author, date, subject, message and trailers.

A patch file has the format of ``git format-patch``, so ``git am``, quilt and gbp pq can use it.
``git am`` cuts a message at the first line that looks like the start of a diff. Therefore :func:`mail_safe` indents
such lines before a patch is written, so that git and patchq read the same message.
"""

from __future__ import annotations

import codecs
import functools
import re

from patchq.errors import FormatError
from patchq.records import dataclass

STATUS_WORDS = ("Pending", "Submitted", "Accepted", "Backport", "Inappropriate", "Denied", "Inactive-Upstream")
NEEDS = ("nvcc", "sm90", "sm121")

_IMPORT = "adopt it with `patchq import`, which rewrites it"
#: Size limits in bytes of a patch's header block and of its message.
MOST_HEAD, MOST_MESSAGE = 64 << 10, 1 << 20
#: Trailers for the maintainers of the stack; upstream has no use for them.
OURS = (
    "Upstream-Status",
    "Topic",
    "Proof",
    "Proof-On",
    "Needs",
    "Requires",
    "Build",
    "Upstream-Test",
    "Origin",
    "Pattern",
    "Codemod",
)

_TRAILER = re.compile(r"([A-Za-z0-9-]+)[ \t]*:")
_FOLD = re.compile(r"\n[ \t]+")
#: Lines that git itself adds at the end of a message.
_GENERATED = ("Signed-off-by: ", "(cherry picked from commit ")
#: Blanks according to git. Python's definition has 25 more, which belong to the text.
BLANKS = " \t\r\n"
_BLANK_RUN = re.compile(f"[{BLANKS}]+")
#: Lines of a diff that git keeps in a message. Unindented, they belong to a diff whose header is
#: damaged.
_DIFF_LINES = (
    r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|\+\+\+ \S|GIT binary patch\s*$|index [0-9a-f]{7,40}\.\.[0-9a-f]{7,40}"
    r"|(?:old|new|new file|deleted file) mode \d{6}\s*$|similarity index \d+%"
)
#: git's mailinfo.c, patchbreak(); and the start of the next mail of an mbox.
_CUTS = re.compile(r"diff -|Index: |---(?: [^ \t\r]|[ \t\r]*$)|From .*\d:\d\d|" + _DIFF_LINES)
#: Lines that git reads as headers at the start of a message's text, but not later.
_IN_BODY = re.compile(r"(?:From|Date|Subject):|\[PATCH\](?:[ \t\r\n]|$)|>From[ \t\r\n]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ident:
    """Author as git stores it: ``when`` in seconds since 1970, ``zone`` such as ``+0200``."""

    name: str
    email: str
    when: int
    zone: str

    def line(self) -> bytes:
        """Return the author as ``Name <email> seconds zone``, as in a commit."""
        return f"{self.name} <{self.email}> {self.when} {self.zone}".encode()


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a patch. ``message`` is the whole message, subject first."""

    author: Ident
    message: str

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]

    @property
    def trailers(self) -> tuple[tuple[str, str], ...]:
        """Trailers in the message's last paragraph, as ``(key, value)`` in order."""
        return parse_trailers(self.message)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of all trailers with this key. The case of the key is ignored."""
        values: list[str] = []
        for k, v in self.trailers:
            if k.lower() == key.lower():
                values.append(v)
        return tuple(values)

    def value(self, key: str) -> str:
        """Return the value of the first trailer with this key; empty if no trailer has this key."""
        return next(iter(self.values(key)), "")

    @property
    def needs(self) -> tuple[str, ...]:
        """Hardware and tools that the patch's proof needs besides a CPU: the words of the trailer ``Needs:``."""
        needs: list[str] = []
        for value in self.values("Needs"):
            needs += value.replace(",", " ").split()
        return tuple(needs)

    @property
    def proofs_on(self) -> tuple[tuple[str, str], ...]:
        """Additional proofs as ``(requirement, path)``, from trailers such as ``Proof-On: sm90 PATH``.

        A missing requirement or path is an empty string.
        """
        found = ([*value.split(None, 1), "", ""] for value in self.values("Proof-On"))
        return tuple(dict.fromkeys((words[0], words[1].strip()) for words in found))


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("patchq-latin-1", _as_latin1)


def decode(data: bytes) -> str:
    """Decode a message as git commits it: bytes that aren't UTF-8 are read as Latin-1.

    >>> decode("Größe".encode()), decode("Größe".encode("latin-1"))
    ('Größe', 'Größe')

    """
    return data.decode("utf-8", "patchq-latin-1")


@functools.lru_cache(maxsize=256)
def parse_trailers(message: str) -> tuple[tuple[str, str], ...]:
    """Return the trailers of a message, as ``git interpret-trailers --parse`` prints them.

    The last paragraph counts as trailers in two cases. Either all its lines have the form of trailers; or at least a
    quarter of them do, and git wrote one of them (``Signed-off-by: …`` or ``(cherry picked from commit …)``). A line
    that starts with a blank continues the previous line.

    >>> parse_trailers("Fix it\\n\\nWhy.\\n\\nTopic: moe\\nNeeds: nvcc\\n")
    (('Topic', 'moe'), ('Needs', 'nvcc'))
    >>> parse_trailers("Fix it\\n\\nCVE: CVE-1\\n(cherry picked from commit abc)\\n")
    (('CVE', 'CVE-1'),)
    """
    found = []
    for line in split_trailers(message)[1]:
        if match := _TRAILER.match(line):
            found.append((match[1], _FOLD.sub(" ", line[match.end() :].strip(BLANKS))))
    return tuple(found)


def split_trailers(message: str) -> tuple[str, list[str]]:
    """Split a message into its text and the lines of its trailer paragraph (none if it has no trailers).

    A trailer that continues on the next line is one item, with a newline inside.
    """
    lines = message.rstrip(BLANKS).split("\n")
    end = next((n for n in range(len(lines), 0, -1) if lines[n - 1].strip() and lines[n - 1][0] != "#"), 0)
    start = _trailer_start(lines[:end])
    if start == end:
        return "\n".join(lines), []
    block: list[str] = []
    for line in lines[start:]:
        if line[:1] in (" ", "\t") and block and _TRAILER.match(block[-1]):
            block[-1] += "\n" + line
        else:
            block.append(line)
    return "\n".join(lines[:start]), block


def _trailer_start(lines: list[str]) -> int:
    """Return the index of the first trailer line, by the rules of git's trailer.c.

    Without trailers, return the number of lines.
    """
    title = next((n for n, line in enumerate(lines) if not line.startswith("#") and not line.strip()), len(lines))
    trailers = others = continued = 0
    generated = False
    for at in range(len(lines) - 1, title - 1, -1):
        line = lines[at]
        if line.startswith("#"):
            others, continued = others + continued, 0
        elif not line.strip():
            others += continued
            whole = (generated and trailers * 3 >= others) or (trailers and not others)
            if whole:
                return at + 1
            return len(lines)
        elif line.startswith(_GENERATED):
            trailers, continued, generated = trailers + 1, 0, True
        elif _TRAILER.match(line):
            trailers, continued = trailers + 1, 0
        elif line[0].isspace():
            continued += 1
        else:
            others, continued = others + 1 + continued, 0
    return len(lines)


def with_trailer(message: str, key: str, value: str) -> str:
    """Return ``message`` with one more trailer at its end."""
    gap = "\n\n"
    if split_trailers(message)[1]:
        gap = "\n"
    return f"{message.rstrip()}{gap}{key}: {value}\n"


def without_ours(message: str) -> str:
    """Return ``message`` for upstream, without trailers that only the maintainers of the stack need.

    >>> without_ours("Fix it\\n\\nWhy.\\n\\nTopic: moe\\nSigned-off-by: A <a@b>\\n")
    'Fix it\\n\\nWhy.\\n\\nSigned-off-by: A <a@b>\\n'
    """
    text, block = split_trailers(clean_message(message))
    ours = {key.lower() for key in OURS}
    kept = []
    for line in block:
        if not ((match := _TRAILER.match(line)) and match[1].lower() in ours):
            kept.append(line)
    return clean_message("\n".join([text, *kept]))


def without_trailers(message: str) -> str:
    """Return ``message`` without its trailers. Keep lines of the last paragraph that aren't trailers.

    >>> without_trailers("Fix it\\n\\nWhy.\\n\\nTopic: moe\\n")
    'Fix it\\n\\nWhy.'
    """
    text, block = split_trailers(clean_message(message))
    return "\n".join([text, *(line for line in block if not _TRAILER.match(line))]).strip("\n")


def clean_message(message: str) -> str:
    """Clean a message as ``git stripspace`` does.

    Remove blanks at line ends and repeated empty lines, and end the message with one newline.
    """
    lines = [line.rstrip(BLANKS) for line in message.split("\n")]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    if text:
        return text + "\n"
    return ""


def clean_subject(text: str) -> str:
    """Clean a subject as ``git am`` does: replace each run of blanks by a space, and remove blanks at both ends.

    >>> clean_subject("  fix:  it\\t(#12) ")
    'fix: it (#12)'
    """
    return _BLANK_RUN.sub(" ", text).strip(" ")


def mail_safe(message: str) -> str:
    """Return a cleaned message that ``git am`` reads back from a mail unchanged.

    The subject becomes one line without repeated blanks, followed by an empty line. A line of the body gets a leading
    space if ``git am`` would read it as the start of a diff, of a mail or of a header.

    >>> mail_safe("a\\nb\\n---\\nc")
    'a\\n\\nb\\n ---\\nc\\n'
    """
    first, _, body = clean_message(message).partition("\n")
    subject = clean_subject(first)
    body = body.strip("\n")
    if not body:
        if subject:
            return f"{subject}\n"
        return ""
    safe = "\n".join(" " + line if _CUTS.match(line) else line for line in body.split("\n"))
    return f"{subject}\n\n{' ' if _IN_BODY.match(safe) else ''}{safe}\n"


def split_mail(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a patch file into header block, message and diff, without decoding anything.

    The three parts are the same as for git's ``mailinfo``, which ``git am`` uses. The header ends at the first line
    that isn't a header field: an empty line, a line of blanks, or text. If the first line ends with CRLF, a program has
    converted the whole file. Then the CR of each line is removed, as ``git am`` does without ``--keep-cr``.
    """
    if data.partition(b"\n")[0].endswith(b"\r"):
        data = data.replace(b"\r\n", b"\n")
    end = _header_end(data)
    head, rest = data[:end].rstrip(b"\n"), data[end:]
    at = _DIFF_START.search(b"\n" + rest)
    if at is None:
        return head, rest, b""
    return head, rest[: at.start()], rest[at.start() :]


def _header_end(data: bytes) -> int:
    """Return the offset of the first byte after the header block."""
    match = _HEADER_BLOCK.match(data)
    if match:
        return match.end()
    return 0


#: git's mailinfo.c, is_rfc2822_header() with continued lines. A line that starts with a blank
#: continues the previous line, even if it contains nothing else.
_HEADER_BLOCK = re.compile(rb"(?:(?:>?From |[!-9;-~]+:)[^\n]*(?:\n[ \t][^\n]*)*(?:\n|$))*")
_DIFF_START = re.compile(rb"\n(?=diff -|Index: |---(?: [^ \t\r\n]|[ \t\r]*\n))")
_STRAY_DIFF = re.compile(rb"^(?:" + _DIFF_LINES.encode() + rb")", re.MULTILINE)
#: git's mailsplit.c, is_from_line(): the start of another mail.
_NEXT_MAIL = re.compile(rb"^From [^\n]*\d:\d\d", re.MULTILINE)
_ONE_LINE_ENCODINGS = ("", "7bit", "8bit", "binary")
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)


def parse(data: bytes, where: str) -> tuple[Header, bytes]:
    """Parse a patch file into its header and the bytes of its diff (empty for an empty patch).

    :param where: name of the patch file, for error messages.
    :raises FormatError: if the file isn't a ``git format-patch`` mail in UTF-8.
    """
    hint = _IMPORT
    if not data.startswith(b"From "):
        raise FormatError(f"{where} is not a git format-patch mail", hint=hint)
    head, body, diff = split_mail(data)
    if len(head) > MOST_HEAD or len(body) > MOST_MESSAGE:
        raise FormatError(
            f"{where} has a header of {len(head)} and a message of {len(body)} bytes; "
            f"the limits are {MOST_HEAD} and {MOST_MESSAGE}",
            hint="shorten it",
        )
    _check_parts(data, body, diff, where=where)
    fields = _fields(head, where)
    _check_fields(fields, where)
    try:
        author = _ident(fields["from"], fields["date"])
        subject = clean_subject(_decoded(fields["subject"]))
        message = body.decode()
    except KeyError as error:
        raise FormatError(f"{where} has no {error.args[0].title()}: line", hint=hint) from None
    except (ValueError, LookupError) as error:
        raise FormatError(f"{where}: {error}", hint=hint) from None
    if "\0" in message or "\0" in subject:
        raise FormatError(f"{where} has a NUL byte in its message", hint=hint)
    return Header(author, clean_message(f"{subject}\n\n{message}")), diff


def _check_parts(data: bytes, body: bytes, diff: bytes, *, where: str) -> None:
    """Refuse a file that contains several mails or is truncated, or whose message contains header or diff lines.

    :raises FormatError: with the number of the line, if a single line is wrong.
    """
    if match := _NEXT_MAIL.search(body) or _NEXT_MAIL.search(diff):
        raise FormatError(
            f"{where}:{_line_of(data, match[0])}: another mail begins here; a patch file must be one mail",
            hint="`patchq import` makes one patch from each mail",
        )
    if not diff and not data.endswith(b"\n"):
        raise FormatError(
            f"{where} ends in the middle of a line, and has no diff, so it is truncated", hint="restore the file"
        )
    start = decode(body.lstrip(b"\n")[:100])
    if _IN_BODY.match(start):
        raise FormatError(
            f"{where}: its message begins with {start.splitlines()[0]!r}, which `git am` takes for a header",
            hint=_IMPORT,
        )
    if match := _STRAY_DIFF.search(body):
        raise FormatError(
            f"{where}:{_line_of(data, match[0])}: a hunk without a file header",
            hint="put back the hunk's `diff --git` line, or, if this line belongs to the message, indent it",
        )


def _line_of(data: bytes, text: bytes) -> int:
    """Return the number (from 1) of the first line that begins with ``text``."""
    at = 0
    if not data.startswith(text):
        at = data.find(b"\n" + text) + 1
    return data.count(b"\n", 0, at) + 1


def _check_fields(fields: dict[str, str], where: str) -> None:
    """Check that a mail's body is unencoded plain text in UTF-8, and that its header contains no trailers.

    :raises FormatError: for any other mail.
    """
    encoding = fields.get("content-transfer-encoding", "").lower()
    if encoding not in _ONE_LINE_ENCODINGS:
        raise FormatError(f"{where}: its text is encoded ({encoding})", hint=_IMPORT)
    kind = fields.get("content-type", "")
    charset = _CHARSET.search(kind)
    if kind and not kind.lower().startswith("text/plain"):
        raise FormatError(f"{where}: its Content-Type is {kind.split(';')[0]}", hint=_IMPORT)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise FormatError(f"{where}: its charset is {charset[1]}", hint=_IMPORT)
    for key in ("signed-off-by", *(name.lower() for name in OURS)):
        if key in fields:
            raise FormatError(
                f"{where}: {key}: is in the mail header, where `git am` ignores it",
                hint="put an empty line below Subject:",
            )


def _fields(head: bytes, where: str) -> dict[str, str]:
    try:
        lines = head.decode().split("\n")[1:]
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is not UTF-8: {error}", hint=_IMPORT) from None
    fields: dict[str, str] = {}
    key = ""
    for line in lines:
        if line[:1] in (" ", "\t") and key:
            fields[key] = (fields[key] + "\n" + line).rstrip(BLANKS)
            continue
        key, _, value = line.partition(":")
        key = key.lower()
        if key in fields and key in ("from", "date", "subject"):
            raise FormatError(f"{where} has two {key.title()}: lines", hint="remove one of them")
        fields.setdefault(key, value.strip(BLANKS))
    return fields


_WORD = r"=\?[^?\s]+\?[qQbB]\?[^?\s]*\?="
_ENCODED = re.compile(rf"{_WORD}(?:\s+{_WORD})*")


def _decoded(value: str) -> str:
    """Decode the RFC 2047 words in a value. The codec is imported only for values that need it."""
    if "=?" not in value:
        return value
    from email.header import decode_header, make_header

    # Only the encoded words: decode_header would change other text that isn't ASCII.
    return _ENCODED.sub(lambda words: str(make_header(decode_header(words[0]))), value)


_DATE = re.compile(r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) ([+-])(\d\d)(\d\d)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _ident(sender: str, date: str) -> Ident:
    # A regex would take minutes for a megabyte of blanks.
    name, bracket, mail = _decoded(sender).replace("\n", "").rpartition("<")
    if not bracket or mail.find(">") != len(mail) - 1:
        raise ValueError(f"From: {sender[:200]!r} is not 'Name <email>'")
    name = name.strip(BLANKS)
    if name[:1] == name[-1:] == '"' and len(name) > 1:
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    when = _DATE.fullmatch(" ".join(date.split()))
    if not when or when[2] not in _MONTHS:
        raise ValueError(f"Date: {date!r} is not an RFC 2822 date")
    from calendar import timegm

    day, month, year, h, m, s = int(when[1]), _MONTHS.index(when[2]) + 1, *map(int, when.group(3, 4, 5, 6))
    shift = (int(when[8]) * 60 + int(when[9])) * (-60 if when[7] == "-" else 60)
    seconds = timegm((year, month, day, h, m, s)) - shift
    if seconds < 0:
        raise ValueError(f"Date: {date!r} is before 1970")
    return Ident(name, mail[:-1].strip(BLANKS), seconds, when[7] + when[8] + when[9])
