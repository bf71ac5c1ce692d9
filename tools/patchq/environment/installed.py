"""Checks of one patched package: where an import finds it, if it is installed once, and has the files of the build."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from patchq.environment._caches import judge_caches
from patchq.environment._distributions import Distribution, installed
from patchq.environment._files import MAX_TEXT, FileKind, FileTree
from patchq.environment._imports import ImportPlace, Interpreter, find_all, path_files
from patchq.environment._scripts import judge_scripts
from patchq.environment.differences import Code, Difference, Findings, Level, printable
from patchq.errors import FormatError
from patchq.formats.distinfo import HASHES, RecordRow, canonical, read_record
from patchq.formats.manifest import Manifest, parse_manifest

_CACHE = re.compile(r"(?:.*/)?__pycache__/[^/]+\.\w+-?\w*(?:\.opt-\w+)?\.pyc")
_MANIFEST = "_patchq.json"
#: Metadata files that an installer adds.
_INSTALLERS = frozenset(
    "INSTALLER REQUESTED RECORD direct_url.json uv_cache.json RECORD.jws RECORD.p7s".split()  # noqa: SIM905
)
_SCRIPT = re.compile(r"(?:\.\./)+(?:bin|Scripts|share|include)/")
#: ``PREFIX/lib/pythonX.Y/site-packages``.
_LIBRARY = re.compile(r"(?P<prefix>/.+)/lib(?:64)?/(?:python|pypy)[\d.]+t?/[^/]+$")


class PackageState(str, Enum):
    """Result of checking a package, as one word."""

    PATCHED = "patched"
    #: No manifest, or a manifest without patches.
    UPSTREAM = "upstream"
    OTHER_STACK = "other stack"
    #: Its files differ from the build.
    ALTERED = "altered"
    MISSING = "missing"


class Basis(str, Enum):
    """Reference with which a package was compared."""

    WHEEL = "wheel"
    #: The expected stack id, and the package's own RECORD.
    STACK = "stack"
    ITSELF = "itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Wheel with which an installed package is compared.

    :ivar files: SHA-256 of each file by its installed path.
    :ivar changed: True if the wheel file was changed after it was built.
    """

    name: str
    distribution: str
    version: str
    files: Mapping[str, str]
    changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledPackage:
    """Result of checking one package.

    :ivar against: Name of the wheel, or first characters of the stack id, with which the package was
        compared.
    """

    distribution: str
    state: PackageState
    version: str
    origin: str = ""
    stack_id: str = ""
    patches: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    reference: Basis = Basis.ITSELF
    against: str = ""

    @property
    def is_right(self) -> bool:
        return all(one.level is Level.NOTE for one in self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """State of an interpreter after a normal start. Code of the environment may have falsified it.

    :ivar specs: Location of each package according to all finders.
    :ivar loaded: Packages that start-up code has imported.
    :ivar finders: Names of the import hooks.
    """

    specs: Mapping[str, Location] = field(default_factory=dict)
    loaded: Collection[str] = ()
    finders: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a package: its own folder or file, and all folders in which its submodules are searched."""

    origin: str = ""
    places: tuple[str, ...] = ()


@dataclass
class InstalledEnvironment:
    """Interpreter's path, and the distributions on this path."""

    interpreter: Interpreter

    @property
    def files(self) -> FileTree:
        return self.interpreter.files

    @cached_property
    def places(self) -> list[ImportPlace]:
        return self.interpreter.places()

    @cached_property
    def distributions(self) -> list[Distribution]:
        return installed(self.places)

    @cached_property
    def versions(self) -> dict[str, list[str]]:
        """Installed versions by the distributions' canonical names."""
        found: dict[str, list[str]] = {}
        for distribution in self.distributions:
            found.setdefault(distribution.name, []).append(distribution.version)
        return found

    def named(self, name: str) -> list[Distribution]:
        found: list[Distribution] = []
        for one in self.distributions:
            if one.name == canonical(name):
                found.append(one)
        return found

    @cached_property
    def attested(self) -> dict[str, str]:
        """Packages that contain a manifest, by distribution.

        A package with a damaged manifest is listed by its folder name.
        """
        packages: dict[str, str] = {}
        for place in self.places:
            if place.archive is not None:
                continue
            for name in place.names:
                manifest = self.files.resolve(f"{place.path}/{name}") + f"/{_MANIFEST}"
                if self.files.kind(manifest) is None:
                    continue
                try:
                    distribution = json.loads(self.files.text(manifest))["distribution"]
                except (ValueError, TypeError, KeyError, RecursionError):
                    distribution = ""
                if not isinstance(distribution, str):
                    distribution = ""
                packages.setdefault(distribution or name, name)
        return packages

    def locate(self, package: str) -> Location:
        """Return the location of a package on the path. Import hooks are ignored."""
        places = self.places
        origin = ""
        for part in package.split("."):
            found = find_all(places, part)
            if found and posixpath.basename(found[0].path).startswith("__init__."):
                folders = [posixpath.dirname(found[0].path)]
            elif found:
                return Location(self.files.resolve(found[0].path))
            else:
                folders = []
                for place in places:
                    if place.has_folder(part):
                        folders.append(f"{place.path}/{part}")
            if not folders:
                return Location()
            places = [self.interpreter.place(folder) for folder in folders]
            origin = self.files.resolve(folders[0])
        return Location(origin, tuple(self.files.resolve(place.path) for place in places))

    def copies(self, package: str) -> list[str]:
        """Return the files and folders on the path that may be the package."""
        top = package.split(".")[0]
        found: list[str] = []
        for place in self.places:
            packages, plain = [], []
            for module in place.find(top):
                folder, name = posixpath.split(module.path)
                if name.startswith("__init__."):
                    packages.append(folder)
                else:
                    plain.append(module.path)
            folder = f"{place.path}/{top}"
            if place.has_folder(top) and list(self.files.listed(folder)) != [_MANIFEST]:
                packages.append(folder)
            found += map(self.files.resolve, [*packages, *plain])
        return list(dict.fromkeys(found))


_Record = dict[str, RecordRow]


@dataclass(kw_only=True)
class _Judge:
    """State of checking one package.

    :ivar digests: Digests of each plain file of the package, by path below the root; ``error`` if it can't be read.
    :ivar odd: Files that aren't plain files: for each path, the kind, and a link's target or the kind's name.
    :ivar outside: Recorded paths outside of the environment.
    """

    environment: InstalledEnvironment
    distribution: str
    package: str
    found: Findings = field(default_factory=Findings)
    location: Location = Location()
    root: str = ""
    digests: dict[str, dict[str, str]] = field(default_factory=dict)
    python: str = ""
    odd: dict[str, tuple[FileKind, str]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)

    @property
    def files(self) -> FileTree:
        return self.environment.files

    def result(self, state: PackageState, version: str, **more: Any) -> InstalledPackage:
        return InstalledPackage(
            distribution=printable(self.distribution),
            state=state,
            version=printable(version),
            origin=printable(self.location.origin),
            differences=tuple(self.found.found),
            **more,
        )


def _judge_unpatched(judge: _Judge, versions: Sequence[str], unpatched: bool) -> InstalledPackage:
    """Check a package that contains no manifest.

    :param unpatched: True if no patch changes the package.
    """
    hidden = [version for version in versions if "+patchq." in version]
    if unpatched and not hidden:
        judge.found.note(Code.NO_PATCHES)
    else:
        judge.found.add(Code.NOT_PATCHED, (), judge.location.origin, *hidden[:1])
    return judge.result(PackageState.UPSTREAM, ", ".join(versions))


def _state(manifest: Manifest, altered: bool) -> PackageState:
    if altered:
        return PackageState.ALTERED
    if manifest.patches or manifest.left_out:
        return PackageState.PATCHED
    return PackageState.UPSTREAM


def judge_package(
    environment: InstalledEnvironment,
    distribution: str,
    package: str,
    *,
    start: Start | None = None,
    expected: str = "",
    references: Sequence[Reference] = (),
    unpatched: bool = False,
    python: str = "",
    search: Sequence[str] = (),
) -> InstalledPackage:
    """Check one package.

    :param start: Result of a normal start, if the interpreter can be started.
    :param expected: Required stack id, or its first characters; empty to accept any id.
    :param references: Wheels of the package, of any version.
    :param unpatched: True if no patch changes the package, so that upstream's own build is accepted.
    :param python: Program of the interpreter itself, not a script that starts it. Empty if it can't be started.
    :param search: Folders in the ``PATH`` of a process, if known.
    """
    judge = _Judge(environment=environment, distribution=distribution, package=package, python=python)
    found = judge.found
    direct = environment.locate(package)
    if start:
        judge.location = start.specs.get(package, direct)
    else:
        judge.location = direct
    own = environment.named(distribution)
    versions = [one.version for one in own]
    if not judge.location.origin:
        found.add(Code.NOT_INSTALLED, (), distribution)
        return judge.result(PackageState.MISSING, "")
    _judge_place(judge, own, direct)
    if start and package in start.loaded:
        found.note(Code.PRELOADED)
    thin = thin_packages([environment], {distribution: package})
    if thin:
        return _judge_release(judge, own, next(iter(thin)), start)
    # The manifest of a single-file module such as six.py is six/_patchq.json.
    path = f"{judge.location.origin.removesuffix('.py')}/{_MANIFEST}"
    # An unreadable manifest, such as a loop of links, doesn't count as missing.
    if environment.files.kind(path) is None:
        return _judge_unpatched(judge, versions, unpatched)
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
        return judge.result(PackageState.ALTERED, ", ".join(versions))
    wrong = _judge_files(judge, record, here)
    _judge_manifest(judge, manifest, record, wrong)
    wheels = _matching_wheels(manifest, references)
    if wheels:
        reference, against = Basis.WHEEL, _judge_wheel(judge, wheels, record, wrong)
    elif expected:
        reference, against = Basis.STACK, expected[:8]
    else:
        reference, against = Basis.ITSELF, ""
    if owner:
        judge_scripts(environment.interpreter, owner, found, search=search, python=python)
    altered = any(one.level is Level.PROBLEM for one in found.found[before:])
    state = _state(manifest, altered)
    if expected and not manifest.stack_id.startswith(expected):
        state = PackageState.OTHER_STACK
        found.add(Code.OTHER_STACK, (), manifest.stack_id[:8], expected[:8])
    _judge_installs(judge, manifest, versions)
    return judge.result(
        state,
        manifest.version,
        stack_id=manifest.stack_id,
        patches=tuple(map(printable, manifest.patches)),
        left_out=tuple(map(printable, manifest.left_out)),
        reference=reference,
        against=against,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelComparison:
    """Differences between an installed package and a wheel, as paths below ``root``.

    :ivar links: Links among ``changed`` and ``added``, with their targets.
    :ivar unreadable: Files that can't be read, and special files.
    """

    root: str
    changed: frozenset[str]
    missing: frozenset[str]
    added: frozenset[str]
    links: Mapping[str, str]
    unreadable: frozenset[str]


def compare_with_wheel(
    environment: InstalledEnvironment, distribution: str, package: str, wheel: Reference
) -> WheelComparison:
    """Compare an installed package with a wheel, without relying on the package's RECORD and manifest."""
    judge = _Judge(environment=environment, distribution=distribution, package=package)
    judge.location = environment.locate(package)
    origin = judge.location.origin
    if environment.files.kind(origin) is FileKind.FILE:
        judge.root = posixpath.dirname(origin)  # a module, not a folder
    else:
        judge.root = posixpath.normpath(posixpath.join(origin, *[".."] * (package.count(".") + 1)))
    here = [one for one in environment.named(distribution) if one.root == judge.root]
    record, _ = _judge_record(judge, here, "")
    own = set(record) | {path for path in judge.digests if path not in _owners(judge, set(judge.digests), here)}
    present = set()
    for path in own & set(judge.digests):
        if not _CACHE.fullmatch(path):
            present.add(path)
    links = {}
    for path, (kind, target) in judge.odd.items():
        if kind is FileKind.LINK:
            links[path] = target
    differing = set()
    for path in _unlike_wheel(judge, wheel, {}):
        if not _is_metadata(path):
            differing.add(path)
    added = set()
    for path in present - set(wheel.files):
        if _is_below(judge.root, path) and not _is_metadata(path):
            added.add(path)
    unreadable = {path for path in present if "error" in judge.digests[path]}
    unreadable |= {path for path in judge.odd if path not in links}
    return WheelComparison(
        root=judge.root,
        changed=frozenset(path for path in differing if path in present or path in links),
        missing=frozenset(path for path in differing if path not in present and path not in links),
        added=frozenset(added | {path for path in links if path not in wheel.files}),
        links=links,
        unreadable=frozenset(unreadable),
    )


def _is_metadata(path: str) -> bool:
    return ".dist-info/" in path


#: Start of the names of packages of thin wheels.
_THIN = "_patchq_thin_"


def thin_packages(environments: Iterable[InstalledEnvironment], packages: Mapping[str, str]) -> dict[str, str]:
    """Return the import names of thin wheels that patch these packages, by the thin wheels' distributions."""
    found = {}
    for environment in environments:
        for name, package in environment.attested.items():
            if package.startswith(_THIN) and package.removeprefix(_THIN) in packages.values():
                found[name] = package
    return found


def _judge_release(judge: _Judge, own: Sequence[Distribution], thin: str, start: Start | None) -> InstalledPackage:
    """Check a release that a thin wheel patches. The release must have exactly the files that the thin wheel expects.

    :param thin: Distribution of the thin wheel. The thin wheel is checked separately, as another package.
    """
    environment, found, files = judge.environment, judge.found, judge.environment.files
    package = _THIN + judge.package
    judge.root = posixpath.dirname(judge.location.origin)
    here = [one for one in own if one.root == judge.root]
    record, _ = _judge_record(judge, here, "")
    _judge_files(judge, record, here)
    folder = environment.locate(package).origin
    wrong = []
    for row in read_record(files.text(f"{folder}/base.csv", MAX_TEXT)):
        installed = record.get(row.path)
        if row.kind in HASHES and (installed is None or installed.digest != row.digest):
            wrong.append(row.path)
    if wrong or not record:
        found.add(Code.THIN_OTHER_RELEASE, wrong, thin)
    if not _is_started(environment, package) or (start and f"{package}.PatchedFinder" not in start.finders):
        found.add(Code.THIN_IDLE, (), thin)
    found.note(Code.THIN, (), thin)
    text, _ = _manifest_text(files, f"{folder}/{_MANIFEST}")
    stack_id = ""
    try:
        stack_id = parse_manifest(text).stack_id
    except FormatError:
        found.add(Code.MANIFEST_MALFORMED, (), thin)
    is_right = all(one.level is Level.NOTE for one in found.found)
    if is_right:
        state = PackageState.PATCHED
    else:
        state = PackageState.ALTERED
    version = ", ".join(one.version for one in own)
    return judge.result(state, version, stack_id=stack_id, reference=Basis.WHEEL, against=printable(thin))


def _is_started(environment: InstalledEnvironment, package: str) -> bool:
    """Return whether a ``.pth`` file in the environment imports a thin wheel's package."""
    for site in environment.interpreter.sites:
        for file in path_files(environment.files, site):
            if f"import {package}" in file.code:
                return True
    return False


def _manifest_text(files: FileTree, path: str) -> tuple[str, str]:
    """Return the text of a manifest, and the reason why it can't be read. One of the two is empty."""
    try:
        return files.read(path).decode("utf-8", "surrogateescape"), ""
    except OSError as error:
        return "", error.strerror or "can't be read"


def _judge_place(judge: _Judge, own: Sequence[Distribution], direct: Location) -> None:
    """Check that an import can find the package in only one place."""
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
    """Return the rows of RECORD by path, and the distribution to which the RECORD belongs.

    If several distributions contain the package, use the RECORD of the version that the manifest names.
    """
    found = judge.found
    infos = []
    for one in here:
        if one.info.endswith(".dist-info"):
            infos.append(one)
    if not infos:
        found.add(Code.RECORD_MISSING)
        return {}, None
    own = _named_distribution(infos, manifest)
    if own.metadata_error:
        found.add(Code.METADATA, (), own.metadata_error)
    if isinstance(own.record_error, FileNotFoundError):
        found.add(Code.RECORD_MISSING)
    elif isinstance(own.record_error, OSError):
        found.add(Code.RECORD_MALFORMED, (), own.record_error.strerror or "can't be read")
    elif own.record_error:
        found.add(Code.RECORD_MALFORMED, (), str(own.record_error))
    elif not own.rows:
        found.add(Code.RECORD_MALFORMED, (), "it is empty")
    if own.is_link:
        found.add(Code.LINK, [own.info])
    record = _judge_rows(judge, own.rows)
    _read_files(judge, infos)
    outside = judge.outside & set(record)
    scripts = set()
    for path in outside:
        if _SCRIPT.match(path):
            scripts.add(path)
    found.add_any(Code.RECORD_OUTSIDE, outside - scripts)
    found.add_any(Code.RECORD_OUTSIDE, scripts, level=Level.NOTE)
    return {path: row for path, row in record.items() if path not in outside}, own


def _named_distribution(infos: Sequence[Distribution], manifest: str) -> Distribution:
    """Return the distribution with the manifest's version. If none has this version, return the first one."""
    named = re.search(r'"version": "([^"]+)"', manifest)
    if named:
        for info in infos:
            if info.version == named[1]:
                return info
    return infos[0]


def _judge_rows(judge: _Judge, rows: Sequence[RecordRow]) -> _Record:
    """Check the rows of RECORD, and return them by path."""
    record: _Record = {}
    twice, unhashed = [], []
    for row in rows:
        old = record.get(row.path, row)
        if (old.kind, old.digest) != (row.kind, row.digest):
            twice.append(row.path)
        record[row.path] = row
        if row.kind not in HASHES and _needs_hash(row.path):
            unhashed.append(row.path)
    if twice:
        judge.found.add(Code.RECORD_MALFORMED, twice, "it lists files twice, with different hashes")
    judge.found.add_any(Code.RECORD_UNHASHED, unhashed)
    return record


def _needs_hash(path: str) -> bool:
    """Return whether RECORD must contain a hash for a file. Caches, RECORD itself and its signatures need no hash."""
    return not _CACHE.fullmatch(path) and not posixpath.basename(path).startswith("RECORD")


def _read_files(judge: _Judge, infos: Sequence[Distribution]) -> None:
    """Hash every plain file that is in a RECORD of the package or in its folders. List other files in ``judge.odd``."""
    files, root = judge.files, judge.root
    wanted = _recorded_inside(judge, infos)
    tops = {judge.package.split(".")[0]}
    if judge.location.origin == f"{root}/{judge.package}.py":
        tops.add(f"{judge.package}.py")
    for path in wanted:
        if _is_below(root, path):
            tops.add(path.split("/")[0])
    kinds = _kinds(files, root, wanted, tops)
    for name, kind in kinds.items():
        if kind is FileKind.LINK:
            judge.odd[name] = kind, files.target(posixpath.normpath(posixpath.join(root, name)))
        elif kind is not FileKind.FILE:
            judge.odd[name] = kind, kind.value
    for place in judge.environment.places:
        top = f"{files.resolve(place.path)}/{judge.package.split('.')[0]}"
        if files.kind(top) is FileKind.LINK:
            judge.odd[posixpath.basename(top)] = FileKind.LINK, judge.location.origin
    plain = [name for name, kind in kinds.items() if kind is FileKind.FILE]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        digests = pool.map(lambda name: _digests(files, root, name, wanted.get(name)), plain)
        judge.digests = dict(zip(plain, digests, strict=True))


def _kinds(files: FileTree, root: str, wanted: Iterable[str], tops: Set[str]) -> dict[str, FileKind]:
    """Return the kinds of the ``wanted`` files and of all files in the folders ``tops``, by path."""
    kinds: dict[str, FileKind] = {}
    for name in [*wanted, *sorted(tops - {"__pycache__", ""})]:
        reached, kind = _look_up(files, root, name)
        if kind is FileKind.FOLDER and name in tops:
            for path, inner in files.walk(f"{root}/{name}"):
                kinds[posixpath.relpath(path, root)] = inner
        elif kind is FileKind.LINK:
            kinds[posixpath.relpath(reached, root)] = kind
        elif kind is not None:
            kinds[name] = kind
    return kinds


def _recorded_inside(judge: _Judge, infos: Sequence[Distribution]) -> dict[str, RecordRow]:
    """Return the recorded files inside the environment. Add the files outside to ``judge.outside``."""
    root = judge.root
    prefixes = {judge.files.resolve(judge.environment.interpreter.prefix)}
    # Scripts and data are outside the library folder. `pip install --target` creates no library folder, and doesn't
    # correct the rows of its scripts. These rows then name files outside of the target folder.
    library = _LIBRARY.match(root)
    if library:
        prefixes.add(library["prefix"])
    starts = tuple(prefix.rstrip("/") + "/" for prefix in prefixes - {"/"})
    wanted: dict[str, RecordRow] = {}
    for info in infos:
        for row in info.rows:
            target = posixpath.normpath(posixpath.join(root, row.path))
            if _is_below(root, row.path) or target.startswith(starts):
                wanted[row.path] = row
            else:
                judge.outside.add(row.path)
    return wanted


def _is_below(root: str, path: str) -> bool:
    """Return whether a recorded path is relative, contains no ``..``, and so stays below the root."""
    if path.startswith("/") or "\\" in path or ".." in path.split("/"):
        return False
    return posixpath.normpath(posixpath.join(root, path)).startswith(root + "/")


def _digests(files: FileTree, root: str, name: str, row: RecordRow | None) -> dict[str, str]:
    """Return a file's digests, or the error from reading it. If the size differs from RECORD, the file isn't read."""
    path = posixpath.normpath(posixpath.join(root, name))
    kinds = {"sha256"}
    if row and row.kind in HASHES:
        kinds.add(row.kind)
    try:
        if row and 0 <= row.size != files.size(path):
            return {}
        return files.digest(path, kinds)
    except OSError as error:
        return {"error": error.strerror or "can't be read"}


def _look_up(files: FileTree, root: str, name: str) -> tuple[str, FileKind | None]:
    """Return the path and kind of ``name``.

    If a parent folder is a link or is missing, return the path and kind of this parent instead.
    """
    path = "/"
    if not name.startswith("/"):
        path = root
    for part in name.lstrip("/").split("/"):
        if part == "..":
            path = posixpath.dirname(path)
            continue
        path = posixpath.join(path, part)
        kind = files.kind(path)
        if kind in (FileKind.LINK, None):
            return path, kind
    return path, files.kind(path)


def _judge_files(judge: _Judge, record: _Record, here: Sequence[Distribution]) -> set[str]:
    """Compare every file with RECORD, and report files that RECORD doesn't list. Return the paths that differ."""
    found, digests = judge.found, judge.digests
    damaged = {path: one["error"] for path, one in digests.items() if "error" in one}
    odd = _judge_odd(judge, record, damaged)
    changed: set[str] = set()
    missing: set[str] = set()
    scripts: set[str] = set()
    covered: set[str] = set()
    for path, row in record.items():
        known = digests.get(path)
        if known is not None:
            if row.kind in HASHES and path not in damaged and known.get(row.kind) != row.digest:
                changed.add(path)
        elif any(parent in odd for parent in (path, *_parents(path))):
            covered.add(path)
        elif _CACHE.fullmatch(path):
            continue
        elif _SCRIPT.match(path):
            scripts.add(path)
        else:
            missing.add(path)
    found.add_any(Code.CHANGED, changed)
    found.add_any(Code.MISSING, missing)
    found.add_any(Code.MISSING, scripts, level=Level.NOTE)
    if record:
        _judge_added(judge, record, here)
    sources = []
    for path in digests:
        if path.endswith(".py") and ".." not in path.split("/"):
            sources.append(f"{judge.root}/{path}")
    interpreter = judge.environment.interpreter
    judge_caches(interpreter, sources, found, root=judge.root, python=judge.python)
    return changed | missing | covered | set(damaged)


def _judge_odd(judge: _Judge, record: _Record, damaged: Mapping[str, str]) -> set[str]:
    """Report the package's unreadable files, and files that aren't plain files. Return the files that aren't plain.

    :param damaged: Plain files that can't be read, each with the reason.
    """
    holders = set()
    for path in record:
        holders.update(_parents(path))
    unreadable = [f"{path} ({error})" for path, error in damaged.items()]
    links, special = [], []
    paths = set()
    for path, (kind, detail) in judge.odd.items():
        if path not in record and path not in holders and not _is_in(path, judge.package):
            continue
        paths.add(path)
        if kind is FileKind.LINK:
            links.append(f"{path} -> {detail}")
        elif kind is FileKind.UNREADABLE:
            unreadable.append(path)
        else:
            special.append(f"{path} ({kind.value})")
    judge.found.add_any(Code.LINK, links)
    judge.found.add_any(Code.SPECIAL, special)
    judge.found.add_any(Code.UNREADABLE, unreadable)
    return paths


def _judge_added(judge: _Judge, record: _Record, here: Sequence[Distribution]) -> None:
    """Report files of the package that RECORD doesn't list, unless they belong to another distribution."""
    added = set()
    for path in judge.digests:
        if path not in record and not _CACHE.fullmatch(path):
            added.add(path)
    owners = _owners(judge, added, here)
    shown = []
    for path in added:
        if path not in owners:
            shown.append(path)
        elif _is_in(path, judge.package):
            shown.append(f"{path} (of {owners[path]})")
    judge.found.add_any(Code.ADDED, shown)


def _owners(judge: _Judge, added: set[str], here: Sequence[Distribution]) -> dict[str, str]:
    """Return the owner of each added file, by path. Files without an owner are omitted.

    The owner is another distribution in the same folder, and its RECORD lists the file.
    """
    owners: dict[str, str] = {}
    if not added:
        return owners
    for other in judge.environment.distributions:
        if other.root == judge.root and other not in here:
            for row in other.rows:
                if row.path in added:
                    owners[row.path] = other.name
    return owners


def _is_in(path: str, package: str) -> bool:
    name = package.replace(".", "/")
    return path == f"{name}.py" or (path + "/").startswith(name + "/")


def _parents(path: str) -> list[str]:
    """Return the parent folders of a relative path."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _judge_manifest(judge: _Judge, manifest: Manifest, record: _Record, known: set[str]) -> None:
    """Compare the manifest with the files. This detects a file that was changed together with its row in RECORD.

    :param known: Files that are already reported.
    """
    found, code = judge.found, Code.MANIFEST_DISAGREES
    is_own = canonical(manifest.distribution) == canonical(judge.distribution)
    if not is_own or manifest.package != judge.package:
        found.add(code, (), f"it belongs to the package {manifest.package} of {manifest.distribution}")
    local = manifest.version.partition("+patchq.")[2].partition(".")[0]
    if local != manifest.stack_id[:8]:
        found.add(code, (), f"version {manifest.version} doesn't belong to stack {manifest.stack_id[:8]}")
    if manifest.computed and manifest.stack_id not in manifest.computed:
        found.add(code, (), "its pins and patches give another stack id")
    if not record:
        return
    wrong = []
    for path, digest in manifest.files.items():
        if path in known:
            continue
        if path not in record or judge.digests.get(path, {}).get("sha256") != digest:
            wrong.append(path)
    found.add_any(code, wrong, "the file and RECORD differ from it")


def _matching_wheels(manifest: Manifest, references: Sequence[Reference]) -> list[Reference]:
    """Return the wheels of the manifest's distribution and version."""
    name = canonical(manifest.distribution)
    found = []
    for one in references:
        if canonical(one.distribution) == name and one.version == manifest.version:
            found.append(one)
    return found


def _judge_wheel(judge: _Judge, wheels: Sequence[Reference], record: _Record, known: set[str]) -> str:
    """Compare the files and RECORD with the most similar wheel. Return the name of that wheel.

    :param known: Files that are already reported.
    """
    differences = [_unlike_wheel(judge, wheel, record) - known for wheel in wheels]
    wrong = min(differences, key=len)
    wheel = wheels[differences.index(wrong)]
    judge.found.add_any(Code.WHEEL_DIFFERS, wrong, wheel.name)
    if wheel.changed:
        judge.found.add(Code.WHEEL_CHANGED, (), wheel.name)
    return wheel.name


def _unlike_wheel(judge: _Judge, wheel: Reference, record: _Record) -> set[str]:
    """Return the paths of wheel members that are changed or missing, and of recorded files that aren't members."""
    wrong = set()
    for path, digest in wheel.files.items():
        if judge.digests.get(path, {}).get("sha256") != digest:
            wrong.add(path)
    for path in record:
        is_installers = ".dist-info/" in path and posixpath.basename(path) in _INSTALLERS
        is_generated = is_installers or path.startswith("../") or _CACHE.fullmatch(path)
        if path not in wheel.files and not is_generated:
            wrong.add(path)
    found: set[str] = set()
    for path in wrong:
        if not path.endswith(".dist-info/RECORD"):
            found.add(path)
    return found


def _judge_installs(judge: _Judge, manifest: Manifest, versions: Sequence[str]) -> None:
    """Check that the manifest's version is the only installed one, and that its siblings have the required versions."""
    if manifest.version not in versions:
        judge.found.add(Code.MIXED_INSTALLS, (), ", ".join(versions) or "nothing", manifest.version)
    elif len(versions) > 1:
        judge.found.add(Code.INSTALLED_TWICE, versions, str(len(versions)))
    for name, version in sorted(manifest.siblings.items()):
        others = judge.environment.versions.get(canonical(name), ())
        if others and version not in others:
            judge.found.add(Code.SIBLING, (), f"{name} {version}", ", ".join(others))
