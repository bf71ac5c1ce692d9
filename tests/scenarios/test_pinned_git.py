"""Every git that patchq runs is told what it may read: nobody's configuration has a say, and nothing else runs."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import patchq as package
from kit import Patchq, commit_files, edit, git, numbered

#: A mail whose author is not ASCII, with scissors, in another charset, and CRLF in what it adds.
MAIL = (
    b"From: =?iso-8859-1?q?Ren=E9_M=FCller?= <r@example.org>\n"
    b"Date: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: [PATCH] Gr\xfc\xdfe\n"
    b"MIME-Version: 1.0\nContent-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: 8bit\n\n"
    b"Before the scissors, d\xe9j\xe0 vu.\n\n-- >8 --\n\nAfter them.\n---\n"
    b"diff --git a/mail.txt b/mail.txt\nnew file mode 100644\n--- /dev/null\n+++ b/mail.txt\n@@ -0,0 +1 @@\n+mail\n"
)


def work(patchq: Patchq, upstream: Path, tmp_path: Path) -> dict[str, bytes]:
    """Most of what patchq does; returns all of the stacks, the trees, and what was said."""
    said = []
    patchq.ok("pin", "up", "--url", str(upstream), "--ref", "v1")
    said.append(patchq.ok("apply"))
    for name, file, line in (("first", "a.txt", 5), ("second", "a.txt", 30), ("third", "b.txt", 10)):
        edit(patchq.tree() / file, line)
        (patchq.tree() / f"{name}.new").write_bytes(b"$Id$ new\n\tline \r\n")
        patchq.ok("new", "up", name, "-m", f"Change {file} at {line}\n\nBecause.", "--topic", "test", "-s")
    (tmp_path / "mail.patch").write_bytes(MAIL)
    patchq.ok("import", "up", str(tmp_path / "mail.patch"))
    patchq.ok("import", "up", str(upstream), "--range", "v1..side")
    git(
        patchq.tree(),
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "mine\n\nbody",
        env={"GIT_CONFIG_GLOBAL": "/dev/null", **ME},
    )
    patchq.run("export", "up")
    patchq.ok("drop", "second")
    patchq.ok("undo")
    patchq.ok("move", "third", "--first")
    said += [patchq.run(v).output for v in ("status", "list", "check", "deps")]
    said.append(patchq.ok("apply", "--to", "third"))
    said.append(patchq.ok("apply"))
    said.append(patchq.ok("forecast", "up", "--onto", "v2"))
    said.append(patchq.run("rebase", "up", "--onto", "v2", "--no-proof").output)
    said.append(patchq.ok("diff", "up@v1", "up@v2"))
    said.append(patchq.ok("fetch", "--all"))
    patchq.ok("bundle", str(tmp_path / "bundle"))
    (tmp_path / "bundle").unlink()
    found = {f"said {n}": text.replace(str(tmp_path), "").encode() for n, text in enumerate(said)}
    found["trees"] = git(patchq.layout.store, "for-each-ref", "--format=%(refname) %(objectname)").encode()
    found |= patchq.snapshot()
    found.pop("patches/up/ledger.jsonl")  # it has times
    return found


ME = {"GIT_AUTHOR_NAME": "M", "GIT_AUTHOR_EMAIL": "m@x", "GIT_COMMITTER_NAME": "M", "GIT_COMMITTER_EMAIL": "m@x"}


@pytest.fixture
def wide(upstream: Path) -> Path:
    """The upstream with attributes, a branch to import from and a newer release."""
    commit_files(upstream, {".gitattributes": b"*.x filter=evil diff=evil merge=evil\n", "f.x": b"x\n"}, "attributes")
    git(upstream, "tag", "-f", "v1")
    git(upstream, "checkout", "-q", "-b", "side")
    commit_files(upstream, {"side.x": b"side\n"}, "Side\n\nWhy.")
    git(upstream, "checkout", "-q", "main")
    commit_files(upstream, {"b.txt": b"top\n" + numbered(40)}, "later")
    git(upstream, "tag", "v2")
    return upstream


def hostile(tmp_path: Path, home: Path, xdg: Path) -> Path:
    """A person's configuration in which everything that can be said is said wrong; returns what appears if any of it runs."""
    ran = tmp_path / "ran"
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\necho "$0 $@" >> {ran}\nexit 1\n')
    tool.chmod(0o755)
    hooks = tmp_path / "their-hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-index-change", "applypatch-msg", "pre-commit",
                 "prepare-commit-msg", "commit-msg", "pre-auto-gc", "post-rewrite", "fsmonitor-watchman"):  # fmt: skip
        (hooks / name).symlink_to(tool)
    config = f"""[user]
    name = Test Person
    email = test@example.org
[core]
    hooksPath = {hooks}
    fsmonitor = {tool}
    attributesFile = {xdg}/git/attributes
    excludesFile = {xdg}/git/ignore
    autocrlf = true
    eol = crlf
    askPass = {tool}
    editor = {tool}
    pager = {tool}
    quotePath = false
    sshCommand = {tool}
[i18n]
    commitEncoding = iso-8859-1
    logOutputEncoding = iso-8859-1
[mailinfo]
    scissors = true
[log]
    showSignature = true
    mailmap = true
[gpg]
    program = {tool}
[diff]
    external = {tool}
    noprefix = true
    algorithm = patience
    renames = copies
    context = 7
    orderFile = {tool}
[diff "evil"]
    textconv = {tool}
    command = {tool}
[merge "evil"]
    driver = {tool}
[filter "evil"]
    clean = {tool}
    smudge = {tool}
    required = true
[merge]
    conflictStyle = diff3
    renames = false
[apply]
    whitespace = fix
[format]
    signature = evil
    subjectPrefix = EVIL
    attach = yes
[credential]
    helper = "!{tool}"
[alias]
    fetch = "!{tool}"
[trailer]
    separators = "%"
[gc]
    auto = 1
[fetch]
    fsckObjects = true
[transfer]
    fsckObjects = true
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[feature]
    manyFiles = true
    experimental = true
[init]
    templateDir = {tmp_path}/their-template
    defaultBranch = evil
[protocol]
    allow = always
"""
    (home / ".gitconfig").write_text(config)
    (xdg / "git").mkdir(parents=True)
    (xdg / "git" / "config").write_text(config)
    (xdg / "git" / "attributes").write_text("* text eol=crlf ident filter=evil diff=evil merge=evil\n")
    (xdg / "git" / "ignore").write_text("*.new\n*.txt\n")
    (tmp_path / "their-template" / "hooks").mkdir(parents=True)
    (tmp_path / "their-template" / "hooks" / "reference-transaction").symlink_to(tool)
    return ran


def test_a_persons_configuration_changes_nothing(
    empty: Patchq, wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "saved"
    shutil.copytree(empty.root, saved)
    want = work(empty, wide, tmp_path)
    shutil.rmtree(empty.root)
    saved.rename(empty.root)
    home, xdg = Path.home(), tmp_path / "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(xdg))
    before = (home / ".gitconfig").read_text()
    ran = hostile(tmp_path, home, xdg)
    got = work(empty, wide, tmp_path)
    (home / ".gitconfig").write_text(before)
    assert not ran.exists(), ran.read_text()
    assert got.keys() == want.keys()
    assert {k: v for k, v in got.items() if v != want[k]} == {}
    mail = empty.patch_file("mail").read_bytes()
    assert "René Müller".encode() in mail or b"=?UTF-8?" in mail
    assert "déjà vu".encode() in mail


def test_how_hosts_are_reached_is_the_persons(empty: Patchq, upstream: Path, tmp_path: Path) -> None:
    """A mirror, as a site without a way to the host has one; hooks of the same configuration stay unasked."""
    hooks = tmp_path / "h"
    hooks.mkdir()
    (hooks / "reference-transaction").symlink_to(evil(tmp_path))
    git(tmp_path, "config", "--global", f"url.{upstream}.insteadOf", "https://host.invalid/up.git")
    git(tmp_path, "config", "--global", "core.hooksPath", str(hooks))
    empty.ok("pin", "up", "--url", "https://host.invalid/up.git", "--ref", "v1")
    empty.ok("apply")
    assert (empty.tree() / "a.txt").exists()
    assert not (tmp_path / "ran").exists()


#: Runs the real git, and says what it was given.
LOGGER = """#!/usr/bin/env python3
import json, os, sys
with open({log!r}, "a") as out:
    own = {{k: v for k, v in os.environ.items() if k.startswith(("GIT_", "HOME"))}}
    out.write(json.dumps([sys.argv[1:], own]) + "\\n")
os.execv({real!r}, [{real!r}, *sys.argv[1:]])
"""
#: What `person` runs in the project's own repository, by that person's configuration; and what asks for it.
PERSONAL = {"var", "config", "version", "--version"}


def test_every_git_that_runs_is_pinned(
    empty: Patchq, wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: each process is looked at."""
    log, folder = tmp_path / "log", tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(LOGGER.format(log=str(log), real=shutil.which("git")))
    (folder / "git").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        work(empty, wide, tmp_path)
    verbs: set[str] = set()
    for line in log.read_text().splitlines():
        argv, env = json.loads(line)
        words = [a for n, a in enumerate(argv) if a != "-c" and (n == 0 or argv[n - 1] != "-c")]
        if env.get("GIT_CONFIG_GLOBAL") != "/dev/null" or "GIT_CONFIG_COUNT" not in env:
            # The test itself runs git too, with dates of its own.
            assert words[0] in PERSONAL or "2026-01-02" in env.get("GIT_COMMITTER_DATE", ""), shlex.join(argv)
            continue
        verbs.add(words[0])
        count = int(env["GIT_CONFIG_COUNT"])
        settings = {env[f"GIT_CONFIG_KEY_{n}"]: env[f"GIT_CONFIG_VALUE_{n}"] for n in range(count)}
        assert settings["core.hooksPath"] == "/dev/null", argv
        assert settings["core.fsmonitor"] == "false", argv
        assert settings["core.attributesFile"] == "/dev/null", argv
        assert env["GIT_NO_REPLACE_OBJECTS"] == env["GIT_CONFIG_NOSYSTEM"] == env["GIT_ATTR_NOSYSTEM"] == "1", argv
        assert env["GIT_TERMINAL_PROMPT"] == "0", argv
        assert env["GIT_ASKPASS"] == "", argv
        assert "ext" not in env["GIT_ALLOW_PROTOCOL"], argv
        assert env["GIT_DIR"], argv
    assert verbs >= {
        "ls-remote", "fetch", "init", "rev-parse", "fast-import", "cat-file", "read-tree", "update-ref", "merge-tree",
        "diff-tree", "mailinfo", "mailsplit", "worktree", "log", "pack-objects", "index-pack", "range-diff",
    }  # fmt: skip


def test_one_module_says_git() -> None:
    """No other list of arguments begins with it."""
    root = Path(package.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == "git"
    }  # fmt: skip
    # person: in a person's repository; transport: asks a person's configuration how hosts are reached;
    # owners: whose repositories a person's safe.directory lets one read; doctor: git's version; fetch: the choice of a source, which is no command.
    found.remove("cli/commands/fetch.py")
    assert found == {
        "git/command.py", "git/person.py", "git/owners.py", "git/transport.py", "environment/doctor.py",
    }  # fmt: skip


# The store


def evil(tmp_path: Path) -> Path:
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\necho "$0 $@" >> {tmp_path}/ran\n')
    tool.chmod(0o755)
    return tool


@pytest.mark.parametrize(
    ("key", "value"),
    [("filter.x.smudge", "TOOL"), ("merge.x.driver", "TOOL"), ("core.fsmonitor", "TOOL"), ("core.worktree", "/"),
     ("include.path", "/etc/passwd"), ("core.autocrlf", "true"), ("extensions.worktreeConfig", "true"),
     ("core.sshCommand", "TOOL"), ("remote.origin.promisor", "true"), ("core.bare", "maybe")],
)  # fmt: skip
def test_a_stores_configuration_is_patchqs_or_refused(stack: Patchq, tmp_path: Path, key: str, value: str) -> None:
    """What came with somebody's `.patchq`: a filter can be named by upstream's attributes, and no option forbids it."""
    before = (stack.layout.store / "config").read_bytes()
    git(stack.layout.store, "config", key, value.replace("TOOL", str(evil(tmp_path))))
    said = stack.fails(1, "apply", "--to", "first")
    assert "which patchq didn't write" in said
    assert not (tmp_path / "ran").exists()
    (stack.layout.store / "config").write_bytes(before)
    stack.ok("apply", "--to", "first")


@pytest.mark.parametrize("name", ["info/attributes", "info/grafts", "config.worktree", "commondir"])
def test_files_that_make_a_stores_trees_others(stack: Patchq, name: str) -> None:
    path = stack.layout.store / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("* eol=crlf\n")
    assert f"{name} was not written by patchq" in stack.fails(1, "apply", "--to", "first")
    path.unlink()
    stack.ok("apply", "--to", "first")


def test_hooks_and_replacements_in_the_store(stack: Patchq, tmp_path: Path) -> None:
    hooks = stack.layout.store / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-checkout", "post-index-change"):
        (hooks / name).unlink(missing_ok=True)
        shutil.copy2(evil(tmp_path), hooks / name)
    store = stack.layout.store
    base = git(store, "rev-parse", "refs/patchq/base/git/up/v1")
    other = git(store, "commit-tree", "-m", "other", git(store, "rev-parse", "refs/heads/up^{tree}"))
    (tmp_path / "ran").unlink(missing_ok=True)
    (store / "refs" / "replace").mkdir(parents=True, exist_ok=True)
    (store / "refs" / "replace" / base).write_text(other + "\n")
    stack.ok("apply", "--to", "first")
    stack.ok("apply")
    stack.ok("drop", "first")
    assert not (tmp_path / "ran").exists()
    shutil.rmtree(store / "refs" / "replace")
    assert "changed" not in git(store, "show", f"{base}:a.txt")
    assert "clean" in stack.ok("status")


def test_a_damaged_store_is_not_the_persons_repository(stack: Patchq) -> None:
    """git looks for a repository in the folders above, where it knows none in this one."""
    git(stack.root, "init", "-q")
    git(stack.root, "add", "-A")
    git(stack.root, "commit", "-q", "-m", "mine")
    before = git(stack.root, "for-each-ref"), git(stack.root, "rev-parse", "HEAD"), git(stack.root, "ls-files", "-s")
    (stack.layout.store / "HEAD").write_bytes(b"\0" * 20)
    for args in (("apply", "--to", "first"), ("fetch",), ("export", "up"), ("drop", "first"), ("undo",)):
        done = stack.run(*args)
        assert "This is a bug" not in done.output
    assert before == (
        git(stack.root, "for-each-ref"), git(stack.root, "rev-parse", "HEAD"), git(stack.root, "ls-files", "-s")
    )  # fmt: skip


def test_a_worktree_of_another_store(stack: Patchq, tmp_path: Path) -> None:
    """Its `.git` may name any folder, and that one any configuration."""
    git(tmp_path, "init", "-q", "other")
    git(tmp_path / "other", "config", "core.fsmonitor", str(evil(tmp_path)))
    link = stack.tree() / ".git"
    before = link.read_text()
    link.write_text(f"gitdir: {tmp_path}/other/.git\n")
    assert "not in this project's store" in stack.fails(1, "status")
    assert not (tmp_path / "ran").exists()
    link.write_text(before)
    stack.ok("status")


# A range of somebody's repository


def test_a_range_is_read_without_its_repositorys_configuration(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """Its gpg program, its promisor, its hooks and its attributes: none is asked."""
    tool = evil(tmp_path)
    other = tmp_path / "theirs"
    git(tmp_path, "clone", "-q", str(upstream), str(other))
    commit_files(other, {"n.txt": b"one\n"}, "One\n\nWhy.")
    signed = git(other, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1
    )
    commit = git(other, "hash-object", "-t", "commit", "-w", "--stdin", data=(signed + "\n").encode())
    git(other, "reset", "-q", "--hard", commit)
    for key, value in (
        ("gpg.program", str(tool)), ("log.showSignature", "true"), ("core.fsmonitor", str(tool)),
        ("core.hooksPath", str(tmp_path / "h")), ("uploadpack.packObjectsHook", str(tool)),
        ("remote.evil.url", f"ext::{tool} %S"), ("remote.evil.promisor", "true"), ("protocol.ext.allow", "always"),
        ("core.repositoryFormatVersion", "1"), ("extensions.partialClone", "evil"), ("core.alternateRefsCommand", str(tool)),
    ):  # fmt: skip
        git(other, "config", key, value)
    (tmp_path / "ran").unlink(missing_ok=True)
    patchq.ok("import", "up", str(other), "--range", "v1..HEAD")
    patchq.ok("apply")
    assert (patchq.tree() / "n.txt").read_bytes() == b"one\n"
    # What it hasn't got is not asked of its promisor.
    commit_files(other, {"m.txt": b"two\n"}, "Two\n\nWhy.")
    blob = git(other, "rev-parse", "HEAD:m.txt")
    (other / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (tmp_path / "ran").unlink(missing_ok=True)
    said = patchq.fails(1, "import", "up", str(other), "--range", "HEAD~1..HEAD")
    assert "lacks some of" in said
    assert not (tmp_path / "ran").exists()


def test_a_range_of_a_worktree_a_bare_and_a_shallow_repository(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    commit_files(upstream, {"n.txt": b"one\n"}, "One\n\nWhy.")
    git(upstream, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "linked")
    git(tmp_path, "clone", "-q", "--bare", str(upstream), str(tmp_path / "bare"))
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{upstream}", str(tmp_path / "shallow"))
    for name in ("linked", "bare", "shallow"):
        assert "One" in patchq.ok("import", "up", str(tmp_path / name), "--range", "HEAD~1..HEAD") + patchq.ok("list")
        patchq.ok("undo")
    assert "has no range" in patchq.fails(1, "import", "up", str(tmp_path / "bare"), "--range", "no..where")


def test_an_object_that_is_not_what_its_name_says(patchq: Patchq, upstream: Path, tmp_path: Path) -> None:
    """A name is not believed: git reads a loose object without looking whether it has the bytes for it."""
    import zlib

    commit_files(upstream, {"n.txt": b"one\n"}, "One\n\nWhy.")
    blob = git(upstream, "rev-parse", "HEAD:n.txt")
    path = upstream / ".git" / "objects" / blob[:2] / blob[2:]
    path.chmod(0o644)
    path.write_bytes(zlib.compress(b"blob 5\0evil\n"))
    before = patchq.layout.lock.read_bytes()
    patchq.fails(1, "import", "up", str(upstream), "--range", "v1..HEAD")
    assert patchq.layout.lock.read_bytes() == before
    assert not list(patchq.root.glob("patches/**/*.patch"))


# Refs


def rename_pin(patchq: Patchq, ref: str) -> None:
    text = patchq.layout.lock.read_text()
    assert "pins.v1]" in text
    patchq.layout.lock.write_text(text.replace("pins.v1]", f'pins."{ref}"]').replace('"v1"', f'"{ref}"'))


@pytest.mark.parametrize(
    "ref",
    ["evil:refs/replace/x", "a..b", "-x", "a b", "a~1", "a^{}", "a?", "a[", "a\\\\b", ".a", "a/.b", "a.lock", "a.", "a/",
     "/a", "a//b", "@", "a@{1}", "refs/replace/x", "refs/patchq/signed/x", "a\\u0007", ""],
)  # fmt: skip
def test_a_ref_in_the_lock_is_one(patchq: Patchq, ref: str) -> None:
    rename_pin(patchq, ref)
    for args in (("fetch",), ("apply",), ("status",), ("pin", "--check", "up")):
        assert "can't be the name of a pin" in patchq.fails(1, *args)


def test_a_ref_that_would_mark_itself_as_signed(patchq: Patchq, upstream: Path) -> None:
    """A refspec says where what it brings goes: a ref with a colon wrote patchq's own refs, and replaced commits."""
    commit = git(upstream, "rev-parse", "v1")
    git(upstream, "tag", "evil")
    rename_pin(patchq, f"evil:refs/replace/{commit}")
    patchq.run("fetch")
    patchq.run("forecast", "up", "--onto", f"evil:refs/replace/{commit}")
    patchq.run("pin", "up", "--ref", f"evil:refs/replace/{commit}")
    assert "refs/replace" not in git(patchq.layout.store, "for-each-ref")


def test_refs_are_judged_as_git_judges_them() -> None:
    from hypothesis import given, settings
    from hypothesis import strategies as st

    from patchq.errors import FormatError
    from patchq.system.paths import check_ref

    @settings(max_examples=150)
    @given(st.text(alphabet="aé./@{}:~^?*[\\ -\x07_%k" + "lock", min_size=1, max_size=12) | st.just("a.lock/b"))
    def judge(ref: str) -> None:
        try:
            check_ref(ref, "a ref")
            ours = True
        except FormatError:
            ours = False
        done = subprocess.run(["git", "check-ref-format", f"refs/tags/{ref}"], check=False)
        theirs = done.returncode == 0 and not ref.startswith("-") and ref != "@"
        assert ours == theirs, ref

    judge()
