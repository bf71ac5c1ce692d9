"""Changes elsewhere that mention what a patch's changed lines mention, and its peers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from patchq.drift._versions import mentions
from patchq.drift.alarms import Alarm
from patchq.drift.inside import PatchFacts
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id

FILES = {
    "pkg/__init__.py": "",
    "pkg/state.py": """\
from dataclasses import dataclass


@dataclass
class PlanState:
    window_left: int = -1
    sm_scale: float = 1.0


class Runner:
    def __init__(self, layer_count):
        self.layer_count = layer_count
        self.wrapper_cache = None

    def free_memory(self):
        return device.get_memory_info()[0]
""",
    "pkg/topk.py": """\
def plain_topk(weights, indices, logits):
    run_topk(weights, indices, logits)
    return weights, indices


def choose(fast):
    return plain_topk
""",
    "pkg/main.py": """\
from pkg.state import PlanState, Runner


class Mine(Runner):
    def plan(self, state: PlanState):
        free = device.get_memory_info()[0]
        barrier.arrive(self.layer_count)
        barrier.wait_for_all(self.layer_count)
        phase = barrier.next_phase()
        barrier.check_phase(phase)
        return state.window_left, state.sm_scale, free
""",
    "pkg/flags.py": 'FLAGS = ["-DUSE_FAST_PATH=1"]\n',
}
PATCH = {
    "pkg/main.py": [
        ("        free = device.get_memory_info()[0]\n", "        free = self.unified_free_memory()\n"),
        ("        phase = barrier", "        self.wrapper_cache = {}\n        phase = barrier"),
        ("state.window_left, state.sm_scale, free", "state.window_left + 1, state.sm_scale, free, self.layer_count"),
    ],
    "pkg/topk.py": [
        (
            "def choose(fast):\n",
            """\
def triton_topk(weights, indices, logits):
    run_triton(weights, indices, logits)
    return weights, indices


def choose(fast):
    if fast:
        return triton_topk
""",
        ),
    ],
}
STATE, MAIN, TOPK, MORE = "pkg/state.py", "pkg/main.py", "pkg/topk.py", "pkg/more.py"

#: Changes, with the kind of an alarm about each, and its name.
DRIFTS = {
    "copy of a statement that the patch replaces": (
        MORE,
        "",
        "def used():\n    before = device.get_memory_info()[0]\n    return before\n",
        "changed mention",
        "device.get_memory_info",
    ),
    "new reader of an attribute that the patch sets": (
        MORE,
        "",
        "def cached(runner):\n    return runner.wrapper_cache is None\n",
        "changed mention",
        "wrapper_cache",
    ),
    "attribute that the patch reads is set again": (
        STATE,
        "    def free_memory(self):\n",
        "    def shrink(self):\n        self.layer_count = 1\n\n    def free_memory(self):\n",
        "changed mention",
        "layer_count",
    ),
    "the name that the patch adds": (
        STATE,
        "    def free_memory(self):\n",
        "    def unified_free_memory(self):\n        return 0\n\n    def free_memory(self):\n",
        "changed mention",
        "unified_free_memory",
    ),
    "new function with the statements around the change": (
        MORE,
        "",
        """\
def synchronize(self):
    barrier.arrive(self.layer_count)
    barrier.wait_for_all(self.layer_count)
    phase = barrier.next_phase()
    barrier.check_phase(phase)
""",
        "changed mention",
        "",
    ),
    "field of a record that the patch lists": (
        STATE,
        "    sm_scale: float = 1.0\n",
        "    sm_scale: float = 1.0\n    soft_cap: float = 0.0\n",
        "changed fields",
        "PlanState",
    ),
    "body of a peer": (
        TOPK,
        "    run_topk(weights, indices, logits)\n",
        "    mask_padding(indices)\n    run_topk(weights, indices, logits)\n",
        "changed peer",
        "plain_topk",
    ),
}
BENIGN = {
    "new reader of an attribute that the patch reads": (
        MORE,
        "",
        "def count(runner):\n    return runner.layer_count\n",
    ),
    "unrelated function": (MORE, "", "def count(runner):\n    return runner.depth\n"),
    "local variable renamed": (
        MAIN,
        "phase = barrier.next_phase()\n        barrier.check_phase(phase)",
        "now = barrier.next_phase()\n        barrier.check_phase(now)",
    ),
}


def compared(path: str, before: str, after: str) -> tuple[Alarm, ...]:
    """Return the alarms of the patch for a new version with one edit."""
    patched = dict(FILES)
    for each, pairs in PATCH.items():
        for old, new in pairs:
            patched[each] = patched[each].replace(old, new)
    text = FILES[path].replace(before, after) if before else after
    edited = {**FILES, path: text}
    blobs = {blob_id(t.encode()): t.encode() for files in (FILES, patched, edited) for t in files.values()}

    def tree(files: Mapping[str, str]) -> dict[bytes, TreeEntry]:
        return {p.encode(): TreeEntry(b"100644", blob_id(t.encode())) for p, t in files.items()}

    base, mine = tree(FILES), tree(patched)
    changes = [PathChange(p.encode(), base[p.encode()], mine[p.encode()]) for p in PATCH]
    facts = PatchFacts("up", [("mine", changes)], base, lambda wanted: {b: blobs[b] for b in wanted})
    return facts.compare(tree(edited)).alarms


@pytest.mark.parametrize("name", DRIFTS)
def test_a_change_elsewhere_is_found(name: str) -> None:
    path, before, after, kind, callee = DRIFTS[name]
    found = [(alarm.kind, alarm.callee) for alarm in compared(path, before, after)]
    assert any(a_kind == kind and callee in ("", a_callee) for a_kind, a_callee in found), found


def test_the_changed_statement_is_shown() -> None:
    path, before, after, *_ = DRIFTS["new reader of an attribute that the patch sets"]
    (alarm,) = compared(path, before, after)
    assert (alarm.now, alarm.at) == ("return runner.wrapper_cache is None", "pkg/more.py:2 cached")


def test_statements_in_too_many_changed_files_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = DRIFTS["new function with the statements around the change"][:3]
    assert compared(*copied)
    monkeypatch.setattr(mentions, "MOST_NOW", 0)
    assert compared(*copied) == ()


@pytest.mark.parametrize("name", BENIGN)
def test_other_changes_raise_nothing(name: str) -> None:
    assert compared(*BENIGN[name]) == ()
