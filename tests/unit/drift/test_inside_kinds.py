"""Changes of every kind that a patch relies on, and changes that must raise nothing, in small trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from patchq.drift.alarms import Alarm
from patchq.drift.inside import PatchFacts
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry, blob_id

FILES = {
    "pkg/__init__.py": "",
    "pkg/envs.py": """\
import os

environment = {
    "PKG_FAST": lambda: os.environ.get("PKG_FAST", "0") == "1",
    "PKG_OTHER": lambda: os.environ.get("PKG_OTHER", "x"),
}


def __getattr__(name):
    return environment[name]()
""",
    "pkg/config.py": """\
import enum
from dataclasses import dataclass

LIMITS = (1, 2)


class Mode(enum.IntEnum):
    SLOW = 1
    FAST = 2


@dataclass
class Config:
    mode: Mode = Mode.SLOW
    limit: int = 8
    name: str = "x"


class LoadError(ValueError):
    pass
""",
    "pkg/ops.py": """\
import logging

from pkg.config import LoadError

logger = logging.getLogger(__name__)


def load(x, limit, stride=1):
    result = x
    for _ in range(limit):
        result = result + stride
    return result


def try_load(x, count):
    if count < 0:
        raise LoadError("negative")
    return x + count


def pair(x):
    total = x + 1
    return total, x


def kernel(x, BLOCK=1):
    x.store(BLOCK)


def unrelated(a, b=1):
    return a + b


def shaped(x):
    return Wrapped(x=x)


class Platform:
    def capable(self, level, device=0):
        return level > device


class Cuda(Platform):
    def capable(self, level, device=0):
        return level > 1
""",
    "pkg/base.py": """\
class Layer:
    def __init__(self, config):
        self.width = config.limit + 1
        self.kind = "plain"

    @property
    def size(self):
        return self.width * 2

    def prepare(self, x):
        return x

    def forward(self, x, flag):
        return x
""",
    "pkg/registry.py": """\
from pkg.ops import load, pair

TABLE = {"fast": load, "pair": pair}
NAMES = {}


def register(name):
    def keep(function):
        NAMES[name] = function
        return function

    return keep


def find(name):
    return NAMES[name]


@register("quickest")
def quickest(x):
    return x
""",
    "pkg/main.py": """\
from pkg import envs
from pkg.base import Layer
from pkg.config import LIMITS, Config, LoadError, Mode
from pkg.ops import kernel, load, pair, shaped, try_load
from pkg.registry import TABLE, find


class Mine(Layer):
    def __init__(self, config: Config):
        super().__init__(config)
        self.config = config
        self.scale = 2

    def forward(self, x, flag):
        y = x * self.scale
        note = "start"
        if flag:
            y = y + 1
        z = y * 2
        extra = note + "!"
        self.last = extra
        return z

    def other(self, x):
        return x


def measure(x):
    return x


def driver(layer: Mine, x):
    if x is None:
        return None
    shifted = x + 1
    measure(shifted)
    return layer.forward(x, True)


ENTRIES = {"measure": measure}
""",
    "csrc/tile.cuh": """\
#pragma once
namespace tiles {
constexpr int kTile = 128;
constexpr int kHalf = 64;
constexpr int kWhole = kHalf * 2;
struct Params {
  int rows;
  int columns;
  float scale;
};
enum Mode { kSlow, kFast };
__device__ inline int clip(int value, int most) { return value < most ? value : most; }
template <int N, typename T>
__device__ void store(T* out, int value) {
  out[value] = N;
}
template <int N>
__global__ void __launch_bounds__(256) run(float* out, int n) {
  out[n] = N;
}
}  // namespace tiles
""",
    "csrc/kernel.cu": """\
#include "tile.cuh"
namespace tiles {
__global__ void __launch_bounds__(128) kernel(float* out, int n) {
  int i = threadIdx.x;
  int unused = n + 1;
  out[i] = n;
}

void launch(float* out, int n) {
  kernel<<<1, 128>>>(out, n);
}
}  // namespace tiles
""",
}
PATCH = {
    "pkg/main.py": [
        (
            "        z = y * 2\n",
            """\
        z = y * 2
        if self.config.mode == Mode.FAST and envs.PKG_FAST:
            z = load(z, self.config.limit)
            z = TABLE["fast"](z, 1)
            z, _ = pair(z)
            kernel[(1,)](z)
            z = find("quickest")(z)
            z = z + flag.capable(8) + shaped(z)
            try:
                z = try_load(z, LIMITS[0])
            except LoadError:
                z = self.prepare(z) + self.width + self.size
""",
        ),
        ("def measure(x):\n    return x\n", "def measure(x):\n    return x + 1\n"),
    ],
    "csrc/kernel.cu": [
        (
            "  out[i] = n;\n",
            """\
  Params params{n, kTile, 1.0f};
  if (params.rows < kTile) store<4>(out, clip(i, n));
  out[i] = n + kFast + kWhole;
""",
        ),
        ("  kernel<<<1, 128>>>(out, n);\n", "  kernel<<<1, 128>>>(out, n);\n  run<2><<<1, 256>>>(out, n);\n"),
    ],
}

Edit = tuple[str, str, str]


def edited(files: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str]:
    """Return files after edits: path, old text (empty for a new file or an appended part) and new text."""
    found = dict(files)
    for path, before, after in edits:
        if before:
            assert found[path].count(before) == 1, (path, before)
            found[path] = found[path].replace(before, after)
        else:
            found[path] = found.get(path, "") + after
    return found


def compared(edits: Sequence[Edit], removed: Sequence[str] = ()) -> tuple[Alarm, ...]:
    """Return the alarms of the patch for a new version with edits."""
    patched = edited(FILES, [(path, *pair) for path, pairs in PATCH.items() for pair in pairs])
    new = {path: text for path, text in edited(FILES, edits).items() if path not in removed}
    blobs = {blob_id(t.encode()): t.encode() for files in (FILES, patched, new) for t in files.values()}

    def tree(files: Mapping[str, str]) -> dict[bytes, TreeEntry]:
        return {path.encode(): TreeEntry(b"100644", blob_id(text.encode())) for path, text in files.items()}

    before, after = tree(FILES), tree(patched)
    changes = [PathChange(path.encode(), before[path.encode()], after[path.encode()]) for path in PATCH]
    facts = PatchFacts("up", [("mine", changes)], before, lambda wanted: {b: blobs[b] for b in wanted})
    return facts.compare(tree(new), ignored=["tests/*"]).alarms


OPS, BASE, MAIN, TILE, KERNEL = "pkg/ops.py", "pkg/base.py", "pkg/main.py", "csrc/tile.cuh", "csrc/kernel.cu"
CONFIG, REGISTRY, ENVS = "pkg/config.py", "pkg/registry.py", "pkg/envs.py"
SUBCLASS = "from pkg.main import Mine\n\n\nclass Special(Mine):\n    def forward(self, x, flag):\n        "

DRIFTS: dict[str, list[Edit]] = {
    "parameters swapped": [(OPS, "def load(x, limit,", "def load(limit, x,")],
    "parameter of a method that subclasses override": [(OPS, "class Platform:\n    def capable(self, level, device=0)", "class Platform:\n    def capable(self, device, level=0)")],
    "caller's variable": [(MAIN, "measure(shifted)", "measure(x)")],
    "C++ constant in a constant": [(TILE, "kHalf = 64", "kHalf = 32")],
    "parameter inserted": [(OPS, "def try_load(x, count)", "def try_load(x, scale, count)")],
    "parameter became keyword-only": [(OPS, "def try_load(x, count)", "def try_load(x, *, count)")],
    "default": [(OPS, "stride=1", "stride=2")],
    "default of a launched kernel": [(OPS, "BLOCK=1", "BLOCK=2")],
    "another order of results": [(OPS, "return total, x", "return x, total")],
    "one more result": [(OPS, "return total, x", "return total, x, 1")],
    "None instead of a value": [(OPS, "    return x + count", "    if count == 0:\n        return None\n    return x + count")],
    "None at the end": [(OPS, "    return x + count", "    if count:\n        return x + count")],
    "another exception": [(OPS, "raise LoadError(", "raise RuntimeError(")],
    "new exception": [(OPS, "    result = x\n", "    if limit > 4:\n        raise OverflowError(limit)\n    result = x\n")],
    "base of an exception": [(CONFIG, "LoadError(ValueError)", "LoadError(OSError)")],
    "decorator": [(OPS, "def load(", "@functools.cache\ndef load(")],
    "async": [(OPS, "def try_load", "async def try_load")],
    "property became a method": [(BASE, "    @property\n", "")],
    "method became a property": [(BASE, "    def prepare(self, x):", "    @property\n    def prepare(self):")],
    "method became an attribute": [
        (BASE, "    def prepare(self, x):\n        return x\n\n", ""),
        (BASE, '        self.kind = "plain"', '        self.prepare = 1'),
    ],
    "attribute removed": [(BASE, "        self.width = config.limit + 1\n", ""), (BASE, "self.width * 2", "2")],
    "constant instead of a computed attribute": [(BASE, "config.limit + 1", "1")],
    "value of an attribute": [(BASE, "config.limit + 1", "config.limit + 2")],
    "tuple constant": [(CONFIG, "(1, 2)", "(2, 1)")],
    "enum member": [(CONFIG, "FAST = 2", "FAST = 3")],
    "enum member renamed": [(CONFIG, "FAST = 2", "QUICK = 2")],
    "base of an enum": [(CONFIG, "enum.IntEnum", "enum.Enum")],
    "field default": [(CONFIG, "limit: int = 8", "limit: int = 16")],
    "field renamed": [(CONFIG, "limit: int = 8", "most: int = 8")],
    "field became a property": [(CONFIG, "    limit: int = 8\n", ""), (CONFIG, '    name: str = "x"\n', '    name: str = "x"\n\n    def limit(self):\n        return 8\n')],
    "environment variable's default": [(ENVS, '"PKG_FAST", "0"', '"PKG_FAST", "1"')],
    "environment variable's name": [(ENVS, 'get("PKG_FAST"', 'get("PKG_QUICK"')],
    "environment variable removed": [(ENVS, '    "PKG_FAST": lambda: os.environ.get("PKG_FAST", "0") == "1",\n', "")],
    "entry of a table": [(REGISTRY, '"fast": load', '"fast": pair')],
    "key of a table": [(REGISTRY, '"fast": load', '"quick": load')],
    "registered name": [(REGISTRY, '@register("quickest")', '@register("best")')],
    "function removed": [(OPS, "def try_load", "def attempt")],
    "other function imported": [
        ("pkg/more.py", "", "def load(x, limit, stride=1):\n    return None\n"),
        (MAIN, "kernel, load, pair", "kernel, pair"),
        (MAIN, "from pkg.registry", "from pkg.more import load\nfrom pkg.registry"),
    ],
    "function replaced by a later assignment": [(OPS, "def unrelated", "load = try_load\n\n\ndef unrelated")],
    "second definition": [(OPS, "def unrelated", "def load(x, limit, stride=1):\n    return x\n\n\ndef unrelated")],
    "condition around a function": [(OPS, "def kernel(x, BLOCK=1):\n    x", "if logger:\n    def kernel(x, BLOCK=1):\n        x")],
    "early return": [(MAIN, "        if flag:\n", "        if x is None:\n            return x\n        if flag:\n")],
    "early return before everything": [(MAIN, "        y = x * self.scale\n", "        if not x:\n            return 0\n        y = x * self.scale\n")],
    "condition around the place": [
        (MAIN, "        z = y * 2\n        extra", "        z = y * 2\n        if not flag:\n            return z\n        extra"),
    ],
    "value that the patch reads": [(MAIN, "            y = y + 1\n", "            y = y + 3\n")],
    "value that leads to one that the patch reads": [(MAIN, "y = x * self.scale", "y = x / self.scale")],
    "what is done with the patch's value": [(MAIN, "        return z\n", "        return -z\n")],
    "caller's condition": [(MAIN, "    return layer.forward", "    if layer.config is None:\n        return x\n    return layer.forward")],
    "caller's condition in another form": [(MAIN, "    if x is None:", "    if x is None or x < 0:")],
    "caller's argument": [(MAIN, "forward(x, True)", "forward(x, False)")],
    "call removed": [(MAIN, "return layer.forward(x, True)", "return layer.other(x)")],
    "entry of a patched function removed": [(MAIN, 'ENTRIES = {"measure": measure}', "ENTRIES = {}")],
    "new caller": [(BASE, "", "\n\ndef again(x):\n    from pkg.main import measure\n\n    return measure(x)\n")],
    "new override": [("pkg/special.py", "", SUBCLASS + "return x\n")],
    "base class": [(MAIN, "class Mine(Layer)", "class Mine(object)")],
    "overridden method": [(BASE, "def forward(self, x, flag)", "def forward(self, flag, x)")],
    "class decorator": [(MAIN, "class Mine", "@final_class\nclass Mine")],
    "function decorator": [(MAIN, "def measure", "@cached\ndef measure")],
    "C++ parameters swapped": [(TILE, "clip(int value, int most)", "clip(int most, int value)")],
    "C++ parameter type": [(TILE, "clip(int value, int most)", "clip(float value, int most)")],
    "C++ parameter added": [(TILE, "clip(int value, int most)", "clip(int value, int most, int least)")],
    "C++ return type": [(TILE, "inline int clip", "inline float clip")],
    "C++ qualifier": [(TILE, "__device__ inline int clip", "__host__ inline int clip")],
    "C++ operator": [(TILE, "value < most ?", "value <= most ?")],
    "C++ constant": [(TILE, "kTile = 128", "kTile = 64")],
    "C++ type of a constant": [(TILE, "constexpr int kTile", "constexpr float kTile")],
    "C++ enumerator": [(TILE, "{ kSlow, kFast }", "{ kSlow, kMedium, kFast }")],
    "C++ field order": [(TILE, "  int rows;\n  int columns;\n", "  int columns;\n  int rows;\n")],
    "C++ field inserted": [(TILE, "  int columns;\n", "  int depth;\n  int columns;\n")],
    "C++ field type": [(TILE, "  int rows;", "  float rows;")],
    "C++ field removed": [(TILE, "  int rows;\n", "")],
    "C++ template parameters": [(TILE, "template <int N, typename T>", "template <typename T, int N>")],
    "C++ function removed": [(TILE, "int clip(", "int clamp(")],
    "C++ condition": [(TILE, "constexpr int kTile = 128;", "#ifdef BIG\nconstexpr int kTile = 128;\n#endif")],
    "C++ namespace": [(TILE, "namespace tiles {\n", "namespace tiles { namespace detail {\n"), (TILE, "}  // namespace tiles", "}}")],
    "C++ static_assert on a used name": [(TILE, "struct Params", "static_assert(kTile <= 64);\nstruct Params")],
    "C++ static_assert in a called function": [(TILE, "  out[value] = N;", "  static_assert(N < 4);\n  out[value] = N;")],
    "C++ launch bounds of a launched kernel": [(TILE, "__launch_bounds__(256)", "__launch_bounds__(128)")],
    "C++ launch bounds of the patched kernel": [(KERNEL, "__launch_bounds__(128)", "__launch_bounds__(64)")],
    "C++ launched kernel's parameters": [(TILE, "run(float* out, int n)", "run(int n, float* out)")],
    "C++ value that the patch reads": [(KERNEL, "i = threadIdx.x", "i = threadIdx.y")],
    "C++ early return": [(KERNEL, "  int unused", "  if (i > n) return;\n  int unused")],
    "C++ launch": [(KERNEL, "kernel<<<1, 128>>>(out, n);", "if (n) kernel<<<1, 128>>>(out, n);")],
    "C++ header no longer included": [(KERNEL, '#include "tile.cuh"\n', "")],
}  # fmt: skip

BENIGN: dict[str, list[Edit]] = {
    "overridden method, with the patched override": [(BASE, "def forward(self, x, flag)", "def forward(self, x, flag, more)"), (MAIN, "def forward(self, x, flag)", "def forward(self, x, flag, more)"), (MAIN, "forward(x, True)", "forward(x, True, x)")],
    "caller's variable renamed": [(MAIN, "    shifted = x + 1\n    measure(shifted)", "    moved = x + 1\n    measure(moved)")],
    "comment and docstring": [(OPS, "    result = x\n", '    """Load."""\n    # why\n    result = x\n')],
    "annotations": [(OPS, "def load(x, limit, stride=1):", "def load(x: int, limit: int, stride: int = 1) -> int:")],
    "local variable renamed in a called function": [
        (OPS, "    result = x\n", "    found = x\n"), (OPS, "        result = result + stride\n    return result", "        found = found + stride\n    return found"),
    ],
    "local variable renamed in the patched function": [(MAIN, '        note = "start"', '        text = "start"'), (MAIN, 'note + "!"', 'text + "!"')],
    "log message": [(OPS, "    result = x\n", '    logger.info("loading")\n    result = x\n')],
    "log message in the patched function": [(MAIN, '        note = "start"\n', '        note = "start"\n        print(note)\n')],
    "message of an exception": [(OPS, '"negative"', 'f"negative: {count}"')],
    "keyword-only parameter with default": [(OPS, "stride=1):", "stride=1, *, check=False):")],
    "optional parameter that is passed on": [(OPS, "def shaped(x):\n    return Wrapped(x=x)", "def shaped(x, more=None):\n    return Wrapped(x=x, more=more or {})")],
    "optional parameter": [(OPS, "def pair(x):", "def pair(x, y=None):")],
    "parameters of an unrelated function": [(OPS, "def unrelated(a, b=1)", "def unrelated(b, a, c)")],
    "unrelated function removed": [(OPS, "def unrelated(a, b=1):\n    return a + b\n", "")],
    "unrelated enum member": [(CONFIG, "    FAST = 2", "    FAST = 2\n    FASTEST = 3")],
    "unrelated field": [(CONFIG, '    name: str = "x"', '    name: str = "x"\n    more: int = 3')],
    "unrelated environment variable": [(ENVS, '"PKG_OTHER", "x"', '"PKG_OTHER", "y"')],
    "unrelated entry": [(REGISTRY, '"pair": pair}', '"pair": pair, "more": pair}')],
    "entries reordered": [(REGISTRY, '{"fast": load, "pair": pair}', '{"pair": pair, "fast": load}')],
    "functions reordered": [
        (OPS, "def pair(x):\n    total = x + 1\n    return total, x\n\n\n", ""), (OPS, "def unrelated", "def pair(x):\n    total = x + 1\n    return total, x\n\n\ndef unrelated"),
    ],
    "fields reordered by name only use": [(BASE, '        self.width = config.limit + 1\n        self.kind = "plain"', '        self.kind = "plain"\n        self.width = config.limit + 1')],
    "helper extracted from a called function": [
        (OPS, "    if count < 0:\n        raise LoadError(\"negative\")\n    return x + count", "    _check(count)\n    return x + count"),
        (OPS, "def pair", 'def _check(count):\n    if count < 0:\n        raise LoadError("negative")\n\n\ndef pair'),
    ],
    "helper extracted from the patched function": [
        (MAIN, "        y = x * self.scale\n", "        y = self._scaled(x)\n"),
        (MAIN, "    def other", "    def _scaled(self, value):\n        return value * self.scale\n\n    def other"),
    ],
    "helper of several statements extracted from the patched function": [
        (MAIN, '        y = x * self.scale\n        note = "start"\n        if flag:\n            y = y + 1\n', '        y = self._scaled(x, flag)\n        note = "start"\n'),
        (MAIN, "    def other", "    def _scaled(self, x, flag):\n        y = x * self.scale\n        if flag:\n            y = y + 1\n        return y\n\n    def other"),
    ],
    "statement in the patched function that has nothing to do with the patch": [(MAIN, 'extra = note + "!"', 'extra = note + "?"')],
    "new statement that has nothing to do with the patch": [(MAIN, "        self.last = extra\n", "        self.last = extra\n        self.notes = [extra]\n")],
    "unrelated method changed": [(MAIN, "    def other(self, x):\n        return x", "    def other(self, x, y=2):\n        return x + y")],
    "function moved, its importers updated": [
        (OPS, "def pair(x):\n    total = x + 1\n    return total, x\n\n\n", ""), ("pkg/pairs.py", "", "def pair(x):\n    total = x + 1\n    return total, x\n"),
        (MAIN, "kernel, load, pair, shaped", "kernel, load, shaped"), (MAIN, "from pkg.registry", "from pkg.pairs import pair\nfrom pkg.registry"),
        (REGISTRY, "import load, pair", "import load\nfrom pkg.pairs import pair"),
    ],
    "unrelated new subclass": [("pkg/special.py", "", "from pkg.main import Mine\n\n\nclass Special(Mine):\n    def more(self):\n        return 1\n")],
    "override that calls the patched method": [("pkg/special.py", "", SUBCLASS + "x = x + 1\n        return super().forward(x, flag)\n")],
    "override that calls the patched method by its class": [("pkg/special.py", "", SUBCLASS + "return Mine.forward(self, x, flag) + 1\n")],
    "exception for a parameter that the call doesn't pass": [(OPS, "def pair(x):\n", "def pair(x, most=None):\n    if most is not None and x > most:\n        raise OverflowError(x)\n")],
    "method of another class with the same name": [("pkg/special.py", "", "class Alone:\n    def forward(self, x, flag):\n        return x\n\n\ndef go(alone: Alone):\n    return alone.forward(1, 2)\n")],
    "import order": [(MAIN, "from pkg import envs\nfrom pkg.base import Layer\n", "from pkg.base import Layer\nfrom pkg import envs\n")],
    "import formatting": [(MAIN, "from pkg.registry import TABLE, find", "from pkg.registry import (\n    TABLE,\n    find,\n)")],
    "caller's comment": [(MAIN, "    if x is None:\n", "    # nothing to do\n    if x is None:\n")],
    "caller's keyword argument": [(MAIN, "forward(x, True)", "forward(x, flag=True)")],
    "test that calls the patched function": [("tests/test_main.py", "", "from pkg.main import measure\n\n\ndef test_it():\n    assert measure(1) == 2\n")],
    "default given to the patched function's parameter": [(MAIN, "def measure(x):", "def measure(x=None):")],
    "abstract methods": [(BASE, "class Layer:", "import abc\n\n\nclass Layer(abc.ABC):"), (BASE, "    def prepare", "    @abc.abstractmethod\n    def prepare")],
    "C++ comment among the template parameters": [(TILE, "template <int N, typename T>", "template <int N, /* the output */ typename T /* last */>")],
    "C++ comment": [(TILE, "constexpr int kTile", "// The tile.\nconstexpr int kTile")],
    "C++ parameter names": [(TILE, "store(T* out, int value) {\n  out[value]", "store(T* result, int place) {\n  result[place]")],
    "C++ spelling of a type": [(TILE, "clip(int value, int most)", "clip(const int value, std::int32_t most)")],
    "C++ default template argument": [(TILE, "template <int N, typename T>", "template <int N, typename T, int M = 1>")],
    "C++ trailing default parameter": [(TILE, "clip(int value, int most)", "clip(int value, int most, int least = 0)")],
    "C++ unrelated function": [(TILE, "enum Mode", "inline int another(int a) { return a + 1; }\nenum Mode")],
    "C++ unrelated enumerator": [(TILE, "{ kSlow, kFast }", "{ kSlow, kFast, kFastest }")],
    "C++ unrelated static_assert": [(TILE, "struct Params", "static_assert(sizeof(int) == 4);\nstruct Params")],
    "C++ formatting": [(TILE, "{ return value < most ? value : most; }", "{\n  return (value < most ? value : most);\n}")],
    "C++ include order": [(KERNEL, '#include "tile.cuh"\n', '#include <cstdint>\n#include "tile.cuh"\n')],
    "C++ statement that has nothing to do with the patch": [(KERNEL, "unused = n + 1", "unused = n + 2")],
    "C++ local variable renamed": [(KERNEL, "int unused = n + 1", "int spare = n + 1")],
    "C++ header moved": [(KERNEL, '#include "tile.cuh"', '#include "core/tile.cuh"'), ("csrc/core/tile.cuh", "", FILES["csrc/tile.cuh"])],
}  # fmt: skip
REMOVED = {"C++ header moved": ["csrc/tile.cuh"]}


#: Changes, with the kind of one alarm about each and the words that the alarm shows of the change.
SHOWN: dict[str, tuple[list[Edit], str, str]] = {
    "statement of a called function": ([(OPS, "    result = x\n", "    result = x\n    if limit > 9:\n        limit = limit - stride\n")], "changed called function", "limit > 9"),
    "override of a called method": ([(OPS, "class Cuda(Platform):", "class Rocm(Platform):\n    def capable(self, level, device=0):\n        return True\n\n\nclass Cuda(Platform):")], "new override", "Rocm.capable"),
    "existing override of a called method": ([(OPS, "return level > 1", "level = level - device\n        return level > 1")], "changed called function", "level - device"),
    "check in a caller": ([(MAIN, "    shifted = x + 1\n", '    if x < 0:\n        raise ValueError("negative")\n    shifted = x + 1\n')], "changed call", "x < 0"),
    "argument of a caller": ([(MAIN, "    shifted = x + 1\n", "    shifted = x + 2\n")], "changed call", "x + 2"),
    "attribute that is set to another value": ([(BASE, "self.width = config.limit + 1", "self.width = tuple(config.limit)")], "changed constant", "tuple"),
    "C++ statement of a called function": ([(TILE, "  out[value] = N;", "  if (value < 0) return;\n  out[value] = N;")], "changed called function", "return"),
    "C++ length of an array": ([(TILE, "  int rows;", "  int rows[2];")], "changed signature", "[2]"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(name: str) -> None:
    if name.startswith("C++"):
        pytest.importorskip("tree_sitter_cuda")
    edits, kind, words = SHOWN[name]
    shown = [f"{alarm.was} {alarm.now}" for alarm in compared(edits) if alarm.kind == kind]
    assert any(words in each for each in shown), (kind, compared(edits))


@pytest.mark.parametrize("name", DRIFTS)
def test_drift(name: str) -> None:
    if name.startswith("C++"):
        pytest.importorskip("tree_sitter_cuda")
    assert compared(DRIFTS[name])


@pytest.mark.parametrize("name", BENIGN)
def test_benign(name: str) -> None:
    if name.startswith("C++"):
        pytest.importorskip("tree_sitter_cuda")
    assert compared(BENIGN[name], REMOVED.get(name, ())) == ()
