"""Adopting what people have: mails, an mbox, quilt's series, plain diffs, a range."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, numbered, release, with_lines


@pytest.fixture
def branch(upstream: Path) -> Path:
    """Two commits on top of v1."""
    text = numbered(40).replace(b"line 3\n", b"line three\n")
    commit_files(upstream, {"a.txt": text}, "[Bugfix] Spell three\n\nIt reads better.")
    commit_files(upstream, {"b.txt": numbered(40).replace(b"line 8\n", b"line eight\n")}, "Spell eight")
    return upstream


def names(patchq: Patchq, *options: str) -> list[str]:
    return [p["name"] for p in json.loads(patchq.ok("list", "--json", *options))["patches"]]


def check_tree(patchq: Patchq, branch: Path) -> None:
    patchq.ok("apply")
    assert git(patchq.tree(), "rev-parse", "HEAD^{tree}") == git(branch, "rev-parse", "HEAD^{tree}")


def test_mails(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    git(branch, "format-patch", "-q", "-o", str(tmp_path / "mails"), "v1..HEAD")
    patchq.ok("import", "up", *map(str, sorted((tmp_path / "mails").iterdir())), "--topic", "spelling")
    assert names(patchq) == ["bugfix-spell-three", "spell-eight"]
    check_tree(patchq, branch)
    data = patchq.patch_file("bugfix-spell-three").read_bytes()
    assert b"Subject: [Bugfix] Spell three\n" in data
    assert b"It reads better." in data
    assert b"Topic: spelling\n" in data
    assert b"Upstream-Status: Pending\n" in data


def test_an_mbox(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.write_text(git(branch, "format-patch", "--stdout", "v1..HEAD") + "\n")
    patchq.ok("import", "up", str(box))
    assert names(patchq) == ["spell-three", "spell-eight"]
    check_tree(patchq, branch)


def test_a_quilt_folder(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    folder = tmp_path / "debian" / "patches"
    folder.mkdir(parents=True)
    plain = git(branch, "diff", "--no-prefix", "v1..HEAD~1") + "\n"
    (folder / "three.patch").write_text("Description: spell three\n because\n" + "\n" + plain)
    (folder / "0002-eight.diff").write_text(git(branch, "diff", "HEAD~1..HEAD") + "\n")
    (folder / "series").write_text("# comment\nthree.patch -p0\n0002-eight.diff\n")
    before = patchq.snapshot()
    assert "three.patch names no author (and 1 more)" in patchq.fails(1, "import", "up", str(folder))
    assert patchq.snapshot()["patches/.gitkeep"] == before["patches/.gitkeep"]
    assert names(patchq) == []
    patchq.ok("import", "up", str(folder), "--author", "me")
    assert names(patchq) == ["three", "eight"]
    check_tree(patchq, branch)
    assert b"Subject: spell three\n" in patchq.patch_file("three").read_bytes()


def test_a_plain_diff_without_git_headers(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    text = "".join(
        line + "\n" for line in git(branch, "diff", "v1..HEAD").splitlines() if not line.startswith(("diff ", "index "))
    )
    (tmp_path / "fix.diff").write_text(text)
    patchq.ok("import", "up", str(tmp_path / "fix.diff"), "--author", "Ann Other <ann@example.org>", "-s")
    check_tree(patchq, branch)
    data = patchq.patch_file("fix").read_bytes()
    assert b"From: Ann Other <ann@example.org>\n" in data
    assert b"Signed-off-by: Ann Other <ann@example.org>\n" in data


def test_a_range_keeps_authors_and_merges_onto_the_stack(stack: Patchq, branch: Path) -> None:
    stack.ok("import", "up", str(branch), "--range", "v1..HEAD")
    assert names(stack) == ["first", "second", "third", "spell-three", "spell-eight"]
    assert "up to date" in stack.ok("apply")
    assert "nothing changed" in stack.ok("export", "up")


def test_what_does_not_apply_exactly_is_refused_whole(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    edit(branch / "a.txt", 5, b"conflicting\n")
    git(branch, "commit", "-qam", "Conflicts with first")
    git(branch, "format-patch", "-q", "-o", str(tmp_path / "mails"), "v1..HEAD")
    before = stack.snapshot()
    out = stack.fails(3, "import", "up", *map(str, sorted((tmp_path / "mails").iterdir())))
    assert "nothing was adopted" in out
    assert stack.snapshot() == before


def test_scratch_paths_that_cannot_be_placed(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "x.diff").write_text("--- /root/work/old.py\n+++ /root/work/new.py\n@@ -1 +1 @@\n-a\n+b\n")
    assert "root/work" in patchq.fails(3, "import", "up", str(tmp_path / "x.diff"))


def test_no_diff_and_no_file(patchq: Patchq, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello\n")
    assert "holds no diff" in patchq.fails(1, "import", "up", str(tmp_path / "note.txt"))
    assert "does not exist" in patchq.fails(1, "import", "up", str(tmp_path / "gone"))


def test_latin1_quoted_printable_mail(patchq: Patchq, branch: Path, tmp_path: Path) -> None:
    body = git(branch, "diff", "HEAD~1..HEAD").replace("=", "=3D") + "\n"
    (tmp_path / "m.eml").write_bytes(
        b"From: =?iso-8859-1?Q?J=F6rg?= <j@example.org>\nDate: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: [PATCH 2/3] Spell eight\n"
        b"Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\nMIME-Version: 1.0\n\n"
        b"Gr=FC=DFe\n---\n" + body.encode()
    )
    patchq.ok("import", "up", str(tmp_path / "m.eml"))
    data = patchq.patch_file("m").read_bytes()
    assert "Grüße".encode() in data
    assert b"Subject: Spell eight\n" in data
    assert "Jörg" in patchq.ok("show", "m")


def test_subjects_with_runs_of_blanks(stack: Patchq, upstream: Path) -> None:
    """2.5 % of FlashInfer's history has them; `git am` makes one blank of each run."""
    for number, subject in enumerate(("  leading", "two  blanks   (#12)", "a\ttab", "trailing  \N{IDEOGRAPHIC SPACE}")):
        git(upstream, "checkout", "-q", "v1") if not number else None
        (upstream / f"new{number}").write_text("x\n")
        git(upstream, "add", "-A")
        git(upstream, "commit", "-q", "--cleanup=verbatim", "-m", f"{subject}\n\nWhy.\n")
    stack.ok("import", "up", str(upstream), "--range", "v1..HEAD")
    assert names(stack)[3:] == ["leading", "two-blanks-12", "a-tab", "trailing"]
    told = [p["subject"] for p in json.loads(stack.ok("list", "--json"))["patches"]][3:]
    assert told == ["leading", "two blanks (#12)", "a tab", "trailing \N{IDEOGRAPHIC SPACE}"]
    assert "up to date" in stack.ok("apply")
    assert "nothing changed" in stack.ok("export", "up")


def test_a_commit_in_the_worktree_with_a_run_of_blanks(stack: Patchq) -> None:
    edit(stack.tree() / "b.txt", 30)
    git(stack.tree(), "commit", "-q", "--cleanup=verbatim", "-am", " two  blanks\n\nWhy.\n")
    assert "added two-blanks" in stack.ok("export", "up")
    assert "nothing changed" in stack.ok("export", "up")
    assert "up to date" in stack.ok("apply")


def test_a_range_over_another_pin(stack: Patchq, branch: Path) -> None:
    """The store has each pin without its history: what lies behind one comes from the repository."""
    git(branch, "tag", "v2", "HEAD~1")
    lock = stack.layout.lock.read_text()
    pin = f'[upstreams.up.pins."v2"]\ncommit = "{git(branch, "rev-parse", "v2")}"\n\n[sets.'
    stack.layout.lock.write_text(lock.replace("[sets.", pin, 1) + '\n[sets.other]\nup = "v2"\n')
    stack.ok("fetch", "--set", "other")
    assert len((stack.layout.store / "shallow").read_text().split()) == 2
    stack.ok("import", "up", str(branch), "--range", "v1..HEAD")
    assert names(stack)[3:] == ["spell-three", "spell-eight"]
    assert "up to date" in stack.ok("apply")


@pytest.fixture
def based_on_v2(upstream: Path) -> Path:
    """A branch with one commit on v2, which doesn't merge into v1."""
    commit_files(upstream, {"a.txt": with_lines({20: b"twenty\n"})}, "Spell twenty")
    git(upstream, "tag", "v2")
    git(upstream, "checkout", "-q", "-b", "ours")
    commit_files(upstream, {"a.txt": with_lines({20: b"twenty\n", 21: b"21\n"})}, "Count")
    return upstream


def typed(said: str) -> list[list[str]]:
    """The commands of a message's first backquotes, without `patchq`."""
    return [shlex.split(command)[1:] for command in said.partition("`")[2].partition("`")[0].split(" && ")]


@pytest.mark.parametrize("tagged", [True, False])
def test_a_range_on_another_release_names_it(patchq: Patchq, based_on_v2: Path, tagged: bool) -> None:
    args = ("import", "up", str(based_on_v2), "--range", "v2..ours")
    where = "at v2"
    if not tagged:
        args = (*args[:-1], f"{git(based_on_v2, 'rev-parse', 'v2')}..ours")
        git(based_on_v2, "tag", "-d", "v1", "v2")
        where = f"at the commit {args[-1][:12]}"
    said = patchq.fails(3, *args)
    assert f"the range starts {where}, but up is pinned at v1\n" in said
    assert f"the range starts {where}, but up is pinned at v1: `patchq pin up" in patchq.fails(3, *args, "--dry-run")
    for command in typed(said):
        patchq.ok(*command)
    assert names(patchq) == ["count"]


def test_a_range_above_the_pin_names_the_missing_commits(patchq: Patchq, based_on_v2: Path) -> None:
    git(based_on_v2, "tag", "-d", "v2")
    said = patchq.fails(3, "import", "up", str(based_on_v2), "--range", "ours~1..ours")
    assert "the range starts 1 commit after v1, but up is pinned at v1\n" in said
    for command in typed(said):
        patchq.ok(*command)
    assert names(patchq) == ["spell-twenty", "count"]


def test_a_range_on_another_release_gets_a_set_next_to_a_stack(stack: Patchq, based_on_v2: Path) -> None:
    for command in typed(stack.fails(3, "import", "up", str(based_on_v2), "--range", "v2..ours")):
        stack.ok(*command)
    assert names(stack, "--set", "default-up-v2") == ["count"]
    assert len(names(stack)) == 3


def test_a_range_of_a_shallow_repository(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth=2", branch.as_uri(), "shallow")
    stack.ok("import", "up", str(tmp_path / "shallow"), "--range", "HEAD~1..HEAD")
    assert names(stack)[3:] == ["spell-eight"]
    out = stack.fails(1, "import", "up", str(tmp_path / "shallow"), "--range", "HEAD~2..HEAD")
    assert "has no range HEAD~2..HEAD" in out


def test_nothing_of_the_repository_of_a_range_runs(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\nexit 1\n")
    script.chmod(0o755)
    signature = "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n"
    signed = git(branch, "cat-file", "commit", "HEAD").replace("\n\n", signature, 1) + "\n"
    git(branch, "update-ref", "HEAD", git(branch, "hash-object", "-t", "commit", "-w", "--stdin", data=signed.encode()))
    git(branch, "checkout", "-q", "-b", "partial")
    commit_files(branch, {"b.txt": b"other\n"}, "Lost")
    lost = git(branch, "rev-parse", "HEAD:b.txt")
    (branch / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    for key, value in {
        "gpg.program": script, "log.showSignature": "true", "core.fsmonitor": script, "core.sshCommand": script,
        "core.hooksPath": tmp_path, "diff.external": script, "core.alternateRefsCommand": script, "core.pager": script,
        "uploadpack.packObjectsHook": script, "remote.origin.url": f"ext::{script}", "remote.origin.promisor": "true",
        "remote.origin.partialCloneFilter": "blob:none", "extensions.partialClone": "origin", "core.repositoryFormatVersion": "1",
        "protocol.ext.allow": "always", "alias.log": f"!{script}", "alias.rev-parse": f"!{script}",
    }.items():  # fmt: skip
        git(branch, "config", key, str(value))
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc"):
        (tmp_path / name).hardlink_to(script)
    assert "lacks some of" in stack.fails(1, "import", "up", str(branch), "--range", "main..partial")
    stack.ok("import", "up", str(branch), "--range", "v1..main")
    assert names(stack)[3:] == ["spell-three", "spell-eight"]
    assert not (tmp_path / "ran").exists()


def test_a_range_in_words_of_its_own(stack: Patchq, branch: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert "has no range" in stack.fails(1, "import", "up", str(tmp_path / "plain"), "--range", "v1..HEAD")
    assert "not a git repository" in stack.fails(1, "import", "up", str(tmp_path / "gone"), "--range", "v1..HEAD")
    assert "has no range v1..nowhere" in stack.fails(1, "import", "up", str(branch), "--range", "v1..nowhere")
    assert "takes one repository" in stack.fails(1, "import", "up", str(branch), "--range", "v1")
    assert "holds no commits" in stack.fails(1, "import", "up", str(branch), "--range", "HEAD..v1")


def test_messages_of_a_range_in_other_encodings(stack: Patchq, upstream: Path) -> None:
    tree = git(upstream, "rev-parse", "v1^{tree}")
    tip = git(upstream, "rev-parse", "v1")
    for encoding, text in (("ISO-8859-1", "Grüße"), ("koi8-r", "Привет"), ("", "straße"), ("utf-8", "\x01 one \x1e")):
        head = f"tree {tree}\nparent {tip}\nauthor {text} <a@b> 1767319445 +0000\ncommitter C <c@d> 1767319445 +0000\n"
        head += f"encoding {encoding}\n" if encoding else ""
        data = f"{head}\n{text}\n\nWhy.\n".encode(encoding or "latin-1")
        tip = git(upstream, "hash-object", "-t", "commit", "-w", "--stdin", data=data)
    git(upstream, "update-ref", "refs/heads/odd", tip)
    stack.ok("import", "up", str(upstream), "--range", "v1..odd")
    told = [(p["subject"], p["author"]) for p in json.loads(stack.ok("list", "--json"))["patches"]][3:]
    assert told == [(t, f"{t} <a@b>") for t in ("Grüße", "Привет", "straße")] + [("\x01 one \x1e", "one <a@b>")]


def commit_as(folder: Path, who: str, files: dict[str, bytes | None], message: str) -> str:
    commit_files(folder, files, message)
    git(folder, "commit", "-q", "--amend", "--no-edit", "--author", f"{who} <{who.lower()}@example.org>")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def merged(upstream: Path) -> Path:
    """A fork of v1: a commit, a merge of two authors' commits with a conflict resolved, a commit."""
    commit_as(upstream, "Ann", {"a.txt": with_lines({3: b"ann\n"})}, "Ann's change")
    git(upstream, "checkout", "-q", "-b", "side", "v1")
    commit_as(upstream, "Bob", {"b.txt": with_lines({8: b"bob\n"})}, "Bob's change\n\nWhy.")
    commit_as(upstream, "Cy", {"a.txt": with_lines({3: b"cy\n"}), "c.txt": b"c\n"}, "Cy's change")
    git(upstream, "checkout", "-q", "main")
    subprocess.run(["git", "merge", "-q", "side"], cwd=upstream, check=False, capture_output=True)
    (upstream / "a.txt").write_bytes(with_lines({3: b"ann and cy\n"}))
    git(upstream, "add", "-A")
    git(
        upstream, "commit", "-q", "-m", "Merge branch 'side'\n\nBoth are right.\n\nSigned-off-by: Dee <dee@example.org>"
    )
    commit_as(upstream, "Eve", {"b.txt": with_lines({8: b"bob\n", 30: b"eve\n"})}, "Eve's change")
    return upstream


def test_a_range_with_merges_is_refused_with_a_way_to_take_it(patchq: Patchq, merged: Path) -> None:
    out = patchq.fails(1, "import", "up", str(merged), "--range", "v1..main")
    assert f"{git(merged, 'rev-parse', 'HEAD~1')[:12]} is a merge; a stack is linear" in out
    assert "`--first-parent` makes one patch of each merge" in out
    assert "--first-parent needs --range" in patchq.fails(2, "import", "up", str(merged), "--first-parent")


def test_a_merge_becomes_one_patch(patchq: Patchq, merged: Path) -> None:
    patchq.ok("import", "up", str(merged), "--range", "v1..main", "--first-parent")
    assert names(patchq) == ["ann-s-change", "merge-branch-side", "eve-s-change"]
    check_tree(patchq, merged)
    bob, cy = (commit[:12] for commit in git(merged, "rev-parse", "side~1", "side").splitlines())
    message = patchq.patch_file("merge-branch-side").read_text()
    assert (
        "Both are right.\n\nThe merged commits:\n"
        f"- {bob} Bob's change (Bob <bob@example.org>)\n- {cy} Cy's change (Cy <cy@example.org>)\n\n"
        "Signed-off-by: Dee <dee@example.org>\n"
    ) in message
    assert "From: Test Person <test@example.org>" in message
    assert "nothing changed" in patchq.ok("export", "up")


def test_a_merge_of_upstreams_next_release_is_left_out(patchq: Patchq, upstream: Path) -> None:
    """A fork that merged v2: its own commits are the patches, and the tree is the fork's."""
    git(upstream, "checkout", "-q", "-b", "fork")
    commit_files(upstream, {"a.txt": with_lines({3: b"ours\n"})}, "Ours")
    git(upstream, "checkout", "-q", "main")
    release(upstream, "v2", {"b.txt": with_lines({20: b"v2\n"})})
    git(upstream, "checkout", "-q", "fork")
    git(upstream, "merge", "-q", "--no-edit", "v2")
    commit_files(upstream, {"b.txt": with_lines({20: b"v2\n", 35: b"more\n"})}, "More")
    patchq.ok("pin", "up", "--ref", "v2")
    out = patchq.ok("import", "up", str(upstream), "--range", "v2..fork", "--first-parent")
    assert "is left out: the tree already has the changes of this merge" in out
    assert names(patchq) == ["ours", "more"]
    check_tree(patchq, upstream)
