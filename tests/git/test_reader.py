"""A ``cat-file`` that stays answers as a new one would, whatever happens to it and to the repository meanwhile."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit import commit_files, git, new_repository
from patchq.errors import SourceError
from patchq.git import _reader as readers
from patchq.git.objects import blob_id
from patchq.git.repository import Git, bare_repository, scratch
from patchq.names import BlobId
from patchq.system.runner import CommandError

ABSENT = BlobId("12" * 20)
#: Program of git 2.50 or newer.
NEWER = os.environ.get("PATCHQ_NEWER_GIT", "")


@pytest.fixture
def store(tmp_path: Path) -> Git:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/f").write_bytes(b"first")
    new_repository(tmp_path / "r")
    return Git(tmp_path / "r" / ".git")


def written(store: Git, content: bytes) -> BlobId:
    return BlobId(git(store.folder, "hash-object", "-w", "--stdin", data=content).strip())


def reader_of(store: Git) -> readers.ObjectReader:
    """The one that the repository's own commands ask."""
    found = readers.reader(store)
    assert found
    return found


def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are started from now on, but for readers."""
    found: list[list[str]] = []
    plain = subprocess.run

    def run(argv: list[str], *args: object, **options: object) -> object:
        found.append(argv)
        return plain(argv, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", run)
    return found


CONTENTS = [b"", b"\n", b"no end", b"a\nb\n", bytes(range(256)) * 3000, b"1" * 40 + b" blob 3\nabc\n"]


def test_what_it_reads_is_what_is_there(store: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = {written(store, content): content for content in CONTENTS}
    commands = started(monkeypatch)
    assert store.read_blobs(blobs) == blobs
    assert list(store.read_blobs(reversed(blobs))) == list(reversed(blobs))
    assert [argv[1] for argv in commands] == []


def test_more_than_a_pipe_holds(store: Git) -> None:
    many = {written(store, b"%d" % n * 3000): b"%d" % n * 3000 for n in range(readers.AT_ONCE + 1)}
    assert store.read_blobs(many) == many
    found = readers.ObjectReader(store)
    assert found.contents([*many, ABSENT, *many]) == many
    found.close()


def test_what_comes_after_it_was_started_is_there(store: Git) -> None:
    one = written(store, b"one")
    assert store.read_blobs([one]) == {one: b"one"}
    two = written(store, b"two")
    git(store.folder, "gc", "-q", "--prune=now")  # `two` is in nothing: it is gone
    with pytest.raises(SourceError, match="has lost the object"):
        store.read_blobs([two])
    commit = commit_files(store.folder.parent, {"f": b"three", "g": b"one"})
    git(store.folder, "repack", "-adq")
    assert store.read_blobs([blob_id(b"three"), one]) == {blob_id(b"three"): b"three", one: b"one"}
    assert store.tree_of([commit, commit]) == [git(store.folder, "rev-parse", f"{commit}^{{tree}}").strip()] * 2


def test_objects_that_are_borrowed_later(store: Git, tmp_path: Path) -> None:
    one = written(store, b"one")
    beside = bare_repository(tmp_path / "beside")
    with pytest.raises(SourceError):
        beside.read_blobs([one])
    bare_repository(tmp_path / "beside", store)
    assert beside.read_blobs([one]) == {one: b"one"}


def test_a_folder_that_is_named_from_where_one_is(
    store: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    one = written(store, b"one")
    git(tmp_path, "init", "-q", "--bare", "--template=", "other/.git")
    monkeypatch.chdir(store.folder.parent)
    named = Git(Path(".git"))
    assert named.read_blobs([one]) == {one: b"one"}
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(SourceError, match="has lost the object"):
        named.read_blobs([one])


def test_where_none_can_be_started(store: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(store.folder))
    with pytest.raises(CommandError, match="ended with 127"):
        store.read_blobs([ABSENT])


def test_a_name_of_two_lines(store: Git) -> None:
    """Its second answer isn't taken for the next one."""
    one, two = written(store, b"one"), written(store, b"two")
    assert reader_of(store).contents([BlobId(f"{one}\n{one}")]) is None
    assert store.read_blobs([two, one]) == {two: b"two", one: b"one"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_one_that_ended_is_not_missed(store: Git, how: int) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would git
    one = written(store, b"one")
    first = reader_of(store)
    assert first.contents([one]) == {one: b"one"}
    first._process.send_signal(how)
    first._process.wait()
    assert first.contents([one]) is None
    assert first.ended
    second = reader_of(store)
    assert second is not first
    assert store.read_blobs([one]) == {one: b"one"}


def test_a_damaged_object_is_told_as_before(store: Git) -> None:
    one, two = written(store, b"one" * 1000), written(store, b"two")
    assert store.read_blobs([two])
    place = store.folder / "objects" / one[:2] / one[2:]
    place.chmod(0o600)
    place.write_bytes(place.read_bytes()[:20])
    for _ in range(2):
        with pytest.raises((SourceError, CommandError), match=r"corrupt|unable to|lost"):
            store.read_blobs([two, one])
    assert store.read_blobs([two]) == {two: b"two"}


def test_an_interrupt_in_the_middle_of_an_answer(store: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of that answer isn't taken for the next one."""
    one, two = written(store, b"one"), written(store, b"two")
    found = reader_of(store)

    source = found._process.stdout

    class Interrupted(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: object) -> int:
            raise KeyboardInterrupt

        def close(self) -> None:
            assert source
            source.close()

    monkeypatch.setattr(found._process, "stdout", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        found.contents([one])
    assert found.ended
    assert store.read_blobs([two]) == {two: b"two"}


def test_threads_beside_each_other(store: Git) -> None:
    blobs = [written(store, b"%d" % n * 50_000) for n in range(20)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda blob: store.read_blobs([blob])[blob], blobs * 5))
    assert [blob_id(content) for content in found] == blobs * 5


def test_while_one_thread_asks_another_has_no_answer(store: Git) -> None:
    one = written(store, b"one")
    found = reader_of(store)
    with found._lock:
        assert found.contents([one]) is None
        assert store.read_blobs([one]) == {one: b"one"}
    assert not found.ended


def test_a_fork_leaves_it_to_its_parent(store: Git) -> None:
    one = written(store, b"one")
    assert store.read_blobs([one])
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if not readers._staying and store.read_blobs([one]) == {one: b"one"} else 2
            readers._forget_all()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    found = reader_of(store)
    assert found.contents([one]) == {one: b"one"}


def code_of(child: int) -> int | None:
    """What a fork ends with; None for one that hangs."""
    wait = threading.Event()
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        wait.wait(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_a_fork_while_a_thread_waits_for_an_answer(store: Git) -> None:
    one = written(store, b"one")
    process = reader_of(store)._process
    process.send_signal(signal.SIGSTOP)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(store.read_blobs([one])))
    thread.start()
    while not reader_of(store)._lock.locked():
        pass
    child = os.fork()
    if child == 0:
        os._exit(0 if store.read_blobs([one]) == {one: b"one"} else 2)
    code = code_of(child)
    process.send_signal(signal.SIGCONT)
    thread.join()
    assert code == 0
    assert found == [{one: b"one"}]
    assert reader_of(store)._process is process


def test_a_fork_while_a_thread_starts_one(store: Git) -> None:
    one, held, go_on = written(store, b"one"), threading.Event(), threading.Event()

    def hold() -> None:
        with readers._changing:
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if store.read_blobs([one]) == {one: b"one"} else 2)
    code = code_of(child)
    go_on.set()
    thread.join()
    assert code == 0


def test_a_scratch_that_is_collected_while_another_is_started() -> None:
    """Garbage is collected at any point: also where readers are changed."""
    code = """
from patchq.git import _reader as readers
from patchq.git.repository import scratch
with scratch() as git, readers._changing:
    readers.forget(git.folder)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_one_that_is_closed_while_a_thread_waits_for_an_answer(store: Git) -> None:
    one, found = written(store, b"one"), readers.ObjectReader(store)
    found._process.send_signal(signal.SIGSTOP)
    said: list[object] = []
    thread = threading.Thread(target=lambda: said.append(found.contents([one])))
    thread.start()
    while not found._lock.locked():
        pass
    found.close()
    thread.join()
    assert said == [None]
    assert found._process.returncode == -signal.SIGKILL
    assert found._process.stdin
    assert found._process.stdin.closed


def test_another_git_is_another_reader(store: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = written(store, b"one")
    assert store.read_blobs([one])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with pytest.raises(CommandError, match="ended with 9"):
        store.read_blobs([one])


def test_few_stay_and_none_of_a_scratch(store: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_MOST", 3)
    one, processes = written(store, b"one"), []
    for n in range(6):
        repository = bare_repository(tmp_path / str(n), store)
        assert repository.read_blobs([one])
        processes.append(reader_of(repository)._process)
    assert [p.returncode for p in processes] == [-signal.SIGKILL] * 3 + [None] * 3
    folders = [folder for folder, *_ in readers._staying]
    assert folders == [tmp_path / str(n) for n in (3, 4, 5)]
    assert Git(tmp_path / "3").read_blobs([one])
    assert bare_repository(tmp_path / "6", store).read_blobs([one])
    folders = [folder for folder, *_ in readers._staying]
    assert folders == [tmp_path / str(n) for n in (5, 3, 6)]  # the one that wasn't asked for longest has ended
    readers.forget(tmp_path / "5")
    folders = [folder for folder, *_ in readers._staying]
    assert folders == [tmp_path / str(n) for n in (3, 6)]
    assert processes[5].returncode == -signal.SIGKILL
    with scratch(store) as git_:
        assert git_.read_blobs([one])
        process = reader_of(git_)._process
        assert process.poll() is None
    assert git_.folder not in [folder for folder, *_ in readers._staying]
    assert process.returncode == -signal.SIGKILL


@pytest.mark.skipif(not NEWER, reason="PATCHQ_NEWER_GIT names no git 2.50 or newer: .ci/newer-git FOLDER installs one")
def test_a_newer_git_merges_all_in_one_process(store: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = []
    for text in (b"1\n2\n3\n", b"0\n2\n3\n", b"1\n2\n4\n", b"5\n2\n3\n"):
        sides.append(store.tree_of([commit_files(tmp_path / "r", {"f": text})])[0])
    base, ours, clean, conflicting = sides
    before = [store.merge_tree(base, ours, theirs) for theirs in (clean, conflicting)]
    monkeypatch.setenv("PATH", f"{Path(NEWER).parent}:{os.environ['PATH']}")
    store.merge_tree(base, ours, clean)  # asks for the version
    commands = started(monkeypatch)
    after = [store.merge_tree(base, ours, theirs) for theirs in (clean, conflicting)]
    assert commands == []
    assert after[0] == before[0]
    assert after[1].stages
    assert after[1].stages == before[1].stages
    monkeypatch.setattr(readers, "_MOST_MERGES", 1)
    assert [store.merge_tree(base, ours, clean) for _ in range(3)] == [before[0]] * 3  # a new process for each
    readers.forget(store.folder)


def test_it_ends_with_a_patchq_that_is_killed(store: Git) -> None:
    one = written(store, b"one")
    code = f"""
import os, sys
from pathlib import Path
from patchq.git import _reader as readers
from patchq.git.repository import Git
store = Git(Path({str(store.folder)!r}))
store.read_blobs([{one!r}])
print(next(iter(readers._staying.values()))._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    ended = threading.Event()
    for _ in range(600):
        if not Path(f"/proc/{int(said)}/cmdline").exists() or not Path(f"/proc/{int(said)}/cmdline").read_bytes():
            break
        ended.wait(0.05)
    else:
        raise AssertionError("it still runs")
