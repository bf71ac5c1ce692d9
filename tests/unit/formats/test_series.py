"""A series parses back to what was written, and nothing else gets through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from patchq.errors import FormatError
from patchq.formats import series
from patchq.system import paths

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


@given(st.lists(NAMES, unique=True), st.lists(NAMES, unique=True))
def test_series_round_trip_and_reorder(names: list[str], others: list[str]) -> None:
    made = series.Series().with_names(names)
    assert series.parse(made.dump(), "series") == made
    again = series.parse(made.with_names(others).dump(), "series")
    assert again.names == tuple(others)


def test_comments_stay_above_their_patch() -> None:
    data = b"# attention\na.patch\n\n# moe\nb.patch\nc.patch\n# end\n"
    parsed = series.parse(data, "series")
    assert parsed.dump() == data
    assert parsed.with_names(["b", "a", "d"]).dump() == b"\n# moe\nb.patch\n# attention\na.patch\nd.patch\n# end\n"


@given(st.binary(max_size=60))
def test_series_of_anything_is_names_or_an_error(data: bytes) -> None:
    try:
        names = series.parse(data, "series").names
    except FormatError:
        return
    for name in names:
        assert paths.check_name(name, "a patch") == name
