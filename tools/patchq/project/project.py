"""A project as the verbs see it: its lock, store, worktrees and journal, behind one lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import UserError, nearest
from patchq.formats.lock import MOST_BYTES, Lock, Pin, parse
from patchq.git.repository import Git, init_store
from patchq.git.worktree import Worktree
from patchq.project._private import check_private
from patchq.project.journal import Journal
from patchq.project.stack import Stack, load_stack
from patchq.system import fsio, leftovers, project_files
from patchq.system.paths import Layout, find_project

if TYPE_CHECKING:
    from patchq.system.progress import Progress


def quiet(_: str) -> None:
    """Say nothing."""


@dataclass
class Project:
    """The project at ``layout.root``. ``say`` gets a line about what goes on, ``progress`` how far it has come."""

    layout: Layout
    say: Callable[[str], None] = quiet
    wait: float = 10.0
    progress: Progress | None = None
    _parsed: tuple[bytes, Lock] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def find(cls, start: Path, say: Callable[[str], None] = quiet, wait: float = 10.0) -> Project:
        """The project around ``start``.

        :raises UserError: if there is none.
        :raises StateError: if what lies in its ``.patchq`` isn't patchq's own.
        """
        layout = find_project(start)
        check_private(layout)
        return cls(layout, say, wait)

    def count(self, what: str, done: int, total: int, unit: str) -> None:
        """Tell how far something has come: so many of so many units."""
        if self.progress:
            self.progress(what, done, total, unit)

    @cached_property
    def lock(self) -> Lock:
        data = project_files.read(self.layout.root, self.layout.lock, MOST_BYTES)
        if data is None:
            raise UserError(f"{self.layout.lock} is gone", hint="restore it, or `patchq init`")
        if self._parsed is None or self._parsed[0] != data:
            self._parsed = data, parse(data, str(self.layout.lock))
        return self._parsed[1]

    @cached_property
    def store(self) -> Git:
        check_private(self.layout)
        return init_store(self.layout.store)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.layout, self.store, self.worktree)

    def worktree(self, upstream: str) -> Worktree:
        """The worktree of an upstream, whether or not it is there yet."""
        # A rebase's is named UPSTREAM@REF: neither an upstream's name nor a set's can hold an @.
        return Worktree(
            self.store, upstream, self.layout.tree(upstream), self.lock.nested_in(upstream.partition("@")[0])
        )

    @contextmanager
    def locked(self, verb: str, *, finish: bool = True) -> Iterator[None]:
        """Hold the project's lock; a change that a killed command left is finished first.

        :param finish: False to leave that change as it is.
        :raises StateError: if what lies in ``.patchq`` isn't patchq's own.
        """
        check_private(self.layout)
        with (
            fsio.lock(self.layout.private / "lock", verb=verb, wait=self.wait) as killed,
            leftovers.cleared(self.layout, killed),
        ):
            begun = finish and self.layout.private.joinpath("journal", "pending.json").exists()
            if begun and (summary := self.journal.recover()):
                self.say(f"finished what an interrupted command had begun: {summary}")
            # Whoever held the lock before may have changed upstream.lock; stacks are read inside too.
            self.__dict__.pop("lock", None)
            yield

    def choose_set(self, name: str) -> str:
        """``name``, or the default set.

        :raises UserError: if there is no such set.
        """
        chosen = name or self.lock.default_set
        if not chosen:
            raise UserError("upstream.lock has no pins yet", hint="`patchq pin NAME --url URL --ref REF`")
        self.lock.pins_of(chosen)
        return chosen

    def stacks(self, set_name: str, names: Sequence[str] = ()) -> list[Stack]:
        """The stacks of a set, all or the named ones, parents before nested ones.

        :raises UserError: for a name that isn't in the set.
        """
        pins = self.lock.pins_of(set_name)
        self.check_names(pins, names, set_name)
        return [load_stack(self.layout, pin) for pin in pins if not names or pin.upstream in names]

    @staticmethod
    def check_names(pins: Sequence[Pin], names: Sequence[str], set_name: str) -> None:
        """:raises UserError: for a name that is no upstream of the set."""
        known = [pin.upstream for pin in pins]
        for name in names:
            if name not in known:
                hint = nearest(name, known, f"it has {', '.join(known)}")
                raise UserError(f"no upstream {name!r} in the set {set_name}", hint=hint)
