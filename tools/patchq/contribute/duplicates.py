"""Search for open upstream pull requests and issues that may duplicate a branch.

The search runs ``gh``. If ``gh`` fails or the upstream has no git host, the search reads the list
``patches/<upstream>/contribute/open-items.toml``. Each entry of the list has a link, and names functions, files and
words that the linked item is about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from patchq.drift import bodies
from patchq.errors import FormatError
from patchq.formats import toml
from patchq.git.diffs import PathChange
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.sources.rules import OPEN_ITEMS, stand_in_folder
from patchq.system import project_files, runner
from patchq.system.paths import Layout

#: Limits for one branch: search terms, and diffs of pull requests that change the same files.
MOST_SEARCHES, MOST_DIFFS = 6, 10
#: Function names that are too common to search for.
_COMMON = {"__init__", "__call__", "forward", "apply", "build", "run", "plan", "main", "create", "update", "get", "set"}
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)$", re.MULTILINE)
_URL = re.compile(r"https://[^\s\[\]]+/(pull|issues)/(\d+)")
_TIMEOUT_S = 60.0


class Searched(Enum):
    """Source of the open items: ``gh``, the list, or none."""

    GH = "gh"
    LIST = "list"
    NOWHERE = "nowhere"


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenItem:
    """Open pull request or issue that overlaps with a branch.

    :ivar functions: functions that the branch changes and that the item changes or names.
    :ivar files: files that both the branch and the item change.
    :ivar words: words that are in both the item's entry in the list and a commit message of the branch.
    :ivar named: True if a commit message of the branch names the item.
    """

    url: str
    title: str
    functions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    named: bool = False

    @property
    def number(self) -> str:
        """Number of the item at the git host, such as ``#43200``."""
        match = _URL.fullmatch(self.url)
        if match:
            return f"#{match[2]}"
        return self.url

    @property
    def overlaps(self) -> bool:
        """True if functions or words overlap, not only files."""
        return bool(self.functions or self.words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicates:
    """Open items that overlap with a branch, and the source in which they were searched.

    :ivar asked: date of the list; empty if ``gh`` searched.
    """

    searched: Searched
    items: tuple[OpenItem, ...] = ()
    asked: str = ""


def find_duplicates(
    *,
    layout: Layout,
    store: Git,
    upstream: str,
    repository: str,
    base: CommitId,
    tip: CommitId,
    subjects: Sequence[str],
    messages: Sequence[str],
) -> Duplicates:
    """Find open items that share functions, files or words with the branch ``base..tip``.

    :param repository: ``owner/name`` at the git host; empty if the upstream has none.
    :raises FormatError: if the list can't be read.
    """
    changes = store.changes(base, tip)
    files = [change.path.decode("utf-8", "replace") for change in changes]
    functions = changed_functions(store, changes)
    found = None
    if repository:
        found = _ask_gh(repository, subjects, functions, files)
    searched, asked = Searched.GH, ""
    if found is None:
        listed = _read_list(layout.root, stand_in_folder(layout, upstream) / OPEN_ITEMS)
        if listed is None:
            searched = Searched.NOWHERE
        else:
            searched = Searched.LIST
        asked = ""
        if listed:
            asked = listed.asked
        found = _match(listed.items if listed else (), functions, files, messages)
    items = [_with_named(item, messages) for item in found]
    items.sort(key=lambda item: (not item.overlaps, item.url))
    return Duplicates(searched=searched, items=tuple(items), asked=asked)


def changed_functions(store: Git, changes: Iterable[PathChange]) -> tuple[str, ...]:
    """Return the qualified names of the innermost functions and macros that the given changes edit."""
    found: dict[str, None] = {}
    for change in changes:
        if not bodies.language_of(change.path):
            continue
        blobs = store.read_blobs(entry.blob for entry in (change.old, change.new) if entry)
        versions = []
        for entry in (change.old, change.new):
            versions.append(bodies.SourceVersion(change.path, blobs[entry.blob] if entry else b""))
        unlike = versions[0].unlike(versions[1])
        inner = []
        for name in unlike:
            if not any(other.startswith(f"{name}.") for other in unlike):
                inner.append(name)
        found.update(dict.fromkeys(inner))
    return tuple(found)


def _specific(functions: Iterable[str]) -> list[str]:
    """Return the last components of qualified names, without short and common names."""
    found: dict[str, None] = {}
    for name in map(_last_part, functions):
        if name not in _COMMON and len(name) > 5:
            found[name] = None
    return list(found)


def _last_part(name: str) -> str:
    """Return the last component of a qualified name of Python or C++."""
    return re.split(r"\.|::", name)[-1]


def _with_named(item: OpenItem, messages: Sequence[str]) -> OpenItem:
    pattern = re.compile(rf"{re.escape(item.number)}(?!\d)")
    named = any(item.url in message or pattern.search(message) for message in messages)
    return OpenItem(
        url=item.url, title=item.title, functions=item.functions, files=item.files, words=item.words, named=named
    )


# gh


def _ask_gh(
    repository: str, subjects: Sequence[str], functions: Sequence[str], files: Sequence[str]
) -> list[OpenItem] | None:
    """Search the git host's open pull requests and issues with ``gh``; return None if ``gh`` fails."""
    specific = _specific(functions)
    terms = [*specific[: MOST_SEARCHES - 1], *subjects[:1]]
    rows: dict[str, Any] = {}
    for term in terms:
        search = ["--repo", repository, "--state", "open", "--limit", "20", "--search", term.replace('"', "")]
        for kind, fields in (("pr", "url,title,body,files"), ("issue", "url,title,body")):
            answer = _gh(["gh", kind, "list", *search, "--json", fields])
            if answer is None:
                return None
            for row in answer:
                rows[row["url"]] = row
    found = []
    diffs = 0
    for url, row in rows.items():
        text = f"{row.get('title', '')}\n{row.get('body', '')}"
        paths = set()
        for file in row.get("files") or ():
            paths.add(str(file.get("path", "")))
        shared = sorted(paths & set(files))
        same = []
        for name in specific:
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
                same.append(name)
        if shared and not same and diffs < MOST_DIFFS:
            diffs += 1
            same = sorted(_functions_of_request(repository, url).intersection(specific), key=specific.index)
        if shared or same:
            title = str(row.get("title", ""))
            found.append(OpenItem(url=url, title=title, functions=tuple(same), files=tuple(shared)))
    return found


def _functions_of_request(repository: str, url: str) -> set[str]:
    """Return the words after ``@@`` in a pull request's hunk headers, which name the functions around the hunks."""
    try:
        done = runner.run(["gh", "pr", "diff", url, "--repo", repository], cwd=Path("/"), timeout=_TIMEOUT_S)
    except runner.CommandError:
        return set()
    text = done.stdout.decode("utf-8", "replace")
    found: set[str] = set()
    for head in _HUNK.findall(text):
        found.update(re.findall(r"\w+", head))
    return found


def _gh(argv: list[str]) -> list[dict[str, Any]] | None:
    """Return the rows that ``gh`` prints; None if ``gh`` fails or its output is unexpected."""
    try:
        raw = json.loads(runner.run(argv, cwd=Path("/"), timeout=_TIMEOUT_S).stdout)
    except (runner.CommandError, ValueError, RecursionError):
        return None
    if not isinstance(raw, list) or not all(isinstance(row, dict) and "url" in row for row in raw):
        return None
    return raw


# The list


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listed:
    url: str
    title: str
    touches: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _List:
    asked: str
    items: tuple[_Listed, ...]


def _read_list(root: Path, path: Path) -> _List | None:
    """Read ``open-items.toml`` of the project in ``root``; return None if the file is missing."""
    data = project_files.read(root, path)
    if data is None:
        return None
    try:
        raw = toml.loads(data)
        items = tuple(map(_listed, raw["item"]))
        return _List(asked=str(raw["asked"]), items=items)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{path}: {error}",
            hint="the file needs `asked = YYYY-MM-DD`, and [[item]] tables with url, title, touches (functions, files) "
            "and words",
        ) from None


def _listed(raw: dict[str, Any]) -> _Listed:
    url = str(raw["url"])
    if not _URL.fullmatch(url):
        raise ValueError(f"{url!r} is not a link to a pull request or an issue")
    unknown = set(raw) - {"url", "title", "touches", "words"}
    if unknown:
        raise ValueError(f"{url}: unknown key {min(unknown)}")
    touches, words = tuple(map(str, raw.get("touches", ()))), tuple(map(str, raw.get("words", ())))
    return _Listed(url=url, title=str(raw["title"]), touches=touches, words=words)


def _match(
    items: Sequence[_Listed], functions: Sequence[str], files: Sequence[str], messages: Sequence[str]
) -> list[OpenItem]:
    last = {*map(_last_part, functions), *functions}
    output = "\n".join(messages).lower()
    found = []
    for item in items:
        same = tuple(filter(last.__contains__, item.touches))
        shared = tuple(filter(files.__contains__, item.touches))
        words = tuple(word for word in item.words if word.lower() in output)
        if same or shared or words:
            found.append(OpenItem(url=item.url, title=item.title, functions=same, files=shared, words=words))
    return found
