"""Whose repositories are read: git's own rule, by the person's ``safe.directory``, asked before git is."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from patchq.system import runner


def stranger(path: Path, *named: Path) -> int | None:
    """The user whom a path belongs to, where it is another than who asks, and no name of it is one that is safe.

    :param named: what a person's configuration may call it; a folder above with ``/*``, or ``*``, is all below.
    """
    owner = path.stat().st_uid
    if owner == os.geteuid() or (os.geteuid() == 0 and str(owner) == os.environ.get("SUDO_UID")):
        return None
    said = runner.run(["git", "config", "--null", "--get-all", "safe.directory"], cwd=Path("/"), ok_codes=(0, 1)).stdout
    safe: set[str] = set()
    for entry in os.fsdecode(said).split("\0")[:-1]:
        safe = safe | {entry} if entry else set()  # an empty one forgets those before
    above = {f"{folder}/*".replace("//", "/") for name in named for folder in name.parents}
    return None if safe & {"*", *map(str, named), *above} else owner


def trusting(path: Path) -> str:
    """What to type to have a path read that is another user's."""
    return f"if you trust them with your account: `git config --global --add safe.directory {shlex.quote(str(path))}`"
