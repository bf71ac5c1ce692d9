"""Commits and pull requests of a git host, by URL or number, fetched through git refs.

A host keeps a pull request as ``refs/pull/N/head`` (GitHub, Gitea) or
``refs/merge-requests/N/head`` (GitLab).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.errors import SourceError, UserError
from patchq.git.borrow import Borrowed, borrow
from patchq.git.repository import Git, scratch
from patchq.git.transport import default_branch, fetch_ref
from patchq.names import CommitId
from patchq.replay.limits import MOST, read_edited
from patchq.sources import index
from patchq.sources.simple import IndexFile

_URL = re.compile(
    r"(?P<repository>(?:https?|ssh|git|file)://[^\s?#]+?)/(?:-/)?"
    r"(?P<kind>pull|pulls|merge_requests|commit|commits)/(?P<which>[0-9a-f]{1,64})(?:\.patch|\.diff)?(?:/[\w-]*)?/?"
)
_DEEP = (50, 1000, 0)
_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Commit or pull request that a URL names.

    :ivar number: number of the pull request; 0 for a commit.
    :ivar commit: commit id; empty for a pull request.
    :ivar patch: URL from which the change can be downloaded as mails; empty if the URL isn't HTTP.
    """

    repository: str
    number: int = 0
    commit: str = ""
    patch: str = ""


def parse_address(text: str) -> Address | None:
    """Return the commit or pull request that a URL names; None for any other text.

    >>> parse_address("https://git.example.org/a/b/pull/12/files").patch
    'https://git.example.org/a/b/pull/12.patch'
    >>> parse_address("https://git.example.org/a/b/-/commit/0123456789").commit
    '0123456789'
    """
    match = _URL.fullmatch(text)
    if not match:
        return None
    patch = ""
    if text.startswith("http"):
        patch = f"{text[: match.end('which')]}.patch"
    if match["kind"].startswith("commit"):
        return Address(repository=match["repository"], number=0, commit=match["which"], patch=patch)
    if match["which"].isdigit():
        return Address(repository=match["repository"], number=int(match["which"]), commit="", patch=patch)
    return None


def fetch_pull_request(store: Git, url: str, number: int) -> tuple[list[Borrowed], str]:
    """Return the commits of a pull request that are not in the default branch, oldest first.

    Copy the commits' trees to the store. If the pull request contains merges, return one commit with all
    changes.

    :returns: the commits, and a note for the user.
    :raises SourceError: if the host has no such pull request, or doesn't answer.
    """
    branch = default_branch(url, timeout=_TIMEOUT)
    with scratch() as fetched:
        head = _fetch_one(fetched, url, (f"refs/pull/{number}/head", f"refs/merge-requests/{number}/head"), number)
        for depth in _DEEP:
            for ref, name in ((head, "head"), (f"refs/heads/{branch}", "target")):
                fetch_ref(fetched, url, ref, f"refs/patchq/{name}", depth=depth)
            base = fetched.ask("merge-base", "refs/patchq/target", "refs/patchq/head")
            if not base.returncode:
                break
        else:
            raise SourceError(f"{url}: pull request {number} and {branch} have no common commit", hint="check the URL")
        first = base.stdout.decode().strip()
        found = borrow(store, fetched.folder, first, "refs/patchq/head")
        if all(len(b.info.parents) == 1 for b in found):
            return found, ""
        trees = fetched.tree_of([first])
        last = found[-1]
        joined = Borrowed(replace(last.info, parents=(CommitId(first),)), trees[0])
        return [joined], f"the pull request's {len(found)} commits include merges, so they become one patch"


def fetch_commit_of(store: Git, url: str, commit: str) -> list[Borrowed]:
    """Fetch one commit from a git host, and copy its tree and its parent's tree to the store.

    :raises SourceError: if the host doesn't provide the commit.
    :raises UserError: if the commit id is abbreviated.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise UserError(
            f"{commit} is an abbreviated commit id",
            hint="give all 40 digits, because git hosts don't find abbreviated ids",
        )
    with scratch() as fetched:
        fetch_ref(fetched, url, commit, "refs/patchq/head", depth=2)
        return borrow(store, fetched.folder, "refs/patchq/head~1", "refs/patchq/head")


def mails_of(address: Address) -> bytes:
    """Download a pull request or commit as mails, for hosts from which git can't fetch it.

    :raises SourceError: if the download fails.
    """
    name = f"{address.number or address.commit}.patch"
    path = index.download(IndexFile(name=name, url=address.patch, sha256=""), "", most=MOST)
    return read_edited(path)


def _fetch_one(into: Git, url: str, refs: Sequence[str], number: int) -> str:
    notes = ""
    for ref in refs:
        try:
            fetch_ref(into, url, ref, "refs/patchq/head", depth=1)
            return ref
        except SourceError as error:
            notes = notes or error.message
    raise SourceError(
        f"{url} has no pull request {number} ({notes})",
        hint="`--pr N` imports a pull request at the pinned upstream's git host",
    )
