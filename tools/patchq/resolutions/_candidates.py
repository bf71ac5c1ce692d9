"""Candidates for a resolution, and the first checks that every candidate must pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from patchq.names import TreeId
from patchq.resolutions import _git_strategies, _pieces
from patchq.resolutions._kept import lost_change, made_twice, misplaced, stale_name
from patchq.resolutions._sides import Sides
from patchq.resolutions._syntax import broken

#: Name of the strategy that merges smaller pieces than git. Proposals show the names of its methods instead.
PIECES = "smaller pieces"


class StrategyOutcome(Enum):
    """Kind of result of a strategy."""

    PROPOSED = "proposed"
    CONFLICT = "conflict"
    #: A change of one side is missing.
    LOST_CHANGE = "lost change"
    #: Both sides add the same line once, and the result contains the line twice.
    MADE_TWICE = "made twice"
    #: One side removes a name from a file, and the other side adds uses of the name.
    STALE_NAME = "stale name"
    #: A statement is in another block than on the side that changed it.
    MISPLACED = "misplaced"
    #: A file has more syntax errors than on any side.
    SYNTAX = "syntax"
    #: A check of ``resolve`` failed.
    REFUSED = "refused"
    #: The tool failed or is not installed.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """Result of trying one strategy on the conflict.

    :ivar tree: resolved tree; None if the strategy produced none.
    :ivar where: word, file or message that explains the outcome.
    :ivar unread: changed files whose syntax no parser has checked.
    """

    strategy: str
    outcome: StrategyOutcome
    tree: TreeId | None = None
    where: str = ""
    unread: tuple[str, ...] = ()


def candidates(sides: Sides) -> Iterator[StrategyResult]:
    """Yield the result of each strategy that needs only git. :func:`look` has checked each result."""
    for name, tree in _git_strategies.merges(sides):
        yield look(sides, name, tree) if tree else StrategyResult(strategy=name, outcome=StrategyOutcome.CONFLICT)
    found = _pieces.merge_pieces(sides)
    if found is None:
        yield StrategyResult(strategy=PIECES, outcome=StrategyOutcome.CONFLICT)
    else:
        methods, files = found
        yield look(sides, methods, sides.with_files(files))


def look(sides: Sides, strategy: str, tree: TreeId, *, adapts: bool = False) -> StrategyResult:
    """Check that a tree contains all changes of both sides, and that its files parse.

    :param adapts: True if the strategy may write new text. Then words aren't compared.
    """
    if not adapts:
        if word := lost_change(sides, tree):
            return StrategyResult(strategy=strategy, outcome=StrategyOutcome.LOST_CHANGE, where=word)
        if line := made_twice(sides, tree):
            return StrategyResult(strategy=strategy, outcome=StrategyOutcome.MADE_TWICE, where=line)
        if name := stale_name(sides, tree):
            return StrategyResult(strategy=strategy, outcome=StrategyOutcome.STALE_NAME, where=name)
        if strategy in _git_strategies.IGNORE_BLANKS and (path := misplaced(sides, tree)):
            return StrategyResult(strategy=strategy, outcome=StrategyOutcome.MISPLACED, where=path)
    paths = sides.changed_by(tree)
    _, ours, theirs, result = sides.versions(tree, paths)
    name, message, unread = broken([ours, theirs], result)
    if name:
        return StrategyResult(strategy=strategy, outcome=StrategyOutcome.SYNTAX, where=f"{name}: {message}")
    return StrategyResult(strategy=strategy, outcome=StrategyOutcome.PROPOSED, tree=tree, unread=tuple(unread))
