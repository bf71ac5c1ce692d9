"""Wheels of small real projects, by each profile; what they say of themselves; who installed what."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from kit import Patchq, commit_files, edit, git
from patchq.build import wheel
from patchq.build.contents import inspect_wheel

SETUP = b"""[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "%s"
version = "1.0"
dependencies = [%s]
[tool.setuptools]
packages = ["%s"]
[project.scripts]
%s = "%s:answer"
"""


def make_upstream(folder: Path, name: str, dependencies: bytes = b"") -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    commit_files(
        folder,
        {
            "pyproject.toml": SETUP % (name.encode(), dependencies, name.encode(), name.encode(), name.encode()),
            f"{name}/__init__.py": b"from ._version import __version__\n\ndef answer():\n    return 41\n",
            f"{name}/_version.py": b'__version__ = version = "1.0"\n',
            f"{name}/other.py": b"x = 1\n",
            "csrc/kernel.cu": b"// kernel\n",
            "tests/test_x.py": b"",
        },
    )
    git(folder, "tag", "v1.0")
    return folder


#: Release wheels that were made, by what of: pip takes a second for one.
_RELEASED: dict[tuple[str, str], bytes] = {}


def release_wheel(folder: Path, out: Path) -> Path:
    """The upstream's own release wheel."""
    commit = git(folder, "rev-parse", "HEAD")
    if git(folder, "status", "--porcelain", "--ignored"):
        commit = ""  # it isn't what the wheel is made of
    for (of, name), data in _RELEASED.items():
        if of == commit:
            out.mkdir(exist_ok=True)
            (out / name).write_bytes(data)
            return out / name
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    git(folder, "clean", "-fdxq")
    made = next(out.glob("*.whl"))
    if commit:
        _RELEASED[commit, made.name] = made.read_bytes()
    return made


def make_pair(empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patchq:
    """``lib`` (overlay over its release wheel) and ``app`` (built from source), app depends on lib; a patch on each."""
    lib, app = make_upstream(tmp_path / "lib", "lib"), make_upstream(tmp_path / "app", "app", b'"lib==1.0", "click"')
    index = tmp_path / "index"
    index.mkdir()
    made = release_wheel(lib, index)
    subprocess.run(
        ["git", "archive", "--prefix=lib-1.0/", "-o", str(index / "lib-1.0.tar.gz"), "v1.0"], cwd=lib, check=True
    )
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    from patchq.sources.index import pip_settings

    pip_settings.cache_clear()
    empty.ok("pin", "lib", "--url", str(lib), "--ref", "v1.0", "--archive", "lib==1.0")
    empty.ok("pin", "app", "--url", str(app), "--ref", "v1.0")
    text = empty.layout.lock.read_text()
    assert made.name in text
    # What the pin took from the archive and the wheel: said anew, with more.
    text, inferred = re.subn(r"\[upstreams\.lib\.build\]\n(?:.+\n)*", "", text)
    assert inferred == 1
    text += '\n[upstreams.lib.build]\ndistribution = "lib"\nprofile = "overlay"\nversion-file = "lib/_version.py"\nignore = ["tests/*"]\n'
    text += '\n[upstreams.app.build]\ndistribution = "app"\nversion-file = "app/_version.py"\n'
    empty.layout.lock.write_text(text)
    empty.ok("apply")
    for name in ("lib", "app"):
        edit(empty.tree(name) / name / "__init__.py", 4, b"    return 42\n")
        empty.ok("new", name, "answer", "-m", "Answer right\n\nWhy.")
    return empty


@pytest.fixture
def pair(empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Patchq]:
    from patchq.sources.index import pip_settings

    yield make_pair(empty, tmp_path, monkeypatch)
    pip_settings.cache_clear()


def built(patchq: Patchq, *args: str) -> dict[str, Path]:
    out = json.loads(patchq.ok("build", "--no-isolation", "--json", *args))
    return {w["upstream"]: Path(w["path"]) for w in out["wheels"]}


def manifest(path: Path, package: str) -> dict[str, object]:
    with zipfile.ZipFile(path) as zf:
        found: dict[str, object] = json.loads(zf.read(f"{package}/_patchq.json"))
        return found


def test_the_wheels_hold_the_patched_files_and_say_so(pair: Patchq) -> None:
    wheels = built(pair)
    for name, path in wheels.items():
        with zipfile.ZipFile(path) as zf:
            assert zf.testzip() is None
            assert b"return 42" in zf.read(f"{name}/__init__.py")
            rows = {
                r[0]: r
                for r in csv.reader(
                    io.StringIO(zf.read(next(n for n in zf.namelist() if n.endswith("/RECORD"))).decode())
                )
            }
            assert set(rows) == set(zf.namelist())
            for member, (_, digest, size) in rows.items():
                if digest:
                    assert [member, digest, size] == list(wheel.record_line(member, zf.read(member)))
        info = inspect_wheel(path)
        assert "+patchq." in info.version
        said = manifest(path, name)
        assert said["version"] == info.version
        assert [p["name"] for u in said["upstreams"] if u["name"] == name for p in u["patches"]] == ["answer"]  # type: ignore[attr-defined]
        assert all(u["tree"] and u["patches"][0]["patch_id"] for u in said["upstreams"])  # type: ignore[attr-defined]
    lib_version = inspect_wheel(wheels["lib"]).version
    assert f"Requires-Dist: lib=={lib_version}" in inspect_wheel(wheels["app"]).metadata
    assert "Requires-Dist: click\n" in inspect_wheel(wheels["app"]).metadata
    constraints = (pair.layout.dist / "default" / "constraints.txt").read_text()
    assert f"lib=={lib_version}" in constraints
    document = (pair.layout.dist / "default" / "patchq.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    parts = {c["name"]: c for c in json.loads(document)["components"]}
    assert "return 42" in parts["lib"]["pedigree"]["patches"][0]["diff"]["text"]["content"]


def test_pip_installs_them_and_verify_tells(pair: Patchq, tmp_path: Path) -> None:
    wheels = built(pair)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, *map(str, wheels.values())], check=True, capture_output=True)
    python = tmp_path / "python"

    def path_is(*folders: Path) -> None:
        python.write_text(f'#!/bin/sh\nPYTHONPATH={":".join(map(str, folders))} exec {sys.executable} "$@"\n')
        python.chmod(0o755)

    path_is(site)
    out = pair.ok("verify-installed", "--python", str(python))
    assert "lib 1.0+patchq." in out
    assert "live: app/answer" in out
    done = subprocess.run(
        [str(python), "-c", "import app, lib; print(app.answer(), lib.__version__)"], capture_output=True, text=True
    )
    assert done.stdout.startswith("42 1.0+patchq.")
    # Another copy in front, as PYTHONPATH and editable installs make them.
    path_is(tmp_path / "lib", site)
    out = pair.fails(1, "verify-installed", "--python", str(python))
    assert "which patchq did not build, in front of the patched" in out
    assert "the import path contains 1 more copy" in out
    path_is(site)
    # A file changed after the build.
    (site / "lib" / "__init__.py").write_text("def answer(): return 41\n")
    assert "changed since the build: lib/__init__.py" in pair.fails(1, "verify-installed", "--python", str(python))
    # Upstream's own wheel in its place.
    subprocess.run([*pip, "--upgrade", str(next((tmp_path / "index").glob("*.whl")))], check=True, capture_output=True)
    for rest in site.glob("lib-*patchq*"):
        __import__("shutil").rmtree(rest)
    assert "lib 1.0: upstream" in pair.fails(1, "verify-installed", "--python", str(python))
    # Another stack than the project's.
    path_is(site)
    subprocess.run([*pip, "--upgrade", *map(str, wheels.values())], check=True, capture_output=True)
    edit(pair.tree("app") / "app" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "app", "more", "-m", "More\n\nWhy.")
    out = json.loads(pair.fails(1, "verify-installed", "--python", str(python), "--json"))
    assert {p["state"] for p in out["packages"]} == {"other stack"}


def test_the_same_stack_gives_the_same_bytes_and_at_once(pair: Patchq) -> None:
    first = {n: p.read_bytes() for n, p in built(pair).items()}
    again = json.loads(pair.ok("build", "--no-isolation", "--json"))["wheels"]
    assert [w["fresh"] for w in again] == [False, False]
    for path in (pair.layout.dist / "default").iterdir():
        path.unlink()
    for record in (pair.layout.private / "wheels").iterdir():
        record.unlink()
    assert {n: p.read_bytes() for n, p in built(pair).items()} == first


def set_build(patchq: Patchq, upstream: str, line: str) -> None:
    """Put a line into an upstream's build settings in place of the line with the same key."""
    lock = patchq.layout.lock
    head, start, rest = lock.read_text().partition(f"[upstreams.{upstream}.build]\n")
    table, end, others = rest.partition("\n[")
    lines = [old for old in table.splitlines() if old.partition(" = ")[0] != line.partition(" = ")[0]]
    lock.write_text(head + start + "\n".join([*lines, line, ""]) + end + others)


def test_other_variables_of_the_empty_profile_make_another_wheel(pair: Patchq) -> None:
    (pair.tree("app") / "setup.py").write_text(
        "import os\nfrom setuptools import setup\n"
        "open('app/device.py', 'w').write(f'DEVICE = {os.environ[\"APP_DEVICE\"]!r}\\n')\nsetup()\n"
    )
    pair.ok("new", "app", "device", "-m", "Record the device\n\nWhy.")
    for device in ("cpu", "gpu"):
        set_build(pair, "app", f'empty-env = {{ APP_DEVICE = "{device}" }}')
        path = built(pair, "app", "--profile", "empty")["app"]
        with zipfile.ZipFile(path) as zf:
            assert zf.read("app/device.py") == f"DEVICE = '{device}'\n".encode()


def test_another_package_makes_another_wheel(pair: Patchq) -> None:
    before = built(pair, "app")["app"]
    set_build(pair, "app", 'package = "app_inner"')
    after = built(pair, "app")["app"]
    assert after == before
    with zipfile.ZipFile(after) as zf:
        assert "app_inner/_patchq.json" in zf.namelist()


def test_another_distribution_makes_another_wheel(pair: Patchq) -> None:
    built(pair, "app")
    set_build(pair, "app", 'distribution = "app-two"')
    path = built(pair, "app")["app"]
    assert manifest(path, "app_two")["distribution"] == "app-two"
    lines = (pair.layout.dist / "default" / "requirements.txt").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines if "==" in line] == ["app-two"]


def test_a_build_with_isolation_does_not_return_a_wheel_built_without(pair: Patchq) -> None:
    built(pair, "app")
    set_build(pair, "app", 'requires = ["no-such-backend==1"]')
    built(pair, "app")
    said = pair.fails(5, "build", "app", "--offline")
    assert "pip can't install no-such-backend==1" in " ".join(said.split())


def test_a_change_in_one_is_a_new_version_of_all(pair: Patchq) -> None:
    before = built(pair)
    edit(pair.tree("app") / "app" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "app", "more", "-m", "More\n\nWhy.")
    after = built(pair)
    assert {p.name for p in before.values()}.isdisjoint(p.name for p in after.values())
    assert not any(p.exists() for p in before.values()), "older wheels of patchq make room"
    assert all(p.exists() for p in after.values())


def test_overlay_refuses_what_is_compiled_and_names_it(pair: Patchq) -> None:
    edit(pair.tree("lib") / "csrc" / "kernel.cu", 1, b"// other\n")
    pair.ok("new", "lib", "kernel", "-m", "Kernel\n\nWhy.")
    out = pair.fails(5, "build", "lib")
    assert "csrc/kernel.cu" in out
    assert "--profile source" in out
    assert "lib" in built(pair, "lib", "--profile", "source")


def test_overlay_adds_and_removes_files_and_leaves_tests_out(pair: Patchq) -> None:
    (pair.tree("lib") / "lib" / "added.py").write_text("y = 1\n")
    (pair.tree("lib") / "lib" / "other.py").unlink()
    edit(pair.tree("lib") / "pyproject.toml", 1, b"[build-system]\n")
    (pair.tree("lib") / "tests" / "test_x.py").write_text("z = 1\n")
    pair.ok("new", "lib", "files", "-m", "Files\n\nWhy.")
    with zipfile.ZipFile(built(pair, "lib")["lib"]) as zf:
        assert zf.read("lib/added.py") == b"y = 1\n"
        assert "lib/other.py" not in zf.namelist()
        assert not [n for n in zf.namelist() if n.startswith("tests/")]


def test_build_refuses_what_is_not_what_the_files_say(pair: Patchq) -> None:
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 3\n")
    assert "other.py" in pair.fails(1, "build")
    git(pair.tree("lib"), "checkout", "-q", "--", ".")
    path = pair.patch_file("answer", "lib", "v1.0")
    path.write_bytes(path.read_bytes().replace(b"42", b"43"))
    assert "`patchq apply` first" in pair.fails(1, "build")


def test_a_build_that_fails_says_what_it_said(pair: Patchq) -> None:
    edit(pair.tree("app") / "pyproject.toml", 6, b"version = 'no version'\n")
    pair.ok("new", "app", "broken", "-m", "Broken\n\nWhy.")
    before = set((pair.layout.dist / "default").iterdir()) if pair.layout.dist.exists() else set()
    out = pair.fails(5, "build", "app", "--no-isolation")
    assert "pep440" in out
    assert (set((pair.layout.dist / "default").iterdir()) if pair.layout.dist.exists() else set()) == before


def test_a_wheel_that_took_the_file_from_elsewhere_is_refused(pair: Patchq) -> None:
    """A build that quietly packs another copy: what made images run upstream."""
    (pair.tree("app") / "setup.py").write_text(
        "import pathlib\np = pathlib.Path('app/__init__.py')\np.write_text(p.read_text().replace('42', '41'))\n"
        "from setuptools import setup\nsetup()\n"
    )
    pair.ok("new", "app", "sneaky", "-m", "Sneaky\n\nWhy.")
    assert "without the changes of the patches" in pair.fails(5, "build", "app", "--no-isolation")


def test_an_overlay_leaves_out_what_must_be_compiled(pair: Patchq) -> None:
    """A patch of both Python and compiled sources, one that requires it, and one after them."""
    tree = pair.tree("lib")
    edit(tree / "csrc" / "kernel.cu", 1, b"// a newer kernel\n")
    edit(tree / "lib" / "other.py", 1, b"x = 2  # needs the newer kernel\n")
    pair.ok("new", "lib", "newer-kernel", "-m", "Use the newer kernel\n\nWhy.\n\nBuild: source")
    (tree / "lib" / "more.py").write_bytes(b"y = 1\n")
    pair.ok("new", "lib", "more", "-m", "Need it\n\nWhy.\n\nRequires: lib/newer-kernel")
    (tree / "lib" / "after.py").write_bytes(b"z = 1\n")
    pair.ok("new", "lib", "after", "-m", "Come after\n\nWhy.")
    text = pair.ok("build", "lib", "--no-isolation")
    assert "skipped, as they must be compiled (--profile source): newer-kernel, more" in " ".join(text.split())
    path = built(pair, "lib")["lib"]
    with zipfile.ZipFile(path) as zf:
        assert zf.read("lib/other.py") == b"x = 1\n"
        assert b"return 42" in zf.read("lib/__init__.py")
        assert "lib/more.py" not in zf.namelist()
        assert zf.read("lib/after.py") == b"z = 1\n"
    said = manifest(path, "lib")
    assert said["left_out"] == ["lib/newer-kernel", "lib/more"]
    assert [p["name"] for u in said["upstreams"] if u["name"] == "lib" for p in u["patches"]] == ["answer", "after"]  # type: ignore[attr-defined]
    assert "lib/other.py" not in said["files"]  # type: ignore[operator]

    document = json.loads((pair.layout.dist / "default" / "patchq.cdx.json").read_bytes())
    (component,) = [c for c in document["components"] if c["name"] == "lib"]
    assert len(component["pedigree"]["patches"]) == 2

    whole = built(pair, "lib", "--profile", "source")["lib"]
    with zipfile.ZipFile(whole) as zf:
        assert zf.read("lib/other.py") == b"x = 2  # needs the newer kernel\n"
    assert manifest(whole, "lib")["left_out"] == []

    pair.ok("apply", "--to", "lib/answer")
    part = built(pair, "lib")["lib"]
    assert manifest(part, "lib")["left_out"] == [], "what isn't applied isn't left out either"


def test_a_patch_that_needs_one_that_is_left_out_must_say_so(pair: Patchq) -> None:
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 2\n")
    pair.ok("new", "lib", "first", "-m", "Change it\n\nWhy.\n\nBuild: source")
    edit(pair.tree("lib") / "lib" / "other.py", 1, b"x = 3\n")
    pair.ok("new", "lib", "second", "-m", "Change it again\n\nWhy.")
    said = pair.fails(5, "build", "lib", "--no-isolation")
    assert "second doesn't apply without first" in " ".join(said.split())


def test_a_branch_gives_the_wheel_the_version_of_its_tree(empty: Patchq, tmp_path: Path) -> None:
    app = make_upstream(tmp_path / "app", "app")
    git(app, "branch", "topic")
    empty.ok("pin", "app", "--url", str(app), "--ref", "topic")
    empty.ok("apply")
    edit(empty.tree("app") / "app" / "__init__.py", 4, b"    return 42\n")
    empty.ok("new", "app", "answer", "-m", "Answer right\n\nWhy.")
    assert built(empty)["app"].name.startswith("app-1.0+patchq.")
    commit_files(
        app,
        {"pyproject.toml": (app / "pyproject.toml").read_bytes().replace(b'version = "1.0"', b'dynamic = ["version"]')},
    )
    git(app, "branch", "unversioned")
    empty.ok("pin", "app", "--ref", "unversioned", "--set", "other")
    empty.ok("rebase", "app", "--onto", "unversioned")
    empty.ok("apply", "--set", "other")
    said = empty.ok("build", "--no-isolation", "--set", "other")
    assert said.splitlines()[-1] == "verify: patchq verify-installed --python python --set other"
    assert "neither the ref unversioned nor a file of its tree states a version" in said
    assert "app-0.0.0+patchq." in said
