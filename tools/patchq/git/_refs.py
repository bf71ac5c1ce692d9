"""Refs of a repository, and the ids of the objects to which they point."""

from __future__ import annotations

from collections.abc import Sequence

from patchq.git.command import Command
from patchq.names import CommitId


class Refs(Command):
    """Ref operations of a repository."""

    def resolve(self, *names: str) -> list[str]:
        """Return the object ids of revisions.

        :raises runner.CommandError: if a revision is unknown.
        """
        out = self.run("rev-parse", *names).decode()
        return out.split("\n")[: len(names)]

    def ref_or_none(self, ref: str) -> CommitId | None:
        """Return the commit to which ``ref`` points; None if the ref doesn't exist."""
        argv = ("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")
        found = self.line(*argv, ok_codes=(0, 1, 128))
        if found:
            return CommitId(found)
        return None

    def refs(self, *prefixes: str) -> dict[str, str]:
        """Return the refs below the prefixes, with the ids of their objects."""
        out = self.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
        found: dict[str, str] = {}
        # Ref names have any encoding. Not splitlines: they may hold other line separators.
        for line in out.decode("utf-8", "replace").split("\n")[:-1]:
            name, _, object_id = line.partition(" ")
            found[name] = object_id
        return found

    def update_refs(self, moves: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Move refs ``(name, old, new)`` in one transaction that checks the old values.

        None means that the ref doesn't exist.
        """
        zero = "0" * 40
        lines = [f"update {ref}\0{new or zero}\0{old or zero}\0" for ref, old, new in moves]
        if lines:
            self.run("update-ref", "-z", "--stdin", data="".join(lines).encode())
