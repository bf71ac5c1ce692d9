"""Pairs of different functions that somebody found to count as equal in an earlier comparison of functions."""

from __future__ import annotations

import pytest

from patchq.drift._effects.cpp import restore_cpp
from patchq.drift._effects.python import restore_python

PAIRS = [
    (
        "python",
        "any joined region suffices: if/else",
        "def f(a, b):\n    g(a)\n    if a:\n        x = b.t\n        h(x)\n    else:\n        k(b)\n    return 1\n",
        "def f(a, b):\n    g(a)\n    if a:\n        h(b.t)\n    else:\n        k(a)\n    return 1\n",
    ),
    (
        "python",
        "part without alias",
        "def f(self, a):\n    pending = self.pending\n    g(a)\n    n = len(pending)\n    self.pending.clear()\n    return n\n",
        "def f(self, a):\n    pending = self.pending\n    g(a)\n    self.pending.clear()\n    return len(pending)\n",
    ),
    (
        "python",
        "cached helper shares object",
        "import functools, torch\n@functools.cache\ndef buf(n):\n    return torch.empty(n)\ndef f(n):\n    g(n)\n    return torch.empty(n)\n",
        "import functools, torch\n@functools.cache\ndef buf(n):\n    return torch.empty(n)\ndef f(n):\n    g(n)\n    return buf(n)\n",
    ),
    (
        "python",
        "conditional helper",
        "if HAS_CUDA:\n    def part(a):\n        return a.b + 1\nelse:\n    def part(a):\n        return a.b - 1\ndef f(a):\n    return a.b + 1\n",
        "if HAS_CUDA:\n    def part(a):\n        return a.b + 1\nelse:\n    def part(a):\n        return a.b - 1\ndef f(a):\n    return part(a)\n",
    ),
    (
        "python",
        "helper rebound by import",
        "def part(a):\n    return a.b + 1\ntry:\n    from fast import part\nexcept ImportError:\n    pass\ndef f(a):\n    return a.b + 1\n",
        "def part(a):\n    return a.b + 1\ntry:\n    from fast import part\nexcept ImportError:\n    pass\ndef f(a):\n    return part(a)\n",
    ),
    (
        "python",
        "mutable default",
        "def part(a, seen=[]):\n    seen.append(a)\n    return seen\ndef f(a):\n    seen = []\n    seen.append(a)\n    return seen\n",
        "def part(a, seen=[]):\n    seen.append(a)\n    return seen\ndef f(a):\n    return part(a)\n",
    ),
    (
        "python",
        "async helper not awaited",
        "async def part(a):\n    g(a)\ndef f(a):\n    g(a)\n    h()\n",
        "async def part(a):\n    g(a)\ndef f(a):\n    part(a)\n    h()\n",
    ),
    (
        "python",
        "local import moved to top from other module",
        "def h(x):\n    from .a import f\n    return f(x)\n",
        "from .b import f\ndef h(x):\n    return f(x)\n",
    ),
    (
        "python",
        "conditional import",
        "if rocm():\n    from r import gemm\nelse:\n    from c import gemm\ndef h(x):\n    return gemm(x)\n",
        "from c import gemm as op\ndef h(x):\n    return op(x)\n",
    ),
    (
        "python",
        "constant rebound by import",
        "def f(a):\n    version = 'unknown'\n    try:\n        from pkg import version\n    except ImportError:\n        g()\n    k(a)\n    return 1 if version == 'unknown' else 2\n",
        "def f(a):\n    version = 'unknown'\n    try:\n        from pkg import version\n    except ImportError:\n        g()\n    k(a)\n    return 1\n",
    ),
    (
        "cpp",
        "ifdef declares twice",
        "int f(int a) {\n#ifdef USE_A\n  int x = 1;\n#else\n  int x = 2;\n#endif\n  return g(a, x);\n}\n",
        "int f(int a) {\n#ifdef USE_A\n  int x = 3;\n#else\n  int x = 2;\n#endif\n  return g(a, x);\n}\n",
    ),
    (
        "cpp",
        "dispatch constants are one name",
        "void f(int a, int b) {\n  int n = 0, m = 0;\n  DISPATCH_HEAD_DIM(a, HEAD_DIM, { n = HEAD_DIM; });\n  DISPATCH_HEAD_DIM(b, HEAD_DIM, { m = HEAD_DIM; });\n  run(n, m);\n}\n",
        "void f(int a, int b) {\n  int n = 0, m = 0;\n  DISPATCH_HEAD_DIM(a, HEAD_DIM, { m = HEAD_DIM; });\n  DISPATCH_HEAD_DIM(b, HEAD_DIM, { n = HEAD_DIM; });\n  run(n, m);\n}\n",
    ),
    (
        "cpp",
        "break in dispatch",
        "void f(int c, int x) {\n  for (int i = 0; i < c; i++) {\n    DISPATCH(x, X, {\n      if (skip(i)) break;\n      k<X>(i);\n    });\n    h(i);\n  }\n}\n",
        "void f(int c, int x) {\n  for (int i = 0; i < c; i++) {\n    DISPATCH(x, X, {\n      if (skip(i)) break;\n      k<X>(i);\n      h(i);\n    });\n  }\n}\n",
    ),
    (
        "cpp",
        "copied struct is alias",
        "P f(P& params) {\n  P old = params;\n  params.n = 1;\n  run(params);\n  return old;\n}\n",
        "P f(P& params) {\n  params.n = 1;\n  run(params);\n  return params;\n}\n",
    ),
    (
        "cpp",
        "float division becomes integer division",
        "float f(int a, int b) {\n  float x = static_cast<float>(a);\n  return x / b;\n}\n",
        "float f(int a, int b) {\n  return a / b;\n}\n",
    ),
    (
        "cpp",
        "float division becomes integer division 2",
        "float f(int a, int b) {\n  float x = a;\n  return x / b;\n}\n",
        "float f(int a, int b) {\n  return a / b;\n}\n",
    ),
    (
        "cpp",
        "truncation",
        "void f(float y) {\n  int x = static_cast<int>(y);\n  g(x);\n}\n",
        "void f(float y) {\n  g(y);\n}\n",
    ),
    (
        "cpp",
        "auto zero",
        "float f(float* v, int n) {\n  auto s = static_cast<float>(0);\n  for (int i = 0; i < n; i++) s += v[i];\n  return s;\n}\n",
        "float f(float* v, int n) {\n  auto s = 0;\n  for (int i = 0; i < n; i++) s += v[i];\n  return s;\n}\n",
    ),
    (
        "cpp",
        "float to auto",
        "float f(float* v, int n) {\n  float s = 0;\n  for (int i = 0; i < n; i++) s += v[i];\n  return s;\n}\n",
        "float f(float* v, int n) {\n  auto s = 0;\n  for (int i = 0; i < n; i++) s += v[i];\n  return s;\n}\n",
    ),
    (
        "cpp",
        "address of field depends on value",
        "void f(S& s) {\n  s.a = 0;\n  s.b = 0;\n  init(&s.a);\n}\n",
        "void f(S& s) {\n  s.a = 0;\n  s.b = 0;\n  init(&s.b);\n}\n",
    ),
    (
        "cpp",
        "parenthesized address 2",
        "int f(int a) {\n  int n = 0;\n  g(&(n));\n  return n;\n}\n",
        "int f(int a) {\n  int n = 0;\n  g(&(n));\n  return 0;\n}\n",
    ),
    (
        "cpp",
        "scope leaks after unreadable loop",
        "int f(int a, int b, V& v) {\n  int x = a;\n  h(b);\n  {\n    int x = b;\n    for (auto& y : v) { y = x; }\n    g(x);\n  }\n  return x;\n}\n",
        "int f(int a, int b, V& v) {\n  int x = b + 1;\n  h(b);\n  {\n    int x = b;\n    for (auto& y : v) { y = x; }\n    g(x);\n  }\n  return x;\n}\n",
    ),
    (
        "cpp",
        "constexpr function may throw",
        "int f(int a) {\n  constexpr int n = check(4);\n  check(a);\n  return n;\n}\n",
        "int f(int a) {\n  constexpr int n = check(4);\n  return n;\n}\n",
    ),
    (
        "cpp",
        "int& to int in lambda",
        "void f(P* p) {\n  int& x = p->n;\n  g([&] { x = 1; });\n}\n",
        "void f(P* p) {\n  int x = p->n;\n  g([&] { x = 1; });\n}\n",
    ),
    (
        "cpp",
        "int& to int address",
        "void f(P* p) {\n  int& x = p->n;\n  x++;\n  g(&x);\n}\n",
        "void f(P* p) {\n  int x = p->n;\n  x++;\n  g(&x);\n}\n",
    ),
    (
        "cpp",
        "size() before/after push_back",
        "int f(V& v, int x) {\n  int n = v.size();\n  v.push_back(x);\n  return n;\n}\n",
        "int f(V& v, int x) {\n  v.push_back(x);\n  return v.size();\n}\n",
    ),
    (
        "cpp",
        "strings commute",
        "std::string f(std::string a, std::string b) {\n  return a + b;\n}\n",
        "std::string f(std::string a, std::string b) {\n  return b + a;\n}\n",
    ),
    (
        "cpp",
        "strings commute 2",
        "void f(const std::string& a, const std::string& b) {\n  std::string p = a + b;\n  open(p);\n}\n",
        "void f(const std::string& a, const std::string& b) {\n  std::string p = b + a;\n  open(p);\n}\n",
    ),
    (
        "cpp",
        "#ifndef macro",
        "#ifndef N_WARPS\n#define N_WARPS 4\n#endif\nint f(int a) {\n  return g(a, N_WARPS);\n}\n",
        "#ifndef N_WARPS\n#define N_WARPS 4\n#endif\nint f(int a) {\n  return g(a, 4);\n}\n",
    ),
    (
        "cpp",
        "overloaded new helpers",
        "float f(float x) {\n  return x + 1;\n}\n",
        "int part(int a) { return a + 1; }\nfloat part(float a) { return a + 2; }\nfloat f(float x) {\n  return part(x);\n}\n",
    ),
    (
        "cpp",
        "specialized new helper",
        "half f(half x) {\n  return g(x) + 1;\n}\n",
        "template <typename T>\nT part(T a) { return g(a) + 1; }\ntemplate <>\nhalf part<half>(half a) { return h(a); }\nhalf f(half x) {\n  return part(x);\n}\n",
    ),
    (
        "cpp",
        "helper gets a copy",
        "void f(Foo& q) {\n  q.n = 1;\n  run(q);\n}\n",
        "Foo with(Foo p) {\n  p.n = 1;\n  return p;\n}\nvoid f(Foo& q) {\n  run(with(q));\n}\n",
    ),
    (
        "cpp",
        "same helper gets a copy",
        "Foo with(Foo p) {\n  p.n = 1;\n  return p;\n}\nvoid f(Foo& q) {\n  q.n = 1;\n  run(q);\n}\n",
        "Foo with(Foo p) {\n  p.n = 1;\n  return p;\n}\nvoid f(Foo& q) {\n  run(with(q));\n}\n",
    ),
    (
        "cpp",
        "structured binding cast",
        "int f(float y, int c) {\n  if (c) {\n    int n = c;\n    h(n);\n  }\n  auto [m, n] = k(y);\n  return g(static_cast<int>(n));\n}\n",
        "int f(float y, int c) {\n  if (c) {\n    int n = c;\n    h(n);\n  }\n  auto [m, n] = k(y);\n  return g(n);\n}\n",
    ),
    (
        "python",
        "constexpr annotation",
        "@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n    y = tl.load(x)\n    tl.store(x, y + n)\n",
        "@triton.jit\ndef k(x, n, BLOCK):\n    y = tl.load(x)\n    tl.store(x, y + n)\n",
    ),
    (
        "python",
        "constexpr local annotation",
        "@triton.jit\ndef k(x, n):\n    B: tl.constexpr = 4\n    y = tl.load(x)\n    tl.store(x, y + n, B)\n",
        "@triton.jit\ndef k(x, n):\n    B = 4\n    y = tl.load(x)\n    tl.store(x, y + n, B)\n",
    ),
    (
        "python",
        "cached warn",
        "import functools\n@functools.cache\ndef warn(m):\n    log(m)\ndef f(a):\n    log(a)\n    return a\n",
        "import functools\n@functools.cache\ndef warn(m):\n    log(m)\ndef f(a):\n    warn(a)\n    return a\n",
    ),
    (
        "python",
        "cache removed",
        "import functools\n@functools.cache\ndef n():\n    return k(1)\ndef f(a):\n    return n() + a\n",
        "import functools\ndef n():\n    return k(1)\ndef f(a):\n    return k(1) + a\n",
    ),
    (
        "python",
        "joined any: elif",
        "def f(a, b):\n    g(a)\n    for x in b:\n        if x:\n            y = a.t\n            h(y)\n        elif a:\n            z = b.t\n            k(z)\n        else:\n            k(2)\n    return 1\n",
        "def f(a, b):\n    g(a)\n    for x in b:\n        if x:\n            h(a.t)\n        elif a:\n            k(a.t)\n        else:\n            k(3)\n    return 1\n",
    ),
    (
        "python",
        "joined any: methods",
        "def f(a):\n    class A:\n        def p(self):\n            x = self.t\n            return g(x)\n        def q(self):\n            return h(1)\n    u(a)\n    return A\n",
        "def f(a):\n    class A:\n        def p(self):\n            return g(self.t)\n        def q(self):\n            return h(2)\n    u(a)\n    return A\n",
    ),
    (
        "python",
        "get_time",
        "def f(x):\n    t0 = get_time()\n    g(x)\n    return get_time() - t0\n",
        "def f(x):\n    t0 = get_time()\n    g(x)\n    return t0 - t0\n",
    ),
    (
        "cpp",
        "statement moved out of macro's block",
        "int f(int x) {\n  RETRY_ON_ERROR(x, N, {\n    g(x);\n    h(x);\n  });\n  return 1;\n}\n",
        "int f(int x) {\n  RETRY_ON_ERROR(x, N, {\n    g(x);\n  });\n  h(x);\n  return 1;\n}\n",
    ),
    (
        "cpp",
        "statement moved into macro's block that may not run",
        "int f(int x) {\n  IF_ENABLED(x, {\n    g(x);\n  });\n  h(x);\n  return 1;\n}\n",
        "int f(int x) {\n  IF_ENABLED(x, {\n    g(x);\n    h(x);\n  });\n  return 1;\n}\n",
    ),
    (
        "cpp",
        "conditional macro assignment taken as always run",
        "int f(int x) {\n  int n = 1;\n  IF_ENABLED(x, { n = 2; });\n  return g(n);\n}\n",
        "int f(int x) {\n  int n = 2;\n  IF_ENABLED(x, {});\n  return g(n);\n}\n",
    ),
    (
        "cpp",
        "scope leak: for with inner unreadable loop",
        "int f(int a, int b) {\n  int n = a;\n  h(a);\n  for (int n = 0; n < a; n++) {\n    for (auto& x : v) { x = 1; }\n  }\n  return g(n);\n}\n",
        "int f(int a, int b) {\n  int n = b;\n  h(a);\n  for (int n = 0; n < a; n++) {\n    for (auto& x : v) { x = 1; }\n  }\n  return g(n);\n}\n",
    ),
    (
        "cpp",
        "scope leak: two if declarations",
        "int f(int a, int b) {\n  int n = a;\n  h(a);\n  if (a > 0) {\n    int n = b;\n    if (auto* p = find(n)) {\n      p->use();\n    }\n    if (auto* p = find(b)) {\n      p->use();\n    }\n  }\n  return g(n);\n}\n",
        "int f(int a, int b) {\n  int n = b;\n  h(a);\n  if (a > 0) {\n    int n = b;\n    if (auto* p = find(n)) {\n      p->use();\n    }\n    if (auto* p = find(b)) {\n      p->use();\n    }\n  }\n  return g(n);\n}\n",
    ),
    (
        "cpp",
        "joined any: C++ if/else",
        "void f(int c, int a) {\n  g(a);\n  if (c) {\n    int x = a * 2;\n    h(x);\n  } else {\n    k(a);\n  }\n  g(1);\n}\n",
        "void f(int c, int a) {\n  g(a);\n  if (c) {\n    h(a * 2);\n  } else {\n    k(a + 1);\n  }\n  g(1);\n}\n",
    ),
    (
        "cpp",
        "assigned copy of struct",
        "Foo f(Foo w) {\n  Foo y;\n  y = w;\n  w.n = 5;\n  h(w);\n  return y;\n}\n",
        "Foo f(Foo w) {\n  w.n = 5;\n  h(w);\n  return w;\n}\n",
    ),
    (
        "cpp",
        "pushed copy of struct",
        "void f(Params& p, std::vector<Params>& v) {\n  Params q = p;\n  p.n = 5;\n  v.push_back(q);\n}\n",
        "void f(Params& p, std::vector<Params>& v) {\n  p.n = 5;\n  v.push_back(p);\n}\n",
    ),
    (
        "cpp",
        "converting constructor order",
        "Foo f(int a, int b) {\n  Foo x = a;\n  h(b);\n  return x;\n}\n",
        "Foo f(int a, int b) {\n  h(b);\n  return a;\n}\n",
    ),
    (
        "cpp",
        "string order +=",
        "std::string f(std::string a, std::string b) {\n  std::string s = a;\n  s += b;\n  return s;\n}\n",
        "std::string f(std::string a, std::string b) {\n  std::string s = b;\n  s += a;\n  return s;\n}\n",
    ),
    (
        "cpp",
        "constexpr fn on changed object",
        "int f(P& p) {\n  constexpr int n = size(T{});\n  int m = size(p);\n  p.resize(3);\n  return n + m;\n}\n",
        "int f(P& p) {\n  constexpr int n = size(T{});\n  p.resize(3);\n  return n + size(p);\n}\n",
    ),
    (
        "cpp",
        "constexpr name with runtime overload",
        "int f(P& p) {\n  constexpr auto n = make(1);\n  auto a = make(p);\n  auto b = make(p);\n  return g(a, b);\n}\n",
        "int f(P& p) {\n  constexpr auto n = make(1);\n  auto a = make(p);\n  return g(a, a);\n}\n",
    ),
    (
        "cpp",
        "constexpr function's call with output dropped",
        "int f(float* out) {\n  constexpr auto n = fill(X{}, 1);\n  fill(out, 2);\n  return g(n);\n}\n",
        "int f(float* out) {\n  constexpr auto n = fill(X{}, 1);\n  return g(n);\n}\n",
    ),
    (
        "cpp",
        "reinterpret_cast<float&>",
        "float f(int i) {\n  return g(reinterpret_cast<float&>(i));\n}\n",
        "float f(int i) {\n  return g(static_cast<float&>(i));\n}\n",
    ),
    (
        "python",
        "match binds a constant variable",
        "def f(a):\n    x = 1\n    match a:\n        case {'k': x}:\n            g()\n    h(a)\n    return 1 if x == 1 else 2\n",
        "def f(a):\n    x = 1\n    match a:\n        case {'k': x}:\n            g()\n    h(a)\n    return 1\n",
    ),
    (
        "python",
        "except binds a constant variable",
        "def f(a):\n    x = 1\n    try:\n        g()\n    except E as x:\n        k()\n    h(a)\n    return 1 if x == 1 else 2\n",
        "def f(a):\n    x = 1\n    try:\n        g()\n    except E as x:\n        k()\n    h(a)\n    return 1\n",
    ),
    (
        "python",
        "constant of later assignment",
        "def f(a):\n    if g(a):\n        h(n)\n        return 1\n    k(a)\n    n = 4\n    return n\n",
        "def f(a):\n    if g(a):\n        h(4)\n        return 1\n    k(a)\n    n = 4\n    return n\n",
    ),
    (
        "cpp",
        "comment first in parentheses: the rest isn't read",
        "int f(int a, int b) {\n  int x = (  // sum\n      a + b);\n  return g(x);\n}\n",
        "int f(int a, int b) {\n  int x = (  // sum\n      a - b);\n  return g(x);\n}\n",
    ),
    (
        "cpp",
        "comment first in parentheses 2",
        "int f(int a, int b) {\n  return g((/*n=*/a));\n}\n",
        "int f(int a, int b) {\n  return g((/*n=*/b));\n}\n",
    ),
    (
        "python",
        "joined any: elif chain, return after",
        "def f(a, b):\n    if a:\n        x = b.t\n        h(x)\n        k(2)\n    elif b:\n        y = a.t\n        h(y)\n    else:\n        k(b)\n    return 1\n",
        "def f(a, b):\n    if a:\n        h(b.t)\n        k(2)\n    elif b:\n        h(a.u)\n    else:\n        k(a)\n    return 1\n",
    ),
]


@pytest.mark.parametrize(("language", "old", "new"), [pytest.param(one, *rest, id=name) for one, name, *rest in PAIRS])
def test_the_functions_are_told_apart(language: str, old: str, new: str) -> None:
    restore = restore_cpp if language == "cpp" else restore_python
    assert not restore(old.encode(), new.encode())
