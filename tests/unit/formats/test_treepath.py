"""Which paths a tree may have, on whatever file system."""

from __future__ import annotations

import pytest

from patchq.errors import FormatError
from patchq.formats import treepath


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "a/../b", "/a", "a//b", "a/", ".git", ".git/x", "a/.GIT/x", ".git.", ".git ", ".git . .", "git~1", "GIT~1/x",
        ".git::$INDEX_ALLOCATION/x", ".git:x", "a\\.git\\x", "a\\git~1", ".g\u200cit/x", "\ufeff.git", "a/.\u202egit", "n" * 256,
        "a/" * 2048, "a\0b",
    ],
)  # fmt: skip
def test_what_no_tree_may_have(path: str) -> None:
    assert not treepath.is_tree_path(path.encode())
    with pytest.raises(FormatError):
        treepath.check_tree_path(path.encode(), "here")


@pytest.mark.parametrize(
    "path",
    [
        "a",
        ".github/x",
        ".gitignore",
        ".gitmodules",
        "git",
        "digit~1",
        "git~10",
        "x.git",
        "...",
        "a b",
        "é",
        "\udcff",
        "n" * 255,
        ".gitx",
    ],
)
def test_what_a_tree_may_have(path: str) -> None:
    assert treepath.is_tree_path(path.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    "name", [".gitmodules", "d/.GitModules", "GITMOD~1", "GI7EBA~1", ".git\u200cmodules", ".gitattributes"]
)
def test_names_that_may_not_be_links(name: str) -> None:
    assert treepath.is_for_git(name.encode())


@pytest.mark.parametrize("name", ["a", ".gitmodules/a", "gift", "link"])
def test_names_that_may(name: str) -> None:
    assert not treepath.is_for_git(name.encode())


@pytest.mark.parametrize(
    ("paths", "same"),
    [
        (["a", "b"], None),
        (["a", "A"], ("a", "A")),
        (["d/x", "D/y"], ("d", "D")),
        (["d/x", "D"], ("d", "D")),
        (["straße", "STRASSE"], ("straße", "STRASSE")),
        (["e\u0301", "\u00e9"], ("e\u0301", "\u00e9")),
        (["d/x", "d/y", "dx"], None),
    ],
)
def test_names_that_are_one_where_case_is_folded(paths: list[str], same: tuple[str, str] | None) -> None:
    found = treepath.one_name(path.encode() for path in paths)
    assert found == (same and tuple(name.encode() for name in same))
