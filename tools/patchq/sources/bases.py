"""Bases: the pins that the store has, and the refs that it keeps them by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from patchq.formats.lock import Pin
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.system.paths import ref_component


@dataclass(frozen=True, slots=True)
class Base:
    """A pin in the store. ``source`` is ``git`` or ``archive``."""

    pin: Pin
    commit: CommitId
    source: str


def base_ref(pin: Pin, source: str) -> str:
    """Where the store keeps a pin: per source, since an archive may lack files that git has."""
    return f"refs/patchq/base/{source}/{pin.upstream}/{ref_component(pin.ref)}"


def have_base(store: Git, pin: Pin, refs: Mapping[str, str]) -> Base | None:
    """The pin as the store has it, or None. ``refs`` are the store's refs.

    A base that was fetched for another commit or archive hash than the lock has now isn't it.
    """
    for source in ("git", "archive"):
        if pin.source in ("", source):
            found = refs.get(base_ref(pin, source))
            if found and (source == "git" and found == pin.commit):
                return Base(pin, CommitId(found), source)
            if found and source == "archive" and refs.get(hash_ref(pin)) == found:
                return Base(pin, CommitId(found), source)
    return None


def hash_ref(pin: Pin) -> str:
    """Return the ref that records the archive of a base, so that a pin with another archive is fetched again."""
    return f"refs/patchq/archive/{pin.sha256}/{pin.upstream}"
