"""Downloads that break off go on where they end, and are checked whole."""

from __future__ import annotations

import fcntl
import hashlib
import io
import random
import re
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kit import Patchq
from patchq.sources import index


def sdist() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo("p-1.0/noise")
        info.size = 300_000
        tar.addfile(info, io.BytesIO(random.Random(1).randbytes(info.size)))
    return out.getvalue()


class Server:
    """A package index with one release, whose answers for the file break off after ``most`` bytes."""

    def __init__(self) -> None:
        self.data = sdist()
        self.most = len(self.data)
        self.tag = '"one"'
        self.ranges = True
        self.length = ""
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.page(self) if self.path.endswith("/") else owner.file(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def page(self, to: BaseHTTPRequestHandler) -> None:
        digest = hashlib.sha256(self.data).hexdigest()
        body = f'<html><body><a href="/files/p-1.0.tar.gz#sha256={digest}">p-1.0.tar.gz</a></body></html>'.encode()
        to.send_response(200)
        to.send_header("Content-Type", "text/html")
        to.send_header("Content-Length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    def file(self, to: BaseHTTPRequestHandler) -> None:
        wanted, tag = to.headers.get("Range", ""), to.headers.get("If-Range", "")
        self.asked.append((wanted, tag))
        first = int(found[1]) if (found := re.fullmatch(r"bytes=(\d+)-", wanted)) else 0
        if self.ranges and first and tag == self.tag:
            if first >= len(self.data):
                to.send_error(416)
                return
            to.send_response(206)
            to.send_header("Content-Range", f"bytes {first}-{len(self.data) - 1}/{len(self.data)}")
        else:
            first = 0
            to.send_response(200)
        if self.tag:
            to.send_header("ETag", self.tag)
        body = self.data[first:]
        to.send_header("Content-Length", self.length or str(len(body)))
        to.end_headers()
        to.wfile.write(body[: self.most])
        self.sent += len(body[: self.most])
        to.close_connection = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{found.http.server_port}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index.pip_settings.cache_clear()
    yield found
    found.http.shutdown()
    found.http.server_close()
    index.pip_settings.cache_clear()


@pytest.fixture
def pinned(empty: Patchq, server: Server) -> Patchq:
    """Pinned, and its archive not in the cache any more."""
    empty.ok("pin", "p", "--archive", "p==1.0", "--ref", "v1")
    for path in (Path.home() / "cache" / "sha256").glob("*/*"):
        path.unlink()
    server.asked.clear()
    server.sent = 0
    return empty


def partial(server: Server) -> Path:
    return Path.home() / "cache" / "partial" / hashlib.sha256(server.data).hexdigest()


def came(server: Server) -> bool:
    """Whether the cache has the file, and nothing else is left of it."""
    files = sorted(p.name for p in (Path.home() / "cache").rglob("*") if p.is_file())
    found = [p.read_bytes() for p in (Path.home() / "cache").rglob("*.tar.gz")]
    return files == ["p-1.0.tar.gz"] and found == [server.data]


def test_an_answer_that_breaks_off_is_gone_on_with_at_once(pinned: Patchq, server: Server) -> None:
    server.most = 100_000
    pinned.ok("fetch")
    assert server.asked == [
        ("", ""),
        ("bytes=100000-", '"one"'),
        ("bytes=200000-", '"one"'),
        ("bytes=300000-", '"one"'),
    ]
    assert server.sent == len(server.data)
    assert came(server)


def test_a_later_command_goes_on(pinned: Patchq, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "RESUMED", 1)
    server.most = 200_000
    said = pinned.fails(1, "fetch")
    assert "200000 bytes are kept, and the next run continues there" in said
    assert "hint: run the command again" in said
    assert partial(server).stat().st_size == 200_000
    pinned.ok("fetch")
    assert server.asked[1:] == [("bytes=200000-", '"one"')]
    assert came(server)


def test_a_server_that_has_another_file_by_now_or_no_ranges_gives_it_whole(
    pinned: Patchq, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "RESUMED", 1)
    server.most = 200_000
    pinned.fails(1, "fetch")
    server.tag, server.most = '"two"', len(server.data)
    server.ranges = False
    pinned.ok("fetch")
    assert server.asked[1:] == [("bytes=200000-", '"one"')]
    assert server.sent == 200_000 + len(server.data)
    assert came(server)


@pytest.mark.parametrize("left", [lambda data: bytes(200_000), lambda data: bytes(len(data)), lambda data: data, lambda data: data + b"x"], ids=["other bytes", "other, whole", "whole", "too long"])  # fmt: skip
def test_what_was_left_is_not_believed(pinned: Patchq, server: Server, left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "RESUMED", 1)
    server.most = 200_000
    pinned.fails(1, "fetch")
    server.most = len(server.data)
    partial(server).write_bytes(left(server.data))
    pinned.ok("fetch")
    assert came(server)


def test_without_a_name_for_its_version_nothing_is_kept(pinned: Patchq, server: Server) -> None:
    server.most, server.tag = 200_000, ""
    assert "could not be downloaded" in pinned.fails(1, "fetch")
    assert not [p for p in (Path.home() / "cache").rglob("*") if p.is_file()]
    server.most = len(server.data)
    pinned.ok("fetch")
    assert {asked for asked, _ in server.asked} == {""}


def test_what_another_process_is_bringing_is_left_to_it(pinned: Patchq, server: Server) -> None:
    path = partial(server)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as held:
        held.write(b"half")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        pinned.ok("fetch")
        assert path.read_bytes() == b"half"
    assert [p.read_bytes() for p in (Path.home() / "cache").rglob("*.tar.gz")] == [server.data]


@pytest.mark.parametrize("length", ["many", "-5", "\xb2"])
def test_a_length_that_is_no_number_is_not_counted(pinned: Patchq, server: Server, length: str) -> None:
    server.length = length
    pinned.ok("fetch")
