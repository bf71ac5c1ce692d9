"""Diffs made by hand, each odd in its own way, on one small tree. What git makes of them is asked of git."""

from __future__ import annotations

NAMES = ("a.txt", "b.txt", "d/g", "empty", "run.sh", "twice", "end", "with space")
#: Mode and content of each file of the tree that they are for.
TREE: dict[bytes, tuple[bytes, bytes]] = {
    b"a.txt": (b"100644", b"".join(b"line %d\n" % n for n in range(1, 13))),
    b"b.txt": (b"100644", b"".join(b"line %d\n" % n for n in range(1, 13))),
    b"d/g": (b"100644", b"one\ntwo\nthree\n"),
    b"empty": (b"100644", b""),
    b"run.sh": (b"100755", b"#!/bin/sh\nexit 0\n"),
    b"twice": (b"100644", b"x\na\nb\nc\ny\na\nb\nc\nz\na\nb\nc\nend\n"),
    b"end": (b"100644", b"one\ntwo\nlast"),
    b"with space": (b"100644", b"one\ntwo\nthree\n"),
    b"crlf": (b"100644", b"one\r\ntwo\r\nthree\r\n"),
    b"link": (b"120000", b"d/g"),
    b"folder-link": (b"120000", b"d"),
}

_G = "diff --git a/a.txt b/a.txt\n"
_I = "index 1111111..2222222 100644\n"
_S = "--- a/a.txt\n+++ b/a.txt\n"
_H = "@@ -2,3 +2,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\n"
_ALL = "".join(f"-line {n}\n" for n in range(1, 13))
_ONE = "@@ -0,0 +1 @@\n+new\n"
_D = "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"


def _d(name: str, *, quote: bool = False) -> str:
    if quote:
        return f'diff --git "a/{name}" "b/{name}"\n--- "a/{name}"\n+++ "b/{name}"\n'
    return f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"


_HEADERS = {
    "as git writes it": _G + _I + _S + _H,
    "names of two files": "diff --git a/a.txt b/a.txt\n--- a/b.txt\n+++ b/b.txt\n" + _H,
    "old name of another file": "diff --git a/a.txt b/a.txt\n--- a/b.txt\n+++ b/a.txt\n" + _H,
    "new name of another file": "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/b.txt\n" + _H,
    "two names in the first line": "diff --git a/a.txt b/b.txt\n--- a/a.txt\n+++ b/a.txt\n" + _H,
    "first line of another file": "diff --git a/d/g b/d/g\n" + _S + _H,
    "gone without saying so": _G + "--- a/a.txt\n+++ /dev/null\n@@ -1,12 +0,0 @@\n" + _ALL,
    "new without saying so": "diff --git a/new b/new\n--- /dev/null\n+++ b/new\n" + _ONE,
    "gone, with a new name": _G + "deleted file mode 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,12 +0,0 @@\n" + _ALL,
    "gone, not all of it": _G + "deleted file mode 100644\n--- a/a.txt\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-line 1\n-line 2\n",
    "gone, and yet lines": _G + "deleted file mode 100644\n--- a/a.txt\n+++ /dev/null\n@@ -1,12 +1 @@\n" + _ALL + "+x\n",
    "gone, without its lines": _G + "deleted file mode 100644\n",
    "gone, empty": "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n",
    "gone, of another mode": "diff --git a/run.sh b/run.sh\ndeleted file mode 100644\n--- a/run.sh\n+++ /dev/null\n"
    "@@ -1,2 +0,0 @@\n-#!/bin/sh\n-exit 0\n",
    "gone, a file that is a link": "diff --git a/link b/link\ndeleted file mode 100644\n--- a/link\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-d/g\n\\ No newline at end of file\n",
    "gone, a link": "diff --git a/link b/link\ndeleted file mode 120000\n--- a/link\n+++ /dev/null\n@@ -1 +0,0 @@\n-d/g\n"
    "\\ No newline at end of file\n",
    "new, with an old name": "diff --git a/new b/new\nnew file mode 100644\n--- a/new\n+++ b/new\n" + _ONE,
    "new, over a file": _G + "new file mode 100644\n--- /dev/null\n+++ b/a.txt\n" + _ONE,
    "new, over an empty file": "diff --git a/empty b/empty\nnew file mode 100644\n--- /dev/null\n+++ b/empty\n" + _ONE,
    "new, over a folder": "diff --git a/d b/d\nnew file mode 100644\n--- /dev/null\n+++ b/d\n" + _ONE,
    "new, below a file": "diff --git a/a.txt/x b/a.txt/x\nnew file mode 100644\n--- /dev/null\n+++ b/a.txt/x\n" + _ONE,
    "new, below a link": "diff --git a/folder-link/x b/folder-link/x\nnew file mode 100644\n--- /dev/null\n+++ b/folder-link/x\n" + _ONE,
    "new, with old lines": "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -1 +1 @@\n-a\n+new\n",
    "new, in two hunks": "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n" + _ONE + "@@ -0,0 +2 @@\n+more\n",
    "new, empty": "diff --git a/new b/new\nnew file mode 100644\nindex 0000000..e69de29\n",
    "new, no lines, but names": "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n",
    "new, of an odd mode": "diff --git a/new b/new\nnew file mode 100600\n--- /dev/null\n+++ b/new\n" + _ONE,
    "new, of a mode in the index line": "diff --git a/new b/new\nnew file mode 100644\nindex 0..1 100755\n--- /dev/null\n+++ b/new\n" + _ONE,
    "new, and gone": _G + "new file mode 100644\ndeleted file mode 100644\n" + _S + _H,
    "new, said twice": "diff --git a/new b/new\nnew file mode 100644\nnew file mode 100755\n--- /dev/null\n+++ b/new\n" + _ONE,
    "new, a link": "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+a.txt\n\\ No newline at end of file\n",
    "new, a submodule": "diff --git a/s b/s\nnew file mode 160000\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit " + "1" * 40 + "\n",
    "mode alone": "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n",
    "mode, the old one wrong": "diff --git a/a.txt b/a.txt\nold mode 100755\nnew mode 100644\n",
    "mode, the new one alone": "diff --git a/a.txt b/a.txt\nnew mode 100755\n",
    "mode, the old one alone": "diff --git a/a.txt b/a.txt\nold mode 100644\n",
    "mode to a link": "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 120000\n",
    "mode, behind the names": _G + _S + "old mode 100644\nnew mode 100755\n" + _H,
    "mode, and one in the index line": _G + "old mode 100644\nnew mode 100755\n" + _I + _S + _H,
    "mode in the index line, another": "diff --git a/run.sh b/run.sh\nindex 1..2 100644\n--- a/run.sh\n+++ b/run.sh\n"
    "@@ -1,2 +1,2 @@\n #!/bin/sh\n-exit 0\n+exit 1\n",
    "mode in the index line, a link's": _G + "index 1..2 120000\n" + _S + _H,
    "index line without a mode": _G + "index 1..2\n" + _S + _H,
    "index line of nonsense": _G + "index foo bar 100755\n" + _S + _H,
    "index line twice": _G + _I + _I + _S + _H,
    "rename": "diff --git a/d/g b/new\nsimilarity index 100%\nrename from d/g\nrename to new\n",
    "rename and edit": "diff --git a/d/g b/new\nsimilarity index 60%\nrename from d/g\nrename to new\n--- a/d/g\n+++ b/new\n" + _D,
    "rename, names disagree": "diff --git a/d/g b/new\nsimilarity index 60%\nrename from d/g\nrename to new\n--- a/d/g\n+++ b/other\n" + _D,
    "rename, first line disagrees": "diff --git a/a.txt b/b.txt\nsimilarity index 100%\nrename from d/g\nrename to new\n",
    "rename, only from": "diff --git a/d/g b/new\nsimilarity index 100%\nrename from d/g\n",
    "rename, only to": "diff --git a/d/g b/new\nsimilarity index 100%\nrename to new\n",
    "rename to itself": "diff --git a/d/g b/d/g\nsimilarity index 100%\nrename from d/g\nrename to d/g\n",
    "rename over a file": "diff --git a/d/g b/a.txt\nsimilarity index 100%\nrename from d/g\nrename to a.txt\n",
    "rename, old words": "diff --git a/d/g b/new\nsimilarity index 100%\nrename old d/g\nrename new new\n",
    "rename without similarity": "diff --git a/d/g b/new\nrename from d/g\nrename to new\n",
    "rename and copy": "diff --git a/d/g b/new\nsimilarity index 100%\nrename from d/g\ncopy to new\n",
    "rename of a link, and a file below it": "diff --git a/folder-link b/was\nsimilarity index 100%\nrename from folder-link\nrename to was\n"
    "diff --git a/folder-link/x b/folder-link/x\nnew file mode 100644\n--- /dev/null\n+++ b/folder-link/x\n" + _ONE,
    "link gone, and a file below it": "diff --git a/folder-link b/folder-link\ndeleted file mode 120000\n--- a/folder-link\n+++ /dev/null\n"
    "@@ -1 +0,0 @@\n-d\n\\ No newline at end of file\ndiff --git a/folder-link/x b/folder-link/x\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/folder-link/x\n" + _ONE,
    "rename to what git reads": "diff --git a/link b/.gitmodules\nsimilarity index 100%\nrename from link\nrename to .gitmodules\n",
    "swap of two": "diff --git a/a.txt b/d/g\nsimilarity index 100%\nrename from a.txt\nrename to d/g\n"
    "diff --git a/d/g b/a.txt\nsimilarity index 100%\nrename from d/g\nrename to a.txt\n",
    "copy": "diff --git a/d/g b/new\nsimilarity index 100%\ncopy from d/g\ncopy to new\n",
    "copy and edit of the same": "diff --git a/d/g b/new\nsimilarity index 100%\ncopy from d/g\ncopy to new\n" + _d("d/g") + _D,
    "a file twice": _G + _S + _H + _G + _S + _H.replace("line 3", "LINE 3").replace("+LINE 3", "+again"),
    "names twice": _G + _S + _S + _H,
    "names in the other order": _G + "+++ b/a.txt\n--- a/a.txt\n" + _H,
    "only the old name": _G + "--- a/a.txt\n" + _H,
    "only the new name": _G + "+++ b/a.txt\n" + _H,
    "no names": _G + _I + _H,
    "no first line": _S + _H,
    "no hunks": _G + _I + _S,
    "nothing but a first line": _G,
    "nothing but an index line": _G + _I,
    "a CR behind the first line": _G.replace("\n", "\r\n") + _S + _H,
    "a CR behind the names": _G + _S.replace("\n", "\r\n") + _H,
    "a CR behind the index line": _G + _I.replace("\n", "\r\n") + _S + _H,
    "CRLF all over": (_G + _I + _S + _H).replace("\n", "\r\n"),
    "quoted, as git wouldn't": 'diff --git "a/a.txt" "b/a.txt"\n--- "a/a.txt"\n+++ "b/a.txt"\n' + _H,
    "quoted on one side": 'diff --git a/a.txt "b/a.txt"\n--- a/a.txt\n+++ "b/a.txt"\n' + _H,
    "quoted, octal": _d("\\141.txt", quote=True) + _H,
    "quoted, without an end": 'diff --git "a/a.txt "b/a.txt"\n' + _S + _H,
    "quoted, an escape that is none": _d("\\x61.txt", quote=True) + _H,
    "dates behind the names": _G + "--- a/a.txt\t2026-01-02 03:04:05\n+++ b/a.txt\t2026-01-02 03:04:05\n" + _H,
    "the epoch behind the old name": _G + "--- a/a.txt\t1970-01-01 00:00:00 +0000\n+++ b/a.txt\n" + _H,
    "a tab behind a name with a blank": "diff --git a/with space b/with space\n--- a/with space\t\n+++ b/with space\t\n" + _D,
    "no tab behind a name with a blank": _d("with space") + _D,
    "other prefixes": "diff --git i/a.txt w/a.txt\n--- i/a.txt\n+++ w/a.txt\n" + _H,
    "no prefixes": "diff --git d/g d/g\n--- d/g\n+++ d/g\n" + _D,
    "a prefix that is a folder": _d("a.txt").replace("a/a.txt", "a//a.txt") + _H,
    "a path above": _d("../a.txt") + _H,
    "a path of its own": "diff --git a//etc/x b//etc/x\n--- a//etc/x\n+++ b//etc/x\n" + _H,
    "a path with a dot": _d("./a.txt") + _H,
    "a path in .git": "diff --git a/.git/x b/.git/x\nnew file mode 100644\n--- /dev/null\n+++ b/.git/x\n" + _ONE,
    "a stream of .git": "diff --git a/.git::$INDEX_ALLOCATION/x b/.git::$INDEX_ALLOCATION/x\nnew file mode 100644\n--- /dev/null\n"
    "+++ b/.git::$INDEX_ALLOCATION/x\n" + _ONE,
    "what one file system takes for .git": "diff --git a/.g\u200cit/x b/.g\u200cit/x\nnew file mode 100644\n--- /dev/null\n"
    "+++ b/.g\u200cit/x\n" + _ONE,
    "a name longer than any file system's": f"diff --git a/{'n' * 300} b/{'n' * 300}\nnew file mode 100644\n--- /dev/null\n"
    f"+++ b/{'n' * 300}\n" + _ONE,
    "a link .gitmodules": "diff --git a/.gitmodules b/.gitmodules\nnew file mode 120000\n--- /dev/null\n+++ b/.gitmodules\n"
    "@@ -0,0 +1 @@\n+a.txt\n\\ No newline at end of file\n",
    "a file .gitmodules": "diff --git a/.gitmodules b/.gitmodules\nnew file mode 100644\n--- /dev/null\n+++ b/.gitmodules\n" + _ONE,
}  # fmt: skip

_P = _G + _S
_T = _d("twice")
_HUNKS = {
    "counts one too high": _P + _H.replace("2,3 @@", "2,4 @@"),
    "counts both too high": _P + "@@ -2,4 +2,4 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "counts both too low": _P + "@@ -2,2 +2,2 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "a line more than counted": _P + _H + "+more\n",
    "counts left out": _P + "@@ -3 +3 @@\n-line 3\n+LINE 3\n",
    "no context, in the middle": _P + "@@ -3,1 +3,1 @@\n-line 3\n+LINE 3\n",
    "no context, only new": _P + "@@ -3,0 +4 @@\n+between\n",
    "no context, at the end": _P + "@@ -12,0 +13 @@\n+more\n",
    "nothing in it": _P + "@@ -2,0 +2,0 @@\n",
    "nothing changed": _P + "@@ -2,2 +2,2 @@\n line 2\n line 3\n",
    "at line 0": _P + "@@ -0,0 +1 @@\n+first\n",
    "at line 0, with lines": _P + "@@ -0,3 +0,3 @@\n line 1\n-line 2\n+LINE 2\n line 3\n",
    "at line 0 of an empty file": _d("empty") + "@@ -0,0 +1 @@\n+first\n",
    "at line 1, lines of 2": _P + "@@ -1,3 +1,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "moved by one": _P + "@@ -3,3 +3,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "moved far": _P + "@@ -90,3 +90,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "old and new lines disagree": _P + "@@ -9,3 +2,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "twice there, at the first": _T + "@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n",
    "twice there, at the second": _T + "@@ -6,3 +6,3 @@\n a\n-b\n+B\n c\n",
    "twice there, between": _T + "@@ -4,3 +4,3 @@\n a\n-b\n+B\n c\n",
    "twice there, far": _T + "@@ -44,3 +44,3 @@\n a\n-b\n+B\n c\n",
    "once there, between": _T + "@@ -4,4 +4,4 @@\n a\n-b\n+B\n c\n y\n",
    "in the wrong order": _P + "@@ -8,3 +8,3 @@\n line 8\n-line 9\n+LINE 9\n line 10\n" + _H,
    "over each other": _P + _H + "@@ -4,3 +4,3 @@\n line 4\n-line 5\n+LINE 5\n line 6\n",
    "the same twice": _P + _H + _H,
    "blank context without its blank": _d("e") + "@@ -1,2 +1,2 @@\n\n-a\n+b\n",
    "garbage between": _P + _H + "garbage\n@@ -8,3 +8,3 @@\n line 8\n-line 9\n+LINE 9\n line 10\n",
    "a blank line between": _P + _H + "\n@@ -8,3 +8,3 @@\n line 8\n-line 9\n+LINE 9\n line 10\n",
    "a blank line between files": _P + _H + "\n" + _d("d/g") + _D,
    "garbage between files": _P + _H + "garbage\n" + _d("d/g") + _D,
    "Index: between files": _P + _H + "Index: d/g\n" + "=" * 67 + "\n" + _d("d/g") + _D,
    "garbage above": "garbage\n\n" + _P + _H,
    "a hunk above": _H + _P + _H,
    "a signature below": _P + _H + "-- \n2.39.5\n\n",
    "garbage below": _P + _H + "garbage\n",
    "a traditional one below": _P + _H + "--- a/d/g\n+++ b/d/g\n" + _D,
    "a heading": _P + _H.replace(" @@\n", " @@ def f():\n"),
    "a heading at once": _P + _H.replace(" @@\n", " @@def\n"),
    "a CR behind the header": _P + _H.replace(" @@\n", " @@\r\n"),
    "leading zeros": _P + _H.replace("-2,3", "-002,03"),
    "a number without end": _P + _H.replace("-2,3", "-" + "9" * 30 + ",3"),
    "a count of 2^64 and more": _P + _H.replace("2,3 @@", "2,18446744073709551619 @@"),
    "a blank in the header": _P + _H.replace("-2", "- 2"),
    "a combined one": _P + _H.replace("@@", "@@@"),
    "cut off": _P + _H.removesuffix("\n"),
    "cut off in a hunk": _P + _H.removesuffix(" line 4\n"),
    "a NUL in a line": _P + _H.replace("LINE", "LI\0E"),
    "no newline, as it is": _d("end") + "@@ -1,3 +1,3 @@\n one\n two\n-last\n\\ No newline at end of file\n+LAST\n\\ No newline at end of file\n",
    "no newline, now one": _d("end") + "@@ -1,3 +1,3 @@\n one\n two\n-last\n\\ No newline at end of file\n+last\n",
    "no newline, as context": _d("end") + "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n last\n\\ No newline at end of file\n",
    "no newline, but there is": _d("d/g") + _D + "\\ No newline at end of file\n",
    "no newline, but more lines": _P + _H + "\\ No newline at end of file\n",
    "no newline, in other words": _d("end") + "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n last\n\\ Kein Zeilenumbruch am Ende\n",
    "no newline, a short word": _d("end") + "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n last\n\\ No\n",
    "no newline in the middle": _P + "@@ -2,3 +2,3 @@\n line 2\n\\ No newline at end of file\n-line 3\n+LINE 3\n line 4\n",
    "no newline in the middle, removed": _P + "@@ -2,3 +2,3 @@\n line 2\n-line 3\n\\ No newline at end of file\n+LINE 3\n line 4\n",
    "no newline, twice": _d("end") + "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n last\n" + "\\ No newline at end of file\n" * 2,
    "no newline, first thing": _P + "@@ -2,3 +2,3 @@\n\\ No newline at end of file\n line 2\n-line 3\n+LINE 3\n line 4\n",
    "CRLF lines": _d("crlf") + "@@ -1,3 +1,3 @@\n one\r\n-two\r\n+TWO\r\n three\r\n",
    "CRLF lines without their CR": _d("crlf") + _D,
    "all lines gone": _P + "@@ -1,12 +0,0 @@\n" + _ALL,
    "binary": "diff --git a/a.txt b/a.txt\nindex 1..2 100644\nBinary files a/a.txt and b/a.txt differ\n",
    "binary, of the patch's own": "diff --git a/n b/n\nnew file mode 100644\nindex 0000000000000000000000000000000000000000.."
    "bdc955b7b2e610ad5a72302b139a2e6cb325519a\nGIT binary patch\nliteral 2\nJcmZQz1ONa700IC2\n\nliteral 0\nHcmV?d00001\n\n",
    "text and binary, moved": _P + "@@ -5,3 +5,3 @@\n line 2\n-line 3\n+LINE 3\n line 4\ndiff --git a/n b/n\nnew file mode 100644\n"
    "index 0000000000000000000000000000000000000000..bdc955b7b2e610ad5a72302b139a2e6cb325519a\nGIT binary patch\nliteral 2\n"
    "JcmZQz1ONa700IC2\n\nliteral 0\nHcmV?d00001\n\n",
    "nothing": "",
    "text": "no diff at all\n",
}  # fmt: skip

DIFFS: dict[str, bytes] = {
    f"{kind}: {name}": text.encode()
    for kind, group in (("header", _HEADERS), ("hunk", _HUNKS))
    for name, text in group.items()
}
