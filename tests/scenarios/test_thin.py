"""Thin wheels: patched files next to an unchanged release, or over it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git, new_project, seal
from patchq.sources.index import pip_settings
from verifying.project import new_upstream, release_wheel

#: Additional files of ``lib``: a module that computes a data folder from its own place.
PATHS = "import pathlib\n\nDATA = pathlib.Path(__file__).resolve().parents[1] / 'data'\n"
LOOK = """
import inspect, json, sys
import lib, lib.core, lib.table, lib.added, lib.jit.env
print(json.dumps({
    "answer": lib.answer(), "version": lib.__version__, "added": lib.added.VALUE, "table": lib.table.table(),
    "file": lib.core.__file__, "source": inspect.getsource(lib.core), "function": inspect.getsource(lib.core.answer),
    "class": inspect.getsource(lib.core.Kept), "kernel": (lib.jit.env.DATA / "kernel.cu").read_text(),
    "other": (lib.jit.env.DATA / "inner" / "other.cu").read_text(),
}))
"""
PROOF = """
def test_answer(upstream_import, trees):
    assert upstream_import("lib").answer() == 42
    assert (trees / "lib" / "lib" / "data" / "kernel.cu").read_text() == "// patched\\n"
    package = trees / "lib" / "lib"
    assert "return 42" in (package / "core.py").read_text()
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    assert {"added.py", "core.py", "jit/env.py", "sub/deep.py"} <= found
"""
SOURCE_PROOF = """

def test_source(trees):
    assert "lib" in (trees / "lib" / "pyproject.toml").read_text()
"""
CHILDREN = """
import json, multiprocessing, sys

def child(queue):
    import lib
    queue.put(lib.answer())

if __name__ == "__main__":
    found = {}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        found[method] = queue.get(timeout=60)
        process.join()
    print(json.dumps(found))
"""
#: Another process is faster: it puts the data tree in place while this one still fills its own.
TWO_AT_ONCE = """
import os
from _patchq_thin_lib import _serve

fill = _serve._fill
found = []

def fill_slowly(root, tree, files):
    fill(root, tree, files)
    _serve._fill = fill
    found.append(os.stat(_serve.data_tree(_serve._base.load(), root)))

_serve._fill = fill_slowly
import lib.jit.env
assert os.path.samestat(os.stat(lib.jit.env.DATA.parents[1]), found[0]), "the finished tree was replaced"
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A project with a full and a thin wheel of ``lib``, and the release's wheel."""

    patchq: Patchq
    release: Path
    full: Path
    thin: Path


def add_to_lock(patchq: Patchq, **settings: str) -> None:
    lock = patchq.layout.lock
    text = re.sub(r"\[upstreams\.lib\.build\]\n(?:.+\n)*", "", lock.read_text())
    lines = {"distribution": "lib", "profile": "source", "version-file": "lib/_version.py", **settings}
    text += "\n[upstreams.lib.build]\n" + "".join(f'{key} = "{value}"\n' for key, value in lines.items())
    lock.write_text(text)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("thin")
    with pytest.MonkeyPatch.context() as monkeypatch:
        seal(monkeypatch, folder / "home")
        lib = new_upstream(folder / "lib", "lib")
        project = (
            (lib / "pyproject.toml")
            .read_text()
            .replace('"data/*.json"]', '"data/*.json", "data/**/*.cu", "data/*.cu"]')
        )
        core = (lib / "lib" / "core.py").read_text() + "\n\nclass Kept:\n    number = 1\n"
        files = {
            "lib/core.py": core,
            "lib/jit/__init__.py": "",
            "lib/jit/env.py": PATHS,
            "lib/data/kernel.cu": "// one\n",
            "lib/data/inner/other.cu": "// two\n",
            "pyproject.toml": project,
        }
        commit_files(lib, {name: text.encode() for name, text in files.items()})
        git(lib, "tag", "-f", "v1.0")
        (index := folder / "index").mkdir()
        release = release_wheel(lib, index)
        git(lib, "archive", "--prefix=lib-1.0/", "-o", str(index / "lib-1.0.tar.gz"), "v1.0")
        monkeypatch.setenv("PIP_FIND_LINKS", str(index))
        pip_settings.cache_clear()
        patchq = new_project(folder / "project")
        patchq.ok("pin", "lib", "--url", str(lib), "--ref", "v1.0", "--archive", "lib==1.0")
        add_to_lock(patchq, **{"data-module": "lib.jit.env"})
        with patchq.layout.lock.open("a") as lock:
            lock.write('links = { "data" = "lib/data" }\n')
        proof = patchq.root / "tests" / "stacks" / "lib" / "test_answer.py"
        proof.parent.mkdir(parents=True)
        proof.write_text(PROOF)
        patchq.ok("apply")
        tree = patchq.tree("lib")
        edit(tree / "lib" / "core.py", 3, b"    return 42\n")
        (tree / "lib" / "added.py").write_text("VALUE = 7\n")
        (tree / "lib" / "data" / "kernel.cu").write_text("// patched\n")
        message = "Answer right\n\nIt was one less."
        patchq.ok("new", "lib", "answer", "-m", message, "--proof", str(proof.relative_to(patchq.root)))
        answer = json.loads(patchq.ok("build", "--thin", "--no-isolation", "--json"))
        (full,) = (patchq.root / "dist" / "default").glob("*.whl")
        (wheel,) = answer["wheels"]
        assert (wheel["profile"], wheel["patches"], wheel["left_out"]) == ("thin", ["lib/answer"], [])
        return Made(patchq=patchq, release=release, full=full, thin=Path(wheel["path"]))


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A virtual environment with some wheels, and a cache of its own."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def install(self, *wheels: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.python)]
        subprocess.run([*pip, "install", "-q", "--no-deps", *map(str, wheels)], check=True, capture_output=True)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(self.python), *argv], capture_output=True, text=True, cwd=self.folder)

    def look(self) -> dict[str, str]:
        done = self.run("-c", LOOK)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setenv("PATCHQ_THIN_CACHE", str(tmp_path / "cache"))
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    return Environment(folder=tmp_path / "venv")


@pytest.fixture
def thin(environment: Environment, made: Made) -> Environment:
    environment.install(made.release, made.thin)
    return environment


def test_patched_modules_are_served_and_the_release_stays(thin: Environment) -> None:
    found = thin.look()
    assert (found["answer"], found["added"], found["version"].partition("+")[0]) == (42, 7, "1.0")
    assert (found["table"], found["kernel"], found["other"]) == ({"tile": 128}, "// patched\n", "// two\n")
    assert found["file"] == str(thin.site / "lib" / "core.py")
    assert "return 42" in found["source"]
    assert "return 42" in found["function"]
    assert found["class"].startswith("class Kept:")
    assert "return 41" in (thin.site / "lib" / "core.py").read_text()


def test_children_are_served(thin: Environment) -> None:
    (thin.folder / "children.py").write_text(CHILDREN)
    done = thin.run("children.py")
    assert json.loads(done.stdout) == {"fork": 42, "spawn": 42, "forkserver": 42}, done.stderr
    assert thin.run("-m", "lib.command").returncode == 0
    assert thin.run(str(thin.folder / "bin" / "lib")).stdout == "42\n"


def test_uninstalled_it_leaves_the_release(thin: Environment) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(thin.python)]
    subprocess.run([*pip, "uninstall", "-q", "-y", "lib-patchq-thin"], check=True, capture_output=True)
    assert thin.run("-c", "import lib; print(lib.answer())").stdout == "41\n"
    assert not list(thin.site.glob("*patchq*"))


def change_module(site: Path) -> None:
    with (site / "lib" / "plugins.py").open("a") as file:
        file.write("#")


def change_library(site: Path) -> None:
    path = site / "lib" / "libkernels.so"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def change_patched(site: Path) -> None:
    (site / "lib" / "core.py").write_text("def answer():\n    return 40\n")


def change_data(site: Path) -> None:
    (site / "lib" / "data" / "inner" / "other.cu").write_text("// three\n")


def change_served(site: Path) -> None:
    (site / "_patchq_thin_lib" / "files" / "lib" / "core.py").write_text("def answer():\n    return 43\n")


def change_version(site: Path) -> None:
    (site / "lib-1.0.dist-info").rename(site / "lib-1.1.dist-info")


def remove_module(site: Path) -> None:
    (site / "lib" / "sub" / "deep.py").unlink()


CHANGES = [change_module, change_library, change_patched, change_data, change_served, change_version, remove_module]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("warm", [False, True], ids=["first start", "later start"])
def test_another_release_is_refused(thin: Environment, change: Callable[[Path], None], warm: bool) -> None:
    if warm:
        assert thin.run("-c", "import lib").returncode == 0
    change(thin.site)
    done = thin.run("-c", "import lib")
    assert done.returncode == 1
    assert "patchq: " in done.stderr
    assert "lib 1.0" in done.stderr
    assert "ImportError" in done.stderr or "Refused" in done.stderr


def test_each_thin_wheel_remembers_its_own_comparison(thin: Environment, tmp_path: Path) -> None:
    program = "import sys; from _patchq_thin_lib import _base; print(sys.argv[1])"
    for name in ("_patchq_thin_lib", "_patchq_thin_other"):
        folder = thin.site / name
        if not folder.exists():
            shutil.copytree(thin.site / "_patchq_thin_lib", folder)
        check = program.replace("_patchq_thin_lib", name).replace(
            "print(sys.argv[1])", f"_base.check(_base.load(), {str(thin.site)!r})"
        )
        done = thin.run("-c", check)
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "cache").glob("*.checked"))) == 2


def test_a_package_imported_too_early_is_refused(thin: Environment) -> None:
    (thin.site / "A.pth").write_text("import lib\n")
    done = thin.run("-c", "import lib.core")
    assert done.returncode == 1
    assert "before its patches" in done.stderr


def test_without_a_writable_cache(thin: Environment, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert thin.run("-c", "import lib; print(lib.answer())").stdout == "42\n"
    done = thin.run("-c", "import lib.jit.env")
    assert done.returncode == 1
    assert "PATCHQ_THIN_CACHE" in done.stderr


def test_a_data_tree_that_another_process_has_finished_stays(thin: Environment, tmp_path: Path) -> None:
    done = thin.run("-c", TWO_AT_ONCE)
    assert done.returncode == 0, done.stderr
    assert not [path for path in (tmp_path / "cache").iterdir() if path.name.startswith("tmp")]
    assert thin.look()["kernel"] == "// patched\n"


def test_a_damaged_data_tree_is_replaced(thin: Environment, tmp_path: Path) -> None:
    thin.look()
    (tree,) = (tmp_path / "cache").glob("tree-*")
    (tree / "lib" / "data" / "kernel.cu").write_text("// damaged\n")
    assert thin.look()["kernel"] == "// patched\n"
    assert list((tmp_path / "cache").glob("tree-*")) == [tree]
    assert not list((tmp_path / "cache").glob("tmp*"))


def test_a_data_tree_that_fails_leaves_no_folder(thin: Environment, tmp_path: Path) -> None:
    program = (
        "import os, lib\n"
        "os.unlink(os.path.join(os.path.dirname(lib.__file__), '..', '_patchq_thin_lib/files/lib/data/kernel.cu'))\n"
        "import lib.jit.env"
    )
    done = thin.run("-c", program)
    assert done.returncode == 1
    assert "kernel.cu" in done.stderr
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".checked"]


# Over the release


def contents(site: Path) -> dict[str, bytes]:
    """Return all files but caches and the installer's own notes; RECORD as sorted rows without caches and scripts."""
    found = {}
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.is_dir() or "__pycache__" in name or path.name == "direct_url.json":
            continue
        data = path.read_bytes()
        if name.endswith("RECORD"):
            rows = [row for row in data.splitlines() if not re.search(rb"__pycache__|direct_url|^\.\./", row)]
            data = b"\n".join(sorted(rows))
        found[name] = data
    return found


def test_written_over_a_release_it_is_the_full_wheel(environment: Environment, made: Made, tmp_path: Path) -> None:
    environment.install(made.release)
    place = str(made.thin / "_patchq_thin_lib")
    assert environment.run(place, "--check").returncode == 0
    assert environment.run("-c", "import lib; print(lib.answer())").stdout == "41\n"
    done = environment.run(place)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 patches" in done.stdout
    venv.create(tmp_path / "other", with_pip=False, symlinks=True)
    other = Environment(folder=tmp_path / "other")
    other.install(made.full)
    assert contents(environment.site) == contents(other.site)
    assert "already installed" in environment.run(place).stdout
    answer = f"import sys; sys.path.append({str(environment.site)!r}); import lib; print(lib.answer())"
    assert environment.run("-S", "-c", answer).stdout == "42\n"
    made.patchq.ok("verify-installed", "--python", str(environment.python))


@pytest.mark.parametrize("change", [c for c in CHANGES if c is not change_served], ids=lambda change: change.__name__)
def test_nothing_is_written_over_another_release(
    environment: Environment, made: Made, change: Callable[[Path], None]
) -> None:
    environment.install(made.release)
    change(environment.site)
    before = contents(environment.site)
    done = environment.run(str(made.thin / "_patchq_thin_lib"))
    assert done.returncode == 1
    assert "lib 1.0" in done.stderr
    assert contents(environment.site) == before


def test_an_interrupted_run_is_finished(environment: Environment, made: Made) -> None:
    environment.install(made.release)
    with zipfile.ZipFile(made.thin) as wheel:
        (environment.site / "lib" / "core.py").write_bytes(wheel.read("_patchq_thin_lib/files/lib/core.py"))
    assert environment.run(str(made.thin / "_patchq_thin_lib")).returncode == 0
    made.patchq.ok("verify-installed", "--python", str(environment.python))


# Verifiers


def test_the_start_module_is_a_known_one() -> None:
    from patchq import thin
    from patchq.environment._known import known_module

    assert known_module(Path(thin.__file__).with_name("_start.py").read_bytes()) is not None


@pytest.mark.parametrize(("is_patched", "code", "state"), [(True, 0, "passed"), (False, 5, "failed")])
def test_proofs_run_on_installed_packages(
    environment: Environment, made: Made, is_patched: bool, code: int, state: str
) -> None:
    environment.install(made.release, *([made.thin] if is_patched else ()))
    (environment.site / "pytest.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    done = made.patchq.run("test", "--python", str(environment.python), "--json")
    assert done.exit_code == code, done.output
    (proof,) = json.loads(done.stdout)["proofs"]
    assert (proof["state"], proof["cells"][0]["trees"]) == (state, {})
    assert is_patched or "41 == 42" in proof["message"]
    # The results are the environment's: nothing is kept as a result of the trees.
    assert not (made.patchq.root / ".patchq" / "results").exists()


def test_a_proof_of_other_source_files_is_not_run(environment: Environment, made: Made) -> None:
    environment.install(made.release, made.thin)
    (environment.site / "pytest.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    proof = made.patchq.root / "tests" / "stacks" / "lib" / "test_answer.py"
    proof.write_text(PROOF + SOURCE_PROOF)
    try:
        said = made.patchq.ok("test", "--python", str(environment.python))
    finally:
        proof.write_text(PROOF)
    assert "not run    lib/answer: needs lib/pyproject.toml of the source tree" in said
    assert said.count("patchq test lib/answer\n") == 1


def test_the_proof_of_a_patch_that_is_left_out_is_not_run(environment: Environment, made: Made) -> None:
    environment.install(made.release, made.thin)
    (environment.site / "pytest.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    about = environment.site / "_patchq_thin_lib" / "thin.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "left_out": ["lib/answer"]}))
    said = made.patchq.ok("test", "--python", str(environment.python))
    assert "not run    lib/answer: the thin wheel leaves this patch out" in said


def test_proofs_need_the_packages(environment: Environment, made: Made) -> None:
    said = made.patchq.fails(6, "test", "--python", str(environment.python))
    assert "has no module lib.jit.env" in said
    assert "verify-installed" in said
    said = made.patchq.fails(2, "test", "--python", str(environment.python), "--prove")
    assert "--python can't be combined with --prove" in said


def test_verify_installed(thin: Environment, made: Made) -> None:
    answer = json.loads(made.patchq.ok("verify-installed", "--python", str(thin.python), "--json"))
    states = {one["distribution"]: one["state"] for one in answer["packages"]}
    assert states == {"lib": "patched", "lib-patchq-thin": "patched"}


def remove_start(site: Path) -> None:
    (site / "_patchq_thin_lib.pth").unlink()


def change_start(site: Path) -> None:
    (site / "_patchq_thin_lib" / "__init__.py").write_text("")


def change_both(site: Path) -> None:
    """Change a file of the release and its row in RECORD."""
    path, record = site / "lib" / "plugins.py", site / "lib-1.0.dist-info" / "RECORD"
    path.write_text("x = 1\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    record.write_text(re.sub(r"lib/plugins.py,.*", f"lib/plugins.py,sha256={digest},6", record.read_text()))


@pytest.mark.parametrize("change", [*CHANGES, remove_start, change_start, change_both], ids=lambda one: one.__name__)
def test_verify_installed_finds_changes(thin: Environment, made: Made, change: Callable[[Path], None]) -> None:
    change(thin.site)
    assert "problem: " in made.patchq.run("verify-installed", "--python", str(thin.python)).output


# Refusals


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"lib/sub/deep.py": None}, r"lib/sub/deep\.py \(removed\)"),
        ({"lib/libkernels.so": b"\x7fELF other"}, r"lib/libkernels\.so \(compiled\)"),
        ({"lib/data/table.json": b'{"tile": 64}\n'}, r"lib/data/table\.json \(read by path"),
        ({"pyproject.toml": "scripts"}, r"entry_points\.txt"),
        ({"pyproject.toml": "requires"}, r"requests"),
    ],
    ids=["removed", "compiled", "data", "entry points", "requirement"],
)
def test_what_cannot_be_delivered_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes | str | None], named: str
) -> None:
    lib = new_upstream(tmp_path / "lib", "lib")
    (index := tmp_path / "index").mkdir()
    release_wheel(lib, index)
    git(lib, "archive", "--prefix=lib-1.0/", "-o", str(index / "lib-1.0.tar.gz"), "v1.0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pip_settings.cache_clear()
    patchq = new_project(tmp_path / "project")
    patchq.ok("pin", "lib", "--url", str(lib), "--ref", "v1.0", "--archive", "lib==1.0")
    add_to_lock(patchq)
    patchq.ok("apply")
    tree = patchq.tree("lib")
    for name, data in files.items():
        path = tree / name
        if data is None:
            path.unlink()
        elif data == "scripts":
            path.write_text(
                path.read_text().replace("[project.scripts]", '[project.scripts]\nmore = "lib.command:main"')
            )
        elif data == "requires":
            path.write_text(path.read_text().replace("dependencies = []", 'dependencies = ["requests"]'))
        elif isinstance(data, bytes):
            path.write_bytes(data)
    patchq.ok("new", "lib", "other", "-m", "Change it\n\nFor a reason.")
    assert re.search(named, patchq.fails(5, "build", "--thin", "--no-isolation"))
    assert not list((patchq.root / "dist").rglob("*thin*.whl"))
