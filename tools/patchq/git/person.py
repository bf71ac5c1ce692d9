"""Access to the user's own repository, which contains the project, and to its remotes.

The repository may come from an untrusted archive, so its hooks, filters and configured programs are not run:
patchq reads the repository with patchq's own settings. The user's global configuration supplies the identity
and the settings for remotes.

Only this module imports GitPython. The import takes 0.1 s, so it is delayed until a function needs GitPython.
GitPython's exceptions are converted to patchq's errors.
"""

from __future__ import annotations

import configparser
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from patchq.errors import SourceError, UserError
from patchq.formats.header import Ident
from patchq.git.command import pinned
from patchq.git.objects import contents_of
from patchq.git.owners import foreign_owner, refuse_if_special, refuse_special, trust_hint
from patchq.git.repository import Git, scratch
from patchq.git.transport import SAFE_TRANSPORTS
from patchq.names import BlobId, CommitId, sh, show_path
from patchq.system import project_files, runner

if TYPE_CHECKING:
    import git

#: Settings that are read from the project's own repository: the URLs of remotes, and how the user connects to them.
#: None of them names a program to run.
_ADDRESSES = re.compile(r"remote\..+\.(?:push)?url|url\..+\.(?:push)?insteadof", re.DOTALL)
_IDENTITY = re.compile(
    r"http\.(?:.+\.)?(?:extraheader|proxy|sslcainfo)|credential\.(?:.+\.)?(?:username|usehttppath)|"
    r"user\.(?:name|email|signingkey)|push\.gpgsign|gpg\.format",
    re.DOTALL,
)
#: Command that receives a push to a local repository, if the project's configuration names this repository. The
#: repository's hooks and programs don't run. A partial clone must not fetch from its remote: the forbidden transport
#: would end git on both sides of the push.
_RECEIVE = (
    "GIT_NO_LAZY_FETCH=1 git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true "
    "-c gc.auto=0 -c maintenance.auto=false -c receive.denyCurrentBranch=refuse receive-pack"
)
_WHO = re.compile(r"(.*) <(.*)> (\d+) ([+-]\d{4})")


class NoSuchRevision(UserError):
    """Error for a revision that doesn't exist in the repository."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Remote repository to push to.

    :ivar name: name of the remote; empty if only its URL was given.
    """

    name: str
    url: str


def author(folder: Path, name: str = "", email: str = "") -> Ident | None:
    """Return git's author identity for ``folder`` and the current time; None if no identity is configured.

    :param name: name to use together with ``email``; empty for the configured identity.
    :raises UserError: if git isn't installed.
    """
    # git's variables are removed from the environment below, but these ones are part of the identity.
    own = {}
    for k, v in os.environ.items():
        if k.startswith("GIT_AUTHOR_"):
            own[k] = v
    if name:
        own.update(GIT_AUTHOR_NAME=name, GIT_AUTHOR_EMAIL=email)
    with _library(folder) as library:
        if top := _top(folder):
            _refuse_unsafe(top, deep=False)
        code, out, _ = _ask(library.Git(str(folder)), "var", "GIT_AUTHOR_IDENT", env=own)
    match = _WHO.fullmatch(out.decode("utf-8", "replace").strip())
    if match and not code:
        return Ident(match[1], match[2], int(match[3]), match[4])
    return None


def untracked(folder: Path, *paths: str) -> list[str]:
    """Return the untracked files at or below the given paths, relative to ``folder``.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        argv = ("ls-files", "--others", "-z", "--", *paths)
        found: list[str] = []
        for p in _answer(repo, folder, *argv).split(b"\0"):
            if p:
                found.append(show_path(p))
        return found


def tracked(folder: Path, *paths: str) -> list[str]:
    """Return the tracked files at or below the given paths, relative to ``folder``.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        found: list[str] = []
        for p in _answer(repo, folder, "ls-files", "-z", "--", *paths).split(b"\0"):
            if p:
                found.append(show_path(p))
        return found


def files_at(folder: Path, revision: str, *paths: str) -> dict[PurePosixPath, bytes]:
    """Return the contents of the regular files at or below ``paths`` at a revision, by path relative to ``folder``.

    Attributes such as ``export-ignore`` have no effect.

    :raises NoSuchRevision: if the revision doesn't exist.
    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        code, out, _ = _ask(repo.git, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if code:
            raise NoSuchRevision(
                f"{revision!r} is not a revision of {repo.working_dir}", hint="`git log` shows the revisions"
            )
        commit = out.decode().strip()
        listed = _answer(repo, folder, *("ls-tree", "-r", "-z", commit, "--", *paths))
        blobs: dict[PurePosixPath, BlobId] = {}
        for line in listed.split(b"\0")[:-1]:
            meta, name = line.split(b"\t", 1)
            mode, kind, blob = meta.split()
            if kind == b"blob" and mode != b"120000":
                blobs[PurePosixPath(os.fsdecode(name))] = BlobId(blob.decode())
        wanted = "".join(f"{blob}\n" for blob in blobs.values()).encode()
        data = contents_of(list(blobs.values()), _answer(repo, folder, "cat-file", "--batch", data=wanted))
        for path, wish in blobs.items():
            if wish not in data:
                raise _unusable(folder, f"it has lost {path} as of {revision}")
        return {path: data[blob] for path, blob in blobs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedRepository:
    """Temporary repository that uses the objects of the user's repository.

    :ivar prefix: path of the project's folder in the repository.
    :ivar branch: branch that is checked out; empty for a detached HEAD.
    :ivar head: commit that is checked out.
    :ivar commits: commits of the requested revisions.
    """

    git: Git
    prefix: str
    branch: str
    head: CommitId
    commits: tuple[CommitId, ...]


@contextmanager
def borrowed(folder: Path, revisions: Sequence[str], attributes: Sequence[str] = ()) -> Iterator[BorrowedRepository]:
    """Yield a temporary repository that uses the objects of the user's repository.

    New objects are written to the temporary repository. Neither the configuration nor the attributes of the
    user's repository are in effect.

    :param revisions: revisions whose commits the result contains.
    :param attributes: lines in the format of ``.gitattributes``. Their patterns apply in any folder.
    :raises NoSuchRevision: if a revision doesn't exist.
    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        prefix = os.fsdecode(_answer(repo, folder, "rev-parse", "--show-prefix").rstrip(b"\n"))
        code, name, _ = _ask(repo.git, "symbolic-ref", "--quiet", "--short", "HEAD")
        wanted = "".join(f"{revision}^{{commit}}\n" for revision in ("HEAD", *revisions))
        lines = _answer(repo, folder, "cat-file", "--batch-check=%(objectname)", data=wanted.encode())
        found = lines.decode("utf-8", "replace").splitlines()
        for revision, line in zip(("HEAD", *revisions), found, strict=True):
            if not re.fullmatch(r"[0-9a-f]{40}", line):
                raise NoSuchRevision(
                    f"{revision!r} is not a revision of {repo.working_dir}", hint="`git log` shows the revisions"
                )
        own = Git(Path(repo.common_dir).resolve())
    commits = tuple(CommitId(line) for line in found)
    with scratch(own) as temporary:
        if (own.folder / "shallow").exists():
            (temporary.folder / "shallow").write_bytes((own.folder / "shallow").read_bytes())
        (temporary.folder / "info").mkdir(exist_ok=True)
        text = "".join(f"**/{line}\n" for line in attributes)
        (temporary.folder / "info" / "attributes").write_text(text)
        shown = ""
        if not code:
            shown = name.decode("utf-8", "replace").strip()
        yield BorrowedRepository(git=temporary, prefix=prefix, branch=shown, head=commits[0], commits=commits[1:])


def base_of_conflict(folder: Path, path: str) -> bytes | None:
    """Return a conflicting file's content in the merge base.

    The result is None if git records no conflict at ``path``. It is empty if both sides added the file.

    :param path: path of the file, relative to ``folder``.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        stages = _answer(repo, folder, "ls-files", "-u", "-z", "--", path)
        blobs = {}
        for _, blob, stage in (line.split(b"\t")[0].split() for line in stages.split(b"\0")[:-1]):
            blobs[stage] = blob
        if b"1" in blobs:
            return _answer(repo, folder, "cat-file", "blob", blobs[b"1"].decode())
        if blobs:
            return b""
        return None


def find_remote(folder: Path, remote: str) -> Remote:
    """Return the remote with this name. If there is no such remote, use ``remote`` as a URL.

    :raises UserError: if the repository is broken.
    """
    with _reaching(folder, _ADDRESSES) as ask:
        code, out, _ = ask("remote", "get-url", "--push", "--", remote)
    if not code:
        return Remote(remote, out.decode("utf-8", "replace").split("\n")[0])
    path = Path(remote)
    return Remote("", str(path.resolve()) if path.exists() else remote)


def push(store: Git, folder: Path, to: Remote, commit: CommitId, branch: str, *, expected: str | None) -> None:
    """Push a commit of the store as a branch. The push fails if the branch isn't at the expected commit.

    See :func:`_reaching` for the configuration in effect.

    :param expected: the branch's current commit on the remote; None if the branch doesn't exist.
    :raises SourceError: with the message of git, a hook or the remote.
    """
    ref = f"refs/heads/{branch}"
    code, message = _pushed(store, folder, to, f"--force-with-lease={ref}:{expected or ''}", refs={ref: commit})
    if code:
        if to.name:
            where = f"{to.name} ({to.url})"
        else:
            where = to.url
        raise SourceError(f"{where} refused {branch}: {message}", hint="check that branch on the remote")


def push_refs(store: Git, folder: Path, to: Remote, refs: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Push objects of the store as refs. Either all refs are moved or none.

    :param refs: object ids by ref.
    :param expected: current object ids of the refs that may be moved. Other refs must not exist.
    :raises SourceError: with the message of git, a hook or the remote.
    """
    leases = [f"--force-with-lease={ref}:{old}" for ref, old in expected.items()]
    leases += [f"--force-with-lease={ref}:" for ref in refs if ref not in expected]
    code, message = _pushed(store, folder, to, "--atomic", *leases, refs=refs)
    if code:
        hint = "check those refs on the remote"
        if "shallow" in message:
            hint = "publish without --on-upstream, or `git fetch` upstream's history into that repository first"
            message = f"it lacks upstream's history\n{message}"
        raise SourceError(f"{to.name or to.url} refused the push: {message}", hint=hint)


def refs_at(folder: Path, to: Remote, *patterns: str) -> dict[str, str]:
    """Return the object ids of a remote's refs that match ``patterns``, by ref.

    The key ``refs/tags/TAG^{}`` contains the object to which a tag points.

    :raises SourceError: with the message of git or the remote.
    """
    with _reaching(folder, _IDENTITY) as ask:
        code, out, message = ask("ls-remote", "--", to.url, *patterns)
    if code:
        raise SourceError(f"{to.name or to.url} can't be read: {message}", hint="name a repository or a remote")
    lines = out.decode("utf-8", "surrogateescape").splitlines()
    result: dict[str, str] = {}
    for found, _, ref in (line.partition("\t") for line in lines):
        result[ref] = found
    return result


def _pushed(objects: Git, folder: Path, to: Remote, *options: str, refs: Mapping[str, str]) -> tuple[int, str]:
    """Push objects of a repository. Return git's exit code and its messages."""
    if _is_own(_top(folder) or folder, to):
        options = (*options, f"--receive-pack={_RECEIVE}")
    argv = ["--quiet", *options, "--", to.url, *(f"{found}:{ref}" for ref, found in refs.items())]
    with _reaching(folder, _IDENTITY, objects) as ask:
        code, _, message = ask("push", *argv)
    return code, message


def _is_own(top: Path, to: Remote) -> bool:
    """Return whether a remote is a local repository that is inside ``top`` or given by a relative path."""
    named = Path(to.url.removeprefix("file://"))
    path = (top / named).resolve()
    return path.is_dir() and (top.resolve() in (path, *path.parents) or not named.is_absolute())


@contextmanager
def _reaching(folder: Path, counts: re.Pattern[str], *objects: Git) -> Iterator[Callable[..., tuple[int, bytes, str]]]:
    """Yield a function that runs git commands on remotes, in a temporary repository.

    The user's global configuration is in effect, including its programs and hooks. Hooks of the
    repository at ``folder`` don't run.

    :param counts: pattern for the names of settings that are copied from the repository at ``folder``.
    """
    top, settings = folder, ""
    if has_repository(folder):
        with _opened(folder) as repo:
            top = Path(repo.working_dir)
            settings = os.fsdecode(_answer(repo, folder, "config", "--local", "--includes", "--null", "--list"))
    with _library(folder) as library, scratch(*objects) as temporary:
        with (temporary.folder / "config").open("ab") as config:
            for setting in settings.split("\0")[:-1]:
                key, _, value = setting.partition("\n")
                if counts.fullmatch(key):
                    config.write(_setting(key, value))
        for other in objects:
            if (other.folder / "shallow").exists():
                (temporary.folder / "shallow").write_bytes((other.folder / "shallow").read_bytes())
        env = {**SAFE_TRANSPORTS, "GIT_DIR": str(temporary.folder)}
        yield lambda *args: _ask(library.Git(str(top)), *args, env=env)


def _setting(key: str, value: str) -> bytes:
    """Return a setting as lines of a git configuration file.

    >>> _setting("remote.a.b.url", 'x"y')
    b'[remote "a.b"]\\n\\turl = "x\\\\"y"\\n'
    """
    value, name = (text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in (value, key))
    section, _, rest = name.partition(".")
    within, _, last = rest.rpartition(".")
    if within:
        head = f'[{section} "{within}"]'
    else:
        head = f"[{section}]"
    return os.fsencode(f'{head}\n\t{last} = "{value}"\n')


def changed(folder: Path, *paths: str) -> list[str]:
    """Return the files at or below the paths that differ from the last commit, including new files.

    git's filters are not run: contents are compared byte by byte.

    :raises UserError: if there is no repository, or it is broken.
    """
    return [show_path(os.fsencode(name)) for name, _ in _changes(folder, paths)]


def _changes(folder: Path, paths: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
    """Yield the files that differ from the last commit, with their content; None for a deleted file."""
    before = {str(path): data for path, data in files_at(folder, "HEAD", *paths).items()}
    for path in paths:
        project_files.list_files(folder, folder / path)  # refuses pipes, which block git
        for above in (folder / path).parents:
            refuse_if_special(above / ".gitignore")
    with _opened(folder) as repo:
        argv = ("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths)
        listed = _answer(repo, folder, *argv).split(b"\0")
    for name in sorted({*before, *map(os.fsdecode, filter(None, listed))}):
        data = project_files.read(folder, folder / name)
        if data != before.get(name):
            yield name, data


def branch(folder: Path) -> str:
    """Return the branch that is checked out; empty for a detached HEAD.

    :raises UserError: if there is no repository, or it is broken.
    """
    with _opened(folder) as repo:
        code, out, _ = _ask(repo.git, "symbolic-ref", "--quiet", "--short", "HEAD")
    if code:
        return ""
    return out.decode("utf-8", "replace").strip()


def commit(folder: Path, paths: Sequence[str], message: str, who: Ident) -> str:
    """Create a commit on top of HEAD from the files at or below ``paths``, and return its id.

    HEAD, the index and the files don't change. git's filters are not run.

    :param who: author and committer.
    :raises UserError: if there is no repository, or it is broken.
    """
    changes = list(_changes(folder, paths))
    with _opened(folder) as repo, tempfile.TemporaryDirectory(prefix="patchq-") as text:
        env = {"GIT_INDEX_FILE": str(Path(text) / "index"), "LC_ALL": "C.UTF-8"}
        for name in ("AUTHOR", "COMMITTER"):
            env[f"GIT_{name}_NAME"], env[f"GIT_{name}_EMAIL"] = who.name, who.email
            env[f"GIT_{name}_DATE"] = f"{who.when or int(time.time())} {who.zone}"
        prefix = _answer(repo, folder, "rev-parse", "--show-prefix").rstrip(b"\n")
        _answer(repo, folder, "read-tree", "HEAD", env=env)
        for name, data in changes:
            path = prefix + os.fsencode(name)
            entry = b"0 %s\t%s\0" % (b"0" * 40, path)
            if data is not None:
                blob = _answer(repo, folder, "hash-object", "-w", "--stdin", data=data).strip()
                entry = b"100644 %s\t%s\0" % (blob, path)
            _answer(repo, folder, "update-index", "-z", "--index-info", data=entry, env=env)
        tree = _answer(repo, folder, "write-tree", env=env).decode().strip()
        return _answer(repo, folder, *("commit-tree", "-p", "HEAD", "-m", message, tree), env=env).decode().strip()


def push_own(folder: Path, to: Remote, commit: str, branch: str, *, expected: str) -> None:
    """Push a commit of the project's own repository as a branch.

    :param expected: current commit of the branch on the remote; empty if the branch doesn't exist.
    :raises SourceError: with the message of git, a hook or the remote.
    """
    with _opened(folder) as repo:
        own = Git(Path(repo.common_dir))
    ref = f"refs/heads/{branch}"
    code, message = _pushed(own, folder, to, f"--force-with-lease={ref}:{expected}", refs={ref: commit})
    if code:
        raise SourceError(f"{to.name or to.url} refused {branch}: {message}", hint="check that branch on the remote")


def has_repository(folder: Path) -> bool:
    """Return whether ``folder`` is in a repository."""
    return _top(folder) is not None


def _top(folder: Path) -> Path | None:
    """Return the top folder of the repository that contains ``folder``; None if there is no repository."""
    for above in (folder, *folder.parents):
        if (above / ".git").exists():
            return above
    return None


@contextmanager
def _opened(folder: Path) -> Iterator[git.Repo]:
    """Open the repository that contains ``folder`` for reading, with patchq's settings and safety checks."""
    top = _top(folder)
    if top is None:
        raise UserError(f"{folder} is not in a git repository", hint="run `git init`, and commit the project")
    with _library(folder, pinned([("safe.directory", "*")])) as library:
        _refuse_unsafe(top)
        with library.Repo(folder, search_parent_directories=True, expand_vars=False) as repo:
            yield repo


def _refuse_unsafe(top: Path, *, deep: bool = True) -> None:
    """Check a repository before git reads it.

    :param deep: also check refs and objects.
    :raises UserError: if the repository belongs to another user.
    :raises FormatError: if the repository contains a pipe or a device for which git would wait.
    """
    for path in (top, top / ".git"):
        if (owner := foreign_owner(path, top)) is not None:
            raise UserError(
                f"the git repository of {top} can't be used: it belongs to another user (uid {owner})",
                hint=trust_hint(top),
            )
    refuse_special(top / ".git", deep=deep)


@contextmanager
def _library(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Import GitPython in an environment without git's variables. GitPython would pass these variables to git.

    :param settings: variables for git that replace the user's configuration.
    """
    before, clean = dict(os.environ), runner.clean_environment(settings)
    try:
        _become(clean)
        try:
            import git
        except ModuleNotFoundError as error:
            raise UserError(f"git can't be used: {error}", hint="reinstall patchq with its requirements") from None
        except ImportError as error:  # raised by GitPython if git isn't installed
            raise UserError(f"git can't be used: {error}", hint="install git 2.38 or newer") from None
        try:
            yield git
        except (git.GitCommandNotFound, runner.CommandError):
            raise UserError("git is not installed", hint="install git 2.38 or newer") from None
        except (git.GitError, git.ODBError, configparser.Error, ValueError) as error:
            raise _unusable(folder, str(error) or type(error).__name__) from None
        except OSError as error:
            # OSErrors that GitPython itself raises have no errno.
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
    """Run a git command, and return its exit code, raw output and messages."""
    code, out, message = command.execute(
        ["git", *args],
        env={"LC_ALL": "C.UTF-8", **(env or {})},
        istream=istream,
        with_extended_output=True,
        with_exceptions=False,
        stdout_as_string=False,
        strip_newline_in_stdout=False,
    )
    assert isinstance(out, bytes)
    return code, out, message


def _answer(repo: git.Repo, folder: Path, *args: str, env: Mapping[str, str] | None = None, data: bytes = b"") -> bytes:
    """Return the output of a git command at ``folder``.

    :raises UserError: if the command fails.
    """
    with tempfile.TemporaryFile() as source:  # GitPython needs a real file
        source.write(data)
        source.seek(0)
        code, out, message = _ask(type(repo.git)(str(folder)), *args, env=env, istream=source)
    if code:
        raise _unusable(folder, message)
    return out


def _unusable(folder: Path, message: str) -> UserError:
    return UserError(
        f"the git repository of {folder} can't be used: {message.strip()}",
        hint=f"`git -C {sh(folder)} status` shows more",
    )
