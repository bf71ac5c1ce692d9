"""Patches in files: mails as ``git am`` reads them, an mbox, plain diffs, a folder with a series."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from patchq.errors import FormatError, UserError
from patchq.formats.header import BLANKS, Ident, clean_message, clean_subject, decode, split_mail
from patchq.formats.header import parse as parse_mail
from patchq.git.command import Command, Outside, author_ident
from patchq.stacks.export import slug
from patchq.system import fsio, runner

_HEADER_BLOCK = re.compile(rb"(From [^\n]*\n)?([A-Za-z][A-Za-z-]*: ?[^\n]*\n([ \t][^\n]*\n)*)+\r?\n")
_MAIL_FIELD = re.compile(rb"^(From|Subject): ", re.MULTILINE | re.IGNORECASE)
#: What ``git format-patch`` begins a mail with.
_MAGIC = re.compile(rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\r?\n")
#: A mail that needs no mail parser: format-patch's own, in UTF-8, with no word about encodings or other fields.
_PLAIN = re.compile(
    rb"From [0-9a-f]{40} Mon Sep 17 00:00:00 2001\n"
    rb"From: [^\n]+\n([ \t][^\n]*\n)*Date: [^\n]+(?<!-0000)\nSubject: [^\n]+\n([ \t][^\n]*\n)*"
    rb"(MIME-Version: 1\.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n)?"
    rb"\n(?!\s*(?i:from:|date:|subject:|\[patch\]|>from))"
)
#: Nothing at its ends that git takes off a name or an address.
_PLAIN_NAME = re.compile(r"\w(?:[^<>\n]*\w)?")
_ENCODED_ELSE = re.compile(rb"=\?(?!utf-8\?q\?)", re.IGNORECASE)
_DIFF = re.compile(rb"^(?:diff --git |@@ -\d|--- \S[^\n]*\n\+\+\+ )", re.MULTILINE)
_CR_DIFF = re.compile(rb"^(?:diff --git|---|\+\+\+) [^\n]*\r\n", re.MULTILINE)
_COVER = re.compile(r"\[[^\]]*\b0+/\d+\b[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Found:
    """A patch in a file: ``strip`` is patch's ``-p``; without an author or a message it doesn't say them.

    ``said`` is what a person should know of how it was read; with ``left_out`` it is no patch, and that is said.
    """

    name: str
    where: str
    author: Ident | None
    message: str
    diff: bytes
    strip: int = 1
    said: tuple[str, ...] = ()
    left_out: bool = False


def read_paths(paths: Sequence[Path]) -> list[Found]:
    """The patches in files and folders, in their order, mails without a patch among them.

    :raises UserError: if there is no patch at all, or a path isn't there.
    :raises FormatError: for a mail that git can't read.
    """
    found = [f for path in paths for f in _read_path(path)]
    if all(f.left_out for f in found):
        told = [*dict.fromkeys(said for f in found for said in f.said)] or [f"{paths[0]} holds no diff"]
        raise UserError("; ".join(told), hint="is it a patch?")
    return found


def _read_path(path: Path) -> list[Found]:
    if not path.exists():
        raise UserError(f"{path} is not there", hint="name a patch, an mbox, or a folder with a series")
    if path.is_dir():
        return _read_folder(path)
    return read_file(path, slug(path.name), 1)


def _read_folder(folder: Path) -> list[Found]:
    series = fsio.read_or_none(folder / "series")
    if series is None:
        raise UserError(f"{folder} has no series file", hint="name the patches themselves, in their order")
    found: list[Found] = []
    for line in series.decode("utf-8", "replace").splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        strip = next((int(w[2:]) for w in words[1:] if re.fullmatch(r"-p\d", w)), 1)
        file = (folder / words[0]).resolve()
        if folder.resolve() not in file.parents:
            raise FormatError(
                f"{folder / 'series'} names {words[0]}, outside its folder", hint="copy that patch into it"
            )
        if not file.is_file():
            raise UserError(f"{folder / 'series'} names {words[0]}, which is not there", hint="restore it")
        found += read_file(file, slug(file.name), strip)
    return found


def read_file(path: Path, name: str, strip: int) -> list[Found]:
    """The patches of one file; ``name`` is the patch's, if it is the only one."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if plain := _read_plain(path, data, name, strip):
        return [plain]
    if data.startswith(b"From ") or (_HEADER_BLOCK.match(data) and _MAIL_FIELD.search(data)):
        return list(_read_mails(path, data, name, strip))
    _, text, diff = split_mail(b"From x\n\n" + data)
    if not diff.strip():
        raise UserError(f"{path} holds no diff", hint="is it a patch?")
    # quilt's descriptions are free text above the diff.
    return [Found(name, str(path), None, decode(text).strip(), diff, strip)]


def _read_plain(path: Path, data: bytes, name: str, strip: int) -> Found | None:
    """What format-patch wrote, read as a stack's own patches are, without starting git."""
    head = data.partition(b"\n\n")[0]
    if not _PLAIN.match(data) or _ENCODED_ELSE.search(head) or b"\nFrom " in data:
        return None
    try:
        header, diff = parse_mail(data, str(path))
    except FormatError:
        return None
    if not _PLAIN_NAME.fullmatch(header.author.name) or not _PLAIN_NAME.fullmatch(header.author.email):
        return None
    subject, _, body = header.message.partition("\n")
    if _COVER.search(subject) or (diff.strip() and not _DIFF.search(diff)):
        return None
    return Found(name, str(path), header.author, f"{_without_tags(subject)}\n{body}", diff, strip)


def _read_mails(path: Path, data: bytes, name: str, strip: int) -> Iterator[Found]:
    """Mails by git's own parsers, which know charsets, transfer encodings, attachments and flowed text."""
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        folder = Path(text)
        git = Outside(folder)
        (folder / "mbox").write_bytes(data)
        # A carriage return that ends the header's lines too came on the way; any other belongs to the patch.
        keep = () if data.partition(b"\n")[0].endswith(b"\r") else ("--keep-cr",)
        try:
            git.run("mailsplit", *keep, "-b", f"-o{folder}", "--", "mbox")
        except runner.CommandError as error:
            raise FormatError(f"{path} is no mail that git can read: {error.said}", hint="save it as text") from None
        mails = sorted(p for p in folder.iterdir() if p.name.isdigit())
        for mail in mails:
            where = f"{path} (mail {int(mail.name)})"
            try:
                # Into UTF-8, as Command pins it; given --encoding, git 2.39 converts nothing.
                info = git.run("mailinfo", "-k", "body", "diff", data=mail.read_bytes())
            except runner.CommandError as error:
                raise FormatError(f"{where}: git can't read it: {error.said}", hint="save it as UTF-8 text") from None
            info = _in_utf8(mail.read_bytes(), info)
            if b"\0" in (folder / "body").read_bytes():
                raise FormatError(f"{where} has a NUL byte in its message", hint="take it out")
            found = _of_mail(mail.read_bytes(), info, (folder / "body").read_bytes(), (folder / "diff").read_bytes())
            own = name if len(mails) == 1 else slug(found.message.split("\n", 1)[0])
            author, said = (None, found.said) if found.left_out else _author(git, info, where)
            told = tuple(f"{where} {words}" for words in said)
            yield replace(found, name=own, where=where, strip=strip, author=author, said=told)


def _of_mail(mail: bytes, info: bytes, body: bytes, diff: bytes) -> Found:
    """A patch of what mailinfo made of a mail; its author, name and place are still to be told."""
    raw = "\n".join(_values(info, "Subject"))
    message = clean_message(f"{_without_tags(raw)}\n\n{decode(body)}")
    if _CR_DIFF.search(diff):
        diff = diff.replace(b"\r\n", b"\n")
    if _DIFF.search(diff) or re.search(rb"^GIT binary patch", diff, re.MULTILINE):
        return Found("", "", None, message, diff)
    subject = clean_subject(raw)
    if _COVER.search(subject):
        return Found("", "", None, message, b"", said=(f"is a cover letter, {subject!r}: left out",), left_out=True)
    if _MAGIC.match(mail) and not diff.strip():
        return Found("", "", None, message, b"")  # format-patch --always
    return Found("", "", None, message, b"", said=(f"holds no diff, {subject!r}: left out",), left_out=True)


def _in_utf8(mail: bytes, info: bytes) -> bytes:
    """What mailinfo says of a mail, with fields that were sent as they are in the charset that the mail names.

    git takes these for Latin-1.
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
    return [decode(x[len(prefix) :]) for x in info.split(b"\n") if x.startswith(prefix)]


def _author(git: Command, info: bytes, where: str) -> tuple[Ident | None, tuple[str, ...]]:
    """The author that git would write into the commit; None where the mail names nobody."""
    name, email, date = ("".join(_values(info, field)) for field in ("Author", "Email", "Date"))
    said = () if date else ("has no Date: it is dated now",)
    if not _values(info, "Author"):
        return None, ("has no From: it is taken for yours",)
    try:
        try:
            return author_ident(git, name, email, date), said
        except runner.CommandError as error:
            if "invalid date" not in error.said:
                raise
            return author_ident(git, name, email, _other_date(date)), said
    except runner.CommandError as error:
        reason = error.said.removeprefix("fatal: ")
        raise FormatError(f"{where}: {reason}", hint="mend its From: to 'Name <address>', or its Date:") from None


def _other_date(date: str) -> str:
    """A date that git doesn't read but mail has had, such as a year of two digits; as it was where it is none."""
    try:
        when = parsedate_to_datetime(date)
        return f"@{int(when.timestamp())} {when:%z}"
    except (ValueError, OverflowError):
        return date


def _without_tags(subject: str) -> str:
    """A subject as ``git am --keep-non-patch`` has it: ``[PATCH 1/3]`` says how a mail was sent, not what it does."""
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
