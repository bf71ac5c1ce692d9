"""How good `check --with` is: pairs of branches that are green alone, of generated Python packages.

    python benchmarks/together.py [--seed 1] [--packages 6] [--good 33] [--cost]

Each package has a project with a stack and proofs. Branches change the stack in one way each, and
`patchq check` accepts each of them. Pairs are broken by construction (one branch renames what the
other calls, both add one function, …) or good. A second judge decides independently of patchq which
pairs are good: git merges the branches, `git apply` applies the merged stack, and Python runs the
proofs of both branches and of the package. A pair counts as broken if it was built so or if this
judge finds a failure, and as named if `check --with` fails. `--cost` compares the CPU time with that
of `check` in the merged work tree.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from click.testing import CliRunner  # noqa: E402

from patchq.cli import cli  # noqa: E402
from patchq.git.repository import Git  # noqa: E402
from patchq.project.scaffold import init  # noqa: E402
from patchq.stacks.export import format_patches  # noqa: E402

Files = dict[str, str]
Edit = Callable[[Files], None]
_VERBS = [
    "load",
    "merge",
    "split",
    "pack",
    "plan",
    "route",
    "score",
    "trim",
    "scale",
    "fold",
    "cast",
    "probe",
    "align",
    "gather",
    "shift",
]
_NOUNS = [
    "block",
    "page",
    "slot",
    "batch",
    "token",
    "head",
    "tile",
    "ring",
    "lane",
    "queue",
    "frame",
    "shard",
    "bucket",
    "row",
    "cell",
]
_AUTHOR = "A B <a@example.org>"
#: Runs the test functions of files, one process for all.
_RUN = """
import asyncio, importlib.util, sys, traceback
sys.path[:0] = [sys.argv[1], sys.argv[2]]
failed = []
for number, path in enumerate(sys.argv[3:]):
    try:
        spec = importlib.util.spec_from_file_location(f"proof{number}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in [n for n in vars(module) if n.startswith("test_")]:
            vars(module)[name]()
    except BaseException:
        failed.append(path)
        traceback.print_exc(limit=-2)
print(failed)
sys.exit(bool(failed))
"""


def git(folder: Path, *args: str, ok: bool = True) -> str:
    who = {f"GIT_{w}_{k}": v for w in ("AUTHOR", "COMMITTER") for k, v in (("NAME", "A B"), ("EMAIL", "a@example.org"))}
    dates = {"GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0000", "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0000"}
    done = subprocess.run(
        ["git", *args], cwd=folder, capture_output=True, text=True, env={**os.environ, **who, **dates}
    )
    assert done.returncode == 0 or not ok, f"git {args}: {done.stderr}"
    return done.stdout if done.returncode == 0 or not ok else ""


@dataclass(frozen=True)
class PatchPlan:
    """Patch to write: edits of the upstream's files, and its proof."""

    name: str
    edit: Edit
    proof: str = "def test_import():\n    import PKG\n"
    proof_path: str = ""
    trailers: tuple[str, ...] = ()

    def path(self) -> str:
        return self.proof_path or f"tests/stacks/up/test_{self.name.replace('-', '_')}.py"


@dataclass(frozen=True)
class BranchPlan:
    """Branch of the project: its whole stack, other files, and its name."""

    name: str
    stack: tuple[PatchPlan, ...]
    files: tuple[tuple[str, str], ...] = ()


@dataclass
class Package:
    """Generated upstream package with names to use."""

    random: random.Random
    name: str = ""
    files: Files = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def word(self) -> str:
        while True:
            word = f"{self.random.choice(_VERBS)}_{self.random.choice(_NOUNS)}"
            if self.random.random() < 0.4:
                word += "_" + self.random.choice(_NOUNS)
            if word not in self.used:
                self.used.add(word)
                return word

    def camel(self) -> str:
        return "".join(part.title() for part in self.word().split("_"))


MODULES = ("ops", "cache", "sched", "layers", "tools")


def new_package(seed: int) -> Package:
    """Write a package: modules of functions and classes, a registry, options, a configuration."""
    chance = random.Random(seed)
    package = Package(random=chance)
    package.name = chance.choice(("lattice", "corvid", "tundra", "meridian", "quarry")) + str(seed % 97)
    for module in MODULES:
        package.functions[module] = [package.word() for _ in range(6)]
    name = package.name
    for module in MODULES:
        text = f'"""Module {module} of {name}."""\n\nimport math\nimport itertools\n\n'
        limit = chance.randint(3, 90)
        text += f"{module.upper()}_LIMIT = {limit}\n{module.upper()}_WIDTH = {chance.randint(2, 9)}\n\n\n"
        for number, function in enumerate(package.functions[module]):
            if number == 3:
                text += class_text(package, module)
            body = chance.choice(
                (
                    "    total = left * {a} + right\n    total += extra\n    return total",
                    "    parts = [left + {a}, right, extra]\n    parts.sort()\n    return sum(parts)",
                    "    if left > right:\n        left, right = right, left\n    return left + right * {a} + extra",
                )
            ).format(a=chance.randint(2, 19))
            # Lines between the functions keep their diffs apart.
            note = f"# {function}: step {chance.randint(100, 999)} of {module}.\n" * 1
            text += f'{note}def {function}(left, right, extra=0):\n    """Return the {function} of two values."""\n{body}\n\n\n'
        text += f"def pair_of_{module}(value):\n    return value, value + 1\n\n\n"
        text += f"def end_of_{module}(value):\n    return math.floor(value)\n"
        package.files[f"{name}/{module}.py"] = text
    package.files[f"{name}/config.py"] = config_text(package)
    package.files[f"{name}/registry.py"] = (
        '"""Registry of kernels."""\n\nKERNELS = {}\n\n\ndef register_kernel(name):\n'
        "    def keep(function):\n        assert name not in KERNELS, name\n        KERNELS[name] = function\n"
        "        return function\n\n    return keep\n"
    )
    package.files[f"{name}/cli.py"] = cli_text(package)
    first = package.functions["ops"][0]
    package.files[f"{name}/__init__.py"] = f"from .ops import {first}\nfrom .layers import Layers\n"
    package.files[f"{name}/data/sizes_table.txt"] = "\n".join(str(n) for n in range(20)) + "\n"
    return package


def class_text(package: Package, module: str) -> str:
    name = module.title()
    return (
        f"class {name}:\n    kind = {module!r}\n    depth = {package.random.randint(1, 7)}\n\n"
        "    def __init__(self, size, step=1):\n        self.size = size\n        self.step = step\n        self.items = []\n\n"
        f"    def advance_{module}(self, count, flag=False):\n        self.items.append(count)\n"
        "        return self.size + count * self.step\n\n"
        f"    def finish_{module}(self):\n        return len(self.items)\n\n"
        f"    def shape_{module}(self):\n        return self.size, self.step\n\n\n"
    )


def config_text(package: Package) -> str:
    lines = ['"""Configuration."""', "", "from dataclasses import dataclass", "", "", "@dataclass", "class Config:"]
    lines += [
        "    block_size: int = 16",
        "    max_pages: int = 64",
        "    use_graph: bool = True",
        "    name: str = 'x'",
        "",
    ]
    lines += ["", "SWITCHES = {"]
    lines += [f'    "{package.name.upper()}_{word.upper()}": {n},' for n, word in enumerate(_NOUNS[:12])]
    return "\n".join([*lines, "}", ""])


def cli_text(package: Package) -> str:
    lines = [
        '"""Command line."""',
        "",
        "import argparse",
        "",
        "",
        "def parser():",
        "    parser = argparse.ArgumentParser()",
    ]
    lines += [
        f'    parser.add_argument("--{noun}-{verb}", type=int, default={n})'
        for n, (noun, verb) in enumerate(zip(_NOUNS, _VERBS, strict=True))
    ]
    return "\n".join([*lines, "    return parser", ""])


# Edits


def swap(path: str, old: str, new: str, count: int = 1) -> Edit:
    def edit(files: Files) -> None:
        assert old in files[path], (path, old)
        files[path] = files[path].replace(old, new, count)

    return edit


def after_function(path: str, function: str, text: str) -> Edit:
    """Insert text after a function of a module."""

    def edit(files: Files) -> None:
        match = re.search(rf"^def {function}\(.*?\n\n\n(?=\S)", files[path], re.DOTALL | re.MULTILINE)
        assert match, (path, function)
        files[path] = files[path][: match.end()] + text.rstrip() + "\n\n\n" + files[path][match.end() :]

    return edit


def everywhere(package: Package, old: str, new: str) -> Edit:
    def edit(files: Files) -> None:
        for path in files:
            files[path] = re.sub(rf"\b{old}\b", new, files[path])

    return edit


def several(*edits: Edit) -> Edit:
    def edit(files: Files) -> None:
        for one in edits:
            one(files)

    return edit


def new_file(path: str, text: str) -> Edit:
    def edit(files: Files) -> None:
        assert path not in files, path
        files[path] = text

    return edit


def move_file(package: Package, old: str, new: str) -> Edit:
    def edit(files: Files) -> None:
        files[f"{package.name}/{new}"] = files.pop(f"{package.name}/{old}")

    return edit


def remove_function(path: str, function: str) -> Edit:
    def edit(files: Files) -> None:
        files[path], count = re.subn(
            rf"^(?:# [^\n]*\n)?def {function}\(.*?\n\n\n(?=\S)",
            "",
            files[path],
            count=1,
            flags=re.DOTALL | re.MULTILINE,
        )
        assert count, (path, function)

    return edit


# Projects


class Bench:
    """A package with its upstream, project, and branches."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.package = folder, new_package(seed)
        self.upstream, self.root = folder / "upstream", folder / "project"
        self.upstream.mkdir(parents=True)
        git(self.upstream, "init", "-q", "-b", "main")
        self._write(self.upstream, self.package.files)
        git(self.upstream, "add", "-A")
        git(self.upstream, "commit", "-q", "-m", "first")
        git(self.upstream, "tag", "v1")
        self.base_commit = git(self.upstream, "rev-parse", "v1").strip()
        init(self.root)
        self.patchq("pin", "up", "--url", str(self.upstream), "--ref", "v1")
        git(self.root, "init", "-q", "-b", "main")
        self._built: dict[tuple[str, ...], tuple[str, bytes, Files]] = {}
        self.stack = self._base_stack()
        self.add_branch(BranchPlan("main", self.stack), start="")
        self.patchq("apply")
        self.alone: dict[str, int] = {}

    @staticmethod
    def _write(folder: Path, files: Files) -> None:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def quick(self, *args: str) -> tuple[int, str]:
        """Run patchq in this process; return its exit code and output."""
        done = CliRunner().invoke(cli, ["--project", str(self.root), *args])
        if done.exception and not isinstance(done.exception, SystemExit):
            return 4, repr(done.exception)
        return done.exit_code, done.stdout

    def patchq(self, *args: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "patchq", "--project", str(self.root), *args]
        # Compiled modules are kept, as where patchq is installed.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder.parent / "together-compiled")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT / "tools", env=environment)
        assert fails or done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
        return done

    def _base_stack(self) -> tuple[PatchPlan, ...]:
        p, name = self.package, self.package.name
        self.helper, self.second = p.word(), p.word()
        ops, sched = f"{name}/ops.py", f"{name}/sched.py"
        return (
            PatchPlan(
                "helper",
                after_function(ops, p.functions["ops"][1], f"def {self.helper}(value):\n    return value + 7\n"),
                f"def test_helper():\n    from {name}.ops import {self.helper}\n\n    assert {self.helper}(1) == 8\n",
            ),
            PatchPlan(
                "second",
                after_function(sched, p.functions["sched"][4], f"def {self.second}(value):\n    return value * 3\n"),
                f"def test_second():\n    from {name}.sched import {self.second}\n\n    assert {self.second}(2) == 6\n",
            ),
            PatchPlan(
                "wider",
                swap(f"{name}/cache.py", "CACHE_WIDTH = ", "CACHE_WIDTH = 1 + "),
                f"def test_wider():\n    from {name} import cache\n\n    assert cache.CACHE_WIDTH > 2\n",
            ),
            PatchPlan(
                "extra-file",
                new_file(f"{name}/extra.py", '"""Extra."""\n\n\ndef extra_step(value):\n    return value - 1\n'),
                f"def test_extra():\n    from {name}.extra import extra_step\n\n    assert extra_step(2) == 1\n",
            ),
        )

    def _commit(self, stack: tuple[PatchPlan, ...]) -> tuple[str, list[bytes]]:
        """Commit a stack in the upstream's repository; return the tip and the patch files."""
        git(self.upstream, "checkout", "-q", "--detach", "v1")
        files = dict(self.package.files)
        for patch in stack:
            before = dict(files)
            patch.edit(files)
            for gone in before.keys() - files.keys():
                (self.upstream / gone).unlink()
            self._write(self.upstream, {n: t for n, t in files.items() if before.get(n) != t})
            git(self.upstream, "add", "-A")
            trailers = [f"Proof: {patch.path()}", "Upstream-Status: Pending", "Topic: test", *patch.trailers]
            message = f"Change {patch.name}\n\nBecause the package needs it.\n\n" + "\n".join(trailers)
            git(self.upstream, "commit", "-q", "-m", f"{message}\nSigned-off-by: {_AUTHOR}")
        tip = git(self.upstream, "rev-parse", "HEAD").strip()
        return tip, format_patches(Git(self.upstream / ".git"), self.base_commit, tip, len(stack))  # type: ignore[arg-type]

    def add_branch(self, plan: BranchPlan, start: str = "main") -> None:
        """Write a branch of the project."""
        if start:
            git(self.root, "checkout", "-q", "-B", plan.name, start)
        _, mails = self._commit(plan.stack)
        folder = self.root / "patches" / "up" / "v1"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.root / "tests" / "stacks" / "up", ignore_errors=True)
        texts: Files = {"patches/up/v1/series": "".join(f"{p.name}.patch\n" for p in plan.stack)}
        texts |= {p.path(): p.proof.replace("PKG", self.package.name) for p in plan.stack}
        self._write(self.root, texts | dict(plan.files))
        for patch, mail in zip(plan.stack, mails, strict=True):
            (folder / f"{patch.name}.patch").write_bytes(mail)
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", plan.name)

    def is_green(self, name: str) -> bool:
        """Return whether `check` and the proofs accept a branch alone."""
        if name not in self.alone:
            git(self.root, "checkout", "-q", name)
            self.alone[name], said = self.quick("check")
            if not self.alone[name]:
                self.alone[name] = 0 if self.judge(name, name) == "good" else 1
            if self.alone[name]:
                print(f"{name} is not green alone:\n{said}{self.judge(name, name)}", file=sys.stderr)
        return not self.alone[name]

    def judge(self, one: str, other: str) -> str:
        """Merge two branches by git, apply the merged stack, run the proofs; return `good` or the failure."""
        git(self.root, "checkout", "-q", "--detach", one)
        try:
            done = subprocess.run(
                ["git", "-c", "user.name=x", "-c", "user.email=x", "merge", "-q", "--no-edit", other],
                cwd=self.root,
                capture_output=True,
                text=True,
            )
            if done.returncode:
                git(self.root, "merge", "--abort", ok=False)
                return "git doesn't merge"
            return self._proved()
        finally:
            git(self.root, "reset", "-q", "--hard")
            git(self.root, "checkout", "-q", one)

    def _proved(self) -> str:
        series = [line for line in (self.root / "patches/up/v1/series").read_text().split() if line]
        if len(set(series)) < len(series):
            return "series"
        git(self.upstream, "checkout", "-q", "--detach", "v1")
        git(self.upstream, "clean", "-qfd")
        try:
            for name in series:
                path = self.root / "patches/up/v1" / name
                if not path.exists():
                    return f"no {name}"
                done = subprocess.run(["git", "apply", "--index", str(path)], cwd=self.upstream, capture_output=True)
                if done.returncode:
                    return f"{name} doesn't apply"
            texts = [(self.root / "patches/up/v1" / name).read_text() for name in series]
            named = re.findall(r"^Proof: (.*)$", "\n".join(texts), re.MULTILINE)
            proofs = sorted({str(self.root / path) for path in named})
            argv = [sys.executable, "-B", "-c", _RUN, str(self.upstream), str(self.root / "tests/stacks/up"), *proofs]
            done = subprocess.run(argv, capture_output=True, text=True)
            return "good" if done.returncode == 0 else f"proofs fail: {done.stderr.strip().splitlines()[-1:]}"
        finally:
            git(self.upstream, "reset", "-q", "--hard", "v1")


@dataclass(frozen=True)
class PairPlan:
    """Two branches, the kind of their pair, and True if the pair is broken by construction."""

    kind: str
    one: BranchPlan
    other: BranchPlan
    broken: bool


class Pairs:
    """Pairs of branches of a package: the broken ones by their kinds, and some that only look broken."""

    def __init__(self, bench: Bench) -> None:
        self.package, self.stack, self.helper = bench.package, bench.stack, bench.helper
        self.found: list[PairPlan] = []
        self._numbers = itertools.count(1)

    def branch(
        self, *patches: PatchPlan, base: tuple[PatchPlan, ...] | None = None, files: tuple[tuple[str, str], ...] = ()
    ) -> BranchPlan:
        if base is None:
            base = self.stack
        return BranchPlan(f"b{next(self._numbers)}", (*base, *patches), files)

    def patch(self, edit: Edit, proof: str = "", **options: object) -> PatchPlan:
        options.setdefault("name", self.package.word().replace("_", "-"))
        return PatchPlan(edit=edit, proof=proof or "def test_import():\n    import PKG\n", **options)  # type: ignore[arg-type]

    def pair(self, kind: str, one: BranchPlan, other: BranchPlan, *, broken: bool = True) -> None:
        sides = (one, other) if self.package.random.random() < 0.5 else (other, one)
        self.found.append(PairPlan(kind, *sides, broken))

    def function_of(self, module: str) -> str:
        names = self.package.functions[module]
        return names[self.package.random.randrange(2, 6)]

    def path(self, module: str) -> str:
        return f"{self.package.name}/{module}.py"

    def user(self, module: str, expression: str, imports: str, after: str = "") -> PatchPlan:
        """A patch that adds a function with an expression, and a proof that calls it."""
        p, name, chance = self.package, self.package.name, self.package.random
        new = p.word()
        text = f"def {new}(value):\n    return {expression}\n"
        above: list[Edit] = []
        if imports and chance.random() < 0.5 and f"{name}.ops" not in imports:
            above = [swap(self.path(module), "import math\n", f"import math\n{imports}\n")]
        elif imports:
            text = f"def {new}(value):\n    {imports}\n\n    return {expression}\n"
        proof = f"def test_{new}():\n    from {name}.{module} import {new}\n\n    assert {new}(3) is not None\n"
        return self.patch(
            several(*above, after_function(self.path(module), after or p.functions[module][0], text)), proof
        )

    def call(self, module: str, function: str, arguments: str = "value, 2") -> tuple[str, str]:
        """An expression that calls a function of a module, in one of several styles, and its import."""
        name = self.package.name
        style = self.package.random.randrange(5)
        if style == 0:
            return f"{function}({arguments})", f"from {name}.{module} import {function}"
        if style == 1:
            return f"{module}.{function}({arguments})", f"from {name} import {module}"
        if style == 2:
            return f"{module}_module.{function}({arguments})", f"import {name}.{module} as {module}_module"
        if style == 3:
            return f"{name}.{module}.{function}({arguments})", f"import {name}.{module}"
        return f"other({arguments})", f"from .{module} import {function} as other"

    def modules(self) -> tuple[str, str]:
        one, other = self.package.random.sample(MODULES, 2)
        return one, other

    def files(self) -> None:
        """Add pairs that edit the same lines or make the same file."""
        p, name = self.package, self.package.name
        m, _ = self.modules()
        f = self.function_of(m)
        line = f'    """Return the {f} of two values."""\n'
        self.pair(
            "same lines",
            self.branch(self.patch(swap(self.path(m), line, line + "    left += 1\n"))),
            self.branch(self.patch(swap(self.path(m), line, line + "    left -= 1\n"))),
        )
        new = f"{name}/{p.word()}.py"
        self.pair(
            "same file",
            self.branch(self.patch(new_file(new, "A = 1\n"))),
            self.branch(self.patch(new_file(new, "B = 2\n"))),
        )

    def definitions(self) -> None:
        """Add pairs that add one name twice."""
        p, name = self.package, self.package.name
        m, _ = self.modules()
        new = p.word()
        text = f"def {new}(value):\n    return value + %d\n"
        ends = (p.functions[m][0], p.functions[m][5])
        self.pair(
            "same function",
            *(self.branch(self.patch(after_function(self.path(m), end, text % k))) for k, end in enumerate(ends)),
        )
        new = p.camel()
        text = f"class {new}:\n    size = %d\n\n    def get(self):\n        return self.size\n"
        m, _ = self.modules()
        ends = (p.functions[m][0], p.functions[m][5])
        self.pair(
            "same class",
            *(self.branch(self.patch(after_function(self.path(m), end, text % k))) for k, end in enumerate(ends)),
        )
        option = p.word().replace("_", "-")
        lines = [line for line in p.files[self.path("cli")].splitlines() if "add_argument" in line]
        self.pair(
            "same option",
            *(
                self.branch(
                    self.patch(
                        swap(self.path("cli"), at, f'{at}\n    parser.add_argument("--{option}", default={k})'),
                        f"def test_option():\n    from {name}.cli import parser\n\n    parser()\n",
                    )
                )
                for k, at in enumerate((lines[1], lines[-2]))
            ),
        )
        key = f"{name.upper()}_{p.word().upper()}"
        lines = [line for line in p.files[self.path("config")].splitlines() if line.startswith('    "')]
        self.pair(
            "same switch",
            *(
                self.branch(self.patch(swap(self.path("config"), at, f'{at}\n    "{key}": {k},')))
                for k, at in enumerate((lines[1], lines[-2]), 50)
            ),
        )
        kernel = p.word()
        new = [f"{name}/{p.word()}.py" for _ in range(2)]
        self.pair(
            "same registered name",
            *(
                self.branch(
                    self.patch(
                        new_file(
                            at,
                            f'from {name}.registry import register_kernel\n\n\n@register_kernel("{kernel}")\ndef kernel(value):\n    return value\n',
                        )
                    )
                )
                for at in new
            ),
        )
        m, _ = self.modules()
        method = p.word()
        text = f"    def {method}(self):\n        return %d\n\n"
        anchors = (f"    def advance_{m}(", f"    def shape_{m}(")
        self.pair(
            "same method",
            *(self.branch(self.patch(swap(self.path(m), at, (text % k) + at))) for k, at in enumerate(anchors)),
        )

    def functions(self) -> None:
        """Add pairs of a changed function and a new call of it."""
        p, chance = self.package, self.package.random
        for _ in range(3):
            m, n = self.modules()
            f, to = self.function_of(m), p.word()
            expression, imports = self.call(m, f)
            self.pair(
                "renamed function",
                self.branch(self.patch(everywhere(p, f, to))),
                self.branch(self.user(n, expression, imports)),
            )
        for _ in range(2):
            m, n = self.modules()
            f = self.function_of(m)
            expression, imports = self.call(m, f)
            self.pair(
                "removed function",
                self.branch(self.patch(remove_function(self.path(m), f))),
                self.branch(self.user(n, expression, imports)),
            )
        changes = (
            ("left, right, extra=0", "left, right, scale, extra=0", "value, 2"),
            ("left, right, extra=0", "left, extra, right=0", "value, 2, extra=4"),
            ("left, right, extra=0", "left, right, *, extra=0", "value, 2, 1"),
            ("left, right, extra=0", "left, right, more=0", "value, 2, extra=1"),
            ("left, right, extra=0", "right, left, extra=0", "value, 2"),
        )
        for before, after, arguments in chance.sample(changes, 4):
            m, n = self.modules()
            f = self.function_of(m)
            expression, imports = self.call(m, f, arguments)
            edits = [swap(self.path(m), f"def {f}({before})", f"def {f}({after})")]
            if "more" in after:
                edits = [swap(self.path(m), f"def {f}({before}):\n", f"def {f}({after}):\n    extra = more\n")]
                edits = [
                    several(
                        swap(self.path(m), f"def {f}({before}):\n", f"def {f}({after}):\n"),
                        in_function(self.path(m), f, "extra", "more"),
                    )
                ]
            self.pair(
                "changed signature",
                self.branch(self.patch(several(*edits))),
                self.branch(self.user(n, expression, imports)),
            )

    def members(self) -> None:
        """Add pairs of a changed method or result and its new use."""
        p, name = self.package, self.package.name
        m, n = self.modules()
        cls = m.title()
        edit = everywhere(p, f"advance_{m}", f"push_{m}")
        self.pair(
            "renamed method",
            self.branch(self.patch(edit)),
            self.branch(self.user(n, f"{cls}(2).advance_{m}(value)", f"from {name}.{m} import {cls}")),
        )
        m, n = self.modules()
        cls, new = m.title(), p.camel()
        text = f"class {new}(Base):\n    def run(self):\n        return self.shape_{m}()\n"
        edit = several(
            swap(
                self.path(n), "import itertools\n", f"import itertools\n\nfrom {name}.{m} import {m.title()} as Base\n"
            ),
            after_function(self.path(n), p.functions[n][4], text),
        )
        self.pair(
            "renamed inherited method",
            self.branch(self.patch(everywhere(p, f"shape_{m}", f"form_{m}"))),
            self.branch(
                self.patch(edit, f"def test_it():\n    from {name}.{n} import {new}\n\n    assert {new}(1).run()\n")
            ),
        )
        m, n = self.modules()
        cls, new = m.title(), p.camel()
        text = f"class {new}(Base):\n    def advance_{m}(self, count, flag=False):\n        return count\n"
        edit = several(
            swap(self.path(n), "import itertools\n", f"import itertools\n\nfrom {name}.{m} import {cls} as Base\n"),
            after_function(self.path(n), p.functions[n][4], text),
        )
        new_call = several(
            swap(
                self.path(m),
                f"def advance_{m}(self, count, flag=False)",
                f"def advance_{m}(self, count, stride, flag=False)",
            ),
            swap(
                self.path(m),
                f"    def finish_{m}(self):\n",
                f"    def drive_{m}(self):\n        return self.advance_{m}(1, 2, False)\n\n    def finish_{m}(self):\n",
            ),
        )
        self.pair("changed overridden method", self.branch(self.patch(new_call)), self.branch(self.patch(edit)))
        m, n = self.modules()
        expression, imports = self.call(m, f"pair_of_{m}", "value")
        self.pair(
            "returns more",
            self.branch(
                self.patch(swap(self.path(m), "    return value, value + 1\n", "    return value, value + 1, 0\n"))
            ),
            self.branch(self.user(n, f"sum([a - b for a, b in [{expression}]])", imports)),
        )
        m, n = self.modules()
        expression, imports = self.call(m, f"pair_of_{m}", "value")
        self.pair(
            "now async",
            self.branch(self.patch(swap(self.path(m), f"def pair_of_{m}", f"async def pair_of_{m}"))),
            self.branch(self.user(n, f"{expression}[0]", imports)),
        )

    def names(self) -> None:
        """Add pairs of a renamed or moved name and its new use."""
        p, name, chance = self.package, self.package.name, self.package.random
        self.pair(
            "renamed field",
            self.branch(self.patch(everywhere(p, "max_pages", "page_limit"))),
            self.branch(self.user("ops", "Config(max_pages=value).max_pages", f"from {name}.config import Config")),
        )
        m, n = self.modules()
        constant = f"{m.upper()}_LIMIT"
        self.pair(
            "renamed constant",
            self.branch(self.patch(everywhere(p, constant, f"{m.upper()}_BOUND"))),
            self.branch(self.user(n, f"value + {constant}", f"from {name}.{m} import {constant}")),
        )
        m, n = self.modules()
        self.pair(
            "removed import",
            self.branch(self.patch(swap(self.path(m), "import itertools\n", ""))),
            self.branch(self.user(m, "list(itertools.repeat(value, 2))", "")),
        )
        moved = chance.choice(("tools", "cache"))
        expression, imports = self.call(moved, p.functions[moved][2])
        base = tuple(q for q in self.stack if q.name != "wider")
        self.pair(
            "moved module",
            self.branch(self.patch(move_file(p, f"{moved}.py", f"{moved}_moved.py")), base=base),
            BranchPlan(f"b{next(self._numbers)}", (*base, self.user("ops", expression, imports))),
        )
        table = "from pathlib import Path"
        self.pair(
            "moved data file",
            self.branch(self.patch(move_file(p, "data/sizes_table.txt", "data/table_of_sizes.txt"))),
            self.branch(
                self.user("layers", 'Path(__file__).parent.joinpath("data", "sizes_table.txt").read_text()', table)
            ),
        )

    def series(self) -> None:
        """Add pairs that change the series or amend, drop and rename its patches."""
        p, name = self.package, self.package.name
        helper, second, wider, extra = self.stack
        self.pair(
            "moved in the series",
            self.branch(base=(second, helper, wider, extra)),
            self.branch(base=(helper, wider, second, extra)),
        )
        one, other = (
            replace(
                helper,
                edit=several(helper.edit, swap(self.path("ops"), "return value + 7", f"return value + 7 {sign} 0")),
            )
            for sign in "+-"
        )
        self.pair(
            "same patch amended",
            self.branch(base=(one, second, wider, extra)),
            self.branch(base=(other, second, wider, extra)),
        )
        far = replace(
            helper, edit=several(helper.edit, swap(self.path("layers"), "LAYERS_WIDTH = ", "LAYERS_WIDTH = 0 + "))
        )
        near = replace(
            helper, edit=several(helper.edit, swap(self.path("cache"), "CACHE_LIMIT = ", "CACHE_LIMIT = 0 + "))
        )
        self.pair(
            "same patch amended elsewhere",
            self.branch(base=(far, second, wider, extra)),
            self.branch(base=(near, second, wider, extra)),
        )
        amended = replace(
            second, edit=several(second.edit, swap(self.path("sched"), "return value * 3", "return value * 2 + value"))
        )
        self.pair(
            "dropped and amended",
            self.branch(base=(helper, wider, extra)),
            self.branch(base=(helper, amended, wider, extra)),
        )
        expression, imports = self.call("ops", self.helper, "value")
        self.pair(
            "dropped what is called",
            self.branch(base=(second, wider, extra)),
            self.branch(self.user("layers", expression, imports)),
        )
        self.pair(
            "dropped what is required",
            self.branch(base=(helper, wider, extra)),
            self.branch(self.patch(new_file(f"{name}/{p.word()}.py", "A = 1\n"), trailers=("Requires: up/second",))),
        )
        self.pair(
            "dropped what is edited",
            self.branch(base=(helper, second, wider)),
            self.branch(self.patch(swap(f"{name}/extra.py", "return value - 1", "return value - 1 - 0"))),
        )
        renamed = replace(second, name="second-new", proof_path="tests/stacks/up/test_second.py")
        self.pair(
            "renamed what is required",
            self.branch(base=(helper, renamed, wider, extra)),
            self.branch(self.patch(new_file(f"{name}/{p.word()}.py", "A = 1\n"), trailers=("Requires: up/second",))),
        )

    def proofs(self) -> None:
        """Add pairs that change the same proof."""
        p, name = self.package, self.package.name
        helper, second, wider, extra = self.stack
        edits = [replace(second, proof=second.proof.replace("== 6", text)) for text in ("in (6, 7)", "> 5")]
        self.pair("same proof", *(self.branch(base=(helper, one, wider, extra)) for one in edits))
        again = "\n\ndef test_more():\n    assert {k}\n"
        edits = [
            replace(second, proof=text)
            for text in (again.format(k=1).lstrip() + "\n\n" + second.proof, second.proof + again.format(k=2))
        ]
        self.pair("same test in a proof", *(self.branch(base=(helper, one, wider, extra)) for one in edits))
        moved_proof = replace(extra, proof_path="tests/stacks/up/test_moved_proof.py")
        self.pair(
            "moved proof",
            self.branch(base=(helper, second, wider, moved_proof)),
            self.branch(
                replace(self.patch(new_file(f"{name}/{p.word()}.py", "A = 1\n"), extra.proof), proof_path=extra.path())
            ),
        )

    def good(self) -> None:
        """Add pairs that look like broken ones and aren't."""
        p, name = self.package, self.package.name
        m, n = self.modules()
        ends = (p.functions[m][0], p.functions[m][5])
        self.pair(
            "two functions",
            *(
                self.branch(
                    self.patch(after_function(self.path(m), end, f"def {p.word()}(value):\n    return value\n"))
                )
                for end in ends
            ),
            broken=False,
        )
        m, n = self.modules()
        f = self.function_of(m)
        expression, imports = self.call(m, f)
        self.pair(
            "an optional parameter more",
            self.branch(
                self.patch(
                    swap(self.path(m), f"def {f}(left, right, extra=0)", f"def {f}(left, right, extra=0, more=None)")
                )
            ),
            self.branch(self.user(n, expression, imports)),
            broken=False,
        )
        m, n = self.modules()
        expression, imports = self.call(m, p.functions[m][2])
        self.pair(
            "renamed another function",
            self.branch(self.patch(everywhere(p, p.functions[m][4], p.word()))),
            self.branch(self.user(n, expression, imports)),
            broken=False,
        )
        new = p.word()
        m, n = self.modules()
        self.pair(
            "one name in two modules",
            *(
                self.branch(
                    self.patch(
                        after_function(self.path(at), p.functions[at][1], f"def {new}(value):\n    return value\n")
                    )
                )
                for at in (m, n)
            ),
            broken=False,
        )
        m, n = self.modules()
        f = self.function_of(m)
        expression, imports = self.call(m, f)
        self.pair(
            "another docstring",
            self.branch(self.patch(swap(self.path(m), f"Return the {f} of two values.", f"Compute {f}."))),
            self.branch(self.user(n, expression, imports)),
            broken=False,
        )
        m, n = self.modules()
        self.pair(
            "another class's method",
            self.branch(self.patch(everywhere(p, f"finish_{m}", f"close_{m}"))),
            self.branch(self.user(n, f"{n.title()}(2).finish_{n}()", "")),
            broken=False,
        )
        m, n = self.modules()
        f = self.function_of(m)
        text = f"def {f}(value):\n    return value\n"
        new = p.word()
        local = self.patch(
            after_function(self.path(n), p.functions[n][1], f"{text}\n\ndef {new}(value):\n    return {f}(value)\n")
        )
        self.pair(
            "removed, and one of its own",
            self.branch(self.patch(remove_function(self.path(m), f))),
            self.branch(local),
            broken=False,
        )
        m, n = self.modules()
        self.pair(
            "the same import",
            *(
                self.branch(
                    self.patch(
                        several(
                            swap(self.path(m), "import math\n", "import json\nimport math\n"),
                            after_function(
                                self.path(m), end, f"def {p.word()}(value):\n    return json.dumps(value)\n"
                            ),
                        )
                    )
                )
                for end in (p.functions[m][0],)
            ),
            self.branch(self.user(n, "value", "import json")),
            broken=False,
        )
        m, n = self.modules()
        f = self.function_of(m)
        expression, imports = self.call(m, f)
        renamed = several(
            swap(self.path(m), f"def {f}(left, right, extra=0):", f"def {f}(first, right, extra=0):"),
            in_function(self.path(m), f, "left", "first"),
        )
        self.pair(
            "a parameter renamed, passed by position",
            self.branch(self.patch(renamed)),
            self.branch(self.user(n, expression, imports)),
            broken=False,
        )
        helper, second, wider, extra = self.stack
        far = replace(
            helper, edit=several(helper.edit, swap(self.path("layers"), "LAYERS_WIDTH = ", "LAYERS_WIDTH = 0 + "))
        )
        near = replace(
            second, edit=several(second.edit, swap(self.path("tools"), "TOOLS_LIMIT = ", "TOOLS_LIMIT = 0 + "))
        )
        self.pair(
            "two patches amended",
            self.branch(base=(far, second, wider, extra)),
            self.branch(base=(helper, near, wider, extra)),
            broken=False,
        )
        m, n = self.modules()
        self.pair(
            "dropped another",
            self.branch(base=(second, wider, extra)),
            self.branch(self.user(n, "value", "")),
            broken=False,
        )
        m, n = self.modules()
        f = self.function_of(m)
        expression, imports = self.call(m, f)
        kept = several(move_function(self.path(m), f"{name}/{m}_parts.py", f))
        self.pair(
            "moved, and imported again",
            self.branch(self.patch(kept)),
            self.branch(self.user(n, expression, imports)),
            broken=False,
        )
        self.pair(
            "two options",
            *(
                self.branch(self.patch(swap(self.path("cli"), at, f'{at}\n    parser.add_argument("--{p.word()}")')))
                for at in (
                    '    parser.add_argument("--page-merge", type=int, default=1)',
                    '    parser.add_argument("--row-gather", type=int, default=13)',
                )
            ),
            broken=False,
        )
        self.pair(
            "two moved patches",
            self.branch(base=(second, helper, wider, extra)),
            self.branch(self.patch(new_file(f"{name}/{p.word()}.py", "A = 1\n"))),
            broken=False,
        )
        m, n = self.modules()
        expression, imports = self.call(m, f"pair_of_{m}", "value")
        self.pair(
            "another value returned",
            self.branch(
                self.patch(swap(self.path(m), "    return value, value + 1\n", "    return value, value + 2\n"))
            ),
            self.branch(self.user(n, f"sum({expression})", imports)),
            broken=False,
        )


def plans(bench: Bench) -> list[PairPlan]:
    """Return the pairs that are built for a package."""
    pairs = Pairs(bench)
    pairs.files()
    pairs.definitions()
    pairs.functions()
    pairs.members()
    pairs.names()
    pairs.series()
    pairs.proofs()
    pairs.good()
    return pairs.found


def in_function(path: str, function: str, old: str, new: str) -> Edit:
    def edit(files: Files) -> None:
        match = re.search(rf"^def {function}\(.*?\n\n\n(?=\S)", files[path], re.DOTALL | re.MULTILINE)
        assert match
        body = re.sub(rf"\b{old}\b", new, match[0])
        files[path] = files[path][: match.start()] + body + files[path][match.end() :]

    return edit


def move_function(path: str, to: str, function: str) -> Edit:
    """Move a function to a new module, and import it where it was."""

    def edit(files: Files) -> None:
        match = re.search(rf"^def {function}\(.*?\n\n\n(?=\S)", files[path], re.DOTALL | re.MULTILINE)
        assert match
        module = to.removesuffix(".py").replace("/", ".")
        files[to] = match[0].rstrip() + "\n"
        files[path] = (
            files[path]
            .replace(match[0], "")
            .replace("import itertools\n", f"import itertools\n\nfrom {module} import {function}\n", 1)
        )

    return edit


def run(seed: int, goods: int, folder: Path) -> tuple[list[dict[str, object]], Bench]:
    bench = Bench(folder, seed)
    pairs = plans(bench)
    green: list[str] = []
    ready: set[str] = set()
    for plan in pairs:
        for side in (plan.one, plan.other):
            if side.name not in ready:
                bench.add_branch(side)
                ready.add(side.name)
                if bench.is_green(side.name):
                    green.append(side.name)
    chosen = [(plan.kind, plan.one.name, plan.other.name, plan.broken) for plan in pairs]
    known = {frozenset(row[1:3]) for row in chosen}
    built = sum(not row[3] for row in chosen)
    for _ in range(2000):
        if built >= goods:
            break
        one, other = bench.package.random.sample(green, 2)
        if frozenset((one, other)) not in known:
            known.add(frozenset((one, other)))
            chosen.append(("any two", one, other, False))
            built += 1
    rows: list[dict[str, object]] = []
    for kind, one, other, broken in chosen:
        if one not in green or other not in green:
            rows.append({"kind": kind, "skipped": True})
            continue
        truth = bench.judge(one, other)
        git(bench.root, "checkout", "-q", one)
        code, said = bench.quick("check", "--with", other, "--json")
        answer = json.loads(said) if said.startswith("{") else {"message": said}
        findings = answer.get("findings", [])
        problems = [f for f in findings if f["level"] == "problem"]
        rows.append({
            "kind": kind, "one": one, "other": other, "built": broken, "truth": truth,
            "broken": broken or truth != "good", "exit": code,
            "rules": sorted({f["rule"] for f in problems}), "warned": sorted({f["rule"] for f in findings if f["level"] != "problem"}),
            "message": [f["message"] for f in problems] or [answer.get("message", "")],
        })  # fmt: skip
    return rows, bench


def cost(bench: Bench, pairs: list[tuple[str, str]]) -> list[tuple[float, float]]:
    """Return the CPU seconds of `check` in the merged work tree, and of `check --with`, in turns."""
    found = []
    for one, other in pairs:
        times = []
        for merge in (True, False):
            git(bench.root, "checkout", "-q", "--detach", one)
            if merge:
                git(bench.root, "-c", "user.name=x", "-c", "user.email=x", "merge", "-q", "--no-edit", other)
            argv = ["check"] if merge else ["check", "--with", other]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            bench.patchq(*argv, fails=True)  # after a merge, check may ask for another export
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        found.append((times[0], times[1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", type=int, default=1)
    parser.add_argument("--good", type=int, default=20, help="good pairs of each package, at least")
    parser.add_argument("--cost", type=int, default=0, metavar="PAIRS", help="pairs to measure the cost of")
    parser.add_argument("--rows", metavar="FILE", help="write each pair as a line of JSON")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    ratios: list[tuple[float, float]] = []
    for number in range(options.packages):
        with tempfile.TemporaryDirectory(prefix="together-") as text:
            found, bench = run(options.seed * 1000 + number, options.good, Path(text))
            rows += found
            print(f"package {number + 1}: {len(found)} pairs", file=sys.stderr, flush=True)
            fine = [
                (str(r["one"]), str(r["other"]))
                for r in found
                if not r.get("skipped") and r["exit"] == 0 and not r["broken"]
            ]
            ratios += cost(bench, fine[: options.cost])
    if options.rows:
        Path(options.rows).write_text("".join(json.dumps(row) + "\n" for row in rows))
    skipped = [r for r in rows if r.get("skipped")]
    judged = [r for r in rows if not r.get("skipped")]
    broken = [r for r in judged if r["broken"]]
    fine = [r for r in judged if not r["broken"]]
    missed = [r for r in broken if r["exit"] == 0]
    false = [r for r in fine if r["exit"] != 0]
    for label, some in (("missed", missed), ("false", false)):
        for row in some:
            print(
                f"{label}: {row['kind']} ({row['one']}, {row['other']}): {row['truth']}; {row['rules']} {row['said']}"
            )
    for row in judged:
        if row["built"] and row["truth"] == "good":
            print(f"note: {row['kind']} is broken by construction, and its proofs pass")
    crashed = [r for r in judged if r["exit"] not in (0, 1)]
    for row in crashed:
        print(f"crashed: {row['kind']}: {row['said']}")
    print(
        f"{len(judged)} pairs; {len(skipped)} left out, as a branch is not green alone: {Counter(str(r['kind']) for r in skipped)}"
    )
    print(
        f"{len(broken)} broken ({sum(bool(r['built']) for r in broken)} by construction), {len(broken) - len(missed)} named"
    )
    print(f"{len(fine)} good, {len(false)} named, {sum(bool(r['warned']) for r in fine)} with a warning")
    print("rules:", dict(Counter(rule for r in broken for rule in r["rules"])))  # type: ignore[attr-defined]
    if ratios:
        per = sorted(other / one for one, other in ratios)
        print(
            f"cost of check --with / check, CPU seconds, {len(per)} pairs: median {per[len(per) // 2]:.2f}, largest {per[-1]:.2f}"
        )


if __name__ == "__main__":
    main()
