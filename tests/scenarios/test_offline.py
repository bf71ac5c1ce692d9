"""`--offline` opens no connection, and an index on the network is no way to this machine's files."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kit import Patchq, edit, git
from patchq.sources import index
from test_build import SETUP
from test_hostile import GOOD, tarball
from test_keyring import ssh, trust


class Listener:
    """Counts who connects, and says nothing to them."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.seen = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.seen += 1
            connection.close()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Where the package index is, and every host."""
    found = Listener()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{found.port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index.pip_settings.cache_clear()
    yield found
    found.socket.close()
    index.pip_settings.cache_clear()


def test_offline_connects_to_nobody(patchq: Patchq, upstream: Path, listener: Listener) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        signer = ssh(Path(short) / "a", "releaser@example.org")
        git(upstream, "rm", "-q", "-r", "pkg")
        (upstream / "pyproject.toml").write_bytes(SETUP % (b"pkg", b"", b"pkg", b"pkg", b"pkg"))
        (upstream / "pkg").mkdir()
        (upstream / "pkg" / "__init__.py").write_text("")
        git(upstream, "add", "-A")
        git(upstream, "commit", "-q", "-m", "a package")
        signer.sign(upstream, "tag", "-s", "v2", "-m", "two")
        trust(patchq, signer)
        patchq.ok("pin", "up", "--ref", "v2")
        patchq.ok("fetch")
    lock = patchq.layout.lock
    text = lock.read_text().replace(str(upstream), f"http://127.0.0.1:{listener.port}/up.git")
    text += '\n[upstreams.up.build]\ndistribution = "pkg"\npackage = "pkg"\n'
    text += '\n[upstreams.p.pins.v1]\narchive = "p==1.0"\nsha256 = "' + "0" * 64 + '"\n\n[sets.other]\np = "v1"\n'
    lock.write_text(text)
    # Another keyring is another question, whose answer is in the store.
    keys = patchq.root / "keys" / "up"
    keys.write_bytes(keys.read_bytes() + b"\n")
    assert "tag signed by" in patchq.ok("apply", "--offline")
    edit(patchq.tree() / "a.txt", 5)
    patchq.ok("new", "up", "first")
    for args in (("fetch", "--offline"), ("apply", "--offline"), ("check", "--offline")):
        patchq.run(*args)
    assert "--offline forbids fetching it" in patchq.fails(1, "fetch", "--all", "--offline")
    assert "--offline forbids fetching it" in patchq.fails(1, "apply", "--offline", "--set", "other")
    assert "pip can't install" in patchq.fails(5, "build", "--offline")
    assert listener.seen == 0
    # What would have been asked is asked without.
    keys.write_bytes(keys.read_bytes() + b"\n")
    patchq.run("apply")
    assert listener.seen > 0


def test_offline_and_a_tag_that_is_not_here(patchq: Patchq, upstream: Path, listener: Listener, tmp_path: Path) -> None:
    """Fetched before there was a keyring: nothing here is signed, and nobody is asked."""
    signer = ssh(tmp_path / "a", "releaser@example.org")
    signer.sign(upstream, "tag", "-s", "v2", "-m", "two")
    patchq.ok("pin", "up", "--ref", "v2")
    patchq.ok("fetch")
    trust(patchq, signer)
    lock = patchq.layout.lock
    lock.write_text(lock.read_text().replace(str(upstream), f"http://127.0.0.1:{listener.port}/up.git"))
    said = patchq.fails(1, "apply", "--offline")
    assert "of v2 is not signed; if v2 is a tag, it may be signed, but --offline forbids fetching it" in said
    assert listener.seen == 0


class Index(BaseHTTPRequestHandler):
    """An index whose page, or whose answer to a request for the file, leads to a file of whoever asks."""

    target = ""
    redirects = False

    def do_GET(self) -> None:
        if self.path.startswith("/simple") and not (self.redirects and self.path.startswith("/simple/q")):
            href = f"http://{self.headers['Host']}/files/p-1.0.tar.gz" if self.redirects else self.target
            body = f'<html><body><a href="{href}">p-1.0.tar.gz</a></body></html>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(302)
        self.send_header("Location", self.target)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.mark.parametrize("redirects", [False, True], ids=["the page names it", "a redirect leads to it"])
def test_an_index_on_the_network_names_no_file_of_this_machine(
    empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redirects: bool
) -> None:
    secret = tarball(tmp_path / "p-1.0.tar.gz", GOOD)
    monkeypatch.setattr(Index, "target", secret.as_uri())
    monkeypatch.setattr(Index, "redirects", redirects)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index.pip_settings.cache_clear()
    try:
        said = empty.fails(1, "pin", "p", "--archive", "p==1.0", "--ref", "v1")
    finally:
        server.shutdown()
        server.server_close()
        index.pip_settings.cache_clear()
    assert ("could not be downloaded" if redirects else "links to a file on this machine") in said
    assert "hint:" in said
    assert not list((Path.home() / "cache").rglob("*.tar.gz"))


def test_no_secret_of_an_address_is_printed(stack: Patchq) -> None:
    address = "https://user:hunter2%40@127.0.0.1:9/up.git"
    said = stack.fails(1, "pin", "up", "--url", address, "--ref", "v2")
    assert "https://127.0.0.1:9/up.git" in said
    lock = stack.layout.lock
    lock.write_text(re.sub(r'(?m)^url = ".*"', f'url = "{address}"', lock.read_text()))
    shutil.rmtree(stack.layout.private)
    said += stack.fails(1, "apply") + stack.fails(1, "fetch", "--json") + stack.run("pin", "--check").output
    assert "127.0.0.1:9/up.git" in said
    assert "hunter2" not in said
    assert "user" not in said
