"""What `compose`, `report` and `init` write, under a fault: whole or as before, with nothing half written left over."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from extent import chosen, record
from kit import Patchq
from meddling import FAULTS, check_answer, meddled
from tracer import Fault

ENVIRONMENT = '\n[environments.default]\nimage = "registry.example/cuda:13.0"\nrequires = ["torch>=2"]\n'


def everything(folder: Path) -> dict[str, bytes]:
    """All files, but for patchq's own and the empty ones that `init` keeps folders with."""
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file() and ".patchq" not in p.relative_to(folder).parts)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


def meddle(
    patchq: Patchq, args: tuple[str, ...], fault: Fault, back: Callable[[], None], check: Callable[[bool], None]
) -> None:
    """Run a command with a fault at each chosen point. ``check`` gets whether the command claims to have done it."""
    back()
    whole = meddled(patchq, args)
    assert whole.exit_code == 0
    tried, met, faults = 0, 0, []
    for at in chosen(whole.stops, f"{args[0]} {fault.name}", short=12):
        back()
        outcome = meddled(patchq, args, fault, at)
        tried += 1
        met += bool(outcome.at)
        try:
            if outcome.at:
                check_answer(outcome, fault)
            check(outcome.exit_code == 0)
        except (AssertionError, subprocess.SubprocessError) as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at}): {error}")
    assert not faults, f"{fault.value}:\n" + "\n".join(faults)
    record("killed", verb=args[0], fault=fault.value, points=whole.stops, tried=tried, met=met)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_compose_at_every_system_call(stack: Patchq, fault: Fault) -> None:
    """Files of two versions of the lock must not meet: a Dockerfile would name the wheels of another stack."""
    lock = stack.layout.lock
    lock.write_text(lock.read_text() + ENVIRONMENT)
    stack.ok("compose")
    before = everything(stack.root / "deploy")
    lock.write_text(lock.read_text().replace("cuda:13.0", "cuda:13.1").replace('"torch>=2"', '"torch>=3"'))
    stack.ok("compose")
    after = everything(stack.root / "deploy")
    assert sum(before[name] != after[name] for name in before) > 1
    assert "undone: compose default" in stack.ok("undo")
    assert everything(stack.root / "deploy") == before
    saved = stack.root.with_name("saved")
    shutil.copytree(stack.root, saved, symlinks=True)

    def back() -> None:
        shutil.rmtree(stack.root)
        shutil.copytree(saved, stack.root, symlinks=True)

    def check(done: bool) -> None:
        stack.ok("fetch")
        now = everything(stack.root / "deploy")
        assert now in (before, after), sorted(now)
        assert now == after or not done
        stack.ok("compose")
        assert everything(stack.root / "deploy") == after

    meddle(stack, ("compose",), fault, back, check)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_report_at_every_system_call(stack: Patchq, tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "elsewhere"
    args = ["report"]
    for option, name in (("--html", "page.html"), ("--junit", "j.xml"), ("--sarif", "s.sarif")):
        args += [option, str(folder / name)]
    stack.ok(*args)
    names = sorted(everything(folder))
    ends = {name: data[-8:] for name, data in everything(folder).items()}

    def back() -> None:
        for path in list(folder.iterdir()):
            path.unlink()
        for name in names:
            (folder / name).write_bytes(b"before\n")

    def check(done: bool) -> None:
        for name in names:
            data = (folder / name).read_bytes()
            assert data == b"before\n" or data.endswith(ends[name]), f"half of {name}"
            assert data != b"before\n" or not done
        stack.ok(*args)
        assert sorted(everything(folder)) == names, "something is left over"

    meddle(stack, tuple(args), fault, back, check)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_init_at_every_system_call(tmp_path: Path, fault: Fault) -> None:
    folder = tmp_path / "new"
    new = Patchq(tmp_path)
    folder.mkdir()
    new.ok("init", str(folder))
    made = everything(folder)

    def back() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    def check(done: bool) -> None:
        if not done and not (folder / "upstream.lock").exists():
            new.ok("init", str(folder))
        assert everything(folder) == made

    meddle(new, ("init", str(folder)), fault, back, check)


def test_what_another_command_is_writing_stays(tmp_path: Path) -> None:
    from patchq.system import fsio

    target = tmp_path / "here" / "page.html"
    target.parent.mkdir()
    beside, fd = fsio._begin(target)
    with open(fd, "wb"):
        fsio.write_output(target, b"mine\n")
        assert beside.exists()
    fsio.write_output(target, b"again\n")
    assert everything(target.parent) == {"page.html": b"again\n"}
