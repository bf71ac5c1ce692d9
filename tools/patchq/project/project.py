"""A project: its lock file, store, worktrees and journal, and the file lock that serialises commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.errors import UserError, nearest
from patchq.formats.lock import MOST_BYTES, Lock, Pin, parse
from patchq.names import sh
from patchq.project._private import check_private
from patchq.project.stack import Stack, load_stack
from patchq.system import fsio, leftovers, project_files
from patchq.system.paths import Layout, find_project

if TYPE_CHECKING:
    from patchq.git.repository import Git
    from patchq.git.worktree import Worktree
    from patchq.project.journal import Journal
    from patchq.system.progress import Progress


def quiet(_: str) -> None:
    """Ignore a message. Used as the default for ``say``."""


@dataclass(kw_only=True)
class Project:
    """Project on disk.

    :ivar say: Function that is called with each message.
    :ivar wait: Seconds to wait for the project's lock.
    :ivar progress: Function that is called with the progress of long operations.
    """

    layout: Layout
    say: Callable[[str], None] = quiet
    wait: float = 10.0
    progress: Progress | None = None
    _parsed: tuple[bytes, Lock] | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def find(cls, start: Path, say: Callable[[str], None] = quiet, wait: float = 10.0) -> Project:
        """Return the project that contains the folder ``start``.

        :raises UserError: if there is no project.
        :raises StateError: if patchq didn't create its ``.patchq``.
        """
        layout = find_project(start)
        check_private(layout)
        return cls(layout=layout, say=say, wait=wait)

    def count(self, what: str, done: int, total: int, unit: str) -> None:
        """Report the progress of an operation."""
        if self.progress:
            self.progress(what, done, total, unit)

    @cached_property
    def lock(self) -> Lock:
        data = project_files.read(self.layout.root, self.layout.lock, MOST_BYTES)
        if data is None:
            raise UserError(f"{self.layout.lock} is gone", hint="restore it, or run `patchq init`")
        if self._parsed is None or self._parsed[0] != data:
            self._parsed = data, parse(data, str(self.layout.lock))
        return self._parsed[1]

    @cached_property
    def store(self) -> Git:
        from patchq.git.repository import init_store  # slow, and not all commands use the store

        check_private(self.layout)
        return init_store(self.layout.store)

    @cached_property
    def journal(self) -> Journal:
        from patchq.project.journal import Journal

        return Journal(self.layout, self.store, self.worktree)

    def worktree(self, upstream: str) -> Worktree:
        """Return the worktree of an upstream. It may not exist yet."""
        from patchq.git.worktree import Worktree

        # The worktree of a rebase is named UPSTREAM@REF; names of upstreams and sets have no @.
        nested = self.lock.nested_in(upstream.partition("@")[0])
        return Worktree(self.store, upstream, self.layout.tree(upstream), nested)

    @contextmanager
    def locked(self, verb: str, *, finish: bool = True) -> Iterator[None]:
        """Hold the project's lock. If a command was interrupted, finish its change first.

        :param finish: False to leave the interrupted change pending.
        :raises StateError: if patchq didn't write ``.patchq``.
        """
        check_private(self.layout)
        with (
            fsio.lock(self.layout.private / "lock", verb=verb, wait=self.wait) as killed,
            leftovers.cleared(self.layout, killed),
        ):
            if finish and self.layout.private.joinpath("journal", "pending.json").exists():
                summary = self.journal.recover()
                if summary:
                    self.say(f"finished an interrupted command: {summary}")
            # Another command may have changed upstream.lock before this one got the lock.
            self.__dict__.pop("lock", None)
            yield

    def choose_set(self, name: str) -> str:
        """Return ``name``, or the default set if ``name`` is empty.

        :raises UserError: if there is no such set.
        """
        chosen = name or self.lock.default_set
        if not chosen:
            raise UserError(
                "upstream.lock has no pins yet",
                hint="pin an upstream first, such as `patchq pin httpx --archive httpx==0.28.1 --ref 0.28.1`; "
                "`--url` takes a git URL",
            )
        self.lock.pins_of(chosen)
        return chosen

    def set_option(self, set_name: str) -> str:
        """Return `` --set SET`` to append to a printed command; empty for the default set."""
        if set_name in ("", self.lock.default_set):
            return ""
        return f" --set {sh(set_name)}"

    def stacks(self, set_name: str, names: Sequence[str] = ()) -> list[Stack]:
        """Return the stacks of a set. A parent comes before the upstreams nested in it.

        :param names: Upstreams to select; empty for all.
        :raises UserError: for a name that isn't in the set.
        """
        pins = self.lock.pins_of(set_name)
        self.check_names(pins, names, set_name)
        stacks: list[Stack] = []
        for pin in pins:
            if not names or pin.upstream in names:
                stacks.append(load_stack(self.layout, pin))
        return stacks

    @staticmethod
    def check_names(pins: Sequence[Pin], names: Sequence[str], set_name: str) -> None:
        """Check that the set contains these upstreams.

        :raises UserError: for a name that isn't in the set.
        """
        known = [pin.upstream for pin in pins]
        for name in names:
            if name not in known:
                hint = nearest(name, known, f"it has {', '.join(known)}")
                raise UserError(f"no upstream {name!r} in the set {set_name}", hint=hint)
