"""A build that is killed, or meets a full disk, leaves no half a wheel, and the next one makes the same wheel."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from extent import chosen, record
from kit import Patchq, edit
from meddling import FAULTS, check_answer, meddled
from test_build import pair  # noqa: F401
from tracer import Fault


def wheels(patchq: Patchq) -> dict[str, bytes]:
    """What lies in dist/default, whole and readable wheels all of them."""
    folder = patchq.layout.dist / "default"
    found = {p.name: p.read_bytes() for p in sorted(folder.iterdir())} if folder.exists() else {}
    for name in found:
        if name.endswith(".whl"):
            assert zipfile.ZipFile(folder / name).testzip() is None
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
@pytest.mark.parametrize("upstream", ["lib", "app"])
def test_a_build_at_every_system_call(pair: Patchq, upstream: str, fault: Fault, tmp_path: Path) -> None:  # noqa: F811
    """``lib`` is overlaid over its release wheel by patchq itself, ``app`` is built by its backend."""
    pair.ok("apply")
    edit(pair.tree(upstream) / upstream / "other.py", 1, b"x = 2\n")
    pair.ok("new", upstream, "two", "-m", "Two\n\nWhy.")
    before = wheels(pair)
    saved = tmp_path / "saved"
    shutil.copytree(pair.root, saved, symlinks=True)
    args = ("build", upstream, "--no-isolation")
    whole = meddled(pair, args)
    assert whole.exit_code == 0
    after = wheels(pair)
    assert [name for name in after if name.endswith(".whl")]
    tried, met, faults = 0, 0, []
    # A backend makes hundreds of system calls in a folder of its own, seconds each time.
    short, every = (2, 20) if upstream == "app" else (3, 1)
    for at in chosen(whole.stops, f"build {upstream} {fault.name}", short, every):
        shutil.rmtree(pair.root)
        shutil.copytree(saved, pair.root, symlinks=True)
        outcome = meddled(pair, args, fault, at)
        tried += 1
        met += bool(outcome.at)
        try:
            if outcome.at:
                check_answer(outcome, fault)
            pair.ok("fetch")
            now = wheels(pair)
            assert set(now) <= set(after), f"left {set(now) - set(after)}"
            assert outcome.exit_code != 0 or now == after, "claims to have built what it didn't"
            assert all(now[name] == after[name] for name in now), "half a file"
            pair.ok(*args)
            assert wheels(pair) == after, "built again, it is another wheel"
        except AssertionError as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at}): {error}")
    assert not faults, f"build {upstream}, {fault.value}:\n" + "\n".join(faults)
    assert before == {}
    record("killed", verb=f"build {upstream}", fault=fault.value, points=whole.stops, tried=tried, met=met)
