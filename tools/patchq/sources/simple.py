"""Reader for the simple repository API: the files of a project on a package index, from a JSON or HTML page.

Specification: https://packaging.python.org/en/latest/specifications/simple-repository-api/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from patchq.records import dataclass

_JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html; q=0.2, text/html; q=0.01"
#: Major version of the API that this module reads.
_MAJOR = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """File on a package index.

    :ivar sha256: hash of the file; empty if the index gives none.
    :ivar uploaded: time of the upload in seconds since 1970; 0 if the index gives none.
    """

    name: str
    url: str
    sha256: str
    uploaded: float = 0.0


def project_url(index: str, project: str) -> str:
    """Return the address of a project's page. ``project`` must be a normalized name."""
    return f"{index.rstrip('/')}/{project}/"


def parse_page(data: bytes, content_type: str, url: str) -> list[IndexFile]:
    """Return the files on a project's page.

    :param url: address of the page after redirects, against which relative links are resolved.
    :raises ValueError: if the page has an unknown type, version or structure.
    """
    if content_type.partition(";")[0].strip().lower() in (_JSON, "application/json"):
        return _parse_json(data, url)
    if content_type.partition(";")[0].strip().lower() in ("text/html", "application/vnd.pypi.simple.v1+html"):
        page = _Page(url)
        page.feed(data.decode("utf-8", "replace"))
        page.close()
        return page.files
    raise ValueError(f"unsupported page type {content_type or 'unknown'}")


def _check_version(version: str) -> None:
    if version.partition(".")[0] != _MAJOR:
        raise ValueError(f"unsupported version {version} of the repository API")


def _parse_json(data: bytes, url: str) -> list[IndexFile]:
    try:
        raw = json.loads(data)
        _check_version(str(raw["meta"]["api-version"]))
        return list(_json_files(raw["files"], url))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a project page: {error!r}") from None


def _json_files(files: Any, url: str) -> Iterator[IndexFile]:
    for file in files:
        when = file.get("upload-time")
        # Python 3.10 parses neither Z nor more than six digits of a second.
        uploaded = 0.0
        if when:
            uploaded = datetime.fromisoformat(f"{when[:19]}+00:00").timestamp()
        sha256 = str(file["hashes"].get("sha256", ""))
        yield IndexFile(
            name=str(file["filename"]), url=urljoin(url, str(file["url"])), sha256=sha256, uploaded=uploaded
        )


class _Page(HTMLParser):
    """Parser that collects the links of an HTML page. Relative links are resolved against the page's ``base``."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.files: list[IndexFile] = []
        self._base = url

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "meta" and found.get("name") == "pypi:repository-version":
            _check_version(found.get("content") or "")
        elif tag == "base" and found.get("href"):
            self._base = urljoin(self._base, found["href"] or "")
        elif tag == "a" and found.get("href"):
            url, fragment = urldefrag(urljoin(self._base, (found["href"] or "").strip()))
            name = unquote(urlsplit(url).path).rpartition("/")[2]
            kind, _, digest = fragment.partition("=")
            if name:
                self.files.append(IndexFile(name=name, url=url, sha256=digest if kind == "sha256" else ""))
