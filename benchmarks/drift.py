"""How good `drift` is: signature changes injected into the real FlashInfer, judged over the real vLLM.

    python benchmarks/drift.py [--changes 200] [--seed 7]

Each round changes one parameter list of a FlashInfer function: a parameter inserted, removed,
renamed, or its default changed. The truth is what Python itself says: a call site of vLLM is
affected if binding it (inspect.Signature.bind) to the new signature fails or gives a parameter
another value than binding it to the old one. Which function a call site means is taken from an
annotated list, made by reading vLLM 0.13.0's calls of FlashInfer (SITES below), so that the truth
doesn't come from drift's own guess (some were added after drift had named them and reading confirmed them). Nothing here is a test.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from patchq.drift._api.calls import scan_source  # noqa: E402
from patchq.drift._api.signatures import Api, Parameter, Signature, SignatureChange, load_api  # noqa: E402

TREES = ROOT / ".patchq" / "trees"
WRAPPERS = (
    "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper",
    "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper",
)
#: file, the call's text up to its "(", the function it means; from reading the file.
SITES = {
    ("vllm/v1/attention/backends/flashinfer.py", "attn_metadata.cascade_wrapper.plan"): "flashinfer.cascade.MultiLevelCascadeAttentionWrapper.plan",
    ("vllm/v1/attention/backends/flashinfer.py", "attn_metadata.prefill_wrapper.plan"): None,  # two classes: not judged
    ("vllm/v1/attention/backends/flashinfer.py", "self._context.plan"): WRAPPERS[0] + ".plan",
    ("vllm/v1/attention/backends/flashinfer.py", "self._new_tokens.plan"): WRAPPERS[1] + ".plan",
    ("vllm/v1/attention/backends/flashinfer.py", "BatchPrefillWithPagedKVCacheWrapper"): WRAPPERS[0] + ".__init__",
    ("vllm/v1/attention/backends/flashinfer.py", "BatchPrefillWithRaggedKVCacheWrapper"): WRAPPERS[1] + ".__init__",
    ("vllm/v1/attention/backends/mla/common.py", "BatchPrefillWithRaggedKVCacheWrapper"): WRAPPERS[1] + ".__init__",
    ("vllm/v1/attention/backends/flashinfer.py", "BatchDecodeWithPagedKVCacheWrapper"): "flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.__init__",
    ("vllm/v1/attention/backends/flashinfer.py", "MultiLevelCascadeAttentionWrapper"): "flashinfer.cascade.MultiLevelCascadeAttentionWrapper.__init__",
    ("vllm/v1/attention/backends/flashinfer.py", "_get_range_buf"): "flashinfer.utils._get_range_buf",
    ("vllm/v1/attention/backends/mla/common.py", "cudnn_batch_prefill_with_kv_cache"): "flashinfer.cudnn.prefill.cudnn_batch_prefill_with_kv_cache",
    ("vllm/model_executor/layers/quantization/utils/flashinfer_fp4_moe.py", "get_w2_permute_indices_with_cache"): "flashinfer.fused_moe.core.get_w2_permute_indices_with_cache",
    ("vllm/model_executor/layers/quantization/mxfp4.py", "get_w2_permute_indices_with_cache"): "flashinfer.fused_moe.core.get_w2_permute_indices_with_cache",
    ("vllm/v1/attention/backends/flashinfer.py", "FP4Tensor"): "flashinfer.utils.FP4Tensor.__init__",
    ("vllm/v1/attention/backends/flashinfer.py", "self.plan"): "flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper.plan",
    ("vllm/v1/attention/backends/flashinfer.py", "trtllm_batch_context_with_kv_cache"): "flashinfer.prefill.trtllm_batch_context_with_kv_cache",
    ("vllm/v1/attention/backends/flashinfer.py", "trtllm_batch_decode_with_kv_cache"): "flashinfer.decode.trtllm_batch_decode_with_kv_cache",
    ("vllm/v1/attention/backends/mla/common.py", "self._fi_prefill_main.plan"): WRAPPERS[1] + ".plan",
    ("vllm/v1/attention/backends/mla/common.py", "self._fi_prefill_chunks[i].plan"): WRAPPERS[1] + ".plan",
    ("vllm/v1/attention/backends/mla/flashinfer_mla.py", "trtllm_batch_decode_with_kv_cache_mla"): "flashinfer.mla.trtllm_batch_decode_with_kv_cache_mla",
    ("vllm/model_executor/layers/quantization/mxfp4.py", "trtllm_fp4_block_scale_moe"): "flashinfer.fused_moe.core.trtllm_fp4_block_scale_moe",
    ("vllm/model_executor/layers/quantization/mxfp4.py", "mxfp8_quantize"): "flashinfer.fp8_quantization.mxfp8_quantize",
    ("vllm/model_executor/layers/quantization/utils/flashinfer_fp4_moe.py", "flashinfer.fused_moe.trtllm_fp4_block_scale_moe"): "flashinfer.fused_moe.core.trtllm_fp4_block_scale_moe",
    ("vllm/model_executor/layers/quantization/utils/flashinfer_fp4_moe.py", "flashinfer.fused_moe.trtllm_fp4_block_scale_routed_moe"): "flashinfer.fused_moe.core.trtllm_fp4_block_scale_routed_moe",
    ("vllm/v1/sample/ops/topk_topp_sampler.py", "flashinfer.sampling.top_p_sampling_from_probs"): "flashinfer.sampling.top_p_sampling_from_probs",
    ("vllm/v1/sample/ops/topk_topp_sampler.py", "flashinfer.sampling.top_k_sampling_from_probs"): "flashinfer.sampling.top_k_sampling_from_probs",
    ("vllm/v1/sample/ops/topk_topp_sampler.py", "flashinfer.sampling.top_k_top_p_sampling_from_logits"): "flashinfer.sampling.top_k_top_p_sampling_from_logits",
}  # fmt: skip


def calls_of(path: str) -> list[tuple[str, ast.Call]]:
    tree = ast.parse((TREES / "vllm" / path).read_bytes())
    return [(ast.unparse(n.func), n) for n in ast.walk(tree) if isinstance(n, ast.Call)]


RENAMED = "_renamed"
KINDS = {
    "positional-only": 0,
    "positional or keyword": 1,
    "variadic positional": 2,
    "keyword-only": 3,
    "variadic keyword": 4,
}


def real_signature(signature: Signature) -> inspect.Signature:
    made = []
    for p in signature.parameters:
        kind = inspect._ParameterKind(KINDS[p.kind])
        default = inspect.Parameter.empty if p.default is None else p.default
        made.append(inspect.Parameter(p.name, kind, default=default))
    return inspect.Signature(made)


def affected(node: ast.Call, old: Signature, new: Signature) -> bool | None:
    """By Python's own binding; None where the call can't be judged (``*args``, or wrong before)."""
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        return None
    args, kwargs = [ast.unparse(a) for a in node.args], {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
    try:
        before = real_signature(old).bind(*args, **kwargs)
    except TypeError:
        return None
    try:
        after = real_signature(new).bind(*args, **kwargs)
    except TypeError:
        return True
    # A renamed parameter is the same one: what was passed by position lands where it did.
    names = {p.name: p.name for p in old.parameters} | {p.name.removesuffix(RENAMED): p.name for p in new.parameters}
    if {names[n]: v for n, v in before.arguments.items()} != dict(after.arguments):
        return True
    defaults = {p.name: p.default for p in new.parameters}
    left = [p for p in old.parameters if p.name not in before.arguments and names[p.name] in defaults]
    return any(p.default != defaults[names[p.name]] for p in left)


def mutate(signature: Signature, choose: random.Random) -> tuple[str, Signature] | None:
    params = list(signature.parameters)
    plain = [i for i, p in enumerate(params) if p.kind == "positional or keyword"]
    kind = choose.choice(["insert", "remove", "rename", "default", "nothing"])
    if not plain and kind != "nothing":
        return None
    at = choose.choice(plain) if plain else 0
    if kind == "insert":
        optional = params[at].default is not None
        params.insert(at, Parameter("inserted", "positional or keyword", "None" if optional else None))
    elif kind == "remove":
        del params[at]
    elif kind == "rename":
        params[at] = replace(params[at], name=params[at].name + RENAMED)
    elif kind == "default":
        if params[at].default is None:
            return None
        params[at] = replace(params[at], default="'another'")
    return kind, replace(signature, parameters=tuple(params))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--verbose", action="store_true", help="name every miss and false alarm")
    options = parser.parse_args()
    choose = random.Random(options.seed)
    api: Api = load_api("flashinfer", TREES / "flashinfer")
    sites = []
    for (path, text), target in SITES.items():
        nodes = [n for t, n in calls_of(path) if t == text]
        assert nodes, f"{path} has no call {text}: is this vLLM 0.13.0?"
        assert target is None or target in api.functions, target
        sites += [(path, n, target) for n in nodes]
    sources = {path: (TREES / "vllm" / path).read_bytes() for path, _ in SITES}
    unjudged = {(path, n.lineno) for path, n, target in sites if target is None}
    counts: dict[str, Counter[str]] = {}
    done = 0
    while done < options.changes:
        # Half of the changes hit functions that vLLM calls, half any other.
        called = sorted({t for _, _, t in sites if t})
        path = choose.choice(called) if choose.random() < 0.5 else choose.choice(sorted(api.functions))
        mutated = mutate(api.functions[path], choose)
        if mutated is None:
            continue
        done += 1
        kind, new = mutated
        change = [] if kind == "nothing" else [SignatureChange(api.functions[path], new)]
        said = {
            (a.path, a.line) for p, s in sources.items() for a in scan_source(s, p, "vllm", api, change, frozenset())
        }
        truth, skip = set(), set(unjudged)
        for file, node, target in sites:
            if target == path:
                verdict = affected(node, api.functions[path], new)
                (truth if verdict else skip if verdict is None else set()).add((file, node.lineno))
        said -= skip
        if options.verbose and said ^ truth:
            print(f"{kind} in {path}: missed {sorted(truth - said)}, false {sorted(said - truth)}", file=sys.stderr)
        count = counts.setdefault(kind, Counter())
        count.update(changes=1, found=len(said & truth), missed=len(truth - said), false=len(said - truth))
    print("| injected | changes | affected calls | found | missed | false alarms |\n|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for kind, c in sorted(counts.items()):
        total += c
        print(f"| {kind} | {c['changes']} | {c['found'] + c['missed']} | {c['found']} | {c['missed']} | {c['false']} |")
    recall = total["found"] / max(1, total["found"] + total["missed"])
    precision = total["found"] / max(1, total["found"] + total["false"])
    print(f"\nrecall {recall:.3f}, precision {precision:.3f}, over {len(sites)} annotated call sites")


if __name__ == "__main__":
    main()
