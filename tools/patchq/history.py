"""``ledger``: the committed history of a project's rebases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from patchq import fsio
from patchq.errors import UserError
from patchq.ledger import Ledger, parse
from patchq.project import Project
from patchq.stack import ledger_path


def read_ledgers(project: Project, names: Sequence[str] = (), patch: str = "") -> dict[str, Ledger]:
    """The ledgers of upstreams, all that have one or the named ones.

    :param patch: only what tells of this patch.
    :raises UserError: for an unknown upstream, or a patch that no ledger tells of.
    """
    for name in names:
        if name not in project.lock.upstreams:
            raise UserError(f"no upstream {name!r}", hint=f"there are {', '.join(project.lock.upstreams)}")
    found = {}
    for name in names or project.lock.upstreams:
        data = fsio.read_or_none(ledger_path(project.layout, name))
        if data is not None:
            found[name] = parse(data)
    if patch:
        short = patch.rpartition("/")[2]
        found = {n: replace(x, attempts=tuple(a for a in x.attempts if a.patch == short)) for n, x in found.items()}
        if not any(x.attempts for x in found.values()):
            raise UserError(f"no ledger tells of {patch}", hint="`patchq ledger` shows them all")
    return found
