"""What vLLM's proofs are given: a faked device, its log, its configuration, recording wrappers, Marlin in torch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup
import gpt_oss_config
import pytest
import torch
from vllm_kit import MXFP4, MXFP4_LEGACY, forget, need

Load = Callable[[str], ModuleType]


@pytest.fixture
def device(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """``device(12, 1, *modules)``: those modules take the platform for CUDA of that capability."""
    interface = upstream_import("vllm.platforms.interface")
    touched: list[ModuleType] = []

    def fake(major: int, minor: int, *modules: str, kind: str = "CUDA") -> Any:
        class Faked(interface.Platform):  # type: ignore[name-defined, misc]
            _enum = interface.PlatformEnum[kind]
            device_type = "cuda"

            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> object:
                return interface.DeviceCapability(major, minor)

        platform = Faked()
        for name in modules:
            module = upstream_import(name)
            need(module, "current_platform")
            monkeypatch.setattr(module, "current_platform", platform)
            forget(module)
            touched.append(module)
        return platform

    yield fake
    for module in touched:
        forget(module)


@pytest.fixture
def log(upstream_import: Load) -> Iterator[list[str]]:
    """What vLLM logs, from ``info`` up; ``*_once`` says everything again."""
    logger = upstream_import("vllm.logger")
    said: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"{record.levelname} {record.getMessage()}")

    handler, root = Handler(), logging.getLogger("vllm")
    level = root.level
    forget(logger)
    root.addHandler(handler)
    root.setLevel(logging.INFO)  # newer releases configure it later
    yield said
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.fixture
def config(upstream_import: Load) -> Iterator[Any]:
    """A VllmConfig for a CPU, current while the test runs."""
    vllm_config = upstream_import("vllm.config")
    made = vllm_config.VllmConfig(device_config=vllm_config.DeviceConfig(device="cpu"))
    with vllm_config.set_current_vllm_config(made):
        yield made


@pytest.fixture
def cuda_platform(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """vLLM's CUDA platform; it imports the compiled operators, which a CPU has none of."""
    for name in ("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C"):
        if name not in sys.modules:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return upstream_import("vllm.platforms.cuda")


@pytest.fixture
def backend(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, config: Any) -> SimpleNamespace:
    """vLLM's FlashInfer backend with recording wrappers: ``module``, and ``made``, the wrappers in order."""
    module = upstream_import("vllm.v1.attention.backends.flashinfer")
    made: list[Any] = []
    for name, fake in flashinfer_setup.recorders(module, made).items():
        monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(module, "_copy_page_indices_kernel", flashinfer_setup.PagesOnCpu())
    flashinfer_setup.without_gpu(module, monkeypatch)
    return SimpleNamespace(module=module, made=made)


@pytest.fixture
def parse(upstream_import: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """vLLM's ModelConfig of a gpt-oss from a command line; "refused" if the parser or the config refuses it."""
    arguments = upstream_import("vllm.engine.arg_utils")
    parsers = upstream_import("vllm.utils.argparse_utils")
    # Everything is imported before the platform is another: modules keep the one they found.
    upstream_import("vllm.model_executor.models.gpt_oss")
    cpu = upstream_import("vllm.platforms.cpu").CpuPlatform()
    for name in ("vllm.platforms", "vllm.config.model"):
        monkeypatch.setattr(upstream_import(name), "current_platform", cpu)
    # The model's class is looked at here and not in a process of its own, which would import another vLLM.
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    registry = upstream_import("vllm.model_executor.models.registry")
    monkeypatch.setattr(registry, "_run_in_subprocess", lambda function: function())

    def run(*line: str, **changes: Any) -> Any:
        model = gpt_oss_config.write(tmp_path, **changes)
        parser = arguments.EngineArgs.add_cli_args(parsers.FlexibleArgumentParser())
        try:
            parsed = parser.parse_args(["--model", model, "--skip-tokenizer-init", *line])
            return arguments.EngineArgs.from_cli_args(parsed).create_model_config()
        except (SystemExit, ValueError) as error:
            return f"refused: {error}"

    return run


@pytest.fixture
def select(
    upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, log: list[str]
) -> Callable[..., Any]:
    """Select a backend on a GPU, with the option as given; returns the enum member, or the error's text."""
    module = upstream_import(MXFP4)

    def on(
        capability: tuple[int, int], cli: str | None = None, lora: bool = False, flashinfer: bool = True,
        triton: bool = False, kind: str = "CUDA", **variables: str,
    ) -> Any:  # fmt: skip
        device(*capability, MXFP4, "vllm.utils.flashinfer", kind=kind)
        for name in (*MXFP4_LEGACY, "VLLM_MXFP4_BACKEND"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        config = SimpleNamespace(model_config=SimpleNamespace(mxfp4_backend=cli))
        monkeypatch.setattr(module, "get_current_vllm_config", lambda: config)
        monkeypatch.setattr(module, "has_flashinfer", lambda: flashinfer)
        monkeypatch.setattr(module, "has_triton_kernels", lambda: triton)
        try:
            return module.get_mxfp4_backend(lora)
        except ValueError as error:
            return str(error)

    return on


@pytest.fixture
def mxfp4_backend(upstream_import: Load) -> Any:
    """The enum of the backends."""
    return upstream_import(MXFP4).Mxfp4Backend


@pytest.fixture
def marlin(upstream_import: Load, device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Marlin's two operators, in torch and in plain layout, on a device that has them; notes each product.

    What is replaced is compiled code and the permutations that it wants, nothing else. The product is
    of the dequantized weight in float64.
    """
    module = upstream_import("vllm.model_executor.layers.quantization.utils.marlin_utils_fp4")
    # Without the patch v0.20.0's method doesn't ask for the platform.
    device(12, 1, *(n for n in (MXFP4, module.__name__) if hasattr(upstream_import(n), "current_platform")))
    products: list[dict[str, Any]] = []
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
    values = torch.cat([grid, -grid])

    def repack(b_q_weight: torch.Tensor, size_k: int, size_n: int, num_bits: int, **rest: Any) -> torch.Tensor:
        assert (b_q_weight.dtype, num_bits) == (torch.int32, 4)
        assert b_q_weight.shape == (size_k // 8, size_n)
        assert (size_n % 128, size_k % 64) == (0, 0) or (size_n % 64, size_k % 128) == (0, 0), "no tile of Marlin's"
        return b_q_weight.clone()

    def gemm(
        a: torch.Tensor, b_q_weight: torch.Tensor, b_scales: torch.Tensor, b_bias: torch.Tensor | None, size_m: int,
        size_n: int, size_k: int, **rest: Any,
    ) -> torch.Tensor:  # fmt: skip
        assert a.shape == (size_m, size_k)
        nibbles = torch.stack([(b_q_weight >> (4 * i)) & 15 for i in range(8)], 1).reshape(size_k, size_n)
        scales = torch.exp2(b_scales.view(torch.uint8).double() - 127).repeat_interleave(32, 0)
        weight = values[nibbles.long()] * scales
        product = a.double() @ weight
        if b_bias is not None:
            product = product + b_bias.double()
        products.append({"a": a, "weight": weight.T, "bias": b_bias, "n": size_n, "k": size_k, **rest})
        return product.to(a.dtype)

    monkeypatch.setattr(module.ops, "gptq_marlin_repack", repack)
    # v0.20.0 has it without the prefix.
    name = "gptq_marlin_gemm" if hasattr(module.ops, "gptq_marlin_gemm") else "marlin_gemm"
    monkeypatch.setattr(module.ops, name, gemm)
    monkeypatch.setattr(module, "marlin_make_workspace_new", lambda device: torch.zeros(1, dtype=torch.int32))
    monkeypatch.setattr(module, "marlin_permute_scales", lambda s, **rest: s)
    monkeypatch.setattr(module, "marlin_permute_bias", lambda bias: bias)
    monkeypatch.setattr(
        module, "mxfp4_marlin_process_scales", lambda scales, input_dtype=None: scales.to(torch.float8_e8m0fnu)
    )
    monkeypatch.setattr(module, "should_use_atomic_add_reduce", lambda **rest: False)
    return products
