"""Functions that do the same have equal effects, and functions that do something else have not."""

from __future__ import annotations

import ast
import copy
import dis
import inspect
import shutil
import textwrap
from collections.abc import Iterator
from types import ModuleType

import pytest

from patchq.drift._cpp.facts import read_cpp
from patchq.drift._effects.cpp import restore_cpp
from patchq.drift._effects.python import restore_python
from patchq.drift._effects.restored import replaced
from patchq.drift._effects.translated import aliases_of, python_of, without_aliases
from patchq.drift._effects.trials import FunctionVersion, do_the_same
from patchq.drift._python.shape import FunctionNode

#: Bodies of ``f(self, a, b, c)`` that do the same.
SAME = [
    (
        "for _, m in a.named_modules():\n  if hasattr(m, 'x'):\n    m.x = b",
        "for m in a.modules():\n  if hasattr(m, 'x'):\n    m.x = b",
    ),
    ("_ = a.get_x()\nreturn b", "a.get_x()\nreturn b"),
    (
        "try:\n  a.g()\nexcept m.Error as e:\n  if e.x:\n    a.h('n: ' + e.x)",
        "try:\n  a.g()\nexcept m.Error as e:\n  if e.x:\n    a.h(f'n: {e.x}')",
    ),
    ("if a:\n  return 1\nreturn 2", "return 1 if a else 2"),
    ("if not a:\n  return 2\nelse:\n  return 1", "return 1 if a else 2"),
    ("if a and b:\n  return c(a)\nreturn 2", "if a:\n  if b:\n    return c(a)\nreturn 2"),
    ("x = c(a)\ny = x.t\nreturn y + 1", "return c(a).t + 1"),
    ("x = a[0] if a is not None else -1\nreturn x", "x = -1\nif a is not None:\n  x = a[0]\nreturn x"),
    ("if a is None:\n  a = b()\nreturn c(a)", "a = b() if a is None else a\nreturn c(a)"),
    ("o = []\nfor x in a:\n  if x:\n    o.append(x.y)\nreturn o", "return [z.y for z in a if z]"),
    ("for x in a:\n  if c(x):\n    return True\nreturn False", "return any(c(y) for y in a)"),
    ("return a.t in [1, 2]", "return a.t in (2, 1)"),
    ("return a == 1 or a == 2", "return a in (1, 2)"),
    ("self.x = 1 if a else 2", "if a:\n  self.x = 1\nelse:\n  self.x = 2"),
    ("return [t for t in a if t[0] in b]", "return [(x, y) for x, y in a if x in b]"),
    ("if a:\n  c(b)\nreturn", "if a:\n  c(b)"),
    ("if a:\n  c(b)\nreturn 1", "if not a:\n  return 1\nc(b)\nreturn 1"),
    ("try:\n  c()\nexcept (ImportError, ModuleNotFoundError):\n  return", "try:\n  c()\nexcept ImportError:\n  return"),
    ("return min(a, b)", "return min(b, a)"),
    ("x, y = c()\nreturn a(x, y)", "z = c()\nreturn a(z[0], z[1])"),
    ("for i in a:\n  if i:\n    continue\n  c(i)", "for j in a:\n  if not j:\n    c(j)"),
    ("for i in a:\n  if i:\n    c(i)\n  b(i)", "for i in a:\n  if not i:\n    b(i)\n    continue\n  c(i)\n  b(i)"),
    ("self.y = a.get('y')\nself.x = a.get('x')", "self.x = a.get('x')\nself.y = a.get('y')"),
    ("return all(len(x) == 0 for x in a)", "return not any(a)"),
    ("x = os.getenv(a)\nreturn x", "return os.environ.get(a)"),
    ("k = 1\nif a:\n  k = 2\nreturn b + (k,)", "if a:\n  return b + (2,)\nreturn b + (1,)"),
    ("return c(1 if a else 2)", "if a:\n  return c(1)\nreturn c(2)"),
    ("x = b()\nfor y in a:\n  x.append(c(y))\nreturn x", "x = b()\nx.extend(c(z) for z in a)\nreturn x"),
    ("x = b()\nx += [a, c]\nreturn x", "x = b()\nx.append(a)\nx.append(c)\nreturn x"),
    (
        "with a() as f:\n  if f.read() == b:\n    return\nc()",
        "with a() as f:\n  x = f.read() == b\nif x:\n  return\nc()",
    ),
    ("global G\nif a:\n  G = b\nelse:\n  G = c", "global G\nG = b if a else c"),
    ("if a:\n  self.x = b(1)\nelse:\n  self.x = b(c)", "x = 1 if a else c\nself.x = b(x)"),
    ("self.x = b()\nself.y = self.x + 1", "x = b()\nself.y = x + 1\nself.x = x"),
    ("return a.size(-1)", "return a.shape[-1]"),
    ("return str(a).lower()", "return f'{a}'.lower()"),
    ("if a():\n  return True\nreturn b() == 3", "return bool(a()) or b() == 3"),
    ("x = a.k\nif x is None:\n  x = b()\nelse:\n  c(x)\nreturn x", "if a.k is None:\n  return b()\nc(a.k)\nreturn a.k"),
    ("assert a and b", "assert a\nassert b"),
    ("return {x: 0 for x in a}", "return dict.fromkeys(a, 0)"),
    ("return list(sorted(a))", "return sorted(a)"),
    ("delattr(a, 'x')\nsetattr(b, 'y', c)", "del a.x\nb.y = c"),
    ("return a[:-1] if a.endswith('.') else a", "return a.removesuffix('.')"),
    ("return open(a, 'r').read()", "return open(a).read()"),
    ("for x in a:\n  if b(x):\n    break\nelse:\n  c()", "for y in a:\n  if b(y):\n    break\nelse:\n  c()"),
    (
        "class X:\n  def f(self):\n    return a if a else b\nreturn X",
        "class X:\n  def f(self):\n    return a or b\nreturn X",
    ),
    ("for x in a:\n  y = c(x)\n  if y:\n    return True\nreturn False", "return any(c(x) for x in a)"),
    ("for x in a:\n  if not x.t:\n    continue\n  return x.n\nreturn b", "return next((x.n for x in a if x.t), b)"),
    ("return a.startswith('x') or a.startswith('y')", "return a.startswith(('x', 'y'))"),
    ("return os.path.join(os.path.join(a, b), 'c')", "return os.path.join(a, b, 'c')"),
    ("try:\n  c()\nexcept OSError as e:\n  b()\n  raise e", "try:\n  c()\nexcept OSError:\n  b()\n  raise"),
    ("def g(x):\n  return x[:a]\nreturn c(g, 1)", "return c(lambda y: y[:a], 1)"),
    ("x = 2\nreturn a ** (2 ** (3 - x) + 1)", "return a ** 3"),
    ("return '-D' + str(a)", "return f'-D{a}'"),
    ("x = []\nfor y in a:\n  for z in b:\n    x.append(y + z)\nreturn x", "return [y + z for y in a for z in b]"),
    ("f = a.x if c else a.y\nreturn f(b)", "if c:\n  return a.x(b)\nreturn a.y(b)"),
    ("return any(b == f'{a}{x}' for x in ('p', 'q'))", "return b == f'{a}p' or b == f'{a}q'"),
    ("x = (c(y) for y in a)\nreturn all(z.t for z in x)", "return all(c(y).t for y in a)"),
    (
        "try:\n  x = c()\nexcept KeyError:\n  return b\nelse:\n  return x.t",
        "try:\n  x = c()\nexcept KeyError:\n  return b\nreturn x.t",
    ),
    ("d = {}\nfor x in a:\n  d[x.n] = x\nreturn d", "return {x.n: x for x in a}"),
    ("return c(list(a) + list(b))", "return c([*a, *b])"),
    ("return a.t + [b]", "return [*a.t, b]"),
    (
        "return sum(1 for x in a if x.t), sum(1 for x in a if not x.t)",
        "n = sum(1 for x in a if x.t)\nreturn n, len(a) - n",
    ),
    ("b = a or False\nif a.x > 8 and c:\n  return 1\nreturn 2", "if c and a.x > 8:\n  return 1\nreturn 2"),
    (
        "d = {}\nfor x in a:\n  g = d.get(x.k, [])\n  g.append(x)\n  d[x.k] = g\nreturn d",
        "d = {}\nfor x in a:\n  d.setdefault(x.k, []).append(x)\nreturn d",
    ),
    ("if hasattr(a, 'x') and a.x > 0:\n  c()", "if getattr(a, 'x', 0) > 0:\n  c()"),
    ("if a is None or a == b:\n  c()", "if a in (None, b):\n  c()"),
    ("return a[1 + b]", "return a[b + 1]"),
    (
        "x = is_ok(1)\nreturn c('p' if x else '', 'q' if x else '')",
        "return c('p' if is_ok(1) else '', 'q' if is_ok(1) else '')",
    ),
    ("x = a\nif x > b:\n  x = b\nreturn c(x)", "return c(min(a, b))"),
    ("return c((a + b - 1) // b)", "return c(cdiv(a, b))"),
    ("return max(a, 0)", "return a if a > 0 else 0"),
    ("return max(a, 0)", "return 0 if a < 0 else a"),
    ("return min(a, b)", "return min(b, a)"),
    ("with open(a) as f:\n  if f.read() == b:\n    return\nc()", "if a.read_text() == b:\n  return\nc()"),
    ("with open(a, 'r') as f:\n  x = f.read()\nc(x)", "x = a.read_text()\nc(x)"),
    ("with open(a, 'w') as f:\n  f.write(b)", "a.write_text(b)"),
    ("with open(a, 'w', encoding='u') as f:\n  f.write(b)", "a.write_text(b, encoding='u')"),
    (
        "if K in os.environ and os.environ[K] != '':\n  return os.environ[K].split(',')\nreturn b",
        "x = os.environ.get(K, '')\nif not x:\n  return b\nreturn x.split(',')",
    ),
    ("class M(T):\n  x = F(1, b)\nreturn M", "def m(y):\n  return F(1, y)\nclass M(T):\n  x = m(b)\nreturn M"),
    (
        "try:\n  import shlex\n  return shlex.split(a)\nexcept ValueError:\n  return b",
        "import shlex\ntry:\n  return shlex.split(a)\nexcept ValueError:\n  return b",
    ),
    ("x = len(a)\nreturn c() if x != 0 else 1", "return 1 if not len(a) else c()"),
    ("n = int(a)\nif n > 3:\n  c()\nif n != 0:\n  b()", "n = int(a)\nif n > 3:\n  c()\nif n:\n  b()"),
    (
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  x = 1\nelse:\n  x = 2\nc(9)\nreturn x",
        "x = c(1)\nfor y in a:\n  c(y)\nx = 1 if b else 2\nc(9)\nreturn x",
    ),
    (
        "x = c(1)\nfor y in a:\n  c(y)\nfor z in b:\n  t = z.u\n  x = c(t)\nc(9)\nreturn x",
        "x = c(1)\nfor y in a:\n  c(y)\nfor z in b:\n  x = c(z.u)\nc(9)\nreturn x",
    ),
    (
        "x = 0\nfor y in a:\n  c(y)\n  if not y:\n    continue\n  x = b(y)\nreturn x",
        "x = 0\nfor y in a:\n  c(y)\n  if y:\n    x = b(y)\nreturn x",
    ),
    ("def g(y):\n  z = y.t\n  return z + 1\nc(g)\nreturn a", "def g(y):\n  return y.t + 1\nc(g)\nreturn a"),
    (
        "with a:\n  x = c(b)\n  if x:\n    b(x)\n  c(3)",
        "with a:\n  x = c(b)\n  if not x:\n    pass\n  else:\n    b(x)\n  c(3)",
    ),
    ("u = c(a)\nv = b(u)\nif u:\n  c(v)\nreturn v", "w = c(a)\nv = b(w)\nif not w:\n  return v\nc(v)\nreturn v"),
    ("n = list(a)\nc(n)\nx = b(n)\nn = list(x)\nreturn x.t(*n)", "n = list(a)\nc(n)\nx = b(n)\nreturn x.t(*list(x))"),
]
#: Bodies that do something else.
OTHER = [
    ("for n, m in a.named_modules():\n  b(n)", "for m in a.modules():\n  b(m)"),
    ("for m in a.modules():\n  b(m)", "for m in a.children():\n  b(m)"),
    ("_ = a.get_x()\nreturn b", "return b"),
    (
        "try:\n  a.g()\nexcept m.Error as e:\n  if e.x:\n    a.h('n: ' + e.x)",
        "try:\n  a.g()\nexcept m.Error as e:\n  if e.x:\n    a.h(f'm: {e.x}')",
    ),
    ("return a + 1", "return a + 2"),
    ("b(a)\nc(a)", "c(a)\nb(a)"),
    ("if a:\n  b()\nc()", "if a:\n  b()\n  c()"),
    ("return c(a, b)", "return c(b, a)"),
    ("x = 1\nif a > 1:\n  x = 2\nreturn x", "x = 1\nif a >= 1:\n  x = 2\nreturn x"),
    ("self.x = 1\nreturn self.x", "r = self.x\nself.x = 1\nreturn r"),
    ("t = 0\nfor x in a:\n  t += x\nreturn t", "t = 1\nfor x in a:\n  t += x\nreturn t"),
    ("for x in a:\n  if c(x):\n    return True\nreturn False", "return all(c(y) for y in a)"),
    ("return a < b", "return a > b"),
    ("return c()", "c()"),
    ("return None", "return False"),
    ("with a:\n  b()\nc()", "with a:\n  b()\n  c()"),
    ("x = y = 0\nfor z in a:\n  x, y = y, z\nreturn x", "x = y = 0\nfor z in a:\n  x, y = y, z\nreturn y"),
    ("try:\n  b()\nexcept KeyError:\n  c()", "try:\n  b()\nexcept ValueError:\n  c()"),
    ("c(1 if a else 2)\nb()", "c(2 if a else 1)\nb()"),
    ("while a():\n  b()", "if a():\n  b()"),
    ("x = c()\nx = c()\nreturn x", "return c()"),
    ("return a or b", "return b or a"),
    ("logger.info(a.size)", "logger.info(a.length)"),
    ("x = []\ny = []\nx.append(a)\nreturn x, y", "x = []\ny = []\ny.append(a)\nreturn x, y"),
    ("x = b()\nx.extend(c(y) for y in a)\nreturn x", "x = b()\nx.append(c(y) for y in a)\nreturn x"),
    ("x = b()\nx += [a, c]\nreturn x", "x = b()\nx.append(c)\nx.append(a)\nreturn x"),
    ("self.x = 1\nself.f()\nreturn self.x", "self.x = 1\nself.f()\nreturn 1"),
    ("self.x = 1\na.x = 2\nreturn self.x", "self.x = 1\na.x = 2\nreturn 1"),
    ("with a() as f:\n  return f.read()", "with a() as f:\n  pass\nreturn f.read()"),
    ("for x in a:\n  with b:\n    break\n  c(x)", "for x in a:\n  with b:\n    pass\n  c(x)"),
    ("global G\nG = a", "G = a"),
    ("global G\nG = a\nb()\nreturn G", "global G\nb()\nG = a\nreturn G"),
    ("if a:\n  self.x = 1\nelse:\n  self.x = 2", "if a:\n  self.x = 2\nelse:\n  self.x = 1"),
    ("if a.x is None:\n  a.x = 1\nif a.x is None:\n  b()", "if a.x is None:\n  a.x = 1\n  b()"),
    ("return a.size(0)", "return a.size(1)"),
    ("n = 0\nfor x in a:\n  n += x\n  c(n)", "for x in a:\n  n = 0\n  n += x\n  c(n)"),
    ("i = 0\nwhile i < a:\n  b()\n  i += 1", "i = 0\nwhile i < a:\n  b()\n  i += 2"),
    ("if a:\n  a.clear()\nif a:\n  b()", "if a:\n  a.clear()\n  b()"),
    ("if a:\n  a.clear()\n  if a:\n    b()", "if a:\n  a.clear()\n  b()"),
    ("if a:\n  a.pop()\nreturn 1 if a else 2", "if a:\n  a.pop()\n  return 1\nreturn 2"),
    ("if b in a:\n  a.remove(b)\n  if b in a:\n    c()", "if b in a:\n  a.remove(b)\n  c()"),
    ("if len(a) > 1:\n  a.pop()\n  if len(a) > 1:\n    c()", "if len(a) > 1:\n  a.pop()\n  c()"),
    ("if not a:\n  a[b] = 1\n  if not a:\n    c()", "if not a:\n  a[b] = 1\n  c()"),
    ("return a().removesuffix('.')", "return a()[:-1] if a().endswith('.') else a()"),
    ("setattr(a, '__x', b)", "a.__x = b"),
    ("assert a and b", "assert a or b"),
    ("return {x: [] for x in a}", "return dict.fromkeys(a, [])"),
    ("return a.removesuffix('.')", "return a.removeprefix('.')"),
    ("return open(a, 'w')", "return open(a)"),
    ("for x in a:\n  if b(x):\n    break\nelse:\n  c()", "for x in a:\n  if b(x):\n    break\nc()"),
    ("class X:\n  y = 1\nreturn X", "class X:\n  y = 2\nreturn X"),
    ("class X:\n  def f(self):\n    return a\nreturn X", "class X:\n  def f(self):\n    return b\nreturn X"),
    ("for x in a:\n  y = c(x)\n  if y:\n    return True\nreturn False", "return all(c(x) for x in a)"),
    ("for x in a:\n  if x.t:\n    return x.n\nreturn b", "return next((x.n for x in a if not x.t), b)"),
    ("for x in a:\n  if x.t:\n    return x.n\nreturn b", "return next((x.m for x in a if x.t), b)"),
    ("for x in a:\n  if x.t:\n    return x.n\n  b = x\nreturn b", "return next((x.n for x in a if x.t), b)"),
    ("return a.startswith('x') or a.startswith('y')", "return a.startswith(('x', 'z'))"),
    ("return os.path.join(os.path.join(a, b), 'c')", "return os.path.join(a, 'c', b)"),
    (
        "try:\n  c()\nexcept OSError as e:\n  try:\n    b()\n  except OSError:\n    raise e",
        "try:\n  c()\nexcept OSError:\n  try:\n    b()\n  except OSError:\n    raise",
    ),
    ("return c(lambda x: lambda y: x, 1)", "return c(lambda x: lambda y: y, 1)"),
    ("return c(lambda x, y: x - y)", "return c(lambda x, y: y - x)"),
    ("return c(lambda x=a: x)", "return c(lambda x=b: x)"),
    ("x = 2\nreturn a ** (2 ** (3 - x) + 1)", "return a ** 5"),
    ("return '-D' + str(a)", "return f'-U{a}'"),
    ("x = []\nfor y in a:\n  for z in b:\n    x.append(y + z)\nreturn x", "return [y + z for z in b for y in a]"),
    ("f = a.x if c else a.y\nreturn f(b)", "if c:\n  return a.y(b)\nreturn a.x(b)"),
    ("return any(b == f'{a}{x}' for x in ('p', 'q'))", "return b == f'{a}p' or b == f'{a}r'"),
    ("x = (c(y) for y in a)\nreturn all(z.t for z in x)", "return all(c(y) for y in a)"),
    ("d = {}\nfor x in a:\n  d[x.n] = x\nreturn d", "return {x: x.n for x in a}"),
    ("d = {}\nfor x in a:\n  d[x] = len(d)\nreturn d", "return {x: len(a) for x in a}"),
    ("return c(list(a) + list(b))", "return c([*b, *a])"),
    ("return a.t + [b]", "return [b, *a.t]"),
    # Wrong equalities that somebody found who attacked the comparison.
    ("s = ['-O']\nif a:\n  s.append('-g')\nreturn s + [b]", "s = ['-O']\nif a:\n  s.append('-g')\nreturn ['-O', b]"),
    ("n = [x.t for x in a]\na.append(b)\nreturn n", "a.append(b)\nreturn [x.t for x in a]"),
    ("x = [*a]\na.clear()\nreturn x", "a.clear()\nreturn [*a]"),
    (
        "s = []\nfor x in a:\n  if x in s:\n    continue\n  s.append(x)\n  c(x)",
        "s = []\nfor x in a:\n  s.append(x)\n  c(x)",
    ),
    ("n = len(a)\nfor x in b:\n  c(n)\n  a.append(x)", "for x in b:\n  c(len(a))\n  a.append(x)"),
    ("t = self.x < 3\nwhile t:\n  self.x += 1", "while self.x < 3:\n  self.x += 1"),
    (
        "t = set()\nfor x in a:\n  if x in t:\n    return x\n  t.add(x)",
        "for x in a:\n  t = set()\n  if x in t:\n    return x\n  t.add(x)",
    ),
    ("x = tuple(c(y) for y in a)\nb()\nreturn x", "b()\nreturn tuple(c(y) for y in a)"),
    ("all(c(x) for x in a)\nreturn b", "return b"),
    ("for x in a:\n  if c(x):\n    return True\nreturn True", "return True"),
    ("return c(lambda *, x: x)", "return c(lambda *, x=None: x)"),
    ("n = len(a)\nx = a.pop() if b else 0\nreturn n, x", "x = a.pop() if b else 0\nreturn len(a), x"),
    ("n = self.x\ntry:\n  b()\nfinally:\n  self.x = 1\nreturn n", "try:\n  b()\nfinally:\n  self.x = 1\nreturn self.x"),
    ("self.d = {}\nfor x in a:\n  self.d[x] = len(self.d)", "self.d = {x: len(self.d) for x in a}"),
    ("d = {}\nfor b in a:\n  d[b] = 1\nreturn d, b", "d = {x: 1 for x in a}\nreturn d, b"),
    ("os.replace(a, b)", "pass"),
    ("x = a.get()\ny = a.get()\nreturn x + y", "x = a.get()\nreturn x + x"),
    ("return a.dict()", "return b.dict()"),
    ("self.thread.join(5)\nreturn a", "return a"),
    (
        "n = 100\nfor i, x in enumerate(a):\n  if i >= n:\n    break\n  c(x)",
        "n = 200\nfor i, x in enumerate(a):\n  if i >= n:\n    break\n  c(x)",
    ),
    ("try:\n  c()\nexcept Exception:\n  b()", "try:\n  c()\nexcept BaseException:\n  b()"),
    ("from m1 import f\nreturn f(a)", "from m2 import f\nreturn f(a)"),
    ("n = len(_CACHE)\n_CACHE.clear()\nreturn n", "_CACHE.clear()\nreturn len(_CACHE)"),
    ("for x in a:\n  a.remove(x)", "for x in list(a):\n  a.remove(x)"),
    ("async def g():\n  return 1\nreturn c(g)", "def g():\n  return 1\nreturn c(g)"),
    ("async def g():\n  async with a:\n    b()\nreturn c(g)", "async def g():\n  with a:\n    b()\nreturn c(g)"),
    (
        "async def g():\n  async for x in a:\n    b(x)\nreturn c(g)",
        "async def g():\n  for x in a:\n    b(x)\nreturn c(g)",
    ),
    ("x = (y.t for y in a)\nreturn c(sum(x), sum(x))", "return c(sum(y.t for y in a), sum(y.t for y in a))"),
    (
        "def g(x):\n  return h(x)\ndef h(x):\n  return x.t\nreturn c(g)",
        "def g(x):\n  return h(x)\ndef h(x):\n  return x.s\nreturn c(g)",
    ),
    (
        "n = 0\ndef g():\n  nonlocal n\n  n += 1\nc(g)\nreturn n",
        "n = 0\ndef g():\n  nonlocal n\n  n += 2\nc(g)\nreturn n",
    ),
    (
        "n = 0\ndef g():\n  nonlocal n\n  n += 1\nc(g)\nreturn n",
        "n = 0\ndef g():\n  nonlocal n\n  n += 1\nc(g)\nreturn 0",
    ),
    ("return min(a, b)", "return b"),
    ("return max(a, 0)", "return max(a, 1)"),
    ("return min(a, b, self.c)", "return min(a, b)"),
    ("return max(a, 0)", "return a if a > 1 else 0"),
    ("with open(a) as f:\n  x = f.read()\nc(x)", "with open(b) as f:\n  x = f.read()\nc(x)"),
    ("with open(a, 'w') as f:\n  f.write(b)", "a.write_text(c)"),
    ("with open(a, 'w') as f:\n  f.write(b)\n  c()", "a.write_text(b)\nc()"),
    ("with open(a, 'w') as f:\n  f.write(b)", "with open(a, 'a') as f:\n  f.write(b)"),
    ("class M(T):\n  x = F(1, b)\nreturn M", "class M(T):\n  x = F(2, b)\nreturn M"),
    ("class M(T):\n  @p\n  def f(self): return 1\nreturn M", "class M(T):\n  def f(self): return 1\nreturn M"),
    ("class M(T):\n  x = b\n  y = x\nreturn M", "class M(T):\n  x = b\n  y = c\nreturn M"),
    (
        "try:\n  import foo\n  return a\nexcept ImportError:\n  return b",
        "import foo\ntry:\n  return a\nexcept ImportError:\n  return b",
    ),
    ("x = os.environ.get(K)\nreturn b if x is None else x", "x = os.environ.get(K)\nreturn x or b"),
    ("return a.x if a.n != 0 else b", "return a.x if a.n else b"),
    (
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  x = 1\nelse:\n  x = 2\nc(9)\nreturn x",
        "x = c(1)\nfor y in a:\n  c(y)\nx = 2 if b else 1\nc(9)\nreturn x",
    ),
    (
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  return 1\nc(9)\nreturn x",
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  return 2\nc(9)\nreturn x",
    ),
    (
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  x = 1\nc(9)\nreturn x",
        "x = c(1)\nfor y in a:\n  c(y)\nif b:\n  y = 1\nc(9)\nreturn x",
    ),
    ("x = 0\nfor y in a:\n  x = x + y\nreturn x", "x = 0\nfor y in a:\n  x = y + y\nreturn x"),
    ("x = t = 0\nfor y in a:\n  c(t)\n  t = y\nreturn x", "x = t = 0\nfor y in a:\n  c(t)\n  t = x\nreturn x"),
    (
        "t = 0\nfor y in a:\n  if y:\n    t = t + 1\n  c(y)\nb(t)",
        "t = 0\nfor y in a:\n  if y:\n    t = 1\n  c(y)\nb(t)",
    ),
    ("for y in a:\n  if y:\n    break\n  c(y)\nb()", "for y in a:\n  if y:\n    continue\n  c(y)\nb()"),
    ("for y in a:\n  if y:\n    return\n  c(y)\nb()", "for y in a:\n  if y:\n    break\n  c(y)\nb()"),
    (
        "x = 0\ntry:\n  x = a()\n  c(x)\nexcept ValueError:\n  c()\nb(x)",
        "x = 0\ntry:\n  y = a()\n  c(y)\n  x = y\nexcept ValueError:\n  c()\nb(x)",
    ),
    (
        "def g(y):\n  nonlocal_ = y\n  return y + 1\nc(g)\nreturn a",
        "def g(y):\n  nonlocal_ = y\n  return y + 2\nc(g)\nreturn a",
    ),
    ("x = c(1)\nx += 1\nb(3)\nreturn x", "x = c(1)\nx += 2\nb(3)\nreturn x"),
    (
        "class M:\n  def f(self):\n    return 1\n  def g(self):\n    return 2\nreturn M",
        "class M:\n  def f(self):\n    return 2\n  def g(self):\n    return 2\nreturn M",
    ),
    ("n = 1\ndef g():\n  return n\nn = a\nreturn c(g())", "n = 1\ndef g():\n  return n\nreturn c(g())"),
    (
        "if a == 1:\n  if b == 2:\n    if c == 3:\n      if self.x == 4:\n        c(1)\n        return 2\n        \nreturn 1",
        "if a == 1:\n  if b == 2:\n    if c == 3:\n      if self.x == 4:\n        return 2\n        c(1)\nreturn 1",
    ),
    (
        "if a < 0:\n  raise ValueError\nif b <= 0 or not 0 <= c < b or self.x <= 0:\n  raise ValueError\nreturn a",
        "if not a < 0:\n  raise ValueError\nif b <= 0 or not 0 <= c < b or self.x <= 0:\n  raise ValueError\nreturn a",
    ),
]
#: Bodies of a C++ function that do the same, and bodies that do something else.
SAME_CPP = [
    ("D g; if (a) { g = f(a); } else { g = h(b); } return g;", "if (a) { return f(a); } else { return h(b); }"),
    (
        "D d(a, X::A); v.push_back(d); d = D(b, X::B); v.push_back(d);",
        "v.push_back(D(a, X::A)); v.push_back(D(b, X::B));",
    ),
    ("int64_t x = a; return f((int64_t)x + 1);", "int64_t x = a; return f(x + 1);"),
    ("if (a < 0) return 0; return a;", "if (a < int64_t{0}) return 0; return a;"),
    ("f(a); dim3 x(b); h(x);", "dim3 const x(b); f(a); h(x);"),
    ("f(a); void* x[] = {&a, &b}; h(x);", "void* x[] = {&a, &b}; f(a); h(x);"),
    ("XX(a, N, { if (b) { f<N>(b); } else { f<N>(a); } });", "XX(a, N, { f<N>(b ? b : a); });"),
    ("int lane = a % 32; if (lane == 0) p->x = 1; return b;", "if (a % 32 == 0) { p->x = 1; } return b;"),
    ("int const s = (a == 89) ? 3 : b ? 3 : 2; return s;", "int const s = (a == 89 || b) ? 3 : 2; return s;"),
    ("auto x = p->g; for (int i = 0; i < a; ++i) { h(x[i]); }", "for (int j = 0; j < a; j++) { h(p->g[j]); }"),
    ('os << "a" << a << "\\n"; return 1;', "os << \"a\"; os << a; os << '\\n'; return 1;"),
    ("return a == E::A || a == E::B;", "return a == E::B || a == E::A;"),
    (
        "switch (a) { case 1: return 1; case 2: return 2; default: return 3; }",
        "if (a == 1) return 1; if (a == 2) return 2; return 3;",
    ),
    (
        "std::vector<int> v; v.push_back(a); return v[0];",
        "std::vector<int> w; w.reserve(1); w.push_back(a); return w[0];",
    ),
    ("if (not a and b) return 1; return 2;", "if (!a && b) { return 1; } return 2;"),
    ("if (!a) { return 0; } g(b); return 1;", "if (a) { g(b); return 1; } return 0;"),
    (
        "for (int i = 0; i < a; i++) { if (i == b) continue; h(i); }",
        "for (int i = 0; i < a; i++) { if (i != b) { h(i); } }",
    ),
    (
        "#ifdef X\ng(a);\n#else\nh(a);\n#endif\nint x = a + b; return x;",
        "#ifdef X\ng(a);\n#else\nh(a);\n#endif\nreturn a + b;",
    ),
    (
        "uint32_t* h = p->h; if (h[a] > 0) { g(&b[a], h[a]); }",
        "uint32_t const* h = p->h; if (h[a]) { g(b + a, h[a]); }",
    ),
    ("int x[4]; h(x); int y = a; return x[y];", "int x[4]; h(x); return x[a];"),
    ("v.insert(v.end(), w.begin(), w.end());", "std::copy(w.begin(), w.end(), std::back_inserter(v));"),
    ("Foo x{a, b}; v.push_back(x);", "v.push_back(Foo{a, b});"),
    ("return a / 8 * 8;", "return a - a % 8;"),
    ("return (a + 1) * b;", "int const x = a + 1; return b * x;"),
    ("size_t x = p->n; return x % 32;", "size_t x = p->n; return x & 31;"),
    ("bool const x = (a & 4) != 0; if (x && b) h();", "if ((a & 4) && b) h();"),
    ("v.push_back({a, b}); return v;", "v.emplace_back(a, b); return v;"),
    ("if (!v.empty()) return v.front(); return 0;", "if (v.size() > 0) return v[0]; return 0;"),
    ("if (m.find(a) != m.end()) return 1; return 0;", "return m.count(a) ? 1 : 0;"),
    ("int x = 1; x <<= 1; return x * a;", "return 2 * a;"),
    ("#define T s[0]\nT = a; return T;", "#define T s[0]\nint x = a; T = x; return T;"),
    ("int x = a; static_assert(sizeof(int) == 4); return x;", "static_assert(sizeof(int) == 4); return a;"),
    (
        "M_UNROLL\n  for (int i = 0; i < a; i++) { f(i); } return 1;",
        "M_UNROLL\n  for (int i = 0; i < a; ++i) f(i); return 1;",
    ),
    (
        "switch (a) { case 1: f(); case 2: return 1; default: return 2; }",
        "if (a == 1) f(); return a == 1 || a == 2 ? 1 : 2;",
    ),
    ("std::lock_guard<M> l(a); int x = b; return x;", "std::lock_guard<M> k(a); return b;"),
    ('if (a) X_THROW("no"); return 1;', 'if (!a) { return 1; } X_THROW("no");'),
    ("typedef N::T<int> X; X x; return f(x);", "using X = N::T<int>; X x; return f(x);"),
    ("int x = a; if (x > b) x = b; return h(x);", "int x = std::min(a, b); return h(x);"),
    ("int x = a; if (x > b) x = b; return h(x);", "int x = std::min(b, a); return h(x);"),
    ("int x = a; if (x < 1024) x = 1024; return h(x);", "return h(std::max(1024, a));"),
    (
        "int x = a; if (x < 0) { x = 0; } if (x > b) { x = b; } return h(x);",
        "int x = std::clamp<int>(a, 0, b); return h(x);",
    ),
    ("return h((a + b - 1) / b);", "return h(n::ceilDiv(a, b));"),
    ("Foo x(a, N::B); v.push_back(x); return 1;", "v.push_back(Foo(a, N::B)); return 1;"),
    ("Foo x(a + 1, b); v.push_back(x); return 1;", "v.push_back(Foo(a + 1, b)); return 1;"),
    ("Foo x(a + 1, b); return h(x);", "Foo x = Foo(a + 1, b); return h(x);"),
    (
        "int x = f(a); f(b); if (b) x = 1; else x = 2; f(9); return h(x);",
        "int x = f(a); f(b); x = b ? 1 : 2; f(9); return h(x);",
    ),
    (
        "int x = f(a); f(b); int t = b * 2; x = h(t); f(9); return h(x);",
        "int x = f(a); f(b); x = h(b * 2); f(9); return h(x);",
    ),
    (
        "int x = f(a); f(b); for (int i = 0; i < b; i++) { int t = h(i); f(t); } f(9); return h(x);",
        "int x = f(a); f(b); for (int i = 0; i < b; ++i) { f(h(i)); } f(9); return h(x);",
    ),
    ("using T = n::A<int>; T::f(a); return 1;", "n::A<int>::f(a); return 1;"),
    ("namespace e = n::m; return h(e::K);", "return h(n::m::K);"),
    ("return h((Foo*)p);", "return h(reinterpret_cast<Foo*>(p));"),
    ("if (!p) return 1; return h(p);", "if (p == nullptr) return 1; return h(p);"),
    ("f([&]() { int x = g(a); h(x); }); return 1;", "f([&] { int y = g(a); h(y); }); return 1;"),
    ("auto x = N::Foo(N::A, N::B); h(x, x); return 1;", "N::Foo const x(N::A, N::B); h(x, x); return 1;"),
]
OTHER_CPP = [
    ("D g; if (a) { g = f(a); } else { g = h(b); } return g;", "if (a) { return f(a); } else { return f(b); }"),
    ("D g; g = f(a); g.x(b); return g;", "D g; g.x(b); g = f(a); return g;"),
    (
        "D d(a, X::A); v.push_back(d); d = D(b, X::B); v.push_back(d);",
        "v.push_back(D(a, X::A)); v.push_back(D(a, X::B));",
    ),
    ("int32_t* x = p; return f((int64_t)x + 1);", "int32_t* x = p; return f(x + 1);"),
    ("f(a); dim3 x(b); h(x);", "dim3 const x(a); f(a); h(x);"),
    ("XX(a, N, { if (b) { f<N>(b); } else { f<N>(a); } });", "XX(a, N, { f<N>(b ? a : b); });"),
    ("XX(a, N, { f<N>(b); });", "XX(b, N, { f<N>(b); });"),
    ("return a + 1;", "return a + 2;"),
    ("g(a); h(a);", "h(a); g(a);"),
    ("p->x = 1;", "p->x = 2;"),
    ("member = a;", "member = b;"),
    ("member = a; return 1;", "return 1;"),
    ("std::vector<int> v; v.push_back(a); h(v);", "std::vector<int> v; v.push_back(b); h(v);"),
    ("for (int i = 0; i < a; i++) { h(i); }", "for (int i = 0; i <= a; i++) { h(i); }"),
    ("int x = 1; auto l = [&]() { return x; }; return l();", "int x = 2; auto l = [&]() { return x; }; return l();"),
    ("int x[2] = {1, 2}; h(x);", "int x[2] = {1, 3}; h(x);"),
    ("#pragma unroll\nfor (;;) { h(); }", "for (;;) { h(); }"),
    ("__syncthreads(); h();", "h();"),
    ("int x = a; h(&x); return x;", "int x = a; return x;"),
    ("auto& x = p->v; x = 3; return 1;", "auto& x = p->v; return 1;"),
    (
        "switch (a) { case 1: h(); break; case 2: g(); break; }",
        "switch (a) { case 1: g(); break; case 2: h(); break; }",
    ),
    ("return static_cast<int>(a);", "return static_cast<int64_t>(a);"),
    ("k<<<a, 1>>>(b);", "k<<<b, 1>>>(b);"),
    ('asm volatile("a");', 'asm volatile("b");'),
    ("static int x = 1; return x++;", "static int x = 2; return x++;"),
    ("#ifdef X\ng(a);\n#endif", "#ifndef X\ng(a);\n#endif"),
    ("Foo x{a}; h(x);", "Foo x{b}; h(x);"),
    ("if (a > 0) h();", "if (a != 0) h();"),
    ("g(&b[a]);", "g(&b[0]);"),
    ("v.insert(v.end(), w.begin(), w.end());", "v.insert(v.begin(), w.begin(), w.end());"),
    ("std::copy(w.begin(), w.end(), v.begin());", "std::copy(w.begin(), w.end(), std::back_inserter(v));"),
    ("Foo x{a, b}; v.push_back(x); x.y = 1; h(x);", "v.push_back(Foo{a, b});"),
    ("return a - a % 8;", "return a - b % 8;"),
    ("return a % 32;", "return a & 31;"),
    ("int x = q[0]; __syncthreads(); return x;", "__syncthreads(); return q[0];"),
    ("std::vector<int>& x = p->v; x.clear(); return 1;", "std::vector<int> x = p->v; x.clear(); return 1;"),
    (
        "constexpr int N = 128; for (int i = 0; i < N; i++) h(i);",
        "constexpr int N = 256; for (int i = 0; i < N; i++) h(i);",
    ),
    ("Foo x; Foo y; x.f(a); return y.n;", "Foo x; Foo y; y.f(a); return y.n;"),
    ("v.push_back({a, b}); return v;", "v.emplace_back(b, a); return v;"),
    ("if (!v.empty()) return v.front(); return 0;", "if (v.empty()) return v.front(); return 0;"),
    ("if (m.find(a) != m.end()) return 1; return 0;", "if (m.find(b) != m.end()) return 1; return 0;"),
    ("int x = 1; x <<= 1; return x * a;", "return 4 * a;"),
    ("#define T s[0]\nT = a; return T;", "#define T s[1]\nT = a; return T;"),
    ("static_assert(sizeof(int) == 4); return a;", "static_assert(sizeof(int) == 8); return a;"),
    (
        "M_UNROLL\n  for (int i = 0; i < a; i++) { f(i); } return 1;",
        "M_OTHER\n  for (int i = 0; i < a; i++) { f(i); } return 1;",
    ),
    (
        "switch (a) { case 1: f(); case 2: return 1; default: return 2; }",
        "if (a == 2) f(); return a == 1 || a == 2 ? 1 : 2;",
    ),
    ("std::lock_guard<M> l(a); return b;", "std::lock_guard<M> l(b); return b;"),
    ('if (a) X_THROW("no"); return 1;', 'if (a) { return 1; } X_THROW("no");'),
    ("typedef N::T<int> X; X x; return f(x);", "using X = N::T<long>; X x; return f(x);"),
    ("constexpr int N = 4; g<N>(a); return 1;", "constexpr int N = 8; g<N>(a); return 1;"),
    ("constexpr int N = 4; A<N> x; return f(x);", "constexpr int N = 8; A<N> x; return f(x);"),
    ("X_CHECK_THROW(f(a)); return 1;", "X_CHECK_THROW(f(b)); return 1;"),
    ("int d = 5; f(&d); return d;", "int d = 6; f(&d); return d;"),
    ("p->reset(); return 1;", "p.reset(); return 1;"),
    ("typedef const int X; X x = a; return f(x);", "typedef int X; X x = a; return f(x);"),
    (
        "switch (g()) { case 1: f(); break; case 2: h(); break; } return 0;",
        "if (g() == 1) f(); else if (g() == 2) h(); return 0;",
    ),
    ("t.join(); return 1;", "return 1;"),
    (
        "int x = q[0]; for (int i = 0; i < a; i++) { q[0] = x + i; } return 0;",
        "for (int i = 0; i < a; i++) { q[0] = q[0] + i; } return 0;",
    ),
    ("return h(std::min(a, b));", "return h(std::max(a, b));"),
    ("return h(std::min(a, b));", "return h(a);"),
    ("return h(std::min(a, 4));", "return h(std::min(a, 5));"),
    ("return h(std::clamp(a, 0, b));", "return h(std::clamp(b, 0, a));"),
    ("return h(n::ceilDiv(a, b));", "return h(n::ceilDiv(b, a));"),
    ("return h(n::ceilDiv(a, b));", "return h(a / b);"),
    ("M x(a + 1); f(b); return 1;", "M(a + 1); f(b); return 1;"),
    ("M x(a); f(b); return 1;", "M(a); f(b); return 1;"),
    ("Foo x(a, N::B); v.push_back(x); return 1;", "Foo x(a, N::C); v.push_back(x); return 1;"),
    ("int x = a; if (x > b) x = b; return h(x);", "int x = a; if (x > b + 1) x = b; return h(x);"),
    (
        "int x = f(a); f(b); if (b) x = 1; else x = 2; f(9); return h(x);",
        "int x = f(a); f(b); x = b ? 2 : 1; f(9); return h(x);",
    ),
    (
        "int x = f(a); f(b); int t = b * 2; x = h(t); f(9); return h(x);",
        "int x = f(a); f(b); x = h(b * 3); f(9); return h(x);",
    ),
    (
        "int x = f(a); f(b); for (int i = 0; i < b; i++) { f(x); x = i; } f(9); return h(x);",
        "int x = f(a); f(b); for (int i = 0; i < b; i++) { x = i; f(x); } f(9); return h(x);",
    ),
    (
        "int x = f(a); f(b); { int x = b; f(x); } f(9); return h(x);",
        "int x = f(a); f(b); { x = b; f(x); } f(9); return h(x);",
    ),
    ("using T = n::A<int>; T::f(a); return 1;", "n::A<long>::f(a); return 1;"),
    ("namespace e = n::m; return h(e::K);", "return h(n::K);"),
    ("auto x = N::Foo(N::A, N::B); h(x, x); return 1;", "N::Foo const x(N::A, N::C); h(x, x); return 1;"),
    ("f([&] { int x = g(a); h(x); }); return 1;", "f([&] { int x = g(a); h(a); }); return 1;"),
    (
        "f([&] { int x = g(a); int y = g(b); h(x); }); return 1;",
        "f([&] { int x = g(a); int y = g(b); h(y); }); return 1;",
    ),
]


def version(body: str) -> FunctionVersion:
    node = ast.parse(f"def f(self, a, b, c):\n{textwrap.indent(body, '  ')}").body[0]
    assert isinstance(node, FunctionNode)
    return FunctionVersion(node, {}, {})


def version_cpp(body: str) -> FunctionVersion:
    file = read_cpp(f"int f(int a, int b, Foo* p, std::ostream& os) {{\n{body}\n}}".encode())
    function = file.nodes["f"][0]
    return FunctionVersion(python_of(*without_aliases(file, function, aliases_of(file, function))), {}, {}, is_cpp=True)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_functions_do_the_same_however_they_are_written(one: str, other: str) -> None:
    assert do_the_same(version(one), version(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_functions_that_do_something_else_are_told_apart(one: str, other: str) -> None:
    assert do_the_same(version(one), version(one))
    assert not do_the_same(version(one), version(other))


@pytest.mark.parametrize(("one", "other"), SAME_CPP)
def test_cpp_functions_do_the_same_however_they_are_written(one: str, other: str) -> None:
    assert do_the_same(version_cpp(one), version_cpp(other))


@pytest.mark.parametrize(("one", "other"), OTHER_CPP)
def test_cpp_functions_that_do_something_else_are_told_apart(one: str, other: str) -> None:
    assert do_the_same(version_cpp(one), version_cpp(one))
    assert not do_the_same(version_cpp(one), version_cpp(other))


def mutants(function: FunctionNode) -> Iterator[FunctionNode]:
    """Yield a function with one comparison, number or called name changed at a time."""
    for position, _ in enumerate(_body(function)):
        mutant = copy.deepcopy(function)
        found = _body(mutant)[position]
        if isinstance(found, ast.Compare) and isinstance(found.ops[0], ast.Lt | ast.GtE | ast.In):
            found.ops[0] = ast.NotIn() if isinstance(found.ops[0], ast.In) else ast.Gt()
        elif isinstance(found, ast.Constant) and type(found.value) is int:
            found.value += 7
        elif isinstance(found, ast.Call) and isinstance(found.func, ast.Attribute):
            found.func.attr += "_other"
        else:
            continue
        yield mutant


def _body(function: FunctionNode) -> list[ast.AST]:
    return [node for statement in function.body for node in ast.walk(statement)]


@pytest.mark.parametrize("module", [inspect, shutil, dis])
def test_no_changed_function_of_the_standard_library_has_the_same_effect(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    count = 0
    for node in tree.body:
        if not isinstance(node, FunctionNode) or any(
            isinstance(each, ast.Raise | ast.Assert) for each in ast.walk(node)
        ):
            continue
        for mutant in mutants(node):
            count += 1
            assert not do_the_same(FunctionVersion(node, {}, {}), FunctionVersion(mutant, {}, {})), ast.unparse(mutant)
    assert count >= 10


def test_a_function_with_an_equal_effect_gets_its_old_body_and_others_keep_theirs() -> None:
    old = b"def f(a):\n    x = a.b\n    return x\n\n\ndef g(a):\n    return 1\n"
    new = b"def f(a):\n    return a.b\n\n\ndef g(a):\n    return 2\n"
    text, shifts = replaced(new, restore_python(old, new))
    assert text == old.replace(b"return 1", b"return 2")
    assert shifts == [(4, 1)]


def test_an_extracted_function_is_put_back() -> None:
    old = b"def f(a):\n    g(a)\n    return a.b + 1\n"
    new = b"def f(a):\n    g(a)\n    return _part(a)\n\n\ndef _part(a):\n    return a.b + 1\n"
    text, _ = replaced(new, restore_python(old, new))
    assert text.rstrip() == old.rstrip()


def test_a_function_that_both_versions_have_takes_the_place_of_its_code_unless_a_patch_changes_it() -> None:
    helper = b"def part(a):\n    return a.b + 1\n\n\n"
    inline, calling = b"def f(a):\n    return a.b + 1\n", b"def f(a):\n    return part(a)\n"
    for old, new in ((inline, calling), (calling, inline)):
        assert restore_python(helper + old, helper + new)
        assert not restore_python(helper + old, helper.replace(b"1", b"2") + new)
        assert not restore_python(helper + old, helper + new, patched={"part"})


def test_a_function_of_cpp_that_both_versions_have_takes_the_place_of_its_code_unless_a_patch_changes_it() -> None:
    helper = b"int up(int a, int b) {\n  if (a % b) {\n    a += b - a % b;\n  }\n  return a;\n}\n"
    old = helper + b"int f(int x) {\n  g(x);\n  if (x % 8) {\n    x += 8 - x % 8;\n  }\n  return x;\n}\n"
    new = helper + b"int f(int x) {\n  g(x);\n  return up(x, 8);\n}\n"
    assert restore_cpp(old, new)
    assert not restore_cpp(old, new.replace(b"up(x, 8)", b"up(x, 4)"))
    assert not restore_cpp(old, new, patched={"up"})


def test_a_renamed_function_that_a_patch_calls_is_not_put_back() -> None:
    old = b"def f(a):\n    return _part(a)\n\n\ndef _part(a):\n    return a.b + 1\n"
    assert restore_python(old, old.replace(b"_part", b"_other"))
    assert not restore_python(old, old.replace(b"_part", b"_other"), patched={"_part"})
    cpp = b"int part(int a) {\n  return a + 1;\n}\nint f(int a) {\n  return part(a);\n}\n"
    assert restore_cpp(cpp, cpp.replace(b"part", b"other"))
    assert not restore_cpp(cpp, cpp.replace(b"part", b"other"), patched={"part"})


def test_a_new_constant_is_removed_with_its_only_use() -> None:
    old = b"def f(a):\n    for x in ('a', 'b'):\n        a.g(x)\n"
    new = b"NAMES = (\n    'a',\n    'b',\n)\n\n\ndef f(a):\n    for x in NAMES:\n        a.g(x)\n"
    text, _ = replaced(new, restore_python(old, new))
    assert text.strip() == old.strip()
    used = new + b"\n\ndef h():\n    return NAMES\n"
    assert b"NAMES = (" in replaced(used, restore_python(old + b"\n\ndef h():\n    return 1\n", used))[0]


def test_a_helper_with_another_loop_is_another_function() -> None:
    old = b"def f(a):\n    return _g(a)\n\n\ndef _g(a):\n    t = 0\n    for x in a:\n        t += x\n    return t\n"
    new = old.replace(b"_g", b"_h").replace(b"+=", b"-=")
    assert not restore_python(old, new)


@pytest.mark.parametrize(
    "body",
    [
        "class X:\n  def f(self):\n    while True:\n      pass\nreturn X",
        "return len(a, b)",
        "return range(2**70)",
        "x = (y for y in x)\nreturn sum(x)",
        "return (-8) ** 0.5",
        "x = [1]\ndel x[5]",
        "while True:\n  c()",
        "x = [1]\nfor y in range(64):\n  x += x\nreturn x",
        "x = [1]\nfor y in range(64):\n  x = x + x\nreturn x",
        "x = a\nfor y in range(64):\n  x = (x, x)\nreturn x",
        "x = a\nfor y in range(64):\n  x = f'{x}{x}'\nreturn x",
        "return c(**['a'])",
    ],
)
def test_any_function_can_be_run(body: str) -> None:
    do_the_same(version(body), version(body))


def test_another_type_of_a_local_variable_is_another_function() -> None:
    old = b"int f(int a) {\n  int x = a * a;\n  return g(x);\n}\n"
    assert not restore_cpp(old, old.replace(b"int x", b"int64_t x"))
    assert restore_cpp(old, old.replace(b"int x", b"auto y").replace(b"g(x)", b"g(y)"))


def test_a_function_that_loses_a_variable_that_a_patch_reads_is_not_restored() -> None:
    old = b"def f(a):\n    x = a.b\n    return x\n"
    new = b"def f(a):\n    y = a.b\n    return y\n"
    assert restore_python(old, new)
    assert not restore_python(old, new, {"f": {"x"}})


def test_cpp_functions_get_their_old_bodies() -> None:
    old = b"namespace n {\nint f(int a) {\n  int x = a + 1;\n  return x;\n}\n}\n"
    new = b"namespace n {\nint part(int a) { return a + 1; }\nint f(int a) { return part(a); }\n}\n"
    text, _ = replaced(new, restore_cpp(old, new))
    assert b"int x = a + 1;" in text
    assert b"part" not in text


NAMED = (b"struct S {\n  int f(int a) {\n    return g(a & 4096);\n  }\n};\n", b"constexpr int MASK = 4096;\n")


def test_a_constant_of_cpp_stands_for_its_number() -> None:
    old, constant = NAMED
    new = constant + old.replace(b"& 4096", b"& MASK")
    assert restore_cpp(old, new)
    assert not restore_cpp(old, new.replace(b"MASK = 4096", b"MASK = 8192"))
    assert not restore_cpp(old, new.replace(b"constexpr int", b"int"))
    assert restore_cpp(constant + old, new)


def test_a_name_for_a_type_of_a_file_stands_for_the_type() -> None:
    old = b"int f(int a) {\n  return n::A<int>::g(a);\n}\n"
    new = b"using T = n::A<int>;\nint f(int a) {\n  return T::g(a);\n}\n"
    assert restore_cpp(old, new)
    assert not restore_cpp(old, new.replace(b"A<int>", b"A<long>"))


def test_the_names_of_parameters_of_cpp_do_not_count_but_their_order_does() -> None:
    old = b"int f(int a, int b) {\n  return g(a) - b;\n}\n"
    assert restore_cpp(old, b"int f(int x, int y) {\n  return g(x) - y;\n}\n")
    assert not restore_cpp(old, b"int f(int b, int a) {\n  return g(a) - b;\n}\n")


def test_members_that_an_initializer_sets_are_assigned() -> None:
    old = b"struct A {\n  A(int x, int y) {\n    mA = x;\n    mB = y;\n    f(x);\n  }\n};\n"
    new = b"struct A {\n  A(int x, int y) : mA(x), mB(y) {\n    f(x);\n  }\n};\n"
    assert restore_cpp(old, new)
    assert not restore_cpp(old, new.replace(b"mB(y)", b"mB(x)"))
    assert not restore_cpp(old, new.replace(b", mB(y)", b""))


HELPER = b"import os\n\n\ndef part(a):\n    return os.stat(a).b + 1\n"


def test_a_new_or_unchanged_function_of_another_file_takes_the_place_of_its_code() -> None:
    old = b"import os\n\n\ndef f(a):\n    return os.stat(a).b + 1\n"
    new = b"from .other import part\n\n\ndef f(a):\n    return part(a)\n"
    assert restore_python(old, new, {}, lambda node: (b"", HELPER))
    assert restore_python(old, new, {}, lambda node: (HELPER, HELPER))
    assert not restore_python(old, new, {}, lambda node: (HELPER, HELPER), {"part"})
    assert not restore_python(old, new, {}, lambda node: (HELPER.replace(b"1", b"2"), HELPER))
    assert not restore_python(old, new, {}, lambda node: (b"", HELPER.replace(b"1", b"2")))
    # It reads a global name of its own file.
    assert not restore_python(old, new, {}, lambda node: (b"", HELPER.replace(b"import os", b"os = 1")))


def test_how_a_name_is_imported_makes_no_difference() -> None:
    old = b"from p import version as v\n\n\ndef f(a):\n    return v.parse(a)\n"
    assert restore_python(old, b"from p.version import parse\n\n\ndef f(a):\n    return parse(a)\n")
    assert not restore_python(old, b"from q.version import parse\n\n\ndef f(a):\n    return parse(a)\n")


def test_code_that_is_not_translated_does_not_hide_a_change_elsewhere() -> None:
    loop = "  for (auto& y : v) {\n    y = a;\n  }\n"
    old = f"int f(int a, V& v) {{\n  int x = a + 1;\n  g(x);\n{loop}  return a;\n}}\n".encode()
    assert restore_cpp(old, old.replace(b"int x = a + 1;\n  g(x);", b"g(a + 1);"))
    assert not restore_cpp(old, old.replace(b"int x = a + 1;\n  g(x);", b"g(a + 2);"))
    assert not restore_cpp(old, old.replace(b"y = a;", b"y = 2;"))


def test_lambdas_of_cpp_are_compared_by_what_they_do() -> None:
    old = b"int f(int a, V& v) {\n  auto g = [&](int r) {\n    int q = r / a;\n    return q;\n  };\n  return h(v, g);\n}\n"
    assert restore_cpp(old, old.replace(b"int q = r / a;\n    return q;", b"return r / a;"))
    assert not restore_cpp(old, old.replace(b"int q = r / a;\n    return q;", b"return a / r;"))


def test_a_variable_may_be_taken_from_another_place_between_the_first_and_the_last_change() -> None:
    old = b"def f(a, b):\n    if b.x:\n        raise E\n    a.g(b.n)\n    a.h()\n    a.k(b.n)\n    return a\n"
    new = old.replace(b"a.g(b.n)", b"n = b.n\n    a.g(n)").replace(b"a.k(b.n)", b"a.k(n)")
    assert restore_python(old, new)
    assert not restore_python(old, new.replace(b"a.k(n)", b"a.k(b)"))


def test_an_empty_statement_before_a_block_is_no_macro() -> None:
    old = b"int f(int a) {\n  g(a);;\n  { h(a); }\n  int x = a;\n  return x;\n}\n"
    assert restore_cpp(old, old.replace(b"int x = a;\n  return x;", b"return a;"))
    assert not restore_cpp(old, old.replace(b"h(a)", b"h(1)"))
