"""The blocks that share a row of top-k all come to their end, whichever of them is ahead.

FlashInfer's own kernels, compiled for the host and run by a schedule of their blocks: where the leading block resets
the counter of their barriers at its end, one that arrived and has yet to look waits forever. On SM12x, whose shared
memory is too small for the other kernel of top_k, each row of 201088 goes through them, by nine blocks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from topk_group import SCHEDULES, build, run


@pytest.fixture(scope="module")
def program(trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(trees, tmp_path_factory.mktemp("topk"))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", ["mask", "renorm", "indices", "pages", "ragged"])
def test_no_block_waits_forever_and_the_state_is_as_it_was(program: Path, kernel: str, schedule: str) -> None:
    """Two launches over one state, of rows that one group does after another; some are wanted whole."""
    assert run(program, kernel, schedule, "some") == {"wrong": 0, "unclean": 0}
