"""`import --dry-run`: on which of the index's releases a patch applies that doesn't apply to the pinned one."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import Patchq, edit, with_lines
from patchq.adopt._releases import MOST_TRIED, ReleaseSearch
from patchq.sources import index


def sdist(version: str, files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"p-{version}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Index(BaseHTTPRequestHandler):
    """A package index with one project, whose pages say when each file was uploaded."""

    files: ClassVar[dict[str, bytes]]
    dated: bool
    asked: ClassVar[list[str]]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        if name:
            self.asked.append(name.removeprefix("p-").removesuffix(".tar.gz"))
            body, kind = self.files[name], "application/gzip"
        else:
            about: list[dict[str, Any]] = [
                {"filename": n, "url": f"/files/{n}", "hashes": {"sha256": hashlib.sha256(data).hexdigest()}}
                | ({"upload-time": f"2026-01-{1 + number:02}T00:00:00Z"} if self.dated else {})
                for number, (n, data) in enumerate(self.files.items())
            ]
            page = {"meta": {"api-version": "1.0"}, "name": "p", "files": about}
            body, kind = json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


#: The patch's line is there from 1.3 to 1.6; 1.10, which is pinned, and the newest has it; 2.0 has the patch.
VERSIONS = [*(f"1.{n}" for n in range(14)), "2.0", "3.0rc1"]
DIFF = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -19,3 +19,3 @@\n line 19\n-line 20\n+patched\n line 21\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Index]]:
    class Served(Index):
        files: ClassVar[dict[str, bytes]] = {}
        dated = False
        asked: ClassVar[list[str]] = []

    for number, version in enumerate(VERSIONS):
        line = (
            b"line 20\n"
            if 3 <= number <= 6 or number == 15
            else b"patched\n"
            if version == "2.0"
            else b"other %d\n" % number
        )
        content = with_lines({20: line, 39: b"%d\n" % number})
        Served.files[f"p-{version}.tar.gz"] = sdist(version, {"src/a.txt": content, "b.txt": b"%d\n" % number})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index.pip_settings.cache_clear()
    yield Served
    server.shutdown()
    server.server_close()
    index.pip_settings.cache_clear()


@pytest.fixture
def pinned(empty: Patchq, served: type[Index]) -> Patchq:
    empty.ok("pin", "p", "--archive", "p==1.10", "--ref", "1.10")
    empty.ok("apply")
    served.asked.clear()
    return empty


def tried(patchq: Patchq, text: str, tmp_path: Path, *args: str) -> dict[str, Any]:
    path = tmp_path / "x.patch"
    path.write_text(text)
    found: list[dict[str, Any]] = json.loads(patchq.fails(3, "import", "p", str(path), "--dry-run", "--json", *args))[
        "items"
    ]
    return found[-1]


def typed(said: str) -> list[str]:
    """The first command of a hint, without `patchq`."""
    return shlex.split(said.partition("`")[2].partition("`")[0])[1:]


def test_a_release_that_is_not_there_names_the_newest(empty: Patchq, served: type[Index]) -> None:
    said = empty.fails(1, "pin", "p", "--archive", "p==9.9", "--ref", "9.9")
    assert "the package index has no source distribution of p 9.9; the newest is 2.0" in said
    assert "use `--archive p==2.0 --ref 2.0`; `python -m pip index versions p` lists all releases" in said
    assert "no source distribution of other\n" in empty.fails(1, "pin", "p", "--archive", "other==1", "--ref", "1")
    said = empty.fails(2, "pin", "p", "--archive", "p==1.10")
    assert "--ref is missing: patchq pin p --archive p==1.10 --ref 1.10" in said


def test_another_release_of_an_archive_gets_its_command(pinned: Patchq) -> None:
    said = pinned.fails(1, "pin", "p", "--ref", "1.6")
    assert typed(said) == ["pin", "p", "--archive", "p==1.6", "--ref", "1.6"]
    pinned.ok(*typed(said))


def test_the_newest_and_the_oldest_release_are_named(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    store = pinned.snapshot()
    found = tried(pinned, DIFF, tmp_path)["elsewhere"]
    assert (found["newest"], found["oldest"], found["there"]) == ("1.6", "1.3", "2.0")
    assert found["of"] == 14  # neither the pinned one nor what isn't released yet
    assert len(served.asked) == len(set(served.asked)) == found["tried"] <= MOST_TRIED
    assert pinned.snapshot() == store
    said = pinned.fails(3, "import", "p", str(tmp_path / "x.patch"), "--dry-run")
    assert (
        f"it applies to 1.6, the newest of {found['tried']} releases tried (14 exist), the oldest 1.3; 2.0 already contains the change"
        in said
    )
    assert len(served.asked) == found["tried"], "downloads are kept"


def test_the_date_of_the_patch_tells_where_to_begin(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    served.dated = True
    mail = f"From: A <a@b>\nDate: Mon, 5 Jan 2026 10:00:00 +0000\nSubject: [PATCH] X\n\nWhy.\n---\n{DIFF}"
    assert tried(pinned, mail, tmp_path)["elsewhere"]["newest"] == "1.6"
    assert served.asked[:2] == ["2.0", "1.4"]


def test_offline_and_without_a_dry_run_nobody_is_asked(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    assert tried(pinned, DIFF, tmp_path, "--offline")["elsewhere"] is None
    pinned.fails(3, "import", "p", str(tmp_path / "x.patch"))
    assert not served.asked
    pinned.fails(2, "import", "p", "https://example.org/a/b/pull/1", "--offline")


def test_a_batch_is_put_on_a_release_in_its_order(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    second = DIFF.replace("-line 20", "-patched").replace("+patched", "+twice")
    (tmp_path / "1.patch").write_text(DIFF)
    (tmp_path / "2.patch").write_text(second)
    done = pinned.fails(3, "import", "p", str(tmp_path / "1.patch"), str(tmp_path / "2.patch"), "--dry-run", "--json")
    found = [i["elsewhere"] for i in json.loads(done)["items"]]
    assert [(e["newest"], e["oldest"]) for e in found] == [("1.6", "1.3"), ("2.0", "1.3")]


def test_releases_that_cannot_be_had_are_passed_over(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    for version in ("1.9", "1.6"):
        served.files[f"p-{version}.tar.gz"] = b"no archive"
    found = tried(pinned, DIFF, tmp_path)["elsewhere"]
    assert (found["newest"], found["oldest"]) == ("1.5", "1.3")
    assert found["tried"] == len(served.asked) - len({"1.9", "1.6"} & set(served.asked))
    served.files.clear()
    assert tried(pinned, DIFF, tmp_path)["elsewhere"] is None


def test_a_patch_that_only_the_stack_is_in_the_way_of(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    edit(pinned.tree("p") / "src" / "a.txt", 5)
    pinned.ok("new", "p", "mine", "-m", "Mine\n\nWhy.")
    found = tried(pinned, DIFF.replace("20", "5").replace("19", "4").replace("21", "6"), tmp_path)
    assert "it applies on 1.10 without the stack's patches" in found["detail"]
    assert found["elsewhere"] is None
    assert not served.asked


def test_downloads_are_limited(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    size = len(served.files["p-2.0.tar.gz"])
    found = tried(pinned, DIFF, tmp_path, "--most-download", str(3 * size))["elsewhere"]
    names = served.asked[: found["tried"]]
    assert found["downloaded"]["used"] == sum(len(served.files[f"p-{name}.tar.gz"]) for name in names) <= 3 * size
    assert 2 <= found["tried"] <= 3
    assert found["downloaded"]["untried"]
    said = pinned.fails(3, "import", "p", str(tmp_path / "x.patch"), "--dry-run", "--most-download", "1000")
    assert re.search(r"were not tried, because of the download limit: \d+ bytes of 1000 bytes are used", said)
    assert "--most-download SIZE raises the limit" in said
    # Downloaded files are kept, so that the next search gets further.
    later = tried(pinned, DIFF, tmp_path, "--most-download", str(3 * size))["elsewhere"]
    assert later["tried"] > found["tried"]
    assert "is not a size" in pinned.fails(2, "import", "p", "-", "--dry-run", "--most-download", "some")


def test_pinned_refs_are_tried_without_the_index(pinned: Patchq, served: type[Index], tmp_path: Path) -> None:
    for version in ("1.5", "1.10"):
        pinned.ok("pin", "p", "--archive", f"p=={version}", "--ref", version)
        pinned.ok("fetch")
    served.asked.clear()
    found = tried(pinned, DIFF, tmp_path, "--offline")["elsewhere"]
    assert (found["newest"], found["oldest"], found["tried"], found["of"]) == ("1.5", "1.5", 1, 1)
    assert not served.asked


@given(st.integers(1, 60), st.data())
def test_a_run_beside_the_pin_is_found_with_both_its_ends(count: int, data: st.DataObject) -> None:
    """Of every release that there is, whatever else isn't tried, as long as nothing bounds the search."""
    pin = data.draw(st.integers(0, count))
    first = data.draw(st.integers(0, count - 1))
    last = data.draw(st.integers(first, count - 1 if first >= pin else pin - 1))
    search = ReleaseSearch(count, pin, [data.draw(st.none() | st.integers(first, last))])
    while (at := search.next()) is not None:
        assert at not in search.tried
        like = 1 / (1 + max(first - at, at - last, 0))
        search.take(at, ["applies" if first <= at <= last else "conflict"], [like])
    found = search.fits(0)
    assert (found[0], found[-1]) == (first, last)
    assert len(search.tried) <= 3 * count.bit_length() + 6
