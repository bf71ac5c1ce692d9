"""A project's files in somebody else's hands: links that leave it and pipes are refused, by every verb that reads them.

What patchq reads of a project leaves the machine: in mails, branches, bundles and pages. The secret is to be in none.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import Patchq, git
from patchq.errors import FormatError
from patchq.git import person, worktree
from patchq.proofs.cluster import pack
from patchq.sources.rules import read_rules, read_upstream_test

SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
#: Seconds after which a verb is thought to wait for ever.
HANGS = 60


def run(patchq: Patchq, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a verb in a process of its own, which is killed if it waits."""
    argv = [sys.executable, "-m", "patchq", "--project", str(patchq.root), *args]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(argv, cwd=patchq.root.parent, capture_output=True, text=True, timeout=HANGS, env=env)


def bind_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)
    os.chdir(here)


def put(path: Path, what: str, secret: Path) -> None:
    """Put a link out of the project, a pipe or a socket where a file belongs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if what == "link":
        path.symlink_to(secret)
    elif what == "folder link":
        if path.parent.exists():
            for other in path.parent.iterdir():
                other.unlink()
            path.parent.rmdir()
        path.parent.symlink_to(secret.parent)
    elif what == "pipe":
        os.mkfifo(path)
    else:
        bind_socket(path)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "ssh" / "id_ed25519"
    path.parent.mkdir()
    path.write_text(SECRET + "\n")
    return path


@pytest.fixture
def full(stack: Patchq) -> Patchq:
    """The three patches with a proof, a test for upstream, a stand-in, a report's text, kernels and measurements."""
    for name, text in {
        "tests/stacks/up/test_first.py": "def test_it():\n    assert True\n",
        "tests/stacks/up/conftest.py": "",
        "patches/up/upstream-tests/tests/test_a.py": "def test_a():\n    pass\n",
        "patches/up/contribute/.github/PULL_REQUEST_TEMPLATE.md": "## Purpose\n",
        "patches/up/reports/first.toml": 'title = "It breaks"\n',
        "patches/up/rr-cache/0123456789abcdef0123456789abcdef01234567/preimage": "x\n",
        "patches/up/ledger.jsonl": "",
        "kernels/up.toml": "version = 1\n",
        "measurements/ledger.jsonl": "",
        "measurements/targets.toml": "",
    }.items():
        path = stack.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    patch = stack.patch_file("first")
    trailers = b"Proof: tests/stacks/up/test_first.py\nUpstream-Test: tests/test_a.py\n"
    patch.write_bytes(patch.read_bytes().replace(b"Signed-off-by:", trailers + b"Signed-off-by:", 1))
    stack.ok("apply")
    return stack


#: By file: verbs that read it. ``BUNDLE`` and ``PAGE`` are places for what they write.
READ_BY: dict[str, tuple[str, ...]] = {
    "upstream.lock": ("status", "list", "check", "bundle BUNDLE", "report --html PAGE", "apply", "doctor"),
    "patches/up/v1/series": ("status", "list", "check", "bundle BUNDLE", "report --html PAGE", "apply", "export up"),
    "patches/up/v1/second.patch": (
        "status", "list", "show second", "check", "bundle BUNDLE", "report --html PAGE", "apply", "export up", "deps",
        "drop third", "build",
    ),
    "patches/up/ledger.jsonl": ("ledger", "report --html PAGE", "bundle BUNDLE", "drop third --why x", "forecast up"),
    "patches/up/rr-cache/0123456789abcdef0123456789abcdef01234567/preimage": ("bundle BUNDLE",),
    "patches/up/upstream-tests/tests/test_a.py": ("pr first --no-proof --no-gates", "check", "bundle BUNDLE"),
    "patches/up/contribute/.github/PULL_REQUEST_TEMPLATE.md": (
        "pr first --no-proof --no-gates", "issue first --no-run", "bundle BUNDLE",
    ),
    "patches/up/reports/first.toml": ("issue first --no-run", "bundle BUNDLE"),
    "tests/stacks/up/test_first.py": ("check", "bundle BUNDLE", "test --prove"),
    "tests/stacks/up/conftest.py": ("bundle BUNDLE", "test --prove"),
    "kernels/up.toml": ("bundle BUNDLE", "build up --kernels sm_90a"),
    "measurements/ledger.jsonl": ("bench show", "report --html PAGE"),
    "measurements/targets.toml": ("bench show", "report --html PAGE"),
}  # fmt: skip


@pytest.mark.parametrize("what", ["link", "pipe"])
@pytest.mark.parametrize(("name", "verb"), [(name, verb) for name, verbs in READ_BY.items() for verb in verbs])
def test_no_verb_follows_a_link_or_waits_for_a_pipe(
    full: Patchq, tmp_path: Path, secret: Path, name: str, verb: str, what: str
) -> None:
    put(full.root / name, what, secret)
    written = tmp_path / "written"
    written.mkdir()
    places = {"BUNDLE": str(written / "b"), "PAGE": str(written / "page.html")}
    args = [places.get(word, word) for word in verb.split()]
    if what == "link":  # in process: nothing can wait
        found = full.run(*args)
        code, said = found.exit_code, found.output
    else:
        done = run(full, *args)
        code, said = done.returncode, done.stdout + done.stderr
    assert code in ((0, 1) if verb == "list" else (1, 2)), said
    assert "Traceback" not in said
    assert ("is a symbolic link" if what == "link" else "is not a file") in said
    assert SECRET not in said
    files = [p for folder in (written, full.layout.private / "pr") for p in folder.rglob("*") if p.is_file()]
    assert not [p for p in files if SECRET.encode() in p.read_bytes()]


@pytest.mark.parametrize("what", ["link", "folder link", "pipe", "socket"])
@pytest.mark.parametrize(
    "name",
    [
        "patches/up/upstream-tests/tests/test_a.py", "patches/up/contribute/.github/PULL_REQUEST_TEMPLATE.md",
        "tests/stacks/up/test_first.py",
    ],
)  # fmt: skip
def test_what_is_sent_is_refused_first(full: Patchq, secret: Path, name: str, what: str) -> None:
    """The functions that hand files on: to a mail and a branch, to a pull request's text, to workers."""
    (secret.parent / Path(name).name).write_text(SECRET)
    put(full.root / name, what, secret)
    layout, project = full.layout, full.project
    commit = project.store.refs("refs/heads/up")["refs/heads/up"]
    calls: list[Callable[[], object]] = [lambda: pack(project)]
    if "upstream-tests" in name:
        calls.append(lambda: read_upstream_test(layout, "up", "tests/test_a.py"))
    if "contribute" in name:
        calls.append(lambda: read_rules(layout, project.store, "up", commit))
    for call in calls:
        with pytest.raises(FormatError):
            call()


def test_a_link_inside_the_project_is_refused_too(full: Patchq, tmp_path: Path) -> None:
    """It could lead to .git/config, where a token may be."""
    git(full.root, "init", "-q")
    path = full.root / "patches" / "up" / "upstream-tests" / "tests" / "test_a.py"
    path.unlink()
    path.symlink_to("../../../../.git/config")
    assert "is a symbolic link" in full.fails(1, "bundle", str(tmp_path / "b"))
    assert "is a symbolic link" in full.fails(1, "pr", "first", "--no-proof", "--no-gates")


def test_init_takes_nothing_in_and_writes_nothing_out(tmp_path: Path, secret: Path) -> None:
    """Nor does ``init`` in a folder that somebody else gave."""
    new = Patchq(tmp_path / "new")
    new.root.mkdir()
    (new.root / ".gitignore").symlink_to(secret)
    done = run(new, "init", str(new.root))
    assert done.returncode == 1
    assert "is a symbolic link" in done.stderr
    (new.root / ".gitignore").unlink()
    (new.root / "upstream.lock").unlink(missing_ok=True)
    (tmp_path / "outside").mkdir()
    for path in sorted((new.root / ".github").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (new.root / ".github").rmdir()
    (new.root / ".github").symlink_to(tmp_path / "outside")
    assert "is a symbolic link" in run(new, "init", str(new.root)).stderr
    assert not list((tmp_path / "outside").iterdir())


#: Runs verbs in one process, and prints each file of the project that is opened by its path to be read. The reader opens by
#: folder and name, so none of its files is among them.
WATCH = """
import os, sys
from patchq.cli import cli
root, *verbs = sys.argv[1:]
passed_over = tuple(os.path.join(root, name) for name in (".patchq", ".git", "dist"))

def look(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and args[2] & os.O_ACCMODE == os.O_RDONLY:
        path = os.path.abspath(os.fsdecode(args[0]))
        if path.startswith(root + "/") and not path.startswith(passed_over) and not os.path.isdir(path):
            print("OPENED", path, flush=True)

sys.addaudithook(look)
for verb in verbs:
    try:
        cli.main(["--project", root, *verb.split()], standalone_mode=False)
    except SystemExit:
        pass
"""


def test_no_other_module_opens_a_projects_file(full: Patchq, tmp_path: Path) -> None:
    """Whoever is called, libraries too: what is looked at is what Python itself opens."""
    git(full.root, "init", "-q")
    git(full.root, "add", "-A")
    git(full.root, "commit", "-q", "-m", "all")
    verbs = (
        "status", "list", "show first", "check", "deps", "ledger", "bench show", "export up", "diff HEAD", "doctor",
        f"bundle {tmp_path}/b", f"report --html {tmp_path}/p.html", "issue first --no-run",
        "pr first --no-proof --no-gates", "reword first --trailer Topic:other", "drop third --why x", "undo", "apply",
        "forecast up --onto v1", "compose", "fetch", "check --fix", "move second --first", "use default",
    )  # fmt: skip
    argv = [sys.executable, "-c", WATCH, str(full.root), *verbs]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "OPENED" not in done.stdout, [line for line in done.stdout.splitlines() if "OPENED" in line]
    assert "3 of 3 applied" in done.stdout


# Private state, and git's own files


@pytest.mark.parametrize(
    "name",
    [
        ".patchq/state/up.json", ".patchq/lock", ".patchq/store.git/HEAD", ".patchq/store.git/config",
        ".patchq/store.git/packed-refs", ".patchq/store.git/refs/heads/x", ".patchq/store.git/worktrees/up/index",
        ".patchq/store.git/objects/info/alternates", ".patchq/store.git/objects/ab/" + "c" * 38,
        ".patchq/store.git/objects/pack/pack-x.idx", ".patchq/trees/up/.git", ".git/index", "dist/default/x.whl",
    ],
)  # fmt: skip
def test_a_pipe_in_what_git_and_patchq_keep(stack: Patchq, name: str) -> None:
    git(stack.root, "init", "-q")
    path = stack.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    done = run(stack, "status")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{name} is not a file" in done.stderr


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "pkg/.gitattributes"])
def test_a_pipe_that_git_waits_for_in_a_worktree(stack: Patchq, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(stack.tree() / name)
    source = stack.tree() / "pkg" / "mod.py"
    source.write_text(source.read_text().replace("1", "2"))  # as long as before, so that git reads it
    monkeypatch.setattr(worktree, "PATIENCE_S", 1.0)
    assert f"{name} is not a file" in stack.fails(1, "status")


#: What reads the project's own repository.
OF_THE_REPOSITORY: dict[str, Callable[[Path], object]] = {
    "tracked": lambda root: person.tracked(root, "patches"),
    "untracked": lambda root: person.untracked(root, "patches"),
    "files_at": lambda root: person.files_at(root, "HEAD", "patches"),
    "base_of_conflict": lambda root: person.base_of_conflict(root, "patches/up/v1/series"),
    "changed": lambda root: person.changed(root, "upstream.lock", "patches"),
    "branch": lambda root: person.branch(root),
    "commit": lambda root: person.commit(root, ["upstream.lock", "patches"], "m", person.Ident("A", "a@x", 0, "+0000")),
    "author": lambda root: person.author(root),
    "find_remote": lambda root: person.find_remote(root, "origin"),
}


@pytest.mark.parametrize(
    "name", [".git/config", ".git/HEAD", ".git/index", ".git/refs/heads/main", ".git/included", ".gitignore"]
)
def test_a_pipe_in_the_projects_repository(stack: Patchq, name: str) -> None:
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "all")
    git(stack.root, "config", "include.path", "included")
    path = stack.root / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    script = (
        "from pathlib import Path; from patchq.errors import PatchqError\n"
        "import test_project_files as t\n"
        "for name, call in t.OF_THE_REPOSITORY.items():\n"
        f"    try: call(Path({str(stack.root)!r}))\n"
        "    except PatchqError as error: print(name, error.message)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=HANGS, env=env)
    assert done.returncode == 0, done.stderr
    told = {line.split()[0] for line in done.stdout.splitlines() if f"{name} is not a file" in line}
    not_read = {".git/refs/heads/main": {"author"}, ".gitignore": OF_THE_REPOSITORY.keys() - {"changed", "commit"}}
    assert told == OF_THE_REPOSITORY.keys() - not_read.get(name, set()), done.stdout


def test_nothing_hangs_on_a_folder_of_pipes(stack: Patchq) -> None:
    """Each of the verbs that need no argument, with a pipe beside every patch."""
    os.mkfifo(stack.root / "patches" / "up" / "v1" / "left.patch")
    for verb in ("status", "list", "check", "deps", "report", "export up"):
        assert run(stack, *verb.split()).returncode in (0, 1), verb
