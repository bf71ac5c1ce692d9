"""What goes wrong around patchq: the disk, the clock, git, the index, the store, other patchqs."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kit import Patchq, edit, git
from patchq.sources import index
from patchq.sources import pins as sources
from patchq.system import fsio
from test_hostile import GOOD, tarball
from test_killed import user_sees

RUN = [sys.executable, "-m", "patchq", "--project"]


def in_a_namespace(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A shell script with mounts of its own, which nobody else sees and which end with it."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-euc", script, "script", *map(str, args)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# The disk

FULL = """
project=$1 saved=$2 leave=$3 python=$4
mount -t tmpfs -o size=4m none "$project"
cp -a "$saved/." "$project"
room=$(df --output=avail -B1024 "$project" | tail -1)
dd if=/dev/zero of="$project/filler" bs=1024 count=$((room - leave)) status=none
code=0; "$python" -m patchq --project "$project" apply --to first || code=$?
rm "$project/filler"
echo "exit $code"
"$python" -m patchq --project "$project" fetch
git -C "$project/.patchq/trees/up" log --format=%s
git -C "$project/.patchq/trees/up" status --porcelain
"$python" -m patchq --project "$project" apply --to first
git -C "$project/.patchq/trees/up" log --format=%s
"""


@pytest.mark.parametrize("leave", [0, 8, 20, 64])
def test_a_small_disk_that_is_full(stack: Patchq, tmp_path: Path, leave: int) -> None:
    """A real one, for what test_killed does at each system call."""
    saved = tmp_path / "saved"
    shutil.copytree(stack.root, saved, symlinks=True)
    done = in_a_namespace(FULL, stack.root, saved, leave, sys.executable)
    assert done.returncode == 0, done.stderr
    subjects = [f"Change {f} at {n}" for f, n in (("b.txt", 10), ("a.txt", 30), ("a.txt", 5))] + ["first"]
    code = int(done.stdout.split("exit ")[1][0])
    assert code in (0, 1)
    if leave == 0:
        assert code == 1
        assert "No space left on device" in done.stderr
        assert "bug" not in done.stderr
    before, after = "\n".join(subjects), "\n".join(subjects[2:])
    rest = done.stdout.split("exit ")[1]
    assert before in rest or rest.count(after) == 2
    assert rest.rstrip().endswith(after)


READ_ONLY = """
project=$1 folder=$2 python=$3; shift 3
mount --bind "$folder" "$folder"
mount -o remount,ro,bind "$folder"
"$python" -m patchq --project "$project" "$@"
"""


@pytest.mark.parametrize("folder", [".", "patches", ".patchq", ".patchq/trees/up", ".patchq/store.git"])
@pytest.mark.parametrize("args", [("apply", "--to", "first"), ("drop", "first")], ids=lambda a: a[0])
def test_a_folder_that_can_not_be_written(stack: Patchq, folder: str, args: tuple[str, ...]) -> None:
    before = user_sees(stack)
    done = in_a_namespace(READ_ONLY, stack.root, stack.root / folder, sys.executable, *args)
    if folder == "patches" and args[0] == "apply":
        assert done.returncode == 0  # it writes nothing there
        return
    assert done.returncode == 1, done.stderr
    assert "Read-only file system" in done.stderr
    assert "This is a bug" not in done.stderr
    stack.ok("fetch")
    after = user_sees(stack)
    if after == before:
        stack.ok(*args)
        return
    # It had begun, and is finished now that it can be.
    stack.ok("undo")
    assert user_sees(stack) == before


@pytest.mark.parametrize("args", [("status",), ("list",), ("show", "first"), ("ledger",)], ids=lambda a: a[0])
def test_a_read_only_project_can_be_looked_at(stack: Patchq, args: tuple[str, ...]) -> None:
    done = in_a_namespace(READ_ONLY, stack.root, stack.root, sys.executable, *args)
    assert done.returncode == 0, done.stderr
    assert done.stdout == stack.ok(*args)


# The clock


def test_a_clock_that_went_back(stack: Patchq) -> None:
    """All that is there was written in what is now the future; then verbs, a kill, and undo."""
    future = time.time() + 10 * 365 * 86400
    for folder, folders, files in os.walk(stack.root):
        for name in (*folders, *files):
            os.utime(Path(folder, name), (future, future), follow_symlinks=False)
    before = user_sees(stack)
    edit(stack.tree() / "b.txt", 25, b"mine\n")
    os.utime(stack.tree() / "b.txt", (future, future))
    stack.ok("new", "up", "fourth", "-m", "Fourth\n\nWhy.")
    stack.ok("drop", "first")
    lock = stack.layout.store / "refs/heads/up.lock"
    lock.touch()  # what a killed git leaves, older than its patchq by this clock
    owner = stack.layout.private / "lock.owner"
    owner.write_text("pid 1 on here: patchq apply, since later\n")
    os.utime(owner, (future, future))
    stack.ok("undo")
    assert not lock.exists()
    stack.ok("undo")
    git(stack.tree(), "checkout", "--", "b.txt")
    assert user_sees(stack) == before
    assert "clean" in stack.ok("status")


# Other patchqs, and people's git


@pytest.mark.parametrize("count", [2, 10])
def test_commands_at_once(stack: Patchq, count: int) -> None:
    """Each waits for its turn, or is told whose it is; none sees another's half."""
    verbs = [
        ("drop", "third"), ("apply", "--to", "second"), ("status",), ("export", "up"), ("undo",),
        ("pin", "up", "--ref", "v1", "--set", "other"), ("list",), ("move", "second", "--first"), ("fetch",), ("check",),
    ]  # fmt: skip
    processes = [
        subprocess.Popen(
            [*RUN, str(stack.root), "--wait", "60", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for args in verbs[:count]
    ]
    for process, args in zip(processes, verbs, strict=False):
        out = process.communicate(timeout=120)[0].decode()
        # One may find that another moved what it wanted to move; none crashes, and none meets a lock of git's.
        assert process.returncode in (0, 1, 3), f"{args}: {out}"
        assert "File exists" not in out, f"{args}: {out}"
        assert process.returncode in (0, 3) or "hint:" in out or args == ("check",), f"{args}: {out}"
    assert not (stack.layout.private / "journal" / "pending.json").exists()
    git(stack.tree(), "checkout", "--", ".")  # an edit again, where `new` was undone
    stack.ok("apply")
    assert git(stack.tree(), "status", "--porcelain") == ""
    assert "nothing changed" in stack.ok("export", "up")


def test_a_persons_lock_stays(stack: Patchq) -> None:
    """`git commit` with an editor open holds the index: no command of patchq takes that away, failed or killed."""
    lock = stack.layout.store / "worktrees/up/index.lock"
    lock.touch()
    assert "index.lock" in stack.fails(1, "apply", "--to", "first")
    assert lock.exists()
    (stack.layout.private / "lock.owner").write_text("pid 1 on here: patchq apply, since yesterday\n")
    (stack.layout.private / "locks-of-others").write_bytes(os.fsencode(lock))
    assert stack.run("fetch").exit_code == 0
    assert lock.exists()
    lock.unlink()
    stack.ok("apply", "--to", "first")


# Git


def fake_git(folder: Path, body: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f'#!/bin/bash\nreal={shutil.which("git")}\n{body}\nexec "$real" "$@"\n')
    (folder / "git").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("word", ["fast-import", "read-tree", "symbolic-ref", "ls-tree", "cat-file", "worktree"])
def test_a_git_that_fails(stack: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    git(stack.layout.store, "worktree", "remove", "--force", str(stack.tree()))
    stack.layout.state("up").unlink()
    before = user_sees(stack)
    env = fake_git(tmp_path / "bin", f'for a in "$@"; do [ "$a" = {word} ] && {{ echo "broken" >&2; exit 71; }}; done')
    with monkeypatch.context() as patch:
        patch.setenv("PATH", env["PATH"])
        out = stack.fails(1, "apply")
        assert "broken" in out
        assert word in out
        assert "hint:" in out
    stack.ok("fetch")
    now = user_sees(stack)
    now.pop("head", None), now.pop("status", None)
    stack.ok("apply")
    assert "clean" in stack.ok("status")
    assert before.keys() <= user_sees(stack).keys()


def test_no_git(stack: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    out = stack.fails(1, "apply", "--to", "first")
    assert "git" in out
    assert "hint:" in out


def test_a_host_that_hangs(patchq: Patchq, upstream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "REACH_TIMEOUT", 0.5)
    env = fake_git(tmp_path / "bin", '[ "$1" = ls-remote ] && exec sleep 60')
    monkeypatch.setenv("PATH", env["PATH"])
    start = time.monotonic()
    assert "no answer in 0.5 s" in patchq.fails(1, "apply")
    assert time.monotonic() - start < 30


def test_a_git_that_hangs_is_interrupted(stack: Patchq, tmp_path: Path) -> None:
    """Ctrl-C goes to both; the next command finds all as before."""
    before = user_sees(stack)
    env = fake_git(tmp_path / "bin", 'for a in "$@"; do [ "$a" = read-tree ] && exec sleep 60; done')
    process = subprocess.Popen(
        [*RUN, str(stack.root), "apply", "--to", "first"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, **env}, start_new_session=True,
        # What runs in the background of a shell has it ignored, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 30
    while not any("sleep" in name for name in children(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, message = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted" in message
    stack.ok("fetch")
    assert user_sees(stack) == before
    stack.ok("apply", "--to", "first")


def children(pid: int) -> list[str]:
    """The command names of a process's children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # one may end while it is looked at
            for child in (task / "children").read_text().split():
                found.append(Path(f"/proc/{child}/comm").read_text())
    return found


# The index


class Index:
    """A package index with one release; ``serve`` writes the answer to a request for its file."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        self.serve: Callable[[BaseHTTPRequestHandler], None] = self.whole
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith(".gz"):
                    owner.serve(self)
                    return
                digest = hashlib.sha256(owner.archive).hexdigest()
                body = f'<html><body><a href="/files/p-1.0.tar.gz#sha256={digest}">p-1.0.tar.gz</a></body></html>'
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def send(self, to: BaseHTTPRequestHandler, body: bytes, length: int | None = None, pause: float = 0) -> None:
        to.send_response(200)
        to.send_header("Content-Length", str(len(body) if length is None else length))
        to.end_headers()
        try:
            for at in range(0, len(body), 16 if pause else len(body) or 1):
                to.wfile.write(body[at : at + (16 if pause else len(body))])
                time.sleep(pause)
        except OSError:
            pass  # whoever asked has left

    def whole(self, to: BaseHTTPRequestHandler) -> None:
        self.send(to, self.archive)

    def other(self, to: BaseHTTPRequestHandler) -> None:
        self.send(to, gzip.compress(b"another file"))

    def truncated(self, to: BaseHTTPRequestHandler) -> None:
        self.send(to, self.archive[:100], len(self.archive))
        to.close_connection = True

    def short(self, to: BaseHTTPRequestHandler) -> None:
        self.send(to, self.archive[:100])

    def slow(self, to: BaseHTTPRequestHandler) -> None:
        self.send(to, self.archive, pause=0.5)

    def silent(self, to: BaseHTTPRequestHandler) -> None:
        time.sleep(20)

    def endless(self, to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        try:
            while True:
                to.wfile.write(bytes(1 << 16))
        except OSError:
            pass

    def broken(self, to: BaseHTTPRequestHandler) -> None:
        to.send_error(503)

    def gone(self, to: BaseHTTPRequestHandler) -> None:
        to.send_error(404)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    found = Index(tarball(tmp_path / "p-1.0.tar.gz", GOOD).read_bytes())
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{found.server.server_port}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    index.pip_settings.cache_clear()
    yield found
    found.server.shutdown()
    found.server.server_close()
    index.pip_settings.cache_clear()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("other", "the lock has"), ("truncated", "could not be downloaded|of \\d+ bytes received"), ("short", "the lock has"),
        ("slow", "too slowly"), ("silent", "could not be downloaded"), ("endless", "is larger than 1 MiB"), ("broken", "503"), ("gone", "404"),
    ],
)  # fmt: skip
def test_an_index_that_serves_something_else(
    empty: Patchq, served: Index, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    import re

    monkeypatch.setattr(index, "TIMEOUT", 1)
    monkeypatch.setattr(index, "MOST_BYTES", 1 << 20)
    empty.ok("pin", "p", "--archive", "p==1.0", "--ref", "v1")
    served.serve = getattr(served, fault)
    out = empty.fails(1, "fetch")
    assert re.search(message, out), out
    assert "hint:" in out
    assert not list((Path.home() / "cache").rglob("*.tar.gz"))
    assert not list((Path.home() / "cache").glob(".download-*"))
    served.serve = served.whole
    assert "archive" in empty.ok("fetch")


def test_a_cache_that_rotted(empty: Patchq, served: Index) -> None:
    """What lies in the cache is hashed again before it is used, and brought again if it is another file."""
    empty.ok("pin", "p", "--archive", "p==1.0", "--ref", "v1")
    empty.ok("fetch")
    (kept,) = (Path.home() / "cache").rglob("*.tar.gz")
    kept.write_bytes(b"rot")
    shutil.rmtree(empty.layout.private)
    assert "not in the cache" in empty.fails(1, "fetch", "--offline")
    empty.ok("apply")
    assert (
        fsio.sha256_file(next((Path.home() / "cache").rglob("*.tar.gz"))) == hashlib.sha256(served.archive).hexdigest()
    )


# The store


def packs(patchq: Patchq) -> list[Path]:
    return sorted((patchq.layout.store / "objects" / "pack").glob("*.pack"))


def objects(patchq: Patchq) -> list[Path]:
    return sorted(p for p in (patchq.layout.store / "objects").glob("??/*") if p.is_file())


def flip(path: Path) -> None:
    """One wrong bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


STORE: dict[str, Callable[[Patchq], object]] = {
    "a pack gone": lambda p: packs(p)[0].unlink(),
    "every pack gone": lambda p: [x.unlink() for x in packs(p)],
    "packs and indexes gone": lambda p: shutil.rmtree(p.layout.store / "objects" / "pack"),
    "an index of a pack gone": lambda p: packs(p)[0].with_suffix(".idx").unlink(),
    "a wrong bit in every pack": lambda p: [flip(x) for x in packs(p)],
    "a pack cut short": lambda p: (packs(p)[0].chmod(0o644), os.truncate(packs(p)[0], 40)),
    "every loose object empty": lambda p: [(x.chmod(0o644), os.truncate(x, 0)) for x in objects(p)],
    "all objects gone": lambda p: [shutil.rmtree(x) for x in (p.layout.store / "objects").iterdir()],
}


@pytest.mark.parametrize("source", ["git", "archive"])
@pytest.mark.parametrize("damage", STORE)
def test_fetch_heals_a_store(
    request: pytest.FixtureRequest, empty: Patchq, tmp_path: Path, upstream: Path, damage: str, source: str
) -> None:
    patchq = empty
    if source == "git":
        patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    else:
        subprocess.run(
            ["git", "archive", "--prefix=up-1/", "-o", str(patchq.root / "up-1.tar.gz"), "v1"], cwd=upstream, check=True
        )
        patchq.ok("pin", "up", "--archive", "./up-1.tar.gz", "--ref", "v1")
    patchq.ok("apply")
    for name, line in (("first", 5), ("second", 30)):
        edit(patchq.tree() / "a.txt", line)
        patchq.ok("new", "up", name, "-m", f"Change line {line}\n\nWhy.")
    shutil.rmtree(patchq.layout.private)
    patchq.ok("apply")
    before = user_sees(patchq)
    names = git(patchq.layout.store, "for-each-ref")
    STORE[damage](patchq)
    broken = subprocess.run(["git", "fsck", "--full"], cwd=patchq.layout.store, capture_output=True)
    if damage != "every loose object empty" or objects(patchq):
        assert broken.returncode, "nothing was damaged"
    out = patchq.ok("fetch")
    git(patchq.layout.store, "fsck", "--full", "--no-dangling")
    assert user_sees(patchq) == before, out
    assert git(patchq.layout.store, "for-each-ref") == names
    assert "up to date" in patchq.ok("apply")


def test_lost_work_is_said(stack: Patchq) -> None:
    """A commit that was in no patch file, and its objects gone: nothing is claimed, its files stay."""
    edit(stack.tree() / "b.txt", 20, b"precious\n")
    git(stack.tree(), "commit", "-qam", "By hand")
    head = git(stack.tree(), "rev-parse", "HEAD")
    (stack.layout.store / "objects" / head[:2] / head[2:]).unlink()
    out = stack.fails(1, "fetch")
    assert "has lost commits of up" in out
    assert b"precious" in (stack.tree() / "b.txt").read_bytes()


def test_a_verb_says_what_mends_the_store(stack: Patchq) -> None:
    for path in packs(stack):
        path.unlink()
    for path in objects(stack):
        path.unlink()
    out = stack.run("drop", "first").output
    assert "`patchq fetch` repairs the store" in out, out
    assert "This is a bug" not in out
    assert json.loads(stack.run("fetch", "--json").output)["pins"]


RECORDS = ["HEAD", "refs/heads/up", "refs/patchq/base/git/up/v1", "shallow", "worktrees/up/HEAD", "worktrees/up/index",
           "worktrees/up/commondir", "worktrees/up/gitdir", "../trees/up/.git"]  # fmt: skip


@pytest.mark.parametrize("left", ["nothing", "zeros", "the first part"])
@pytest.mark.parametrize("name", RECORDS)
def test_fetch_mends_what_a_power_cut_zeroed(stack: Patchq, name: str, left: str) -> None:
    before = user_sees(stack)
    names = git(stack.layout.store, "for-each-ref")
    path = stack.layout.store / name
    if name == "shallow":
        path.write_text(git(stack.tree(), "rev-list", "--max-parents=0", "HEAD") + "\n")
    whole = path.read_bytes()
    path.write_bytes({"nothing": b"", "zeros": b"\0" * len(whole), "the first part": whole[: len(whole) // 2]}[left])
    assert "This is a bug" not in stack.run("status").output
    out = stack.ok("fetch")
    assert user_sees(stack) == before, out
    assert git(stack.layout.store, "for-each-ref") == names
    assert "up to date" in stack.ok("apply")


def test_the_mends_of_a_power_cut_touch_no_work_of_a_persons(stack: Patchq) -> None:
    """An index without a checksum, a ref without a line end, a lock, a branch of one's own, edits: all stay."""
    tree, store = stack.tree(), stack.layout.store
    git(tree, "checkout", "-q", "-b", "mine")
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "staged.txt")
    index = store / "worktrees" / "up" / "index"
    data = index.read_bytes()[:-20] + bytes(20)  # what git from 2.40 on writes with index.skipHash
    index.write_bytes(data)
    (tree / "staged.txt").write_text("changed again\n")
    mine = store / "refs" / "heads" / "mine"
    mine.write_text(mine.read_text().strip())
    lock = store / "refs" / "heads" / "other.lock"
    lock.touch()
    message = stack.run("fetch").output
    assert "is unreadable" not in message, message
    assert "rebuilt" not in message, message
    assert index.read_bytes() == data
    assert lock.exists()
    assert git(tree, "symbolic-ref", "HEAD") == "refs/heads/mine"
    assert git(tree, "show", ":staged.txt") == "staged"
    assert (tree / "staged.txt").read_text() == "changed again\n"


def test_an_index_that_is_made_again_is_kept(stack: Patchq) -> None:
    tree = stack.tree()
    (tree / "staged.txt").write_text("staged\n")
    git(tree, "add", "staged.txt")
    index = stack.layout.store / "worktrees" / "up" / "index"
    damaged = index.read_bytes()[:-40] + bytes(40)
    index.write_bytes(damaged)
    assert "staged changes are unstaged now" in stack.ok("fetch").replace("\n", " ")
    assert (stack.layout.private / "damaged" / "worktrees" / "up" / "index").read_bytes() == damaged
    assert (tree / "staged.txt").read_text() == "staged\n"


def test_a_commit_of_a_persons_on_a_branch_that_a_power_cut_lost_is_named(stack: Patchq) -> None:
    """The branch goes back to what patchq knows; the commit is nowhere else, and is had by the printed command."""
    tree = stack.tree()
    (tree / "mine.txt").write_text("mine\n")
    git(tree, "add", "mine.txt")
    git(tree, "commit", "-q", "-m", "Mine")
    mine = git(tree, "rev-parse", "HEAD")
    (stack.layout.store / "refs" / "heads" / "up").write_bytes(b"\0" * 41)
    message = " ".join(stack.ok("fetch").split())
    assert mine in message
    command = re.search(r"`git -C \S+ (reset --soft [0-9a-f]{40})`", message)
    assert command, message
    assert git(tree, "rev-parse", "HEAD") != mine
    git(tree, *command[1].split())
    assert git(tree, "rev-parse", "HEAD") == mine
    assert git(tree, "status", "--porcelain") == ""
