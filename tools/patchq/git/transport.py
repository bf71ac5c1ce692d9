"""Operations on remote repositories: ``git ls-remote`` and ``git fetch``.

Refs come from a lock or a command line, so this module validates them.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchq.errors import SourceError
from patchq.git.command import Outside
from patchq.git.owners import foreign_owner, trust_hint
from patchq.git.repository import Foreign, Git
from patchq.names import BlobId, CommitId
from patchq.system import leftovers, runner
from patchq.system.paths import check_ref, ref_component

#: URLs in a lock are untrusted, so transports that run a command (``ext::``) are not allowed. A transfer of less than 1
#: kB/s for a minute is aborted.
SAFE_TRANSPORTS = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "60",
}

#: Settings that are taken from the user's configuration: proxies, certificates, mirrors, credentials.
_REACH = r"^(http|credential|url)\.|^core\.(sshcommand|gitproxy)$|^ssh\."


class Unreachable(SourceError):
    """Error for a git host that doesn't answer."""


def _unreachable(url: str, error: runner.CommandError) -> Unreachable:
    if error.output:
        message = error.output.splitlines()[-1]
    else:
        message = str(error.code)
    reason = re.sub(r"^fatal: (unable to access '[^']*': )?", "", message)
    return Unreachable(
        f"{url} can't be reached ({reason})", hint="check the address and the network, or use an archive"
    )


#: Size limit for the host's messages, because git passes them on without a limit.
_SAID = 1 << 16


@functools.cache
def _settings_of(_home: str | None, _config_home: str | None, _global: str | None) -> tuple[tuple[str, str], ...]:
    """Return the user's git settings for reaching hosts. The arguments only serve as the key of the cache."""
    env = {"GIT_DIR": os.devnull}
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"):
        if value := os.environ.get(name):
            env[name] = value
    argv = ["git", "config", "--includes", "-z", "--get-regexp", _REACH]
    out = runner.run(argv, cwd=Path("/"), env=env, ok_codes=(0, 1, 128)).stdout
    settings: list[tuple[str, str]] = []
    for entry in out.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        key, newline, value = entry.partition("\n")
        settings.append((key, value if newline else "true"))
    return tuple(settings)


def _reach(url: str) -> tuple[tuple[str, str], ...]:
    """Return the user's git settings for reaching the host of ``url``; none for a local folder."""
    if url.startswith("/"):
        return ()
    return _settings_of(*(os.environ.get(name) for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")))


def check_owner(folder: Path) -> Path | None:
    """Return the git folder of a local repository if another, trusted user owns it; None if the current user owns it.

    :raises Unreachable: if the owner is another user and ``safe.directory`` doesn't allow it.
    """
    try:
        place = Path(os.path.realpath(Foreign(folder).place()["GIT_DIR"]))
        there = []
        for path in dict.fromkeys((folder, place)):
            if path.exists():
                there.append(path)
    except OSError:  # git reports unreadable files itself
        return None
    for path in there:
        owner = foreign_owner(path, folder, place)
        if owner is not None:
            whose = f"another user (uid {owner}) whom your safe.directory doesn't name"
            raise Unreachable(f"{path} belongs to {whose}; nothing was read", hint=trust_hint(folder))
    if any(path.stat().st_uid != os.geteuid() for path in there):
        return place
    return None


def _serve(url: str) -> tuple[str, ...]:
    """Return the ``--upload-pack`` option for a local repository; nothing for other URLs.

    The option disables hooks and lazy fetches. All settings are on the command line, because upload-pack
    receives neither git's variables nor patchq's configuration.

    :raises Unreachable: see :func:`check_owner`.
    """
    if not url.startswith("/"):
        return ()
    place = check_owner(Path(url))
    safe = ""
    if place:
        safe = f" -c {shlex.quote(f'safe.directory={place}')}"
    return (f"--upload-pack=GIT_ALLOW_PROTOCOL= GIT_NO_LAZY_FETCH=1 git{safe} -c core.hooksPath=/dev/null upload-pack",)


def _ls_remote(url: str, *args: str, options: Sequence[str] = (), timeout: float) -> list[str]:
    try:
        done = Outside(Path("/")).ask(
            "ls-remote",
            *_serve(url),
            *options,
            "--",
            url,
            *args,
            env=SAFE_TRANSPORTS,
            settings=_reach(url),
            timeout=timeout,
            ok_codes=(0,),
            most_said=_SAID,
        )
    except runner.CommandError as error:
        raise _unreachable(url, error) from None
    # Don't use splitlines: ref names may contain other line separators.
    return done.stdout.decode("utf-8", "replace").split("\n")[:-1]


def _fetch(into: Git, url: str, spec: str, *options: str) -> str:
    """Fetch one refspec; return git's message, or an empty string on success."""
    argv = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *_serve(url), *options]
    argv += ["--", url, spec]
    # Keep the pack. If unpacking were interrupted, loose objects could refer to missing ones.
    config = ("fetch.unpackLimit=1",)
    done = into.ask(*argv, config=config, env=SAFE_TRANSPORTS, settings=_reach(url), most_said=_SAID)
    if not done.returncode:
        return ""
    return done.stderr.decode("utf-8", "replace").strip() or f"git ended with {done.returncode}"


def remote_commit(url: str, ref: str, *, timeout: float) -> CommitId | None:
    """Return the commit of a remote's tag, branch or ``HEAD``; None if the remote has no such ref.

    :param timeout: seconds to wait for an answer.
    :raises Unreachable: if the host doesn't answer.
    """
    check_ref(ref, "a ref")
    return commit_named(remote_refs(url, timeout=timeout), ref)


def remote_refs(url: str, *, timeout: float) -> dict[str, CommitId]:
    """Return all refs of a remote, including the commits to which tags point.

    :raises Unreachable: if the host doesn't answer.
    """
    out = _ls_remote(url, timeout=timeout)
    refs: dict[str, CommitId] = {}
    for commit, name in (line.split("\t") for line in out):
        refs[name] = CommitId(commit)
    return refs


def commit_named(refs: Mapping[str, CommitId], ref: str) -> CommitId | None:
    """Return the commit of a tag, a branch or ``HEAD`` among a remote's refs; None if there is no such ref."""
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        if name in refs:
            return refs[name]
    return None


def tags(url: str, *, timeout: float) -> list[str]:
    """Return the names of a remote's tags.

    :raises Unreachable: if the host doesn't answer.
    """
    out = _ls_remote(url, options=("--tags", "--refs"), timeout=timeout)
    found: list[str] = []
    for _, name in (line.split("\t") for line in out):
        found.append(name.removeprefix("refs/tags/"))
    return found


def default_branch(url: str, *, timeout: float) -> str:
    """Return the default branch of a remote.

    :raises Unreachable: if the host doesn't answer.
    :raises SourceError: if the remote has no default branch.
    """
    for line in _ls_remote(url, "HEAD", options=("--symref",), timeout=timeout):
        if match := re.fullmatch(r"ref: refs/heads/(\S+)\tHEAD", line):
            return match[1]
    raise SourceError(f"{url} has no default branch", hint="pass a branch or a tag: `--onto REF`")


def fetch_commit(store: Git, url: str, commit: CommitId, ref: str, *, again: bool = False) -> None:
    """Fetch one commit, without its history.

    If the server doesn't allow fetching by commit id, fetch the ref.

    :param again: fetch all objects, even if the store contains them.
    :raises SourceError: if the commit can't be fetched by its id or by the ref.
    """
    check_ref(ref, "a ref")
    options = ["--depth=1"]
    if again:
        options.append("--refetch")
    message = ""
    for spec in (commit, f"refs/tags/{ref}", f"refs/heads/{ref}"):
        with leftovers.kept_shallow(store.folder):
            failed = _fetch(store, url, spec, *options)
        if not failed and store.ref_or_none(commit):
            return
        message = failed or message
    raise SourceError(
        f"{url} doesn't have commit {commit} (requested by id and as {ref}): {message}",
        hint="run `patchq pin --check` to see whether the ref moved",
    )


def fetch_commits(store: Git, url: str, commits: Sequence[CommitId]) -> bool:
    """Fetch commits without their history, over one connection; return False if the server refuses."""
    argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", *_serve(url), "--stdin", "--", url)
    # Use one connection, because each fetch sends the server the list of commits in the store.
    with leftovers.kept_shallow(store.folder):
        done = store.ask(
            *argv,
            data="".join(f"{commit}\n" for commit in commits).encode(),
            config=("fetch.unpackLimit=1",),
            env=SAFE_TRANSPORTS,
            settings=_reach(url),
            most_said=_SAID,
        )
    return not done.returncode


def fetch_ref(into: Git, url: str, ref: str, name: str, *, depth: int) -> None:
    """Fetch a ref or a commit, and create the ref ``name`` for it in ``into``.

    :param depth: number of commits to fetch from the ref's history; 0 for all.
    :raises SourceError: if the host has no such ref or doesn't answer.
    """
    check_ref(ref, "a ref")
    options: list[str] = []
    if depth:
        options.append(f"--depth={depth}")
    elif (into.folder / "shallow").exists():
        options.append("--unshallow")
    if message := _fetch(into, url, f"+{ref}:{name}", *options):
        last = re.sub(r"^fatal: ", "", message.splitlines()[-1])
        raise SourceError(f"{url} doesn't send {ref}: {last}", hint="check the address and the network")


def fetch_tag(store: Git, url: str, tag: str, into: str, *, offline: bool = False) -> str | None:
    """Fetch a tag, create the ref ``into`` for it, and return the id of its tag object.

    If ``offline``, or if the host doesn't answer, use the tag in the store.

    :returns: the id; None if there is no such tag, or if it is a lightweight tag.
    """
    check_ref(tag, "a tag")
    failed = offline or _fetch(store, url, f"+refs/tags/{tag}:{into}", "--depth=1")
    if failed and into not in store.refs(into):
        return None
    found = store.run("rev-parse", into).decode().strip()
    if store.run("cat-file", "-t", found).strip() == b"tag":
        return found
    return None


def fetch_history(repository: Git, url: str, ref: str, *, files: bool = True) -> CommitId:
    """Fetch a ref with its history, and return its commit.

    :param files: also fetch the files; otherwise, :func:`fetch_blobs` fetches them later.
    :raises SourceError: if the host doesn't answer, or has no such ref.
    """
    check_ref(ref, "a ref")
    message = ""
    for spec in (f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        name = f"refs/history/{ref_component(spec)}"
        refspec = f"+{spec}:{name}"
        if files:
            message = _fetch(repository, url, refspec)
        else:
            message = _fetch_partial(repository, url, refspec)
        if not message and (found := repository.ref_or_none(name)):
            return found
    raise SourceError(
        f"{url} doesn't send the history of {ref}: {message}",
        hint="run `patchq forecast` without --blame, to compare releases instead",
    )


#: Remote name of a partial clone. git stores only this name, so patchq passes the URL with each command.
_PARTIAL = "partial"


def _fetch_partial(repository: Git, url: str, *specs: str, config: Sequence[str] = ()) -> str:
    """Fetch refs or objects. Files are fetched only if ``specs`` names them.

    :returns: git's message on failure; empty on success.
    """
    argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none", *_serve(url))
    place = ((f"remote.{_PARTIAL}.url", url), (f"remote.{_PARTIAL}.promisor", "true"))
    done = repository.ask(
        *argv,
        "--stdin",
        _PARTIAL,
        data="".join(f"{spec}\n" for spec in specs).encode(),
        env=SAFE_TRANSPORTS,
        settings=(*_reach(url), *place),
        config=("fetch.unpackLimit=1", *config),
        most_said=_SAID,
    )
    if not done.returncode:
        return ""
    for rest in (repository.folder / "objects" / "pack").glob("tmp_*"):
        rest.unlink()  # git keeps the pack of a failed fetch
    return done.stderr.decode("utf-8", "replace").strip() or f"git ended with {done.returncode}"


def fetch_blobs(repository: Git, url: str, blobs: Sequence[BlobId]) -> None:
    """Fetch files by their ids into a repository that was fetched without files.

    :raises SourceError: if the host doesn't send them.
    """
    # In negotiation, a host assumes that the client has all files of every commit that it offers.
    config = ("fetch.negotiationAlgorithm=noop",)
    if message := _fetch_partial(repository, url, *blobs, config=config):
        raise SourceError(f"{url} doesn't send {len(blobs)} files of its history: {message}", hint="`patchq fetch`")
