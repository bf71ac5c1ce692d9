"""The real FlashInfer with SM120's MoE module, but for the compiler and the loader: they note what they are given."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

FULL = "fused_moe_120"
MXFP4 = (torch.float8_e4m3fn, torch.long)


@contextlib.contextmanager
def recorded(
    load: Callable[[str], ModuleType], trees: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[SimpleNamespace]:
    """``events`` is what was compiled and loaded, in order, ``asked`` the modules that vLLM asked for.

    ``ahead(name)`` has compiled one already.
    """
    monkeypatch.syspath_prepend(str(trees / "cutlass" / "python"))
    variables = ("SM120_MOE_LAUNCHER", "SM120_MOE_TILES", "FUSED_MOE_BUILD_PROFILE", "DISABLE_JIT")
    for name in variables:
        monkeypatch.delenv(f"FLASHINFER_{name}", raising=False)
    jit, specs = load("flashinfer.jit.fused_moe"), load("flashinfer.jit.core")
    core, env = load("flashinfer.fused_moe.core"), load("flashinfer.jit.env")
    for name in ("CSRC_DIR", "GEN_SRC_DIR", "JIT_DIR", "AOT_DIR"):
        if hasattr(env, f"FLASHINFER_{name}"):
            monkeypatch.setattr(env, f"FLASHINFER_{name}", folder / name.lower())
    monkeypatch.setattr(env, "CUTLASS_INCLUDE_DIRS", [trees / "cutlass" / "include"])
    flags = SimpleNamespace(get_nvcc_flags_list=lambda supported_major_versions, **_: ["-arch=sm_121f"])
    monkeypatch.setattr(jit, "current_compilation_context", flags)
    monkeypatch.setattr(specs, "check_cuda_arch", lambda: None)
    monkeypatch.setattr(getattr(specs, "JitSpecNvcc", specs.JitSpec), "write_ninja", lambda _: None)
    events: list[tuple[str, str]] = []

    class Module:
        """A module's functions, each of which does nothing."""

        def __getattr__(self, _: str) -> Any:
            return lambda *_: None

    def run_ninja(workdir: Path, *_: object, **__: object) -> None:
        events.append(("compile", workdir.name))
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / f"{workdir.name}.so").touch()

    def load_module(path: str, *_: object) -> Module:
        events.append(("load", Path(path).stem))
        return Module()

    monkeypatch.setattr(specs, "run_ninja", run_ninja)
    monkeypatch.setattr(specs.tvm_ffi, "load_module", load_module)

    def ahead(name: str) -> None:
        library = folder / "aot_dir" / name / f"{name}.so"
        library.parent.mkdir(parents=True)
        library.touch()

    def called() -> Any:
        """The module that a forward takes on SM121."""
        for_dtypes = getattr(core, "get_cutlass_fused_moe_module_for_dtypes", None)
        return for_dtypes("121", *MXFP4) if for_dtypes else core.get_cutlass_fused_moe_module("121")

    def forget() -> None:
        for value in (*vars(core).values(), *vars(jit).values()):
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()

    def older() -> None:
        """As a FlashInfer that has one module for all dtypes."""
        for module, name in ((jit, "use_sm120_moe_mxfp4_only"), (core, "get_cutlass_fused_moe_module_for_dtypes")):
            monkeypatch.delattr(module, name)

    forget()
    # Its name has what it is compiled for.
    generate, asked = jit.gen_cutlass_fused_moe_sm120_module, []
    chosen, full = generate(mxfp4_only=True).name, generate(mxfp4_only=False).name

    def noted(*args: Any, **kwargs: Any) -> Any:
        spec = generate(*args, **kwargs)
        asked.append(spec.name)
        return spec

    monkeypatch.setattr(jit, "gen_cutlass_fused_moe_sm120_module", noted)
    yield SimpleNamespace(
        events=events,
        asked=asked,
        ahead=ahead,
        called=called,
        older=older,
        specs=specs,
        mxfp4=chosen,
        full=full,
        jit_dir=folder / "jit_dir",
    )
    forget()
