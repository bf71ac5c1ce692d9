"""When a merge makes an addition of upstream's again, and how that is marked."""

from __future__ import annotations

from patchq.merge.blocks import Block, is_twice, mark_added, seems_made

LONG = tuple(b"line of its own %d" % n for n in range(8))


def text(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def test_an_addition_is_made_twice() -> None:
    block = Block((), LONG, b"above", b"below")
    base, now = text(b"above", b"below", b"c"), text(b"above", b"below", b"c", *LONG)
    once, again = now, text(b"above", *LONG, b"below", b"c", *LONG)
    assert seems_made(block, lambda: base, now)
    assert is_twice(block, lambda: base, now, again)
    assert not is_twice(block, lambda: base, now, once)
    assert not is_twice(block, lambda: base, base, text(b"above", *LONG, b"below", b"c"))
    assert not is_twice(block, lambda: base, now, again, times=2)  # the patch makes it twice itself


def test_a_long_addition_is_made_twice_though_upstream_edited_it() -> None:
    block = Block((), LONG, b"above", b"below")
    base = text(b"above", b"below", b"c")
    edited = (*LONG[:3], b"not as it was", *LONG[4:])
    now = text(b"above", b"below", b"c", *edited)
    assert is_twice(block, lambda: base, now, text(b"above", *LONG, b"below", b"c", *edited))
    half = text(b"above", b"below", b"c", *LONG[:4])
    assert not is_twice(block, lambda: base, half, text(b"above", *LONG, b"below", b"c", *LONG[:4]))


def test_a_line_that_stands_elsewhere_for_reasons_of_its_own_is_no_second_one() -> None:
    block = Block((), (b"return None",), b"above", b"below")
    base = text(b"above", b"below", b"c")
    now = text(b"above", b"below", b"c", b"return None", b"d")
    merged = text(b"above", b"return None", b"below", b"c", b"return None", b"d")
    assert not is_twice(block, lambda: base, now, merged)
    now = text(b"above", b"below", b"c", b"above", b"return None", b"below")
    merged = text(b"above", b"return None", b"below", b"c", b"above", b"return None", b"below")
    assert is_twice(block, lambda: base, now, merged)


def test_what_is_added_twice_is_marked() -> None:
    block = Block((), LONG[:2], b"a", b"b")
    ours, merged = text(b"a", b"b", b"c"), text(b"a", *LONG[:2], b"b", b"new", b"c")
    marked = text(b"a", b"<<<<<<< 1", b"||||||| base", b"=======", *LONG[:2], b">>>>>>> 2", b"b", b"new", b"c")
    assert mark_added(ours, merged, [block], ("1", "2")) == marked


def test_where_the_block_is_not_told_apart_all_that_changed_is_marked() -> None:
    """Added before a copy of its end, the lines that came are seen as others."""
    ours, merged = text(b"x", b"b", b"c"), text(b"a", b"b", b"x", b"b", b"c")
    marked = mark_added(ours, merged, [Block((), (b"not", b"there"))], ("1", "2"))
    assert marked.count(b"<<<<<<< 1\n") == marked.count(b">>>>>>> 2\n") == 1
