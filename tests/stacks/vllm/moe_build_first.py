"""What both releases' proofs of mxfp4-moe-build-first ask of a layer's method, whichever way a release makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_moe
import pytest
from flashinfer_moe import FULL
from vllm_kit import forget

Load = Callable[[str], ModuleType]


def again(load: Load) -> None:
    """As another process."""
    forget(load("vllm.utils.flashinfer"))


class BuiltFirst:
    """A proof's file makes a class of it, and has the fixture ``method``."""

    @pytest.fixture
    def flashinfer(
        self, upstream_import: Load, trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SimpleNamespace]:
        with flashinfer_moe.recorded(upstream_import, trees, monkeypatch, tmp_path) as recorded:
            yield recorded

    @pytest.mark.parametrize("name", ["its own", FULL])
    def test_what_is_compiled_ahead_is_loaded_without_a_word(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], upstream_import: Load, name: str
    ) -> None:
        """In a flashinfer-jit-cache; also where nothing may be compiled."""
        name = flashinfer.full if name == FULL else flashinfer.mxfp4
        flashinfer.ahead(name)
        method()
        flashinfer.called()
        assert flashinfer.events == [("load", name)]
        assert [said for said in log if "ompil" in said] == []

    def test_nor_is_anything_said_at_the_second_start(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], upstream_import: Load
    ) -> None:
        method()
        log.clear()
        again(upstream_import)
        forget(upstream_import("vllm.logger"))
        method()
        assert [said for said in log if "ompil" in said] == []

    @pytest.mark.parametrize("first", [True, False])
    def test_one_rank_of_each_machine_has_the_message(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, log: list[str], upstream_import: Load,
        monkeypatch: pytest.MonkeyPatch, first: bool,
    ) -> None:  # fmt: skip
        """Each machine compiles its own: the first rank of all is not the one that counts."""
        ranks = upstream_import("vllm.distributed.parallel_state")
        monkeypatch.setattr(ranks, "is_global_first_rank", lambda: not first)
        monkeypatch.setattr(ranks, "is_local_first_rank", lambda: first)
        method()
        assert flashinfer.events == [("compile", flashinfer.mxfp4), ("load", flashinfer.mxfp4)]
        assert len([said for said in log if "ompil" in said]) == first

    def test_a_flashinfer_with_one_module_for_all_dtypes_compiles_that(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace
    ) -> None:
        flashinfer.older()
        method()
        flashinfer.called()
        assert flashinfer.events == [("compile", flashinfer.full), ("load", flashinfer.full)]

    def test_where_nothing_may_be_compiled_the_forward_says_what_is_missing(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, upstream_import: Load,
        log: list[str],
    ) -> None:  # fmt: skip
        monkeypatch.setenv("FLASHINFER_DISABLE_JIT", "1")
        method()
        assert flashinfer.events == []
        assert [said for said in log if "ompil" in said] == []
        with pytest.raises(RuntimeError, match="FLASHINFER_DISABLE_JIT"):
            flashinfer.called()
        flashinfer.ahead(flashinfer.mxfp4)
        again(upstream_import)
        method()
        assert flashinfer.events == [("load", flashinfer.mxfp4)], "what is there may be loaded"

    def test_an_error_of_the_compiler_comes_before_the_weights(
        self, method: Callable[..., Any], flashinfer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object, **__: object) -> None:
            raise RuntimeError("Ninja build failed.")

        monkeypatch.setattr(flashinfer.specs, "run_ninja", fails)
        said = ""
        try:
            method()
        except RuntimeError as error:
            said = str(error)
        assert said == "Ninja build failed."
