"""Resolve refs to pins with the lock, the git host or the package index."""

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
from patchq.sources.folders import git_source
from patchq.sources.pins import REACH_TIMEOUT, Hosts, is_local_archive, pin_git

if TYPE_CHECKING:
    from packaging.version import Version


def releases_of(pin: Pin, specifier: str) -> list[str]:
    """Return the releases of a pin's archive that match a version specifier, as refs, oldest first.

    The returned refs begin with the same prefix as the pin's ref, such as ``v`` or ``llvmorg-``.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename

    from patchq.sources import index

    name = _archive_project(pin)
    try:
        allowed = SpecifierSet(specifier)
    except InvalidSpecifier:
        hint = "give one like --releases '>=0.14'"
        raise UserError(f"{specifier!r} is not a version specifier", hint=hint) from None
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
    prefix = _release_prefix(pin)
    return [f"{prefix}{version}" for version in sorted(versions)]


def newest(project: Project, pin: Pin, *, offline: bool = False) -> tuple[Pin, str]:
    """Return a pin for the newest code of an upstream, and a description of it.

    The new pin names the git host's default branch. If the host doesn't answer, the new pin names the newest release of
    the old pin's archive. If no release is known, or if the upstream is nested in another archive, return the newest
    pin in the lock.
    """
    trouble = ""
    if pin.url and not offline:
        try:
            branch = default_branch(git_source(project.layout, pin.url), timeout=REACH_TIMEOUT)
            return pin_at(project, pin, branch), f"the default branch {branch}"
        except SourceError as error:
            trouble = error.message
    if _has_releases(pin) and not offline:
        try:
            ref = releases_of(pin, "")[-1]
            reason = trouble or "there is no git source"
            return pin_at(project, pin, ref), f"the newest release archive; {reason}"
        except (SourceError, IndexError):
            pass
    pins = project.lock.upstreams[pin.upstream].pins.values()
    description = "the newest of the pins"
    if trouble:
        description += f"; {trouble}"
    return max(pins, key=age), description


def _has_releases(pin: Pin) -> bool:
    """Return whether the package index contains releases of the pin's upstream."""
    return bool(pin.archive) and not pin.subdir and not is_local_archive(pin.archive)


def newest_release(project: Project, pin: Pin) -> str:
    """Return the ref of an upstream's newest release, from the package index or from the tags of its git host.

    Pre-releases (``rc1``) are ignored.

    :returns: The ref; empty for an upstream without releases, such as one that is nested in another archive.
    :raises SourceError: if no release is known.
    """
    if _has_releases(pin):
        releases = releases_of(pin, "")
        if releases:
            return releases[-1]
    elif pin.url:
        names = tags(git_source(project.layout, pin.url), timeout=REACH_TIMEOUT)
        versions = tag_versions(names, pin.ref)
        final = [version for version in versions if not version.is_prerelease]
        if final:
            return versions[max(final)]
    else:
        return ""
    raise SourceError(f"no release of {pin.upstream} is known", hint="give one of its tags or branches with --onto")


def tag_versions(names: Iterable[str], like: str) -> dict[Version, str]:
    """Return the tags that are versions, keyed by version.

    Tags may begin with the prefix of the ref ``like``, such as ``llvmorg-``.

    >>> tag_versions(["llvmorg-17.0.1", "llvmorg-init", "v18"], "llvmorg-16.0.0")
    {<Version('18')>: 'v18', <Version('17.0.1')>: 'llvmorg-17.0.1'}
    >>> tag_versions(["1.0", "v1.0"], "1.10"), tag_versions(["1.0", "v1.0"], "v1.10")
    ({<Version('1.0')>: '1.0'}, {<Version('1.0')>: 'v1.0'})
    """
    from packaging.version import Version

    prefix = _prefix(like)
    found: dict[Version, str] = {}
    # Of two tags for one version, prefer one with the ref's prefix, then the longer one (v1.0, not v1).
    for tag in sorted(names, key=lambda tag: (_prefix(tag) == prefix, tag)):
        for text in (tag, tag.removeprefix(prefix)):
            with suppress(ValueError):  # InvalidVersion, or too many digits for int()
                found[Version(text)] = tag
                break
    return found


def _prefix(ref: str) -> str:
    """Return the part of a ref before its first digit."""
    return re.split(r"\d", ref, maxsplit=1)[0]


def _release_prefix(pin: Pin) -> str:
    """Return the part of a pin's ref before its version; empty for a branch or commit.

    >>> _release_prefix(Pin(upstream="llvm", ref="llvmorg-16.0.0", archive="llvm==16.0"))
    'llvmorg-'
    >>> _release_prefix(Pin(upstream="llvm", ref="rewrite2", archive="llvm==16.0"))
    ''
    """
    prefix = _prefix(pin.ref)
    version = version_of(pin.ref[len(prefix) :])
    # A branch or a commit may have digits, too, but they aren't the version of the archive.
    if prefix == "v" or (version is not None and version == version_of(pin.archive.partition("==")[2])):
        return prefix
    return ""


def age(pin: Pin) -> tuple[int, Version] | tuple[int]:
    """Return a key to sort pins by the versions of their refs or archives. Branches and commits come last."""
    version = version_of(pin.ref)
    if pin.subdir:
        version = version_of(pin.archive.partition("==")[2]) or version
    if version is None:
        return (1,)
    return (0, version)


def older_first(pins: Iterable[Pin]) -> list[Pin]:
    """Sort pins by their releases. Pins without a release come last."""
    return sorted(pins, key=age)


def _archive_project(pin: Pin) -> str:
    if not pin.archive or is_local_archive(pin.archive):
        raise UserError(
            f"{pin.upstream} {pin.ref} has no archive on the package index",
            hint="pin the refs, and give them with --onto",
        )
    return pin.archive.partition("==")[0]


def pin_at(project: Project, pin: Pin, ref: str, hosts: Hosts | None = None) -> Pin:
    """Return a pin for a ref, resolved by the lock, the git host or the package index.

    :param hosts: Cache of the refs of git hosts.
    :raises UserError: if neither the lock, the git host nor the package index provides the ref.
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
    raise UserError(trouble, hint=f"pin it with its sources: `patchq pin {pin.upstream} --ref {sh(ref)} …`")


def complete_pin(project: Project, old: Pin, ref: str) -> Pin:
    """Return the pin for a ref. A new pin gets the same kinds of sources as the pin ``old``, if they are available.

    :raises UserError: in the same cases as :func:`pin_at`.
    """
    if ref in (pins := project.lock.upstreams[old.upstream].pins):
        return pins[ref]
    from patchq.sources import index

    with index.same_pages():
        return _complete(old, pin_at(project, old, ref))


def _complete(old: Pin, new: Pin) -> Pin:
    """Add an archive and wheels to a new pin if the old pin has them and the package index provides them."""
    if not new.archive and old.archive and not is_local_archive(old.archive):
        with suppress(SourceError):  # the commit is enough
            new = _with_archive(new, old)
    if new.archive and old.wheels and not new.subdir:
        name, _, version = new.archive.partition("==")
        from patchq.sources import index

        wheels = {}
        for wheel in index.find_wheels(name, version):
            if wheel.sha256:
                wheels[wheel.name] = wheel.sha256
        new = replace(new, wheels=wheels)
    return new


def _with_archive(pin: Pin, like: Pin) -> Pin:
    """Add a release's archive to a pin, from the same project on the package index as the archive of ``like``.

    :raises SourceError: if the ref isn't a version, or if the index doesn't contain the release.
    """
    from packaging.version import InvalidVersion, Version

    from patchq.sources import index

    try:
        version = Version(pin.ref.removeprefix(_release_prefix(like)))
    except InvalidVersion as error:
        hint = f"pin it with its sources: `patchq pin {pin.upstream} --ref {sh(pin.ref)} …`"
        raise SourceError(str(error), hint=hint) from None
    name = _archive_project(like)
    sdist = index.find_sdist(name, str(version))
    return replace(pin, archive=f"{name}=={version}", sha256=sdist.sha256, subdir=like.subdir)


def version_of(ref: str) -> Version | None:
    """Return the version that a ref names; None if it names no version."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(ref)
    except InvalidVersion:
        return None


def pins_between(upstream: Upstream, old: Pin, new: Pin) -> list[Pin]:
    """Return the pins of the releases between two pins, oldest first; an empty list if a ref isn't a version."""
    first, last = version_of(old.ref), version_of(new.ref)
    if first is None or last is None:
        return []
    found = []
    for ref, pin in upstream.pins.items():
        version = version_of(ref)
        if version is not None and first < version < last:
            found.append((version, pin))
    found.sort(key=lambda item: item[0])
    return [pin for _, pin in found]
