"""Results of checks that are kept between runs."""

from __future__ import annotations

from pathlib import Path

from patchq.project.cached import ResultCache
from patchq.system.paths import Layout


def cache(root: Path) -> ResultCache:
    return ResultCache(Layout(root, root / "store"), "rows", modules=())


def test_a_name_without_a_result_is_not_kept(tmp_path: Path) -> None:
    known = cache(tmp_path)
    for name in ("failed", "found"):
        assert known.find(name) is None
    known.add("found", [("1", "text")])
    known.keep(forget=True)
    known = cache(tmp_path)
    assert known.find("found") == [("1", "text")]
    assert known.find("failed") is None


def test_only_names_that_were_looked_up_are_kept(tmp_path: Path) -> None:
    known = cache(tmp_path)
    for name in ("old", "same"):
        known.find(name)
        known.add(name, [])
    known.keep(forget=True)
    known = cache(tmp_path)
    assert known.find("same") == []
    known.find("new")
    known.add("new", [])
    known.keep(forget=True)
    known = cache(tmp_path)
    assert [known.find(name) for name in ("old", "same", "new")] == [None, [], []]
