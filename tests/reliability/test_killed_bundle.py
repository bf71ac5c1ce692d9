"""A bundle that is made or unpacked under a fault: whole or not there, and the next try goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from extent import chosen, record
from kit import Patchq
from meddling import FAULTS, check_answer, meddled
from test_killed import user_sees
from tracer import Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_unpacking_at_every_system_call(stack: Patchq, tmp_path: Path, fault: Fault) -> None:
    """Into an empty folder: what it finds of itself the next time is no stranger."""
    file = tmp_path / "site.bundle"
    stack.ok("bundle", str(file))
    site = Patchq(tmp_path / "site")
    args = ("apply", "--from-bundle", str(file))
    whole = meddled(site, args)
    assert whole.exit_code == 0
    after = user_sees(site)
    tried, met, faults = 0, 0, []
    for at in chosen(whole.stops, f"unpack {fault.name}", short=3):
        shutil.rmtree(site.root)
        shutil.rmtree(Path.home() / "cache", ignore_errors=True)
        outcome = meddled(site, args, fault, at)
        tried += 1
        met += bool(outcome.at)
        try:
            if outcome.at:
                check_answer(outcome, fault)
            site.ok(*args)
            assert user_sees(site) == after, "ends elsewhere"
        except AssertionError as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at}): {error}")
    assert not faults, f"{fault.value}:\n" + "\n".join(faults)
    record("killed", verb="apply --from-bundle", fault=fault.value, points=whole.stops, tried=tried, met=met)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name)
def test_making_at_every_system_call(stack: Patchq, tmp_path: Path, fault: Fault) -> None:
    file = tmp_path / "here" / "site.bundle"
    file.parent.mkdir()
    args = ("bundle", str(file))
    whole = meddled(stack, args)
    assert whole.exit_code == 0
    made = file.read_bytes()
    tried, met, faults = 0, 0, []
    for at in chosen(whole.stops, f"bundle {fault.name}", short=3):
        file.unlink(missing_ok=True)
        outcome = meddled(stack, args, fault, at)
        tried += 1
        met += bool(outcome.at)
        try:
            if outcome.at:
                check_answer(outcome, fault)
            assert not file.exists() or file.read_bytes() == made, "half a bundle"
            assert outcome.exit_code != 0 or file.exists(), "claims to have made it"
            stack.ok(*args)
            assert file.read_bytes() == made
        except AssertionError as error:
            faults.append(f"at {at} of {whole.stops} ({outcome.at}): {error}")
    assert not faults, f"{fault.value}:\n" + "\n".join(faults)
    record("killed", verb="bundle", fault=fault.value, points=whole.stops, tried=tried, met=met)
