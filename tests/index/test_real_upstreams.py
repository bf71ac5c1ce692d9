"""The real upstreams, from the package index: ids, the peers' trees, wheels."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import Patchq, committed_project, git

pytestmark = pytest.mark.index

#: What each archive's import gives on every machine.
BASES = {
    "vllm": "8ea337b29ef2877391b5a5c01c83a3d078e496cc",
    "flashinfer": "1a5a052ede40944b386474e87acb187a4e1cb1cd",
    "cutlass": "66a8ed4ab4a2086523b2ac9ee434ac1457b92daf",
}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patchq]:
    """The committed lock and stacks in a fresh project, applied from the archives."""
    root = tmp_path_factory.mktemp("real")
    patchq = committed_project(root)
    patchq.ok("fetch", "--source", "archive")
    patchq.ok("apply")
    yield patchq
    shutil.rmtree(root / ".patchq")


def test_the_imported_commits_are_the_same_everywhere(real: Patchq) -> None:
    stacks = json.loads(real.ok("apply", "--json"))["stacks"]
    assert {s["upstream"]: s["base"] for s in stacks if s["source"] == "archive"} == BASES


def test_every_patch_applies_clean_and_check_is_content(real: Patchq) -> None:
    for stack in json.loads(real.ok("apply", "--json"))["stacks"]:
        assert [p["outcome"] for p in stack["patches"]] == ["clean"] * stack["total"]
        assert stack["total"] >= 1
    assert "all good" in real.ok("check")


@pytest.mark.parametrize("upstream", BASES)
def test_git_am_and_quilt_give_the_same_tree(real: Patchq, upstream: str, tmp_path: Path) -> None:
    stack = next(s for s in json.loads(real.ok("apply", "--json"))["stacks"] if s["upstream"] == upstream)
    folder = real.layout.stack(upstream, stack["ref"])
    mailed = tmp_path / "am"
    git(tmp_path, "clone", "-q", "--no-checkout", "--shared", str(real.layout.store), str(mailed))
    git(mailed, "config", "user.name", "T")
    git(mailed, "config", "user.email", "t@example.org")
    git(mailed, "checkout", "-q", "--detach", stack["base"])
    names = [line for line in (folder / "series").read_text().splitlines() if line]
    git(mailed, "am", "-q", "--keep-cr", *(str(folder / n) for n in names))
    assert git(mailed, "rev-parse", "HEAD^{tree}") == stack["tree"]
    git(mailed, "checkout", "-q", "--detach", stack["base"])
    if not shutil.which("quilt"):
        pytest.skip("not run: needs quilt (apt-get install quilt)")
    env = {**os.environ, "QUILT_PATCHES": str(folder), "QUILT_PC": str(tmp_path / "pc")}
    subprocess.run(["quilt", "push", "-aq"], cwd=mailed, env=env, check=True, capture_output=True)
    git(mailed, "add", "-A")
    assert git(mailed, "write-tree") == stack["tree"]


def test_the_wheels_install_and_hold_what_was_patched(real: Patchq, tmp_path: Path) -> None:
    wheels = {w["upstream"]: w for w in json.loads(real.ok("build", "--json"))["wheels"]}
    assert set(wheels) == {"vllm", "flashinfer"}
    for name, package in (("vllm", "vllm"), ("flashinfer", "flashinfer")):
        with zipfile.ZipFile(wheels[name]["path"]) as zf:
            said = json.loads(zf.read(f"{package}/_patchq.json"))
            patches = [p["name"] for u in said["upstreams"] for p in u["patches"]]
            assert len(patches) >= 4
            assert said["files"]
    with zipfile.ZipFile(wheels["flashinfer"]["path"]) as zf:
        assert b"CheckSmemCapacity" in zf.read("flashinfer/data/cutlass/include/cutlass/arch/arch.h")
    version = wheels["flashinfer"]["version"]
    with zipfile.ZipFile(wheels["vllm"]["path"]) as zf:
        metadata = zf.read(next(n for n in zf.namelist() if n.endswith("/METADATA"))).decode()
    assert f"Requires-Dist: flashinfer-python=={version}" in metadata
    site = tmp_path / "site"
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(site),
        *(w["path"] for w in wheels.values()),
    ]
    subprocess.run(argv, check=True, capture_output=True)
    tree = real.tree("vllm") / "vllm/v1/attention/backends/flashinfer.py"
    assert (site / "vllm/v1/attention/backends/flashinfer.py").read_bytes() == tree.read_bytes()
    assert [w["fresh"] for w in json.loads(real.ok("build", "--json"))["wheels"]] == [False, False]
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = real.run("verify-installed", "--python", str(python), "--json")
    found = json.loads(done.output)["packages"]
    assert {p["state"] for p in found} == {"patched"}, done.output
    shutil.rmtree(site)


def test_the_other_set_bumps_only_what_is_nested(real: Patchq) -> None:
    real.ok("apply", "--set", "gb10-next")
    inside = real.tree("flashinfer") / "3rdparty/cutlass/include/cutlass/version.h"
    assert "#define CUTLASS_MAJOR 4" in inside.read_text()
    assert "#define CUTLASS_MINOR 2" not in inside.read_text()
    real.ok("apply", "--set", "gb10")
    assert "#define CUTLASS_MINOR 2" in inside.read_text()


def test_drift_finds_the_bug_that_the_first_patch_mends(real: Patchq) -> None:
    """FlashInfer 0.5.3 to 0.6.1 against vLLM 0.13.0: plan() gained a parameter in the middle."""
    done = real.run("drift", "flashinfer", "--from", "v0.5.3", "--to", "v0.6.1", "--json")
    alarms = json.loads(done.output[done.output.index("{") :])["alarms"]
    found = [a for a in alarms if a["function"] == "fast_plan_decode"]
    assert [(a["kind"], a["path"], a["line"], a["state"]) for a in found] == [
        ("positional shift", "vllm/v1/attention/backends/flashinfer.py", 1452, "mended")
    ]
    assert "was data_type, is now o_data_type" in found[0]["said"]
    quiet = json.loads(real.ok("drift", "flashinfer", "--from", "v0.6.1", "--to", "v0.6.1", "--json"))
    assert quiet["alarms"] == []
