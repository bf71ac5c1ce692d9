"""Worlds for the hostile corpus: made once a worker by the commands that a person would type, and copied for each case."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import memory
from harness import Base, Case, Server, Way, World, copy, furnish, judge, reset, run
from kit import Patchq, commit_files, edit, git, numbered, seal, with_lines

#: Cases of a family in the short form, at least; in the long form, all.
SHORT = 48


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep each n-th case of a family, in the order in which they are written."""
    if os.environ.get("PATCHQ_HOSTILE"):
        return
    families: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name != "test_harness.py":
            families.setdefault(item.path, []).append(item)
    left_out = {
        item for family in families.values() for n, item in enumerate(family) if n % max(1, len(family) // SHORT)
    }
    config.hook.pytest_deselected(items=sorted(left_out, key=lambda item: item.nodeid))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The process that commands are forked from."""
    made = Server()
    yield made
    made.close()


@pytest.fixture(scope="session")
def top(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of this worker's worlds."""
    with memory.shared(tmp_path_factory.mktemp("hostile")) as folder:
        yield folder


@pytest.fixture(scope="session")
def worlds(top: Path, server: Server) -> Callable[[Base], World]:
    """What puts a fresh world into its place. A base is made when it is first asked for."""

    def fresh(base: Base) -> World:
        if not (top / "kept" / base.value).exists():
            with pytest.MonkeyPatch.context() as monkeypatch:
                make(base, monkeypatch)
        return reset(top, base)

    def make(base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World(top / "world")
        shutil.rmtree(world.root, ignore_errors=True)
        world.root.mkdir()
        furnish(world)
        (top / "person").mkdir(exist_ok=True)
        shutil.rmtree(top / "person")
        seal(monkeypatch, top / "person")
        MAKERS[base](server, world, monkeypatch)
        (top / "kept").mkdir(exist_ok=True)
        copy(world.root, top / "kept" / base.value)

    return fresh


@pytest.fixture
def judged(worlds: Callable[[Base], World], server: Server) -> Callable[[Case], None]:
    """What fails a test unless nothing goes wrong in a case."""

    def check(case: Case) -> None:
        ran, wrong = judge(server, worlds(case.base), case)
        if log := os.environ.get("PATCHQ_HOSTILE_LOG"):
            with open(log, "a") as file:
                print(f"\n##### {case.name}: {'; '.join(wrong) or 'good'}", *ran, sep="\n", file=file)
        if wrong:
            pytest.fail("\n".join([*wrong, "", *map(str, ran)]), pytrace=False)

    return check


def ok(server: Server, world: World, *lines: str) -> None:
    """Run commands that must succeed."""
    case = Case(name="template", make=lambda _: None, verbs=lines, way=Way(cwd="{root}"))
    for one in run(server, world, case):
        assert one.code == 0, str(one)


def empty_world(server: Server, world: World, _: pytest.MonkeyPatch) -> None:
    """A project without pins, beside an upstream repository."""
    world.upstream.mkdir()
    git(world.upstream, "init", "-q", "--template=")
    files: dict[str, bytes | None] = {
        "a.txt": numbered(40),
        "b.txt": numbered(40),
        "pkg/mod.py": b"def f():\n    return 1\n",
    }
    commit_files(world.upstream, files, "first")
    git(world.upstream, "tag", "v1")
    commit_files(world.upstream, {"a.txt": with_lines({5: b"theirs\n"}), "new.txt": b"new\n"}, "second")
    git(world.upstream, "tag", "v2")
    ok(server, world, "init {project}")
    git(world.out, "init", "-q", "--bare", "--template=", "published.git")


def stack_world(server: Server, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a pin and three applied patches, in a repository of its own."""
    empty_world(server, world, monkeypatch)
    ok(server, world, "--project {project} pin up --url {upstream} --ref v1", "--project {project} apply")
    for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
        edit(world.tree / file, line)
        ok(
            server,
            world,
            f"--project {{project}} new up {name} -m 'Change {file} at {line}\n\nBecause.' --topic test -s",
        )
    git(world.project, "init", "-q", "--template=")
    git(world.project, "add", "-A")
    git(world.project, "commit", "-q", "-m", "The stack")
    ok(server, world, "--project {project} bundle {inputs}/good.bundle")


def wheels_world(server: Server, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two upstreams with wheels: built, composed, and installed into an environment."""
    from test_build import built, make_pair
    from test_image import Made, install

    (world.index).rmdir()
    ok(server, world, "init {project}")
    patchq = make_pair(Patchq(world.project), world.root, monkeypatch)
    world.append('\n[environments.default]\nimage = "base:1"\n')
    wheels = built(patchq)
    patchq.ok("compose")
    venv.create(world.root / "env", symlinks=True)
    python = str(world.root / "env" / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-compile", "--no-index"]
    subprocess.run([*pip, *map(str, wheels.values())], check=True, capture_output=True)
    dockerfile = (world.project / "deploy" / "Dockerfile").read_text()
    (line,) = re.findall(r"^LABEL (.*)$", dockerfile, re.MULTILINE)
    labels = {key: value.strip("'\"") for key, value in (word.split("=", 1) for word in line.split())}
    dist = world.project / "dist" / "default"
    copied = {f"usr/share/patchq/{n}": (dist / n).read_bytes() for n in ("provenance.json", "patchq.cdx.json")}
    image = Made(
        patchq, [{"etc/os-release": b"x\n"}, install(list(wheels.values()), world.temporary / "site"), copied], labels
    )
    image.saved(world.inputs / "good.tar")
    image.layout(world.inputs / "good")
    # The wheels may have been installed for another test already.
    shutil.rmtree(world.temporary / "site", ignore_errors=True)
    ok(
        server,
        world,
        "--project {project} verify-image {inputs}/good.tar",
        "--project {project} verify-installed --python {root}/env/bin/python",
    )


MAKERS = {Base.EMPTY: empty_world, Base.STACK: stack_world, Base.WHEELS: wheels_world}
