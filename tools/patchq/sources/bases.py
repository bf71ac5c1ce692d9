"""Bases: the pinned commits in the store, and the refs that name them."""

from __future__ import annotations

from collections.abc import Mapping

from patchq.formats.lock import Pin
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.records import dataclass
from patchq.system.paths import ref_component


@dataclass(frozen=True, slots=True)
class Base:
    """Pinned commit in the store. ``source`` is ``git`` or ``archive``."""

    pin: Pin
    commit: CommitId
    source: str


def base_ref(pin: Pin, source: str) -> str:
    """Return the ref in the store for a pin.

    Each kind of source has its own ref, because files of the git commit may be missing in the archive.
    """
    return f"refs/patchq/base/{source}/{pin.upstream}/{ref_component(pin.ref)}"


def have_base(store: Git, pin: Pin, refs: Mapping[str, str]) -> Base | None:
    """Return the base of a pin; None if it isn't in the store. ``refs`` are the store's refs.

    A base is ignored if it was fetched for a commit or an archive hash that differs from the lock's.
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
    """Return the ref that records the archive of a base.

    If the hash in a pin changes, the pin is fetched again.
    """
    return f"refs/patchq/archive/{pin.sha256}/{pin.upstream}"
