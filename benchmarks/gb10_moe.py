"""Measure the MXFP4 MoE of gpt-oss-120b on a GB10: whether it runs, is correct, and which tile is fastest.

    python benchmarks/gb10_moe.py --out docs/evidence/flashinfer-moe-gb10.json [--tokens 1,4,16,64,256,2048] [--repeats 50]

Needs an SM12x GPU, nvcc, and the stack's wheel (`patchq build flashinfer`). Each launcher of the wheel runs with each
tile that its CUTLASS compiles. The layer runs as in vLLM, by `cutlass_fused_moe`: activations in MXFP8, weights in MXFP4,
128 experts, 4 per token, with biases and gpt-oss's clamped SwiGLU, hidden and intermediate size 2880 padded to 2944.

Each pair of tactics of the two GEMMs is compared with a float64 reference of the same quantised values, which rounds
where the kernels do. Tokens go to all experts. With the default tactics they also go all to the same four, and run with
PDL. Then CUDA graphs of all pairs are replayed in turns. Their results are compared too. The output has the median of
each pair and its ratio to the default tactics. Each launcher has its own process, so that a crash costs only its rows.
`--plan` prints the plan, on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXPERTS, TOP_K, HIDDEN, INTER = 128, 4, 2944, 2944
# gpt-oss's SwiGLU: the gate's slope, what is added to the linear part, and where both are cut off.
ALPHA, BETA, LIMIT = 1.702, 1.0, 7.0
LAUNCHERS = ("generic", "namespace")
#: Of the norms. Each value is rounded to BF16 three times, 2^-9 at most each, and a few land in the next MXFP8 value.
MOST_ERROR = 1e-2
#: In many tokens one's wrong tile is lost in that norm. A part that is wrong is off by half of itself and more.
MOST_ERROR_OF_A_PART = 0.1
LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def decode_fp4(packed: Any, scales: Any) -> Any:
    """Decode MXFP4 to float64. ``packed`` is [..., k / 2] bytes, low nibble first; scales are [..., k / 32], UE8M0."""
    import torch

    levels = torch.tensor([*LEVELS, *(-v for v in LEVELS)], device=packed.device, dtype=torch.float64)
    nibbles = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
    return levels[nibbles.long()] * torch.exp2(scales.double() - 127).repeat_interleave(32, -1)


def activate(both: Any) -> Any:
    """Apply the activation between the GEMMs. The first half is the linear part, the second the gate."""
    linear, gate = both.chunk(2, -1)
    gate = gate.clamp(max=LIMIT)
    return gate * (gate * ALPHA).sigmoid() * (linear.clamp(-LIMIT, LIMIT) + BETA)


def pairs(first: int, second: int) -> list[tuple[int, int]]:
    """Return the default tactics, then every pair of the two GEMMs' tactics. Those of the second count on from the first's."""
    return [(-1, -1), *((i, first + j) for i in range(first) for j in range(second))]


def make_layer(device: str, seed: int = 1) -> dict[str, Any]:
    """Make random weights of one layer: packed values, plain scales, and scales in the kernel's layout."""
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


def quantised(values: Any) -> Any:
    """Quantise BF16 to MXFP8 as the kernels do: in blocks of 32, with the least power of two that no value exceeds."""
    import torch

    blocks = values.double().unflatten(-1, (-1, 32))
    scale = torch.exp2(torch.ceil(torch.log2(blocks.abs().amax(-1, keepdim=True).clamp(min=2.0**-118) / 448)))
    return ((blocks / scale).to(torch.float8_e4m3fn).double() * scale).flatten(-2)


def reference(x: Any, index: Any, weight: Any, layer: dict[str, Any]) -> Any:
    """Compute the layer in float64. Round where the kernels write: to BF16 after GEMM 1 and the activation, then to MXFP8."""
    import torch

    out = torch.zeros(x.shape[0], HIDDEN, device=x.device, dtype=torch.float64)
    for expert in index.unique().tolist():
        token, place = (index == expert).nonzero(as_tuple=True)
        w1 = decode_fp4(layer["w1"][expert], layer["w1 plain scales"][expert])
        w2 = decode_fp4(layer["w2"][expert], layer["w2 plain scales"][expert])
        first = (x[token] @ w1.T).bfloat16().double() + layer["w1 bias"][expert].double()
        mid = quantised(activate(first).bfloat16())
        second = mid @ w2.T + layer["w2 bias"][expert].double()
        out.index_add_(0, token, weight[token, place, None].double() * second)
    return out


@dataclass
class Case:
    """Input rows of one layer, and its results."""

    x: Any
    scales: Any
    index: Any
    weight: Any
    want: Any
    out: Any

    def relative_error(self) -> float:
        """Return the relative error of the result; NaN if a value is NaN."""
        return float(((self.out.double() - self.want).norm() / self.want.norm()).item())

    def worst_part(self) -> float:
        """Return the largest such error of 128 columns of a token, which one tile writes."""
        difference, want = (x.unflatten(-1, (-1, 128)).norm(dim=-1) for x in (self.out.double() - self.want, self.want))
        return float((difference / want).max().item())


def make_case(count: int, layer: dict[str, Any], *, same: bool = False) -> Case:
    """Make tokens that go to all experts, or all to the same four."""
    import torch
    from flashinfer import mxfp8_quantize

    generator = torch.Generator(device="cuda").manual_seed(count)
    x = torch.randn(count, HIDDEN, device="cuda", generator=generator).bfloat16()
    logits = torch.randn(count, EXPERTS, device="cuda", generator=generator)
    if same:
        logits[:, [3, 64, 65, EXPERTS - 1]] += 100
    chosen = torch.topk(torch.softmax(logits, -1), TOP_K)
    index, weight = chosen.indices.int(), chosen.values
    values, scales = mxfp8_quantize(x, True, 32)
    plain = mxfp8_quantize(x, False, 32)[1].view(torch.uint8).reshape(count, HIDDEN // 32)
    exact = values.double() * torch.exp2(plain.double() - 127).repeat_interleave(32, -1)
    out = torch.empty(count, HIDDEN, device="cuda", dtype=torch.bfloat16)
    return Case(values, scales, index, weight, reference(exact, index, weight, layer), out)


class Layer:
    """One layer, run by `cutlass_fused_moe` with the given tactics."""

    def __init__(self) -> None:
        import torch
        from flashinfer.fused_moe import core

        self.weights = make_layer("cuda")
        self.ones = torch.ones(EXPERTS, device="cuda")
        self.core, self.tuner = core, core.AutoTuner.get()
        #: The runner of the module, once one has run: it knows how many tactics there are.
        self.runner: Any = None
        #: Graphs of all tactics share their memory: they are replayed one after the other, and leave their result outside.
        self.pool = torch.cuda.graph_pool_handle()

    def run(self, case: Case, tactic: tuple[int, int], *, pdl: bool = False) -> None:
        """Run the layer, with the result in the case's ``out``."""
        import torch

        # The tuner's answer is what cutlass_fused_moe asks for; here it is given.
        answers = iter(tactic)

        def answer(_name: str, runners: list[Any], *_: Any, **__: Any) -> tuple[Any, int]:
            self.runner = runners[0].fused_moe_runner
            return runners[0], next(answers)

        self.tuner.choose_one = answer
        layer, ones = self.weights, self.ones
        self.core.cutlass_fused_moe(
            case.x, case.index, case.weight, layer["w1"].view(torch.long), layer["w2"].view(torch.long), torch.bfloat16,
            [layer["w1 scales"].view(torch.int32), ones, layer["w2 scales"].view(torch.int32), ones],
            fc1_expert_biases=layer["w1 bias"], fc2_expert_biases=layer["w2 bias"], input_sf=case.scales,
            swiglu_alpha=ones * ALPHA, swiglu_beta=ones * BETA, swiglu_limit=ones * LIMIT, output=case.out,
            use_mxfp8_act_scaling=True, enable_pdl=pdl,
        )  # fmt: skip


def run_launcher(tokens: list[int], repeats: int) -> list[dict[str, Any]]:
    """Run every tactic of the module that the environment selects, in this process."""
    layer = Layer()
    rows: list[dict[str, Any]] = []
    for count in tokens:
        case = make_case(count, layer.weights)
        layer.run(case, (-1, -1))
        tactics = pairs(layer.runner.get_gemm1_tactic_count(), layer.runner.get_gemm2_tactic_count())
        replays: list[tuple[Any, dict[str, Any]]] = []
        for tactic in tactics:
            row, graph = run_once(layer, case, tactic)
            rows.append(row)
            if graph:
                replays.append((graph, row))
        rows.append(run_once(layer, case, (-1, -1), pdl=True)[0])
        rows.append(run_once(layer, make_case(count, layer.weights, same=True), (-1, -1))[0] | {"routing": "same"})
        measure(replays, repeats)
    return rows


def run_once(layer: Layer, case: Case, tactic: tuple[int, int], *, pdl: bool = False) -> tuple[dict[str, Any], Any]:
    """Run a pair of tactics by a call, and by a graph that is replayed twice; the graph is None if capture failed."""
    import torch

    row: dict[str, Any] = {"tokens": case.x.shape[0], "tactic": list(tactic), "pdl": pdl, "routing": "spread"}
    try:
        case.out.fill_(float("nan"))
        layer.run(case, tactic, pdl=pdl)
        torch.cuda.synchronize()
        row["relative_error"], row["worst_part"] = case.relative_error(), case.worst_part()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=layer.pool):
            layer.run(case, tactic, pdl=pdl)
        for _ in range(2):
            case.out.fill_(float("nan"))
            graph.replay()
        torch.cuda.synchronize()
        row["relative_error_replayed"], row["worst_part_replayed"] = case.relative_error(), case.worst_part()
    except RuntimeError as error:
        return row | {"error": str(error).splitlines()[0][:500]}, None
    return row, graph


def measure(replays: list[tuple[Any, dict[str, Any]]], repeats: int) -> None:
    """Replay the graphs in turns. Add the median in µs, and its ratio to the first's, to the rows."""
    import torch

    times: list[list[float]] = [[] for _ in replays]
    for _ in range(repeats):
        for (graph, _row), found in zip(replays, times, strict=True):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1000)
    for (_graph, row), found in zip(replays, times, strict=True):
        row["microseconds"] = statistics.median(found)
        row["ratio"] = row["microseconds"] / statistics.median(times[0])


def wrong(row: dict[str, Any]) -> bool:
    """Return whether a row failed, or differs from the reference by more than BF16 rounding, as a whole or in a part."""
    limits = {"relative_error": MOST_ERROR, "worst_part": MOST_ERROR_OF_A_PART}
    return "error" in row or not all(
        row[name + run] <= limit for name, limit in limits.items() for run in ("", "_replayed")
    )


def launchers() -> list[str]:
    """Return the launchers of the installed FlashInfer; from 0.7 on only the generic one."""
    from flashinfer.jit import fused_moe

    return list(LAUNCHERS) if hasattr(fused_moe, "_sm120_moe_launcher") else ["generic"]


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
    parser.add_argument("--tokens", default="1,4,16,64,256,2048")
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
    for launcher in launchers():
        env = {
            **os.environ,
            "FLASHINFER_SM120_MOE_LAUNCHER": launcher,
        }
        command = [sys.executable, __file__, "--one", "--tokens", given.tokens, "--repeats", str(given.repeats)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode:
            found["launchers"][launcher] = {"exit": done.returncode, "message": done.stderr[-3000:]}
            good = False
            continue
        answer = json.loads(done.stdout.splitlines()[-1])
        found["machine"] = answer["machine"]
        found["launchers"][launcher] = answer["rows"]
        for row in answer["rows"]:
            good &= not wrong(row)
            how = f"{row['tokens']:4} tokens, tactic {row['tactic']}"
            how += f"{', PDL' if row['pdl'] else ''}{', the same experts' if row['routing'] == 'same' else ''}"
            said = row.get("error") or f"error {row['relative_error']:.1e}"
            if "microseconds" in row:
                said += f", {row['microseconds']:.1f} us, {row['ratio']:.2f}"
            print(f"{launcher:9} {how}: {'WRONG ' if wrong(row) else ''}{said}")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
