"""Planner of kernel modules. It runs FlashInfer's generators, in a Python with the patched FlashInfer on its path.

The program reads ``{"root": …, "modules": [{"call": …, "args": […]}]}`` from standard input and prints a line
of JSON with the name, sources and flags of each module. Paths below ``root`` are relative. Generated sources
are written to ``root/gen``. Nothing is compiled.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def argument(value: Any) -> Any:
    """Return torch's object for a text such as ``torch.bfloat16``; return other values unchanged."""
    if isinstance(value, str) and value.startswith("torch."):
        import torch

        return getattr(torch, value[6:])
    return value


def relative(flag: str, root: str, headers: str) -> str:
    """Return a flag without this machine's folders; empty for include folders outside of the root."""
    flag = flag.replace(root + "/", "").replace(headers, "tvm_ffi")
    if flag.startswith(("-isystem /", "-isystem $cuda_home")):
        return ""
    return flag


def main() -> None:
    """Read the request from standard input, and print the plans."""
    question = json.load(sys.stdin)
    root = os.path.realpath(question["root"])
    # FlashInfer prints messages while it is imported.
    answer, sys.stdout = sys.stdout, sys.stderr
    import tvm_ffi
    from flashinfer.jit import cpp_ext
    from flashinfer.jit import env as places

    places.FLASHINFER_GEN_SRC_DIR = Path(root, "gen")
    places.FLASHINFER_JIT_DIR = Path(root, "ops")
    headers = str(Path(tvm_ffi.__file__).resolve().parent)
    plans = []
    for module in question["modules"]:
        place, _, name = module["call"].rpartition(".")
        generate = getattr(importlib.import_module(f"flashinfer.{place}"), name)
        spec = generate(*map(argument, module["args"]))
        common = []
        for flag in cpp_ext.build_common_cflags("$cuda_home", spec.extra_include_dirs):
            common.append(relative(flag, root, headers))
        flags = {}
        for compiler, build, extra in (
            ("cxx", cpp_ext.build_cflags, spec.extra_cflags),
            ("nvcc", cpp_ext.build_cuda_cflags, spec.extra_cuda_cflags),
        ):
            found = []
            for flag in build(list(filter(None, common)), extra):
                if flag == "$common_cflags":
                    found += common
                else:
                    found.append(relative(flag, root, headers))
            flags[compiler] = list(filter(None, found))
        plan = {
            "name": spec.name,
            "flags": flags,
            "libraries": list(spec.extra_ldflags or ()),
            "device_linking": bool(spec.needs_device_linking),
            "sources": [os.path.relpath(os.path.realpath(path), root) for path in spec.sources],
        }
        plans.append(plan)
    json.dump({"headers": headers, "plans": plans}, answer)


if __name__ == "__main__":
    main()
