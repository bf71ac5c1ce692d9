"""The git command, as patchq runs it: with nothing of a person's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.system import runner

#: What patchq's own git calls never take from a user's configuration.
PINNED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "patchq",
    "GIT_COMMITTER_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_NAME": "patchq",
    "GIT_AUTHOR_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_DATE": "946684800 +0000",
    "GIT_COMMITTER_DATE": "946684800 +0000",
}
#: What git says where the store lacks something, or holds something damaged.
_LOST = re.compile(
    r"bad object|unable to read|missing (?:blob|tree|commit)|is corrupt|could not (?:read|parse)|bad tree|"
    r"not a git repository|bad ref|broken ref|bad signature|index file|reference broken|bad config|is not a valid ref"
)
MEND = "`patchq fetch` mends the store: what it lacks is brought or made again"


class Command:
    """Commands in one repository or worktree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        *args: str,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[str] = (),
        ok_codes: Sequence[int] = (0,),
    ) -> bytes:
        """Standard output of ``git *args``.

        :raises runner.CommandError: when it fails.
        """
        argv = ["git", *(x for c in config for x in ("-c", c)), *args]
        every = {**PINNED, **(env or {})}
        try:
            return runner.run(argv, cwd=self.folder, data=data, env=every, ok_codes=ok_codes).stdout
        except runner.CommandError as error:
            if _LOST.search(error.said):
                error.hint = MEND
            raise

    def line(self, *args: str, ok_codes: Sequence[int] = (0,)) -> str:
        """The single line that a command prints."""
        return self.run(*args, ok_codes=ok_codes).decode().strip()
