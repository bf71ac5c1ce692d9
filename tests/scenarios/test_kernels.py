"""`build --kernels`, whole: an upstream that generates its kernels, a compiler in nvcc's place, and who finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kit import Patchq, commit_files, edit, git
from patchq.build import platforms

NVCC = """#!/bin/sh
case "$*" in
  --version) echo "nvcc: NVIDIA (R) Cuda compiler driver"; echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;;
  --dryrun*) echo "#$ TOP=$(dirname "$0")/.." >&2; exit;;
esac
echo compiled >> "$COMPILED"
while [ $# -gt 0 ]; do
  case $1 in
    -ccbin) shift;; --dependency-output) d=$2; shift;; --generate-*) ;; -c) c=$2; shift;; -o) o=$2; shift;;
  esac
  shift
done
exec g++ -fPIC -x c++ -Iflashinfer/data/include -MMD -MF "$d" -c "$c" -o "$o"
"""
ENV = "import os, pathlib\nFLASHINFER_GEN_SRC_DIR = FLASHINFER_JIT_DIR = None\n"
CPP_EXT = """
def build_common_cflags(home, extra): return [f"-isystem {home}/include", "-DX"]
def build_cflags(common, extra): return ["$common_cflags", *extra]
def build_cuda_cflags(common, extra): return ["$common_cflags", *extra]
"""
NORM = """
import os, pathlib
from types import SimpleNamespace
from . import env
print("noise at import")
def gen_norm_module(head):
    env.FLASHINFER_GEN_SRC_DIR.mkdir(parents=True, exist_ok=True)
    made = env.FLASHINFER_GEN_SRC_DIR / "norm_gen.cu"
    made.write_text(f"int head = {head};  // {os.environ['FLASHINFER_CUDA_ARCH_LIST']}\\n")
    csrc = pathlib.Path(__file__).resolve().parents[1] / "data" / "csrc"
    return SimpleNamespace(name="norm", sources=[csrc / "norm.cu", made], extra_cflags=[], extra_cuda_cflags=["-O3"],
        extra_ldflags=None, extra_include_dirs=None, needs_device_linking=False)
"""
WANTED = """version = 1
distribution = "flashinfer-jit-cache"
package = "flashinfer_jit_cache"
minutes = 7.5
[[modules]]
call = "jit.norm.gen_norm_module"
args = [64]
[[modules]]
call = "jit.moe.gen_not_there"
on = ["sm_90"]
gib = 9
"""


@pytest.fixture
def flashinfer(empty: Patchq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Patchq:
    pytest.importorskip("tvm_ffi", reason="its headers are compiled against: needs the extra proofs")
    folder = tmp_path / "flashinfer"
    folder.mkdir()
    git(folder, "init", "-q")
    package = b'[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n[project]\n'
    package += (
        b'name = "flashinfer-python"\nversion = "1.0"\n[tool.setuptools]\npackages = ["flashinfer", "flashinfer.jit"]\n'
    )
    package += b'[tool.setuptools.package-data]\nflashinfer = ["data/*/*"]\n'
    files = {
        "pyproject.toml": package, "flashinfer/__init__.py": b"x = 0\n", "flashinfer/jit/__init__.py": b"",
        "flashinfer/jit/env.py": ENV.encode(), "flashinfer/jit/cpp_ext.py": CPP_EXT.encode(),
        "flashinfer/jit/norm.py": NORM.encode(), "flashinfer/data/include/x.h": b"#define X 1\n",
        "flashinfer/data/csrc/norm.cu": b'#include "x.h"\nint norm() { return X; }\n',
    }  # fmt: skip
    commit_files(folder, files)
    git(folder, "tag", "v1.0")
    empty.ok("pin", "flashinfer", "--url", str(folder), "--ref", "v1.0")
    text = empty.layout.lock.read_text()
    empty.layout.lock.write_text(
        text + '\n[upstreams.flashinfer.build]\ndistribution = "flashinfer-python"\npackage = "flashinfer"\n'
    )
    empty.ok("apply")
    (empty.tree("flashinfer") / "flashinfer" / "added.py").write_text("y = 1\n")
    empty.ok("new", "flashinfer", "added", "-m", "Add a module\n\nWhy.")
    (empty.root / "kernels").mkdir()
    (empty.root / "kernels" / "flashinfer.toml").write_text(WANTED)
    cuda = tmp_path / "cuda"
    (cuda / "bin").mkdir(parents=True)
    (cuda / "bin" / "nvcc").write_text(NVCC)
    (cuda / "bin" / "nvcc").chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(cuda))
    monkeypatch.setenv("COMPILED", str(tmp_path / "compiled"))
    monkeypatch.setenv("PATCHQ_CACHE", str(tmp_path / "cache"))
    return empty


def kernels(patchq: Patchq, *args: str) -> dict[str, object]:
    out = patchq.ok("build", "flashinfer", "--no-isolation", "--kernels", "sm_121f", "--json", *args)
    found: dict[str, object] = json.loads(out)["wheels"][0]
    return found


def test_kernels_are_built_once_found_and_verified(flashinfer: Patchq, tmp_path: Path) -> None:
    told = kernels(flashinfer)
    assert (told["modules"], told["compiled"], told["found"], told["fresh"]) == (1, 2, 0, True)
    path = Path(str(told["path"]))
    first = path.read_bytes()
    assert path.parent == flashinfer.layout.dist / "default"
    assert f"_{platforms.here()}.whl" in path.name
    again = kernels(flashinfer)
    assert (again["compiled"], again["found"], again["fresh"]) == (0, 2, False)
    assert path.read_bytes() == first
    # Another checkout, another toolkit of the same release: the same units, and the same wheel.
    (flashinfer.layout.private / "kernels").rename(tmp_path / "gone")
    assert kernels(flashinfer)["compiled"] == 0
    assert path.read_bytes() == first

    site = tmp_path / "site"
    listed = flashinfer.layout.dist / "default" / "requirements-sm121f.txt"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site), "-r", str(listed)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "jit-cache" not in (flashinfer.layout.dist / "default" / "requirements.txt").read_text()
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH={site} FLASHINFER_WORKSPACE_BASE={tmp_path}/home exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    code = (
        "import ctypes, flashinfer_jit_cache as f; print(f.__version__); "
        "print(hasattr(ctypes.CDLL(f.get_jit_cache_dir() + '/norm/norm.so', mode=1), '_Z4normv'))"
    )
    # What it is linked with is not on this machine: empty libraries of those names.
    for name in ("libcudart.so.13", "libcuda.so.1"):
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{name}", "-o", str(tmp_path / name)], check=True)  # fmt: skip
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    # FlashInfer takes what has its own version; the wheel's own also says for which architecture it is.
    assert said.splitlines() == [str(told["version"]).removesuffix(".sm121f"), "True"]
    out = flashinfer.ok("verify-installed", "--python", str(python))
    assert f"flashinfer-jit-cache {told['version']}: patched" in out
    assert "unpatched sources" not in out
    told = flashinfer.run("doctor", "--python", str(python)).output
    assert "compiler takes" not in told
    assert "1 module for sm_121f: all are installed" in told
    (site / "flashinfer_jit_cache" / "jit_cache" / "norm" / "norm.so").write_bytes(b"other")
    out = flashinfer.fails(1, "verify-installed", "--python", str(python))
    assert "flashinfer_jit_cache/jit_cache/norm/norm.so" in out
    told = flashinfer.run("doctor", "--python", str(python)).output
    assert "flashinfer-jit-cache was changed after it was built" in told
    assert "one compiler takes up to 9 GiB, all of them took 7.5 minutes of one processor; kept in " in told
    assert f"{tmp_path / 'home'}/.cache/flashinfer" in told


def test_only_what_a_patch_changes_is_compiled_again(flashinfer: Patchq) -> None:
    before = kernels(flashinfer)
    edit(flashinfer.tree("flashinfer") / "flashinfer" / "__init__.py", 1, b"x = 1\n")
    flashinfer.ok("new", "flashinfer", "python-only", "-m", "Python\n\nWhy.")
    python = kernels(flashinfer)
    assert (python["compiled"], python["found"]) == (0, 2)
    assert python["version"] != before["version"], "another stack, whose FlashInfer takes its own kernels alone"
    assert not Path(str(before["path"])).exists()
    edit(flashinfer.tree("flashinfer") / "flashinfer" / "data" / "include" / "x.h", 1, b"#define X 2\n")
    flashinfer.ok("new", "flashinfer", "header", "-m", "Header\n\nWhy.")
    assert kernels(flashinfer)["compiled"] == 1


def test_what_lies_in_the_private_folder_is_not_compiled(flashinfer: Patchq, tmp_path: Path) -> None:
    """As of a project that was unpacked with its `.patchq`: the wheel says what is compiled, and what is run for that."""
    path, mark = Path(str(kernels(flashinfer)["path"])), tmp_path / "ran"
    first = path.read_bytes()
    (root,) = [p for p in (flashinfer.layout.private / "kernels").iterdir() if p.is_dir()]
    trap = f"open({str(mark)!r}, 'w')\n"
    (root / "sitecustomize.py").write_text(trap)
    norm = root / "flashinfer" / "jit" / "norm.py"
    norm.write_text(trap + norm.read_text())
    (root / "flashinfer" / "data" / "include" / "x.h").write_text("#define X 666\n")
    assert kernels(flashinfer)["compiled"] == 0
    assert path.read_bytes() == first
    assert not mark.exists()


def test_a_module_for_a_ref_that_isnt_there_is_a_mistake(flashinfer: Patchq) -> None:
    path = flashinfer.root / "kernels" / "flashinfer.toml"
    path.write_text(WANTED + 'refs = ["v9"]\n')
    out = flashinfer.fails(1, "build", "flashinfer", "--kernels", "sm_121f")
    assert "kernels/flashinfer.toml: flashinfer has no ref v9" in out


def test_a_wheel_of_other_modules_takes_the_place_of_the_one_before(flashinfer: Patchq) -> None:
    path = Path(str(kernels(flashinfer)["path"]))
    newer = path.with_name(path.name.replace("manylinux_2_17", "manylinux_2_34"))
    other = path.with_name(path.name.replace("x86_64", "aarch64"))
    assert len({path, newer, other}) == 3
    for name in (newer, other):
        name.write_bytes(path.read_bytes())
    assert Path(str(kernels(flashinfer)["path"])) == path
    assert sorted(path.parent.glob("*jit_cache*.whl")) == sorted([path, other])


def test_the_wheel_pins_its_parent_and_says_what_it_holds(flashinfer: Patchq) -> None:
    path = Path(str(kernels(flashinfer)["path"]))
    with zipfile.ZipFile(path) as zf:
        about = json.loads(zf.read("flashinfer_jit_cache/kernels.json"))
        metadata = next(n for n in zf.namelist() if n.endswith("METADATA"))
        assert "Requires-Dist: flashinfer-python==1.0+patchq." in zf.read(metadata).decode()
    assert about["arch"] == "sm_121f"
    assert about["modules"] == [{"name": "norm", "targets": [], "units": 2}]


def test_what_is_missing_is_told(flashinfer: Patchq, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("build", "flashinfer", "--no-isolation", "--kernels")
    assert "is not an architecture" in flashinfer.fails(1, *args, "gb10")
    out = flashinfer.fails(5, *args, "sm_90a")
    assert "upstream's generators can't be run" in out
    other = "riscv64" if platforms.here() in platforms.KNOWN else "x86_64"
    assert "no wheels are made for" in flashinfer.fails(1, *args, "sm_121f", "--platform", other)
    assert "no module of flashinfer has moe" in flashinfer.fails(1, *args, "sm_121f", "--only", "moe")
    assert "--only, --jobs and --memory" in flashinfer.fails(1, "build", "--only", "x")
    (flashinfer.root / "kernels" / "flashinfer.toml").unlink()
    assert "no file lists the kernels" in flashinfer.fails(1, *args, "sm_121f")
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    (flashinfer.root / "kernels" / "flashinfer.toml").write_text(WANTED)
    assert "there is no nvcc" in flashinfer.fails(5, *args, "sm_121f")


def test_a_header_of_cudas_libraries_that_is_not_there_is_said_with_where_it_comes_from(flashinfer: Patchq) -> None:
    source = flashinfer.tree("flashinfer") / "flashinfer" / "data" / "csrc" / "norm.cu"
    source.write_text('#include "x.h"\n#include <cublasLt.h>\nint norm() { return X; }\n')
    flashinfer.ok("new", "flashinfer", "cublas", "-m", "cuBLAS\n\nWhy.")
    out = flashinfer.fails(5, "build", "flashinfer", "--no-isolation", "--kernels", "sm_121f")
    assert "python -m pip install 'nvidia-cublas==" in out
    assert "or name the folder of cublasLt.h in PATCHQ_CUDA_INCLUDE" in out


def test_without_patches_the_kernels_are_upstreams(flashinfer: Patchq) -> None:
    flashinfer.ok("drop", "added")
    out = flashinfer.fails(1, "build", "flashinfer", "--kernels", "sm_121f")
    assert "no applied patch changes flashinfer, so its kernels are upstream's own" in out
    assert not flashinfer.layout.dist.exists()
