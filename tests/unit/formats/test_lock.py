"""The lock keeps people's comments; a wrong one says where."""

from __future__ import annotations

import pytest

from patchq.errors import PatchqError, StateTooNew, StateTooOld
from patchq.formats import lock, lockedit


def pinned(**fields: str) -> bytes:
    text = "".join(f'{k.replace("_", "-")} = "{v}"\n' for k, v in fields.items())
    return f'version = 1\n[upstreams.up]\nurl = "u"\n[upstreams.up.pins.v1]\n{text}[sets.s]\nup = "v1"\n'.encode()


COMMIT, SHA = "0" * 40, "1" * 64


def test_a_lock_keeps_comments_and_order() -> None:
    data = b"# ours\n" + pinned(commit=COMMIT).replace(b"[sets.s]", b"# why this set\n[sets.s]")
    up = lock.Upstream("up", "u")
    after = lockedit.with_pin(data, up, lock.Pin("up", "v2", "u", lock.CommitId(COMMIT)), "s")
    assert b"# ours" in after
    assert b"# why this set" in after
    parsed = lock.parse(after)
    assert parsed.sets["s"] == {"up": "v2"}
    assert set(parsed.upstreams["up"].pins) == {"v1", "v2"}


def test_a_new_set_starts_as_the_default_one() -> None:
    data = pinned(commit=COMMIT)
    after = lockedit.with_pin(
        data, lock.Upstream("other", "o"), lock.Pin("other", "x", "o", lock.CommitId(COMMIT)), "t"
    )
    assert lock.parse(after).sets["t"] == {"up": "v1", "other": "x"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"version = 2\n", "format 2"),
        (b"version = 0\n", "old format 0"),
        (b"[x", "upstream.lock:"),
        (b"\xff", "upstream.lock:"),
        (b"a = 1\n", "no version"),
        (pinned(commit="abc"), "full commit id"),
        (pinned(archive="p==1"), "SHA-256"),
        (pinned(commit=COMMIT, odd="1"), "unknown key"),
        (pinned(), "neither a commit"),
        (pinned(archive="p==1", sha256=SHA, subdir="../x"), "would leave its folder"),
        (pinned(commit=COMMIT, source="ftp"), "neither"),
        (pinned(commit=COMMIT).replace(b'up = "v1"', b'up = "v9"'), "not one of its pins"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\ninto = "nobody:x"'), "not an upstream"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", empty-env = {PATH = "/x"}}'), "PATH"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", requires = ["x @ http://y"]}'), "PROJECT==VERSION"),
        (pinned(commit=COMMIT).replace(b'url = "u"', b'url = "u"\nbuild = {distribution = "d", profile = "magic"}'), "profile"),
    ],
)  # fmt: skip
def test_a_wrong_lock_says_where(data: bytes, said: str) -> None:
    with pytest.raises(PatchqError) as caught:
        lock.parse(data)
    assert said in caught.value.message
    assert caught.value.hint


def test_versions_are_different_errors() -> None:
    with pytest.raises(StateTooNew):
        lock.parse(b"version = 99\n")
    with pytest.raises(StateTooOld):
        lock.parse(b"version = 0\n")
