"""Each patch that is a candidate for upstream, proposed to its newest pinned release: a branch, or what stops it."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import memory
from kit import Patchq, committed_project, git

pytestmark = pytest.mark.index

NEWEST = {"vllm": "v0.33.0", "flashinfer": "v0.7.2.post1", "cutlass": "b46b16d003484063bca4ed365e44095c4c6ed633"}
#: With the exit code and what stops a patch there, or None: then its branch has to apply and to pass upstream's
#: formatters.
CANDIDATES = {
    "vllm/attention-hyperparameter-groups": (5, "size: .+; above .+ asks for a discussion first"),
    "vllm/xqa-without-cubins": None,
    "vllm/unified-memory": None,
    "vllm/unified-memory-reserve": None,
    "vllm/unified-memory-profiling": (5, "size: .+; above .+ asks for a discussion first"),
    "vllm/mxfp4-moe-build-first": None,
    "vllm/mxfp4-lm-head": None,
    "vllm/targets-beside-activation": None,
    "vllm/moe-triton-topk": None,
    "vllm/mxfp8-triton-quantizer": None,
    "vllm/prefill-plan-keywords": None,
    "vllm/marlin-fp4-warning": None,
    "vllm/inductor-config-probe": None,
    "vllm/attention-sinks-switch": (1, "vllm/attention-sinks-switch is Inappropriate"),
    "vllm/blackwell-class": (1, "vllm/blackwell-class is Inappropriate"),
    "vllm/mxfp4-qkv-o": (3, "vllm/mxfp4-qkv-o: conflict, .+; carried from v"),
    "vllm/eagle-cudagraph-counters": (3, "vllm/eagle-cudagraph-counters: obsolete, .+; carried from v"),
    "flashinfer/attention-sink-jit-uri": None,
    "flashinfer/sinks-left-out": None,
    "flashinfer/jit-module-scales": None,
    "flashinfer/moe-mxfp4-build-profile": None,
    "flashinfer/jit-jobs-by-memory": None,
    "flashinfer/moe-untuned-tiles": None,
    "flashinfer/sm120-finalize-stages": None,
    "flashinfer/topk-collect-sync": None,
    "flashinfer/topk-skipped-rows": None,
    "cutlass/array-smem-capacity": None,
}
FORMATTERS = ("ruff-check", "ruff-format", "clang-format")
#: Those that go through every gate of their upstream; mypy over all of it takes four fifths of a gate's time.
WHOLE = ("vllm/inductor-config-probe", "flashinfer/attention-sink-jit-uri", "cutlass/array-smem-capacity")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patchq]:
    """The committed lock and stacks in a project of its own; nothing is applied."""
    root = tmp_path_factory.mktemp("pr")
    yield committed_project(root)
    shutil.rmtree(root / ".patchq", ignore_errors=True)


@pytest.fixture(scope="module")
def bare_tree(project: Patchq, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A bare tree of a commit, as somebody who has the release's files would have it; fetched once, and each time anew."""
    made: dict[str, Path] = {}

    def checked_out(base: str) -> Path:
        if base not in made:
            made[base] = bare = folder / base
            bare.mkdir()
            git(bare, "init", "-q")
            git(bare, "fetch", "-q", "--depth=1", str(project.layout.store), base)
        bare = made[base]
        shutil.rmtree(bare / ".git" / "rebase-apply", ignore_errors=True)  # of an `am` that failed
        git(bare, "-c", "advice.detachedHead=false", "checkout", "-q", "--force", base)
        git(bare, "clean", "-qxdff")
        return bare

    with memory.shared(tmp_path_factory.mktemp("bare")) as folder:
        yield checked_out
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("patch", CANDIDATES)
def test_a_branch_that_applies_and_is_formatted_or_what_stops_it(
    project: Patchq, bare_tree: Callable[[str], Path], patch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = patch.partition("/")[0]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the gates' tree goes
    if patch not in WHOLE:
        monkeypatch.setenv("SKIP", "mypy")
    done = project.run("pr", patch, "--onto", NEWEST[upstream], "--no-proof", "--json")
    found = json.loads(done.output)
    stopped = CANDIDATES[patch]
    if stopped:
        assert done.exit_code == stopped[0], done.output
        assert re.search(stopped[1], found.get("message") or "; ".join(found["problems"]))
        return
    assert done.exit_code == 0, found["problems"]
    states = {g["hook"]: g["state"] for g in found["gates"] if g["hook"] in FORMATTERS}
    assert set(states.values()) <= {"passed"}
    assert states or upstream == "cutlass", "only CUTLASS has no formatter"
    bare = bare_tree(found["base"])
    names = {"GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.org"}
    git(bare, "am", "-q", "--keep-non-patch", *map(str, sorted(Path(found["folder"]).glob("*.patch"))), env=names)
    tip = git(project.layout.store, "rev-parse", f"{found['tip']}^{{tree}}")
    assert git(bare, "rev-parse", "HEAD^{tree}") == tip
    subjects = git(bare, "log", "--format=%s", f"{found['base']}..HEAD").splitlines()
    assert subjects == [m["subject"] for m in reversed(found["members"]) if not m["absent"]]
    body = (Path(found["folder"]) / "body.md").read_text()
    assert "patchq" not in body
    assert "tests/stacks" not in body
