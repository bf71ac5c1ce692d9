"""Wheels of several sets, for several machines, beside each other: nobody installs another's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kit import Patchq, edit
from patchq.build import platforms, zipped
from patchq.build.contents import inspect_wheel
from patchq.sources import index
from test_build import built, pair  # noqa: F401

HERE = os.uname().machine
OTHER = "aarch64" if HERE == "x86_64" else "x86_64"


def install(requirements: Path, site: Path) -> subprocess.CompletedProcess[str]:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), "-r", str(requirements)]
    return subprocess.run(pip, capture_output=True, text=True, check=False)


def add_release(patchq: Patchq, folder: Path, platform: str) -> str:
    """Put a release wheel of ``lib`` for a platform beside the one that the lock has, into the lock and the cache."""
    first = next(folder.glob("lib-*-any.whl"))
    info = inspect_wheel(first)
    path = folder / f"lib-1.0-py3-none-manylinux_2_28_{platform}.whl"
    files = info.read(n for n in info.members if not n.endswith("RECORD"))
    files[f"{info.dist_info}/WHEEL"] += f"Tag: py3-none-manylinux_2_28_{platform}\n".encode()
    from patchq.build.wheel import rewrite_record

    record = f"{info.dist_info}/RECORD"
    zipped.write(path, {**files, record: rewrite_record("", (), files, record)})
    from patchq.system import fsio

    sha256 = fsio.sha256_file(path)
    index.keep(path, sha256)
    lock = patchq.layout.lock
    text = lock.read_text()
    lock.write_text(re.sub(rf'("{re.escape(first.name)}" = ".*"\n)', rf'\1"{path.name}" = "{sha256}"\n', text))
    return path.name


@pytest.fixture
def machines(pair: Patchq, tmp_path: Path) -> Patchq:  # noqa: F811
    """``pair``, whose ``lib`` has a release wheel for each of two machines, and none for all."""
    folder = tmp_path / "index"
    for platform in platforms.KNOWN:
        add_release(pair, folder, platform)
    lock = pair.layout.lock
    lock.write_text(re.sub(r'"lib-1.0-py3-none-any.whl" = ".*"\n', "", lock.read_text()))
    pair.ok("apply")
    return pair


def test_both_machines_in_one_build(machines: Patchq, tmp_path: Path) -> None:
    told = json.loads(machines.ok("build", "--no-isolation", "--json", "--platform", "aarch64,x86_64"))["wheels"]
    assert [(w["upstream"], w["platform"]) for w in told] == [("lib", "aarch64"), ("lib", "x86_64"), ("app", "any")]
    folder = machines.layout.dist / "default"
    assert {Path(w["path"]).parent for w in told} == {folder}
    document = json.loads((folder / "patchq.cdx.json").read_bytes())
    assert len([c for c in document["components"] if c["name"] == "lib"]) == 2
    # Each machine's pip takes its own, by hash, from that folder wherever it lies.
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    site = tmp_path / "site"
    assert install(moved / "requirements.txt", site).returncode == 0
    (wheel,) = site.glob("lib-*.dist-info/WHEEL")
    assert wheel.exists()
    again = machines.ok("build", "--no-isolation", "--platform", "x86_64,aarch64")
    assert again.count("up to date") == 3
    assert "to install, copy dist/default to an aarch64 or x86_64 machine and run: python -m pip" in again


def test_the_install_line_is_for_the_machine_that_it_is_meant_for(machines: Patchq, tmp_path: Path) -> None:
    said = machines.ok("build", "--no-isolation")
    assert said.splitlines()[-2:] == [
        "install: python -m pip install --no-deps -r dist/default/requirements.txt",
        "verify: patchq verify-installed --python python",
    ]
    for path in (machines.layout.dist / "default").glob("lib-*.whl"):
        path.unlink()
    said = machines.ok("build", "--no-isolation", "--platform", OTHER)
    line = said.splitlines()[-1]
    assert line.startswith(f"to install, copy dist/default to an {OTHER} machine and run: ")
    done = install(machines.layout.dist / "default" / "requirements.txt", tmp_path / "site")
    assert done.returncode != 0, "this machine has no wheel of it"
    assert "lib" in done.stderr


def test_a_changed_wheel_is_not_installed(pair: Patchq, tmp_path: Path) -> None:  # noqa: F811
    path = built(pair)["lib"]
    data = path.read_bytes()
    with zipfile.ZipFile(path) as zf:
        at = zf.getinfo("lib/other.py").header_offset
    path.write_bytes(data[: at + 40] + bytes([data[at + 40] ^ 1]) + data[at + 41 :])
    done = install(pair.layout.dist / "default" / "requirements.txt", tmp_path / "site")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_another_sets_wheels_stay_and_are_not_installed(pair: Patchq, tmp_path: Path) -> None:  # noqa: F811
    first = built(pair)
    lock = pair.layout.lock
    lock.write_text(lock.read_text() + '\n[sets.lone]\nlib = "v1.0"\n')
    pair.ok("apply", "--set", "lone")
    second = built(pair, "--set", "lone")
    assert second["lib"].parent == pair.layout.dist / "lone"
    assert all(path.exists() for path in first.values()), "each set has a folder of its own"
    assert "app" not in (pair.layout.dist / "lone" / "requirements.txt").read_text()
    site = tmp_path / "site"
    assert install(pair.layout.dist / "lone" / "requirements.txt", site).returncode == 0
    assert not (site / "app").exists()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    said = pair.ok("verify-installed", "lib", "--python", str(python), "--set", "lone")
    assert "checked against: dist/lone/lib-" in said


def test_a_new_stack_leaves_no_old_wheel_to_install(pair: Patchq) -> None:  # noqa: F811
    built(pair)
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "lib", "more", "-m", "More\n\nWhy.")
    built(pair, "lib")
    text = (pair.layout.dist / "default" / "requirements.txt").read_text()
    assert "lib==" in text
    assert "app==" not in text, "app's wheel is of the stack before"


def test_what_can_not_be_built_here_is_refused(machines: Patchq) -> None:
    assert "no wheels are made for the platform 'riscv64'" in machines.fails(1, "build", "--platform", "riscv64")
    said = machines.fails(5, "build", "lib", "--profile", "source", "--no-isolation", "--platform", OTHER)
    assert f"compiles for this machine ({HERE}), not for {OTHER}" in " ".join(said.split())
    assert "use only one of these options" in machines.fails(1, "build", "--platform", OTHER, "--wheel", "any")
    lock = machines.layout.lock
    lock.write_text(re.sub(rf'"lib-1.0-py3-none-manylinux_2_28_{OTHER}.whl" = ".*"\n', "", lock.read_text()))
    machines.ok("apply")
    assert f"no release wheel is for {OTHER}" in machines.fails(1, "build", "lib", "--platform", OTHER)


def test_wheels_from_before_there_were_folders_make_room(pair: Patchq) -> None:  # noqa: F811
    path = built(pair)["lib"]
    old = pair.layout.dist / path.name.replace("+patchq.", "+patchq.0")
    old.write_bytes(path.read_bytes())
    (record,) = (r for r in (pair.layout.private / "wheels").glob("*.json") if b'"lib"' in r.read_bytes())
    known = json.loads(record.read_bytes())
    del known["set"]
    record.with_name("0" * 32 + ".json").write_text(json.dumps({**known, "file": old.name}))
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "lib", "more", "-m", "More\n\nWhy.")
    built(pair)
    assert not old.exists()


@pytest.mark.parametrize(
    ("platform", "chosen"), [("aarch64", "manylinux_2_31_aarch64"), ("x86_64", "manylinux_2_31_x86_64")]
)
def test_the_wheel_of_a_platform(platform: str, chosen: str) -> None:
    names = [f"vllm-1-cp38-abi3-manylinux_2_31_{p}.whl" for p in platforms.KNOWN] + ["vllm-1-cp27-none-win32.whl"]
    assert platforms.choose_wheel(names, "", platform).endswith(f"{chosen}.whl")
