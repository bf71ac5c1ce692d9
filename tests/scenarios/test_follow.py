"""`follow`: the rebase pull request, against a server that speaks the few calls, and as a dry run."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from kit import ROOT, Patchq, commit_files, git, release, with_lines
from patchq.errors import SourceError
from patchq.sources.forge import Forge


class Host(BaseHTTPRequestHandler):
    """As much of a forge as `follow` talks to: pull requests in memory, commits of a bare repository."""

    pulls: list[dict[str, Any]]
    calls: list[tuple[str, str]]
    origin: Path
    token = "secret"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_call(self, method: str) -> None:
        url = urlsplit(self.path)
        self.calls.append((method, url.path))
        length = int(self.headers.get("Content-Length") or 0)
        sent = json.loads(self.rfile.read(length)) if length else {}
        path = url.path.removeprefix("/repos/team/fork/")
        if self.headers.get("Authorization") != f"Bearer {self.token}":
            self.answer(401, {"message": "Bad credentials"})
        elif (method, path) == ("GET", "pulls"):
            query = parse_qs(url.query)
            assert query["state"] == ["all"]
            found = [p for p in self.pulls if f"team:{p['head']['ref']}" == query["head"][0]]
            self.answer(200, found)
        elif (method, path) == ("POST", "pulls"):
            head = {"ref": sent["head"], "repo": {"full_name": "team/fork"}}
            pull = {**sent, "head": head, "number": len(self.pulls) + 1, "state": "open"}
            pull["html_url"] = f"https://example.org/team/fork/pull/{pull['number']}"
            self.pulls.append(pull)
            self.answer(201, pull)
        elif method == "PATCH" and re.fullmatch(r"pulls/\d+", path):
            assert set(sent) == {"body"}
            self.pulls[int(path[6:]) - 1].update(sent)
            self.answer(200, self.pulls[int(path[6:]) - 1])
        elif method == "GET" and path.startswith("git/commits/"):
            self.answer(200, {"message": git(self.origin, "log", "-1", "--format=%B", path.rpartition("/")[2])})
        else:
            self.answer(404, {"message": "Not Found"})

    def do_GET(self) -> None:
        self.handle_call("GET")

    def do_POST(self) -> None:
        self.handle_call("POST")

    def do_PATCH(self) -> None:
        self.handle_call("PATCH")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Host]]:
    class This(Host):
        origin = tmp_path / "origin.git"

    This.pulls, This.calls = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), This)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("GITHUB_REPOSITORY", "team/fork")
    monkeypatch.setenv("GITHUB_TOKEN", This.token)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield This
    server.shutdown()
    thread.join()
    server.server_close()


PROOF = """\
import os, pathlib

def test_the_line() -> None:
    text = (pathlib.Path(os.environ["PATCHQ_TREES"]) / "up" / "{file}").read_text()
    assert "changed" == text.splitlines()[{line} - 1]
"""


@pytest.fixture
def project(stack: Patchq, tmp_path: Path) -> Patchq:
    """The stack with a proof each, committed and pushed to its origin."""
    for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
        proof = stack.root / "tests" / "stacks" / "up" / f"test_{name}.py"
        proof.parent.mkdir(parents=True, exist_ok=True)
        proof.write_text(PROOF.format(file=file, line=line))
        path = stack.patch_file(name)
        path.write_text(
            path.read_text().replace("Topic: test\n", f"Topic: test\nProof: tests/stacks/up/{proof.name}\n")
        )  # fmt: skip
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "project")
    git(tmp_path, "init", "-q", "--bare", "origin.git")
    git(stack.root, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(stack.root, "push", "-q", "origin", "main")
    return stack


#: The first conflicts, the second is upstream's, the third lands.
V2: dict[str, bytes | None] = {"a.txt": with_lines({5: b"otherwise\n", 30: b"changed\n"})}
BRANCH = "patchq/up-v2"


def followed(patchq: Patchq, *args: str) -> dict[str, Any]:
    (found,) = json.loads(patchq.ok("follow", *args, "--json"))["followed"]
    assert isinstance(found, dict)
    return found


def owned(patchq: Patchq) -> dict[str, bytes]:
    """Every file of the user's; what is fetched stays in the store."""
    return {name: data for name, data in patchq.snapshot().items() if name != "refs"}


def test_a_new_release_is_one_pull_request(project: Patchq, upstream: Path, host: type[Host], tmp_path: Path) -> None:
    release(upstream, "v2", V2)
    release(upstream, "v3rc1", {"new.txt": b"new\n"})
    before, tree = owned(project), git(project.root, "status", "--porcelain")
    found = followed(project)
    assert (found["state"], found["onto"], found["branch"]) == ("opened", "v2", BRANCH)
    assert found["url"] == "https://example.org/team/fork/pull/1"
    (pull,) = host.pulls
    assert (pull["head"]["ref"], pull["base"]) == (BRANCH, "main")
    said = "1 upstream has, 1 lands, 1 needs review (1 hunk, 1 file)"
    assert pull["title"] == f"Carry up v1 to v2: {said}"
    for words in (
        f"**up v1 → v2:** {said}.".replace("(", r"\(").replace(")", r"\)"),
        "| first | conflict |", "| second | upstream has it | passed on the bare upstream |", "| third | clean | proven |",
        "- first: a.txt", "```mermaid\npie showData", "`patchq use default-up-v2`",
    ):  # fmt: skip
        assert words in pull["body"], pull["body"]
    # The branch holds what landed, on top of main, and nothing else; the project is as it was.
    origin = host.origin
    assert git(origin, "rev-parse", BRANCH) == found["pushed"]
    assert git(origin, "rev-parse", f"{BRANCH}^") == git(origin, "rev-parse", "main")
    names = git(origin, "diff", "--name-only", "main", BRANCH).split()
    assert names == ["patches/up/ledger.jsonl", "patches/up/v2/series", "patches/up/v2/third.patch", "upstream.lock"]
    assert (owned(project), git(project.root, "status", "--porcelain")) == (before, tree)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", BRANCH, str(origin), str(clone))
    Patchq(clone).ok("apply", "--set", "default-up-v2")


def test_it_is_edited_in_place_and_only_where_it_says_something_new(
    project: Patchq, upstream: Path, host: type[Host]
) -> None:
    release(upstream, "v2", V2)
    first = followed(project)["pushed"]
    host.calls.clear()
    assert followed(project)["state"] == "same"
    assert host.calls == [("GET", "/repos/team/fork/pulls")]
    assert git(host.origin, "rev-parse", BRANCH) == first
    host.pulls[0]["body"] = "Mine.\n\n" + host.pulls[0]["body"] + "\n\nMore of mine."
    path = project.root / "upstream.lock"
    path.write_text("# a remark\n" + path.read_text())
    git(project.root, "commit", "-qam", "a remark")
    git(project.root, "push", "-q", "origin", "main")
    found = followed(project)
    assert (found["state"], len(host.pulls)) == ("edited", 1)
    body = host.pulls[0]["body"]
    assert body.startswith("Mine.\n\n<!-- patchq:begin ")
    assert body.endswith("<!-- patchq:end -->\n\nMore of mine.")
    assert git(host.origin, "rev-parse", BRANCH) == found["pushed"] != first
    assert git(host.origin, "rev-parse", f"{BRANCH}^") == git(host.origin, "rev-parse", "main")
    host.pulls[0]["body"] = "All mine."
    path.write_text("# another\n" + path.read_text())
    git(project.root, "commit", "-qam", "another")
    assert "left unchanged" in followed(project)["notes"][0]
    assert host.pulls[0]["body"] == "All mine."


def test_what_a_person_closed_stays_closed(project: Patchq, upstream: Path, host: type[Host]) -> None:
    release(upstream, "v2", V2)
    tip = followed(project)["pushed"]
    host.pulls[0]["state"] = "closed"
    host.calls.clear()
    assert "was closed, and is not opened again" in project.ok("follow", "up")
    assert host.calls == [("GET", "/repos/team/fork/pulls")]
    assert git(host.origin, "rev-parse", BRANCH) == tip
    # The next release is another one.
    release(upstream, "v3", {"new.txt": b"new\n"})
    found = followed(project)
    assert (found["state"], found["branch"], len(host.pulls)) == ("opened", "patchq/up-v3", 2)


def test_a_branch_on_which_somebody_works_is_not_moved(
    project: Patchq, upstream: Path, host: type[Host], tmp_path: Path
) -> None:
    release(upstream, "v2", V2)
    followed(project)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", BRANCH, str(host.origin), str(clone))
    commit_files(clone, {"mine.txt": b"mine"}, "The first, resolved")
    git(clone, "push", "-q")
    path = project.root / "upstream.lock"
    path.write_text("# a remark\n" + path.read_text())
    git(project.root, "commit", "-qam", "a remark")
    found = followed(project)
    assert (found["state"], found["pushed"]) == ("edited", "")
    assert "patchq didn't push" in found["notes"][0]
    assert git(host.origin, "rev-parse", BRANCH) == git(clone, "rev-parse", "HEAD")


def test_nothing_newer_nothing_sent(project: Patchq, upstream: Path, host: type[Host]) -> None:
    assert "v1 is not a newer release" in project.ok("follow")
    assert host.calls == []
    release(upstream, "v2", V2)
    project.ok("rebase", "up", "--onto", "v2", "--leave-out")
    assert "v2 is already carried" in project.ok("follow")
    assert host.calls == []


def test_what_is_not_committed_is_not_sent(project: Patchq, upstream: Path, host: type[Host]) -> None:
    release(upstream, "v2", V2)
    path = project.root / "upstream.lock"
    path.write_text("# a remark\n" + path.read_text())
    assert "upstream.lock has uncommitted changes" in project.fails(1, "follow")
    assert host.calls == []


def test_a_host_that_says_no_is_told_and_leaves_the_project(
    project: Patchq, upstream: Path, host: type[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    release(upstream, "v2", V2)
    before = owned(project)
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    said = project.fails(1, "follow")
    assert "401 Bad credentials" in said
    assert "wrong" not in said
    assert owned(project) == before
    assert "is not the name of a GitHub repository" in project.fails(1, "follow", "--repository", "../x")


REPLIES = {
    "cut short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[",
    "no chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n[]",
    "packed, unasked": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(bytes(9 << 20)),
    "deep": b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000,
    "odd": b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n[1, {}, "x\\n"]',
    "head": b'HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n[{"head": {"a": 1}}]'[:-1] + b"]",
    "elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "not http": b"\x1b[2J\r\n\r\n",
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_whatever_a_host_says_it_is_told_in_words(reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as one:
                one.recv(1 << 16)
                one.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(SourceError):
            Forge(repository="team/fork", api=f"http://127.0.0.1:{server.getsockname()[1]}", token="secret").pull_of(
                "b"
            )
        thread.join()


def test_one_upstream_in_trouble_does_not_hide_anothers_release(
    project: Patchq, upstream: Path, host: type[Host], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    commit_files(other, {"x.txt": b"x\n"}, "first")
    git(other, "tag", "start")
    project.ok("pin", "other", "--url", str(other), "--ref", "start")
    git(project.root, "add", "-A")
    git(project.root, "commit", "-qm", "other")
    release(upstream, "v2", V2)
    done = project.run("follow", "other", "up", "--no-proof", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["problems"]) == (1, ["no release of other is known"])
    assert [(f["upstream"], f["state"]) for f in found["followed"]] == [("up", "opened")]


def test_a_token_is_sent_over_https_only(project: Patchq) -> None:
    said = project.fails(1, "follow", "--repository", "team/fork", "--api", "http://example.org")
    assert "http://example.org is not https" in said
    assert "secret" not in repr(Forge(repository="team/fork", token="secret"))


def test_a_dry_run_writes_what_it_would_send(project: Patchq, upstream: Path, tmp_path: Path) -> None:
    release(upstream, "v2", V2)
    before = owned(project)
    assert "nothing was pushed or sent" in project.ok("follow", "--dry-run", str(tmp_path / "out"))
    sent = json.loads((tmp_path / "out" / "up" / "requests.json").read_text())["calls"]
    assert [(c["method"], c["url"].partition("?")[0].rpartition("/")[2]) for c in sent] == [
        ("GET", "pulls"), ("POST", "pulls"),
    ]  # fmt: skip
    body = (tmp_path / "out" / "up" / "body.md").read_text()
    assert body in sent[1]["body"]["body"]
    assert "| third | clean | proven |" in body
    assert owned(project) == before
    assert git(tmp_path / "origin.git", "for-each-ref", "--format=%(refname)") == "refs/heads/main"


@pytest.fixture
def carried(
    project: Patchq, upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Patchq, Path, dict[str, Any]]:
    """Another checkout of the project, where upstream is gone; what a dry run left, and its files after the dry run."""
    release(upstream, "v2", V2)
    token = os.environ.get("GITHUB_TOKEN")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    folder = tmp_path / "carried"
    project.ok("follow", "--dry-run", str(folder))
    if token:
        monkeypatch.setenv("GITHUB_TOKEN", token)
    upstream.rename(tmp_path / "gone")
    git(tmp_path, "clone", "-q", str(tmp_path / "origin.git"), str(tmp_path / "runner"))
    raw = json.loads((folder / "up" / "prepared.json").read_text())
    return Patchq(tmp_path / "runner"), folder, raw


def test_what_a_dry_run_left_is_sent_by_a_command_that_runs_nothing(
    host: type[Host], carried: tuple[Patchq, Path, dict[str, Any]]
) -> None:
    runner, folder, raw = carried
    for proof in (runner.root / "tests" / "stacks").rglob("*.py"):
        proof.write_text("raise SystemExit('a proof ran')\n")
    found = followed(runner, "--send", str(folder))
    assert (found["state"], found["branch"], found["title"]) == ("opened", BRANCH, raw["title"])
    names = git(host.origin, "diff", "--name-only", "main", BRANCH).split()
    assert names == ["patches/up/ledger.jsonl", "patches/up/v2/series", "patches/up/v2/third.patch", "upstream.lock"]
    assert "| third | clean | proven |" in host.pulls[0]["body"]
    assert git(runner.root, "diff", "--name-only", "HEAD", "--", "patches", "upstream.lock") == ""
    assert "patches/up/v2" not in git(runner.root, "status", "--porcelain", "--untracked-files=all")
    assert followed(runner, "--send", str(folder))["state"] == "same"
    host.pulls[0]["state"] = "closed"
    assert followed(runner, "--send", str(folder))["state"] == "closed"


def change_path(raw: dict[str, Any], name: str) -> None:
    raw["files"][name] = [None, "x"]


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a workflow": lambda raw: change_path(raw, ".github/workflows/x.yml"),
    "outside": lambda raw: change_path(raw, "patches/up/../../x"),
    "another upstream's": lambda raw: change_path(raw, "patches/other/v1/series"),
    "private": lambda raw: change_path(raw, "patches/up/.git/config"),
    "no files": lambda raw: raw.update(files={}),
    "a list": lambda raw: raw.update(files=[]),
    "no text": lambda raw: raw["files"].update({"patches/up/x": [None, 7]}),
    "half a character": lambda raw: raw["files"].update({"patches/up/x": [None, "\ud800"]}),
    "half a character in a name": lambda raw: change_path(raw, "patches/up/\ud800"),
    "half a character in the body": lambda raw: raw.update(body="\ud800"),
    "below a file of its own": lambda raw: change_path(raw, "patches/up/v2/series/x"),
    "below a file of the project": lambda raw: change_path(raw, "patches/up/v1/series/x"),
    "no such upstream": lambda raw: raw.update(upstream="../up"),
    "no ref": lambda raw: raw.update(onto="v2:refs/heads/main"),
    "another pin": lambda raw: raw.update(from_ref="v0"),
    "two lines": lambda raw: raw.update(title="x\n\nPatchq-Follow: y"),
    "too long": lambda raw: raw.update(body="x" * 200_000),
    "a file that changed": lambda raw: raw["files"].update({"upstream.lock": ["0" * 64, "version = 1\n"]}),
    "a new file that is there": lambda raw: raw["files"].update({"patches/up/v1/series": [None, "x\n"]}),
    "another version": lambda raw: raw.update(version=2),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_what_no_dry_run_wrote_is_not_sent(
    host: type[Host], carried: tuple[Patchq, Path, dict[str, Any]], forge: Callable[[dict[str, Any]], object]
) -> None:
    """A proof is somebody's code: it may have written what is to be sent."""
    runner, folder, raw = carried
    forge(raw)
    (folder / "up" / "prepared.json").write_text(json.dumps(raw))
    before = git(runner.root, "status", "--porcelain")
    assert "hint:" in runner.fails(1, "follow", "--send", str(folder))
    assert host.pulls == []
    assert git(host.origin, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(runner.root, "status", "--porcelain").splitlines() in (before.splitlines(), ["?? .patchq/"])


def test_a_dry_run_with_a_token_asks_and_sends_nothing(
    project: Patchq, upstream: Path, host: type[Host], tmp_path: Path
) -> None:
    release(upstream, "v2", V2)
    followed(project, "--no-proof")
    host.pulls[0]["state"] = "closed"
    host.calls.clear()
    assert followed(project, "--dry-run", str(tmp_path / "out"))["state"] == "closed"
    assert {method for method, _ in host.calls} == {"GET"}
    assert not (tmp_path / "out" / "up" / "prepared.json").exists()


def test_a_changed_patch_is_shown(project: Patchq, upstream: Path, tmp_path: Path) -> None:
    lines = with_lines({8: b"``` and @somebody | else\n"})
    release(upstream, "v2", {"a.txt": lines})
    project.ok("follow", "--no-proof", "--dry-run", str(tmp_path / "out"))
    body = (tmp_path / "out" / "up" / "body.md").read_text()
    assert "1 of 3 were rewritten" in body
    assert "````diff\n" in body
    assert "| first | merged | not run |" in body


# What `init` writes


def test_the_workflow_hands_on_what_the_action_takes(empty: Patchq) -> None:
    folder = empty.root / ".github"
    workflow = yaml.safe_load((folder / "workflows" / "rebases.yml").read_text())
    action = yaml.safe_load((folder / "actions" / "follow" / "action.yml").read_text())
    for job in workflow["jobs"].values():
        (used,) = [step for step in job["steps"] if step["uses"] == "./.github/actions/follow"]
        assert set(used["with"]) <= set(action["inputs"])
    assert all("shell" in step or "uses" in step for step in action["runs"]["steps"])


@pytest.mark.parametrize("steps", [("",), ("CARRY", "SEND")], ids=["one step", "two steps"])
def test_the_actions_command_runs(
    project: Patchq, upstream: Path, host: type[Host], tmp_path: Path, steps: tuple[str, ...]
) -> None:
    release(upstream, "v2", V2)
    release(upstream, "v3", {"new.txt": b"new\n"})
    action = yaml.safe_load((project.root / ".github" / "actions" / "follow" / "action.yml").read_text())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "patchq").write_text(f'#!/bin/sh\nexec {sys.executable} -m patchq "$@"\n')
    (tmp_path / "bin" / "patchq").chmod(0o755)
    env = {
        **os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "tools"),
        "NAME": "up", "OPTIONS": "--no-proof --base main", "GITHUB_OUTPUT": str(tmp_path / "output"),
    }  # fmt: skip
    command = action["runs"]["steps"][-1]["run"]
    for step in steps:
        assert not host.pulls
        own = {**env, "ONTO": "" if step == "SEND" else "v2", step or "NONE": "carried"}
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command], cwd=project.root, env=own, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(steps) == 1 or (tmp_path / "output").read_text() == "carried=yes\n"
    assert [p["head"]["ref"] for p in host.pulls] == [BRANCH]


def test_renovate_finds_the_refs_of_a_set() -> None:
    """Its regular expressions on this project's lock; RE2 has no look-around, and JavaScript's groups are (?<name>…)."""
    config = json.loads((ROOT / "docs" / "ci" / "renovate.json").read_text())
    (manager,) = config["customManagers"]
    assert manager["matchStringsStrategy"] == "recursive"
    outer, inner = (text.replace("(?<", "(?P<") for text in manager["matchStrings"])
    lock = (ROOT / "upstream.lock").read_text()
    (found,) = re.findall(outer, lock)
    refs = {m["depName"]: m["currentValue"] for m in re.finditer(inner, found)}
    assert refs == {"vllm": "v0.13.0", "flashinfer": "v0.6.1", "cutlass": "v4.2.1"}
    (pattern,) = manager["managerFilePatterns"]
    assert re.search(pattern.strip("/"), "upstream.lock")
