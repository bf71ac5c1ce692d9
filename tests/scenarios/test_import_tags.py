"""`import --dry-run`: on which of upstream's git tags a patch applies, and how much is downloaded to find that out."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kit import Patchq, git, release, with_lines
from test_import_releases import Index, served  # noqa: F401
from test_offline import Listener, listener  # noqa: F401

#: The patch's line is there from v1.3 to v1.6; v1.10, which is pinned, doesn't have it; v2.0 has the patch.
TAGS = [*(f"v1.{n}" for n in range(14)), "v2.0", "v3.0rc1"]
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -19,3 +19,3 @@\n line 19\n-line 20\n+patched\n line 21\n"
#: Of a file that no patch names, in every release another.
LARGE = 200_000


@pytest.fixture
def tagged(upstream: Path) -> Path:
    chance = random.Random(1)
    for number, tag in enumerate(TAGS):
        line = b"line 20\n" if 3 <= number <= 6 or number == 15 else b"patched\n" if tag == "v2.0" else b"%d\n" % number
        files = {"a.txt": with_lines({20: line, 39: b"%d\n" % number}), "large.bin": chance.randbytes(LARGE)}
        release(upstream, tag, {**files})
    git(upstream, "tag", "v1.5-docs", "v1.7")  # no version, and an annotated tag below
    git(upstream, "tag", "-f", "-a", "-m", "four", "v1.4", "v1.4")
    return upstream


class Host(BaseHTTPRequestHandler):
    """A git host: git's own CGI program for it."""

    root: Path
    protocol_version = "HTTP/1.0"

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        env = {
            **os.environ, "GIT_PROJECT_ROOT": str(self.root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True)
        head, _, said = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = answer

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def host(tagged: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The upstream's URL at a host that can leave files out."""
    git(tagged, "config", "uploadpack.allowFilter", "true")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Host,), {"root": tagged.parent}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield f"http://127.0.0.1:{server.server_port}/{tagged.name}/.git"
    server.shutdown()
    server.server_close()


def pinned(patchq: Patchq, *args: str) -> Patchq:
    patchq.ok("pin", "up", "--ref", "v1.10", *args)
    patchq.ok("apply")
    return patchq


def tried(patchq: Patchq, tmp_path: Path, *args: str) -> dict[str, Any]:
    (tmp_path / "x.patch").write_text(DIFF)
    done = patchq.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run", "--json", *args)
    (found,) = json.loads(done)["items"]
    elsewhere: dict[str, Any] = found["elsewhere"]
    return elsewhere


def ends(found: dict[str, Any]) -> tuple[str, str, str]:
    return found["newest"], found["oldest"], found["there"]


@pytest.mark.parametrize("offline", [[], ["--offline"]])
def test_the_tags_of_a_repository_of_this_machine(
    empty: Patchq, tagged: Path, tmp_path: Path, offline: list[str]
) -> None:
    store = pinned(empty, "--url", str(tagged)).snapshot()
    found = tried(empty, tmp_path, *offline)
    assert ends(found) == ("v1.6", "v1.3", "v2.0")
    assert found["of"] == 14  # v1 is v1.0, and neither the pinned one nor what isn't released yet
    assert found["downloaded"] == {"used": 0, "most": 256 << 20, "untried": []}
    assert empty.snapshot() == store
    assert not (tmp_path / "home" / "cache").exists()
    said = empty.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run", *offline)
    assert f"it applies on v1.6, the newest of {found['tried']} releases tried, 14 there are, the oldest v1.3" in said


def test_of_a_host_only_trees_and_the_files_of_the_patch_come(
    empty: Patchq, tagged: Path, host: str, tmp_path: Path
) -> None:
    store = pinned(empty, "--url", host).snapshot()
    found = tried(empty, tmp_path)
    assert ends(found) == ("v1.6", "v1.3", "v2.0")
    assert 0 < found["downloaded"]["used"] < 20_000 < LARGE
    assert empty.snapshot() == store
    assert "applied" in empty.ok("status"), "what it keeps is its own"
    again = tried(empty, tmp_path)
    assert (ends(again), again["downloaded"]["used"]) == (ends(found), 0)
    # Gone from the host, or not to be asked: what came is here.
    offline = tried(empty, tmp_path, "--offline")
    assert (ends(offline), offline["of"]) == (ends(found), found["tried"])


def test_no_more_is_downloaded_than_may_be(empty: Patchq, tagged: Path, host: str, tmp_path: Path) -> None:
    pinned(empty, "--url", host)
    git(tagged, "config", "uploadpack.allowFilter", "false")
    found = tried(empty, tmp_path, "--most-download", "500K")["downloaded"]
    assert LARGE < found["used"] <= found["most"] == 500 << 10
    assert found["untried"]
    packs = empty.layout.private / "history" / "up.releases.git" / "objects" / "pack"
    assert sum(p.stat().st_size for p in packs.iterdir()) < (500 << 10) + LARGE // 10
    assert not list(packs.glob("tmp_*"))
    said = empty.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run", "--most-download", "1000")
    assert re.search(r"were not tried: \d+ bytes were downloaded, and no more than 1000 bytes may be", said)
    assert "--most-download SIZE raises that" in said
    assert "is no size" in empty.fails(2, "import", "up", "-", "--dry-run", "--most-download", "some")
    assert not tried(empty, tmp_path, "--most-download", "1G")["downloaded"]["untried"]


def test_archives_count_too(empty: Patchq, served: type[Index], tmp_path: Path) -> None:  # noqa: F811
    empty.ok("pin", "up", "--archive", "p==1.10", "--ref", "1.10")
    empty.ok("apply")
    served.asked.clear()
    size = len(served.files["p-2.0.tar.gz"])
    (tmp_path / "x.patch").write_text(DIFF.replace("a.txt", "src/a.txt"))
    args = ("import", "up", str(tmp_path / "x.patch"), "--dry-run", "--json", "--most-download", str(3 * size))
    found = json.loads(empty.fails(3, *args))["items"][0]["elsewhere"]
    names = served.asked[: found["tried"]]
    assert found["downloaded"]["used"] == sum(len(served.files[f"p-{name}.tar.gz"]) for name in names) <= 3 * size
    assert 2 <= found["tried"] <= 3
    assert found["downloaded"]["untried"]
    # What has come needs nothing again, so that another time finds more.
    later = json.loads(empty.fails(3, *args))["items"][0]["elsewhere"]
    assert later["tried"] > found["tried"]


def test_a_host_that_does_not_answer_leaves_the_index(
    empty: Patchq,
    tagged: Path,
    served: type[Index],  # noqa: F811
    tmp_path: Path,
) -> None:
    pinned(empty, "--url", str(tagged), "--archive", "p==1.10")
    served.files.pop("p-1.6.tar.gz")  # the one has what the other lacks
    git(tagged, "tag", "-d", "v1.3")
    served.asked.clear()
    (tmp_path / "x.patch").write_text(DIFF)
    found = tried(empty, tmp_path)
    assert found["of"] == 14
    assert (found["newest"], found["there"]) == ("v1.6", "v2.0")
    assert set(served.asked) <= {"1.3"}, "what is a tag is read as the pin was"
    tagged.rename(tagged.parent / "away")
    assert ends(tried(empty, tmp_path)) == ("1.5", "1.3", "2.0")


def test_offline_nobody_is_asked_for_tags(empty: Patchq, tagged: Path, listener: Listener, tmp_path: Path) -> None:  # noqa: F811
    pinned(empty, "--url", str(tagged))
    lock = empty.layout.lock
    lock.write_text(lock.read_text().replace(str(tagged), f"http://127.0.0.1:{listener.port}/up.git"))
    assert tried(empty, tmp_path, "--offline") is None
    assert listener.seen == 0
    assert tried(empty, tmp_path) is None
    assert listener.seen > 0


def test_where_all_tags_are_here_the_date_of_the_patch_tells_where_to_begin(
    empty: Patchq, upstream: Path, tmp_path: Path
) -> None:
    for number, tag in enumerate(TAGS):
        line = b"line 20\n" if number == 3 else b"%d\n" % number
        (upstream / "a.txt").write_bytes(with_lines({20: line}))
        when = {"GIT_COMMITTER_DATE": f"2026-01-{number + 1:02}T00:00:00Z"}
        git(upstream, "commit", "-q", "-a", "-m", tag, env=when)
        git(upstream, "tag", tag)
    pinned(empty, "--url", str(upstream))
    mail = f"From: A <a@b>\nDate: Sun, 4 Jan 2026 10:00:00 +0000\nSubject: [PATCH] X\n\nWhy.\n---\n{DIFF}"
    (tmp_path / "x.patch").write_text(mail)
    said = empty.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run")
    asked = [line.split()[-1] for line in said.splitlines() if "trying the release" in line]
    assert asked[:2] == ["v2.0", "v1.3"]
    assert "it applies on v1.3, the newest" in said
