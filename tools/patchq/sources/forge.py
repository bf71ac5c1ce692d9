"""The few calls to a forge with GitHub's REST interface that keep one pull request up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from patchq.errors import SourceError, UserError
from patchq.sources.index import session

API, TIMEOUT, MOST_BYTES = "https://api.github.com", 30, 8 << 20
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")
#: What reading an answer that isn't as it should be ends with.
_NOT_SAID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Call:
    """A call as it is sent, or in a dry run would be. ``body`` is None where it only asks."""

    method: str
    url: str
    body: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """A pull request. ``state``: ``open`` or ``closed``."""

    number: int
    state: str
    url: str
    body: str


@dataclass(slots=True, kw_only=True)
class Forge:
    """A repository there.

    :ivar repository: ``OWNER/NAME``.
    :ivar dry_run: nothing is sent; without a token, what asks gets no answer either.
    :ivar calls: all so far.
    """

    repository: str
    api: str = API
    token: str = field(default="", repr=False)
    dry_run: bool = False
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not _REPOSITORY.fullmatch(self.repository):
            raise UserError(f"{self.repository!r} is no OWNER/NAME", hint="--repository OWNER/NAME")
        parts = urlsplit(self.api)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise UserError(f"{self.api} is not https: a token would be read on the way", hint="--api https://…")

    def pull_of(self, branch: str) -> Pull | None:
        """The pull request of a branch of the repository: the open one, else the newest that was closed."""
        owner = self.repository.partition("/")[0]
        query = f"state=all&per_page=100&head={quote(f'{owner}:{branch}', safe='')}"
        answer = self._ask("GET", f"pulls?{query}")
        found = []
        for raw in answer if isinstance(answer, list) else []:
            try:
                own = raw["head"]["ref"] == branch and (raw["head"]["repo"] or {}).get("full_name") == self.repository
            except _NOT_SAID as error:
                raise self._unread(error) from None
            if own:
                found.append(self._pull(raw))
        return min(found, key=lambda p: (p.state != "open", -p.number), default=None)

    def message_of(self, commit: str) -> str:
        """The message of a commit that the repository has."""
        if not _ID.fullmatch(commit):
            raise SourceError(f"{commit!r} is no commit", hint="look at the remote")
        answer = self._ask("GET", f"git/commits/{commit}")
        return str(answer["message"]) if isinstance(answer, dict) else ""

    def open(self, title: str, branch: str, base: str, body: str) -> Pull | None:
        """Open one; None in a dry run."""
        answer = self._ask("POST", "pulls", {"title": title, "head": branch, "base": base, "body": body})
        return self._pull(answer) if answer else None

    def edit(self, pull: Pull, body: str) -> None:
        """Give one another text."""
        self._ask("PATCH", f"pulls/{pull.number}", {"body": body})

    def _pull(self, raw: Any) -> Pull:
        try:
            url = str(raw["html_url"])
            return Pull(number=int(raw["number"]), state=str(raw["state"]), url=url, body=str(raw.get("body") or ""))
        except _NOT_SAID as error:
            raise self._unread(error) from None

    def _unread(self, error: Exception) -> SourceError:
        return SourceError(f"{self.api} says what can't be read: {error!r}", hint="is --api right?")

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """:raises SourceError: with what was said, for any answer but a good one."""
        from urllib3.exceptions import HTTPError

        call = Call(method, f"{self.api.rstrip('/')}/repos/{self.repository}/{path}", body)
        self.calls.append(call)
        if self.dry_run and (method != "GET" or not self.token):
            return None
        # As it is: eight packed megabytes may be gigabytes.
        headers = {
            "Accept": "application/vnd.github+json",
            "Accept-Encoding": "identity",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with session(call.url) as own:
                # An answer from elsewhere is none: the token stays here.
                answer = own.request(
                    method, call.url, headers=headers, json=body, timeout=TIMEOUT, allow_redirects=False, stream=True
                )
                text = answer.raw.read(MOST_BYTES, decode_content=False)
        except (OSError, HTTPError) as error:  # requests' own, all of them, and those of what it reads by
            raise SourceError(f"{self.api} doesn't answer: {error}", hint="run it again") from None
        try:
            found = json.loads(text or b"null")
        except (ValueError, RecursionError):
            found = None
        if not 200 <= answer.status_code < 300 or (found is None and method != "PATCH"):
            said = found.get("message", "") if isinstance(found, dict) else ""
            denied = answer.status_code in (401, 403, 404)
            hint = "the token needs contents and pull requests: write" if denied else "run it again"
            raise SourceError(f"{method} {call.url}: {answer.status_code} {said}".rstrip(), hint=hint)
        return found
