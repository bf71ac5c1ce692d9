"""Changes of a definition that only say the same in other words."""

from __future__ import annotations

import ast

import pytest

from patchq.drift._python.shape import body_of
from patchq.drift._versions.vocabulary import is_reworded


def python(text: str) -> str:
    return body_of(ast.parse(text).body[0])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "def f(a):\n    for i in range(len(a)):\n        use(a[i])\n",
            "def f(a):\n    for item in a:\n        if True:\n            pass\n        use(list(item))\n",
        ),
        (
            "def f(a):\n    a.one.set(make(a))\n    a.two.set(make(a))\n",
            "def f(a):\n    made = make(a)\n    for each in (a.one, a.two):\n        each.set(made)\n",
        ),
    ],
)
def test_the_same_in_other_words(old: str, new: str) -> None:
    assert is_reworded(python(old), python(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another value, name or operator.
        ("def f(a):\n    return a + 1\n", "def f(a):\n    return a + 2\n"),
        ("def f(a):\n    return a.x\n", "def f(a):\n    return a.y\n"),
        ("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a <= b\n"),
        ("def f(a):\n    return g(a, True)\n", "def f(a):\n    return g(a, False)\n"),
        # The order.
        ("def f(a, b):\n    return g(a, b)\n", "def f(a, b):\n    return g(b, a)\n"),
        # Something is gone, and nothing comes instead.
        ("def f():\n    wait()\n    g()\n    wait()\n", "def f():\n    wait()\n    g()\n"),
    ],
)
def test_another_meaning(old: str, new: str) -> None:
    assert not is_reworded(python(old), python(new))


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("A %0 = v [ %1 ] ;", "A const & %0 = v [ %1 ] ;", True),
        ("while ( g ( ) < %0 ) { }", "while ( g ( ) != %0 ) { }", False),
        ("if ( %0 < %1 ) g ( ) ;", "if ( %0 > %1 ) auto g ( ) ;", False),
        ("x ( acquire ) ;", "x ( relaxed ) ;", False),
    ],
)
def test_cpp(old: str, new: str, same: bool) -> None:
    assert is_reworded(old, new) is same
