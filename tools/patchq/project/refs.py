"""What a ref that a person names means: a pin of the lock, a commit of the git host, a release of the archive."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from patchq.errors import SourceError, UserError
from patchq.formats.lock import Pin, Upstream
from patchq.git.transport import default_branch, tags
from patchq.names import sh
from patchq.project.project import Project
from patchq.sources import index
from patchq.sources.folders import local_folder
from patchq.sources.pins import REACH_TIMEOUT, Hosts, is_local_archive, pin_git

if TYPE_CHECKING:
    from packaging.version import Version


def releases_of(pin: Pin, specifier: str) -> list[str]:
    """The releases of a pin's archive, oldest first, as refs spelt like the pin's."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

    name = _archive_project(pin)
    try:
        allowed = SpecifierSet(specifier)
    except InvalidSpecifier:
        raise UserError(f"{specifier!r} is no version specifier", hint="--releases '>=0.14', for one") from None
    versions: set[Version] = set()

    def wanted(file: str) -> bool:
        try:
            project, version = parse_sdist_filename(file)
        except InvalidSdistFilename:
            return False
        if project != canonicalize_name(name):
            return False
        if version in allowed:
            versions.add(version)
        return True

    index.find_files(name, wanted)
    prefix = "v" if pin.ref.startswith("v") else ""
    return [f"{prefix}{version}" for version in sorted(versions)]


def newest(project: Project, pin: Pin, *, offline: bool = False) -> tuple[Pin, str]:
    """The newest that there is of an upstream, and in words what that is.

    The git host's default branch; where it doesn't answer, the newest release of the pin's archive; without that
    too, or for an upstream that lives in another's archive, the newest of the lock's pins.
    """
    trouble = ""
    if pin.url and not offline:
        folder = local_folder(project.layout, pin.url)
        try:
            branch = default_branch(str(folder) if folder else pin.url, timeout=REACH_TIMEOUT)
            return pin_at(project, pin, branch), f"the default branch {branch}"
        except SourceError as error:
            trouble = error.message
    if pin.archive and not pin.subdir and not is_local_archive(pin.archive) and not offline:
        try:
            ref = releases_of(pin, "")[-1]
            return pin_at(project, pin, ref), f"the newest release archive; {trouble or 'there is no git source'}"
        except (SourceError, IndexError):
            pass
    pins = list(project.lock.upstreams[pin.upstream].pins.values())
    return max(pins, key=age), "the newest of the pins" + (f"; {trouble}" if trouble else "")


def newest_release(project: Project, pin: Pin) -> str:
    """The newest release of an upstream, as a ref: of its archive, else of its git host's tags that are versions.

    What comes before a release (``rc1``) is none.

    :returns: an empty text for an upstream that has neither, as one that lives in another's archive.
    :raises SourceError: if neither says what there is.
    """
    if pin.archive and not pin.subdir and not is_local_archive(pin.archive):
        if found := releases_of(pin, ""):
            return found[-1]
    elif pin.url:
        folder = local_folder(project.layout, pin.url)
        versions = tag_versions(tags(str(folder) if folder else pin.url, timeout=REACH_TIMEOUT), pin.ref)
        final = [v for v in versions if not v.is_prerelease]
        if final:
            return versions[max(final)]
    else:
        return ""
    raise SourceError(f"no release of {pin.upstream} is known", hint="--onto REF names one")


def tag_versions(names: Iterable[str], like: str) -> dict[Version, str]:
    """Those tags that are versions, by these; with what stands before the digits of a ref like them, or without.

    >>> {str(v): tag for v, tag in tag_versions(["llvmorg-17.0.1", "llvmorg-init", "v18"], "llvmorg-16.0.0").items()}
    {'17.0.1': 'llvmorg-17.0.1', '18': 'v18'}
    >>> tag_versions(["1.0", "v1.0"], "1.10"), tag_versions(["1.0", "v1.0"], "v1.10")
    ({<Version('1.0')>: '1.0'}, {<Version('1.0')>: 'v1.0'})
    """
    from packaging.version import Version

    before = re.split(r"\d", like, maxsplit=1)[0]
    found: dict[Version, str] = {}
    # Of two that are one version, that which is spelt like the ref, and in full: v1.0, not v1.
    for tag in sorted(names, key=lambda tag: (re.split(r"\d", tag, maxsplit=1)[0] == before, tag)):
        for text in (tag, tag.removeprefix(before)):
            with suppress(ValueError):  # InvalidVersion, and a number of more digits than Python reads
                found[Version(text)] = tag
                break
    return found


def age(pin: Pin) -> tuple[int, Version] | tuple[int]:
    """What a pin is ordered by: its own version, else its archive's; a branch or a commit comes after them."""
    from packaging.version import InvalidVersion, Version

    for text in (pin.archive.partition("==")[2] if pin.subdir else "", pin.ref):
        try:
            return (0, Version(text))
        except InvalidVersion:
            continue
    return (1,)


def older_first(pins: Iterable[Pin]) -> list[Pin]:
    """Pins in the order of their releases, then those of no release."""
    return sorted(pins, key=age)


def _archive_project(pin: Pin) -> str:
    if not pin.archive or is_local_archive(pin.archive):
        raise UserError(
            f"{pin.upstream} {pin.ref} has no archive on the package index",
            hint="pin the refs, and name them with --onto",
        )
    return pin.archive.partition("==")[0]


def pin_at(project: Project, pin: Pin, ref: str, hosts: Hosts | None = None) -> Pin:
    """A pin for a ref: the lock's, else from the git host, else the release of that version.

    :param hosts: what they have answered already.
    :raises UserError: if none of them has it.
    """
    pins = project.lock.upstreams[pin.upstream].pins
    if ref in pins:
        return pins[ref]
    trouble = f"{pin.upstream} has no pin {ref}"
    if pin.url:
        draft = Pin(upstream=pin.upstream, ref=ref, url=pin.url)
        try:
            nested = project.lock.nested_in(pin.upstream)
            commit = pin_git(project.layout, project.store, draft, skip=nested, hosts=hosts)
            return Pin(upstream=pin.upstream, ref=ref, url=pin.url, commit=commit)
        except SourceError as error:
            trouble += f"; {error.message}"
    if pin.archive and not is_local_archive(pin.archive):
        try:
            return _with_archive(Pin(upstream=pin.upstream, ref=ref), pin)
        except SourceError as error:
            trouble += f"; {error.message}"
    raise UserError(trouble, hint=f"`patchq pin {pin.upstream} --ref {sh(ref)} …` names its sources")


def complete_pin(project: Project, old: Pin, new: Pin) -> Pin:
    """A pin with all the sources that the old one of its upstream has, as far as they can be had."""
    if new.ref in project.lock.upstreams[new.upstream].pins:
        return new
    if not new.archive and old.archive and not is_local_archive(old.archive):
        with suppress(SourceError):  # the commit is enough
            new = _with_archive(new, old)
    if new.archive and old.wheels and not new.subdir:
        name, _, version = new.archive.partition("==")
        new = replace(new, wheels={w.name: w.sha256 for w in index.find_wheels(name, version) if w.sha256})
    return new


def _with_archive(pin: Pin, like: Pin) -> Pin:
    """A pin with the archive of its ref's release, from the project that another pin's is from.

    :raises SourceError: if the ref is no version, or the index has no such release.
    """
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(pin.ref)
    except InvalidVersion as error:
        hint = f"`patchq pin {pin.upstream} --ref {sh(pin.ref)} …` names its sources"
        raise SourceError(str(error), hint=hint) from None
    name = _archive_project(like)
    sdist = index.find_sdist(name, str(version))
    return replace(pin, archive=f"{name}=={version}", sha256=sdist.sha256, subdir=like.subdir)


def version_of(ref: str) -> Version | None:
    """A ref as a version; None where it is none."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(ref)
    except InvalidVersion:
        return None


def pins_between(upstream: Upstream, old: Pin, new: Pin) -> list[Pin]:
    """The pins of releases between two others, oldest first; none where a ref is no version."""
    ends = version_of(old.ref), version_of(new.ref)
    if ends[0] is None or ends[1] is None:
        return []
    found = [(version, pin) for ref, pin in upstream.pins.items() if (version := version_of(ref)) is not None]
    return [pin for version, pin in sorted(found, key=lambda item: item[0]) if ends[0] < version < ends[1]]
