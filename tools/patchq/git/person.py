"""A person's repository: the one that the project lies in, and its remotes, with that person's configuration.

GitPython opens it. This is the only module that imports it, and only when a function here is called: its import takes
0.1 s, and for the store's bulk data it is far too slow. Whatever it raises becomes an error of patchq's own.
"""

from __future__ import annotations

import configparser
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from patchq.errors import SourceError, UserError
from patchq.formats.header import Ident
from patchq.git.objects import contents_of
from patchq.git.repository import Git, scratch
from patchq.git.transport import SAFE_TRANSPORTS
from patchq.names import BlobId, CommitId, show_path
from patchq.system import runner

if TYPE_CHECKING:
    import git

_WHO = re.compile(r"(.*) <(.*)> (\d+) ([+-]\d{4})")


class NoSuchRevision(UserError):
    """A revision that the repository doesn't have."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a branch is pushed to: the name of a remote, or an address, and the address that it comes to."""

    name: str
    url: str


def author(folder: Path, name: str = "", email: str = "") -> Ident | None:
    """Who works in ``folder``, now, as git there has it; None where it doesn't know.

    :param name: with ``email``, another than the configured person.
    :raises UserError: where there is no git.
    """
    # git's own variables are taken away below, but who somebody is may be said by them.
    own = {k: v for k, v in os.environ.items() if k.startswith("GIT_AUTHOR_")}
    if name:
        own.update(GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email)
    with _library(folder) as library:
        code, out, _ = _ask(library.Git(str(folder)), "var", "GIT_AUTHOR_IDENT", env=own)
    match = _WHO.fullmatch(out.decode("utf-8", "replace").strip())
    return Ident(match[1], match[2], int(match[3]), match[4]) if match and not code else None


def untracked(folder: Path, *paths: str) -> list[str]:
    """The files at or below paths, relative to ``folder``, that its repository wouldn't give to a clone.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        argv = ("ls-files", "--others", "-z", "--", *paths)
        return [show_path(p) for p in _answer(repo, folder, *argv).split(b"\0") if p]


def tracked(folder: Path, *paths: str) -> list[str]:
    """The files at or below paths, relative to ``folder``, that its repository tracks.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        return [show_path(p) for p in _answer(repo, folder, "ls-files", "-z", "--", *paths).split(b"\0") if p]


def files_at(folder: Path, revision: str, *paths: str) -> dict[PurePosixPath, bytes]:
    """The plain files at or below ``paths`` as they were at a revision; all relative to ``folder``.

    The repository's attributes don't count: a project may leave its patches out of its own archives.

    :raises NoSuchRevision: if it has none of that name.
    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        code, out, _ = _ask(repo.git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if code:
            raise NoSuchRevision(f"{revision!r} is no revision of {repo.working_dir}", hint="`git log` shows them")
        commit = out.decode().strip()
        listed = _answer(repo, folder, "ls-tree", "-r", "-z", commit, "--", *paths)
        blobs: dict[PurePosixPath, BlobId] = {}
        for line in listed.split(b"\0")[:-1]:
            meta, name = line.split(b"\t", 1)
            mode, kind, blob = meta.split()
            if kind == b"blob" and mode != b"120000":
                blobs[PurePosixPath(os.fsdecode(name))] = BlobId(blob.decode())
        with tempfile.TemporaryFile() as wanted:  # GitPython takes a real file only
            wanted.write("".join(f"{blob}\n" for blob in blobs.values()).encode())
            wanted.seek(0)
            data = contents_of(list(blobs.values()), _answer(repo, folder, "cat-file", "--batch", istream=wanted))
        for path, wish in blobs.items():
            if wish not in data:
                raise _unusable(folder, f"it has lost {path} as of {revision}")
        return {path: data[blob] for path, blob in blobs.items()}


def base_of_conflict(folder: Path, path: str) -> bytes | None:
    """Return what both sides of an unfinished merge started from at ``path``, relative to ``folder``.

    None if git has no conflict there. An empty file if both sides added it.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        stages = _answer(repo, folder, "ls-files", "-u", "-z", "--", path)
        blobs = {stage: blob for _, blob, stage in (line.split(b"\t")[0].split() for line in stages.split(b"\0")[:-1])}
        if b"1" in blobs:
            return _answer(repo, folder, "cat-file", "blob", blobs[b"1"].decode())
        return b"" if blobs else None


def find_remote(folder: Path, remote: str) -> Remote:
    """The remote of that name in the repository at ``folder``, else the address that it is.

    :raises UserError: if the repository is broken.
    """
    if has_repository(folder):
        with _opened(folder) as repo:
            if remote in {r.name for r in repo.remotes}:
                out = _answer(repo, folder, "remote", "get-url", "--push", "--", remote)
                return Remote(remote, out.decode("utf-8", "replace").split("\n")[0])
    path = Path(remote)
    return Remote("", str(path.resolve()) if path.exists() else remote)


def push(store: Git, folder: Path, to: Remote, commit: CommitId, branch: str, *, expected: str | None) -> None:
    """Push a commit of the store as a branch, over what it was the last time only.

    The configuration is the person's: their own, and that of the repository at ``folder`` if there is one. What the
    store's says doesn't count.

    :param expected: the commit that the branch is to have there now; None for no such branch.
    :raises SourceError: with what git, a hook or the remote said.
    """
    ref = f"refs/heads/{branch}"
    code, said = _pushed(store, folder, to, f"--force-with-lease={ref}:{expected or ''}", refs={ref: commit})
    if code:
        where = f"{to.name} ({to.url})" if to.name else to.url
        raise SourceError(f"{where} doesn't take {branch}: {said}", hint="look at what the remote has")


def push_refs(
    store: Git, folder: Path, to: Remote, refs: Mapping[str, str], expected: Mapping[str, str]
) -> None:  # fmt: skip
    """Push objects of the store as refs, all or none; what is there already stays, unless it is expected.

    :param refs: ref to object id.
    :param expected: of those that may be moved, what each is now.
    :raises SourceError: with what git, a hook or the remote said.
    """
    leases = [f"--force-with-lease={ref}:{old}" for ref, old in expected.items()]
    leases += [f"--force-with-lease={ref}:" for ref in refs if ref not in expected]
    code, said = _pushed(store, folder, to, "--atomic", *leases, refs=refs)
    if code:
        hint = "look at what it has"
        if "shallow" in said:
            hint = "without --on-upstream; or `git fetch` upstream into it first"
            said = f"it lacks upstream's history\n{said}"
        raise SourceError(f"{to.name or to.url} doesn't take it: {said}", hint=hint)


def refs_at(folder: Path, to: Remote, *patterns: str) -> dict[str, str]:
    """The refs of a remote that are like patterns, and what each is; of an annotated tag also ``REF^{}``.

    :raises SourceError: with what git or the remote said.
    """
    with _library(folder) as library:
        code, out, said = _ask(library.Git(str(folder)), "ls-remote", "--", to.name or to.url, *patterns,
                               env=SAFE_TRANSPORTS)  # fmt: skip
    if code:
        raise SourceError(f"{to.name or to.url} can't be read: {said}", hint="a repository, or a remote's name")
    lines = out.decode("utf-8", "surrogateescape").splitlines()
    return {ref: found for found, _, ref in (line.partition("\t") for line in lines)}


def _pushed(store: Git, folder: Path, to: Remote, *options: str, refs: Mapping[str, str]) -> tuple[int, str]:
    with _library(folder) as library, scratch(store) as beside:
        config = ""
        if has_repository(folder):
            with _opened(folder) as own:
                path = (
                    str(Path(own.common_dir, "config")).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                )
                config = f'[include]\n\tpath = "{path}"\n'
        (beside.folder / "config").write_bytes(os.fsencode(config) + b"[core]\n\tbare = true\n")
        shallow = store.folder / "shallow"
        if shallow.exists():
            (beside.folder / "shallow").write_bytes(shallow.read_bytes())
        argv = ["--quiet", *options, "--", to.name or to.url, *(f"{found}:{ref}" for ref, found in refs.items())]
        env = {**SAFE_TRANSPORTS, "GIT_DIR": str(beside.folder)}
        code, _, said = _ask(library.Git(str(beside.folder)), "push", *argv, env=env)
    return code, said


def changed(folder: Path, *paths: str) -> list[str]:
    """The files at or below paths, relative to ``folder``, that differ from the last commit, new ones too.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        argv = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *paths)
        out = _answer(repo, folder, *argv)
    return [show_path(entry[3:]) for entry in out.split(b"\0") if entry]


def branch(folder: Path) -> str:
    """The branch that is checked out, or an empty text.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        code, out, _ = _ask(repo.git, "symbolic-ref", "--quiet", "--short", "HEAD")
    return "" if code else out.decode("utf-8", "replace").strip()


def commit(folder: Path, paths: Sequence[str], message: str, who: Ident) -> str:
    """A commit of what lies at or below paths now, on top of the last one; nothing that is checked out or staged moves.

    :param who: its author, where git's configuration has nobody.
    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo, tempfile.TemporaryDirectory(prefix="patchq-") as text:
        env = {"GIT_INDEX_FILE": str(Path(text) / "index"), "LC_ALL": "C.UTF-8"}
        for name in ("AUTHOR", "COMMITTER"):
            env[f"GIT_{name}_NAME"], env[f"GIT_{name}_EMAIL"] = who.name, who.email
        found = ""
        own = type(repo.git)(str(folder))
        for argv in (("read-tree", "HEAD"), ("add", "--all", "--", *paths), ("write-tree",), ("commit-tree",)):
            more = ("-p", "HEAD", "-m", message, found) if argv == ("commit-tree",) else ()
            code, out, said = _ask(own, *argv, *more, env=env)
            if code:
                raise _unusable(folder, said)
            found = out.decode().strip()
        return found


def push_own(folder: Path, to: Remote, commit: str, branch: str, *, expected: str) -> None:
    """Push a commit of the project's own repository as a branch.

    :param expected: what the branch is there now; empty for none.
    :raises SourceError: with what git, a hook or the remote said.
    """
    with _opened(folder) as repo:
        ref = f"refs/heads/{branch}"
        argv = ("push", "--quiet", f"--force-with-lease={ref}:{expected}", "--", to.name or to.url, f"{commit}:{ref}")
        code, _, said = _ask(repo.git, *argv, env=SAFE_TRANSPORTS)
    if code:
        raise SourceError(f"{to.name or to.url} doesn't take {branch}: {said}", hint="look at what the remote has")


def has_repository(folder: Path) -> bool:
    """Whether ``folder`` lies in a repository."""
    return any((above / ".git").exists() for above in (folder, *folder.parents))


@contextmanager
def _opened(folder: Path) -> Iterator[git.Repo]:
    """The repository that ``folder`` lies in; closed afterwards, with the git processes that it keeps."""
    with _library(folder) as library:
        if not has_repository(folder):
            raise UserError(f"{folder} is in no git repository", hint="`git init`, and commit the project")
        with library.Repo(folder, search_parent_directories=True, expand_vars=False) as repo:
            yield repo


@contextmanager
def _library(folder: Path) -> Iterator[Any]:
    """GitPython, in an environment without git's variables: it reads them itself, and hands them to git."""
    before, clean = dict(os.environ), runner.clean_environment()
    try:
        _become(clean)
        try:
            import git
        except ModuleNotFoundError as error:
            raise UserError(f"git can't be used: {error}", hint="install patchq again, with what it requires") from None
        except ImportError as error:  # what it raises where there is no git
            raise UserError(f"git can't be used: {error}", hint="install git 2.38 or newer") from None
        try:
            yield git
        except git.GitCommandNotFound:
            raise UserError("git is not there", hint="install git 2.38 or newer") from None
        except (git.GitError, git.ODBError, configparser.Error, ValueError) as error:
            raise _unusable(folder, str(error) or type(error).__name__) from None
        except OSError as error:
            # With a number it is of the machine; GitPython has some without.
            if error.errno is not None:
                raise
            raise _unusable(folder, str(error)) from None
    finally:
        _become(before)


def _become(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def _ask(
    command: git.Git, *args: str, env: Mapping[str, str] | None = None, istream: Any = None
) -> tuple[int, bytes, str]:
    """What a git command answers: its code, its output as it is, and its words."""
    code, out, said = command.execute(
        ["git", *args], env={"LC_ALL": "C.UTF-8", **(env or {})}, istream=istream, with_extended_output=True,
        with_exceptions=False, stdout_as_string=False, strip_newline_in_stdout=False,
    )  # fmt: skip
    assert isinstance(out, bytes)
    return code, out, said


def _answer(repo: git.Repo, folder: Path, *args: str, istream: Any = None) -> bytes:
    """The output of a git command at ``folder``, which must succeed."""
    code, out, said = _ask(type(repo.git)(str(folder)), *args, istream=istream)
    if code:
        raise _unusable(folder, said)
    return out


def _unusable(folder: Path, said: str) -> UserError:
    return UserError(
        f"the git repository of {folder} can't be used: {said.strip()}", hint=f"`git -C {folder} status` says more"
    )
