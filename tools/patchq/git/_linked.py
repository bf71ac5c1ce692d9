"""The git repository behind a worktree."""

from __future__ import annotations

import os
from pathlib import Path

from patchq.errors import StateError
from patchq.git.repository import Git
from patchq.names import sh


class Linked(Git):
    """Git commands that run in a worktree of the store."""

    def __init__(self, store: Git, path: Path) -> None:
        super().__init__(path)
        self.store = store

    def git_folder(self) -> Path:
        """Return the git folder that the ``.git`` file names, after checking that it is in the store.

        :raises StateError: if that folder is outside the store.
        """
        found = Path(os.fsdecode((self.folder / ".git").read_bytes().removeprefix(b"gitdir:").strip()))
        if "\0" in str(found) or found.resolve().parent != (self.store.folder / "worktrees").resolve():
            raise StateError(
                f"{self.folder} is a worktree of {found}, not of this project's store",
                hint="if the project was moved or copied: "
                f"`git -C {sh(self.store.folder)} worktree repair {sh(self.folder)}`; otherwise move it away",
            )
        return found

    def place(self) -> dict[str, str]:
        store, folder = self.store.folder.absolute(), self.folder.absolute()
        return {"GIT_DIR": str(self.git_folder()), "GIT_COMMON_DIR": str(store), "GIT_WORK_TREE": str(folder)}
