"""The blocks that share a row of top-k all come to their end, whichever of them is ahead.

FlashInfer's own kernels, compiled for the host and run by a schedule of their blocks: where the leading block resets
the counter of their barriers at its end, one that arrived and has yet to look waits forever. On SM12x, whose shared
memory is too small for the other kernel of top_k, each row of 201088 goes through them, by nine blocks.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from topk_group import KERNELS, build, run

#: Blocks of each group of three: by rank, and by chance.
LEADING_FIRST, LEADING_LAST = "0,1,2,3,4,5", "5,4,3,2,1,0"


@pytest.fixture(scope="module")
def program(trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(trees, tmp_path_factory.mktemp("topk"))


@pytest.mark.parametrize("schedule", [LEADING_FIRST, LEADING_LAST, "1,2,0,4,5,3", "0,2,1,5,3,4", "1", "2", "3", "7"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_block_waits_forever_and_the_state_is_as_it_was(program: Path, kernel: str, schedule: str) -> None:
    """Two launches over one state: rows that one group does after another, with all of a row wanted and one of it."""
    assert run(program, kernel, schedule) == {"wrong": 0, "unclean": 0}
