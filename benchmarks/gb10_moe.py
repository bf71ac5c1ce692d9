"""For the owner of a GB10: does the MXFP4 MoE of gpt-oss-120b run, is it right, and which tile is fastest.

    python benchmarks/gb10_moe.py --out docs/evidence/flashinfer-moe-gb10.json [--tokens 1,4,16,64,256] [--repeats 50]

Needs an SM12x GPU, nvcc, and the wheel of the stack (`patchq build flashinfer`). For each launcher, and
each tile that the wheel's CUTLASS compiles, the layer is run as vLLM runs it: activations quantised to
MXFP8, weights in MXFP4, 128 experts, 4 a token, with biases and gpt-oss's clamped SwiGLU, hidden and
intermediate size 2880 padded to 2944. Each pair of tactics of the two GEMMs is compared with a float32
reference of the same quantised values; then CUDA graphs of all of them are replayed in turn, and the median
and the ratio to what is taken untuned are written. A process of its
own builds and runs each launcher: an illegal instruction or a trap then costs one row, not the run.
`--plan` prints what would be run, on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

EXPERTS, TOP_K, HIDDEN, INTER = 128, 4, 2944, 2944
# gpt-oss's SwiGLU: the gate's slope, what is added to the linear part, and where both are cut off.
ALPHA, BETA, LIMIT = 1.702, 1.0, 7.0
LAUNCHERS = ("generic", "namespace")
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode_fp4(packed: Any, scales: Any) -> Any:
    """MXFP4 as float32: packed is [..., k / 2] bytes, the low nibble first; scales [..., k / 32], UE8M0."""
    import torch

    levels = torch.tensor([*LEVELS, *(-v for v in LEVELS)], device=packed.device)
    nibbles = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    return levels[nibbles.long()] * torch.exp2(scales.float() - 127).repeat_interleave(32, -1)


def activate(both: Any) -> Any:
    """What lies between the GEMMs: the linear part is the first half, the gate the second."""
    linear, gate = both.chunk(2, -1)
    gate = gate.clamp(max=LIMIT)
    return gate * (gate * ALPHA).sigmoid() * (linear.clamp(-LIMIT, LIMIT) + BETA)


def pairs(first: int, second: int) -> list[tuple[int, int]]:
    """Untuned, then every tactic of the first GEMM with every one of the second, which are counted after the first's."""
    return [(-1, -1), *((i, first + j) for i in range(first) for j in range(second))]


def make_layer(device: str, seed: int = 1) -> dict[str, Any]:
    """Random weights of one layer: packed values, plain scales, and scales in the kernel's layout."""
    import torch
    from flashinfer import block_scale_interleave

    generator = torch.Generator(device=device).manual_seed(seed)
    layer: dict[str, Any] = {}
    for name, rows, k in (("w1", 2 * INTER, HIDDEN), ("w2", HIDDEN, INTER)):
        values = torch.randint(0, 256, (EXPERTS, rows, k // 2), device=device, generator=generator, dtype=torch.uint8)
        # Around 1 / sqrt(k), over four powers of two.
        plain = torch.randint(118, 122, (EXPERTS, rows, k // 32), device=device, generator=generator)
        plain = plain.to(torch.uint8)
        layer[name] = values
        layer[f"{name} plain scales"] = plain
        layer[f"{name} scales"] = block_scale_interleave(plain.contiguous()).reshape(EXPERTS, rows, k // 32)
        layer[f"{name} bias"] = torch.randn(EXPERTS, rows, device=device, generator=generator).bfloat16()
    return layer


def reference(x: Any, index: Any, weight: Any, layer: dict[str, Any]) -> Any:
    """The layer in float32; the values between the GEMMs are quantised to MXFP8, as the kernel does."""
    import torch

    out = torch.zeros(x.shape[0], HIDDEN, device=x.device)
    for expert in index.unique().tolist():
        token, place = (index == expert).nonzero(as_tuple=True)
        w1 = decode_fp4(layer["w1"][expert], layer["w1 plain scales"][expert])
        w2 = decode_fp4(layer["w2"][expert], layer["w2 plain scales"][expert])
        mid = activate(x[token] @ w1.T + layer["w1 bias"][expert].float())
        blocks = mid.unflatten(-1, (-1, 32))
        scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-126) / 448)))
        mid = ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2)
        out.index_add_(0, token, weight[token, place, None] * (mid @ w2.T + layer["w2 bias"][expert].float()))
    return out


def run_launcher(tokens: list[int], repeats: int) -> list[dict[str, Any]]:
    """In this process: every tactic of the module that the environment chooses."""
    import torch
    from flashinfer import mxfp8_quantize
    from flashinfer.fused_moe import core
    from flashinfer.jit.fused_moe import _sm120_moe_tiles

    device = "cuda"
    layer = make_layer(device)
    module = core.get_cutlass_fused_moe_module("121")
    tuner = core.AutoTuner.get()
    rows: list[dict[str, Any]] = []
    made: list[Any] = []  # the C++ runners that were asked for a tactic
    for count in tokens:
        generator = torch.Generator(device=device).manual_seed(count)
        x = torch.randn(count, HIDDEN, device=device, generator=generator).bfloat16()
        chosen = torch.topk(torch.softmax(torch.randn(count, EXPERTS, device=device, generator=generator), -1), TOP_K)
        index, weight = chosen.indices.int(), chosen.values
        quantised, scales = mxfp8_quantize(x, True, 32)
        plain = mxfp8_quantize(x, False, 32)[1].view(torch.uint8).reshape(count, HIDDEN // 32)
        exact = quantised.float() * torch.exp2(plain.float() - 127).repeat_interleave(32, -1)
        want = reference(exact, index, weight, layer)
        ones = torch.ones(EXPERTS, device=device)
        out = torch.empty(count, HIDDEN, device=device, dtype=torch.bfloat16)

        def run(tactic: tuple[int, int], args: tuple[Any, ...] = (quantised, index, weight, scales, ones, out)) -> None:
            quantised, index, weight, scales, ones, out = args
            # The tuner's answer is what cutlass_fused_moe asks for; here it is given.
            answers = iter(tactic)

            def answer(name: str, runners: list[Any], *_: Any, **__: Any) -> tuple[Any, int]:
                made.append(runners[0].fused_moe_runner)
                return runners[0], next(answers)

            tuner.choose_one = answer  # type: ignore[method-assign]
            module.cutlass_fused_moe(
                out, quantised, index, weight, layer["w1"].view(torch.long), layer["w1 bias"],
                layer["w2"].view(torch.long), layer["w2 bias"], torch.bfloat16,
                [layer["w1 scales"].view(torch.int32), ones, layer["w2 scales"].view(torch.int32), ones],
                scales, ones * ALPHA, ones * BETA, ones * LIMIT, use_mxfp8_act_scaling=True, enable_pdl=False,
            )  # fmt: skip

        run((-1, -1))
        first, second = made[-1].get_gemm1_tactic_count(), made[-1].get_gemm2_tactic_count()
        tactics = pairs(first, second)
        graphs: dict[tuple[int, int], Any] = {}
        for tactic in tactics:
            row: dict[str, Any] = {
                "tokens": count,
                "tactic": list(tactic),
                "tiles": [list(t) for t in _sm120_moe_tiles()],
            }
            rows.append(row)
            try:
                run(tactic)
                torch.cuda.synchronize()
            except RuntimeError as error:
                row["error"] = str(error).splitlines()[0][:500]
                continue
            row["relative_error"] = ((out.float() - want).norm() / want.norm()).item()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run(tactic)
            graphs[tactic] = (graph, row)
        times: dict[tuple[int, int], list[float]] = {tactic: [] for tactic in graphs}
        for _ in range(repeats):
            for tactic, (graph, _row) in graphs.items():
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times[tactic].append(begin.elapsed_time(end) * 1000)
        for tactic, (_graph, row) in graphs.items():
            row["microseconds"] = statistics.median(times[tactic])
            row["ratio"] = row["microseconds"] / statistics.median(next(iter(times.values())))
    return rows


def machine() -> dict[str, Any]:
    import flashinfer
    import torch

    return {
        "gpu": torch.cuda.get_device_name(),
        "capability": ".".join(map(str, torch.cuda.get_device_capability())),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "flashinfer": flashinfer.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", default="1,4,16,64,256")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    tokens = [int(t) for t in given.tokens.split(",")]
    if given.one:
        print(json.dumps({"machine": machine(), "rows": run_launcher(tokens, given.repeats)}))
        return 0
    if given.plan:
        for launcher in LAUNCHERS:
            print(f"FLASHINFER_SM120_MOE_LAUNCHER={launcher}: tokens {tokens}, {given.repeats} replays of each tactic")
        return 0
    import torch

    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    if capability is None or capability[0] != 12:
        print(f"needs an SM12x GPU; here is {capability or 'none'}. --plan shows what would be run.", file=sys.stderr)
        return 3
    found: dict[str, Any] = {"command": " ".join(["python", *sys.argv]), "launchers": {}}
    good = True
    for launcher in LAUNCHERS:
        env = {
            **os.environ,
            "FLASHINFER_SM120_MOE_LAUNCHER": launcher,
            "FLASHINFER_FUSED_MOE_BUILD_PROFILE": "mxfp4_minimal",
        }
        command = [sys.executable, __file__, "--one", "--tokens", given.tokens, "--repeats", str(given.repeats)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            found["launchers"][launcher] = {"exit": done.returncode, "said": done.stderr[-3000:]}
            good = False
            continue
        answer = json.loads(done.stdout.splitlines()[-1])
        found["machine"] = answer["machine"]
        found["launchers"][launcher] = answer["rows"]
        for row in answer["rows"]:
            wrong = "error" in row or row["relative_error"] > 2e-2
            good &= not wrong
            said = (
                row.get("error")
                or f"{row['microseconds']:.1f} us, {row['ratio']:.2f}, error {row['relative_error']:.1e}"
            )
            print(f"{launcher:9} {row['tokens']:4} tokens, tactic {row['tactic']}: {'WRONG ' if wrong else ''}{said}")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
