"""Patches that leave the tree, say two things, overwhelm their reader or speak to what mails them."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from harness import Case, World

#: A patch in the stack, and the same one adopted.
STACKED = ("apply", "list", "show evil --diff")
IMPORTED = ("import up {inputs}/evil.patch --dry-run", "import up {inputs}/evil.patch --author me", "apply")
HANDED_ON = (
    "apply",
    "show evil --diff",
    "report --html {out}/r.html",
    "pr evil --no-proof --no-gates --onto v1",
    "bundle {out}/b",
    "publish --to {out}/published.git",
)


def mail(
    diff: bytes,
    subject: bytes = b"Nothing to see",
    author: bytes = b"Eve <eve@example.org>",
    body: bytes = b"Body.",
    more: bytes = b"",
) -> bytes:
    return (
        b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: " + author
        + b"\nDate: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: " + subject + b"\n" + more + b"\n" + body
        + b"\n\nUpstream-Status: Pending\nTopic: test\nSigned-off-by: Eve <eve@example.org>\n---\n\n" + diff
    )  # fmt: skip


def new(path: bytes, mode: bytes = b"100644", text: bytes = b"evil") -> bytes:
    return (
        b"diff --git a/%s b/%s\nnew file mode %s\nindex 0000000..1111111\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+%s\n"
        % (path, path, mode, path, text)
    )


def link(path: bytes, to: bytes) -> bytes:
    return new(path, b"120000", to) + b"\\ No newline at end of file\n"


def change(path: bytes = b"a.txt", hunk: bytes = b"@@ -1,3 +1,3 @@\n-line 1\n+evil\n line 2\n line 3\n") -> bytes:
    return b"diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n%s" % (path, path, path, path, hunk)


def binary(path: bytes, size: int, data: bytes) -> bytes:
    """A binary patch of zlib data that may say another size."""
    lines = []
    for at in range(0, len(data), 52):
        part = data[at : at + 52]
        letter = bytes([ord("A") + len(part) - 1 if len(part) <= 26 else ord("a") + len(part) - 27])
        lines.append(letter + base64.b85encode(part, pad=True))
    return (
        b"diff --git a/%s b/%s\nnew file mode 100644\nindex 0000000..1111111\nGIT binary patch\nliteral %d\n%s\n\nliteral 0\nHcmV?d00001\n\n"
        % (path, path, size, b"\n".join(lines))
    )


def bomb(size: int) -> bytes:
    import zlib

    deflate = zlib.compressobj(9)
    return b"".join(deflate.compress(b"\0" * (1 << 20)) for _ in range(size >> 20)) + deflate.flush()


def stacked(data: bytes | Callable[[World], bytes]) -> Callable[[World], None]:
    """The patch as a file of the stack, and as one to import."""

    def make(world: World) -> None:
        text = data if isinstance(data, bytes) else data(world)
        world.add_patch(text)
        world.write(world.inputs / "evil.patch", text)

    return make


def imported(data: bytes | Callable[[World], bytes]) -> Callable[[World], None]:
    return lambda world: (
        world.write(world.inputs / "evil.patch", data if isinstance(data, bytes) else data(world)) and None
    )


#: Paths that no patch may have.
PATHS = {
    "climbs": b"../evil", "climbs inside": b"a/../../evil", "absolute": b"/tmp/evil", "git": b".git/config", "hooks": b".git/hooks/post-checkout", "git below": b"sub/.git/config", "git in capitals": b".GIT/config", "git of HFS": ".g\u200cit/config".encode(),
    "git of NTFS": b"GIT~1/config", "git with a dot": b".git./config", "git with a blank": b".git /config", "git with a stream": b".git::$INDEX_ALLOCATION/config", "git with a backslash": b".git\\config", "backslashes": b"..\\..\\evil", "drive": b"C:/evil", "dot": b"./evil", "empty part": b"a//evil",
    "only dots": b"..", "long": b"a" * 300, "long path": b"a/" * 2100 + b"x", "deep": b"a/" * 50_000 + b"x", "NUL": b"a\0b", "escape": b"\x1b]0;evil\x07", "quoted escape": b'"\\033[31m"', "newline": b"a\nb", "turned": "\u202egpj".encode(), "no text": b"\xff\xfe", "device": b"CON", "blank": b" ", "option": b"--output=evil", "pattern": b"*",
    "by case": b"A.TXT", "below a file": b"a.txt/evil", "of a folder": b"pkg", "modules": b".gitmodules", "attributes": b".gitattributes", "ignored": b".gitignore", "private": b".patchq/lock", "quote without an end": b'"evil', "octals": b'"\\056\\056/evil"', "tab": b"a\tb",
}  # fmt: skip
NO_NEWLINE = b"\\ No newline at end of file\n"
DIFFS: dict[str, bytes | Callable[[World], bytes]] = {
    "link out": lambda world: link(b"evil", str(world.secret).encode()), "link climbs": link(b"evil", b"../../../outside/secret.txt"), "link to git": link(b"evil", b".git"), "link of attributes": link(b".gitattributes", b"a.txt"), "link of modules": link(b".gitmodules", b"a.txt"),
    "link, then below it": lambda world: link(b"evil", str(world.outside).encode()) + new(b"evil/evil"), "link in a folder's place": lambda world: link(b"pkg", str(world.outside).encode()), "link with a NUL": link(b"evil", b"a\0b"), "link of megabytes": link(b"evil", b"a/" * 500_000), "link to itself": link(b"evil", b"evil"),
    "file becomes a link": lambda world: b"diff --git a/b.txt b/b.txt\ndeleted file mode 100644\n--- a/b.txt\n+++ /dev/null\n" + link(b"b.txt", str(world.secret).encode()), "mode becomes a link": b"diff --git a/run.sh b/run.sh\nold mode 100755\nnew mode 120000\n",
    "mode of nothing": new(b"evil", b"000000"), "mode set-uid": new(b"evil", b"106755"), "mode of a folder": new(b"evil", b"040000"), "mode of letters": new(b"evil", b"abcdef"), "mode is long": new(b"evil", b"1" * 10_000), "submodule": new(b"evil", b"160000", b"Subproject commit " + b"0" * 40),
    "submodule and its settings": new(b"evil", b"160000", b"Subproject commit " + b"0" * 40) + new(b".gitmodules", text=b'[submodule "x"]\n+\tpath = evil\n+\turl = ext::sh\n+\tupdate = !sh'), "rename out": b"diff --git a/a.txt b/../evil\nsimilarity index 100%\nrename from a.txt\nrename to ../evil\n",
    "rename from outside": b"diff --git a/../outside/secret.txt b/evil\nsimilarity index 100%\nrename from ../outside/secret.txt\nrename to evil\n", "copy from git": b"diff --git a/.git/config b/evil\nsimilarity index 100%\ncopy from .git/config\ncopy to evil\n", "copy from outside": lambda world: b"diff --git a%s b/evil\nsimilarity index 100%%\ncopy from %s\ncopy to evil\n" % (str(world.secret).encode(), str(world.secret).encode()),
    "names that disagree": b"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/../../evil\n@@ -1 +1 @@\n-line 1\n+evil\n", "deletes git": b"diff --git a/.git/HEAD b/.git/HEAD\ndeleted file mode 100644\n--- a/.git/HEAD\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "numbers of a hunk": change(hunk=b"@@ -1,99999999999999999999 +1,1 @@\n-line 1\n+evil\n"),
    "numbers below nothing": change(hunk=b"@@ --1,-3 +-1,3 @@\n-line 1\n"), "long numbers": change(hunk=b"@@ -" + b"9" * 100_000 + b" +1 @@\n-x\n+y\n"), "hunk at the end of all": change(hunk=b"@@ -4294967295,3 +4294967295,3 @@\n-line 1\n+evil\n line 2\n line 3\n"), "no hunk": change(hunk=b""), "hunk without lines": change(hunk=b"@@ -1 +1 @@\n"),
    "huge hunk": change(hunk=b"@@ -1,0 +1,200000 @@\n" + b"+x\n" * 200_000), "many hunks": change(hunk=b"".join(b"@@ -%d +%d @@\n-line %d\n+evil %d\n" % (n, n, n, n) for n in range(1, 20_000))), "many files": b"".join(new(b"m/%d" % n) for n in range(3000)), "same context everywhere": change(hunk=b"@@ -1,5000 +1,5001 @@\n" + b" x\n" * 2500 + b"+evil\n" + b" x\n" * 2500),
    "long line": change(hunk=b"@@ -1 +1 @@\n-line 1\n+" + b"x" * 10_000_000 + b"\n"), "long header": b"diff --git a/" + b"x" * 1_000_000 + b" b/y\n", "many blanks in a header": b"diff --git " + b"a " * 20_000 + b"\n", "binary without data": b"diff --git a/e b/e\nnew file mode 100644\nGIT binary patch\nliteral 5\n\n", "binary lies": binary(b"evil", 5, bomb(1 << 20)),
    "binary bomb": binary(b"evil", 256 << 20, bomb(256 << 20)), "binary size of all": binary(b"evil", 1 << 62, bomb(1 << 20)), "binary to git": binary(b".git/evil", 1 << 20, bomb(1 << 20)), "binary climbs": binary(b"../evil", 1 << 20, bomb(1 << 20)), "delta of nothing": b"diff --git a/a.txt b/a.txt\nindex 1111111..2222222\nGIT binary patch\ndelta 5\nMcmZ?wbhEHbWMp7u00aO40ssI2\n\ndelta 5\nMcmZ?wbhEHbWMp7u00aO40ssI2\n\n",
    "delta bomb": b"diff --git a/a.txt b/a.txt\nindex 1111111..2222222 100644\nGIT binary patch\ndelta 99999999999\nMcmZ?wbhEHbWMp7u00aO40ssI2\n\n", "escapes in lines": change(hunk=b"@@ -1 +1 @@\n-line 1\n+\x1b[2J\x1b]0;evil\x07\xe2\x80\xae\r\x08\n"), "bytes in lines": change(hunk=b"@@ -1 +1 @@\n-line 1\n+\xff\xfe\x80\n"), "NUL in lines": change(hunk=b"@@ -1 +1 @@\n-line 1\n+a\0b\n"),
    "hunk header of escapes": change(hunk=b"@@ -1 +1 @@ \x1b[31m\xe2\x80\xae\n-line 1\n+evil\n"), "twice": change() + change(), "ed script": b"--- a/a.txt\n+++ b/a.txt\n1!touch evil\n.\nw ../evil\nq\n", "ed script behind a diff": change() + b"0a\n!touch evil\n.\nw\n", "Index and Prereq": b"Index: ../evil\nPrereq: \x1b[31m\n" + change(), "line of conflict": change(hunk=b"@@ -1 +1,5 @@\n-line 1\n+<<<<<<< a\n+x\n+=======\n+y\n+>>>>>>> b\n"),
    "CRLF": change().replace(b"\n", b"\r\n"), "CR alone": change().replace(b"\n", b"\r"), "attributes that run": new(b".gitattributes", text=b"* filter=x diff=x merge=x working-tree-encoding=UTF-16 export-subst") + change(), "code that a build runs": new(b"setup.py", text=b"raise SystemExit(1)") + new(b"conftest.py") + new(b"sitecustomize.py") + new(b"Makefile"),
    "nothing at all": b"", "two mails": change() + mail(change(b"b.txt")), "signature": change() + b"-- \n\x1b[31m2.39.5\n", "deep quotes": b'diff --git "a/' + b"\\\\" * 100_000 + b'" b/x\n',
}  # fmt: skip
MAILS = {
    "subject of escapes": mail(change(), subject=b"\x1b]0;evil\x07\x1b[2J \xe2\x80\xae evil"), "subject of an encoded escape": mail(change(), subject=b"=?UTF-8?Q?=1B]0;evil=07?="), "subject of an encoded line": mail(change(), subject=b"=?UTF-8?Q?x=0ABcc:_eve@example.org=0A=0Adiff?="), "subject of an encoded NUL": mail(change(), subject=b"=?UTF-8?B?AGE=?="),
    "subject of no charset": mail(change(), subject=b"=?evil?Q?x?="), "subject of a codec": mail(change(), subject=b"=?rot13?Q?rivy?="), "subject of another codec": mail(change(), subject=b"=?zlib_codec?B?eJw=?=").replace(b"Body.", b"Body."), "subject of a long word": mail(change(), subject=b"=?UTF-8?B?" + b"A" * 1_000_000 + b"?="), "subject of many words": mail(change(), subject=b"=?UTF-8?Q?a?= " * 5000),
    "subject of megabytes": mail(change(), subject=b"x" * 2_000_000), "subject of brackets": mail(change(), subject=b"[" * 50_000 + b"PATCH]"), "subject of an option": mail(change(), subject=b"--help"), "subject climbs": mail(change(), subject=b"../../evil"), "subject of git": mail(change(), subject=b".git/hooks/pre-commit"), "subject of a fixup": mail(change(), subject=b"fixup! \x1b[31m"),
    "subject of HTML": mail(change(), subject=b"<img src=x onerror=pwned()><script>pwned()</script>"), "subject of an annotation": mail(change(), subject=b"::error::pwned"), "subject in folds": mail(change(), subject=b"a\n b\n c" * 2000), "no subject": mail(change()).replace(b"Subject: Nothing to see\n", b""), "author injects": mail(change(), author=b"Eve\r\nBcc: all@example.org <eve@example.org>"),
    "author of an encoded NUL": mail(change(), author=b"=?utf-8?Q?A=00B?= <v@e.org>"), "author of a newline": mail(change(), author=b"=?UTF-8?Q?Eve=0Acommitter_x_<x>_1_+0000?= <eve@example.org>"), "author of brackets": mail(change(), author=b"Eve <<eve@example.org>> <x>"), "author of an escape": mail(change(), author=b"\x1b[31mEve <eve\x1b[2J@example.org>"), "author is empty": mail(change(), author=b" <>"), "author of an option": mail(change(), author=b"--exec=evil <--x>"),
    "author of megabytes": mail(change(), author=b"E" * 500_000 + b" <e@x>"), "author of comments": mail(change(), author=b"(" * 20_000 + b"x" + b")" * 20_000 + b" <e@x>"), "author of quotes": mail(change(), author=b'"' + b'\\"' * 20_000 + b'" <e@x>'), "author is turned": mail(change(), author="\u202eevE <e@x>".encode()), "author of bytes": mail(change(), author=b"\xff\xfe <e@x>"), "date of all": mail(change()).replace(b"2 Jan 2026", b"99 Jan 99999999"),
    "date below nothing": mail(change()).replace(b"Fri, 2 Jan 2026 03:04:05 +0100", b"-99999999999 +9999"), "date of an escape": mail(change()).replace(b"Fri,", b"\x1b[31m"), "zone of all": mail(change()).replace(b"+0100", b"+999999"), "date is long": mail(change()).replace(b"2026", b"2" * 100_000), "charset of a codec": mail(change(), more=b"Content-Type: text/plain; charset=zip\n"), "charset is unknown": mail(change(), more=b"Content-Type: text/plain; charset=evil\n"),
    "charset of UTF-7": mail(change(), body=b"+ADw-script+AD4-", more=b"Content-Type: text/plain; charset=utf-7\n"), "charset of punycode": mail(change(), body=b"x" * 20_000 + b"-" + b"a" * 20_000, more=b"Content-Type: text/plain; charset=punycode\n"), "charset of idna": mail(change(), body=b"a" * 30_000, more=b"Content-Type: text/plain; charset=idna\n"), "base64 bomb": mail(change(), more=b"Content-Transfer-Encoding: base64\n"),
    "uuencoded": mail(change(), more=b"Content-Transfer-Encoding: x-uuencode\n"), "encoding is unknown": mail(change(), more=b"Content-Transfer-Encoding: \x1b[31m\n"), "parts in parts": mail(b"".join(b"--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n" % (n, n + 1) for n in range(500)), more=b"Content-Type: multipart/mixed; boundary=b0\n"),
    "many parts": mail(b"--b\n\nx\n" * 10_000, more=b"Content-Type: multipart/mixed; boundary=b\n"), "boundary of megabytes": mail(change(), more=b"Content-Type: multipart/mixed; boundary=" + b"b" * 500_000 + b"\n"), "part of a file's name": mail(b"--b\nContent-Disposition: attachment; filename=../../evil\n\n" + change() + b"--b--\n", more=b"Content-Type: multipart/mixed; boundary=b\n"), "part that is a mail": mail(b"--b\nContent-Type: message/rfc822\n\n" + mail(change()) + b"--b--\n", more=b"Content-Type: multipart/mixed; boundary=b\n"),
    "external body": mail(change(), more=b"Content-Type: message/external-body; access-type=local-file; name=/etc/passwd\n"), "parameters that go on": mail(change(), more=b"Content-Type: text/plain; charset*0*=utf-8''a; charset*1=b" + b"; x=y" * 5000 + b"\n"), "many headers": mail(change(), more=b"X-Evil: x\n" * 20_000), "header of megabytes": mail(change(), more=b"X-Evil: " + b"x" * 3_000_000 + b"\n"), "headers twice": mail(change(), more=b"Subject: Other\nFrom: Other <o@x>\nDate: x\n"),
    "header that injects": mail(change(), more=b"Bcc: all@example.org\nX-Evil: a\rBcc: b\n"), "name that leaves": mail(change(), more=b"Patch-Filename: ../../../evil.patch\nGbp-Pq: Name ../../evil\nGbp-Pq: Topic ../../evil\n"), "trailers of escapes": mail(change(), body=b"Topic: \x1b[31m\nProof: ../../outside/secret.txt\nProof-On: sm90 /etc/passwd\nRequires: ../x\nNeeds: \x1b\nUpstream-Test: ../../outside/secret.txt\nCVE: <img src=x onerror=pwned()>"),
    "proof outside": mail(change(), body=b"Body.\n\nProof: ../../../outside/secret.txt").replace(b"Upstream-Status", b"Proof: tests/stacks/../../../outside/secret.txt\nUpstream-Status"), "status of an address": mail(change()).replace(b"Pending", b"Submitted [javascript:pwned()]"), "status of HTML": mail(change()).replace(b"Pending", b"Submitted [https://x/\"onmouseover=\"pwned()]"), "topic of HTML": mail(change()).replace(b"Topic: test", b"Topic: <script>pwned()</script>"),
    "many trailers": mail(change(), body=b"Requires: up/first\n" * 20_000), "requires itself": mail(change()).replace(b"Topic: test", b"Topic: test\nRequires: up/evil"), "body of From lines": mail(change(), body=b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: x\n" * 3000), "body of scissors": mail(change(), body=b"-- >8 --\n" * 20_000), "body of dashes": mail(change(), body=b"---\n" * 50_000), "body of megabytes": mail(change(), body=b"x\n" * 2_000_000),
    "body of markdown": mail(change(), body=b"[x](javascript:pwned()) <script>pwned()</script> ![x](http://127.0.0.1:9/x) |x|\n# x\n```\n</details>"), "body of tables": mail(change(), body=b"| " * 50_000), "body of emphasis": mail(change(), body=b"*" * 50_000 + b"_" * 50_000 + b"[" * 50_000), "body of commands": mail(change(), body=b"::add-mask::x\n::set-env name=X::y\n##[error]x\n::stop-commands::x"),
    "body of bytes": mail(change(), body=b"\xff\xfe\x80"), "body of NULs": mail(change(), body=b"\0" * 1000), "body of UTF-16": mail(change(), body="evil".encode("utf-16")), "mbox of ten thousand": mail(change()) * 2000, "mbox of nothing": b"From x\n" * 50_000, "everything is a header": b"A: b\n" * 100_000, "a header without an end": b"Subject: " + b"x" * 5_000_000, "an HTML mail": mail(b"<html><pre>" + change() + b"</pre>", more=b"Content-Type: text/html\n"),
}  # fmt: skip


def series(lines: str) -> Callable[[World], None]:
    return lambda world: world.append(lines.replace("<outside>", str(world.outside)), world.stack / "series")


SERIES = {
    "options": "first.patch -p0\nsecond.patch -R\nthird.patch --reverse\n", "paths": "../../../../outside/secret.txt\n<outside>/secret.txt\na/b.patch\n", "commands": "$(trap).patch\n`trap`.patch\n; trap\n| trap\n", "option": "--help\n-x\n", "controls": "\x1b]0;evil\x07.patch\n\u202ex.patch\n\r\n",
    "NUL": "a\0b.patch\n", "long name": "x" * 100_000 + ".patch\n", "twice": "first.patch\nfirst.patch\n", "by case": "FIRST.patch\n", "hidden": ".hidden.patch\n.patch\n", "conflict": "<<<<<<< a\nx.patch\n=======\ny.patch\n>>>>>>> b\n", "many conflicts": "<<<<<<< a\n=======\n>>>>>>> b\n" * 5000,
    "names of devices": "CON.patch\naux.patch\n", "wild": "*.patch\n[a-z].patch\n", "the series itself": "series\n", "blanks": " " * 100_000 + "\n", "turned names": "\u2066evil\u2069.patch\n",
}  # fmt: skip
LARGE = 200_000


def verbs(data: object) -> tuple[str, ...]:
    """Large ones are read once."""
    return (
        ("apply", "import up {inputs}/evil.patch --dry-run")
        if isinstance(data, bytes) and len(data) > LARGE
        else (*STACKED, *IMPORTED[:1])
    )


CASES = [
    *(Case(name=f"path: {name}", make=stacked(mail(new(path))), verbs=(*STACKED, *IMPORTED[:1])) for name, path in PATHS.items()),
    *(Case(name=f"binary path: {name}", make=imported(mail(binary(path, 1 << 20, bomb(1 << 20)))), verbs=IMPORTED[1:]) for name, path in PATHS.items() if name in ("climbs", "absolute", "git", "git of HFS", "escape", "modules", "below a file", "of a folder")),
    *(Case(name=f"diff: {name}", make=stacked(data if callable(data) else mail(data)), verbs=verbs(data)) for name, data in DIFFS.items()),
    *(Case(name=f"bare diff: {name}", make=imported(data), verbs=IMPORTED[1:2]) for name, data in DIFFS.items() if callable(data) or name.startswith(("rename", "copy", "ed ", "Index", "names", "CR"))),
    *(Case(name=f"mail: {name}", make=stacked(data), verbs=verbs(data)) for name, data in MAILS.items()),
    *(Case(name=f"adopted mail: {name}", make=imported(data), verbs=IMPORTED[1:]) for name, data in [*MAILS.items()][::3] if len(data) < 10_000),
    *(Case(name=f"handed on: {name}", make=stacked(MAILS[name]), verbs=HANDED_ON) for name in (
        "subject of HTML", "status of an address", "status of HTML", "topic of HTML", "body of markdown", "trailers of escapes",
    )),
    *(Case(name=f"series: {name}", make=series(lines), verbs=("status", "list", "apply", "drop third")) for name, lines in SERIES.items()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_patch(case: Case, judged: Callable[[Case], None]) -> None:
    judged(case)


def test_the_family_is_whole() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 200
