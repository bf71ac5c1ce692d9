"""The wheels of our sets install together, by what the real packages on the index require of each other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kit import Patchq, committed_project
from patchq.sources.index import pip_settings

pytestmark = pytest.mark.index


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patchq]:
    root = tmp_path_factory.mktemp("installs")
    pip_settings.cache_clear()
    yield committed_project(root)
    shutil.rmtree(root / ".patchq", ignore_errors=True)


@pytest.mark.parametrize(("name", "platforms"), [("gb10-newest", "aarch64,x86_64"), ("gb10", "x86_64")])
def test_a_set_installs(project: Patchq, name: str, platforms: str) -> None:
    """What this index lacks is printed; a contradiction fails."""
    done = project.run("check", "--installs", "--set", name, "--platform", platforms, "--json")
    answer = json.loads(done.stdout)
    print("\n".join(f["message"] for f in answer["findings"]))
    assert [f for f in answer["findings"] if f["level"] != "warning"] == []
    assert [r["platform"] for r in answer["resolved"]] == platforms.split(",")
    for resolved in answer["resolved"]:
        packages = resolved["packages"]
        assert {packages["vllm"][-7:], packages["flashinfer-python"][-7:]} == {"+patchq"}
        assert len(packages) > 100
        assert not {canonicalize_name(Requirement(x["requirement"]).name) for x in resolved["lacked"]} & {*packages}


def test_a_set_that_does_not(project: Patchq) -> None:
    """vLLM 0.33.0 asks for torch 2.14.0: with gb10's torch it is a contradiction, whatever the index lacks."""
    lock = project.layout.lock
    before = lock.read_text()
    lock.write_text(before.replace('requires = ["torch==2.14.0"]', 'requires = ["torch==2.9.0"]'))
    try:
        done = project.run("check", "--installs", "--set", "gb10-newest", "--platform", "x86_64", "--json")
    finally:
        lock.write_text(before)
    assert done.exit_code == 1
    (problem,) = [f for f in json.loads(done.stdout)["findings"] if f["level"] == "problem"]
    assert "torch==2.14.0" in problem["message"]
