"""Patches that change nothing, and upstreams without patches: they are named, and never called patched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from kit import Patchq
from test_build import built, pair

__all__ = ["pair"]


def test_an_empty_patch_is_named(stack: Patchq) -> None:
    stack.ok("new", "up", "nothing", "-m", "Nothing\n\nWhy.", "--topic", "test", "-s", "--allow-empty")
    for said in (stack.ok("apply"), stack.ok("apply")):
        assert said.endswith("  nothing: changes nothing\n")
        assert said.count("changes nothing") == 1
    (patches,) = (s["patches"] for s in json.loads(stack.ok("apply", "--json"))["stacks"])
    assert [p["name"] for p in patches if p["empty"]] == ["nothing"]
    # Made again from the files, it is the same.
    stack.layout.state("up").unlink()
    assert "  nothing: changes nothing\n" in stack.ok("apply")
    for args in (("check",), ("check", "--text")):
        findings = json.loads(stack.run(*args, "--json").output)["findings"]
        assert [f["patch"] for f in findings if f["rule"] == "empty"] == ["nothing"]
        findings = json.loads(stack.run(*args, "--allow-empty", "--json").output)["findings"]
        assert not [f for f in findings if f["rule"] == "empty"]
    lock = stack.layout.lock
    lock.write_text(lock.read_text() + '\n[upstreams.up.check]\noff = ["empty"]\nreason = "A marker."\n')
    assert "[empty]" not in stack.run("check").output


def test_nothing_is_built_without_patches(pair: Patchq) -> None:
    before = built(pair)
    pair.ok("drop", "lib/answer")
    out = pair.ok("build", "--no-isolation")
    assert (
        "lib: no applied patch changes it, so nothing is built; "
        "install upstream's own release: python -m pip install lib==1.0\n"
    ) in out
    after = json.loads(pair.ok("build", "--no-isolation", "--json"))
    assert [w["upstream"] for w in after["wheels"]] == ["app"]
    assert after["unpatched"] == [{"upstream": "lib", "distribution": "lib", "version": "1.0"}]
    dist = pair.layout.dist / "default"
    assert not before["lib"].exists()
    assert sorted(p.name.split("-")[0] for p in dist.glob("*.whl")) == ["app"]
    assert "lib==1.0\n" in (dist / "constraints.txt").read_text()
    assert "lib" not in (dist / "requirements.txt").read_text()
    pair.ok("drop", "app/answer")
    out = pair.ok("build")
    assert "app: no applied patch changes it, so nothing is built; install upstream's own app\n" in out
    assert "patchq" not in "".join(p.name for p in dist.glob("*.whl"))
    assert "has no patches" in pair.fails(1, "verify-image", str(dist))


def test_an_empty_patch_is_no_reason_to_build(pair: Patchq) -> None:
    pair.ok("drop", "lib/answer")
    pair.ok("new", "lib", "nothing", "-m", "Nothing\n\nWhy.", "--allow-empty")
    out = json.loads(pair.ok("build", "lib", "--json"))
    assert out["wheels"] == []
    assert [u["upstream"] for u in out["unpatched"]] == ["lib"]
    assert not pair.layout.dist.exists()


def test_verify_installed_calls_it_upstreams(pair: Patchq, tmp_path: Path) -> None:
    with_patches = built(pair)["lib"].read_bytes()
    name = built(pair)["lib"].name
    pair.ok("drop", "lib/answer")
    wheels = [built(pair)["app"], next((tmp_path / "index").glob("*.whl"))]
    site, python = tmp_path / "site", tmp_path / "python"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, *map(str, wheels)], check=True, capture_output=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    found = json.loads(pair.ok("verify-installed", "--python", str(python), "--json"))
    assert {p["distribution"]: p["state"] for p in found["packages"]} == {"lib": "upstream", "app": "patched"}
    out = pair.ok("verify-installed", "--python", str(python))
    assert "lib 1.0: upstream\n    note: is upstream's own build: no patch of the stack changes it\n" in out
    # The build of an older stack is no longer right.
    (tmp_path / name).write_bytes(with_patches)
    subprocess.run([*pip, "--upgrade", str(tmp_path / name)], check=True, capture_output=True)
    found = json.loads(pair.fails(1, "verify-installed", "--python", str(python), "--json"))
    assert {p["distribution"]: p["state"] for p in found["packages"]}["lib"] == "other stack"
