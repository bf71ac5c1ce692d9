"""A compilation is taken from what is kept if all that went into it is the same, wherever it lies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from patchq.proofs import _compilations
from patchq.proofs._compilations import Compilation


class Proof:
    """Trees, a proof's sources beside each other, and a folder that is written to."""

    def __init__(self, root: Path) -> None:
        self.root, self.trees, self.out, self.version = root, root / "trees", root / "out", "nvcc 1"
        for name, text in {
            "trees/lib/include/lib.h": "int lib();", "trees/lib/src/more.h": "int more();", "trees/other/o.h": "",
            "proof/unit.cu": f'#include "beside.h"\n#include "{root}/elsewhere/main.cu"\n', "proof/beside.h": "1",
            "elsewhere/main.cu": f'#include "{root}/elsewhere/deep.inc"\n', "elsewhere/deep.inc": "2",
            "headers/h.h": "3", "out/stub.h": "4",
        }.items():  # fmt: skip
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.more: list[str] = []

    def asked(self) -> Compilation:
        argv = [
            "-c", f"-I{self.trees}/lib/include", f"-I{self.root}/headers", f"-I{self.out}", *self.more,
            str(self.root / "proof" / "unit.cu"), "-o", str(self.out / "made"),
        ]  # fmt: skip
        return Compilation(self.root / "kept", self.version, argv, self.trees, self.root)


@pytest.fixture
def proof(tmp_path: Path) -> Proof:
    """One that is kept."""
    made = Proof(tmp_path)
    asked = made.asked()
    assert asked.take() is None
    (made.out / "made").write_bytes(b"\x7fELF")
    asked.keep("out", "err")
    (made.out / "made").unlink()
    return made


def test_the_same_elsewhere_is_taken(proof: Proof) -> None:
    shutil.copytree(proof.trees, proof.root / "slot0")
    proof.trees = proof.root / "slot0"
    shutil.copytree(proof.out, proof.root / "out2")
    proof.out = proof.root / "out2"
    assert proof.asked().take() == ("out", "err")
    assert [p.name for p in proof.out.iterdir() if p.name != "stub.h"] == ["made"]
    assert (proof.out / "made").read_bytes() == b"\x7fELF"


@pytest.mark.parametrize(
    "name",
    [
        "trees/lib/include/lib.h", "trees/lib/src/more.h", "trees/lib/include/new.h", "proof/unit.cu", "proof/beside.h",
        "elsewhere/main.cu", "elsewhere/deep.inc", "headers/h.h", "headers/below/new.h", "out/stub.h",
    ],
)  # fmt: skip
def test_another_content_is_another_compilation(proof: Proof, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compilations, "_tree", _compilations._content)  # as another process would
    path = proof.root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert proof.asked().take() is None


def another_version(proof: Proof, _: pytest.MonkeyPatch) -> None:
    proof.version = "nvcc 2"


def another_argument(proof: Proof, _: pytest.MonkeyPatch) -> None:
    proof.more = ["-DNDEBUG"]


def another_tree(proof: Proof, _: pytest.MonkeyPatch) -> None:
    proof.more = [f"-I{proof.trees}/other"]


def a_variable(_: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O0")


@pytest.mark.parametrize("change", [another_version, another_argument, another_tree, a_variable])
def test_another_call_is_another_compilation(
    proof: Proof, change: Callable[[Proof, pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(proof, monkeypatch)
    assert proof.asked().take() is None


def test_two_that_are_done_at_once(proof: Proof) -> None:
    asked = proof.asked()
    (proof.out / "made").write_bytes(b"\x7fELF")
    asked.keep("out", "err")
    assert proof.asked().take() is None, "what it writes over is an input as far as anybody knows"
    (proof.out / "made").unlink()
    assert proof.asked().take() == ("out", "err")


def test_a_change_elsewhere_in_the_trees_is_none(proof: Proof) -> None:
    (proof.trees / "other" / "o.h").write_text("changed")
    assert proof.asked().take() == ("out", "err")
