"""What vLLM's proofs share: a faked device, its log, and the code that a patch adds.

Without its patch a proof must fail by an assertion: `need` asks for what a patch adds in that way.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_setup
import pytest

Load = Callable[[str], ModuleType]


def need(owner: Any, name: str) -> Any:
    """An attribute that a patch adds; its absence is a failed assertion."""
    assert hasattr(owner, name), f"{getattr(owner, '__name__', owner)} has no {name}"
    return getattr(owner, name)


def needed_module(name: str) -> ModuleType:
    """A module that a patch adds; its absence is a failed assertion."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name != name, f"no module {name}"
        raise


def forget(module: ModuleType) -> None:
    """Empty the caches of a module's functions: they hold answers for another device."""
    for value in list(vars(module).values()):
        if isinstance(value, functools._lru_cache_wrapper):
            value.cache_clear()


@pytest.fixture
def device(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """``device(12, 1, *modules)``: those modules take the platform for CUDA of that capability."""
    interface = upstream_import("vllm.platforms.interface")
    touched: list[ModuleType] = []

    def fake(major: int, minor: int, *modules: str) -> Any:
        class Faked(interface.Platform):  # type: ignore[name-defined, misc]
            _enum = interface.PlatformEnum.CUDA
            device_type = "cuda"

            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> object:
                return interface.DeviceCapability(major, minor)

        platform = Faked()
        for name in modules:
            module = upstream_import(name)
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
    forget(logger)
    root.addHandler(handler)
    yield said
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
    for name in ("vllm._C", "vllm._moe_C"):
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
    monkeypatch.setattr(module, "is_pin_memory_available", lambda: False)
    return SimpleNamespace(module=module, made=made)
