"""Build SM120's MXFP8 x MXFP4 grouped GEMM for sm_90a, where what SM90 lacks is emulated.

    python emulate.py --trees .patchq/trees --out DIR [--launcher namespace] [--tile 128x128] [--swap-ab] [--nvfp4]

writes DIR/grouped_gemm, which compares the launcher's results with a float64 reference on an SM90 GPU; with --nvfp4
it is NVFP4's, FP4 times FP4, by the generic launcher. The kernel's source is the tree's own, but for what
`collective()` or `packed_collective()` changes and `emulation.h` replaces.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from moe_unit import COMMON_SOURCES, compiler_options, write_unit  # noqa: E402

COLLECTIVE = "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp"
QUANTIZATION = ("tensorrt_llm/kernels/quantization.cuh", "tensorrt_llm/kernels/quantization_utils.cuh")
# A branch for SM100 and newer, up to its end or its other branch.
SM100_ONLY = re.compile(
    r"__CUDA_ARCH__ >= 1000(?=.*?\n#(?:else|endif)\b)(?P<body>.*?)(?=\n#(?:else|endif)\b)", re.DOTALL
)
UNSUPPORTED = '#else\n  // static_assert(false, "not supported.");\n  return 0;'


def collective(cutlass: Path, out: Path) -> None:
    """A copy of CUTLASS's collective in which FP4 is bytes to TMA, as SM90's knows no such format.

    :raises ValueError: if the text to replace isn't there exactly as often as expected.
    """
    text = (cutlass / "include" / COLLECTIVE).read_text()
    bytes_loaded = "size(take<0,2>(SmemLayout{0}{{}})) * sizeof_bits<Element{0}>::value"
    for old, new, times in (
        ("cutlass::detail::float_e2m1_unpacksmem_t", "uint8_t", 2),
        (bytes_loaded.format("A"), "size(take<0,2>(SmemLayoutA{})) * 8", 1),
        (bytes_loaded.format("B"), "size(take<0,2>(SmemLayoutB{})) * 8", 1),
    ):
        if text.count(old) != times:
            raise ValueError(f"{COLLECTIVE} has {text.count(old)} of {old!r}, not {times}")
        text = text.replace(old, new)
    target = out / "include" / COLLECTIVE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def packed_collective(cutlass: Path, out: Path) -> None:
    """The same for FP4 times FP4, which stays packed: two values are a byte to TMA, and K counts bytes there.

    :raises ValueError: if the text to replace isn't there exactly as often as expected.
    """
    text = (cutlass / "include" / COLLECTIVE).read_text()

    def replace(old: str, new: str, times: int = 1) -> None:
        nonlocal text
        if text.count(old) != times:
            raise ValueError(f"{COLLECTIVE} has {text.count(old)} of {old!r}, not {times}")
        text = text.replace(old, new)

    rank = '  static_assert(rank(SmemLayoutB{}) == 3, "Smem layout must be rank 3.");\n'
    layout = "  using TmaSmemLayout{0} = decltype(recast_layout<cute::uint4_t, uint8_t>(SmemLayout{0}{{}}));\n"
    tile = "  using TmaTileShape = decltype(replace<2>(TileShape{}, Int<size<2>(TileShape{}) / 2>{}));\n"
    replace(rank, rank + layout.format("A") + layout.format("B") + tile)
    for operand, rows, mode in (("A", "M", 0), ("B", "N", 1)):
        low = operand.lower()
        element = re.search(rf"using TmaInternalElement{operand} = cute::conditional_t<not IsF8F6F4,\s+", text)
        replace(f"{element[0] if element else ''}Element{operand},", f"{element[0] if element else ''}uint8_t,")
        box = "SmemLayout{0}{{}}(_,_,cute::Int<0>{{}}),\n        make_shape(shape<{1}>({2}{{}}), shape<2>({2}{{}})),"
        replace(box.format(operand, mode, "TileShape"), "Tma" + box.format(operand, mode, "TmaTileShape"), 2)
        whole = f"tma_load_{low}.get_tma_tensor(make_shape({rows},{{}},init_L))"
        replace(whole.format("K"), whole.format("K / 2"))
        name = f"m{operand}_{rows.lower()}kl"
        replace(f"local_tile({name}, TileShape{{}}", f"local_tile({name}, TmaTileShape{{}}")
        memory = f"make_tensor(make_smem_ptr({{}}), {{}}SmemLayout{operand}{{{{}}}});{' ' * 8}//"
        begin = f"shared_tensors.smem_{operand}.begin()"
        replace(memory.format(begin, ""), memory.format(f"recast_ptr<uint8_t>({begin})", "Tma"))
        shape = f"make_tensor(ptr_{operand}, make_shape({rows},{{}},Int<1>{{{{}}}})"
        replace(shape.format("K"), shape.format("K / 2"))
        replace(f"sizeof_bits_v<TmaInternalElement{operand}>) / 8", "4) / 8")
    target = out / "include" / COLLECTIVE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def quantization(csrc: Path, out: Path) -> None:
    """Copies of FlashInfer's quantizers whose branches for SM100 are SM90's too, with FP4 values from emulation.h.

    :raises ValueError: if there is no such branch.
    """

    def opened(found: re.Match[str]) -> str:
        # PTX of FP4, which SM90's assembler doesn't know.
        return found[0] if "e2m1x2" in found["body"] else f"__CUDA_ARCH__ >= 900{found['body']}"

    for name in QUANTIZATION:
        source, target = csrc / "nv_internal" / name, out / "include" / name
        if not source.exists():  # FlashInfer 0.6.1 has one file
            continue
        text, count = SM100_ONLY.subn(opened, source.read_text())
        if not count:
            raise ValueError(f"{name} has no branch for SM100")
        text = text.replace(UNSUPPORTED, "#else\n  return cute::sm120_on_sm90::to_e2m1(array);")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def build(
    trees: Path, out: Path, launcher: str, tile: tuple[int, int], swap_ab: bool, *, nvfp4: bool = False,
    fusions: tuple[str, ...] = ("NONE", "FINALIZE"),
) -> Path:  # fmt: skip
    """The program for one tile, compiled: without the finalize step and with it, or one of the two."""
    out.mkdir(parents=True, exist_ok=True)
    (packed_collective if nvfp4 else collective)(trees / "cutlass", out)
    unit = write_unit(trees, out, launcher, [(tile, fusion, swap_ab) for fusion in fusions], nvfp4=nvfp4)
    program = out / "grouped_gemm"
    flags = [f"-I{out / 'include'}", *compiler_options(trees, out), "-include", str(HERE / "emulation.h")]
    flags += [
        f"-DTILE_M={tile[0]}",
        f"-DTILE_N={tile[1]}",
        f"-DSWAP_AB={int(swap_ab)}",
        f"-DIS_NVFP4={int(nvfp4)}",
        "-O2",
    ]
    flags += [f"-DWITH_{fusion}" for fusion in fusions]
    # What a block may have of shared memory is asked of the device, and set for a kernel: as SM120 would answer.
    flags += [f"-Xlinker=--wrap={name}" for name in ("cudaDeviceGetAttribute", "cudaFuncSetAttribute")]
    target = "-gencode=arch=compute_90a,code=sm_90a"
    sources = [unit, HERE / "grouped_gemm.cu", HERE / "device.cu", *(trees / "flashinfer" / s for s in COMMON_SOURCES)]
    command = ["nvcc", "-x", "cu", target, *flags, *map(str, sources), "-o", str(program)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, command, stderr=done.stderr)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--launcher", choices=("generic", "namespace"), default="namespace")
    parser.add_argument("--tile", default="128x128")
    parser.add_argument("--swap-ab", action="store_true")
    parser.add_argument("--nvfp4", action="store_true")
    given = parser.parse_args()
    m, n = map(int, given.tile.split("x"))
    print(build(given.trees.resolve(), given.out.resolve(), given.launcher, (m, n), given.swap_ab, nvfp4=given.nvfp4))


if __name__ == "__main__":
    main()
