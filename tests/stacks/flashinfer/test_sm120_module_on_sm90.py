"""How FlashInfer's SM120 module becomes one for sm_90a: what is changed of its commands, and what is linked in front."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent / "sm120_on_sm90"
COMMAND = (
    "/cuda/bin/nvcc -c /site/a.generated.cu -DONE -I/site/csrc -isystem /cuda/include "
    "-gencode=arch=compute_121f,code=sm_121f -O3 -o /work/a.o"
)
LAUNCHER = """
namespace cutlass_kernels_oss {
template <class T> int tma_warp_specialized_generic_moe_gemm_kernelLauncher(T value);
%s
}
"""
DEFINED = "template <class T> int tma_warp_specialized_generic_moe_gemm_kernelLauncher(T value) { return value; }"
CALLED = 'extern "C" int call(int x) { return tma_warp_specialized_generic_moe_gemm_kernelLauncher(x); }'
INSTANCE = "template int tma_warp_specialized_generic_moe_gemm_kernelLauncher(int);"
WRAPPING = """
int upstream(int) __asm__("__real_%s");
int wrapped(int) __asm__("__wrap_%s");
int wrapped(int x) { return upstream(x) + 1000; }
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("sm120_module", HERE / "module.py")
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_command_gets_another_target_and_the_overlay_first(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATCHQ_CUDA_INCLUDE", "/more")
    words = module.for_sm90(COMMAND, Path("/overlay"))
    assert " ".join(words) == (
        "/cuda/bin/nvcc -c /site/a.generated.cu -DONE -I/overlay -I/more -I/site/csrc -isystem /cuda/include -O3 "
        f"-gencode=arch=compute_90a,code=sm_90a -include {HERE / 'emulation.h'}"
    )
    cxx = module.for_sm90("g++ -c a.cpp -I/site -O3 -o a.o", Path("/overlay"))
    assert cxx == ["g++", "-c", "a.cpp", "-I/overlay", "-I/more", "-I/site", "-O3"]


@pytest.mark.parametrize("target", ["", "-gencode=arch=compute_100a,code=sm_100a"])
def test_a_module_of_another_gpu_is_refused(module: ModuleType, target: str) -> None:
    with pytest.raises(ValueError, match="SM12x"):
        module.for_sm90(COMMAND.replace("-gencode=arch=compute_121f,code=sm_121f", target), Path("/overlay"))


def test_what_calls_a_launcher_comes_to_what_stands_for_it(module: ModuleType, tmp_path: Path) -> None:
    """In the object that defines it, and elsewhere it is a name alone: that is what the linker turns."""
    objects = []
    for name, text in (("defines", DEFINED + INSTANCE), ("calls", CALLED)):
        source = tmp_path / f"{name}.cpp"
        source.write_text(LAUNCHER % text)
        subprocess.run(["g++", "-fPIC", "-c", source, "-o", tmp_path / f"{name}.o"], check=True)
        objects.append(tmp_path / f"{name}.o")
    (symbol,) = module.launchers_of(objects)
    assert module.launchers_of(objects[1:]) == []
    (tmp_path / "wrapping.cpp").write_text(WRAPPING % (symbol, symbol))
    wrapping = tmp_path / "wrapping.o"
    subprocess.run(["g++", "-fPIC", "-c", tmp_path / "wrapping.cpp", "-o", wrapping], check=True)
    for wrapped, answer in (([], 7), ([symbol], 1007)):
        target = tmp_path / "out" / str(answer) / "m.so"
        module.link([*objects, wrapping] if wrapped else objects, ["-lnvrtc"], wrapped, target)
        needed = subprocess.run(["readelf", "-d", target], check=True, capture_output=True, text=True).stdout
        assert all(name in needed for name in ("libcudart.so.13", "libcuda.so.1", "libnvrtc.so.13"))
        # Loaded beside the stubs, under the names that the module asks for.
        stubs = target.parent.parent / "stubs"
        for name, soname in module.SONAMES.items():
            (stubs / soname).unlink(missing_ok=True)
            (stubs / soname).symlink_to(stubs / f"lib{name}.so")
        ask = f"import ctypes; print(ctypes.CDLL({str(target)!r}).call(7))"
        done = subprocess.run([sys.executable, "-c", ask], env={"LD_LIBRARY_PATH": str(stubs)}, capture_output=True)
        assert done.stdout.split() == [str(answer).encode()], done.stderr


def test_what_units_are_compiled_from_is_known_by_content(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "a.cu").write_text("one")
    first = module.digest_of(tmp_path)
    generated = tmp_path / "csrc" / "cutlass_instantiations" / "x.cu"
    generated.parent.mkdir()
    generated.write_text("made")
    assert module.digest_of(tmp_path) == first, "what the generator makes is made of the rest"
    (tmp_path / "csrc" / "a.cu").write_text("two")
    assert module.digest_of(tmp_path) != first
    below = tmp_path / "aot" / "data"
    below.mkdir(parents=True)
    (below / "a.cu").write_text("one")
    assert module.digest_of(below) != module.digest_of(tmp_path / "csrc" / "cutlass_instantiations")


def test_an_object_is_of_its_source(module: ModuleType, tmp_path: Path) -> None:
    """Generated sources keep their names when the generator writes something else."""
    source = tmp_path / "a.cpp"
    source.write_text("int one;")
    command = ["g++", "-c", str(source)]
    first = module.compile_unit(command, tmp_path)
    assert module.compile_unit(command, tmp_path) == first
    source.write_text("int two;")
    assert b"two" in module.compile_unit(command, tmp_path).read_bytes()
