"""Names in a repository, and the ids they point at."""

from __future__ import annotations

from collections.abc import Sequence

from patchq.git.command import Command
from patchq.names import CommitId


class Refs(Command):
    """Reading and moving refs."""

    def resolve(self, *names: str) -> list[str]:
        """Object ids of revisions; an unknown one fails."""
        out = self.run("rev-parse", *names).decode()
        return out.split("\n")[: len(names)]

    def ref_or_none(self, ref: str) -> CommitId | None:
        """The commit that ``ref`` points at, or None where there is no such ref."""
        found = self.line("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}", ok_codes=(0, 1, 128))
        return CommitId(found) if found else None

    def refs(self, *prefixes: str) -> dict[str, str]:
        """All refs below the prefixes, with the ids they point at."""
        # Somebody else's are named in any encoding, and with what splitlines takes for the end of a line.
        out = self.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).decode("utf-8", "replace")
        pairs = (line.partition(" ") for line in out.split("\n")[:-1])
        return {name: oid for name, _, oid in pairs}

    def update_refs(self, moves: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Move refs ``(name, old, new)`` in one transaction, old values checked; None is no ref."""
        zero = "0" * 40
        lines = [f"update {ref}\0{new or zero}\0{old or zero}\0" for ref, old, new in moves]
        if lines:
            self.run("update-ref", "-z", "--stdin", data="".join(lines).encode())
