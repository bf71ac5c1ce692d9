"""An outline that is made from another version's says the same as one that is made anew."""

from __future__ import annotations

import random

import pytest

from patchq.drift import outline as module
from patchq.drift.outline import outline

SOURCE = b"""\
import os
from a import b; c = 1

X = \"\"\"
def no(): pass
\"\"\"


@decorated
class First(Base):
    \"\"\"Doc.\"\"\"

    # of the first
    a = 1; b = 2

    @property
    def one(self):
        def inside():
            return 1
        return inside

    class Within:
        def deep(self): ...

    async def two(self):
        return [
            1,
        ]


class Beside: one = 1


if X:
    def either(): return 1
else:
    def either(): return 2

try:
    def tried(): pass
except E:
    def failed(): pass
finally:
    def last(): pass


class Second:
    def one(self): return 0
    def two(self): return 0


def end(): return 3
"""
#: What a change may put anywhere: statements, what continues one, and what is none.
PUT = [
    b"", b"z = 1", b"    z = 1", b"        z = 1", b"\tz = 1", b"else:", b"    else:", b"    pass", b"@more", b"    @more",
    b"def one(): pass", b"    def one(self): pass", b"class Third:", b"    class Third: pass", b"    class Third:",
    b"if z:", b"    if z:", b"(", b")", b'"""', b'    """', b"'", b"# of another \\", b"z = 1 + \\", b"+ 2", b"    + 2", b"; y = 1",
    b"# coding: latin-1", b"\x0c", b"\xff", b"z = '\xe2\x80\xa8'", b"\xef\xbb\xbf", b"\r", b"\0", b"await z", b"return",
    b"z = 1\rdef hidden(): pass", b"def far():\x0c\r    return 1",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_what_is_parsed_in_part_is_as_if_parsed_whole(seed: int) -> None:
    rng = random.Random(seed)
    lines = SOURCE.split(b"\n")
    like = outline(SOURCE)
    for _ in range(40):
        changed = list(lines)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(changed) + 1)
            gone = rng.choice([0, 0, 1, 1, 3])
            changed[at : at + gone] = rng.choice([[], [rng.choice(PUT)], changed[at - 5 : at], [rng.choice(PUT)] * 2])
        source = b"\n".join(changed)
        new, whole = outline(source, like), outline(source)
        assert list(new.places.items()) == list(whole.places.items())
        assert (new.pieces is None) == (whole.pieces is None)
        if new.pieces is not None and rng.random() < 0.7:
            lines, like = changed, new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # It continues the line above it; it ends the class; what follows is in it, and not beside it.
        (b"z = 1 \\\n\nend", b"z = 1 \\\ndef no_more(): pass\nend"),
        (b"    a = 1; b = 2\n", b"    a = 1\nif z:\n"),
        (b'    """Doc."""\n', b"  def around(self):\n"),
        (b"def end", b"class Last:\ndef end"),
        (b"class Second:\n", b"class Second:\n  def around(self):\n"),
    ],
)
def test_what_only_the_whole_tells_is_parsed_whole(old: bytes, new: bytes) -> None:
    before = SOURCE + b"z = 1 \\\n\nend()\n"
    assert old in before
    after = before.replace(old, new)
    made, whole = outline(after, outline(before)), outline(after)
    assert list(made.places.items()) == list(whole.places.items())
    assert (made.pieces is None) == (whole.pieces is None)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"return inside", b"return inside()"), (b"a = 1; b = 2", b"a = 1"), (b"import os", b"import os, sys"),
     (b"    async def two", b"    def three(self): pass\n\n    async def two"), (b"return 3", b"return 4")],
)  # fmt: skip
def test_only_what_differs_is_parsed(old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    like, parsed, parse = outline(SOURCE), list[str](), module.parse

    def spy(source: bytes | str) -> object:
        parsed.append(source if isinstance(source, str) else source.decode())
        return parse(source)

    monkeypatch.setattr(module, "parse", spy)
    outline(SOURCE.replace(old, new), like)
    assert parsed
    assert sum(map(len, parsed)) < len(SOURCE) / 3


def test_a_file_that_is_no_python_has_no_definitions_and_helps_none() -> None:
    broken = outline(b"def (", outline(SOURCE))
    assert broken.pieces is None
    assert outline(SOURCE, broken).places == outline(SOURCE).places
