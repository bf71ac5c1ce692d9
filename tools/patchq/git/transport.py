"""What passes between repositories: asking a host, fetching.

Refs come from a lock or a command line, and are checked; where a fetched one goes is spelled here alone.
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
from patchq.git.owners import stranger, trusting
from patchq.git.repository import Foreign, Git
from patchq.names import BlobId, CommitId
from patchq.system import fsio, runner
from patchq.system.paths import check_ref, ref_component

#: A URL in a lock is data: no transport that runs a command (``ext::``).
#: A server that sends less than a kilobyte a second for a minute is given up, too.
SAFE_TRANSPORTS = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "60",
}
_UNREACHABLE = re.compile(
    r"Could not resolve|unable to access|Connection (?:refused|timed out|reset)|no answer in|"
    r"Network is unreachable|Could not read from remote|failed to connect|does not appear to be a git",
    re.IGNORECASE,
)


#: How hosts are reached is the person's business: proxies, certificates, mirrors, credentials. Nothing else is theirs.
_REACH = r"^(http|credential|url)\.|^core\.(sshcommand|gitproxy)$|^ssh\."


class Unreachable(SourceError):
    """A git host that doesn't answer."""


def _unreachable(url: str, error: runner.CommandError) -> Unreachable:
    said = error.said.splitlines()[-1] if error.said else str(error.code)
    reason = re.sub(r"^fatal: (unable to access '[^']*': )?", "", said)
    return Unreachable(
        f"{url} can't be reached ({reason})", hint="check the address and the network, or use an archive"
    )


#: A host says what it likes on the way, for as long as it likes; git passes it on.
_SAID = 1 << 16


@functools.cache
def _settings_of(_home: str | None, _config_home: str | None, _global: str | None) -> tuple[tuple[str, str], ...]:
    own = {k: v for k in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM") if (v := os.environ.get(k))}
    argv = ["git", "config", "--includes", "-z", "--get-regexp", _REACH]
    out = runner.run(argv, cwd=Path("/"), env={"GIT_DIR": os.devnull, **own}, ok_codes=(0, 1, 128)).stdout
    pairs = (entry.partition("\n") for entry in out.decode("utf-8", "surrogateescape").split("\0")[:-1])
    return tuple((key, value if newline else "true") for key, newline, value in pairs)


def _reach(url: str) -> tuple[tuple[str, str], ...]:
    """What a person's configuration says about reaching hosts; nothing for a folder of this machine."""
    if url.startswith("/"):
        return ()
    return _settings_of(*(os.environ.get(name) for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")))


def check_owner(folder: Path) -> Path | None:
    """Where the repository of a folder is, if it is another user's whom the person trusts; None if it is no other's.

    :raises Unreachable: if it is another user's, and the person's ``safe.directory`` doesn't name it.
    """
    try:
        place = Path(os.path.realpath(Foreign(folder).place()["GIT_DIR"]))
        there = [path for path in dict.fromkeys((folder, place)) if path.exists()]
    except OSError:  # git says what can't be read
        return None
    for path in there:
        owner = stranger(path, folder, place)
        if owner is not None:
            whose = f"another user (uid {owner}) whom your safe.directory doesn't name"
            raise Unreachable(f"{path} belongs to {whose}; nothing of it was read", hint=trusting(folder))
    return place if any(path.stat().st_uid != os.geteuid() for path in there) else None


def _serve(url: str) -> tuple[str, ...]:
    """How git serves what lies in a folder of this machine: it asks nobody else for what that repository lacks.

    Its configuration isn't the person's, and git's variables are not handed on to it: all is said in the command.

    :raises Unreachable: as :func:`check_owner`.
    """
    if not url.startswith("/"):
        return ()
    place = check_owner(Path(url))
    safe = f" -c {shlex.quote(f'safe.directory={place}')}" if place else ""
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
    # Not splitlines: a ref's name may hold what that takes for the end of a line.
    return done.stdout.decode("utf-8", "replace").split("\n")[:-1]


def _fetch(into: Git, url: str, spec: str, *options: str) -> str:
    """Fetch one refspec; returns what git said if it failed."""
    argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", *_serve(url), *options, "--", url, spec)
    # One pack, renamed when it is whole: loose objects could be left without what they refer to.
    config = ("fetch.unpackLimit=1",)
    done = into.ask(*argv, config=config, env=SAFE_TRANSPORTS, settings=_reach(url), most_said=_SAID)
    if not done.returncode:
        return ""
    return done.stderr.decode("utf-8", "replace").strip() or f"git ended with {done.returncode}"


def remote_commit(url: str, ref: str, *, timeout: float) -> CommitId | None:
    """The commit that ``ref`` (a tag, a branch or ``HEAD``) names at ``url``, tags peeled.

    :param timeout: seconds to wait for an answer.
    :returns: None if the remote has no such ref.
    :raises Unreachable: if the host doesn't answer.
    """
    check_ref(ref, "a ref")
    return commit_named(remote_refs(url, timeout=timeout), ref)


def remote_refs(url: str, *, timeout: float) -> dict[str, CommitId]:
    """All that a remote names, tags peeled beside them.

    :raises Unreachable: if the host doesn't answer.
    """
    out = _ls_remote(url, timeout=timeout)
    return {name: CommitId(commit) for commit, name in (line.split("\t") for line in out)}


def commit_named(refs: Mapping[str, CommitId], ref: str) -> CommitId | None:
    """The commit that a tag, a branch or ``HEAD`` is among what a remote names."""
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref)
    return next((refs[name] for name in names if name in refs), None)


def tags(url: str, *, timeout: float) -> list[str]:
    """The names of a remote's tags.

    :raises Unreachable: if the host doesn't answer.
    """
    out = _ls_remote(url, options=("--tags", "--refs"), timeout=timeout)
    return [name.removeprefix("refs/tags/") for _, name in (line.split("\t") for line in out)]


def default_branch(url: str, *, timeout: float) -> str:
    """The branch that a remote's ``HEAD`` is.

    :raises Unreachable: if the host doesn't answer.
    :raises SourceError: if it has none.
    """
    out = _ls_remote(url, "HEAD", options=("--symref",), timeout=timeout)
    match = next(filter(None, (re.fullmatch(r"ref: refs/heads/(\S+)\tHEAD", line) for line in out)), None)
    if not match:
        raise SourceError(f"{url} has no default branch", hint="--onto REF")
    return match[1]


def fetch_commit(store: Git, url: str, commit: CommitId, ref: str, *, again: bool = False) -> None:
    """Bring one commit, without its history, into the store; ``again`` brings all of it, whatever is there.

    Servers that don't serve a bare commit id are asked for the ref instead.

    :raises SourceError: if neither brings the commit.
    """
    check_ref(ref, "a ref")
    said = ""
    for spec in (commit, f"refs/tags/{ref}", f"refs/heads/{ref}"):
        failed = _fetch(store, url, spec, "--depth=1", *(["--refetch"] if again else []))
        if not failed and store.ref_or_none(commit):
            fsio.sync_file(store.folder / "shallow")  # git syncs it in no case
            return
        said = failed or said
    raise SourceError(
        f"{url} doesn't give commit {commit} (asked by id and as {ref}): {said}",
        hint="run `patchq pin --check` to see whether the ref moved",
    )


def fetch_commits(store: Git, url: str, commits: Sequence[CommitId]) -> bool:
    """Bring commits, without their history, over one connection; False if the server doesn't give all of them so."""
    argv = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1", *_serve(url), "--stdin", "--", url)
    # Asked for one by one, the server is told with each of all that are there.
    done = store.ask(
        *argv,
        data="".join(f"{commit}\n" for commit in commits).encode(),
        config=("fetch.unpackLimit=1",),
        env=SAFE_TRANSPORTS,
        settings=_reach(url),
        most_said=_SAID,
    )
    fsio.sync_file(store.folder / "shallow")
    return not done.returncode


def fetch_ref(into: Git, url: str, ref: str, name: str, *, depth: int) -> None:
    """Bring a ref, or a commit, into ``into`` as ``name``, with so many commits of its history (0: all).

    :raises SourceError: if the host has none such, or doesn't answer.
    """
    check_ref(ref, "a ref")
    shallow = (into.folder / "shallow").exists()
    options = [f"--depth={depth}"] if depth else ["--unshallow"] if shallow else []
    if said := _fetch(into, url, f"+{ref}:{name}", *options):
        last = re.sub(r"^fatal: ", "", said.splitlines()[-1])
        raise SourceError(f"{url} doesn't give {ref}: {last}", hint="check the address and the network")


def fetch_tag(store: Git, url: str, tag: str, into: str, *, offline: bool = False) -> str | None:
    """Bring a tag into the store as the ref ``into``; returns the id of its tag object.

    Where the host doesn't answer, or isn't to be asked, what the store has of it is taken.

    :returns: None if there is no such tag, or one without an object of its own.
    """
    check_ref(tag, "a tag")
    if (offline or _fetch(store, url, f"+refs/tags/{tag}:{into}", "--depth=1")) and into not in store.refs(into):
        return None
    found = store.run("rev-parse", into).decode().strip()
    return found if store.run("cat-file", "-t", found).strip() == b"tag" else None


def fetch_history(repository: Git, url: str, ref: str, *, files: bool = True) -> CommitId:
    """Bring a ref with all that leads to it; returns its commit.

    :param files: False for commits and trees alone, where the host can leave files out: see :func:`fetch_blobs`.
    :raises SourceError: if the host doesn't answer, or has no such ref.
    """
    check_ref(ref, "a ref")
    said = ""
    for spec in (f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        name = f"refs/history/{ref_component(spec)}"
        said = (
            _fetch(repository, url, f"+{spec}:{name}") if files else _fetch_partial(repository, url, f"+{spec}:{name}")
        )
        if not said and (found := repository.ref_or_none(name)):
            return found
    raise SourceError(f"{url} doesn't give the history of {ref}: {said}", hint="forecast without --blame: by releases")


#: What git calls the host of a history without files. It writes down that there is one, by this name; where it is, is
#: said each time.
_PARTIAL = "partial"


def _fetch_partial(repository: Git, url: str, *specs: str, config: Sequence[str] = ()) -> str:
    """Fetch refs or objects without files, except files that ``specs`` names; return git's message if it fails."""
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
    """Fetch files that a repository without files lacks, by their ids.

    :raises SourceError: if the host doesn't send them.
    """
    # A host that is told of a commit assumes that its files are here.
    config = ("fetch.negotiationAlgorithm=noop",)
    if said := _fetch_partial(repository, url, *blobs, config=config):
        raise SourceError(f"{url} doesn't give {len(blobs)} files of its history: {said}", hint="`patchq fetch`")
