"""Definitions and their bodies, by tokens."""

from __future__ import annotations

import ast

import pytest

from patchq.drift import bodies
from patchq.drift._python.facts import _falls_through

CPP = b"""
#define LIMIT(x) ((x) + 1)
namespace a {
template <class T> struct S {
  // a comment
  int size(T t) const { return LIMIT(t); }
  int other() { return 2; }
};
__global__ void kernel(float* p) { p[threadIdx.x] = 1.0f; }
}
"""


def test_cuda_definitions() -> None:
    found = bodies.definitions(b"k.cu", CPP)
    assert {"LIMIT", "a::S::size", "a::S::other", "a::kernel"} <= {
        n if n.startswith("a::") or n == "LIMIT" else "a::" + n for n in found
    }
    size = next(d for n, d in found.items() if n.endswith("size"))
    assert (size.start, size.end) == (6, 6)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ((b"// a comment", b"// another comment\n"), set()),
        ((b"{ return LIMIT(t); }", b"{\n    return LIMIT(t);  /* why */\n  }"), set()),
        ((b"return LIMIT(t)", b"return LIMIT(t) + 1"), {"size"}),
        ((b"((x) + 1)", b"((x) + 2)"), {"LIMIT"}),
        ((b"1.0f", b"2.0f"), {"kernel"}),
    ],
)
def test_only_changed_bodies_differ(change: tuple[bytes, bytes], differs: set[str]) -> None:
    before, after = bodies.definitions(b"k.cuh", CPP), bodies.definitions(b"k.cuh", CPP.replace(*change))
    assert before.keys() == after.keys()
    assert {n.split("::")[-1] for n in before if before[n].tokens != after[n].tokens} == differs


@pytest.mark.parametrize(
    ("body", "falls"),
    [
        ("while True:\n    pass", False),
        ("while True:\n    if x:\n        break", True),
        ("while True:\n    for y in x:\n        break", False),
        ("match x:\n    case 1:\n        return 1", True),
        ("match x:\n    case 1:\n        return 1\n    case _:\n        return 2", False),
        ("match x:\n    case 1:\n        pass\n    case _:\n        return 2", True),
        ("try:\n    return 1\nfinally:\n    f()", False),
    ],
)
def test_whether_a_block_may_end_without_return(body: str, falls: bool) -> None:
    assert _falls_through(ast.parse(body).body) is falls
