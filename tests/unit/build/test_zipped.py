"""Zip files that are the same bytes everywhere, and that every reader reads."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import tomlkit

from patchq.build import zipped
from patchq.errors import BuildError

FILES = {
    "a/kernel.cu": b"".join(b"__global__ void f%d() { g<%d>(); }\n" % (n, n * n % 251) for n in range(5000)),
    "a/tiny": b"x",
    "a/empty": b"",
    "a/n\u00e4me.py": b"x = 1\n" * 100,
    "a/noise": b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(500)),
    "a/tool": b"#!/bin/sh\n" * 10,
}
#: Of the file that these make. It was the same on x86-64 and, run by qemu, on aarch64.
SHA256 = "4a77691723abe843bd6531b7fb785bbbc204ffa6996f1bf5528f80146ccdb033"


def test_the_bytes_are_known(tmp_path: Path) -> None:
    zipped.write(tmp_path / "x.zip", FILES, ["a/tool"])
    assert hashlib.sha256((tmp_path / "x.zip").read_bytes()).hexdigest() == SHA256


def test_other_readers_read_it(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    zipped.write(path, FILES, ["a/tool"])
    with zipfile.ZipFile(path) as zf:
        assert zf.testzip() is None
        assert {n: zf.read(n) for n in zf.namelist()} == FILES
        assert zf.namelist() == list(FILES), "in the order given"
        methods = {i.filename: i.compress_type for i in zf.infolist()}
        assert {n for n, m in methods.items() if m == zipfile.ZIP_STORED} == {"a/tiny", "a/empty", "a/noise"}
        assert {i.filename for i in zf.infolist() if i.external_attr >> 16 & 0o100} == {"a/tool"}
        assert {i.date_time for i in zf.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    done = subprocess.run(["unzip", "-tq", path], capture_output=True, text=True)
    assert "No errors detected" in done.stdout
    assert [p.name for p in tmp_path.glob("*x.zip*")] == ["x.zip"]


def test_another_compressor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.7.0")
    with pytest.raises(BuildError, match=r"the installed 0\.7\.0"):
        zipped.write(tmp_path / "x.zip", FILES)
    assert not list(tmp_path.glob("*x.zip*"))


def test_the_project_pins_it() -> None:
    project = tomlkit.parse((Path(__file__).parents[3] / "pyproject.toml").read_text()).unwrap()
    assert f"deflate=={zipped.COMPRESSOR}" in project["project"]["dependencies"]
