"""Comparison of each upstream's requirements with the versions of the set's other pins.

Requirements come from ``PKG-INFO`` in a source archive, or from ``pyproject.toml``. Requirements that an upstream's
build computes are unknown, because neither file lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patchq.errors import UserError
from patchq.formats import toml
from patchq.formats.lock import Lock, Pin
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.project.project import Project
from patchq.records import dataclass
from patchq.stacks.applied import release_version

_WHERE = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiblingDifference:
    """Requirement of an upstream that the set's other pins don't satisfy.

    :ivar distribution: canonical name of the required distribution.
    :ivar there: version in the set, and the pin that determines it.
    :ivar meant: reason why the mismatch is intended, from the lock; empty for an unintended mismatch.
    """

    set_name: str
    upstream: str
    ref: str
    distribution: str
    requirement: str
    there: str
    meant: str = ""

    @property
    def message(self) -> str:
        """Message for the user."""
        return f"{self.upstream} {self.ref} requires {self.requirement}, and set {self.set_name} has {self.there}"


def differences(
    project: Project, set_name: str, bases: Mapping[str, CommitId], *, instead: Pin | None = None
) -> list[SiblingDifference]:
    """Return all unsatisfied requirements between the pins of a set, intended or not.

    :param bases: commits of the upstreams whose metadata are available locally.
    :param instead: pin that replaces the set's pin of the same upstream. If its ref differs from the set's ref,
        ``[mismatches]`` in the lock is ignored.
    """
    lock = project.lock
    pins = {pin.upstream: pin for pin in lock.pins_of(set_name)}
    if instead:
        if pins[instead.upstream].ref != instead.ref:
            lock = replace(lock, mismatches={})
        pins[instead.upstream] = instead
    required = {upstream: requirements(project, base) for upstream, base in bases.items()}
    return list(_compare(lock, set_name, pins, required))


def refuse(project: Project, set_name: str, bases: Mapping[str, CommitId]) -> None:
    """Refuse a set whose pins have unintended mismatches.

    :raises UserError: if the lock doesn't list a mismatch as intended.
    """
    found = []
    for difference in differences(project, set_name, bases):
        if not difference.meant:
            found.append(difference)
    if found:
        raise UserError("; ".join(d.message for d in found), hint=hint_for(found[0]))


def hint_for(difference: SiblingDifference) -> str:
    """Return the hint for an unintended mismatch."""
    return (
        f"pin the version that it requires, or give the reason for the difference in upstream.lock: "
        f'[mismatches."{difference.set_name}"] {difference.distribution} = "…"'
    )


def requirements(project: Project, base: CommitId) -> list[Requirement]:
    """Return the requirements in a commit's metadata that apply on Linux without extras."""
    found: list[Requirement] = []
    for r in declared(project, base):
        if r.marker is None or r.marker.evaluate(_WHERE):
            found.append(r)
    return found


def declared(project: Project, base: CommitId) -> list[Requirement]:
    """Return all requirements in a commit's metadata, including requirements for other platforms and for extras."""
    return list(_declared(project.store, base))


@functools.lru_cache(maxsize=256)
def _declared(store: Git, base: CommitId) -> tuple[Requirement, ...]:
    """Return all requirements in a commit's metadata, cached because many sets share a commit."""
    from packaging.metadata import parse_email  # slow to import

    entries = store.list_tree(base, [b"PKG-INFO", b"pyproject.toml"])
    contents = store.read_blobs(e.blob for e in entries.values())
    texts: list[str] = []
    if entry := entries.get(b"PKG-INFO"):
        texts = parse_email(contents[entry.blob])[0].get("requires_dist", [])
    elif entry := entries.get(b"pyproject.toml"):
        try:
            table = toml.loads(contents[entry.blob]).get("project", {})
            texts = list(table.get("dependencies", []))
        except (ValueError, AttributeError, TypeError):
            texts = []
    found = []
    for text in texts:
        with suppress(InvalidRequirement, TypeError, RecursionError):
            found.append(Requirement(text))
    return tuple(found)


def _compare(
    lock: Lock, set_name: str, pins: Mapping[str, Pin], required: Mapping[str, list[Requirement]]
) -> Iterator[SiblingDifference]:
    meant = {}
    for distribution, why in lock.mismatches.get(set_name, {}).items():
        meant[str(canonicalize_name(distribution))] = why
    here = dict(_versions(lock, set_name, pins))
    exact: dict[str, tuple[str, str]] = {}
    for upstream, requirements in required.items():
        for requirement in requirements:
            name = str(canonicalize_name(requirement.name))
            own = lock.upstreams[upstream].build
            if own and canonicalize_name(own.distribution) == name:
                continue
            version, bringer = here.get(name) or exact.get(name) or ("", "")
            if version and not requirement.specifier.contains(version, prereleases=True):
                asked = f"{requirement.name}{requirement.specifier}"
                there = f"{version} ({bringer})"
                yield SiblingDifference(
                    set_name=set_name,
                    upstream=upstream,
                    ref=pins[upstream].ref,
                    distribution=name,
                    requirement=asked,
                    there=there,
                    meant=meant.get(name, ""),
                )
            if one := _exactly(requirement):
                exact.setdefault(name, (one, f"what {upstream} requires"))


def _versions(lock: Lock, set_name: str, pins: Mapping[str, Pin]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each distribution whose version the set determines, with that version and its source."""
    environment = lock.environments.get(set_name)
    for text in environment.requires if environment else ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if version := _exactly(requirement):
            yield str(canonicalize_name(requirement.name)), (version, "its environment")
    for upstream, pin in pins.items():
        build, version = lock.upstreams[upstream].build, release_version(pin)
        if build and version:  # the commit of a branch may be between two versions
            yield str(canonicalize_name(build.distribution)), (version, f"{upstream} {pin.ref}")


def _exactly(requirement: Requirement) -> str:
    """Return the exact version that a requirement demands; empty if it allows several versions."""
    specifiers = list(requirement.specifier)
    one = len(specifiers) == 1 and specifiers[0].operator == "==" and not specifiers[0].version.endswith(".*")
    if one:
        return specifiers[0].version
    return ""
