"""Built ahead of time, SM121 gets the MoE and FP4 GEMM modules that SM120 gets; all else is as it was.

The real list of modules, each maker of which notes its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Load = Callable[[str], ModuleType]
SHARED = ["gen_cutlass_fused_moe_sm120_module", "gen_gemm_sm120_module", "gen_gemm_sm120_module_cutlass_fp4"]
OWN = {"sm120": "gen_fp4_quantization_sm120_module", "sm121": "gen_fp4_quantization_sm121_module"}


@pytest.fixture
def listed(upstream_import: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The names of the makers that are asked for SM12x's modules on these architectures."""
    return lambda *archs, **named: asked_of(upstream_import, monkeypatch, *archs, **named)


def asked_of(upstream_import: Load, monkeypatch: pytest.MonkeyPatch, *archs: str, add_moe: bool = True) -> list[str]:
    """Return the makers that gen_all_modules() calls for SM12x's modules on these architectures, once for each call.

    The list that it returns has each module once, however often its sources were generated. A call with arguments is
    named with them, since a maker's defaults are those of the JIT.
    """
    aot = upstream_import("flashinfer.aot")
    asked: list[str] = []

    def make(name: str, *given: object, **named: object) -> Named:
        asked.append(f"{name}{given or ''}{named or ''}")
        return Named(asked[-1])

    for name in dir(aot):
        if name.startswith("gen_") and name != "gen_all_modules":
            lists = name in ("gen_attention", "gen_xqa")
            monkeypatch.setattr(
                aot, name, lambda *a, _name=name, _lists=lists, **n: [] if _lists else make(_name, *a, **n)
            )
    given: dict[str, Any] = {name: [] for name in inspect.signature(aot.gen_all_modules).parameters}
    given |= {name: False for name in given if name.startswith("add_")}
    specs = aot.gen_all_modules(**given | {"add_moe": add_moe, "sm_capabilities": dict.fromkeys(archs, True)})
    asked = [name for name in asked if "sm12" in name]
    assert {spec.name for spec in specs if "sm12" in spec.name} == set(asked)
    return asked


class Named:
    """A module's specification, by its maker."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_sm121_alone_gets_what_sm120_gets(listed: Callable[..., list[str]]) -> None:
    assert sorted(listed("sm121")) == sorted([*SHARED, OWN["sm121"]])
    assert sorted(listed("sm120")) == sorted([*SHARED, OWN["sm120"]])


@pytest.mark.parametrize(("arch", "other"), [("sm121", "sm120"), ("sm120", "sm121")])
@pytest.mark.parametrize("beside", ["sm90", "sm100", "sm100f", "sm103", "sm110"])
def test_other_architectures_of_the_list_change_nothing(
    listed: Callable[..., list[str]], arch: str, other: str, beside: str
) -> None:
    assert sorted(listed(beside, arch)) == sorted([*SHARED, OWN[arch]])
    assert sorted(listed(beside, arch, other)) == sorted([*SHARED, *OWN.values()])


def test_both_get_one_of_each(listed: Callable[..., list[str]]) -> None:
    assert sorted(listed("sm120", "sm121")) == sorted([*SHARED, *OWN.values()])


@pytest.mark.parametrize(
    "archs",
    [(), ("sm90",), ("sm100",), ("sm100f",), ("sm103",), ("sm110",), ("sm90", "sm100", "sm100f", "sm103", "sm110")],
)
def test_others_get_none(listed: Callable[..., list[str]], archs: tuple[str, ...]) -> None:
    assert listed(*archs) == []


def test_without_the_moe_there_is_none(listed: Callable[..., list[str]]) -> None:
    assert listed("sm120", "sm121", add_moe=False) == []
