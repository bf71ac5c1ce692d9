"""Conversion of other tools' patch headers to a message with git trailers.

These headers are supported: Debian's DEP-3, Yocto's statuses and preambles, ``git cherry-pick -x``, Electron's
``Patch-Filename``, and the headers of quilt, gbp, StGit and Buildroot. Known fields become trailers:
``Forwarded`` and ``Origin``, for example, become ``Upstream-Status``. Other text stays in its place.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from email import message_from_string
from email.utils import getaddresses

from patchq.formats.header import STATUS_WORDS, clean_message, parse_trailers, split_trailers

#: Fields of other tools that become trailers, at any position in the header.
_KEPT = re.compile(
    r"origin|bug(-[\w.-]+)?|forwarded|applied-upstream|last-update|upstream-status|upstream|cve|patch-filename|"
    r"gbp(-pq)?|[a-z-]+-by|change-id",
    re.IGNORECASE,
)
_DEP3 = re.compile(
    r"description|subject|author|from|origin|bug(-[\w.-]+)?|forwarded|applied-upstream|last-update|[a-z-]+-by|"
    r"upstream-status|upstream|cve|gbp(-pq)?|date",
    re.IGNORECASE,
)
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t]|$)")
_FROM_LINE = re.compile(r"From: (.*<[^<>\s]+@?[^<>\s]*>)")
#: Header of `git show` and `git log -p` above a diff; its message is indented.
_SHOWN = re.compile(
    r"^commit ([0-9a-f]{40})\b.*\n((?:[A-Z][A-Za-z]+:[ \t].*\n)+)((?:[ \t]*\n|    .*\n)*)", re.MULTILINE
)
_STATUS_LINE = re.compile(r"^[ \t]*(Upstream[- ]Status|CVE):[ \t]*(\S.*)", re.IGNORECASE)
_PICKED = re.compile(r"^\(cherry picked from commit ([0-9a-f]{7,40})\)", re.MULTILINE)
_WORDS = {word.lower(): word for word in STATUS_WORDS}
_STATUS = re.compile(rf"({'|'.join(STATUS_WORDS)})\b[\s:,;-]*(.*)", re.IGNORECASE | re.DOTALL)
_URL = re.compile(r"https?://\S+")
_COMMIT = re.compile(r"\b[0-9a-f]{12,40}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Converted header of a patch.

    :ivar message: message with its trailers at the end.
    :ivar author: author as written in the patch; empty if none.
    :ivar date: date as written in the patch; empty if none.
    :ivar name: name of the patch in the original tool; empty if none.
    :ivar topic: topic of the patch in the original tool; empty if none.
    """

    message: str
    author: str = ""
    date: str = ""
    name: str = ""
    topic: str = ""


@dataclass(kw_only=True)
class _Draft:
    """Message that is being converted.

    :ivar trailers: fields found so far, anywhere in the message.
    """

    subject: str = ""
    body: list[str] = field(default_factory=list)
    trailers: list[tuple[str, str]] = field(default_factory=list)
    author: str = ""
    date: str = ""

    def take(self, key: str, value: str) -> None:
        """Record a header field in the draft."""
        low = key.lower()
        given = value.strip().split("\n")
        lines = [line.strip() for line in given]
        if low in ("description", "subject") and not self.subject:
            self.subject = lines[0]
            rest = []
            for line in given[1:]:
                # In a DEP-3 description, a line with a single period means an empty line.
                rest.append("" if line.strip() == "." else line.removeprefix(" "))
            if rest:
                self.body.append("\n".join(rest))
        elif low in ("description", "subject"):
            self.body.append("\n".join(lines))
        elif low in ("author", "from") and ("@" not in self.author and ("@" in value or not self.author)):
            if self.author:  # git needs an address, so a name without one becomes a co-author
                self.trailers.append(("Co-authored-by", self.author))
            self.author = " ".join(lines)
        elif low == "date" and not self.date:
            self.date = " ".join(lines)
        elif low in ("author", "from"):
            self.trailers.append(("Co-authored-by", " ".join(lines)))
        else:
            if low == "last-update" and not self.date:
                self.date = " ".join(lines)
            self.trailers.append((key, " ".join(lines)))


def read_text(text: str) -> Said:
    """Convert the text above a diff in a file that is not a mail.

    The text consists of DEP-3 fields, or is free text.
    """
    draft = _Draft()
    shown = _SHOWN.search(text + "\n")
    if shown:
        text = f"{text[: shown.start()]}\n{textwrap.dedent(shown[3])}\n{text[shown.end() :]}"
    for number, paragraph in enumerate(_paragraphs(text)):
        _take_paragraph(draft, paragraph, first=number == 0)
    if shown:
        _take_commit(draft, shown)
    subject = draft.subject or (draft.body.pop(0) if draft.body else "")
    message = clean_message("\n\n".join([subject, *draft.body]))
    return settle(message, draft.trailers, draft.author, draft.date)


def _paragraphs(text: str) -> list[str]:
    paragraphs = []
    for p in re.split(r"\n[ \t]*\n", clean_message(text).strip("\n")):
        if p.strip():
            paragraphs.append(p)
    return paragraphs


def _take_paragraph(draft: _Draft, paragraph: str, *, first: bool) -> None:
    """Add a paragraph to the draft as fields, subject or body."""
    lines = []
    for line in paragraph.split("\n"):
        if not line.startswith("#!"):
            lines.append(line)
    if not lines:
        return
    if lone := _FROM_LINE.fullmatch(paragraph):
        draft.take("From", lone[1])
    elif _is_header(lines) and (first or _only_known(lines)):
        for key, value in message_from_string("\n".join(lines) + "\n\n").items():
            draft.take(key, value)
    elif not draft.subject and first:
        draft.subject, rest = lines[0], "\n".join(lines[1:])
        if rest:
            draft.body += [rest]
    else:
        draft.body.append("\n".join(lines))


def _take_commit(draft: _Draft, shown: re.Match[str]) -> None:
    """Add the author, date and id of a commit, as printed by ``git show``, to the draft."""
    fields = message_from_string(shown[2] + "\n")
    draft.take("Author", fields.get("Author", ""))
    draft.take("Date", fields.get("AuthorDate") or fields.get("Date") or "")
    if not any(key.lower() == "origin" for key, _ in draft.trailers):
        draft.trailers.append(("Origin", f"commit {shown[1]}"))


def _is_header(lines: list[str]) -> bool:
    """Return True if all lines are header fields, and the first field belongs to DEP-3."""
    first = _FIELD.match(lines[0]) if lines else None
    if not first or not _DEP3.fullmatch(first[1]):
        return False
    return all(_FIELD.match(line) or line[:1] in (" ", "\t") for line in lines)


def _only_known(lines: list[str]) -> bool:
    """Return True if all fields in these lines belong to DEP-3."""
    fields = filter(None, map(_FIELD.match, lines))
    return all(_DEP3.fullmatch(field[1]) for field in fields)


def fields_of(head: str) -> list[tuple[str, str]]:
    """Return the fields of a mail's header that describe the patch; leave out fields that mail servers add."""
    found = message_from_string(head + "\n\n").items()
    result: list[tuple[str, str]] = []
    for k, v in found:
        if _KEPT.fullmatch(k):
            result.append((k, " ".join(v.split())))
    return result


def settle(message: str, more: list[tuple[str, str]] | None = None, author: str = "", date: str = "") -> Said:
    """Return the converted header of a message, with all trailers at the end of the message.

    :param more: trailers found outside the message.

    >>> settle("Fix it\\n\\nUpstream-Status: Backport\\nCVE: CVE-2024-1\\n\\nWhy.\\n").message
    'Fix it\\n\\nWhy.\\n\\nUpstream-Status: Backport\\nCVE: CVE-2024-1\\n'
    """
    trailers = list(more or [])
    text, own = split_trailers(clean_message(message))
    subject, _, rest = text.partition("\n")
    kept = []
    for paragraph in re.split(r"\n[ \t]*\n", rest.strip("\n")):
        if lone := _FROM_LINE.fullmatch(paragraph):
            author, paragraph = author or lone[1], "" if not author else paragraph
        else:
            paragraph = _without_fields(paragraph, trailers)
        if paragraph.strip():
            kept += [paragraph]
    block = []
    for line in own:
        if not line.startswith(("Upstream Status:",)):
            block.append(line)
    known = {(key.lower(), value) for key, value in parse_trailers(message)}
    before = []
    for key, value in trailers:
        if (key.lower(), value) not in known:
            before.append(f"{key}: {value}")
    body = "\n\n".join([subject, *kept])
    done = clean_message("\n".join([body, "", *dict.fromkeys(before), *block]))
    done = _with_status(done)
    found, gbp = {}, {}
    for key, value in parse_trailers(done):
        found[key.lower()] = value
        if key.lower() in ("gbp", "gbp-pq"):
            word, _, rest_of_value = value.partition(" ")
            gbp[word] = rest_of_value
    name = found.get("patch-filename", "") or gbp.get("Name", "") or gbp.get("name", "")
    return Said(
        message=done,
        author=author,
        date=date or found.get("last-update", ""),
        name=name,
        topic=gbp.get("Topic", "") or gbp.get("topic", ""),
    )


def _without_fields(paragraph: str, trailers: list[tuple[str, str]]) -> str:
    """Move known fields of a paragraph to ``trailers``, and return the rest."""
    whole = parse_trailers(f"x\n\n{paragraph}")
    lines = paragraph.split("\n")
    has_known = any(_KEPT.fullmatch(key) for key, _ in whole)
    if has_known and len(split_trailers(f"x\n\n{paragraph}")[1]) == len(whole):
        trailers += whole
        return ""
    kept = []
    at = 0
    while at < len(lines):
        match = _STATUS_LINE.match(lines[at])
        at += 1
        if not match:
            kept.append(lines[at - 1])
            continue
        value = match[2]
        while value.count("[") > value.count("]") and at < len(lines):
            value, at = f"{value} {lines[at].strip()}", at + 1
        trailers.append(("CVE" if match[1].upper() == "CVE" else "Upstream-Status", value.strip()))
    return "\n".join(kept)


def _with_status(message: str) -> str:
    """Return a message with its status converted to one ``Upstream-Status:`` trailer that ``check`` accepts.

    Return the message unchanged if it contains no status.
    """
    pairs = parse_trailers(message)
    own = trailer_value(message, "Upstream-Status")
    if own:
        settled = f"Upstream-Status: {_status(own)}"
        text, block = split_trailers(message)
        seen = False
        lines = []
        for line in block:
            if line.lower().startswith("upstream-status"):
                if not seen:
                    lines.append(settled)
                seen = True
            else:
                lines.append(line)
        return clean_message("\n".join([text, *lines]))
    if status := _implied(pairs, message):
        text, block = split_trailers(message)
        if block:
            joined = [text, f"Upstream-Status: {status}", *block]
        else:
            joined = [text, "", f"Upstream-Status: {status}"]
        return clean_message("\n".join(joined))
    return message


def _status(value: str) -> str:
    """Return a status such as ``backport from 1.2`` in Yocto's form, ``Backport […]``.

    Return an unknown status unchanged.
    """
    match = _STATUS.fullmatch(value.strip())
    if not match:
        return value
    return _detailed(_WORDS[match[1].lower()], match[2])


def _detailed(word: str, detail: str) -> str:
    """Return a status word with its detail in brackets, as Yocto writes them.

    >>> _detailed("Backport", "[a [b] c]"), _detailed("Pending", "")
    ('Backport [a (b) c]', 'Pending')
    """
    detail = " ".join(detail.split())
    if detail[:1] + detail[-1:] in ("[]", "()"):
        detail = detail[1:-1]
    detail = detail.strip().replace("[", "(").replace("]", ")")
    if detail:
        return f"{word} [{detail}]"
    return word


def _implied(pairs: tuple[tuple[str, str], ...], message: str) -> str:
    """Return the upstream status that a patch's other fields imply; empty if they imply none.

    The rules are those of DEP-3 and Buildroot.
    """
    found = {key.lower(): value for key, value in reversed(pairs)}
    kind, _, what = found.get("origin", "").partition(",")
    if kind.strip() in ("upstream", "backport") and (what.strip() or found.get("applied-upstream")):
        return _detailed("Backport", what or found["applied-upstream"])
    if found.get("applied-upstream"):
        return _detailed("Accepted", found["applied-upstream"])
    if picked := _PICKED.search(message):
        return _detailed("Backport", picked[1])
    forwarded = found.get("forwarded", "")
    if forwarded.startswith("not-needed"):
        return _detailed("Inappropriate", forwarded)
    if _URL.search(forwarded) or forwarded.startswith("yes"):
        return _detailed("Submitted", forwarded.removeprefix("yes").strip(" ,") or found.get("bug", "") or "forwarded")
    upstream = found.get("upstream", "")
    if _URL.search(upstream):
        landed = "/commit" in upstream or ("/pull/" not in upstream and bool(_COMMIT.search(upstream)))
        return _detailed("Backport" if landed else "Submitted", upstream)
    if upstream.lower().startswith("n/a"):
        return _detailed("Inappropriate", upstream)
    return ""


def trailer_value(message: str, name: str) -> str:
    """Return the value of a message's first trailer with this name, ignoring case; empty if there is no such trailer.

    >>> trailer_value("Fix\\n\\norigin: up@1\\n", "Origin"), trailer_value("Fix\\n", "Origin")
    ('up@1', '')
    """
    for key, value in parse_trailers(message):
        if key.lower() == name.lower():
            return value
    return ""


def first_address(author: str) -> tuple[str, str]:
    """Return the name and address of the first author in a field; both are empty if the field has no address.

    >>> first_address("Jane Roe <jane@example.org>, Al <al@example.org>")
    ('Jane Roe', 'jane@example.org')
    >>> first_address("upstream")
    ('', '')
    """
    try:
        found = getaddresses([author])
    except RecursionError:  # Python raises it for thousands of nested brackets
        return "", ""
    for name, address in found:
        if re.fullmatch(r"[^\s<>@]+@[^\s<>@]+", address):
            return name or address, address
    return "", ""
