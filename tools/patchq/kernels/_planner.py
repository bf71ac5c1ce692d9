"""Run by a Python that has the patched FlashInfer on its path: asks its own generators what they would compile.

It reads ``{"root": …, "modules": [{"call": …, "args": […]}]}`` and prints a line of JSON: for each module its name,
sources and flags, paths below ``root`` relative to it. Sources that are generated are written to ``root/gen``.
Nothing is compiled here.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def argument(value: Any) -> Any:
    """``torch.bfloat16`` is torch's; all else is as it is."""
    if isinstance(value, str) and value.startswith("torch."):
        import torch

        return getattr(torch, value[6:])
    return value


def relative(flag: str, root: str, headers: str) -> str:
    """A flag without the places where this machine has its files; empty for a folder that no kernel needs."""
    flag = flag.replace(root + "/", "").replace(headers, "tvm_ffi")
    place = flag[len("-isystem ") :] if flag.startswith("-isystem ") else ""
    return "" if place.startswith(("/", "$cuda_home")) else flag


def main() -> None:
    asked = json.load(sys.stdin)
    root = os.path.realpath(asked["root"])
    # What FlashInfer says while it is imported is no answer.
    answer, sys.stdout = sys.stdout, sys.stderr
    import tvm_ffi
    from flashinfer.jit import cpp_ext
    from flashinfer.jit import env as places

    places.FLASHINFER_GEN_SRC_DIR = Path(root, "gen")
    places.FLASHINFER_JIT_DIR = Path(root, "ops")
    headers = str(Path(tvm_ffi.__file__).resolve().parent)
    plans = []
    for module in asked["modules"]:
        where, _, name = module["call"].rpartition(".")
        generate = getattr(importlib.import_module(f"flashinfer.{where}"), name)
        spec = generate(*map(argument, module["args"]))
        common = cpp_ext.build_common_cflags("$cuda_home", spec.extra_include_dirs)
        common = [f for f in (relative(flag, root, headers) for flag in common) if f]
        flags = {}
        for kind, build, extra in (
            ("cxx", cpp_ext.build_cflags, spec.extra_cflags),
            ("nvcc", cpp_ext.build_cuda_cflags, spec.extra_cuda_cflags),
        ):
            found = [relative(flag, root, headers) for flag in build(common, extra)]
            flags[kind] = [word for flag in found for word in (common if flag == "$common_cflags" else [flag]) if word]
        plans.append({
            "name": spec.name, "flags": flags, "libraries": list(spec.extra_ldflags or ()),
            "device_linking": bool(spec.needs_device_linking),
            "sources": [os.path.relpath(os.path.realpath(source), root) for source in spec.sources],
        })  # fmt: skip
    json.dump({"headers": headers, "plans": plans}, answer)


if __name__ == "__main__":
    main()
