"""Where the definitions of a Python file stand, in lines as Python's parser counts them."""

from __future__ import annotations

import ast

import pytest

from patchq.drift.bodies import lines_of, places

SOURCE = b"""\
from a import b; c = 1

X = \"\"\"
def no(): pass
\"\"\"


@decorated
class First(Base):
    @property
    def one(self):
        def inside():
            return 1
        return inside

    class Within:
        def deep(self): ...


class Beside:
    def two(self): return 0

if X:
    def either(): return 1
else:
    def either(): return 2

try:
    def tried(): pass
except E:
    def failed(): pass
finally:
    async def last(): pass
"""


def test_each_by_its_qualified_name_with_its_decorators() -> None:
    found = places(SOURCE)
    lines = [line.decode() for line in lines_of(SOURCE)]
    assert {name: lines[start - 1].strip() for name, (start, _) in found.items()} == {
        "First.one": "@property", "First.one.inside": "def inside():", "First.Within.deep": "def deep(self): ...",
        "Beside.two": "def two(self): return 0", "either": "def either(): return 2", "tried": "def tried(): pass",
        "failed": "def failed(): pass", "last": "async def last(): pass",
    }  # fmt: skip
    assert lines[found["First.one"][1] - 1] == "        return inside"


@pytest.mark.parametrize("odd", [b"\r", b"\r\n", b"\n", b"\n\x0c\n", b"  # \x0b \x1c \xc2\x85 \xe2\x80\xa8\n"])
def test_lines_are_those_that_the_parser_counts(odd: bytes) -> None:
    source = b"a = 1" + odd + b"def f():" + odd + b"    return 1" + odd + b"b = 2" + odd
    [(start, end)] = places(source).values()
    assert lines_of(source)[start - 1].startswith(b"def f")
    assert lines_of(source)[end - 1].startswith(b"    return 1")
    assert ast.parse(source).body[1].lineno == start


def test_a_file_that_is_no_python_has_none() -> None:
    assert places(b"def (") == {}
    assert places(b"def f():\0 pass") == {}
