"""Definitions of two versions of a file that differ in effect."""

from __future__ import annotations

import pytest

from patchq.drift._cpp.facts import read_cpp
from patchq.drift._python.facts import read_python
from patchq.drift._versions.units import Lines, cpp_units, python_units

PATHS = (b"a", b"a")


def python(old: str, new: str) -> list[str]:
    sides = old.encode(), new.encode()
    files = [read_python("a", side) for side in sides]
    return [unit.name for unit in python_units(files[0], files[1], Lines(*sides), PATHS)]


def cpp(old: str, new: str) -> list[str]:
    pytest.importorskip("tree_sitter_cuda")
    sides = old.encode(), new.encode()
    files = [read_cpp(side) for side in sides]
    return [unit.name for unit in cpp_units(files[0], files[1], Lines(*sides), PATHS)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(a):\n    return '{}.{}'.format(a, 1)\n", "def f(a):\n    return f'{a}.{1}'\n"),
        ("def f(a):\n    return sum(1 for x in a if x.ok)\n", "def f(a):\n    return sum(bool(x.ok) for x in a)\n"),
        ("def f(a):\n    return sum(1 for x in a if not x)\n", "def f(a):\n    return sum(not x for x in a)\n"),
        (
            "def f(a):\n    if a == 0:\n        return 1\n",
            "def f(a):\n    no = a != 0\n    if not no:\n        return 1\n",
        ),
        ("def f(a):\n    return a + 7\n", "def g(b):\n    return b + 7\n\n\ndef f(a):\n    return g(a)\n"),
        ("def f(a):\n    return None\n", "def f(a):\n    return\n"),
        ("def f(a):\n    return '%s-%s' % (a, 1)\n", "def f(a):\n    return f'{a}-{1}'\n"),
        ("def f(a):\n    return a == 1 or a == 2\n", "def f(a):\n    return a in (1, 2)\n"),
        ("def f(a):\n    return not (a and b > 1)\n", "def f(a):\n    return not a or b <= 1\n"),
        ("def f(a):\n    x, y = 1, 2\n    return x - y\n", "def f(a):\n    x = 1\n    y = 2\n    return x - y\n"),
        (
            "def f(a):\n    r = []\n    for x in a:\n        if x:\n            r.append(x + 1)\n    return r\n",
            "def f(a):\n    return [x + 1 for x in a if x]\n",
        ),
        (
            "def f(a):\n    try:\n        return a()\n    except KeyError:\n        return 1\n",
            "def f(a):\n    try:\n        return a()\n    except KeyError as error:\n        return 1\n",
        ),
        ("def f(a):\n    return a\n", "def f(a, b=1):\n    return a\n"),
        ("class A:\n    x = 16\n", "class A:\n    '''Help.'''\n\n    x: int = 4 * 4\n"),
        ("x = {'a': 1, 'b': 2}\n", "x = dict(a=1, b=2)\n"),
        ("import os\n", "import os\nimport sys\n"),
    ],
)
def test_python_in_other_words(old: str, new: str) -> None:
    assert python(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("def f(a):\n    return '{}.{}'.format(a, 1)\n", "def f(a):\n    return f'{a}-{1}'\n", ["f"]),
        ("def f(a, b=1):\n    return a\n", "def f(a, b=2):\n    return a\n", ["f"]),
        ("def f(a):\n    return a\n", "def f(a, b):\n    return a\n", ["f"]),
        ("def f(a):\n    x, y = 1, 2\n    return x - y\n", "def f(a):\n    x, y = 2, 1\n    return x - y\n", ["f"]),
        ("def f(a):\n    return a == 1 or a == 2\n", "def f(a):\n    return a in (1, 3)\n", ["f"]),
        ("def f(a):\n    return not (a and b > 1)\n", "def f(a):\n    return not a or b < 1\n", ["f"]),
        ("class A:\n    x = 1\n", "class A:\n    x = 2\n", ["A"]),
        ("class A(B):\n    x = 1\n", "class A(C):\n    x = 1\n", ["A"]),
        ("x = {'a': 1}\n", "x = {'a': 1, 'b': 2}\n", ["x"]),
        ("register('a', 1)\n", "register('a', 2)\n", [""]),
        ("x = 1\n", "if y:\n    x = 1\n", ["x"]),
        ("def f():\n    return 1\n", "", ["f"]),
        ("", "class A:\n    def f(self):\n        return 1\n", ["A.f", "A"]),
        (
            "def f(s):\n    s.a = 1\n    s.b = s.a\n",
            "def f(s):\n    s.b = s.a\n    s.a = 1\n",  # the order counts
            ["f"],
        ),
        # A name that was a function and is a field now.
        ("class C:\n    def f(self):\n        return 1\n", "class C:\n    f: int\n", ["C.f"]),
    ],
)
def test_python_that_differs(old: str, new: str, names: list[str]) -> None:
    assert python(old, new) == names


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int f(int a, int b) { return (a + b - 1) / b * b; }", "int f(int a, int b) { return ((a + (b - 1)) / b) * b; }"),
        ("int f(void* p) { return *(const int*)p; }", "int f(void* p) { return *static_cast<const int*>(p); }"),
        ("int f(int a) { return a * 101376; }", "int f(int a) { return a * (99 * 1024); }"),
        ("int f(int a) { if (a) { return 1; } else { return 2; } }", "int f(int a) { if (a) return 1; return 2; }"),
        ("void f(S* p) { if (!(p->x == 1)) (*p).x += 1; }", "void f(S* p) { if (p->x != 1) p->x = p->x + 1; }"),
        ("void f() { unsigned int x{4}; g(x); }", "void f() { uint32_t x = 4; g(x); }"),
        ('void f() { TORCH_CHECK(a, "x"); }', 'void f() { TORCH_CHECK(a, "y ", b); }'),
        ("void f() { int a, b; g(&a, &b); }", "void f() { int a;\n int b; g(&a, &b); }"),
        ("A<4> f() { return A<4>{B::kOne}; }", "A<4> f() { using T = B; return A<4>{T::kOne}; }"),
        ("int64_t f() { return n.size(); }", "int64_t f() { return static_cast<int64_t>(n.size()); }"),
        ("void f(int const a, int32_t b) { g(a, b); }", "void f(int a, std::int32_t const b) { g(a, b); }"),
        ("int f(int a) { return a * 7 + 3; }", "int g(int b) { return b * 7 + 3; }\nint f(int a) { return g(a); }"),
    ],
)  # fmt: skip
def test_cpp_in_other_words(old: str, new: str) -> None:
    assert cpp(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("int f(int a, int b) { return a - b - 1; }", "int f(int a, int b) { return a - (b - 1); }", ["f"]),
        ("int f(int a, int b) { return a / b * 2; }", "int f(int a, int b) { return a / (b * 2); }", ["f"]),
        ("long f(long n) { return n; }", "long f(long n) { return static_cast<int>(n); }", ["f"]),
        ("#define N 1\n", "#define N 2\n", ["N"]),
        ("void f() { CHECK_EQ(a, b); }", "void f() { CHECK_EQ(a, c); }", ["f"]),
        ('void f() { TORCH_CHECK(a, "x"); }', 'void f() { TORCH_CHECK(b, "x"); }', ["f"]),
        ("int f() { if (a) { g(); } else { h(); } }", "int f() { if (a) { g(); } h(); }", ["f"]),
        ("constexpr int kN = 1;", "constexpr int kN = 2;", ["kN"]),
        ("struct S { int a; };", "struct S { int a; int b; };", ["S::b"]),
        ("template <int N> void f() {}", "template <int N, int M> void f() {}", ["f"]),
        ("template <int N>\nvoid f();", "template <int N,\n int M>\nvoid f();", ["f"]),
        ("void f() {}", "#if X\nvoid f() {}\n#endif\n", ["f"]),
        ("__global__ void __launch_bounds__(64) f() {}", "__global__ void __launch_bounds__(128) f() {}", ["f"]),
    ],
)
def test_cpp_that_differs(old: str, new: str, names: list[str]) -> None:
    assert cpp(old, new) == names
