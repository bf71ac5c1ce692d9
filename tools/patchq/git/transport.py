"""What passes between repositories: asking a host, fetching."""

from __future__ import annotations

import re

from patchq.errors import SourceError
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.system import fsio, runner

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


class Unreachable(SourceError):
    """A git host that doesn't answer."""


def _unreachable(url: str, error: runner.CommandError) -> Unreachable:
    said = error.said.splitlines()[-1] if error.said else str(error.code)
    reason = re.sub(r"^fatal: (unable to access '[^']*': )?", "", said)
    return Unreachable(
        f"{url} can't be reached ({reason})", hint="check the address and the network, or use an archive"
    )  # fmt: skip


def remote_commit(url: str, ref: str, *, timeout: float) -> CommitId | None:
    """The commit that ``ref`` (a tag, a branch or ``HEAD``) names at ``url``, tags peeled.

    :param timeout: seconds to wait for an answer.
    :returns: None if the remote has no such ref.
    :raises Unreachable: if the host doesn't answer.
    """
    try:
        done = runner.run(["git", "ls-remote", "--", url], timeout=timeout, env=SAFE_TRANSPORTS)
    except runner.CommandError as error:
        raise _unreachable(url, error) from None
    found = {name: commit for commit, name in (line.split("\t") for line in done.stdout.decode().splitlines())}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        if name in found:
            return CommitId(found[name])
    return None


def default_branch(url: str, *, timeout: float) -> str:
    """The branch that a remote's ``HEAD`` is.

    :raises Unreachable: if the host doesn't answer.
    :raises SourceError: if it has none.
    """
    argv = ["git", "ls-remote", "--symref", "--", url, "HEAD"]
    try:
        out = runner.run(argv, timeout=timeout, env=SAFE_TRANSPORTS).stdout.decode("utf-8", "replace")
    except runner.CommandError as error:
        raise _unreachable(url, error) from None
    match = re.match(r"ref: refs/heads/(\S+)\tHEAD$", out, re.MULTILINE)
    if not match:
        raise SourceError(f"{url} has no default branch", hint="--onto REF")
    return match[1]


def fetch_commit(store: Git, url: str, commit: CommitId, ref: str, *, again: bool = False) -> None:
    """Bring one commit, without its history, into the store; ``again`` brings all of it, whatever is there.

    Servers that don't serve a bare commit id are asked for the ref instead.

    :raises SourceError: if neither brings the commit.
    """
    said = ""
    for spec in (commit, f"refs/tags/{ref}", f"refs/heads/{ref}"):
        options = ["--depth=1", "--no-tags", "--no-write-fetch-head", *(["--refetch"] if again else [])]
        try:
            # One pack, renamed when it is whole: loose objects could be left without what they refer to.
            config = ["-c", "fetch.unpackLimit=1"]
            runner.run(
                ["git", *config, "fetch", "--quiet", *options, "--", url, spec], cwd=store.folder, env=SAFE_TRANSPORTS
            )
        except runner.CommandError as error:
            said = error.said
            continue
        if store.ref_or_none(commit):
            fsio.sync_file(store.folder / "shallow")  # git syncs it in no case
            return
    raise SourceError(
        f"{url} doesn't give commit {commit} (asked by id and as {ref}): {said}",
        hint="run `patchq pin --check` to see whether the ref moved",
    )


def fetch_tag(store: Git, url: str, tag: str, into: str) -> str | None:
    """Bring a tag into the store as the ref ``into``; returns the id of its tag object.

    Where the host doesn't answer, what the store has of it is taken.

    :returns: None if there is no such tag, or one without an object of its own.
    """
    argv = ["git", "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--", url]
    try:
        runner.run([*argv, f"+refs/tags/{tag}:{into}"], cwd=store.folder, env=SAFE_TRANSPORTS)
    except runner.CommandError:
        if into not in store.refs(into):
            return None
    found = store.run("rev-parse", into).decode().strip()
    return found if store.run("cat-file", "-t", found).strip() == b"tag" else None


def fetch_history(repository: Git, url: str, ref: str) -> CommitId:
    """Bring a ref with all that leads to it; returns its commit.

    :raises SourceError: if the host doesn't answer, or has no such ref.
    """
    said = ""
    for spec in (f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        name = f"refs/history/{spec}"
        argv = ["git", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", url, f"+{spec}:{name}"]
        try:
            runner.run(argv, cwd=repository.folder, env=SAFE_TRANSPORTS)
        except runner.CommandError as error:
            said = error.said
            continue
        found = repository.ref_or_none(name)
        if found:
            return found
    raise SourceError(f"{url} doesn't give the history of {ref}: {said}", hint="forecast without --blame: by releases")
