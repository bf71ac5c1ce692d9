"""Test, for each ptxas, which PTX instructions of the kernels it assembles for an architecture (``doctor --arch``).

The suffix of the architecture (``a``, ``f`` or none) matters. Without a suffix, SM12x supports no FP4, and nvcc
compiles FP4 code to a stub that aborts at launch. Therefore, each instruction is assembled for all three forms of the
target.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from patchq.environment.toolkits import WORK_S, Toolkit, ended
from patchq.errors import UserError
from patchq.system import runner

SUFFIXES = ("", "a", "f")
_ARCH = re.compile(r"(sm_\d+)([af]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxInstruction:
    """PTX instruction and its use in the kernels. ``needed`` is True for instructions that SM12x supports."""

    name: str
    use: str
    ptx: str
    needed: bool = True


def _registers(first: int, count: int) -> str:
    return ", ".join(f"%r{number}" for number in range(first, first + count))


def _matrix(shape: str, count: int, layout: str) -> str:
    registers = _registers(1, count)
    return f"ldmatrix.sync.aligned.{shape}.x{count}.shared.{layout} {{{registers}}}, [%r0];"


def _mma(kind: str, a: int, b: int, *, scaled: bool = False) -> str:
    sums = "%f0, %f1, %f2, %f3"
    left, right = _registers(0, a), _registers(a, b)
    scales = ""
    if scaled:
        scales = ", {%r8}, {%h0, %h1}, {%r9}, {%h0, %h1}"
    return f"mma.sync.aligned.{kind} {{{sums}}}, {{{left}}}, {{{right}}}, {{{sums}}}{scales};"


_SCALED = "block_scale.scale_vec::"
_TMA = (
    "cp.async.bulk.tensor.2d.{0}shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd0, {{%r1, %r2}}], [%r3];"
)

INSTRUCTIONS = (
    PtxInstruction(name="ldmatrix m8n8.x4.b16", use="FP8 and BF16 operands", ptx=_matrix("m8n8", 4, "b16")),
    PtxInstruction(
        name="ldmatrix m8n16.x4.b8x16.b4x16_p64",
        use="FP4 operands of the MoE",
        ptx=_matrix("m8n16", 4, "b8x16.b4x16_p64"),
    ),
    PtxInstruction(
        name="ldmatrix m8n16.x2.b8x16.b4x16_p64",
        use="FP4, tiles with N = 32",
        ptx=_matrix("m8n16", 2, "b8x16.b4x16_p64"),
    ),
    PtxInstruction(
        name="ldmatrix m8n16.x4.b8x16.b6x16_p32", use="FP6 operands", ptx=_matrix("m8n16", 4, "b8x16.b6x16_p32")
    ),
    PtxInstruction(
        name="stmatrix m8n8.x2.b16",
        use="epilogues",
        ptx="stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r0], {%r1, %r2};",
    ),
    PtxInstruction(name="mma bf16 m16n8k16", use="attention", ptx=_mma("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2)),
    PtxInstruction(name="mma e4m3 m16n8k32", use="FP8 GEMM", ptx=_mma("m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 2)),
    PtxInstruction(
        name="mma mxf8f6f4 e4m3 x e2m1, 1X ue8m0",
        use="the MoE: MXFP8 x MXFP4",
        ptx=_mma(
            f"kind::mxf8f6f4.{_SCALED}1X.m16n8k32.row.col.f32.e4m3.e2m1.f32.ue8m0",
            4,
            2,
            scaled=True,
        ),
    ),
    PtxInstruction(
        name="mma mxf8f6f4 e2m1 x e4m3, 1X ue8m0",
        use="the MoE, A and B swapped",
        ptx=_mma(
            f"kind::mxf8f6f4.{_SCALED}1X.m16n8k32.row.col.f32.e2m1.e4m3.f32.ue8m0",
            4,
            2,
            scaled=True,
        ),
    ),
    PtxInstruction(
        name="mma f8f6f4 e4m3 x e2m1",
        use="unscaled mixed inputs",
        ptx=_mma("kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32", 4, 2),
    ),
    PtxInstruction(
        name="mma mxf4 e2m1 x e2m1, 2X ue8m0",
        use="FP4 x FP4 research",
        ptx=_mma(f"kind::mxf4.{_SCALED}2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0", 4, 2, scaled=True),
    ),
    PtxInstruction(
        name="mma mxf4nvf4 e2m1 x e2m1, 4X ue4m3",
        use="NVFP4",
        ptx=_mma(
            f"kind::mxf4nvf4.{_SCALED}4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
            4,
            2,
            scaled=True,
        ),
    ),
    PtxInstruction(
        name="cvt.e2m1x2.f32",
        use="quantising to FP4",
        ptx="{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, %f0, %f1; mov.b16 %h0, {t, t}; }",
    ),
    PtxInstruction(name="cvt.ue8m0x2.f32", use="scales of MXFP8", ptx="cvt.rp.satfinite.ue8m0x2.f32 %h0, %f0, %f1;"),
    PtxInstruction(name="cvt.e4m3x2.f32", use="quantising to FP8", ptx="cvt.rn.satfinite.e4m3x2.f32 %h0, %f0, %f1;"),
    PtxInstruction(name="cp.async.bulk.tensor", use="TMA loads", ptx=_TMA.format("")),
    PtxInstruction(
        name="tensormap.replace",
        use="TMA descriptors of each expert",
        ptx="tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r0], %rd0;",
    ),
    PtxInstruction(name="setmaxnreg", use="warp specialisation", ptx="setmaxnreg.inc.sync.aligned.u32 232;"),
    PtxInstruction(name="griddepcontrol.wait", use="programmatic dependent launch", ptx="griddepcontrol.wait;"),
    PtxInstruction(
        name="red.global.add.bf16x2",
        use="the fused finalize step",
        ptx="red.global.add.noftz.bf16x2 [%rd0], %r0;",
    ),
    PtxInstruction(name="dp4a", use="GEMV research", ptx="dp4a.s32.s32 %r0, %r1, %r2, %r3;"),
    PtxInstruction(
        name="tcgen05.alloc",
        use="SM100 kernels",
        ptx="tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 32;",
        needed=False,
    ),
    PtxInstruction(name="wgmma.fence", use="SM90 kernels", ptx="wgmma.fence.sync.aligned;", needed=False),
    PtxInstruction(
        name="cp.async.bulk.tensor.cta_group::2",
        use="SM100 kernels",
        ptx=_TMA.format("cta_group::2."),
        needed=False,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """Result of assembling an instruction for a target. ``message`` is ptxas's error, or empty."""

    toolkit: str
    target: str
    instruction: str
    message: str


def probe(archs: Sequence[str], found: Sequence[Toolkit]) -> list[Assembled]:
    """Assemble each instruction with each toolkit, for each architecture and suffix.

    :param archs: Architectures, with or without suffix (``sm_121``, ``sm_121f``).
    :raises UserError: if an architecture is malformed.
    """
    targets: dict[str, None] = {}
    for arch in archs:
        match = _ARCH.fullmatch(arch)
        if not match:
            raise UserError(f"{arch!r} is not an architecture", hint="name an architecture such as --arch sm_121f")
        targets.update(dict.fromkeys(match[1] + suffix for suffix in SUFFIXES))
    with (
        tempfile.TemporaryDirectory(prefix="patchq-") as folder,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        jobs = []
        for number, work in enumerate(product(found, targets, INSTRUCTIONS)):
            jobs.append(pool.submit(_assemble, Path(folder, f"{number}.ptx"), *work))
        return [job.result() for job in jobs]


def _assemble(path: Path, toolkit: Toolkit, target: str, instruction: PtxInstruction) -> Assembled:
    path.write_text(
        f".version {toolkit.ptx}\n.target {target}\n.address_size 64\n.visible .entry k() {{\n"
        ".reg .b16 %h<4>; .reg .b32 %r<12>; .reg .f32 %f<4>; .reg .b64 %rd<4>;\n"
        f"{instruction.ptx}\nret;\n}}\n"
    )
    command = [toolkit.ptxas, f"-arch={target}", str(path), "-o", os.devnull]
    try:
        runner.run(command, timeout=WORK_S)
        message = ""
    except runner.CommandError as error:
        message = re.sub(r"^ptxas .*?line \d+; ", "", ended(error))
        message = re.sub(r"^(error|fatal)\s*:\s*", "", message).strip()
    return Assembled(toolkit=toolkit.release, target=target, instruction=instruction.name, message=message)


def lacking(results: Sequence[Assembled], target: str) -> list[str]:
    """Return the needed instructions that none of the toolkits can assemble for a target."""
    good = set()
    for one in results:
        if one.target == target and not one.message:
            good.add(one.instruction)
    found: list[str] = []
    for instruction in INSTRUCTIONS:
        if instruction.needed and instruction.name not in good:
            found.append(instruction.name)
    return found
