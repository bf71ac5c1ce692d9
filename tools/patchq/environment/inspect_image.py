"""``verify-image``: is an image what a lock says: its labels, its attestation, and each file of its packages."""

from __future__ import annotations

import csv
import io
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from patchq.environment import signatures
from patchq.environment.image import Entry, Image
from patchq.environment.installed import Reference
from patchq.errors import FormatError
from patchq.formats.manifest import Manifest, parse_manifest
from patchq.formats.signing import Signing
from patchq.names import show_path

#: Labels that ``compose`` writes: the stack's id, the SHA-256 of upstream.lock, and the set's name.
LABELS = ("patchq.stack", "patchq.lock", "patchq.set")
#: Where ``compose`` puts the attestation and the bill of materials.
FOLDER = "usr/share/patchq"
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages")
_START = re.compile(r"[^/]+\.pth|(?:site|user)customize\.py")
_OWN = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


@dataclass(frozen=True, slots=True)
class Signer:
    """By whom the attestation must be signed; ``root`` is the project's folder, where its key lies."""

    signing: Signing
    root: Path


@dataclass(frozen=True, slots=True)
class Expected:
    """What the lock says. ``statement`` is the attestation beside the wheels, ``None`` where there is none.

    :ivar packages: distribution to import name of what must be there.
    :ivar signer: None where the lock asks for no signature.
    """

    stack_id: str
    lock_sha256: str
    set_name: str
    packages: Mapping[str, str]
    references: Sequence[Reference]
    statement: bytes | None
    signer: Signer | None = None


@dataclass(frozen=True, slots=True)
class ImageVerdict:
    """What was found; it is right only without problems. ``packages`` are ``distribution version``."""

    image: str
    packages: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return bool(self.packages) and not self.problems


def wanted(path: str) -> bool:
    """Whether a file of an image is hashed: what Python may import, and what is attested."""
    return path.startswith(FOLDER) or any(_SITE.fullmatch(folder) for folder in _above(path))


def kept(path: str) -> bool:
    """Whether its text is kept too."""
    name = posixpath.basename(path)
    about = name in ("METADATA", "RECORD", "direct_url.json") and posixpath.dirname(path).endswith(".dist-info")
    return path.startswith(FOLDER) or name == "_patchq.json" or about


def judge_image(image: Image, expected: Expected) -> ImageVerdict:
    """Hold an image against what it should be."""
    problems: list[str] = []
    notes: list[str] = []
    _labels(image, expected, problems, notes)
    _attestation(image, expected, problems)
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "LD_PRELOAD"):
        if image.env.get(name):
            problems.append(f"{name} is set to {image.env[name]}: other code can stand in front")
    sites = sorted({f for path in image.files for f in _above(path) if _SITE.fullmatch(f)})
    recorded: set[str] = set()
    found = []
    for site in sites:
        for info in sorted({p.split("/")[0] for p in _below(image, site) if p.split("/")[0].endswith(".dist-info")}):
            record = _record(image, site, info)
            recorded.update(posixpath.normpath(f"{site}/{name}") for name in record)
            found.append((site, info, record))
    seen = []
    for distribution, package in expected.packages.items():
        its = [f for f in found if _canonical(_name(image, f[0], f[1])) == _canonical(distribution)]
        places = [s for s in sites if any(_is_module(p, package) for p in _below(image, s))]
        if len(its) != 1 or len(places) > 1:
            what = "is not in it" if not its else f"is in it {max(len(its), len(places))} times"
            problems.append(f"{distribution} {what}")
            continue
        (site, info, record) = its[0]
        version = _judge(image, expected, distribution, package, site, info, record, problems)
        seen.append(f"{distribution} {version}")
    problems += _linked_sites(image)
    for site in sites:
        strange = [p for p in _below(image, site) if _START.fullmatch(p) and f"{site}/{p}" not in recorded]
        problems += [f"{site}/{p} runs at each start, and no package has it" for p in strange]
    caches = sum(
        p.endswith(".pyc") and f"/{pkg}/" in f"/{p}" for p in image.files for pkg in expected.packages.values()
    )
    if caches:
        notes.append(
            f"{caches} compiled caches were not judged: `patchq verify-installed`, run in the image, does that"
        )
    shown = (show_path(p.encode("utf-8", "replace")) for p in problems)
    return ImageVerdict(image.name, tuple(seen), tuple(dict.fromkeys(shown)), tuple(notes))


def _labels(image: Image, expected: Expected, problems: list[str], notes: list[str]) -> None:
    if image.labels is None:
        notes.append("a file system has no labels; those of its image were not looked at")
        return
    for name, right in zip(LABELS, (expected.stack_id, expected.lock_sha256, expected.set_name), strict=True):
        said = image.labels.get(name, "")
        if said != right:
            problems.append(f"its label {name} is {said or 'missing'}, not {right}")


def _attestation(image: Image, expected: Expected, problems: list[str]) -> None:
    """The statement in the image: there, of this stack and lock, and over the wheels that are at hand."""
    entry = image.files.get(f"{FOLDER}/provenance.json")
    if entry is None or entry.text is None:
        problems.append(f"it has no attestation (/{FOLDER}/provenance.json)")
        return
    if expected.statement is not None and entry.text != expected.statement:
        problems.append("its attestation is another one than that of the wheels")
    if expected.signer:
        name = signatures.name_of(expected.signer.signing)
        beside = image.files.get(f"{FOLDER}/{name}")
        signed = beside.text if beside else None
        if wrong := signatures.fault(expected.signer.signing, expected.signer.root, entry.text, signed):
            problems.append(f"its attestation {wrong} (/{FOLDER}/{name})")
    try:
        told = json.loads(entry.text)
        parameters = told["predicate"]["buildDefinition"]["externalParameters"]
        locks = [d["digest"]["sha256"] for d in told["predicate"]["buildDefinition"]["resolvedDependencies"][:1]]
        if parameters != {"set": expected.set_name, "stackId": expected.stack_id} or locks != [expected.lock_sha256]:
            problems.append("its attestation is of another stack, set or lock")
    except (ValueError, KeyError, TypeError, RecursionError):
        problems.append("its attestation can't be read")
    if f"{FOLDER}/patchq.cdx.json" not in image.files:
        problems.append(f"it has no bill of materials (/{FOLDER}/patchq.cdx.json)")


def _judge(
    image: Image, expected: Expected, distribution: str, package: str, site: str, info: str,
    record: Mapping[str, str], problems: list[str],
) -> str:  # fmt: skip
    """One package against its own RECORD, its manifest and its wheel; returns its version."""
    version = _field(image, site, info, "Version")
    manifest = _manifest(image, site, package)
    if manifest is None:
        problems.append(f"{distribution} {version} is upstream's: it has no manifest")
        return version
    if manifest.stack_id != expected.stack_id or (manifest.computed and manifest.stack_id not in manifest.computed):
        problems.append(f"{distribution} {version} is of stack {manifest.stack_id[:8]}, not of {expected.stack_id[:8]}")
    if manifest.version != version:
        problems.append(f"{distribution}: its metadata says {version}, its manifest {manifest.version}")
    wrong = {n for n, digest in {**record, **manifest.files}.items() if digest and _sha(image, site, n) != digest}
    its_own = (f"{package}/", f"{info}/")
    added = {
        p for p in _below(image, site)
        if p.startswith(its_own) and p not in record and not p.endswith(".pyc") and p.rpartition("/")[2] not in _OWN
    }  # fmt: skip
    wheels = [r for r in expected.references if _canonical(r.distribution) == _canonical(distribution)]
    own = [r for r in wheels if r.version == version]
    unlike = [{n for n, d in r.files.items() if _sha(image, site, n) != d and not n.endswith("/RECORD")} for r in own]
    if own:
        wrong |= min(unlike, key=len)
    elif expected.references:
        problems.append(f"{distribution} {version} is none of the wheels that were built")
    problems += [f"{distribution}: {name} isn't as it was built" for name in sorted(wrong)[:20]]
    problems += [f"{distribution}: {name} was added" for name in sorted(added)[:20]]
    return version


# What lies where


def _linked_sites(image: Image) -> list[str]:
    """What to say of links by which Python would look for modules where nobody looked here."""
    found = []
    for path, entry in image.files.items():
        if entry.kind == "link" and _SITE.fullmatch(path):
            try:
                looked_at = _SITE.fullmatch(image.followed(path))
            except ValueError:
                looked_at = None
            if not looked_at:
                found.append(
                    f"{path} is a link to {entry.target}: Python may import from there, and it wasn't looked at"
                )
    return found


def _is_module(path: str, package: str) -> bool:
    """Whether Python may import a package from a path of its folder: it, a link to one, or a module of that name."""
    first, slash, _ = path.partition("/")
    return first == package or (not slash and first.startswith(f"{package}."))


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _below(image: Image, site: str) -> list[str]:
    start = f"{site}/"
    return [p[len(start) :] for p in image.files if p.startswith(start)]


def _sha(image: Image, site: str, name: str) -> str:
    entry: Entry | None = image.files.get(posixpath.normpath(f"{site}/{name}"))
    return entry.sha256 if entry and entry.kind == "file" else ""


def _text(image: Image, path: str) -> str:
    entry = image.files.get(path)
    return (entry.text or b"").decode("utf-8", "replace") if entry else ""


def _field(image: Image, site: str, info: str, name: str) -> str:
    return HeaderParser().parsestr(_text(image, f"{site}/{info}/METADATA"))[name] or ""


def _name(image: Image, site: str, info: str) -> str:
    return _field(image, site, info, "Name") or info.partition("-")[0]


def _manifest(image: Image, site: str, package: str) -> Manifest | None:
    try:
        return parse_manifest(_text(image, f"{site}/{package}/_patchq.json"))
    except FormatError:
        return None


def _record(image: Image, site: str, info: str) -> dict[str, str]:
    """RECORD's files and their SHA-256; empty for those that it gives none of. One that can't be read is damaged."""
    from base64 import urlsafe_b64decode

    found = {}
    try:
        rows = list(csv.reader(io.StringIO(_text(image, f"{site}/{info}/RECORD"))))
    except csv.Error:
        return {f"{info}/RECORD": "damaged"}
    for row in rows:
        name, digest = (row[0], row[1]) if len(row) > 1 else ("", "")
        kind, _, coded = digest.partition("=")
        if name:
            try:
                found[name] = urlsafe_b64decode(coded + "=" * (-len(coded) % 4)).hex() if kind == "sha256" else ""
            except ValueError:
                found[name] = "damaged"
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
