"""What a call that was right for the old signature means for the new one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from patchq.drift._api.calls import judge_call, likeness, scan_source
from patchq.drift._api.signatures import Signature, SignatureChange, changes, load_api


def api(tmp_path: Path, name: str, source: str) -> object:
    folder = tmp_path / name / "lib"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .core import *\nfrom .core import f, Wrapper\n")
    (folder / "core.py").write_text(source)
    return load_api("lib", tmp_path / name)


def signature(tmp_path: Path, name: str, parameters: str) -> Signature:
    return api(tmp_path, name, f"class Wrapper: pass\ndef f({parameters}): ...\n").functions["lib.core.f"]  # type: ignore[attr-defined, no-any-return]


def judged(tmp_path: Path, old: str, new: str, call: str) -> list[str]:
    change = SignatureChange(signature(tmp_path, "old", old), signature(tmp_path, "new", new))
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    return [kind for kind, _ in judge_call(node, change)]


@pytest.mark.parametrize(
    ("old", "new", "call", "kinds"),
    [
        ("a, b, c=None", "a, x, b, c=None", "f(1, 2, 3)", ["positional shift"]),
        ("a, b, c=None", "a, b, x=0, c=None", "f(1, 2, 3)", ["positional shift"]),
        ("a, b, c=None", "a, b, x=0, c=None", "f(1, 2, c=3)", []),
        ("a, b, c=None", "a, b, x=0, c=None", "f(1, 2)", []),
        ("a, b", "b, a", "f(1, 2)", ["positional shift"]),
        ("a, b", "b, a", "f(b=1, a=2)", []),
        ("a, b=1", "a", "f(1, 2)", ["positional shift"]),
        ("a, b=1", "a", "f(1, b=2)", ["unknown keyword"]),
        ("a, b=1", "a, c=1", "f(1, b=2)", ["unknown keyword"]),
        ("a, b=1", "a, c=1", "f(1, 2)", []),
        ("a, b=1", "a, **kwargs", "f(1, b=2)", []),
        ("a", "a, b", "f(1)", ["missing argument"]),
        ("a", "a, *, b", "f(1)", ["missing argument"]),
        ("a, b=1", "a, b=2", "f(1)", ["changed default"]),
        ("a, b=1", "a, b=2", "f(1, b=1)", []),
        ("a, b=1", "a, b=1", "f(1)", []),
        ("a, b, c=None", "a, x, b, c=None", "f(*args)", []),
        ("a, b, c=None", "a, x, b, c=None", "f(1)", []),
    ],
)
def test_judgement(tmp_path: Path, old: str, new: str, call: str, kinds: list[str]) -> None:
    assert judged(tmp_path, old, new, call) == kinds


OLD = """
class Wrapper:
    def __init__(self, size, kind=None): ...
    def plan(self, indptr, indices, page_size, window_left=-1, sm_scale=None): ...
def f(a, b=1): ...
def g(): ...
"""
NEW = (
    OLD.replace("page_size, window", "page_size, dtype=None, window")
    .replace("a, b=1", "b=1, a=0")
    .replace("def g(): ...\n", "")
)
USER = """
import lib
from lib import f as lf, Wrapper, g
from lib.core import f

class Mine:
    def plan(self, indptr, indices, page_size, window_left, sm_scale): ...

def known():
    w = Wrapper(3)
    w.plan(x, y, z, 5, 1.0)
    lf(1, 2)
    lib.f(1, 2)

def attribute():
    lib.core.g()

def unknown(self, indptr, indices, page_size, window_left, sm_scale):
    self.plan(indptr, indices, page_size, window_left, sm_scale)

def spelled():
    options = {"a": 1, "b": 2}
    f(**options)
    other = {"a": 1}
    other = dict(b=3)
    f(**other)

def decoy(planner):
    planner.plan(1, 2, 3, 4, 5)
    planner.plan(where, when, how, why, who)
"""


def alarms(tmp_path: Path, new: str) -> set[tuple[str, str]]:
    before, after = api(tmp_path, "before", OLD), api(tmp_path, "after", new)
    changed, gone = changes(before, after)  # type: ignore[arg-type]
    return {(a.kind, a.function) for a in scan_source(USER.encode(), "u.py", "user", before, changed, gone)}  # type: ignore[arg-type]


def test_calls_are_found_by_import_by_instance_and_by_likeness(tmp_path: Path) -> None:
    assert alarms(tmp_path, NEW) == {
        ("removed name", "<module>"),
        ("removed name", "attribute"),
        ("positional shift", "known"),
        ("positional shift", "unknown"),
    }


def test_no_change_no_alarm(tmp_path: Path) -> None:
    assert alarms(tmp_path / "same", OLD) == set()
    assert alarms(tmp_path / "docs", OLD.replace("): ...", "):\n        '''Docs.'''\n        return 1")) == set()


def test_a_literal_dict_of_keywords_is_spelled_out(tmp_path: Path) -> None:
    assert ("unknown keyword", "spelled") in alarms(tmp_path, OLD.replace("def f(a, b=1)", "def f(a, c=1)"))


def test_likeness_needs_names() -> None:
    node = ast.parse("x.plan(1, 2, 3)", mode="eval").body
    assert isinstance(node, ast.Call)
    assert likeness(node, Signature("lib.W.plan", ())) == 0.0
