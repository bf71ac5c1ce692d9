"""The project's own repository, and its remotes, through GitPython: what is right there, and all that may be wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from kit import Patchq, commit_files, git
from patchq.errors import PatchqError, SourceError, UserError
from patchq.git import person
from patchq.git.repository import Git, init_store
from patchq.names import CommitId


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository with two commits; the project is its folder ``inside``."""
    folder = tmp_path / "own"
    folder.mkdir()
    git(folder, "init", "-q")
    commit_files(folder, {"inside/upstream.lock": b"old\n", "inside/patches/a": b"\xff\n\n", "other": b"o\n"}, "one")
    (folder / "inside" / "patches" / "link").symlink_to("../../other")
    commit_files(folder, {"inside/upstream.lock": b"new", ".gitattributes": b"inside/patches export-ignore\n"}, "two")
    return folder / "inside"


def test_files_of_old(own: Path) -> None:
    lock, patch = PurePosixPath("upstream.lock"), PurePosixPath("patches/a")
    assert person.files_at(own, "HEAD~1", "upstream.lock", "patches") == {lock: b"old\n", patch: b"\xff\n\n"}
    assert person.files_at(own, "HEAD", "upstream.lock", "patches") == {lock: b"new", patch: b"\xff\n\n"}
    for revision in ("nowhere", "--output=x", "HEAD~9", ""):
        with pytest.raises(person.NoSuchRevision):
            person.files_at(own, revision, "patches")


def test_ids_of_the_other_length(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    commit_files(tmp_path / "long", {"upstream.lock": b"x\n"})
    assert person.files_at(tmp_path / "long", "HEAD", "upstream.lock") == {PurePosixPath("upstream.lock"): b"x\n"}


def test_what_git_tracks(own: Path) -> None:
    (own / "patches" / "new").write_text("n\n")
    assert person.tracked(own, "patches", "upstream.lock") == ["patches/a", "patches/link", "upstream.lock"]
    assert person.untracked(own, "patches") == ["patches/new"]
    assert person.tracked(own, "nowhere") == []


def test_who(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / ".gitconfig"
    monkeypatch.delenv("GIT_AUTHOR_DATE")

    def who(folder: Path = own, *given: str) -> str:
        found = person.author(folder, *given)
        return found and f"{found.name} <{found.email}>"  # type: ignore[return-value]

    assert who() == who(tmp_path) == "Test Person <test@example.org>"
    git(own, "config", "user.email", "here@example.org")
    assert who() == "Test Person <here@example.org>"
    assert who(own, "Ünal Öz", "u@example.org") == "Ünal Öz <u@example.org>"
    monkeypatch.setenv("GIT_AUTHOR_NAME", "From The Environment")
    assert who() == "From The Environment <here@example.org>"
    home.write_text("[user]\n\tuseConfigOnly = true\n")
    assert who(tmp_path) is None


def test_a_hooks_environment_is_not_taken_and_stays(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git commit` runs hooks with GIT_DIR and GIT_INDEX_FILE set."""
    git(tmp_path, "init", "-q", "other")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / "index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path / "other" / ".git" / "objects"))
    before = dict(os.environ)
    assert person.files_at(own, "HEAD", "upstream.lock")
    assert person.tracked(own, "patches") == ["patches/a", "patches/link"]
    with pytest.raises(UserError):
        person.files_at(own, "nowhere", "patches")
    assert dict(os.environ) == before


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def test_nothing_stays_open(own: Path) -> None:
    before, files = children(), os.listdir("/proc/self/fd")
    for _ in range(5):
        person.files_at(own, "HEAD", "patches")
        person.tracked(own, "patches")
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) <= len(files)


def broken(own: Path, how: str) -> Path:
    folder = own.parent / ".git"
    if how == "head":
        (folder / "HEAD").write_text("nothing\n")
    elif how == "config":
        (folder / "config").write_text("[core\n")
    elif how == "bytes":
        (folder / "config").write_bytes(b"\xff\xfe\0[core]\n\tbare = \xff\n")
    elif how == "objects":
        for path in (folder / "objects").glob("??/*"):
            path.write_bytes(b"rot")
    elif how == "blob":
        blob = git(own, "rev-parse", "HEAD:inside/patches/a")
        (folder / "objects" / blob[:2] / blob[2:]).unlink()
    elif how == "index":
        (folder / "index").write_bytes(b"DIRCrot")
    elif how == "gitfile":
        folder.rename(own.parent / "elsewhere")
        folder.write_text("gitdir: nowhere\n")
    elif how == "empty":
        folder.rename(own.parent / "elsewhere")
        folder.mkdir()
    elif how == "format":
        git(own, "config", "core.repositoryFormatVersion", "99")
    elif how == "owner":
        for path in (own.parent, folder):
            os.chown(path, 12345, 12345)
    return own


@pytest.mark.parametrize(
    "how", ["head", "config", "bytes", "objects", "blob", "index", "gitfile", "empty", "format", "owner"]
)
def test_a_broken_repository_is_told_in_words(own: Path, how: str) -> None:
    """Each in patchq's own words, or not in the way."""
    if how == "owner" and os.geteuid():
        pytest.skip("only root can give a folder away")
    broken(own, how)
    said: list[PatchqError] = []
    for call in (lambda: person.files_at(own, "HEAD", "patches"), lambda: person.tracked(own, "patches")):
        try:
            call()
        except PatchqError as error:
            said.append(error)
    assert said, how
    assert all(e.hint for e in said)
    assert any("can't be used" in e.message or "is not a revision" in e.message for e in said), said


def test_a_persons_locks_are_not_in_the_way(own: Path) -> None:
    """Somebody's `git commit` with its editor open: all that is read here is read still."""
    for name in ("index.lock", "HEAD.lock", "config.lock"):
        (own.parent / ".git" / name).touch()
    assert person.files_at(own, "HEAD", "patches")
    assert person.tracked(own, "patches")
    assert person.author(own)
    assert all((own.parent / ".git" / name).exists() for name in ("index.lock", "HEAD.lock", "config.lock"))


def test_no_repository_and_no_git(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is not in a git repository"):
        person.tracked(tmp_path, "patches")
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match="git is not installed"):
        person.tracked(own, "patches")
    script = f"from pathlib import Path; from patchq.git import person; person.author(Path({str(own)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "UserError: git can't be used" in done.stderr


def in_a_namespace(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    """A shell script with mounts of its own, which nobody else sees and which end with it."""
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-euc", script, "script", *map(str, args)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


# Pushing


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "fork.git")
    return tmp_path / "fork.git"


def to_push(tmp_path: Path) -> tuple[Git, CommitId]:
    store = init_store(tmp_path / "store.git")
    tree = git(store.folder, "hash-object", "-w", "-t", "tree", "--stdin", data=b"")
    return store, CommitId(git(store.folder, "commit-tree", "-m", "c", tree))


def push(tmp_path: Path, folder: Path, remote: str, expected: str | None = None) -> CommitId:
    store, commit = to_push(tmp_path)
    person.push(store, folder, person.find_remote(folder, remote), commit, "b", expected=expected)
    return commit


def test_an_address_a_path_and_a_name(own: Path, tmp_path: Path, fork: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = push(tmp_path, own, f"file://{fork}")
    assert git(fork, "rev-parse", "b") == commit
    monkeypatch.chdir(tmp_path)
    push(tmp_path, own, "fork.git", commit)
    git(own, "remote", "add", "mine", "example:someone/up.git")
    git(own, "config", f"url.{fork}.pushInsteadOf", "example:someone/up.git")
    git(own, "config", "remote.mine.mirror", "false")
    assert person.find_remote(own, "mine") == person.Remote("mine", str(fork))
    push(tmp_path, own, "mine", commit)
    theirs = git(fork, "commit-tree", "-p", "b", "-m", "theirs", "b^{tree}")
    git(fork, "update-ref", "refs/heads/b", theirs)
    with pytest.raises(SourceError, match=r"mine .*refused b"):
        push(tmp_path, own, "mine", commit)
    assert git(fork, "rev-parse", "b") == theirs
    git(fork, "update-ref", "-d", "refs/heads/b")
    assert not git(own, "for-each-ref", "refs/remotes")
    push(tmp_path, tmp_path, str(fork))


def test_a_persons_hook_is_heard(own: Path, tmp_path: Path, fork: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-push").write_text("#!/bin/sh\necho 'not on a Friday' >&2\nexit 1\n")
    (hooks / "pre-push").chmod(0o755)
    git(tmp_path, "config", "--global", "core.hooksPath", str(hooks))
    with pytest.raises(SourceError, match="not on a Friday"):
        push(tmp_path, own, str(fork))
    assert not git(fork, "for-each-ref")


def test_of_the_projects_configuration_addresses_count_and_headers(own: Path, tmp_path: Path, fork: Path) -> None:
    """As `actions/checkout` leaves a token for what is run behind it, in a file that is included."""
    (tmp_path / "token").write_text('[http "http://127.0.0.1:1/"]\n\textraheader = "AUTHORIZATION: basic \\"x\\""\n')
    git(own, "config", "include.path", str(tmp_path / "token"))
    git(own, "config", "remote.a.b.url", str(fork))
    git(own, "config", "core.sshCommand", "false")
    with person._reaching(own, person._IDENTITY) as ask:
        code, out, _ = ask("config", "--list")
    assert not code
    seen = out.decode().splitlines()
    assert 'http.http://127.0.0.1:1/.extraheader=AUTHORIZATION: basic "x"' in seen
    assert not [line for line in seen if line.startswith(("core.ssh", "include", "remote"))]
    commit = push(tmp_path, own, "a.b")
    assert git(fork, "rev-parse", "b") == commit


def test_a_commit_takes_files_as_they_are(own: Path) -> None:
    """New, changed and removed ones, whatever attributes say; the index and the branch stay."""
    (own / "patches" / "link").unlink()
    (own / ".gitattributes").write_text("* text eol=crlf\n")
    (own / "patches" / "new").write_bytes(b"a\r\nb\n")
    (own / "patches" / "a").unlink()
    before = (own.parent / ".git" / "index").read_bytes(), git(own, "rev-parse", "HEAD")
    who = person.author(own)
    assert who
    assert person.changed(own, "upstream.lock", "patches") == ["patches/a", "patches/new"]
    found = person.commit(own, ["upstream.lock", "patches"], "Carry\n\nBody", who)
    assert person.files_at(own, found, "patches") == {PurePosixPath("patches/new"): b"a\r\nb\n"}
    assert git(own, "log", "-1", "--format=%an <%ae>%n%B", found).split("\n")[0] == f"{who.name} <{who.email}>"
    assert ((own.parent / ".git" / "index").read_bytes(), git(own, "rev-parse", "HEAD")) == before


def test_the_stores_configuration_does_not_count(own: Path, tmp_path: Path, fork: Path) -> None:
    store, commit = to_push(tmp_path)
    hooks = store.folder / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "pre-push").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "pre-push").chmod(0o755)
    git(hooks.parent, "config", "core.fsmonitor", f"touch {tmp_path}/ran")
    git(hooks.parent, "config", "core.hooksPath", str(hooks))
    git(hooks.parent, "config", f"url.{tmp_path}/elsewhere.pushInsteadOf", str(fork))
    person.push(store, own, person.find_remote(own, str(fork)), commit, "b", expected=None)
    assert git(fork, "rev-parse", "b") == commit
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("remote", ["ext::sh -c 'touch ran'", "/nowhere/up.git", "-x", "nobody@127.0.0.1:1/x.git"])
def test_what_is_no_remote(own: Path, tmp_path: Path, remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="refused b"):
        push(tmp_path, own, remote)
    assert not (tmp_path / "ran").exists()


FULL = """
fork=$1 script=$2 python=$3
mount -t tmpfs -o size=256k none "$fork"
git init -q --bare "$fork"
dd if=/dev/zero of="$fork/filler" bs=1024 status=none 2>/dev/null || true
"$python" "$script"
"""
PUSH = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from patchq.errors import SourceError
from test_person import push
try:
    push(Path({here!r}), Path({own!r}), {fork!r})
except SourceError as error:
    print("told:", error.message)
"""


def test_a_remote_on_a_full_disk(own: Path, tmp_path: Path, fork: Path) -> None:
    script = tmp_path / "push.py"
    script.write_text(PUSH.format(path=[p for p in sys.path if p], here=str(tmp_path), own=str(own), fork=str(fork)))
    done = in_a_namespace(FULL, fork, script, sys.executable)
    assert "told:" in done.stdout, done.stderr
    assert "refused b" in done.stdout
    assert "No space left on device" in done.stdout


# The verbs


def test_the_verbs_say_it(stack: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no nvcc, which takes long
    assert "not in a git repository" in stack.run("doctor").output
    git(stack.root, "init", "-q")
    assert "a clone would lack" in stack.run("doctor").output
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "all")
    assert "git has the lock and the patches" in stack.run("doctor").output
    git(stack.root, "add", "-f", ".patchq/state")
    assert "git rm -r --cached .patchq" in stack.fails(1, "doctor")
    (stack.root / ".git" / "index").write_bytes(b"DIRCrot")
    assert "can't be used" in stack.fails(1, "doctor")
    (stack.root / ".git" / "objects").rename(stack.root / "objects")
    assert "hint:" in stack.fails(1, "diff", "HEAD")


@pytest.mark.parametrize(
    "args", [("status",), ("apply",), ("check",), ("list",), ("drop", "first")], ids=lambda a: a[0]
)
def test_gitpython_is_imported_only_when_used(stack: Patchq, args: tuple[str, ...]) -> None:
    script = (
        "import sys; from patchq.cli import cli;"
        f"cli.main(['--project', {str(stack.root)!r}, *{args!r}], standalone_mode=False); print('git' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
