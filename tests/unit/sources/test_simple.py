"""Pages of package indexes: JSON and HTML, as the specification of the simple repository API has them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from patchq.errors import SourceError
from patchq.sources import index
from patchq.sources.simple import IndexFile, parse_page, project_url
from patchq.system import runner
from patchq.system.paths import cache_folder

URL = "https://host/simple/lib/"
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html; charset=utf-8"


def page(*files: dict[str, object], version: str = "1.1") -> bytes:
    return json.dumps({"meta": {"api-version": version}, "name": "lib", "files": files}).encode()


def test_json() -> None:
    data = page(
        {"filename": "lib-1.tar.gz", "url": "../../f/lib-1.tar.gz", "hashes": {"sha256": "ab", "md5": "x"}},
        {"filename": "lib-2.whl", "url": "https://cdn/lib-2.whl", "hashes": {}, "upload-time": "2026-01-02T03:04:05.678901Z"},
        {"filename": "lib-3.whl", "url": "lib-3.whl", "hashes": {}, "upload-time": "1970-01-01T00:01:40Z", "yanked": True},
    )  # fmt: skip
    assert parse_page(data, JSON, URL) == [
        IndexFile(name="lib-1.tar.gz", url="https://host/f/lib-1.tar.gz", sha256="ab"),
        IndexFile(name="lib-2.whl", url="https://cdn/lib-2.whl", sha256="", uploaded=1767323045.0),
        IndexFile(name="lib-3.whl", url="https://host/simple/lib/lib-3.whl", sha256="", uploaded=100.0),
    ]


def test_html() -> None:
    data = b"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.3">
        <base href="/files/"></head><body><h1>Links</h1><!-- <a href="no-1.whl">no</a> -->
        <a href="lib-1%2Bcpu.whl#sha256=ab" data-requires-python="&gt;=3">lib-1+cpu.whl</a>
        <A HREF=" https://cdn/a/lib-2.tar.gz?x=1&amp;y=2#md5=00 ">lib-2.tar.gz</A><a name="top">none</a>
        <a href="../">up</a>"""
    assert parse_page(data, HTML, URL) == [
        IndexFile(name="lib-1+cpu.whl", url="https://host/files/lib-1%2Bcpu.whl", sha256="ab"),
        IndexFile(name="lib-2.tar.gz", url="https://cdn/a/lib-2.tar.gz?x=1&y=2", sha256=""),
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (page(version="2.0"), JSON),
        (b"[" * 100_000, JSON),
        (b"[]", JSON),
        (b"{", JSON),
        (b"\xff", JSON),
        (page({"filename": "lib-1.whl", "url": "lib-1.whl"}), JSON),
        (page({"filename": "lib-1.whl", "url": "lib-1.whl", "hashes": {}, "upload-time": "now"}), JSON),
        (page({"filename": "lib-1.whl", "url": "lib-1.whl", "hashes": {}, "upload-time": 7}), JSON),
        (page({"filename": "lib-1.whl", "url": "https://[", "hashes": {}}), JSON),
        (b'<meta name="pypi:repository-version" content="2.0">', HTML),
        (b'<a href="https://[/lib-1.whl">', HTML),
        (b"lib", "text/plain"),
        (b"lib", ""),
    ],
)
def test_what_is_no_page_is_refused(data: bytes, kind: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse_page(data, kind, URL)


def test_a_projects_address() -> None:
    assert project_url("https://host/simple", "lib") == project_url("https://host/simple/", "lib") == URL


def test_a_folder_is_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my index" / "my-lib"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text('<a href="my_lib-1.tar.gz#sha256=">x</a>')
    (folder / "my_lib-1.tar.gz").write_bytes(b"content" * 100_000)
    settings = {"index-url": [(tmp_path / "my index").as_uri()]}
    monkeypatch.setattr(index, "pip_settings", lambda: settings)
    monkeypatch.setenv("PATCHQ_CACHE", str(tmp_path / "cache"))
    (file,) = index.find_files("My.Lib", lambda name: name.endswith(".tar.gz"))
    assert index.download(file, "").read_bytes() == b"content" * 100_000
    assert index.find_files("other", lambda name: True) == []
    (folder / "my_lib-1.tar.gz").unlink()
    with pytest.raises(SourceError, match="404"):
        index.download(file, "")


def test_the_source_of_an_expected_hash_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHQ_CACHE", str(tmp_path / "cache"))
    (tmp_path / "lib-1.tar.gz").write_bytes(b"content")
    file = IndexFile(name="lib-1.tar.gz", url=(tmp_path / "lib-1.tar.gz").as_uri(), sha256="0" * 64)
    with pytest.raises(SourceError, match=f"but the index gives {'0' * 64}") as raised:
        index.download(file, "")
    assert "pin" not in raised.value.hint
    with pytest.raises(SourceError, match=f"but the lock has {'1' * 64}"):
        index.download(file, "1" * 64)


def test_the_reason_why_a_page_is_not_read_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "index.html").write_text('<meta name="pypi:repository-version" content="2.0">')
    monkeypatch.setattr(index, "pip_settings", lambda: {"index-url": [tmp_path.as_uri()]})
    with pytest.raises(SourceError, match=r"lib can't be read: unsupported version 2\.0 of the repository API"):
        index.find_files("lib", lambda name: True)


def test_an_index_elsewhere_names_no_file_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "pip_settings", lambda: {"index-url": ["https://host/simple"]})
    monkeypatch.setattr(
        index, "_files_on", lambda url, project: [IndexFile(name="lib-1.whl", url="file:///etc/passwd", sha256="")]
    )
    with pytest.raises(SourceError, match="links to a file on this machine"):
        index.find_files("lib", lambda name: True)


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"PATCHQ_CACHE": "/a"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/patchq"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/ann"}, "/home/ann/.cache/patchq"),
        ({"HOME": "/home/ann"}, "/home/ann/.cache/patchq"),
    ],
)
def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str) -> None:
    for name in ("PATCHQ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_folder() == Path(folder)


def test_without_a_setting_pips_own_index_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = subprocess.run(
        [sys.executable, "-m", "pip", "help", "download"], capture_output=True, check=True, text=True
    )
    default = re.search(r"\(default\s+(\S+?)\)", usage.stdout[usage.stdout.index("--index-url") :])
    assert default is not None

    asked: list[str] = []
    monkeypatch.setattr(index, "_files_on", lambda url, project: asked.append(url) or [])
    for settings in ({}, {"index-url": ["https://mirror/simple"]}, {"no-index": ["1"]}):
        monkeypatch.setattr(index, "pip_settings", lambda found=settings: found)
        index.find_files("lib", lambda name: True)
    assert asked == [default[1], "https://mirror/simple"]


def test_threads_ask_pip_once_and_share_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    page = tmp_path / "lib" / "index.html"
    page.write_text('<a href="lib-1.tar.gz#sha256=">x</a>')
    asked: list[str] = []

    def config(argv: list[str]) -> runner.Done:
        asked.append("pip")
        return runner.Done(argv, 0, f"global.index-url={tmp_path.as_uri()!r}\n".encode(), b"")

    def names(_: object = None) -> list[str]:
        return [file.name for file in index.find_files("lib", lambda name: True)]

    read = index._read_page
    monkeypatch.setattr(index, "_read_page", lambda url, project: asked.append(project) or read(url, project))
    monkeypatch.setattr(index.runner, "run", config)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    index.pip_settings.cache_clear()
    try:
        with index.same_pages():
            assert runner.in_threads(names, range(4)) == [["lib-1.tar.gz"]] * 4
        assert asked == ["pip", "lib"]
        page.write_text('<a href="lib-2.tar.gz#sha256=">x</a>')
        assert names() == ["lib-2.tar.gz"]
    finally:
        index.pip_settings.cache_clear()
