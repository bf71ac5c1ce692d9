"""Private worktrees under ``.patchq/trees``. Edits in them are never discarded.

Before a worktree changes, patchq checks that git and the file system can check out all paths of the new commit.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from patchq.errors import EditedTreeError, FormatError, PatchqError, StateError
from patchq.formats import treepath
from patchq.git.gitlinks import in_the_worktree, settle_submodules, stray_repositories, untracked_repositories
from patchq.git.objects import TreeEntry
from patchq.git.owners import refuse_if_special
from patchq.git.repository import Git
from patchq.names import CommitId, TreeId, name_for, sh, show_path
from patchq.records import dataclass
from patchq.system import fsio, runner

#: Time limit of ``git status`` in seconds. After it, patchq searches for special files that block git.
PATIENCE_S = 20.0
_HEAD = re.compile(rb"[0-9a-f]{40}\s*|ref: refs/[^\0\n]+\n?")
#: Refuse paths that Windows or macOS forbid, because a stack must work on every system.
_PROTECTED = ("core.protectNTFS=true", "core.protectHFS=true")


def branch_of(upstream: str) -> str:
    """Return the name of an upstream's worktree branch."""
    return f"refs/heads/{upstream}"


def _is_whole_index(data: bytes) -> bool:
    """Return whether an index file is complete: it has a valid checksum, or none because of ``index.skipHash``."""
    body, checksum = data[:-20], data[-20:]
    # skipHash writes 20 zeros, after at most 8 bytes of padding. A power cut leaves whole pages of zeros.
    unsigned = checksum == bytes(20) and body.startswith(b"DIRC") and any(body[-9:])
    return len(data) > 20 and (unsigned or hashlib.sha1(body).digest() == checksum)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStatus:
    """State of a worktree.

    :ivar head: commit that is checked out; None if there is no worktree.
    :ivar edited: tracked paths whose files differ from the commit.
    :ivar busy: unfinished git operation, such as a merge; empty for none.
    """

    head: CommitId | None
    edited: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    busy: str = ""


class _Linked(Git):
    """Git commands in a worktree of the store."""

    def __init__(self, store: Git, path: Path) -> None:
        super().__init__(path)
        self.store = store

    def git_folder(self) -> Path:
        """Return the folder to which the worktree's ``.git`` file points, after checking that it is in the store.

        :raises StateError: if the folder is elsewhere.
        """
        found = Path(os.fsdecode((self.folder / ".git").read_bytes().removeprefix(b"gitdir:").strip()))
        if "\0" in str(found) or found.resolve().parent != (self.store.folder / "worktrees").resolve():
            raise StateError(
                f"{self.folder} is a worktree of {found}, not of this project's store",
                hint="if the project was moved or copied: "
                f"`git -C {sh(self.store.folder)} worktree repair {sh(self.folder)}`; otherwise move the folder away",
            )
        return found

    def place(self) -> dict[str, str]:
        store, folder = self.store.folder.absolute(), self.folder.absolute()
        return {"GIT_DIR": str(self.git_folder()), "GIT_COMMON_DIR": str(store), "GIT_WORK_TREE": str(folder)}


class Worktree:
    """Worktree of one upstream.

    :param nested: upstreams that are nested in this worktree, as path → upstream's name.
    """

    def __init__(self, store: Git, upstream: str, path: Path, nested: Mapping[str, str] | None = None) -> None:
        self.store, self.upstream, self.path = store, upstream, path
        self.nested = {path.encode(): name for path, name in (nested or {}).items()}
        self.git = _Linked(store, path)

    @property
    def exists(self) -> bool:
        return (self.path / ".git").exists()

    def git_folder(self) -> Path:
        """Return the folder with this worktree's index and HEAD.

        :raises StateError: if the folder is not in the project's store.
        """
        return self.git.git_folder()

    def head(self) -> CommitId | None:
        """Return the commit that is checked out; None if there is no worktree."""
        if self.exists:
            return self.git.ref_or_none("HEAD")
        return None

    def status(self, *, untracked: bool = True) -> TreeStatus:
        """Return the state of the worktree, and refresh the file times in git's index.

        :param untracked: also search for untracked files, which takes most of the time.
        """
        if not self.exists:
            return TreeStatus(head=None)
        out = self._git_status("--untracked-files=all" if untracked else "--untracked-files=no")
        head: CommitId | None = None
        edited: list[str] = []
        others: list[str] = []
        for entry in out.split(b"\0"):
            kind = entry[:1]
            if entry.startswith(b"# branch.oid "):
                head = CommitId(entry[13:].decode())
            elif kind in (b"1", b"u"):
                path = entry.split(b" ", 8 if kind == b"1" else 10)[-1]
                if path not in self.nested:
                    edited.append(show_path(path))
            elif kind == b"?" and entry[2:].rstrip(b"/") not in self.nested:
                others.append(show_path(entry[2:]))
        return TreeStatus(head=head, edited=tuple(edited), untracked=tuple(others), busy=self._busy())

    def _git_status(self, scan: str) -> bytes:
        """Run ``git status`` in the worktree.

        A pipe named ``.gitignore`` or ``.gitattributes`` blocks git. patchq searches for such special files only if git
        times out, because the search takes as long as ``git status``.

        :raises FormatError: if git times out and the worktree has a pipe, socket or device.
        """
        argv = ("status", "--porcelain=v2", "--branch", "-z", scan, "--ignore-submodules=all", "--no-renames")
        env = {"GIT_OPTIONAL_LOCKS": "1"}
        try:
            return self.git.ask(*argv, env=env, timeout=PATIENCE_S, ok_codes=(0,)).stdout
        except runner.CommandError as error:
            if error.code != runner.TIMED_OUT:
                raise
        for folder, _, names in os.walk(self.path):
            for name in names:
                refuse_if_special(Path(folder, name))
        return self.git.run(*argv, env=env)

    def _busy(self) -> str:
        """Return the unfinished git operation, such as a merge; empty for none."""
        folder = self.git_folder()
        names = {
            "rebase-merge": "rebase",
            "rebase-apply": "rebase or am",
            "CHERRY_PICK_HEAD": "cherry-pick",
            "MERGE_HEAD": "merge",
            "REVERT_HEAD": "revert",
        }
        for name, operation in names.items():
            if (folder / name).exists():
                return operation
        return ""

    def refuse_edits(self, tip: CommitId | None, *, allow_commits: bool = False, untracked: bool = False) -> TreeStatus:
        """Check that the worktree can be moved to another commit without loss.

        :param tip: commit that patchq checked out.
        :raises EditedTreeError: if the worktree has edits, commits that aren't exported, or an unfinished git
            operation.
        """
        status = self.status(untracked=untracked)
        if status.head is None:
            return status
        keep = f"; the worktree is unchanged: {self.path}"
        if status.busy:
            raise EditedTreeError(
                f"{self.upstream}: a git {status.busy} is under way in the worktree{keep}",
                hint="finish or abort the operation in the worktree",
            )
        if status.edited:
            names = ", ".join(status.edited[:5])
            if len(status.edited) > 5:
                names += f" and {len(status.edited) - 5} more"
            raise EditedTreeError(
                f"{self.upstream}: the worktree was edited: {names}{keep}",
                hint=f"`patchq new {self.upstream} {name_for(status.edited[0])}` makes a patch from the edits, "
                f"`patchq fold {self.upstream}` puts them into the patches that own the lines, "
                f"`git -C {sh(self.path)} stash` sets them aside",
            )
        if tip and status.head != tip and not allow_commits:
            raise EditedTreeError(
                f"{self.upstream}: the worktree has commits that are not in the stack{keep}",
                hint=f"`patchq export {self.upstream}` writes the commits to the stack",
            )
        return status

    def mend(self) -> None:
        """Repair git's records of this worktree after a power cut, without reading the worktree's own files."""
        record = self.store.folder / "worktrees" / self.path.name
        if not self.path.is_dir() or not record.is_dir():
            return
        for path, whole in (
            (self.path / ".git", b"gitdir: " + os.fsencode(record) + b"\n"),
            (record / "commondir", b"../..\n"),
            (record / "gitdir", os.fsencode(self.path / ".git") + b"\n"),
        ):
            found = fsio.read_or_none(path)
            if (found is None and path != self.path / ".git") or (found is not None and fsio.is_cut(found, whole)):
                fsio.write_atomic(path, whole)
        if not _HEAD.fullmatch(fsio.read_or_none(record / "HEAD") or b""):  # or only half of a commit id
            fsio.write_atomic(record / "HEAD", b"ref: %s\n" % branch_of(self.upstream).encode())

    def mend_index(self, aside: Path) -> bool:
        """Replace an index with a wrong checksum by a new index of the commit. Return True if the index was replaced.

        git doesn't verify the checksum when it reads an index. The old index moves to ``aside``, because it
        may contain the only copy of staged contents.
        """
        index = self.git_folder() / "index"
        data = fsio.read_or_none(index)
        if data is None or _is_whole_index(data) or self.head() is None:
            return False
        fsio.make_folder(aside.parent)
        fsio.rename(index, aside)
        self.git.run("read-tree", "HEAD")
        self.git.run("update-index", "--refresh", ok_codes=(0, 1))
        return True

    def create(self, commit: CommitId) -> None:
        """Create the worktree without writing its files. If it exists, do nothing."""
        self._forget_unfinished()
        if not self.exists:
            self._refuse_others()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.store.run("worktree", "prune")
            self.store.run("worktree", "add", "--no-checkout", "--detach", "--force", str(self.path), commit)
        self._hide_nested()

    def _forget_unfinished(self) -> None:
        """Remove the record of an interrupted ``git worktree add``, which git leaves locked."""
        record = self.store.folder / "worktrees" / self.path.name
        message = fsio.read_or_none(record / "locked")
        if message is not None and (message.strip() == b"initializing" or not self.exists):
            (self.path / ".git").unlink(missing_ok=True)
            fsio.remove_folder(record)

    def _refuse_others(self) -> None:
        """Check that nothing except an empty folder is at the path of a worktree that doesn't exist yet.

        :raises EditedTreeError: if there is anything else.
        """
        if not self.exists and (self.path.is_symlink() or self.path.exists()):
            if self.path.is_dir() and not self.path.is_symlink() and not any(self.path.iterdir()):
                return
            raise EditedTreeError(
                f"{self.path} exists and is not a worktree of patchq; it was not changed",
                hint="move it away and run the command again",
            )

    def checkout(self, old: CommitId | None, new: CommitId) -> None:
        """Move files and index from the commit ``old`` to ``new``. git refuses to overwrite edits."""
        try:
            if old is None:
                self.git.run("read-tree", "-m", "-u", new)
            else:
                self.git.run("read-tree", "-m", "-u", old, new)
        except runner.CommandError as error:
            raise self._in_the_way(error) from None
        self._attach()

    def _in_the_way(self, error: runner.CommandError) -> PatchqError:
        if not re.search(r"would be (overwritten|removed)|not uptodate|would lose", error.output):
            return error
        return EditedTreeError(
            f"{self.upstream}: the worktree can't switch to another commit: {error.output}; the worktree is unchanged",
            hint=f"move that file out of {self.path} and run the command again",
        )

    def can_move(self, old: CommitId, new: CommitId) -> bool:
        """Return whether :meth:`checkout` would succeed."""
        self.git.run("update-index", "--refresh", ok_codes=(0, 1))
        try:
            self.git.run("read-tree", "-n", "-m", "-u", old, new)
        except runner.CommandError:
            return False
        return True

    def rehearse(self, old: CommitId | None, new: CommitId, *, adopted: bool = False) -> None:
        """Check in advance that :meth:`checkout` will succeed.

        :param adopted: True if the files already contain the changes of ``old`` as edits. Then checkout first moves the
            index to ``old``.
        :raises EditedTreeError: if a file with uncommitted edits is in the way.
        :raises FormatError: if ``new`` contains a path that git refuses on a supported system.
        """
        _check_names(self.store, self.upstream, new, sorted(self.nested))
        if old is None:
            self._refuse_others()
            nowhere = {"GIT_INDEX_FILE": str(self.store.folder / "index.none")}
            with _refusing_paths(self.upstream):
                self.store.run("read-tree", "-n", new, env=nowhere, config=_PROTECTED)
            return
        if adopted:
            with self._index_at(old) as env, _refusing_paths(self.upstream):
                self.git.run("read-tree", "-n", "-m", "-u", old, new, env=env, config=_PROTECTED)
            return
        try:
            with _refusing_paths(self.upstream):
                self.git.run("read-tree", "-n", "-m", "-u", old, new, config=_PROTECTED)
        except runner.CommandError:
            # In a copied or restored project the inodes differ. Then git reports every file as modified until its index
            # is refreshed.
            self.git.run("update-index", "--refresh", ok_codes=(0, 1))
            try:
                with _refusing_paths(self.upstream):
                    self.git.run("read-tree", "-n", "-m", "-u", old, new, config=_PROTECTED)
            except runner.CommandError as error:
                raise self._in_the_way(error) from None

    @contextmanager
    def _index_at(self, commit: CommitId) -> Iterator[dict[str, str]]:
        """Create a temporary index of a commit, with the file times of the worktree."""
        with fsio.temporary_folder() as folder:
            env = {"GIT_INDEX_FILE": str(folder / "index")}
            self.git.run("read-tree", commit, env=env)
            self.git.run("update-index", "--refresh", ok_codes=(0, 1), env=env)
            yield env

    def _attach(self) -> None:
        """Point HEAD to the branch, and create the links to nested upstreams."""
        wanted = f"ref: {branch_of(self.upstream)}\n"
        if (self.git_folder() / "HEAD").read_text() != wanted:
            self.git.run("symbolic-ref", "HEAD", branch_of(self.upstream))
        self._hide_nested()

    def adopt(self, new: CommitId) -> None:
        """Move only the index to the commit ``new``. The files keep their contents."""
        (self.git_folder() / "index.lock").unlink(missing_ok=True)
        self.git.run("read-tree", new)
        self._attach()
        self.git.run("update-index", "--refresh", ok_codes=(0, 1))

    def files_of_patch(self) -> list[bytes]:
        """Return the untracked ``*.orig`` and ``*.rej`` files, which the program ``patch`` leaves."""
        patterns = (":(glob)**/*.orig", ":(glob)**/*.rej")
        listed = self.git.run("ls-files", "--others", "--exclude-standard", "-z", "--", *patterns)
        return [path for path in listed.split(b"\0") if path and not path.endswith(b"/")]

    def snapshot(self, *, pass_over: bool = False, leave: Collection[bytes] = ()) -> TreeId:
        """Return a tree of the worktree's files, including new files that aren't ignored.

        The worktree's index isn't changed.

        :param pass_over: omit repositories inside the worktree instead of raising an error.
        :param leave: paths of new files to leave out.
        :raises UserError: for repositories inside the worktree, because git would only record commit ids that
            no one can fetch.
        """
        from shutil import copy2

        with fsio.temporary_folder() as folder:
            index = folder / "index"
            # Keep the index file's time, because git compares it with the times of the worktree's files.
            copy2(self.git_folder() / "index", index)
            env = {"GIT_INDEX_FILE": str(index)}
            settle_submodules(self.git, env)
            own = untracked_repositories(self.git, env)
            if own and not pass_over:
                raise in_the_worktree(self.upstream, own, self.path)
            without = [f":(exclude,literal){os.fsdecode(path)}" for path in (*own, *leave)]
            self.git.run("add", "--all", "--", ".", *without, env=env)
            # Links to nested upstreams are excluded (see _hide_nested). If git tracks a submodule at the same path, the
            # submodule is kept.
            for name in self.nested:
                found = self.git.run("ls-tree", "-z", "HEAD", "--", os.fsdecode(name)).split(b"\t")[0].split()
                if found and found[0] == b"160000":
                    entry = f"160000,{found[2].decode()},{os.fsdecode(name)}"
                    self.git.run("update-index", "--cacheinfo", entry, env=env)
            tree = TreeId(self.git.run("write-tree", env=env).decode().strip())
        # git doesn't list a repository as untracked if it replaces tracked files.
        if not pass_over and (own := stray_repositories(self.git, "HEAD", tree)):
            raise in_the_worktree(self.upstream, own, self.path)
        return tree

    def resume(self, old: CommitId | None, new: CommitId, *, back: bool = False) -> None:
        """Finish an interrupted checkout from ``old`` to ``new``.

        A file that differs between the commits may be missing, or may contain its old content, its new content or the
        beginning of its new content. Any other content is an edit by the user.

        :param back: True to revert an interrupted checkout from ``new`` to ``old``. Then a file may also contain the
            beginning of its old content.
        :raises EditedTreeError: if the user has edited a file.
        """
        (self.git_folder() / "index.lock").unlink(missing_ok=True)
        before = {}
        if old:
            before = self.store.list_tree(old)
        after = self.store.list_tree(new)
        moved = set()
        for p in before.keys() | after.keys():
            if before.get(p) != after.get(p):
                moved.add(p)
        suspects = [p for p in moved if p not in self.nested]
        # In a copied or restored project git reports every file as modified until its index is refreshed. The checkout
        # below would then write every file again.
        self.git.run("update-index", "--refresh", ok_codes=(0, 1))
        differ = self.git.run("diff-files", "-z", "--name-only", "--ignore-submodules=all").split(b"\0")
        for p in differ:
            if p and p not in moved and p not in self.nested:
                suspects.append(p)
        blobs = self.store.read_blobs(
            t[p].blob for t in (before, after) for p in suspects if p in t and t[p].mode != b"160000"
        )
        for path in suspects:
            sides = [t[path] for t in (before, after) if path in t]
            targets = []
            for t in (before, after) if back else (after,):
                if path in t:
                    targets.append(blobs.get(t[path].blob, b""))
            if not self._is_ours(path, [blobs.get(s.blob, b"") for s in sides], targets, path in moved, sides):
                raise EditedTreeError(
                    f"{self.upstream}: {show_path(path)} was edited after a command was interrupted; the edit is kept",
                    hint=f"move the file out of {self.path} and run the command again",
                )
        self.git.run("read-tree", "--reset", "-u", new)
        self._attach()

    def _is_ours(
        self, path: bytes, contents: list[bytes], targets: list[bytes], moved: bool, sides: list[TreeEntry]
    ) -> bool:
        full = os.path.join(os.fsencode(self.path), path)
        if not os.path.lexists(full):
            return moved
        if os.path.isdir(full) and not os.path.islink(full):
            return moved
        if os.path.islink(full):
            found = os.readlink(full)
        else:
            found = fsio.read_or_none(Path(os.fsdecode(full))) or b""
        if found in contents or (moved and any(fsio.is_cut(os.fsencode(found), t) for t in targets or [b""])):
            return True
        clean = self.git.run("hash-object", f"--path={os.fsdecode(path)}", "--", os.fsdecode(path)).decode().strip()
        return any(clean == side.blob for side in sides)

    def withdraw(self, commit: CommitId) -> None:
        """Remove a worktree whose creation was interrupted.

        :raises EditedTreeError: if the worktree contains a file that isn't in ``commit``, or that differs from the file
            in ``commit``.
        """
        if self.exists:
            self.resume(commit, commit, back=True)
        self.remove()

    def remove(self, *, force: bool = False) -> None:
        """Remove the worktree. An interruption leaves either the whole worktree or nothing.

        :param force: also remove edits and untracked files.
        :raises EditedTreeError: if the worktree has edits or untracked files.
        """
        self._forget_unfinished()
        if not self.exists and self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()  # an interrupted creation left it
        if self.exists:
            self._show_nested()
            if not force and (found := self.status()) and (found.edited or found.untracked):
                names = ", ".join((*found.edited, *found.untracked)[:5])
                raise EditedTreeError(
                    f"{self.upstream}: the worktree {self.path} has edited or untracked files: {names}; "
                    "nothing was changed",
                    hint="move the files that you need out of the worktree, and run the command again",
                )
            # An interrupted `git worktree remove` leaves a partial worktree without git's record. So the worktree is
            # moved by one rename to the tmp folder, which is cleared later.
            aside = self.store.folder.parent / "tmp"
            aside.mkdir(exist_ok=True)
            with fsio.temporary_folder("removed-", aside) as folder:
                self.path.rename(folder / "tree")
                self.store.run("worktree", "prune")

    def _hide_nested(self) -> None:
        """Create the links to nested upstreams, and hide these links from `git status`."""
        for name, upstream in sorted(self.nested.items()):
            link = self.path / os.fsdecode(name)
            target = os.path.relpath(self.path.parent / upstream, link.parent)
            if link.is_symlink() and os.readlink(link) == target:
                continue
            if link.is_symlink():
                link.unlink()
            elif link.is_dir() and not any(link.iterdir()):
                link.rmdir()
            elif link.exists():
                raise EditedTreeError(f"{link} is in the way of a nested upstream", hint="move it away")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
        if self.nested:
            exclude = self.store.folder / "info" / "exclude"
            lines = []
            if exclude.exists():
                lines = exclude.read_bytes().split(b"\n")
            missing = [b"/" + n for n in sorted(self.nested) if b"/" + n not in lines]
            if missing:
                fsio.write_atomic(exclude, b"\n".join([*lines, *missing]).lstrip(b"\n") + b"\n")

    def _show_nested(self) -> None:
        for name in self.nested:
            link = self.path / os.fsdecode(name)
            if link.is_symlink():
                link.unlink()


@contextmanager
def _refusing_paths(upstream: str) -> Iterator[None]:
    """Convert git's error about an invalid path into an error for the user.

    :raises FormatError: if git refuses a path.
    """
    try:
        yield
    except runner.CommandError as error:
        if match := re.search(r"invalid path '(.*)'", error.output):
            raise _odd_tree(upstream, f"git refuses the path {match[1]!r}") from None
        raise


def _check_names(store: Git, upstream: str, commit: CommitId, nested: Sequence[bytes]) -> None:
    """Check that this file system can store a commit's paths, and that they don't overlap with nested upstreams.

    :param nested: paths in the tree that belong to other upstreams.
    :raises FormatError: if two paths differ only by case on a file system that ignores case, or a
        file is at the path of a nested upstream.
    """
    if nested:
        there = store.list_tree(commit, nested)
        if found := [path for path, entry in there.items() if entry.mode != b"160000"]:
            raise _odd_tree(upstream, f"{show_path(found[0])} is at the path of a nested upstream")
    if fsio.folds_case(store.folder) and (same := treepath.one_name(store.list_tree(commit))):
        raise _odd_tree(upstream, f"this file system can't tell {' and '.join(map(show_path, same))} apart")


def _odd_tree(upstream: str, what: str) -> FormatError:
    return FormatError(
        f"{upstream}: the tree can't be written out: {what}; nothing was changed",
        hint="remove that path from the patch that adds it; if upstream adds it, pin another ref",
    )
