"""Files from the package index that pip is configured with, checked by SHA-256.

pip can't download a source distribution without running its build, so this module queries the index
itself. The indexes and folders come from ``pip config``: mirrors, proxies and air-gapped folders
work as they do for pip.
"""

from __future__ import annotations

import ast
import functools
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from patchq.errors import SourceError
from patchq.names import sh
from patchq.records import dataclass
from patchq.sources import simple
from patchq.sources.simple import IndexFile
from patchq.system import fsio, runner
from patchq.system.allowance import Allowance
from patchq.system.paths import cache_folder
from patchq.system.progress import Progress

if TYPE_CHECKING:
    from packaging.version import Version
    from requests import PreparedRequest, Response

    from patchq.sources._partial import Partial

#: Limits of a download: seconds without data, average bytes per second, and total bytes.
TIMEOUT, SLOWEST, MOST_BYTES = 60, 16 << 10, 8 << 30
#: Maximum number of responses per file. A request is repeated only if the last response contained data.
RESUMED = 8
#: Held while pip's settings or a page are read, so that threads don't repeat the work.
_LOCK = threading.Lock()
#: Pages by index and project while :func:`same_pages` lasts.
_pages: dict[tuple[str, str], list[IndexFile]] | None = None
_OFFLINE_HINT = "run `patchq fetch` where the package index can be reached"


@dataclass(frozen=True, slots=True)
class IndexRelease:
    """Release of a project on the index, with its source distribution."""

    version: Version
    file: IndexFile

    @property
    def uploaded(self) -> float:
        """Upload time of the release's source distribution."""
        return self.file.uploaded


@functools.cache
def pip_settings() -> dict[str, list[str]]:
    """Return pip's settings, such as ``index-url``, as lists of words.

    The settings come from ``pip config`` and pip's environment variables.
    """
    found: dict[str, list[str]] = {}
    try:
        out = runner.run([sys.executable, "-m", "pip", "config", "list"]).stdout.decode()
    except runner.CommandError:
        out = ""  # pip isn't installed: its environment variables below still count
    for line in out.splitlines():
        key, _, value = line.partition("=")
        name = key.rsplit(".", 1)[-1]
        if key.split(".", 1)[0] in ("global", "install", "download", ":env:"):
            found[name] = str(ast.literal_eval(value)).split()
    for name in ("index-url", "extra-index-url", "find-links"):
        setting = os.environ.get("PIP_" + name.upper().replace("-", "_"))
        if setting:
            found[name] = setting.split()
    if os.environ.get("PIP_NO_INDEX"):
        found["no-index"] = ["1"]
    return found


@functools.cache
def _pips_default() -> list[str]:
    """Return the index that pip uses by default. patchq itself contains no address of an index.

    pip is imported in another process: importing it makes setuptools replace ``distutils``, which causes a
    warning if ``distutils`` was imported before.
    """
    asked = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    try:
        return [runner.run([sys.executable, "-c", asked]).stdout.decode().strip()]
    except runner.CommandError:
        return []


def find_files(project: str, wanted: Callable[[str], bool]) -> list[IndexFile]:
    """Return a project's files from all configured indexes, limited to the file names that ``wanted`` accepts.

    :raises SourceError: if no file is found and an index didn't answer or its page can't be read, or if a remote index
        links to a local file.
    """
    with _LOCK, ThreadPoolExecutor(1) as pool:  # pip's answer takes as long as the imports below
        asked = pool.submit(pip_settings)
        from packaging.utils import canonicalize_name
        from requests import RequestException

        settings = asked.result()
    found: dict[str, IndexFile] = {}
    for path in _linked_files(settings.get("find-links", [])):
        if wanted(path.name):
            found.setdefault(path.name, IndexFile(name=path.name, url=path.as_uri(), sha256=fsio.sha256_file(path)))
    urls: list[str] = []
    if not settings.get("no-index"):
        with _LOCK:
            urls = [*(settings.get("index-url") or _pips_default()), *settings.get("extra-index-url", [])]
    silent, unreadable = [], []
    for url in urls:
        try:
            files = _files_on(url, canonicalize_name(project))
        except RequestException as error:
            silent.append(type(error).__name__)  # the message contains the URL, which may contain a password
            continue
        except ValueError as error:
            unreadable.append(str(error))
            continue
        for file in files:
            if wanted(file.name):
                if _is_here(file.url) and not _is_here(url):
                    raise SourceError(
                        f"the package index {url} links to a file on this machine: {file.url}",
                        hint="find out why the index does that before you use it",
                    )
                found.setdefault(file.name, file)
    if not found and silent:
        raise SourceError(f"the package index doesn't answer for {project} ({', '.join(silent)})", hint=_OFFLINE_HINT)
    if not found and unreadable:
        raise SourceError(
            f"the package index's page of {project} can't be read: {'; '.join(unreadable)}",
            hint="check the index in `python -m pip config list`",
        )
    return list(found.values())


@contextmanager
def same_pages() -> Iterator[None]:
    """While the context lasts, read each project's page only once, for all versions and threads."""
    global _pages
    before = _pages
    if before is None:
        _pages = {}
    try:
        yield
    finally:
        _pages = before


def _files_on(index: str, project: str) -> list[IndexFile]:
    """Return the files of a project on one index; an empty list if the index doesn't have the project.

    :raises requests.RequestException: if the index doesn't answer.
    :raises ValueError: if the page can't be parsed.
    """
    if _pages is None:
        return _read_page(index, project)
    with _LOCK:
        if (index, project) not in _pages:
            _pages[index, project] = _read_page(index, project)
        return _pages[index, project]


def _read_page(index: str, project: str) -> list[IndexFile]:
    """Read a project's page on an index, and return its files; an empty list if the index doesn't have the project.

    :raises requests.RequestException: if the index doesn't answer.
    :raises ValueError: if the page can't be parsed.
    """
    url, headers = simple.project_url(index, project), {"Accept": simple.ACCEPT}
    with session(index) as own, own.get(url, headers=headers, timeout=TIMEOUT) as answer:
        if answer.status_code == 404:
            return []
        answer.raise_for_status()
        return simple.parse_page(answer.content, answer.headers.get("Content-Type", ""), answer.url)


def _sdist_version(project: str, name: str) -> Version | None:
    """Return the version in the file name of a project's source distribution; None for other files."""
    from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

    try:
        found, version = parse_sdist_filename(name)
    except InvalidSdistFilename:
        return None
    if found == canonicalize_name(project):
        return version
    return None


def find_releases(project: str) -> list[IndexRelease]:
    """Return all releases with a source distribution as a tar archive, oldest version first.

    :raises SourceError: in the same cases as :func:`find_files`.
    """
    found: dict[Version, IndexRelease] = {}
    for file in find_files(project, lambda name: ".tar" in name and _sdist_version(project, name) is not None):
        version = _sdist_version(project, file.name)
        assert version
        found.setdefault(version, IndexRelease(version, file))
    return [found[version] for version in sorted(found)]


def find_sdist(project: str, version: str) -> IndexFile:
    """Return the source distribution of one release.

    :raises SourceError: if the index doesn't have it.
    """
    from packaging.version import Version

    files = find_files(project, lambda name: _sdist_version(project, name) == Version(version))
    if not files:
        releases = find_releases(project)
        if not releases:
            raise SourceError(
                f"the package index has no source distribution of {project}",
                hint="check the project's name, or give the project's git repository with --url",
            )
        newest = next((r.version for r in reversed(releases) if not r.version.is_prerelease), releases[-1].version)
        raise SourceError(
            f"the package index has no source distribution of {project} {version}; the newest is {newest}",
            hint=f"use `--archive {sh(f'{project}=={newest}')} --ref {sh(newest)}`; `python -m pip index versions "
            f"{sh(project)}` lists all releases; to use a git repository, give --url",
        )
    return files[0]


def find_wheels(project: str, version: str) -> list[IndexFile]:
    """Return all wheels of one release, sorted by name."""
    from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
    from packaging.version import Version

    def wanted(name: str) -> bool:
        try:
            found, its_version, _, _ = parse_wheel_filename(name)
        except InvalidWheelFilename:
            return False
        return found == canonicalize_name(project) and its_version == Version(version)

    return sorted(find_files(project, wanted), key=lambda f: f.name)


def cached(sha256: str) -> Path | None:
    """Return the cached file with this hash; None if it isn't cached.

    The cache isn't trusted, so the file is hashed again.
    """
    folder = cache_folder() / "sha256" / sha256
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.name.startswith("."):
            if fsio.sha256_file(path) == sha256:
                return path
            path.unlink(missing_ok=True)  # damaged, or written by another program
    return None


def keep(path: Path, sha256: str) -> None:
    """Copy a file with this hash into the cache. The cache may be on another disk."""
    root = cache_folder()
    root.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".download-", dir=root)
    os.close(fd)
    try:
        shutil.copyfile(path, name)
        target = root / "sha256" / sha256 / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        fsio.rename(Path(name), target)
    finally:
        Path(name).unlink(missing_ok=True)


def download(
    file: IndexFile, sha256: str, progress: Progress | None = None, *, most: int = 0, allowance: Allowance | None = None
) -> Path:
    """Download a file into the cache. The file gets its name only after its hash was checked.

    If the server supports it, an interrupted download is resumed, even by a later command.

    :param sha256: expected hash, from the lock. If empty, the file must have the hash that the index gives.
    :param most: size limit in bytes; default: :data:`MOST_BYTES`.
    :param allowance: limit on the bytes downloaded by a whole operation. Local files don't count.
    :raises Exhausted: if the file exceeds the remaining allowance.
    :raises SourceError: if the hash differs, or if the transfer fails.
    """
    from patchq.sources import _partial

    expected = sha256 or file.sha256
    if expected and (have := cached(expected)):
        return have
    root = cache_folder()
    if allowance is None or _is_here(file.url):
        allowance = Allowance(MOST_BYTES * RESUMED)
    with _partial.opened(root, expected) as part:
        _bring(file, part, progress, most or MOST_BYTES, allowance)
        if part.resumed and part.digest.hexdigest() != expected:
            part.clear()  # the earlier bytes belong to another file
            _bring(file, part, progress, most or MOST_BYTES, allowance)
        found = part.digest.hexdigest()
        if expected and found != expected:
            part.clear()
            if sha256:
                source = "the lock has"
                hint = "find out why the file differs before you use this index; `patchq pin` accepts the new hash"
            else:
                source = "the index gives"
                hint = "run the command again; if it fails again, use another index"
            raise SourceError(
                f"{file.name} has SHA-256 {found}, but {source} {expected}; nothing was imported", hint=hint
            )
        target = root / "sha256" / found / file.name
        part.finish(target)
        return target


def _bring(file: IndexFile, part: Partial, progress: Progress | None, most: int, allowance: Allowance) -> None:
    """Download the bytes of a file that are still missing.

    If a response is interrupted after some data has arrived, repeat the request.

    :raises SourceError: if the file can't be downloaded.
    """
    from urllib3.exceptions import HTTPError

    for left in reversed(range(RESUMED)):
        before = part.size
        try:
            _transfer(file, part, progress, most, allowance)
            if not part.total or part.size >= part.total:
                return
            message = f"{file.name}: {part.size} of {part.total} bytes received"
        except (OSError, HTTPError) as error:  # requests raises OSErrors
            if isinstance(error, OSError) and error.filename:
                raise  # an error of the local disk
            message = f"{file.name} could not be downloaded: {error}"
        if not left or part.size <= before or not part.validator:
            kept = ""
            if part.size and part.validator:
                kept = f"; {part.size} bytes are kept, and the next run continues there"
            raise SourceError(f"{message}{kept}", hint="run the command again" if kept else _OFFLINE_HINT)


def _transfer(file: IndexFile, part: Partial, progress: Progress | None, most: int, allowance: Allowance) -> None:
    """Append the bytes of one response to the download."""
    begun = time.monotonic()
    allowance.need()
    with session(file.url) as own, own.get(file.url, stream=True, timeout=TIMEOUT, headers=part.asking()) as response:
        if response.status_code == 416 and part.size:  # complete, or another file
            part.resumed = True
            return
        response.raise_for_status()
        part.answered(response.status_code, response.headers)
        first = part.size
        allowance.need(part.total - first)
        for chunk in _chunks(response):
            part.write(chunk)
            allowance.take(len(chunk))
            if part.size > most:
                part.clear()
                raise SourceError(
                    f"{file.name} is larger than {most >> 20} MiB", hint="no release is that large; check the index"
                )
            if time.monotonic() - begun > TIMEOUT + (part.size - first) / SLOWEST:
                raise SourceError(f"{file.name} downloads too slowly: {part.size} bytes so far", hint=_OFFLINE_HINT)
            if progress:
                progress(file.name, part.size, part.total)


def _chunks(response: Response) -> Iterator[bytes]:
    """Yield a response's content as it arrives.

    ``iter_content`` would wait for a whole chunk, even on a slow connection.
    """
    if urlsplit(response.url).scheme == "file":
        yield from response.iter_content(1 << 16)
        return
    while chunk := response.raw.read1(1 << 16, decode_content=True):
        yield chunk


def _is_here(url: str) -> bool:
    return urlsplit(url).scheme not in ("http", "https")


def session(url: str) -> Any:
    """Return a requests session.

    Like pip's session, it reads ``file:`` URLs, but only if ``url`` is local. Otherwise, a remote index could redirect
    to a local file.
    """
    import io

    import requests
    from requests.adapters import BaseAdapter

    class OpenFile(io.FileIO):
        def release_conn(self) -> None:
            """Close the file; requests calls this once it has read everything."""
            self.close()

    class FolderAdapter(BaseAdapter):
        def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
            path = Path(unquote(urlsplit(request.url or "").path))
            if path.is_dir():
                path = path / "index.html"
            response = requests.Response()
            response.request, response.url = request, path.as_uri()
            try:
                response.raw = OpenFile(path)
            except FileNotFoundError:
                response.status_code, response.raw = 404, io.BytesIO()
                return response
            except OSError as error:
                raise requests.ConnectionError(error, request=request) from None
            response.status_code = 200
            response.headers["Content-Length"] = str(os.fstat(response.raw.fileno()).st_size)
            if path.suffix == ".html":
                response.headers["Content-Type"] = "text/html"
            return response

        def close(self) -> None:
            """Do nothing: no connection outlives its response."""

    found = requests.Session()
    if cert := pip_settings().get("cert"):
        found.verify = cert[0]
    if _is_here(url):
        found.mount("file://", FolderAdapter())
    return found


def _linked_files(links: list[str]) -> Iterator[Path]:
    """Yield the files in ``find-links`` folders. ``find-links`` addresses of web pages are ignored."""
    for link in links:
        if link.startswith("file:"):
            folder = Path(unquote(urlsplit(link).path))
        else:
            folder = Path(link).expanduser()
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if path.is_file():
                    yield path.resolve()
