"""Inputs that repeat one piece, for every parser of text that others wrote: what they cost must grow with their size.

``python tests/reliability/repetitive.py PARSER…`` measures each input at two sizes, in a child process each, and prints
one JSON object a line. CPU time is measured, which other load changes little, and only its growth is judged.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "tools")]

import parsers
from extent import LONG
from patchq.adopt import _folders, _headers, _hosts
from patchq.build import contents
from patchq.cli import terminal
from patchq.contribute import dossier, gates
from patchq.drift import bodies
from patchq.errors import PatchqError
from patchq.formats import distinfo, leftovers, manifest, relock, render, toml
from patchq.git import diffs
from patchq.kernels import wanted
from patchq.mutation import _with_cmake_parser, _with_tree_sitter
from patchq.stacks import export

LARGE = 1 << 20 if LONG else 1 << 18
#: Where a file is never larger.
LARGEST = {"template": 64 << 10, "hooks": 64 << 10}
#: CPU seconds below which growth isn't judged, and how much more a four times larger input may cost: linear is 4, quadratic 16.
NOTHING, MOST_GROWTH = 0.5, 8
#: CPU seconds and address space of one child: past either it is killed.
MOST_SECONDS, MOST_MEMORY = 60, 4 << 30

#: For every parser: (what comes first, what is repeated, what comes last).
Input = tuple[bytes, bytes, bytes]
PIECES = [
    b"a", b"a.", b"a ", b"a,", b"a@", b"a=", b"a:", b"a/", b"a\n", b"a\\", b"9", b" ", b"\t", b"\n", b"\r\n", b" \n", b"\n\n ", b"\\", b"\\\n", b"\"",
    b"'", b"`", b"\"\"\"", b"'''", b"[", b"]", b"[[", b"[]", b"{", b"{}", b"(", b"()", b"<", b"<>", b"<<a", b"<<a\n", "<<\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}".encode(),
    b"<!--", b"-", b"---\n", b"=", b"=?", b"=?utf-8?q?", b"#", b"# a\n", b"*", b"_", b"!", b"$", b"${", b"$(", b"&&", b"a;", b"|", b"@a",
    b"\0", b"\xff", "\N{COMBINING ACUTE ACCENT}".encode(), b"\x1b[", b"%", b"~",
]  # fmt: skip
PATCH = (
    b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\n"
    b"Date: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: Change\n"
)
_FILE = b"diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n"
_HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
_LOCK = b'version = 2\ndefault-set = "s"\n[upstreams.u]\nurl = "https://example.org/u.git"\n'

MAILS: list[Input] = [
    (PATCH, b"\n", b""),
    (PATCH, b"X: a\n", b"\n" + _FILE + _HUNK),
    (PATCH, b" a\n", b"\n" + _FILE + _HUNK),
    (PATCH + b"X:", b" ", b"\n\n" + _FILE + _HUNK),
    (PATCH.replace(b"Change", b""), b"", b""),
    *((PATCH[:-7], piece, b"\n\nWhy.\n---\n" + _FILE + _HUNK) for piece in (b"[", b"[a]", b"re:", b"a ", b"=?utf-8?q?a?= ", b" ", b"\n ")),
    *((b"From: ", piece, b"\nDate: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: x\n\n" + _FILE + _HUNK) for piece in (b"a <a@b> ", b"<", b"\"", b"a,", b"(", b"\\(", b"a@")),
    *((PATCH + b"\n", piece, b"\n---\n" + _FILE + _HUNK) for piece in (
        b"a\n", b"\n\n", b"Topic: x\n", b"Signed-off-by: A <a@b>\n", b"A: b\n c\n", b" ", b" \n", b"x", b"x\n\n", b"a: b\n\n", b"#\n", b"CVE: 1\n\n",
        b"Upstream-Status: Pending\n\n", b"Upstream-Status: [\n", b"From: A <a@b>\n\n", b"(cherry picked from commit abc)\n", b"https://", b"commit ", b" a\n \n",
        b"gbp: Name x\n\n", b"[", b"- a\n", b">From x\n", b"Bug: x\n\n")),
    (b"", PATCH + b"\n---\n" + _FILE + _HUNK, b""),
    (PATCH + b"\n---\n", _FILE + _HUNK, b""),
    (PATCH + b"\n---\n" + _FILE, _HUNK, b""),
    (PATCH + b"\n---\n", b"--- a/a.txt\n+++ b/a.txt\n", b""),
    (PATCH + b"\n---\n", b" a | 1 +\n", _FILE + _HUNK),
    (PATCH + b"\n---\n", b"x\n", _FILE + _HUNK),
    (b"", b"From x\n", b""),
    (b"", b"From x 00:00\n\n", b""),
    (b"", b"\nFrom ", b""),
    (b"From x\n", b"\n", b""),
    (b"", b"Description: x\n", b"\n" + _FILE + _HUNK),
    (b"Description: x\n", b" .\n", b"\n" + _FILE + _HUNK),
    (b"Author: ", b"a <a@b>, ", b"\n\n" + _FILE + _HUNK),
    (b"commit 0000000000000000000000000000000000000000\n", b"Author: a <a@b>\n", b"\n    x\n\n" + _FILE + _HUNK),
    (b"commit 0000000000000000000000000000000000000000\nAuthor: a <a@b>\n", b"\n", b"\n    x\n\n" + _FILE + _HUNK),
    (b"commit 0000000000000000000000000000000000000000\nAuthor: a <a@b>\n", b"    \n", b"\n    x\n\n" + _FILE + _HUNK),
    (b"", b"commit 0000000000000000000000000000000000000000\nA: b\n", b"\n" + _FILE + _HUNK),
    (b"# HG changeset patch\n# User a <a@b>\n", b"# Parent 0\n", b"x\n\n" + _FILE + _HUNK),
    (b"", b"# HG changeset patch\n# User a <a@b>\n", b"x\n\n" + _FILE + _HUNK),
    (b"x\n\n", b"Index: a.txt\n", _FILE + _HUNK),
    (b"x\n\nIndex: a.txt\n", b"=" * 67 + b"\n", _FILE + _HUNK),
    (b"Content-Type: text/plain; charset=", b"\n ", b"\nSubject: x\n\n" + _FILE + _HUNK),
    (PATCH + b"Content-Type:", b"\n a", b"\n\n" + _FILE + _HUNK),
    (PATCH + b"Content-Type: multipart/mixed; boundary=x\n\n", b"--x\n\n", _FILE + _HUNK),
    (PATCH + b"Content-Transfer-Encoding: base64\n\n", b"YQ==\n", b""),
    (PATCH + b"Content-Transfer-Encoding: quoted-printable\n\n", b"=0A", b""),
]  # fmt: skip
DIFFS: list[Input] = [
    (b"", _FILE + _HUNK, b""),
    (_FILE, _HUNK, b""),
    (_FILE, b"@@ -1 +1 @@\n", b""),
    (_FILE + b"@@ -1,9999999 +1,9999999 @@\n", b" a\n", b""),
    (_FILE + b"@@ -1,500000 +1 @@\n", b"-a\n", b"+a\n"),
    (_FILE, b"@@ -1,3 +1,3 @@\n a\n-b\n+c\n a\n", b""),
    (_FILE, b"@@ -0,0 +1 @@\n+b\n", b""),
    (b"", b"diff --git a/a.txt b/a.txt\n", b""),
    (b"", b"diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n", b""),
    (b"", b"--- a\n+++ b\n", b""),
    (b"", b"--- a\n+++ b\n" + _HUNK, b""),
    (b"", b"GIT binary patch\n", b""),
    (b"diff --git a/a.txt b/a.txt\nindex 0..1\nGIT binary patch\n", b"literal 1\nIcmZQzWMT#Y01f~L\n\n", b""),
    (b"diff --git a/", b"a/", b"x b/x\n"),
    (b'diff --git "a/', b"\\001", b'" b/x\n'),
    (b"--- a/", b"a/", b"x\n+++ b/x\n" + _HUNK),
    (b"--- a/", b"//", b"x\n+++ b/x\n" + _HUNK),
    (b"--- a/x\t", b"1970-01-01 ", b"\n+++ b/x\n" + _HUNK),
    (_FILE + _HUNK, b"\n", b""),
    (_FILE + _HUNK, b"-- \n", b""),
    (_FILE + _HUNK, b">", b"diff --git x"),
    (_FILE + _HUNK, b"\\ No newline at end of file\n", b""),
    (b"", b"rename from a\nrename to b\n", b""),
    (b"diff --git a/a b/b\n", b"rename from a\nrename to b\n", b""),
    (b"diff --git a/a b/b\n", b"index 0..1\n", b""),
]
TOML: list[Input] = [
    (b"", b"a.", b"a = 1\n"),
    (b"", b'"a".', b"a = 1\n"),
    (b"", b"a . ", b"a = 1\n"),
    (b"[", b"a.", b"a]\n"),
    (b"[[", b"a.", b"a]]\n"),
    (b"x = {", b"a.", b"a = 1}\n"),
    (b"x = 1\n", b"a.a.a.a.a.a.a.a.a.a.a.a = 1\n", b""),
    (b"", b"[[a]]\n", b""),
    (b"", b"[[a.b]]\n", b""),
    (b"", b"[[a]]\n[[a.b]]\nc = 1\n", b""),
    (b"x = ", b"[", b""),
    (b"x = ", b"{a=", b""),
    (b"x = [", b"1,", b"]\n"),
    (b"x = [", b"[],", b"]\n"),
    (b"x = [", b"{},", b"]\n"),
    (b"x = [", b"{a=1},", b"]\n"),
    (b"x = [", b"#\n", b"]\n"),
    (b"x = [", b"\n", b"]\n"),
    (b'x = "', b"a", b'"\n'),
    (b'x = "', b"\\n", b'"\n'),
    (b'x = """', b"\\\n", b'"""\n'),
    (b'x = """', b'\\"""', b'"""\n'),
    (b'x = """', b'""', b'"""\n'),
    (b"x = '''", b"a\n", b"'''\n"),
    (b"x = ", b"1_", b"0\n"),
    (b"x = ", b"9", b"\n"),
    (b"x = 1.", b"9", b"\n"),
    (b"x = 0x", b"f", b"\n"),
    (b"", b"#\n", b""),
    (b"", b"# a\n", b""),
    (b"x = 1", b" ", b"\n"),
]
LOCKS: list[Input] = [
    *TOML,
    *((_LOCK, b"a" + line, b"") for line in (b".b = 1\n",)),
    (_LOCK, b"#\n", b""),
    (_LOCK, b"\n", b""),
    (_LOCK, b" \n", b""),
    (_LOCK + b"#", b"a", b"\n"),
    (_LOCK + b"url2 = [", b"[],", b"]\n"),
]  # fmt: skip
SCRIPTS: list[Input] = [
    *((b"FROM x\nRUN ", piece, tail) for piece in (
        b"a@", b"@a", b"a@a@", "<<\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}".encode(), b"<<a", b"<<a ", b"<<-'a' ", b"<<\"", b"<< ", b"<<a\n", b"$(", b"${", b"`", b"((", b"[[ ", b"{ ", b"if ", b"case a in ", b"\\\n",
        b"a \\\n", b"a && ", b"a; ", b"a | ", b"a || ", b"> a ", b">", b"sed ", b"sed -i ", b"perl ", b"git ", b"git  ", b"patch ", b"awk ", b"python ", b"python3 <<", b"a", b" ", b"\t",
        b"/a", b"/a/a ", b"/a/", b"--a ", b"--a", b"'a' ", b"\"a\" ", b"\"", b"'", b"# a\\\n", b"f() {", b"cp a.txt b.txt && ", b"cp a.txt b.txt; ", b"&", b"[", b"=", b"a=", b"a=1 ", b"!", b"\\", b"$", b"@", b"$'", b"$\"", b"{a,", b"*", b"?(", b"~")
        for tail in (b"\n",)),
    (b"FROM x\n", b"RUN a\n", b""),
    (b"FROM x\n", b"RUN sed -i s/a/b/ a.txt\n", b""),
    (b"FROM x\n", b"RUN <<E\nsed -i s/a/b/ a.txt\nE\n", b""),
    (b"FROM x\n", b"RUN <<E\n", b""),
    (b"FROM x\n", b"COPY a.txt b.txt\n", b"RUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\n", b"COPY a.txt /tmp/\nRUN sed -i s/a/b/ a.txt\n", b""),
    (b"FROM x\nCOPY ", b"a.txt ", b"/tmp/\n"),
    (b"FROM x\n", b"ENV A=b\n", b"RUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\nENV ", b"A=b ", b"\nRUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\nENV A=", b"$A", b"\nRUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\n", b"ENV A=$A$A\n", b"RUN sed -i s/a/b/ a.txt\n"),
    (b"", b"FROM x\n", b""),
    (b"FROM x\n", b"# a\n", b"RUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\n", b"WORKDIR /a/a\n", b"RUN sed -i s/a/b/ a.txt\n"),
    (b"FROM x\n", b"RUN sed -i s/a/b/ /a/a/a.txt\n", b""),
    (b"FROM x\n", b"LABEL a=b\n", b""),
    (b"# escape=`\nFROM x\nRUN a", b"`\n", b"\n"),
    *((b"#!/bin/sh\n", piece, b"\n") for piece in (
        b"a\n", b"# a\n", b"cd /x\n", b"a=1\n", b"export a=1\n", b"cat <<E\nE\n", b"cat <<E\n", b"a && ", b"a | ", b"a; ", b"$(", b"((", b"if a; then ", b"for a in b; do ", b"case a in ", b"sed -i s/a/b/ a.txt\n",
        b"sed -i s/a/b/ /a/a/a.txt\n", b"> a ", b"{ ", b"\"", b"'", b"`", b"\\\n", b"<<a", b"[[ ")),
    *((b'SRC_URI = "', piece, b'"\n') for piece in (b"file://a.patch ", b"file://a.patch \\\n ", b"\\\n", b"a", b"\\", b" ", b";a=b")),
    (b"", b'SRC_URI += "file://a.patch"\n', b""),
    (b"", b'SRC_URI:append = " file://a.patch"\n', b""),
    (b"", b'SRC_URI = "\n', b""),
    (b"", b"SRC_URI", b""),
    (b"SRC_URI", b":append", b' = "file://a.patch"\n'),
    (b"SRC_URI", b"_a", b""),
    (b"", b"SRC_URI \n", b""),
    (b"", b"require a.inc\n", b""),
    (b"require ", b" ", b"x"),
    (b"require ", b"a.inc", b" x\n"),
    (b"", b"require\n", b""),
    (b"", b"import src.b as b\nb.f = g\n", b""),
    (b"import src.b as b\n", b"b.f = g\n", b""),
    (b"import src.b as b\nb", b".f", b" = g\n"),
    (b"import src.b as b\nb.f = ", b"-", b"g\n"),
    (b"import src.b as b\nb.f = g", b"()", b"\n"),
    (b"import src.b as b\nb.f = ", b"g+", b"g\n"),
    (b"import src.b as b\nb.f = ", b"g if g else ", b"g\n"),
    (b"import src.b as b\n", b"setattr(", b""),
    (b"import src.b as b\n", b"setattr(b, 'f', g)\n", b""),
    (b"import src", b".b", b" as b\nb.f = g\n"),
    (b"import src.b as b\nb.f = g", b".f", b"\n"),
    (b"import src.b as b\nb.f", b"= b.f ", b"= g\n"),
]  # fmt: skip
MORE: dict[str, list[Input]] = {
    "lock": LOCKS,
    "series": [(b"", b"a.patch\n", b""), (b"", b"#\n", b""), (b"", b"<<<<<<< a\n", b""), (b"", b"=======\n", b""), (b"a", b" #", b"\n")],
    "header": MAILS,
    "import": [*MAILS, *DIFFS],
    "diff": DIFFS,
    "leftovers": DIFFS,
    "scripts": SCRIPTS,
    "toml": TOML,
    "relock": LOCKS,
    "wanted": TOML,
    "targets": TOML,
    "ledger": [(b"", b'{"version":1}\n', b""), (b'{"a":"', b"a", b'"}\n'), (b"", b"{}\n", b""), (b'{"patch":', b"[", b"\n")],
    "measurements": [(b"", b"{}\n", b""), (b'{"a":', b"[", b"\n")],
    "measurement": [
        (b"| model | test | t/s |\n|---|---|---|\n", b"| a | pp1 | 1 |\n", b""),
        (b"| model | test | t/s |\n|---|---|---|\n| a | pp1 | ", b"*", b" |\n"),
        (b"| model | test | t/s |\n|---|---|---|\n| a | pp1 | ", b"1,", b" |\n"),
        (b"| model | test | t/s |\n|---|---|---|\n| a | pp1 ", b" ", b" | 1 |\n"),
        (b"", b"| a ", b"|\n"),
        (b"[", b"{},", b"{}]"),
        (b"", b"a  b  c\n", b""),
    ],
    "state": [(b'{"version":1,"patches":[', b"[],", b"[]]}")],
    "bundle": [(b'{"version":1,"files":{', b'"a":1,', b'"b":2}}')],
    "resolutions": [
        (b"", b"a\n", b"\0a\n"), (b"", b"<<<<<<<\n", b"\0a\n"), (b"", b"<<<<<<<\na\n=======\nb\n>>>>>>>\n", b"\0a\n"), (b"a\0", b"a\n", b""),
        (b"", b"=======\n", b"\0a\n"), (b"", b">>>>>>>\n", b"\0a\n"),
    ],
    "metadata": [
        (b"Metadata-Version: 2.1\nName: a\nVersion: ", b"1.", b"1\n"),
        (b"Metadata-Version: 2.1\nName: a\nVersion: ", b"1", b"\n"),
        (b"Metadata-Version: 2.1\nName: ", b"a-", b"a\nVersion: 1\n"),
        (b"Metadata-Version: 2.1\nName: a\nVersion: 1\n", b"Requires-Dist: a\n", b""),
        *((b"Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: a", piece, b"\n")
          for piece in (b"[a]", b"==1,", b"(", b"; a", b" ", b"; (", b"[", b"a,", b"-", b"; python_version<'3' or python_version<'3' ", b"!=1.1,")),
        (b"Metadata-Version: 2.1\nName: a\nVersion: 1\n", b"Classifier: x\n", b"\n"),
        (b"Metadata-Version: 2.1\nName: a\nVersion: 1\nSummary: a", b"\n  a", b"\n\n"),
        (b"Name:", b" ", b"x\nVersion: 1\n"),
        (b"Name: a", b" ", b"x\nVersion: 1\n"),
        (b"Name: a", b" a", b"\nVersion: 1\n"),
    ],
    "requirement": [(b"a ; ", b"python_version<'3' or ", b"python_version<'3'"), (b"a", b"==1,", b"==1"), (b"a[", b"a,", b"a]"), (b"a ; ", b"(", b"os_name=='a'"),
                    (b"a @ ", b"a", b""), (b"a==1", b".0", b""), (b"a==1", b"a1", b""), (b"a", b"-", b"a"), (b"a ; os_name=='", b"a", b"'"), (b"a>=1", b"!1", b"")],
    "record": [(b"", b"a,sha256=YQ,1\n", b""), (b"", b'"a\n', b""), (b"", b'"",', b""), (b"a,sha256=", b"YQ", b",1\n")],
    "manifest": [(b'{"schema":"patchq/wheel/1","x":', b"[", b""), (b'{"schema":"patchq/wheel/1","upstreams":[', b"{},", b"{}]}")],
    "template": [
        *((b"## Summary\n", piece, b"\n") for piece in (b"<!--", b"<!-- a -->\n", b"- [ ] a\n", b"- [ ] ", b"- ", b" - ", b"> ", b"* ", b"[a](", b"[", b"![", b"`", b"``a`", b"*a", b"_a_ ", b"**a ", b"<a ", b"<?", b"<!A ", b"&amp;", b"    a\n", b"\n", b"a\n", b"\\", b"a\n---\n", b"# a\n", b"[a]: b\n", b"|a|\n", b"1. ", b"\t", b"~~~\n", b"<![CDATA[", b"a**b", b"[a][", b"](", b"<http://a")),
        (b"", b"## Summary\n", b""), (b"", b"\n\n\n", b""), (b"", b" ", b"- [ ] AI assistance"), (b"", b"\n", b"- [ ] AI assistance"), (b"", b"- [ ] AI ", b""), (b"", b"AI assistance", b""),
    ],
    "hooks": [
        *((b"repos:\n", piece, b"\n") for piece in (b"- repo: a\n  rev: b\n  hooks: []\n", b"- ", b"[", b"{", b"a: ", b"&a [*a", b"- *a\n", b"- |\n  a\n", b"? ", b"!a ", b"- 'a'\n", b"'", b"\"", b"#\n", b"%a\n", b"---\n", b" a: b\n", b"a: b\n")),
        (b"repos: ", b"[", b""), (b"repos: ", b"[a,", b""), (b"repos: [", b"a, ", b"]"), (b"repos: ", b"{a: ", b""), (b"repos: ", b"a ", b""), (b"repos: ", b"a\n ", b""), (b"repos: 0x", b"f", b""), (b"repos: ", b"1:", b"1"), (b"repos: ", b"1_", b"1"),
        (b"repos:\n- repo: https://example.org/a/b\n  rev: abcdefa\n  hooks: []\n#", b"abcdefa", b"\n"),
        (b"repos:\n- repo: https://example.org/a/b\n  rev: abcdefa\n  hooks: [{id: a}]\n#abcdefa", b" ", b"\n"),
        (b"repos:\n- repo: https://example.org/a/b\n  rev: abcdefa\n  hooks: [{id: a}]\n#", b"abcdefa #1.", b"\n"),
        (b"repos:\n- repo: https://example.org/a/b\n  rev: abcdefa\n  hooks: [{id: a}]\n#abcdefa # v1", b".1", b"x\n"),
    ],
    "report of hooks": [(b"", b".", b"\n"), (b"a", b"...", b"(\n"), (b"a...(", b")", b"\n"), (b"a...(a)", b"Passed", b"x\n"), (b"", b"a...Passed\n", b""), (b"a...Passed", b" ", b"x\n")],
    "quilt": [(b"", b"a.patch -p1\n", b""), (b"a.patch", b" #", b"\n"), (b"a.patch", b" ", b"\n"), (b"a.patch ", b"-p1 ", b"\n"), (b"", b" ", b"#\n")],
    "url": [(b"https://", b"a/", b""), (b"https://a", b"/pull/1", b""), (b"https://a/", b"-/", b""), (b"https://a/pull/", b"1", b""), (b"https://a/pull/1", b"/", b""), (b"https://a/pull/1/", b"a-", b""), (b"https://a", b"?", b""), (b"https://a", b"/commit/", b"")],
    "git's words": [(b"Checking patch ", b"a", b"...\n"), (b"Checking patch a...\n", b"Hunk #1 succeeded at 1 (offset 1 line).\n", b""), (b"", b"Checking patch a...\n", b""), (b"", b"error: ", b""), (b"Checking patch ", b"...", b"x")],
    "name": [(b"", b"[a]", b""), (b"", b"[a] ", b""), (b"", b" ", b"["), (b"", b"[", b""), (b"", b"1", b""), (b"", b".patch", b"")],
    "cmake": [(b"", b"a(b)\n", b""), (b"a(", b"b ", b")\n"), (b"", b"a(", b""), (b"", b"[[", b""), (b"a(", b"[=[", b""), (b"a(\"", b"\\a", b"\")"), (b"", b"#[[", b""), (b"a(", b"(", b""), (b"a(\"", b";", b"\")"), (b"a(", b"${", b")"), (b"a(", b"\"a\"", b")")],
    "cuda": [(b"", b"int a;\n", b""), (b"int a = ", b"1+", b"1;\n"), (b"", b"a<", b""), (b"", b"{", b""), (b"int a = f(", b"1,", b"1);\n"), (b"", b"#if a\n", b""), (b"", b"a::", b""), (b"int ", b"*", b"a;\n"), (b"", b"template<", b""), (b"int a = ", b"(", b"1"),
             (b"", b"/*", b""), (b"", b"if (a) ", b""), (b"R\"(", b"a", b""), (b"int a = ", b"!", b"1;"), (b"int a = ", b"1&&", b"1;")],
    "python": [(b"", b"def f(): pass\n", b""), (b"", b"class a:\n", b""), (b"x = ", b"(", b""), (b"x = ", b"a.", b"a\n"), (b"x = ", b"a+", b"a\n"), (b"x = ", b"not ", b"a\n"), (b"", b"@a\n", b"def f(): pass\n"), (b"x = f'", b"{a}", b"'\n"), (b"x = [", b"a,", b"]\n"), (b"", b"if a: pass\n", b""), (b"if a: pass\n", b"elif a: pass\n", b"")],
}  # fmt: skip


def toml_(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        toml.loads(data)


def relock_(data: bytes) -> None:
    parsers.lock_(data)
    relock.without(data, [("upstreams", "u", "pins", "v1")])
    relock.with_default(data, "s")


def metadata(data: bytes) -> None:
    from packaging.metadata import parse_email

    text = data.decode("utf-8", "replace")
    for required in parse_email(data)[0].get("requires_dist", []):
        requirement(required.encode())
    contents._check_identity(Path("a-1-py3-none-any.whl"), "a-1.dist-info", text)


def requirement(data: bytes) -> None:
    from packaging.requirements import InvalidRequirement, Requirement

    with contextlib.suppress(InvalidRequirement, RecursionError):
        Requirement(data.decode("utf-8", "replace"))


def record(data: bytes) -> None:
    contents._record(Path("a.whl"), data.decode("utf-8", "replace"), "a-1.dist-info", {})


def installed(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    distinfo.read_metadata(text)
    distinfo.read_entry_points(text)
    with contextlib.suppress(ValueError):
        list(distinfo.read_record(text))


def template(data: bytes) -> None:
    dossier.fill(data.decode("utf-8", "replace"), {"summary": "a", "details": "b", "validation": "c", "notes": ""})


def hooks(data: bytes) -> None:
    gates._plan(data.decode("utf-8", "replace"), Path("/"), [])


def quilt(data: bytes) -> None:
    _folders._listed(Path("a.tar.gz"), {"series": data, "a.patch": b""})


def words(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    terminal.safe(text)
    render.markdown_text(text)
    _headers.settle(text)
    _headers.first_address(text)


def mutants(language: str, data: bytes) -> None:
    for _ in _with_tree_sitter.edits_by(language, data):
        pass


def git_said(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for pattern in (diffs._CHECKING, diffs._MOVED, diffs._CORRUPT):
        for line in text.splitlines():
            pattern.match(line)
        pattern.search(text)


PARSERS: dict[str, Callable[[bytes], object]] = {
    **parsers.PARSERS,
    "toml": toml_,
    "relock": relock_,
    "wanted": lambda data: wanted.parse_wanted(data, "input"),
    "leftovers": leftovers.leftovers,
    "manifest": lambda data: manifest.parse_manifest(data.decode("utf-8", "replace")),
    "metadata": metadata,
    "requirement": requirement,
    "record": record,
    "installed": installed,
    "template": template,
    "hooks": hooks,
    "report of hooks": lambda data: gates._read(data.decode("utf-8", "replace"), ["a"]),
    "quilt": quilt,
    "url": lambda data: _hosts.parse_address(data.decode("utf-8", "replace")),
    "git's words": git_said,
    "words": words,
    "name": lambda data: export.slug(data.decode("utf-8", "replace")),
    "cmake": lambda data: list(_with_cmake_parser.edits(data)),
    "cuda": functools.partial(mutants, "cuda"),
    "jinja": functools.partial(mutants, "jinja"),
    "python": bodies.places,
}
MORE["installed"], MORE["words"] = [*MORE["record"], *MORE["metadata"]], MAILS


def inputs(name: str) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """What a parser is given, by a name: a function of the size."""
    pieces = PIECES if LONG else PIECES[::6]
    for head, piece, tail in [*((b"", piece, b"") for piece in pieces), *MORE.get(name, [])]:
        if piece:
            label = f"{head[-40:]!r} + n * {piece[:60]!r} + {tail[:20]!r}"

            def made(size: int, head: bytes = head, piece: bytes = piece, tail: bytes = tail) -> bytes:
                return head + piece * (size // len(piece)) + tail

            yield label, made


def cost(name: str, data: bytes) -> tuple[float, str]:
    """CPU seconds that a child and its own children take to parse, and what else there is to say: how it ended."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 9
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            gc.freeze()  # a collection would go through, and copy, all that the parent had made
            try:
                PARSERS[name](data)
                code = 0
            except PatchqError:
                code = 1
            except MemoryError:
                code = 2
        finally:
            os._exit(code)
    _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    ended = {0: "read", 1: "refused", 2: "too much memory"}.get(code, f"ended with {code}")
    return usage.ru_utime + usage.ru_stime, ended


def measure(name: str) -> Iterator[dict[str, Any]]:
    """What each repetitive input of a parser costs at both sizes."""
    for _, made in inputs(name):  # what is imported on the way is no cost of a parser
        with contextlib.suppress(PatchqError, RecursionError):
            PARSERS[name](made(64))
    idle = min(cost(name, b"")[0] for _ in range(3))  # of the child itself
    for label, made in inputs(name):
        size = min(LARGE, LARGEST.get(name, LARGE))
        large, ended = cost(name, made(size))
        small = cost(name, made(size // 4))[0] if large - idle > NOTHING else idle
        yield {"parser": name, "input": label, "small": small - idle, "large": large - idle, "ended": ended}


def too_costly(row: dict[str, Any]) -> bool:
    """Return whether a measurement shows more than linear growth, or an end without words."""
    grows = row["large"] > NOTHING and row["large"] > MOST_GROWTH * max(row["small"], 0.01)
    return grows or row["ended"] not in ("read", "refused")


if __name__ == "__main__":
    for wanted_one in sys.argv[1:] or PARSERS:
        for row in measure(wanted_one):
            print(json.dumps(row), flush=True)
