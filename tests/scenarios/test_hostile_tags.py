"""Tags that no upstream should have, and what a killed command leaves where those that were tried are kept."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from kit import Patchq, git
from test_import_tags import DIFF, ends, host, pinned, tagged, tried  # noqa: F401

FOUND = ("v1.6", "v1.3", "v2.0")


@pytest.mark.parametrize("of", ["HEAD^{tree}", "HEAD:a.txt"])
@pytest.mark.parametrize("asked", [True, False])
def test_a_tag_of_no_commit_is_no_release(
    empty: Patchq,
    tagged: Path,  # noqa: F811
    host: str,  # noqa: F811
    tmp_path: Path,
    of: str,
    asked: bool,
) -> None:
    git(tagged, "tag", "v0.5", of)
    git(tagged, "tag", "-a", "-m", "x", "v5.0", of)
    pinned(empty, "--url", host if asked else str(tagged))
    for args in ((), (), ("--offline",)):
        assert ends(tried(empty, tmp_path, *args))[:2] == FOUND[:2], args


def test_a_tag_with_what_python_takes_for_the_end_of_a_line(empty: Patchq, tagged: Path, tmp_path: Path) -> None:  # noqa: F811
    git(tagged, "tag", "v1\u2028x", "v1.0")
    commit = git(tagged, "rev-parse", "v1.0").strip()
    (tagged / ".git" / "refs" / "tags" / os.fsdecode(b"v\xff")).write_text(f"{commit}\n")
    pinned(empty, "--url", str(tagged))
    assert ends(tried(empty, tmp_path)) == FOUND
    empty.ok("pin", "--check")
    empty.ok("forecast", "--newest", "up")


def test_a_tag_of_more_digits_than_python_reads(empty: Patchq, tagged: Path, tmp_path: Path) -> None:  # noqa: F811
    git(tagged, "pack-refs", "--all")
    commit = git(tagged, "rev-parse", "v1.0").strip()
    packed = tagged / ".git" / "packed-refs"
    packed.write_text(packed.read_text() + f"{commit} refs/tags/v{'9' * 5000}\n")
    pinned(empty, "--url", str(tagged))
    assert ends(tried(empty, tmp_path)) == FOUND


def test_a_size_has_an_end(empty: Patchq, tagged: Path, host: str, tmp_path: Path) -> None:  # noqa: F811
    pinned(empty, "--url", host)
    assert ends(tried(empty, tmp_path, "--most-download", "9" * 18 + "G")) == FOUND
    said = empty.fails(2, "import", "up", "-", "--dry-run", "--most-download", "9" * 5000)
    assert "is no size" in said


def test_a_person_s_own_limit(empty: Patchq, tagged: Path, host: str, tmp_path: Path) -> None:  # noqa: F811
    pinned(empty, "--url", host)
    (tmp_path / "x.patch").write_text(DIFF)
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            os._exit(0 if ends(tried(empty, tmp_path)) == FOUND else 7)
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("left", ["shallow.lock", "refs/releases/v1.3.lock"])
def test_what_a_killed_git_leaves_is_cleared(
    empty: Patchq,
    tagged: Path,  # noqa: F811
    host: str,  # noqa: F811
    tmp_path: Path,
    left: str,
) -> None:
    pinned(empty, "--url", host)
    kept = empty.layout.private / "history" / "up.releases.git"
    tried(empty, tmp_path, "--most-download", "0")
    (kept / "refs" / "releases").mkdir(exist_ok=True, parents=True)
    (kept / left).touch()
    (kept / "objects" / "pack").mkdir(exist_ok=True)
    (kept / "objects" / "pack" / "tmp_pack_x").write_bytes(b"x" * 1000)
    (empty.layout.private / "lock.owner").write_text("pid 1 on here: patchq import\n")  # it was killed
    found = tried(empty, tmp_path)
    assert ends(found) == FOUND
    assert found["downloaded"]["used"] > 0
    assert not [*kept.rglob("tmp_*"), *kept.rglob("*.lock")]


@pytest.mark.parametrize("torn", ["ref", "repository", "pack"])
def test_what_is_kept_is_made_again_where_it_is_damaged(
    empty: Patchq,
    tagged: Path,  # noqa: F811
    host: str,  # noqa: F811
    tmp_path: Path,
    torn: str,
) -> None:
    pinned(empty, "--url", host)
    tried(empty, tmp_path)
    kept = empty.layout.private / "history" / "up.releases.git"
    if torn == "ref":
        next((kept / "refs" / "releases").iterdir()).write_text("1" * 40 + "\n")
    elif torn == "repository":
        (kept / "HEAD").write_bytes(b"")
    else:
        for path in (kept / "objects" / "pack").glob("*.pack"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:50])
    offline = empty.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run", "--offline")
    assert "made again" not in offline
    said = empty.fails(3, "import", "up", str(tmp_path / "x.patch"), "--dry-run")
    assert f"{kept} is damaged, and is made again" in said
    assert ends(tried(empty, tmp_path)) == FOUND
