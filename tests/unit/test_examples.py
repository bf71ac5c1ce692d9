"""The examples in docstrings."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["formats.header", "system.paths", "stacks.export"])
def test_examples(module: str) -> None:
    found = doctest.testmod(import_module(f"patchq.{module}"))
    assert found.attempted
    assert not found.failed
