"""Reader of patch files: mails and mboxes (read as by ``git am``), the output of ``hg export``, and plain diffs."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from patchq.adopt._headers import fields_of, first_address, read_text, settle
from patchq.adopt.found import FoundPatch
from patchq.errors import FormatError, UserError
from patchq.formats.header import (
    BLANKS,
    MOST_HEAD,
    MOST_MESSAGE,
    Ident,
    clean_message,
    clean_subject,
    decode,
    parse_trailers,
    split_mail,
    split_trailers,
)
from patchq.formats.header import parse as parse_mail
from patchq.git.command import Command, Outside, author_ident
from patchq.replay.limits import MOST_MAILS, too_large
from patchq.stacks.export import slug
from patchq.system import runner

_HEADER_BLOCK = re.compile(rb"(From [^\n]*\n)?([A-Za-z][A-Za-z-]*: ?[^\n]*\n([ \t][^\n]*\n)*)+\r?\n")
_MAIL_FIELD = re.compile(rb"^(From|Subject): ", re.MULTILINE | re.IGNORECASE)
#: First line of a mail of ``git format-patch``.
_MAGIC = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\r?\n")
_MAGIC_LATER = re.compile(rb"\nFrom [0-9a-f]{40} Mon Sep 17 00:00:00 2001\r?\n")
#: File names above the hunks of a diff without git's first line.
_BARE_HUNKS = re.compile(rb"^--- [^\n]*\n\+\+\+ ", re.MULTILINE)
#: Mail of format-patch in UTF-8 without other fields, which needs no mail parser.
_PLAIN = re.compile(
    rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n"
    rb"From: [^\n]+\n([ \t][^\n]*\n)*Date: [^\n]+(?<!-0000)\nSubject: [^\n]+\n([ \t][^\n]*\n)*"
    rb"(MIME-Version: 1\.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n)?"
    rb"\n(?!\s*(?i:from:|date:|subject:|\[patch\]|>from))"
)
#: Name or address that git uses unchanged, because git strips no character at its ends.
_PLAIN_NAME = re.compile(r"\w(?:[^<>\x00-\x1f]*\w)?")
_ENCODED_ELSE = re.compile(rb"=\?(?!utf-8\?q\?)", re.IGNORECASE)
_DIFF = re.compile(rb"^(?:diff --git |@@ -\d|--- \S[^\n]*\n\+\+\+ )", re.MULTILINE)
_CR_DIFF = re.compile(rb"^(?:diff --git|---|\+\+\+) [^\n]*\r\n", re.MULTILINE)
_HG = re.compile(rb"# HG changeset patch\r?\n")
_HG_LATER = re.compile(rb"^(?=# HG changeset patch\r?\n)", re.MULTILINE)
_HG_DIFF = re.compile(rb"^diff (?:-r|--git) ", re.MULTILINE)
_HG_DATE = re.compile(r"(\d{1,12})(?:\.\d+)? (-?)(\d{1,5})")
_DAY = re.compile(r"(?:[A-Za-z]{3}, *)?(\d{1,2} [A-Za-z]{3} \d{4})")
_FROM = re.compile(r"^From:[ \t]*([^<>\n]*)<([^<>@\s]+@[^<>@\s]+)>[ \t\r]*$", re.MULTILINE | re.IGNORECASE)
#: Last second of the year 9999, because mails can't express later dates.
_LAST = 253402300799
#: Text in brackets with patch number 0, which marks the cover letter of a series.
_BRACKETS, _OF_COVER = re.compile(r"\[([^\[\]]*)\]"), re.compile(r"\b0+/\d+\b")


def _is_cover(subject: str) -> bool:
    return any(_OF_COVER.search(inside) for inside in _BRACKETS.findall(subject))


def read_data(data: bytes, where: str, name: str, strip: int) -> list[FoundPatch]:
    """Return the patches in a file's contents.

    :param name: default name of the patch, if the file holds only one patch.
    :raises UserError: if the file holds no patch.
    :raises FormatError: if git can't read a mail.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    if _HG.match(data):
        return _read_hg(where, data, name, strip)
    _check_words(data, where)
    if plain := _read_plain(where, data, name, strip):
        return [plain]
    head = data.partition(b"\n\n")[0]
    # DEP-3 fields can look like the fields of a mail, but a mail has no Description:.
    mail_like = _HEADER_BLOCK.match(data) and _MAIL_FIELD.search(head) and b"\nDescription:" not in b"\n" + head
    if data.startswith(b"From ") or mail_like:
        return list(_read_mails(where, data, name, strip))
    # Yocto and other tools write their header above the original mail.
    diff_at = _DIFF.search(data)
    if (mail := _MAGIC_LATER.search(data)) and (not diff_at or mail.start() < diff_at.start()):
        found = list(_read_mails(where, data[mail.start() + 1 :], name, strip))
        return [_with_preamble(found[0], decode(data[: mail.start()])), *found[1:]]
    _check_message(data[: diff_at.start()] if diff_at else data, where)
    _, text, diff = split_mail(b"From x\n\n" + data)
    if not diff.strip() and (at := _BARE_HUNKS.search(data)):
        text, diff = data[: at.start()], data[at.start() :]
    if not diff.strip():
        raise UserError(f"{where} holds no diff", hint="is it a patch?")
    return [_of_text(decode(text), diff, where, name, strip)]


def _read_hg(where: str, data: bytes, name: str, strip: int) -> list[FoundPatch]:
    """Return the changesets in the output of ``hg export``, with author and date in git's form."""
    found: list[FoundPatch] = []
    parts = [part for part in _HG_LATER.split(data) if part]
    for number, part in enumerate(parts, 1):
        if len(parts) == 1:
            place = where
        else:
            place = f"{where} (changeset {number})"
        diff_at = _HG_DIFF.search(part)
        if diff_at:
            head = part[: diff_at.start()]
        else:
            head = part
        _check_message(head, place)
        fields: dict[str, str] = {}
        lines = decode(head).replace("\r\n", "\n").split("\n")
        while lines and lines[0].startswith("#"):
            key, _, value = lines.pop(0)[1:].strip().partition(" ")
            fields.setdefault(key, value.strip())
        if not diff_at:
            notes = (f"{place} holds no diff: left out",)
            found.append(FoundPatch(name=name, where=place, author=None, message="", notes=notes, left_out=True))
            continue
        message = settle(clean_message("\n".join(lines)), author="kept").message
        if len(parts) == 1:
            own = name
        else:
            own = slug(message.partition("\n")[0])
        date = _hg_date(fields.get("Date", ""))
        who, address = first_address(fields.get("User", ""))
        author = None
        if address:
            author = _ident(Outside(Path("/")), who, address, date)
        user = fields.get("User", "")
        remarks: tuple[str, ...] = ()
        if user and not address:
            remarks = (f"{place} has an author without an address, {user!r}",)
        taken = FoundPatch(name=own, where=place, author=author, message=message, diff=part[len(head) :], strip=strip)
        found.append(replace(taken, notes=remarks, date="" if author else date))
    return found


def _hg_date(text: str) -> str:
    """Convert a date of Mercurial, whose time zone is in seconds west of UTC, to git's form.

    >>> _hg_date("1700000000 -7200"), _hg_date("now")
    ('@1700000000 +0200', '')
    """
    match = _HG_DATE.fullmatch(text.strip())
    if not match:
        return ""
    minutes = int(match[3]) // 60
    sign = "-"
    if match[2] or not minutes:
        sign = "+"
    return f"@{match[1]} {sign}{minutes // 60:02}{minutes % 60:02}"


def _check_words(data: bytes, where: str) -> None:
    """Refuse data whose header is too long.

    :raises UserError: if the first :data:`MOST_HEAD` bytes hold no blank line and no diff.
    """
    start = data[: MOST_HEAD + 1]
    if len(start) > MOST_HEAD and not re.search(rb"\r?\n\r?\n", start) and not _DIFF.search(start):
        raise too_large(where, f"more than {MOST_HEAD} bytes before its first blank line", MOST_HEAD)


def _check_message(message: bytes, where: str) -> None:
    """Refuse a message that is too long.

    :raises UserError: if the message is longer than :data:`MOST_MESSAGE`.
    """
    if len(message) > MOST_MESSAGE:
        raise too_large(where, f"{len(message)} bytes before its diff, or without one", MOST_MESSAGE)


def _of_text(text: str, diff: bytes, where: str, name: str, strip: int) -> FoundPatch:
    """Return the patch in a file that is not a mail. Its header consists of DEP-3 fields or free text."""
    notes = read_text(text)
    who, address = first_address(notes.author)
    remarks: list[str] = []
    date = notes.date
    author = None
    if address:
        try:
            author = _ident(Outside(Path("/")), who, address, date)
        except runner.CommandError:
            remarks.append(f"{where} has an invalid Date:, {date!r}")
            author, date = author_ident(Outside(Path("/")), who, address, ""), ""
        if not date:
            remarks.append(f"{where} has no date: the patch gets the current time")
    elif notes.author:
        remarks.append(f"{where} has an author without an address, {notes.author!r}")
    if address or not date:
        when = ""
    else:
        when = _seconds(date)
    message = ""
    if notes.message.strip():
        message = notes.message
    if notes.name:
        own = slug(notes.name)
    else:
        own = name
    return FoundPatch(
        name=own,
        where=where,
        author=author,
        message=message,
        diff=diff,
        strip=strip,
        notes=tuple(remarks),
        date=when,
        topic=notes.topic,
    )


def _seconds(date: str) -> str:
    """Convert a date to git's form ``@seconds zone``; return an empty string if the date is invalid."""
    try:
        found = _ident(Outside(Path("/")), "x", "x@x", date)
    except runner.CommandError:
        return ""
    return f"@{found.when} {found.zone}"


def _ident(git: Command, name: str, email: str, date: str) -> Ident:
    """Return an author as ``author_ident`` does, but read a date without a time as noon UTC."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", date.strip()):
        date = f"{date.strip()}T12:00:00+0000"
    return author_ident(git, name, email, date)


def _with_preamble(found: FoundPatch, text: str) -> FoundPatch:
    notes = read_text(text)
    subject, _, body = split_trailers(found.message)[0].partition("\n")
    first, _, rest = notes.message.partition("\n")
    if first.strip() in ("", subject.strip()):
        words = rest
    else:
        words = notes.message
    trailers = "\n".join(split_trailers(found.message)[1])
    if parse_trailers(f"x\n\n{words}"):
        extra, block = split_trailers(f"{subject}\n\n{words}")
    else:
        extra, block = (words, [])
    extra = extra.removeprefix(subject).strip("\n")
    message = "\n\n".join(p for p in (subject, body.strip("\n"), extra, "\n".join([*block, trailers]).strip("\n")) if p)
    settled = settle(message, author="kept")
    remarks = found.notes
    author = found.author
    if author is None and (pair := first_address(notes.author))[1]:
        author = _ident(Outside(Path("/")), *pair, notes.date)
    return replace(found, message=settled.message, author=author, notes=remarks)


def _read_plain(where: str, data: bytes, name: str, strip: int) -> FoundPatch | None:
    """Read a mail that ``git format-patch`` wrote, without starting git; return None for any other mail."""
    head = data.partition(b"\n\n")[0]
    if not _PLAIN.match(data) or _ENCODED_ELSE.search(head) or b"\nFrom " in data:
        return None
    try:
        header, diff = parse_mail(data, where)
    except FormatError:
        return None
    if not _PLAIN_NAME.fullmatch(header.author.name) or not _PLAIN_NAME.fullmatch(header.author.email):
        return None
    subject, _, body = header.message.partition("\n")
    if _is_cover(subject) or (diff.strip() and not _DIFF.search(diff)):
        return None
    notes = settle(f"{_without_tags(subject)}\n{body}", author="kept")
    if notes.name:
        own = slug(notes.name)
    else:
        own = name
    return FoundPatch(
        name=own, where=where, author=header.author, message=notes.message, diff=diff, strip=strip, topic=notes.topic
    )


def _read_mails(place: str, data: bytes, name: str, strip: int) -> Iterator[FoundPatch]:
    """Yield the patches of an mbox, read with git's own parsers.

    The parsers handle charsets, transfer encodings, attachments and flowed text.
    """
    if data.count(b"\nFrom ") > MOST_MAILS:
        raise too_large(place, f"more than {MOST_MAILS} lines that begin a mail", MOST_MAILS)
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder = Path(text)
        git = Outside(folder)
        (folder / "mbox").write_bytes(data)
        # A mail server added the CR at the end of header lines. Any other CR belongs to the patch.
        keep = []
        if not data.partition(b"\n")[0].endswith(b"\r"):
            keep.append("--keep-cr")
        try:
            git.run("mailsplit", *keep, "-b", f"-o{folder}", "--", "mbox")
        except runner.CommandError as error:
            raise FormatError(
                f"{place} is not a mail that git can read: {error.output}", hint="save it as text"
            ) from None
        mails = sorted(p for p in folder.iterdir() if p.name.isdigit())
        for mail in mails:
            where = f"{place} (mail {int(mail.name)})"
            data = mail.read_bytes()
            _check_words(data, where)
            try:
                # `Command` sets UTF-8 in git's configuration. The option --encoding has no effect in git 2.39.
                info = git.run("mailinfo", "-k", "body", "diff", data=data)
            except runner.CommandError as error:
                raise FormatError(f"{where}: git can't read it: {error.output}", hint="save it as UTF-8 text") from None
            info = _in_utf8(data, info)
            body = (folder / "body").read_bytes()
            _check_message(body, where)
            if b"\0" in body:
                raise FormatError(f"{where} has a NUL byte in its message", hint="remove it")
            found = _of_mail(data, info, body, (folder / "diff").read_bytes())
            if len(mails) == 1:
                own = name
            else:
                own = slug(found.message.split("\n", 1)[0])
            head = re.split(rb"\r?\n\r?\n", data, maxsplit=1)[0].partition(b"\n")
            fields = decode(head[2] if head[0].startswith(b"From ") else b"".join(head))
            if found.left_out:
                author, remarks = (None, found.notes)
            else:
                author, remarks = _author(git, info, where, fields)
            notes = settle(found.message, fields_of(fields), "".join(_values(info, "Author")) or "")
            if author is None and (pair := first_address(notes.author))[1]:
                author, remarks = _ident(git, *pair, notes.date), ()
            yield replace(
                found,
                name=slug(notes.name) if notes.name else own,
                where=where,
                strip=strip,
                author=author,
                notes=tuple(f"{where} {words}" for words in remarks),
                message=notes.message,
                topic=notes.topic,
                date="" if author or not notes.date else _seconds(notes.date),
            )


def _of_mail(mail: bytes, info: bytes, body: bytes, diff: bytes) -> FoundPatch:
    """Return a patch from the output of ``git mailinfo``. Its author, name and location are set later."""
    raw = "\n".join(_values(info, "Subject"))
    message = clean_message(f"{_without_tags(raw)}\n\n{decode(body)}")
    if _CR_DIFF.search(diff):
        diff = diff.replace(b"\r\n", b"\n")
    found = FoundPatch(name="", where="", author=None, message=message)
    if _DIFF.search(diff) or re.search(rb"^GIT binary patch", diff, re.MULTILINE):
        return replace(found, diff=diff)
    subject = clean_subject(raw)
    if _is_cover(subject):
        return replace(found, notes=(f"is a cover letter, {subject!r}: left out",), left_out=True)
    if _MAGIC.match(mail) and not diff.strip():
        return found  # an empty patch of `format-patch --always`
    return replace(found, notes=(f"holds no diff, {subject!r}: left out",), left_out=True)


def _in_utf8(mail: bytes, info: bytes) -> bytes:
    """Return the output of ``git mailinfo``, with unencoded fields decoded by the charset that the mail declares.

    git itself would read these fields as Latin-1.
    """
    head = re.split(rb"\r?\n\r?\n", mail, maxsplit=1)[0]
    named = re.search(rb"^content-type:(?:[^\n]|\n[ \t])*?charset=\"?([\w.:-]+)", head, re.IGNORECASE | re.MULTILINE)
    lines = info.split(b"\n")
    for number, line in enumerate(lines):
        try:
            line.decode()
            if b"\x1b" not in line:
                continue
        except UnicodeDecodeError:
            pass
        with contextlib.suppress(LookupError, UnicodeDecodeError):
            lines[number] = line.decode(named[1].decode() if named else "utf-8").encode()
    return b"\n".join(lines)


def _values(info: bytes, field: str) -> list[str]:
    prefix = f"{field}: ".encode()
    values: list[str] = []
    for x in info.split(b"\n"):
        if x.startswith(prefix):
            values.append(decode(x[len(prefix) :]))
    return values


def _author(git: Command, info: bytes, where: str, fields: str) -> tuple[Ident | None, tuple[str, ...]]:
    """Return the author that git would record (None if the mail names none), and notes for the user.

    git takes the first word with an @ as the address, even if the word is part of the name. This function
    instead takes the address in angle brackets.
    """
    name, email, date = ("".join(_values(info, field)) for field in ("Author", "Email", "Date"))
    given = _FROM.search(fields)
    if given and email and email != given[2] and email in given[1].split():
        name, email = given[1].strip().strip('"'), given[2]
    notes: tuple[str, ...] = ()
    if not date:
        notes = ("has no Date: the patch gets the current time",)
    if not _values(info, "Author"):
        return None, ("has no From:",)
    try:
        try:
            found = author_ident(git, name, email, date)
            if found.when > _LAST:
                raise FormatError(f"{where}: its Date: {date!r} is after the year 9999", hint="correct it")
            return found, notes
        except runner.CommandError as error:
            if "invalid date" not in error.output:
                raise
            return author_ident(git, name, email, _other_date(date)), notes
    except runner.CommandError as error:
        reason = error.output.removeprefix("fatal: ")
        if "ident name" in reason:
            return None, (f"has a From: without an address, {name or email!r}",)
        raise FormatError(f"{where}: {reason}", hint="set From: to 'Name <address>', or correct Date:") from None


def _other_date(date: str) -> str:
    """Convert a date that git can't read, with a two-digit year or without a time.

    For a missing time, use noon. Return any other text unchanged.
    """
    if day := _DAY.fullmatch(date.strip()):
        date = f"{day[1]} 12:00:00 +0000"
    try:
        when = parsedate_to_datetime(date)
        return f"@{int(when.timestamp())} {when:%z}"
    except (ValueError, OverflowError):
        return date


def _without_tags(subject: str) -> str:
    """Return a subject without tags such as ``[PATCH 1/3]``, as ``git am --keep-non-patch`` would."""
    at = 0
    while at < len(subject):
        if subject[at] in "rR" and subject[at + 1 : at + 3].lower() == "e:":
            subject = subject[:at] + subject[at + 3 :]
        elif subject[at] in " \t:":
            subject = subject[:at] + subject[at + 1 :]
        elif subject[at] == "[" and (end := subject.find("]", at)) >= 0:
            if "PATCH" in subject[at:end]:
                subject = subject[:at] + subject[end + 1 :]
            else:
                at = end + 1
                at += subject[at : at + 1] in tuple(BLANKS)
        else:
            break
    return clean_subject(subject)
