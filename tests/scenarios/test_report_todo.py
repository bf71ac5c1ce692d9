"""The next step for each stack: the verdict, and a command that runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, edit, git, numbered, release


def todo(patchq: Patchq, *args: str) -> dict[str, Any]:
    (found,) = json.loads(patchq.ok("report", "--json", *args))["todo"]
    return dict(found)


def run(patchq: Patchq, command: str) -> str:
    return patchq.ok(*shlex.split(command)[1:])


def test_a_stack_is_applied_first(stack: Patchq) -> None:
    assert (todo(stack)["step"], todo(stack)["command"]) == ("newest pin", "patchq forecast up --newest")
    lock = stack.layout.lock.read_text()
    stack.ok("drop", "second")
    stack.layout.lock.write_text(lock)
    git(stack.root, "init", "-q")
    edit(stack.tree() / "b.txt", 20)
    assert (todo(stack)["step"], todo(stack)["command"]) == ("edited", "patchq status")
    assert "patchq new up" in run(stack, "patchq status")
    git(stack.tree(), "commit", "-qam", "More")
    assert (todo(stack)["step"], todo(stack)["command"]) == ("export", "patchq export up")
    run(stack, "patchq export up")
    assert todo(stack)["step"] == "newest pin"
    (stack.root / "patches" / "up" / "v1" / "series").write_text("first.patch\n")
    assert (todo(stack)["step"], todo(stack)["command"]) == ("apply", "patchq apply")
    run(stack, "patchq apply")
    assert todo(stack)["step"] == "newest pin"


def test_a_newer_release_is_forecast_then_carried(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"b.txt": numbered(40).replace(b"line 10\n", b"other\n")})
    stack.ok("pin", "up", "--ref", "v2", "--set", "later")
    found = todo(stack)
    assert (found["step"], found["onto"]) == ("not looked at", "v2")
    assert "need" in run(stack, found["command"])
    found = todo(stack, "--look-ahead")
    assert (found["step"], found["command"]) == ("review", "patchq rebase up --onto v2")
    assert found["patches"] == ["up/third"]
    assert "third" in stack.fails(3, *shlex.split(found["command"])[1:])
    stack.ok("rebase", "--skip")
    assert todo(stack)["step"] == "carried"


def test_the_commands_name_a_set_that_is_not_the_default(stack: Patchq, upstream: Path) -> None:
    release(upstream, "v2", {"c.txt": b"new\n"})
    stack.ok("pin", "up", "--ref", "v2", "--set", "later")
    stack.ok("rebase", "up", "--onto", "v2", "--new-set", "carried")
    body = json.loads(stack.ok("report", "--json", "--set", "carried"))
    assert body["todo"][0]["command"].endswith("--set carried")
    assert body["prove"] == "patchq test --prove --set carried"
    stack.run(*shlex.split(body["todo"][0]["command"])[1:])


@pytest.mark.parametrize("name", ["", "our-fork"])
def test_the_title_is_the_projects_name(stack: Patchq, name: str) -> None:
    if name:
        lock = stack.layout.lock
        lock.write_text(f'name = "{name}"\n' + lock.read_text())
    assert json.loads(stack.ok("report", "--json"))["project"] == (name or stack.root.name)
    stack.ok("report", "--html", str(stack.root / "r.html"))
    page = (stack.root / "r.html").read_text()
    assert f"<h1>{name or stack.root.name}</h1>" in page
    write = "patchq reword up/first --trailer &#39;Proof: tests/stacks/up/test_first.py&#39;"
    assert page.index("What to do next") < page.index("patchq forecast up --newest") < page.index(write)
