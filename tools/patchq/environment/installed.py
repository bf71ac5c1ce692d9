"""One patched package, judged: where an import finds it, and whether its files are those that were built."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from patchq.environment._caches import judge_caches
from patchq.environment._distributions import Distribution, installed
from patchq.environment._files import Files, Kind
from patchq.environment._imports import Interpreter, Place, find_all
from patchq.environment._scripts import judge_scripts
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.errors import FormatError
from patchq.formats.distinfo import HASHES, Row, canonical
from patchq.formats.manifest import Manifest, parse_manifest

_CACHE = re.compile(r"(?:.*/)?__pycache__/[^/]+\.\w+-?\w*(?:\.opt-\w+)?\.pyc")
#: What an installer adds to what the wheel holds.
_INSTALLERS = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "RECORD.jws", "RECORD.p7s")
_SCRIPT = re.compile(r"(?:\.\./)+(?:bin|Scripts|share|include)/")
#: ``PREFIX/lib/pythonX.Y/site-packages``.
_LIBRARY = re.compile(r"(?P<prefix>/.+)/lib(?:64)?/(?:python|pypy)[\d.]+t?/[^/]+$")


@dataclass(frozen=True, slots=True)
class Reference:
    """A wheel to compare an install with: SHA-256 by the path that a file is installed at.

    :ivar changed: whether it isn't the wheel that was built here.
    """

    name: str
    distribution: str
    version: str
    files: Mapping[str, str]
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What an import of one package gives.

    :ivar state: ``patched``, ``upstream`` (no manifest, or one without patches), ``other stack``, ``altered`` (it
        isn't as it was built), or ``missing``.
    :ivar reference: what from outside it was compared with: ``wheel``, ``stack`` (the id that it must be of, so the
        files with their own RECORD), or ``itself``.
    :ivar against: the wheel, or the beginning of the stack id.
    """

    distribution: str
    state: str
    version: str
    origin: str = ""
    stack_id: str = ""
    patches: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    reference: str = "itself"
    against: str = ""

    @property
    def is_right(self) -> bool:
        return all(one.level is Level.NOTE for one in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What an ordinary start of the interpreter leaves behind. Code of the environment runs there, and may lie.

    :ivar specs: by package, the folders or the file that an import finds by any means.
    :ivar loaded: packages that were imported before anything asked for them.
    """

    specs: Mapping[str, Location] = field(default_factory=dict)
    loaded: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Location:
    """Where an import finds a package: its folder or file, and all folders of its submodules."""

    origin: str = ""
    places: tuple[str, ...] = ()


@dataclass
class Environment:
    """What an interpreter finds: its path, and the distributions on it."""

    interpreter: Interpreter

    @property
    def files(self) -> Files:
        return self.interpreter.files

    @cached_property
    def places(self) -> list[Place]:
        return self.interpreter.places()

    @cached_property
    def distributions(self) -> list[Distribution]:
        return installed(self.places)

    @cached_property
    def versions(self) -> dict[str, list[str]]:
        """The installed versions by canonical name."""
        found: dict[str, list[str]] = {}
        for distribution in self.distributions:
            found.setdefault(distribution.name, []).append(distribution.version)
        return found

    def named(self, name: str) -> list[Distribution]:
        return [one for one in self.distributions if one.name == canonical(name)]

    @cached_property
    def attested(self) -> dict[str, str]:
        """The packages that carry a manifest: distribution (or the folder's name) to package."""
        names: dict[str, str] = {}
        for place in self.places:
            for name in place.names if place.archive is None else ():
                folder = self.files.resolve(f"{place.path}/{name}")
                if self.files.kind(f"{folder}/_patchq.json") is None:
                    continue
                try:
                    said = json.loads(self.files.text(f"{folder}/_patchq.json"))["distribution"]
                except (ValueError, TypeError, KeyError, RecursionError):
                    said = name
                names.setdefault(said if isinstance(said, str) and said else name, name)
        return names

    def locate(self, package: str) -> Location:
        """Return where the path alone leads to."""
        places = self.places
        origin = ""
        for part in package.split("."):
            found = find_all(places, part)
            if found and posixpath.basename(found[0].path).startswith("__init__."):
                folders = [posixpath.dirname(found[0].path)]
            elif found:
                return Location(self.files.resolve(found[0].path))
            else:
                folders = [f"{place.path}/{part}" for place in places if place.has_folder(part)]
            if not folders:
                return Location()
            places = [self.interpreter.place(folder) for folder in folders]
            origin = self.files.resolve(folders[0])
        return Location(origin, tuple(self.files.resolve(place.path) for place in places))

    def copies(self, package: str) -> list[str]:
        """Return each file or folder on the path that may be the package."""
        top = package.split(".")[0]
        found: list[str] = []
        for place in self.places:
            modules = [module.path for module in place.find(top)]
            packages = [posixpath.dirname(p) for p in modules if posixpath.basename(p).startswith("__init__.")]
            plain = [p for p in modules if not posixpath.basename(p).startswith("__init__.")]
            folder = [f"{place.path}/{top}"] if place.has_folder(top) else []
            found += map(self.files.resolve, [*packages, *folder, *plain])
        return list(dict.fromkeys(found))


_Record = dict[str, Row]


@dataclass
class _Judge:
    """The judging of one package."""

    environment: Environment
    distribution: str
    package: str
    found: Findings
    location: Location = Location()
    root: str = ""
    #: Of each plain file below the root that belongs to the package: its digests, or an error.
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    python: str = ""
    #: Of what is no plain file: its kind, and a word of it.
    odd: dict[str, tuple[Kind, str]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)

    @property
    def files(self) -> Files:
        return self.environment.files

    def result(self, state: str, version: str, **more: Any) -> Package:
        return Package(
            distribution=printable(self.distribution), state=state, version=printable(version),
            origin=printable(self.location.origin), differences=tuple(self.found.found), **more,
        )  # fmt: skip


def judge_package(
    environment: Environment, distribution: str, package: str, *, start: Start | None = None, expected: str = "",
    references: Sequence[Reference] = (), unpatched: bool = False, python: str = "", search: Sequence[str] = (),
) -> Package:  # fmt: skip
    """Return what is wrong with one package.

    :param start: what an ordinary start gave, where one was possible.
    :param expected: the stack id that it must be of, or its beginning; empty for any.
    :param references: wheels of it, of any version.
    :param unpatched: no patch changes it, so upstream's own build is right.
    :param python: the program of the interpreter, where it can be started; never a script that starts it.
    :param search: the folders of ``PATH`` that a process is started with, where that is known.
    """
    judge = _Judge(environment, distribution, package, Findings(), python=python)
    found = judge.found
    direct = environment.locate(package)
    judge.location = start.specs.get(package, direct) if start else direct
    own = environment.named(distribution)
    versions = [one.version for one in own]
    if not judge.location.origin:
        found.add(Code.NOT_INSTALLED, (), distribution)
        return judge.result("missing", "")
    _judge_place(judge, own, direct)
    if start and package in start.loaded:
        found.note(Code.PRELOADED)
    path = f"{judge.location.origin}/_patchq.json"
    # A manifest that is there and can't be read, a link in a circle for one, is no plain absence of it.
    if environment.files.kind(path) is None:
        hidden = [version for version in versions if "+patchq." in version]
        if unpatched and not hidden:
            found.note(Code.NO_PATCHES)
        else:
            found.add(Code.NOT_PATCHED, (), judge.location.origin, *hidden[:1])
        return judge.result("upstream", ", ".join(versions))
    before = len(found.found)
    root = posixpath.normpath(posixpath.join(judge.location.origin, *[".."] * (package.count(".") + 1)))
    judge.root = root
    here = [one for one in own if one.root == root]
    text, error = _manifest_text(environment.files, path)
    record, owner = _judge_record(judge, here, text)
    try:
        if error:
            raise FormatError(f"the manifest {error}", hint="")
        manifest = parse_manifest(text)
    except FormatError as error_:
        found.add(Code.MANIFEST_MALFORMED, (), error_.message)
        return judge.result("altered", ", ".join(versions))
    unlike = _judge_files(judge, record, here)
    _judge_manifest(judge, manifest, record, unlike)
    reference, against = _judge_wheel(judge, manifest, record, unlike, references, expected)
    if owner:
        judge_scripts(environment.interpreter, owner, found, search, python)
    altered = any(one.level is Level.PROBLEM for one in found.found[before:])
    state = "altered" if altered else "patched" if manifest.patches or manifest.left_out else "upstream"
    if expected and not manifest.stack_id.startswith(expected):
        state = "other stack"
        found.add(Code.OTHER_STACK, (), manifest.stack_id[:8], expected[:8])
    _judge_installs(judge, manifest, versions)
    return judge.result(
        state, manifest.version, stack_id=manifest.stack_id, patches=tuple(map(printable, manifest.patches)),
        left_out=tuple(map(printable, manifest.left_out)), reference=reference, against=against,
    )  # fmt: skip


def _manifest_text(files: Files, path: str) -> tuple[str, str]:
    try:
        return files.read(path).decode("utf-8", "surrogateescape"), ""
    except OSError as error:
        return "", error.strerror or "can't be read"


def _judge_place(judge: _Judge, own: Sequence[Distribution], direct: Location) -> None:
    """Judge where an import finds the package, and whether that is the only place."""
    environment, location, found = judge.environment, judge.location, judge.found
    known = (location.origin, *location.places)
    others = [path for path in environment.copies(judge.package) if path not in known]
    if others:
        found.add(Code.COPIES, others, str(len(others)))
    if len(location.places) > 1:
        found.add(Code.NAMESPACE, location.places)
    editable = [one.editable for one in own if one.editable]
    if editable:
        found.add(Code.EDITABLE, editable)
    if "." not in judge.package and direct.origin != location.origin:
        found.add(Code.REDIRECTED, (), location.origin, direct.origin or "none")


def _judge_record(judge: _Judge, here: Sequence[Distribution], manifest: str) -> tuple[_Record, Distribution | None]:
    """Return RECORD by path. Of several, that of the version that the manifest names."""
    found = judge.found
    infos = [one for one in here if one.info.endswith(".dist-info")]
    if not infos:
        found.add(Code.RECORD_MISSING)
        return {}, None
    named = re.search(r'"version": "([^"]+)"', manifest)
    own = next((one for one in infos if named and one.version == named[1]), infos[0])
    if own.metadata_error:
        found.add(Code.METADATA, (), own.metadata_error)
    if own.record_error:
        absent = own.record_error.startswith("No such file")
        found.add(Code.RECORD_MISSING) if absent else found.add(Code.RECORD_MALFORMED, (), own.record_error)
    elif not own.rows:
        found.add(Code.RECORD_MALFORMED, (), "it is empty")
    if own.is_link:
        found.add(Code.LINK, [own.info])
    record: _Record = {}
    twice, unhashed = [], []
    for row in own.rows:
        old = record.get(row.path, row)
        if (old.kind, old.digest) != (row.kind, row.digest):
            twice.append(row.path)
        record[row.path] = row
        last = row.path.rpartition("/")[2]
        if row.kind not in HASHES and not _CACHE.fullmatch(row.path) and not last.startswith("RECORD"):
            unhashed.append(row.path)
    if twice:
        found.add(Code.RECORD_MALFORMED, twice, "files are in it twice with different hashes")
    found.add_any(Code.RECORD_UNHASHED, unhashed)
    _read_files(judge, infos)
    outside = judge.outside & set(record)
    scripts = {path for path in outside if _SCRIPT.match(path)}
    found.add_any(Code.RECORD_OUTSIDE, outside - scripts)
    found.add_any(Code.RECORD_OUTSIDE, scripts, level=Level.NOTE)
    return {path: row for path, row in record.items() if path not in outside}, own


def _read_files(judge: _Judge, infos: Sequence[Distribution]) -> None:
    """Hash every file that is recorded for the package or lies in its folders, and list what is no plain file."""
    files, root = judge.files, judge.root
    prefixes = {files.resolve(judge.environment.interpreter.prefix)}
    # Scripts and data lie next to the library's folder. A folder of ``pip install --target`` has none: pip leaves the
    # rows of its scripts as they were, and those name files outside.
    if library := _LIBRARY.match(root):
        prefixes.add(library["prefix"])
    prefixes -= {"/"}
    wanted: dict[str, Row] = {}
    tops = {judge.package.split(".")[0]}
    for row in [row for info in infos for row in info.rows]:
        landing = posixpath.normpath(posixpath.join(root, row.path))
        plain = not row.path.startswith("/") and "\\" not in row.path
        if plain and landing.startswith(root + "/") and ".." not in row.path.split("/"):
            tops.add(row.path.split("/")[0])
            wanted[row.path] = row
        elif any(landing.startswith(prefix.rstrip("/") + "/") for prefix in prefixes):
            wanted[row.path] = row
        else:
            judge.outside.add(row.path)
    seen: dict[str, Kind] = {}
    for name in [*wanted, *sorted(tops - {"__pycache__", ""})]:
        at, kind = _look_up(files, root, name)
        if kind is Kind.FILE:
            seen[name] = kind
        elif kind is Kind.FOLDER and name in tops:
            below = {posixpath.relpath(path, root): kind for path, kind in files.walk(f"{root}/{name}")}
            seen.update(below)
        elif kind is not None:
            seen[posixpath.relpath(at, root) if kind is Kind.LINK else name] = kind
    plain_files = [name for name, kind in seen.items() if kind is Kind.FILE]
    for name, kind in seen.items():
        if kind is Kind.LINK:
            judge.odd[name] = kind, files.target(posixpath.normpath(posixpath.join(root, name)))
        elif kind is not Kind.FILE:
            judge.odd[name] = kind, kind.value
    for place in judge.environment.places:
        top = f"{files.resolve(place.path)}/{judge.package.split('.')[0]}"
        if files.kind(top) is Kind.LINK:
            judge.odd[posixpath.basename(top)] = Kind.LINK, judge.location.origin

    def digest(name: str) -> dict[str, str]:
        path = posixpath.normpath(posixpath.join(root, name))
        row = wanted.get(name)
        try:
            if row and 0 <= row.size != files.size(path):
                return {}  # changed, whatever it holds
            return files.digest(path, {"sha256", row.kind if row else ""} & set(HASHES))
        except OSError as error:
            return {"error": error.strerror or "can't be read"}

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        judge.digests = dict(zip(plain_files, pool.map(digest, plain_files), strict=True))


def _look_up(files: Files, root: str, name: str) -> tuple[str, Kind | None]:
    """Return the path of ``name`` and its kind, or of the first link on the way to it."""
    at = "/" if name.startswith("/") else root
    for part in name.lstrip("/").split("/"):
        if part == "..":
            at = posixpath.dirname(at)
            continue
        at = posixpath.join(at, part)
        kind = files.kind(at)
        if kind in (Kind.LINK, None):
            return at, kind
    return at, files.kind(at)


def _judge_files(judge: _Judge, record: _Record, here: Sequence[Distribution]) -> set[str]:
    """Compare every file with RECORD, and find what RECORD doesn't name; return those that aren't as it says."""
    digests, odd, found, package = judge.digests, judge.odd, judge.found, judge.package
    holders = {name.rpartition("/")[0] for name in record}
    holders |= {"/".join(parts[:n]) for parts in (h.split("/") for h in holders) for n in range(1, len(parts))}
    mine = {p: one for p, one in odd.items() if p in record or p in holders or _below(p, package)}
    found.add_any(Code.LINK, [f"{p} -> {word}" for p, (kind, word) in mine.items() if kind is Kind.LINK])
    special = (Kind.SPECIAL, Kind.FOLDER)
    found.add_any(Code.SPECIAL, [f"{p} ({kind.value})" for p, (kind, _) in mine.items() if kind in special])
    unreadable = [p for p, (kind, _) in mine.items() if kind is Kind.UNREADABLE]
    unreadable += [f"{p} ({one['error']})" for p, one in digests.items() if "error" in one]
    found.add_any(Code.UNREADABLE, unreadable)
    changed: set[str] = set()
    missing: set[str] = set()
    lost: set[str] = set()
    covered: set[str] = set()
    for path, row in record.items():
        there = digests.get(path)
        if there is None and _is_covered(path, mine):
            covered.add(path)
        elif there is None:
            if not _CACHE.fullmatch(path):
                (lost if _SCRIPT.match(path) else missing).add(path)
        elif row.kind in HASHES and "error" not in there and there.get(row.kind) != row.digest:
            changed.add(path)
    found.add_any(Code.CHANGED, changed)
    found.add_any(Code.MISSING, missing)
    found.add_any(Code.MISSING, lost, level=Level.NOTE)
    if record:
        added = [p for p in digests if p not in record and not _CACHE.fullmatch(p)]
        owners = _owners(judge, added, here)
        added = [p for p in added if _below(p, package) or p not in owners]
        found.add_any(Code.ADDED, [f"{p} (of {owners[p]})" if p in owners else p for p in added])
    sources = [f"{judge.root}/{p}" for p in digests if p.endswith(".py") and ".." not in p.split("/")]
    judge_caches(judge.environment.interpreter, sources, found, root=judge.root, python=judge.python)
    return changed | missing | covered | {p for p, one in digests.items() if "error" in one}


def _owners(judge: _Judge, added: Collection[str], here: Sequence[Distribution]) -> dict[str, str]:
    """Return the other distributions in the same folder that record some of these files."""
    wanted = set(added)
    owners = {}
    for other in judge.environment.distributions if wanted else ():
        if other.root == judge.root and other not in here:
            owners.update({row.path: other.name for row in other.rows if row.path in wanted})
    return owners


def _below(path: str, package: str) -> bool:
    return (path + "/").startswith(package.replace(".", "/") + "/")


def _is_covered(path: str, odd: Mapping[str, Any]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:n]) in odd for n in range(1, len(parts) + 1))


def _judge_manifest(judge: _Judge, manifest: Manifest, record: _Record, unlike: set[str]) -> None:
    """Compare the manifest with the files: where RECORD agrees with a file, both may be forged."""
    found, code = judge.found, Code.MANIFEST_DISAGREES
    if canonical(manifest.distribution) != canonical(judge.distribution) or manifest.package != judge.package:
        found.add(code, (), f"it is of {manifest.distribution}'s {manifest.package}")
    local = manifest.version.partition("+patchq.")[2].partition(".")[0]
    if local != manifest.stack_id[:8]:
        found.add(code, (), f"version {manifest.version} is not of stack {manifest.stack_id[:8]}")
    if manifest.computed and manifest.stack_id not in manifest.computed:
        found.add(code, (), "the pins and patches that it names are of another stack id")
    wrong = []
    for path, digest in manifest.files.items() if record else ():
        there = judge.digests.get(path, {})
        if path not in unlike and (path not in record or there.get("sha256") != digest):
            wrong.append(path)
    found.add_any(code, wrong, "the file and RECORD say otherwise")


def _judge_wheel(
    judge: _Judge, manifest: Manifest, record: _Record, unlike: set[str], references: Sequence[Reference],
    expected: str,
) -> tuple[str, str]:  # fmt: skip
    """Compare files and RECORD with the wheel that they should come from, the closest where there are several."""
    best: tuple[Reference, set[str]] | None = None
    wheels = [one for one in references if canonical(one.distribution) == canonical(manifest.distribution)]
    for wheel in [one for one in wheels if one.version == manifest.version]:
        wrong = {p for p, digest in wheel.files.items() if judge.digests.get(p, {}).get("sha256") != digest}
        for path in record:
            installers = ".dist-info/" in path and path.rpartition("/")[2] in _INSTALLERS
            if path not in wheel.files and not (installers or _CACHE.fullmatch(path) or path.startswith("../")):
                wrong.add(path)
        wrong = {p for p in wrong if not p.endswith(".dist-info/RECORD")} - unlike
        if best is None or len(wrong) < len(best[1]):
            best = wheel, wrong
    if best is None:
        return ("stack", expected[:8]) if expected else ("itself", "")
    judge.found.add_any(Code.WHEEL_DIFFERS, best[1], best[0].name)
    if best[0].changed:
        judge.found.add(Code.WHEEL_CHANGED, (), best[0].name)
    return "wheel", best[0].name


def _judge_installs(judge: _Judge, manifest: Manifest, versions: Sequence[str]) -> None:
    if manifest.version not in versions:
        judge.found.add(Code.MIXED_INSTALLS, (), ", ".join(versions) or "nothing", manifest.version)
    elif len(versions) > 1:
        judge.found.add(Code.INSTALLED_TWICE, versions, str(len(versions)))
    for name, version in sorted(manifest.siblings.items()):
        others = judge.environment.versions.get(canonical(name), ())
        if others and version not in others:
            judge.found.add(Code.SIBLING, (), f"{name} {version}", ", ".join(others))
