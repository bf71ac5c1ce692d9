"""Client for the part of the GitHub REST API that finds, opens and edits a pull request."""

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
#: Exceptions raised while a malformed response is read.
_NOT_SAID = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_ID = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Call:
    """API call. In a dry run, calls that change something aren't sent. ``body`` is None if the call only reads."""

    method: str
    url: str
    body: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """Pull request. ``state`` is ``open`` or ``closed``."""

    number: int
    state: str
    url: str
    body: str


@dataclass(slots=True, kw_only=True)
class Forge:
    """Repository on a git host with a REST API (forge).

    :ivar repository: ``OWNER/NAME``.
    :ivar dry_run: True to send no calls that change something. Without a token, a dry run sends no calls at all.
    :ivar calls: all calls so far, including calls that a dry run didn't send.
    """

    repository: str
    api: str = API
    token: str = field(default="", repr=False)
    dry_run: bool = False
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not _REPOSITORY.fullmatch(self.repository):
            raise UserError(
                f"{self.repository!r} is not the name of a GitHub repository",
                hint="give --repository as OWNER/NAME, such as vllm-project/vllm",
            )
        parts = urlsplit(self.api)
        if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise UserError(f"{self.api} is not https, so others could read the token", hint="--api https://…")

    def pull_of(self, branch: str) -> Pull | None:
        """Return the open pull request of a branch in this repository.

        If none is open, return the newest closed pull request; None if there is none.
        """
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
        """Return the message of a commit in the repository."""
        if not _ID.fullmatch(commit):
            raise SourceError(f"{commit!r} is not a commit", hint="check the branch on the remote")
        answer = self._ask("GET", f"git/commits/{commit}")
        if isinstance(answer, dict):
            return str(answer["message"])
        return ""

    def open(self, title: str, branch: str, base: str, body: str) -> Pull | None:
        """Open a pull request; return None in a dry run."""
        answer = self._ask("POST", "pulls", {"title": title, "head": branch, "base": base, "body": body})
        if answer:
            return self._pull(answer)
        return None

    def edit(self, pull: Pull, body: str) -> None:
        """Replace the text of an existing pull request."""
        self._ask("PATCH", f"pulls/{pull.number}", {"body": body})

    def _pull(self, raw: Any) -> Pull:
        try:
            url = str(raw["html_url"])
            return Pull(number=int(raw["number"]), state=str(raw["state"]), url=url, body=str(raw.get("body") or ""))
        except _NOT_SAID as error:
            raise self._unread(error) from None

    def _unread(self, error: Exception) -> SourceError:
        return SourceError(f"{self.api} sent a response that can't be parsed: {error!r}", hint="check --api")

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Send an API call, and return the parsed response.

        :raises SourceError: if the API doesn't answer, or answers with an error. The API's message is included.
        """
        from urllib3.exceptions import HTTPError

        call = Call(method, f"{self.api.rstrip('/')}/repos/{self.repository}/{path}", body)
        self.calls.append(call)
        if self.dry_run and (method != "GET" or not self.token):
            return None
        # Uncompressed: eight compressed megabytes may expand to gigabytes.
        headers = {
            "Accept": "application/vnd.github+json",
            "Accept-Encoding": "identity",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            with session(call.url) as own:
                # Redirects are refused: the token must not reach another host.
                answer = own.request(
                    method, call.url, headers=headers, json=body, timeout=TIMEOUT, allow_redirects=False, stream=True
                )
                text = answer.raw.read(MOST_BYTES, decode_content=False)
        except (OSError, HTTPError) as error:  # urllib3 raises its own errors while the response is read
            raise SourceError(f"{self.api} doesn't answer: {error}", hint="run it again") from None
        try:
            found = json.loads(text or b"null")
        except (ValueError, RecursionError):
            found = None
        if not 200 <= answer.status_code < 300 or (found is None and method != "PATCH"):
            message = ""
            if isinstance(found, dict):
                message = found.get("message", "")
            denied = answer.status_code in (401, 403, 404)
            hint = "run it again"
            if denied:
                hint = "the token needs permission to write contents and pull requests"
            raise SourceError(f"{method} {call.url}: {answer.status_code} {message}".rstrip(), hint=hint)
        return found
