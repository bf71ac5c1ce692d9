"""Changes in reach: definitions that share rare names with a patch, or are where it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from patchq.drift._cpp.facts import read_cpp
from patchq.drift._versions.units import Lines, cpp_units
from patchq.drift.alarms import Reached
from patchq.drift.inside import PatchFacts
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id

FILES = {
    "pkg/__init__.py": "",
    "pkg/config.py": """\
class StageConfig:
    limit = 4

    def __init__(self, ranks):
        self.ranks = ranks
        self.stage_count = ranks * 2

    @property
    def total_ranks(self):
        return self.ranks


BACKENDS = {"fast": 1, "plain": 2}
""",
    "pkg/plan.py": """\
from pkg.config import StageConfig


def plan_stages(config: StageConfig):
    steps = config.ranks
    return fill_stages(steps)


def fill_stages(steps):
    return pad_to_warp(steps)


class Planner:
    def first(self):
        return 1

    def second(self):
        return 2
""",
    "pkg/warp.py": """\
def pad_to_warp(count):
    return count + 31
""",
    "pkg/run.py": """\
from pkg.plan import plan_stages


def start(config, ready):
    if ready:
        return plan_stages(config)
    return None


def unrelated(value):
    return value + 1
""",
    "csrc/tile.cuh": """\
#define TILE_ROWS 8
constexpr int kSlots = 4;
struct TileState { int arrivals; int phase; };
__device__ inline int slot_of(int row) { return row / TILE_ROWS; }
__device__ inline int idle(int n) { return n; }
""",
    "csrc/kernel.cu": """\
#include "tile.cuh"
__global__ void kernel(TileState* state, int row) {
  state->arrivals = row;
}
template <class T>
struct Kernel {
  static constexpr int kStages = 2;
  int run(int a) { return a; }
};
""",
}
FILES.update({f"other/mod{n}.py": f"value_{n} = {n}\n" for n in range(60)})
PATCH = {
    "pkg/plan.py": (
        "    steps = config.ranks\n    return fill_stages(steps)\n",
        "    steps = config.stage_count + 1\n    return fill_stages(steps * 2)\n",
    ),
    "csrc/kernel.cu": ("  state->arrivals = row;\n", "  state->arrivals = slot_of(row);\n"),
}
CLASS_PATCH = {"csrc/kernel.cu": ("kStages = 2;\n", "kStages = 2;\n  static_assert(kStages > 1);\n")}
METHOD_PATCH = {"pkg/plan.py": ("        return 1\n", "        return 3\n")}


def reached(path: str, before: str, after: str, patch: Mapping[str, tuple[str, str]] = PATCH) -> list[tuple[str, str]]:
    """Return the file and definition of each change in reach, or that has an alarm already."""
    assert FILES[path].count(before) == 1
    new = {**FILES, path: FILES[path].replace(before, after)}
    return [(r.at.rpartition(":")[0], r.definition) for r in far(new, patch)]


def far(new: Mapping[str, str], patch: Mapping[str, tuple[str, str]] = PATCH) -> tuple[Reached, ...]:
    patched = {path: FILES[path].replace(*edit) for path, edit in patch.items()}
    blobs = {blob_id(text.encode()): text.encode() for files in (FILES, new, patched) for text in files.values()}

    def tree(files: Mapping[str, str]) -> dict[bytes, TreeEntry]:
        return {p.encode(): TreeEntry(b"100644", blob_id(text.encode())) for p, text in files.items()}

    old, mine = tree(FILES), tree(patched)
    changes = [PathChange(path, old[path], entry) for path, entry in mine.items()]
    facts = PatchFacts("up", [("mine", changes)], old, lambda wanted: {b: blobs[b] for b in wanted})
    return facts.compare(tree(new), ignored=["tests/*"], far=True).far


@pytest.mark.parametrize(
    ("path", "before", "after", "definition"),
    [
        # State of the class whose attribute an added line reads, and the order of its initialisation.
        ("pkg/config.py", "    limit = 4", "    limit = 5", "StageConfig"),
        ("pkg/config.py", "        return self.ranks\n", "        return self.ranks + 1\n", "StageConfig.total_ranks"),
        ("pkg/config.py", "class StageConfig:", "class StageConfig(dict):", "StageConfig"),
        # Two calls away from the touched function.
        ("pkg/warp.py", "count + 31", "count + 63", "pad_to_warp"),
        # A new path around the touched function.
        (
            "pkg/run.py",
            "def unrelated(value):\n    return value + 1",
            "def unrelated(value):\n    return fill_stages(value.stage_count)",
            "unrelated",
        ),
        # C++: a macro that a called function reads, and a field of the state that an added line sets.
        ("csrc/tile.cuh", "TILE_ROWS 8", "TILE_ROWS 16", "TILE_ROWS"),
        ("csrc/tile.cuh", "int phase;", "long phase;", "TileState::phase"),
    ],
)
def test_what_a_patch_reaches(path: str, before: str, after: str, definition: str) -> None:
    pytest.importorskip("tree_sitter_cuda")
    assert (path, definition) in reached(path, before, after)


def test_other_members_of_a_class_that_the_patch_changes() -> None:
    pytest.importorskip("tree_sitter_cuda")
    assert reached("csrc/kernel.cu", "return a;", "return a + 1;", CLASS_PATCH) == [("csrc/kernel.cu", "Kernel::run")]
    assert reached("csrc/kernel.cu", "return a;", "return a + 1;", METHOD_PATCH) == []


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("pkg/run.py", "value + 1", "value + 2"),
        ("csrc/tile.cuh", "idle(int n) { return n; }", "idle(int n) { return -n; }"),
        # The same in other words.
        ("pkg/config.py", "    limit = 4", "    limit: int = 2 * 2  # why"),
        ("pkg/config.py", '{"fast": 1, "plain": 2}', '{\n    "fast": 1,\n    "plain": 2,\n}'),
        ("pkg/config.py", "        self.stage_count", '        """Set the count."""\n        self.stage_count'),
        ("pkg/warp.py", "(count):\n    return count", "(count: int) -> int:\n    return count"),
        ("csrc/tile.cuh", "constexpr int kSlots = 4", "static constexpr int kSlots = 0x4"),
        ("csrc/tile.cuh", "TILE_ROWS 8", "TILE_ROWS 8  // rows"),
    ],
)
def test_what_is_out_of_reach_or_the_same(path: str, before: str, after: str) -> None:
    pytest.importorskip("tree_sitter_cuda")
    assert reached(path, before, after) == []


def test_the_nearest_change_is_first_and_tests_do_not_count() -> None:
    new = {
        **FILES,
        "pkg/config.py": FILES["pkg/config.py"].replace("limit = 4", "limit = 5"),
        "pkg/warp.py": FILES["pkg/warp.py"].replace("31", "63"),
        "tests/test_plan.py": "def test_plan_stages():\n    assert plan_stages(3).stage_count\n",
    }
    found = far(new)
    assert [r.score for r in found] == sorted((r.score for r in found), reverse=True)
    assert {r.at.rpartition(":")[0] for r in found} == {"pkg/config.py", "pkg/warp.py"}


def test_moves_are_no_changes() -> None:
    """A function in another file, and a helper taken out of a function, do what they did."""
    moved = {**FILES, "pkg/warp.py": "", "pkg/lanes.py": FILES["pkg/warp.py"]}
    assert far(moved) == ()
    helper = "def pad_to_warp(count):\n    return more(count)\n\n\ndef more(count):\n    return count + 31\n"
    assert far({**FILES, "pkg/warp.py": helper}) == ()


@pytest.mark.parametrize(
    ("after", "changed"),
    [
        ("struct Config {\n  int blocks;\n};\n", set()),
        ("struct Config {\n  long blocks;\n};\n", {"Config::blocks"}),
        ("struct Other {\n  int blocks;\n};\n", {"Config::blocks", "Other::blocks"}),
    ],
)
def test_a_struct_named_by_a_typedef(after: str, changed: set[str]) -> None:
    sides = b"typedef struct {\n  int blocks;\n} Config;\n", after.encode()
    found = cpp_units(*map(read_cpp, sides), Lines(*sides), (b"a.h", b"a.h"))
    assert {unit.name for unit in found} == changed
