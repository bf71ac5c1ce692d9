"""Changes inside one upstream of what a patch's lines call, read, override or are called by."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from patchq.drift.alarms import Alarm, Kind, Unseen
from patchq.drift.inside import Inside, PatchFacts
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id

HELPER = b"""\
import os

LIMIT = 16

class Base:
    size: int = 4

    def run(self, x, scale=1):
        return x * scale

def helper(a, b=LIMIT, *, c=None):
    '''Help.'''
    total = a + b
    if c is None:
        return total
    return total * c

def check():
    return LIMIT > 4
"""
MAIN = b"""\
from pkg.helper import Base, LIMIT, check, helper

class Child(Base):
    def run(self, x, scale=1):
        y = x + 1
        return y

def entry(x):
    y = x + 1
    return y
"""
PATCHED = MAIN.replace(
    b"    y = x + 1\n    return y\n",
    b"    y = x + 1\n    if check() and y < LIMIT:\n        y = helper(y, c=2) + Base().size\n    return y\n",
).replace(b"        y = x + 1\n", b"        y = x + 2\n")
CUDA = b"""\
#pragma once
constexpr int kTile = 128;
enum class Mode : int { NONE = 0, FP8 = 1 };
#define TWICE(x) ((x) * 2)
template <int N>
__device__ void store(float* out, int value, int stride = 1) {
  out[value * stride] = N;
}
"""
KERNEL = b"""\
#include "tile.cuh"
__global__ void kernel(float* out, int n) {
  int i = threadIdx.x;
  out[i] = n;
}
"""
KERNEL_PATCHED = KERNEL.replace(
    b"  out[i] = n;\n", b"  if (i < kTile && TWICE(n) > 1) store<4>(out, i);\n  out[i] = n + int(Mode::FP8);\n"
)
FILES = {
    b"pkg/__init__.py": b"",
    b"pkg/helper.py": HELPER,
    b"pkg/main.py": MAIN,
    b"csrc/tile.cuh": CUDA,
    b"csrc/kernel.cu": KERNEL,
}
PATCH = {b"pkg/main.py": PATCHED, b"csrc/kernel.cu": KERNEL_PATCHED}


def compared(
    new: Mapping[bytes, bytes], patch: Mapping[bytes, bytes] = PATCH, moves: Mapping[bytes, bytes] | None = None
) -> Inside:
    blobs = {blob_id(text): text for files in (FILES, new, patch) for text in files.values()}

    def entry(text: bytes) -> TreeEntry:
        return TreeEntry(b"100644", blob_id(text))

    def tree(files: Mapping[bytes, bytes]) -> dict[bytes, TreeEntry]:
        return {path: entry(text) for path, text in files.items()}

    changes = []
    for path, text in patch.items():
        changes.append(PathChange(path, entry(FILES[path]) if path in FILES else None, entry(text)))
    facts = PatchFacts("up", [("mine", changes)], tree(FILES), lambda wanted: {b: blobs[b] for b in wanted})
    return facts.compare(tree(new), moved=lambda path: (moves or {}).get(path), ignored=["tests/*"])


def changed(path: str, before: bytes, after: bytes) -> dict[bytes, bytes]:
    assert FILES[path.encode()].count(before) == 1
    return {**FILES, path.encode(): FILES[path.encode()].replace(before, after)}


def kinds(found: Inside) -> set[tuple[str, str]]:
    return {(a.kind, a.function) for a in found.alarms}


@pytest.mark.parametrize(
    ("path", "before", "after", "kind"),
    [
        ("pkg/helper.py", b"def helper(a, b=LIMIT", b"def helper(b, a", Kind.SIGNATURE),
        ("pkg/helper.py", b"*, c=None", b"*, d=None", Kind.SIGNATURE),
        ("pkg/helper.py", b"b=LIMIT", b"b=8", Kind.DEFAULT),
        ("pkg/helper.py", b"LIMIT = 16", b"LIMIT = 32", Kind.CONSTANT),
        ("pkg/helper.py", b"LIMIT > 4", b"LIMIT > 5", Kind.CONSTANT),
        ("pkg/helper.py", b"size: int = 4", b"size: int = 8", Kind.CONSTANT),
        ("pkg/helper.py", b"return total * c", b"return total, c", Kind.RESULT),
        ("pkg/helper.py", b"def helper(", b"async def helper(", Kind.TRAITS),
        ("pkg/helper.py", b"def check", b"def checks", Kind.REMOVED),
        ("pkg/helper.py", b"def check():", b"def check():\n    return False\n\ndef check():", Kind.DUPLICATE),
        ("pkg/helper.py", b"def check():\n    return", b"if os.name:\n  def check():\n    return", Kind.GUARD),
        ("pkg/helper.py", b"def run(self, x, scale=1)", b"def run(self, x, y, scale=1)", Kind.OVERRIDDEN),
        ("pkg/main.py", b"import Base, LIMIT, check, helper", b"import Base, LIMIT, helper", Kind.REMOVED),
        ("pkg/main.py", b"class Child(Base)", b"class Child(object)", Kind.BASES),
        ("pkg/main.py", b"def entry(x):\n    y", b"def entry(x):\n    x = -x\n    y", Kind.BODY),
        ("pkg/main.py", b"def entry", b"def enter", Kind.GONE),
        ("csrc/tile.cuh", b"int value, int stride = 1", b"int stride, int value = 1", Kind.SIGNATURE),
        ("csrc/tile.cuh", b"float* out, int value", b"double* out, int value", Kind.SIGNATURE),
        ("csrc/tile.cuh", b"stride = 1", b"stride = 2", Kind.DEFAULT),
        ("csrc/tile.cuh", b"kTile = 128", b"kTile = 64", Kind.CONSTANT),
        ("csrc/tile.cuh", b"NONE = 0, FP8 = 1", b"NONE = 0, FP4, FP8", Kind.CONSTANT),
        ("csrc/tile.cuh", b"((x) * 2)", b"((x) * 3)", Kind.CONSTANT),
        ("csrc/tile.cuh", b"kTile", b"kTiles", Kind.REMOVED),
        ("csrc/tile.cuh", b"constexpr int kTile = 128;", b"#ifdef A\nconstexpr int kTile = 128;\n#endif", Kind.GUARD),
        ("csrc/kernel.cu", b"__global__ void kernel", b"#ifndef NO\n__global__ void kernel", Kind.GUARD),
        ("csrc/kernel.cu", b"= threadIdx.x", b"= blockIdx.x", Kind.BODY),
    ],
)
def test_what_a_patch_relies_on_changed(path: str, before: bytes, after: bytes, kind: Kind) -> None:
    pytest.importorskip("tree_sitter_cuda")
    new = changed(path, before, after)
    if after.startswith(b"#ifndef NO"):
        new[b"csrc/kernel.cu"] += b"#endif\n"
    assert kind.value in {a.kind for a in compared(new).alarms}


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pkg/helper.py", b"def helper(a, b=LIMIT, *, c=None):", b"def helper(a: int, b: int = LIMIT, *, c: object = None) -> int:"),
        ("pkg/helper.py", b"'''Help.'''", b"'''Help more.'''  # a comment"),
        ("pkg/helper.py", b"    total = a + b\n    if", b"    result = (\n        a + b)\n    total = result\n    if"),
        ("pkg/helper.py", b"        return total\n    return total * c", b"        return total\n    else:\n        return total * c"),
        ("pkg/helper.py", b"*, c=None", b"*, c=None, d=None"),
        ("pkg/helper.py", b"LIMIT = 16", b"LIMIT = 4 * 4"),
        ("pkg/helper.py", b"def check", b"def another():\n    return 3\n\ndef check"),
        ("pkg/main.py", b"def entry(x):\n    y = x + 1", b"def entry(x: int) -> int:\n    # why\n    y = x + 1"),
        ("csrc/tile.cuh", b"int value, int stride = 1", b"int const value, std::int32_t stride = 1"),
        ("csrc/tile.cuh", b"kTile = 128", b"kTile = 0x80"),
        ("csrc/tile.cuh", b"  out[value * stride] = N;", b"  // one\n  out[value * stride]\n      = N;"),
        ("csrc/kernel.cu", b"int i = threadIdx.x;", b"const int i = threadIdx.x;  /* mine */"),
    ],
)  # fmt: skip
def test_the_same_in_other_words_is_no_change(path: str, before: bytes, after: bytes) -> None:
    pytest.importorskip("tree_sitter_cuda")
    assert compared(changed(path, before, after)).alarms == ()


def test_new_callers_count_outside_of_tests() -> None:
    caller = b"from pkg.main import entry\n\ndef other():\n    return entry(3)\n"
    (alarm,) = compared({**FILES, b"pkg/other.py": caller}).alarms
    assert (alarm.kind, alarm.function, alarm.at) == (Kind.CALLER.value, "entry", "pkg/other.py:4 other")
    assert compared({**FILES, b"tests/test_other.py": caller}).alarms == ()


def test_a_new_override_hides_a_touched_method() -> None:
    override = (
        b"from pkg.main import Child\n\nclass Grandchild(Child):\n    def run(self, x, scale=1):\n        return 0\n"
    )
    assert kinds(compared({**FILES, b"pkg/other.py": override})) == {(Kind.OVERRIDE.value, "Child.run")}


def test_a_copy_of_a_touched_function() -> None:
    body = b"".join(b"    value_%d = first + %d\n" % (n, n) for n in range(6))
    function = b"def work(first):\n" + body + b"    return value_0\n"
    patch = {b"pkg/work.py": function.replace(b"first + 3", b"first + 33")}
    FILES[b"pkg/work.py"] = function
    try:
        found = compared({**FILES, b"pkg/fast.py": function.replace(b"def work", b"def work_fast")}, patch)
    finally:
        del FILES[b"pkg/work.py"]
    assert [(a.kind, a.now) for a in found.alarms] == [(Kind.DUPLICATE.value, "work_fast")]


def test_moves_are_followed() -> None:
    """A function that its old module still gives, and a patched file with another name."""
    start = HELPER.index(b"def check")
    moved = {**FILES, b"pkg/checks.py": b"LIMIT = 16\n\n" + HELPER[start:]}
    moved[b"pkg/helper.py"] = HELPER[:start] + b"from pkg.checks import check\n"
    assert compared(moved).alarms == ()
    renamed = {p: t for p, t in FILES.items() if p != b"pkg/main.py"} | {b"pkg/first.py": MAIN}
    assert compared(renamed, moves={b"pkg/main.py": b"pkg/first.py"}).alarms == ()
    (gone, *_) = compared(renamed).alarms
    assert gone.kind == Kind.GONE.value


def test_what_is_not_compared_is_named() -> None:
    broken = {**FILES, b"pkg/main.py": b"def entry(:\n"}
    assert [(u.path, u.reason) for u in compared(broken).unseen] == [("pkg/main.py", Unseen.UNPARSABLE.value)]
    other = compared({**FILES, b"pkg/helper.py": b""}, {b"README.md": b"text\n"})
    assert [(u.path, u.reason) for u in other.unseen] == [("README.md", Unseen.LANGUAGE.value)]
    dynamic = {b"pkg/main.py": MAIN + b"\n\ndef more(*args):\n    return helper(*args)\n"}
    extended = changed("pkg/helper.py", b"*, c=None", b"*, c=None, more=None")
    line = dynamic[b"pkg/main.py"].count(b"\n")
    assert [(u.line, u.reason) for u in compared(extended, dynamic).unseen] == [(line, Unseen.DYNAMIC.value)]


def test_an_alarm_names_both_places() -> None:
    found = compared(changed("pkg/helper.py", b"LIMIT = 16", b"\nLIMIT = 32"))
    alarm: Alarm = next(a for a in found.alarms if a.callee == "LIMIT")
    assert (alarm.patch, alarm.path, alarm.was, alarm.now, alarm.at) == (
        "mine",
        "pkg/main.py",
        "16",
        "32",
        "pkg/helper.py:4",
    )


def test_a_patch_may_end_lines_with_carriage_returns() -> None:
    path, patch = next(iter(PATCH.items()))
    changed_file = {**FILES, path: FILES[path] + b"\nADDED = 1\n"}
    assert not compared(changed_file, {path: patch.replace(b"\n", b"\r")}).unseen
