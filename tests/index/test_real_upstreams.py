"""The real upstreams, from the package index: ids, the peers' trees, wheels."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs_commands import PAGES, commands
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
        ("positional shift", "vllm/v1/attention/backends/flashinfer.py", 1452, "fixed")
    ]
    assert "was data_type, is now o_data_type" in found[0]["message"]
    quiet = json.loads(real.ok("drift", "flashinfer", "--from", "v0.6.1", "--to", "v0.6.1", "--json"))
    assert quiet["alarms"] == []


#: Commands of the docs that run elsewhere, or can't here.
ELSEWHERE = {
    "--from-bundle": "tests/scenarios/test_bundle.py, in a network namespace of its own",
    "widget": "tests/scenarios/test_tutorial.py runs the tutorial as it is printed",
    "fork": "the same",
    "longer-timeout": "the same",
    "httpx": "the same",
    "build --no-isolation": "the same",
    "--set next": "the same",
    "patchq conflict": "the same",
    "git.git": "a public fork of git, carried for the page about it",
    "rebase git --onto": "the same",
    "left-pad": "tests/scenarios/test_adopt_sources.py has patches of such paths",
    "pin flashinfer --archive": "they are pinned",
    "pin cutlass --url URL": "the same",
    "--profile source": "hours of compiling",
    "patchq init": "the same",
    "VERB": "any of them",
    "undo --pending": "tests/scenarios/test_finishable.py has a pending command",
    "import up": "tests/scenarios/test_adopt_sources.py and its neighbours",
    "import v8": "the same",
    "Dockerfile": "tests/scenarios/test_tutorial.py",
    "wait-a-minute": "the same",
    "pin vllm --archive": "the same",
    "pin up": "an example; there is no such upstream here",
    "pin v8": "the same",
    "rebase up": "the same",
    "new up": "the same",
    "export up": "the same",
    "--to PATCH": "the same",
    "move PATCH": "the same",
    "drop PATCH": "the same",
    "reword": "tests/cli/test_words.py",
    "check --fix": "the same",
    "verify-image": "tests/scenarios/test_image.py has images",
    "build flashinfer": "tests/scenarios/test_kernels.py: here it would be hours of nvcc",
    "--set gb10-newest": ".ci/run proves that set",
    "resolve vllm": "tests/scenarios/test_resolve.py: a rebase must have stopped",
    "conflict vllm": "the same",
    "patchq use": "tests/scenarios/test_after_a_rebase.py",
    "patchq publish": "the same",
    "patchq follow": "tests/scenarios/test_follow.py has a host",
    "doctor --python": "tests/scenarios/test_kernels.py has such an environment",
    "gb10-serve.md": "tests/benchmarks/test_gb10_serve.py makes one",
    "--to first": "an example of tests/scenarios; there is no such upstream here",
    "drop second": "the same",
    "apply up --fix": "the same",
    "new …": "a form of words, not a command",
    "check --drop-upstream-line": "tests/scenarios/test_upstream_lines.py: no stack here has such a line",
    "--scheduler": "needs a Dask scheduler: tests/scenarios/test_proofs.py starts one",
    "test --upstream": "hours: upstream's own tests",
    "test --prove": ".ci/run runs them all",
    "pr PATCH": "needs gh: tests/scenarios/test_pr.py has a stand-in",
    "pr --status": "the same",
    "--push": "the same",
    "patchq pr attention-sink-jit-uri": "tests/index/test_real_pr.py",
    "issue array-smem-capacity": "four minutes of nvcc",
    "--continue": "tests/scenarios/test_rebase.py",
    "--skip": "the same",
    "--abort": "the same",
    "--onto REF": "the same",
    "doctor --mounted": "tests/scenarios/test_compose.py",
    "bench import result.json": "needs a measured environment: tests/scenarios/test_bench.py",
    "--blame": "needs a git host's history: tests/scenarios/test_forecast.py",
    "--history": "asks a git host: tests/scenarios/test_history.py",
    "patchq retire": "tests/scenarios/test_history.py",
    "patchq compare": "needs another fork: tests/scenarios/test_compare.py",
    "patchq fold": "tests/scenarios/test_fold.py",
    "patchq split": "tests/scenarios/test_split.py",
    "check --with": "needs branches: tests/scenarios/test_together.py",
    "--propose": "needs a stopped rebase: tests/scenarios/test_propose.py",
    "--pattern": "tests/scenarios/test_patterns.py",
    "--ref BASE": "needs a git host",
    "--releases": "brings more archives; tests/scenarios/test_upstreams.py has an index of its own",
    "verify-installed": "test_the_wheels_install_and_hold_what_was_patched",
    "--python ENV": "needs installed packages: tests/scenarios/test_thin.py",
    "doctor --arch": "tests/scenarios/test_doctor_arch.py",
    "--kernels": "hours of nvcc: tests/scenarios/test_kernels.py",
    "build flashinfer --set gb10-next": "the build of the other set",
}
#: What a reader fills in.
#: Verbs in a sentence, that do something else, or hours of it, without arguments.
SENTENCES = ("patchq pr", "patchq issue", "patchq test", "patchq test --mutate", "patchq import", "patchq reword")
MEANT = {
    "patchq apply --to NAME": "patchq apply --to marlin-fp4-warning",
    "patchq drop NAME": "patchq drop eagle-tree-top-k",
    "patchq move NAME --before OTHER": "patchq move marlin-fp4-warning --before trtllm-moe-tile-tokens-dim",
    "patchq export vllm --amend NAME": "patchq export vllm --amend marlin-fp4-warning",
    "patchq import vllm 0001-x.patch debian/patches …": "patchq import vllm 0001-x.patch",
    "patchq new vllm NAME -m 'Subject' --topic moe --proof tests/stacks/… -s": "patchq new vllm other -m Subject --topic moe -s",
    "patchq ledger --patch PATCH": "patchq ledger --patch decode-plan-o-data-type",
    "patchq show PATCH": "patchq show marlin-fp4-warning",
    "patchq forecast --why": "patchq forecast cutlass --onto b46b16d003484063bca4ed365e44095c4c6ed633 --why",
    "patchq test PATCH": "patchq test marlin-fp4-warning",
    "patchq diff main": "patchq diff HEAD",
    "patchq diff OLD NEW": "patchq diff HEAD .",
    "patchq forecast --json": "patchq forecast cutlass --onto b46b16d003484063bca4ed365e44095c4c6ed633 --json",
}
#: It asks the git hosts, which may be out of reach.
CODES = {"patchq pin --check": (0, 1)}


def test_the_commands_of_the_docs_run(real: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    every = list(dict.fromkeys(c for page in PAGES for c in commands(page)))
    todo = [c for c in every if not any(part in c for part in ELSEWHERE) and c not in SENTENCES]
    assert len(todo) > 30
    todo.sort(key=lambda c: c != "patchq test PATCH")  # `report` shows what it leaves
    assert [k for k in ELSEWHERE if not any(k in c for c in every)] == [], "in no page any more"
    monkeypatch.chdir(real.root)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(real.root / "summary.md"))
    for name, value in (("NAME", "Test"), ("EMAIL", "test@example.org")):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    git(real.root, "init", "-q", "-b", "main")
    (real.root / ".gitignore").write_text(".patchq/\ndist/\n")
    git(real.root, "add", "-A")
    git(real.root, "commit", "-q", "-m", "as it is")
    (real.root / "llama-bench.md").write_text("| test | t/s |\n|---|---|\n| tg32 | 57.85 ± 0.44 |\n")
    tree = real.tree("vllm")
    wrong = []
    for command in todo:
        real.ok("apply")
        meant = os.path.expandvars(MEANT.get(command, command))
        if " new " in meant or "--amend" in meant:
            (tree / "README.md").write_text((tree / "README.md").read_text() + f"{meant}\n")
        if "--amend my-switch" in meant:
            meant = meant.replace("my-switch", "marlin-fp4-warning")
        if "0001-x.patch" in meant:
            shutil.copy(real.patch_file("marlin-fp4-warning", "vllm", "v0.33.0"), real.root / "0001-x.patch")
            text = (real.root / "0001-x.patch").read_bytes()
            new = b"diff --git a/new.txt b/new.txt\nnew file mode 100644\n--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n"
            (real.root / "0001-x.patch").write_bytes(text.partition(b"diff --git ")[0] + new)
        if meant in ("patchq export", "patchq move", "patchq new"):
            continue  # the verb's name, in a sentence
        done = real.run(*shlex.split(meant)[1:])
        if done.exit_code not in CODES.get(command, (0,)):
            wrong.append(f"{meant}: {done.exit_code}: {done.output[-300:]}")
        if any(f" {verb} " in f"{meant} " for verb in ("new", "drop", "move", "import")) or "--amend" in meant:
            real.run("undo")
            git(tree, "checkout", "-q", "--", ".")
    assert not wrong, "\n".join(wrong)
