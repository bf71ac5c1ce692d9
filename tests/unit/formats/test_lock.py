"""The lock keeps people's comments; a wrong one says where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from patchq.errors import PatchqError, StateTooNew, StateTooOld
from patchq.formats import lock, lockedit


def pinned(**fields: str) -> bytes:
    text = "".join(f'{k.replace("_", "-")} = "{v}"\n' for k, v in fields.items())
    return f'version = 1\n[upstreams.up]\nurl = "u"\n[upstreams.up.pins.v1]\n{text}[sets.s]\nup = "v1"\n'.encode()


COMMIT, SHA = "0" * 40, "1" * 64


def test_a_lock_keeps_comments_and_order() -> None:
    data = b"# ours\n" + pinned(commit=COMMIT).replace(b"[sets.s]", b"# why this set\n[sets.s]")
    up = lock.Upstream(name="up", url="u")
    after = lockedit.with_pin(data, up, lock.Pin(upstream="up", ref="v2", url="u", commit=lock.CommitId(COMMIT)), "s")
    assert b"# ours" in after
    assert b"# why this set" in after
    parsed = lock.parse(after)
    assert parsed.sets["s"] == {"up": "v2"}
    assert set(parsed.upstreams["up"].pins) == {"v1", "v2"}


def test_a_new_set_starts_as_the_default_one() -> None:
    data = pinned(commit=COMMIT)
    after = lockedit.with_pin(
        data,
        lock.Upstream(name="other", url="o"),
        lock.Pin(upstream="other", ref="x", url="o", commit=lock.CommitId(COMMIT)),
        "t",
    )
    assert lock.parse(after).sets["t"] == {"up": "v1", "other": "x"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version = 2\n", "format 2"),
        (b"version = 0\n", "old format 0"),
        (b"[x", "upstream.lock:"),
        (b"\xff", "upstream.lock:"),
        (b"a = 1\n", "no version"),
        (pinned(commit="abc"), "full commit id"),
        (pinned(archive="p==1"), "SHA-256"),
        (pinned(commit=COMMIT, odd="1"), "unknown key"),
        *(
            (pinned(archive=archive, sha256=SHA), "is not PROJECT==VERSION")
            for archive in ("x==1 --hash", "x==1 ", "==1", "x==", "x== 1", "-r==1", "x==1==2", "x[y]==1", "x==1;a", "x==1dev1a1", "../x==1", "x==one")
        ),
        (pinned(), "neither a commit"),
        (pinned(archive="p==1", sha256=SHA, subdir="../x"), "is not a relative path inside its folder"),
        (pinned(commit=COMMIT, source="ftp"), "neither"),
        (pinned(commit=COMMIT).replace(b'up = "v1"', b'up = "v9"'), "not one of its pins"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\ninto = "nobody:x"'), "not an upstream"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", empty-env = {PATH = "/x"}}'), "PATH"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", requires = ["x @ http://y"]}'), "PROJECT==VERSION"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", profile = "magic"}'), "profile"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", requires = ["x==.."]}'), "PROJECT==VERSION"),
    ],
)  # fmt: skip
def test_a_wrong_lock_says_where(data: bytes, message: str) -> None:
    with pytest.raises(PatchqError) as caught:
        lock.parse(data)
    assert message in caught.value.message
    assert caught.value.hint


@given(st.from_regex(lock._RELEASE, fullmatch=True))
def test_a_version_that_is_taken_is_one_for_packaging(archive: str) -> None:
    """What reads a lock's versions later fails on none of them."""
    Version(archive.partition("==")[2])


@pytest.mark.parametrize(
    "version", ["1", "0.13.0", "1!2.0rc1.post2.dev3+cu130.local", "2024.1a", "v1.0-1", "1.0.dev456"]
)
def test_a_version_that_packaging_takes(version: str) -> None:
    assert Version(version)
    assert lock.parse(pinned(archive=f"a-b.c_d=={version}", sha256=SHA)).upstreams["up"].pins["v1"].archive


def test_versions_are_different_errors() -> None:
    with pytest.raises(StateTooNew):
        lock.parse(b"version = 99\n")
    with pytest.raises(StateTooOld):
        lock.parse(b"version = 0\n")


@pytest.mark.parametrize("package", ["LD", "git", "pip", "python", "Cmake"])
def test_a_package_named_like_a_program_sets_none_of_its_variables(package: str) -> None:
    build = f'build = {{distribution = "d", package = "{package}", empty-env = {{{package.upper()}_PRELOAD = "x"}}}}'
    data = pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\n' + build.encode(), 1)
    with pytest.raises(PatchqError, match="empty-env"):
        lock.parse(data)
