"""Commands ``bundle`` and ``apply --from-bundle``: one file with which a set can be applied without a network.

A bundle is a plain tar file. Its bytes depend only on the project. It contains the lock, the stacks, the
proofs and the lists of wanted kernels. For each pin of the set, it also contains the release archive or a git
pack of the pinned commit. Wheels of the releases are optional. The first member lists the size and SHA-256 of
all other members. A bundle whose members differ from this list is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from patchq import __version__
from patchq.errors import FormatError, SourceError, UserError
from patchq.formats.lock import Pin
from patchq.formats.lock import parse as parse_lock
from patchq.formats.tar import Bounded
from patchq.git.repository import Git
from patchq.names import CommitId, StackResult
from patchq.project.project import Project
from patchq.sources import index
from patchq.sources.bases import Base, base_ref
from patchq.sources.pins import Fetcher, is_local_archive, tag_ref
from patchq.stacks.apply import apply, carried_stacks
from patchq.system import fsio, project_files
from patchq.system.paths import KERNELS, LOCK_NAME, Layout, check_inside

VERSION = 1
MANIFEST = "bundle.json"
#: Limits: bytes of the manifest, number of members, total bytes.
MAX_MANIFEST, MAX_MEMBERS, MAX_TOTAL = 16 << 20, 200_000, 64 << 30
#: Maximum length of a path, as in Linux.
_MAX_NAME = 4096
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundled:
    """Result of ``bundle``: the file, its size and SHA-256, the pins in it, and its number of members."""

    path: str
    size: int
    sha256: str
    set_name: str
    pins: tuple[tuple[str, str, str], ...]
    files: int


def make_bundle(project: Project, target: Path, *, set_name: str = "", wheels: bool = False) -> Bundled:
    """Write the bundle of a set.

    :param wheels: include the releases' wheels, which are needed to build overlays.
    :raises UserError: if an archive is outside the project.
    """
    set_name = project.choose_set(set_name)
    layout = project.layout
    with project.locked("bundle"), tempfile.TemporaryDirectory(prefix="patchq-") as text:
        pins = project.lock.pins_of(set_name)
        fetcher = Fetcher(layout, project.lock, say=project.say, progress=project.progress)
        bases = fetcher.fetch(pins)
        carried = carried_stacks(project, project.stacks(set_name), set_name)
        tips = []
        for c in carried:
            if c.commits:
                tips.append(c.commits[-1][1].commit)
            else:
                tips.append(c.base)
        trees = dict(zip((c.stack.pin.upstream for c in carried), project.store.tree_of(tips), strict=True))
        members = _project_files(layout.root)
        tags = {base.pin.upstream: _tag(project, base) for base in bases}
        for base in bases:
            if keyring := project.lock.upstreams[base.pin.upstream].keyring:
                members[f"project/{keyring}"] = layout.root / keyring
            if base.source == "git":
                path = Path(text) / f"{base.pin.upstream}.pack"
                path.write_bytes(_pack(project.store, base.commit, tags[base.pin.upstream]))
                members[f"packs/{path.name}"] = path
            elif is_local_archive(base.pin.archive):
                members[_local_archive(layout.root, base.pin.archive)] = layout.root / base.pin.archive
            else:
                path = fetcher.archive_file(base.pin)
                members[f"archives/{base.pin.sha256}/{path.name}"] = path
        for pin in pins if wheels else ():
            for name, sha256 in pin.wheels.items():
                members[f"archives/{sha256}/{name}"] = _wheel(project, pin, name, sha256)
        manifest = {
            "version": VERSION,
            "tool": f"patchq {__version__}",
            "set": set_name,
            "pins": [_pin(b, tags[b.pin.upstream]) for b in bases],
            "trees": trees,
            "files": {name: _size_and_hash(layout.root, name, path) for name, path in sorted(members.items())},
        }
        _write(layout.root, target, json.dumps(manifest, indent=1, sort_keys=True).encode(), members)
    size, sha256 = target.stat().st_size, fsio.sha256_file(target)
    shown = tuple((b.pin.upstream, b.pin.ref, b.source) for b in bases)
    return Bundled(path=str(target), size=size, sha256=sha256, set_name=set_name, pins=shown, files=len(members))


def _local_archive(root: Path, archive: str) -> str:
    """Return a member name for an archive in the project, which the lock names by a path.

    :raises UserError: if the archive is outside the project.
    """
    path = Path(os.path.normpath(root / Path(archive).expanduser()))
    if root not in path.parents:
        raise UserError(
            f"{path} is outside of the project",
            hint="copy the file into the project; for an archive, pin the copy with `patchq pin`",
        )
    return f"project/{path.relative_to(root).as_posix()}"


@contextmanager
def _member_file(root: Path, name: str, path: Path) -> Iterator[BinaryIO]:
    """Open the file for a member.

    A file of the project is opened only if it is a regular file, and its path contains no symbolic link.
    """
    if name.startswith("project/"):
        file = project_files.open_file(root, path)
    else:
        file = path.open("rb")
    if file is None:
        raise UserError(f"{path} doesn't exist", hint="restore this file, or remove its name from upstream.lock")
    with file:
        yield file


def _size_and_hash(root: Path, name: str, path: Path) -> tuple[int, str]:
    with _member_file(root, name, path) as file:
        return os.fstat(file.fileno()).st_size, fsio.sha256_open(file)


def _pin(base: Base, tag: str) -> dict[str, str]:
    message = {"upstream": base.pin.upstream, "ref": base.pin.ref, "source": base.source, "commit": base.commit}
    if tag:
        return {**message, "tag": tag}
    return message


def _tag(project: Project, base: Base) -> str:
    """Return the id of a pin's tag object; empty if the pin has no tag object, or if the upstream has no keyring."""
    keyring = project.lock.upstreams[base.pin.upstream].keyring
    found = ""
    if keyring:
        found = project.store.refs(tag_ref(base.pin)).get(tag_ref(base.pin), "")
    if found and project.store.run("cat-file", "-t", found).strip() == b"tag":
        return found
    return ""


def _project_files(root: Path) -> dict[str, Path]:
    files = [root / LOCK_NAME]
    for folder in ("patches", "tests/stacks"):
        files += project_files.list_files(root, root / folder)
    kernels = root / KERNELS
    for path in project_files.list_files(root, kernels):
        if path.parent == kernels and path.suffix == ".toml":
            files.append(path)
    return {f"project/{path.relative_to(root).as_posix()}": path for path in files}


def _pack(store: Git, commit: CommitId, tag: str) -> bytes:
    """Return a git pack of one commit with its tree and tag, without history.

    The pack contains whole objects without deltas, so that its bytes are always the same.
    """
    objects = store.run("rev-list", "--objects", "--no-object-names", "--no-walk", commit) + tag.encode()
    config = ("pack.threads=1", "core.compression=6", "pack.compression=6")
    return store.run(
        "pack-objects",
        "--stdout",
        "--quiet",
        "--window=0",
        "--depth=0",
        "--no-reuse-object",
        "--no-reuse-delta",
        data=b"\n".join(sorted(objects.split())) + b"\n",
        config=config,
    )


def _wheel(project: Project, pin: Pin, name: str, sha256: str) -> Path:
    have = index.cached(sha256)
    if have:
        return have
    distribution, _, version = pin.archive.partition("==")
    for file in index.find_wheels(distribution, version):
        if file.name == name:
            return index.download(file, sha256, project.progress)
    raise SourceError(f"the package index has no {name}", hint="bundle without --wheels")


def _write(root: Path, target: Path, manifest: bytes, members: Mapping[str, Path]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_member(MANIFEST, len(manifest)), io.BytesIO(manifest))
            for name, path in sorted(members.items()):
                with _member_file(root, name, path) as data:
                    tar.addfile(_member(name, os.fstat(data.fileno()).st_size), data)
        fsio.rename(part, target)
    finally:
        part.unlink(missing_ok=True)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size, 0o644, 946684800
    return info


# Apply on a machine without a network


def apply_bundle(root: Path, bundle: Path, **options: Any) -> list[StackResult]:
    """Apply the bundle's set to the project at ``root``. If there is no project, create it.

    An existing project must have the same lock as the bundle.

    :param options: arguments ``say`` and ``wait`` of :class:`Project`.
    :raises FormatError: if the bundle is damaged or contains unlisted members.
    :raises UserError: if the project has another lock, or the folder contains other files.
    :raises SourceError: if an applied tree differs from the tree that the bundle records.
    """
    root = root.resolve()
    with _opened(bundle) as (manifest, folder):
        own, bundled = root / LOCK_NAME, folder / "project"
        if own.exists() and project_files.read(root, own) != (bundled / LOCK_NAME).read_bytes():
            raise UserError(
                f"{bundle.name} was made from another {LOCK_NAME} than the one in {root}",
                hint="create the bundle again from this project, or apply it in an empty folder",
            )
        if not own.exists() and (other := _not_of(root, bundled)):
            raise UserError(
                f"{root} contains {other} and is not a project", hint="name an empty folder with --project DIR"
            )
        _check_members(bundled, bundle.name)
        project = Project(layout=Layout(root), **options)
        with project.locked("apply"):
            if not own.exists():
                # The lock is written last, because it makes the folder a project. An interrupted
                # run can start again.
                names = sorted(path.relative_to(bundled) for path in bundled.rglob("*") if path.is_file())
                for name in sorted(names, key=lambda n: n.name == LOCK_NAME):
                    fsio.write_atomic(root / name, (bundled / name).read_bytes())
            parse_lock(project_files.read(root, own) or b"", str(own))
            _bring(project, manifest, folder)
        found = apply(project, set_name=manifest["set"], offline=True)
    wrong = []
    for r in found:
        if r.tree != manifest["trees"].get(r.upstream):
            wrong.append(r.upstream)
    if wrong and not _edited(project, manifest):
        raise SourceError(
            f"{', '.join(wrong)}: the applied tree differs from the tree that the bundle records",
            hint="the same input produced a different tree: report it",
        )
    return found


def _bring(project: Project, manifest: Mapping[str, Any], folder: Path) -> None:
    """Put an unpacked bundle's archives into the cache, and its commits into the store."""
    archives = folder / "archives"
    for path in sorted(archives.rglob("*")) if archives.is_dir() else ():
        if path.is_file() and index.cached(path.parent.name) is None:
            index.keep(path, path.parent.name)
    for pin in manifest["pins"]:
        if pin["source"] == "git":
            _index_pack(project, pin, folder / "packs" / f"{pin['upstream']}.pack")


@contextmanager
def bundled_project(bundle: Path, around: Project) -> Iterator[Project]:
    """Unpack the project in a bundle to a temporary folder, and yield it. It uses the store of the project ``around``.

    :raises FormatError: if the bundle is damaged or contains unlisted members.
    """
    with _opened(bundle) as (manifest, folder):
        bundled = folder / "project"
        _check_members(bundled, bundle.name)
        project = Project(layout=Layout(bundled.resolve(), around.layout.store), say=around.say)
        _bring(project, manifest, folder)
        yield project


def _check_members(bundled: Path, where: str) -> None:
    """Check that a bundle contains only files that belong to a project.

    These are the lock, stacks, proofs, lists of wanted kernels, and files that the lock names.

    :raises FormatError: for other files, such as patchq's private state.
    """
    lock = parse_lock((bundled / LOCK_NAME).read_bytes(), f"{where}: {LOCK_NAME}")
    named = {LOCK_NAME, *(u.keyring for u in lock.upstreams.values())}
    for u in lock.upstreams.values():
        for pin in u.pins.values():
            named.add(str(PurePosixPath(pin.archive)))
    for path in sorted(bundled.rglob("*")):
        name = path.relative_to(bundled)
        inside = (
            name.parts[0] == "patches"
            or name.parts[:2] == ("tests", "stacks")
            or name.as_posix() in named
            or (name.parts[0] == KERNELS and len(name.parts) == 2 and name.suffix == ".toml")
        )
        if path.is_file() and (not inside or any(p.lower() in (".git", ".patchq") for p in name.parts)):
            raise FormatError(f"{where} contains {name}, which is not part of a project", hint="don't use it")


def _not_of(root: Path, bundled: Path) -> str:
    """Return the path of a file in a folder that isn't from the bundle; empty if there is no such file.

    Files that an interrupted run of ``apply --from-bundle`` left are ignored.
    """
    for path in sorted(root.rglob("*")) if root.exists() else ():
        inside = path.relative_to(root)
        ours = path.name.startswith(".") and path.name.endswith(fsio.UNFINISHED)
        if (path.is_dir() and not path.is_symlink()) or ours or inside.parts[0] == ".patchq":
            continue
        if path.is_symlink() or fsio.read_or_none(bundled / inside) != project_files.read(root, path):
            return str(inside)
    return ""


def _edited(project: Project, manifest: Mapping[str, Any]) -> bool:
    """Return whether the project's patches differ from the bundle's patches."""
    for name, (_, sha256) in manifest["files"].items():
        inside = name.removeprefix("project/")
        if name.startswith("project/patches/"):
            path = project.layout.root / inside
            if project_files.hash_file(project.layout.root, path) != sha256:
                return True
    return False


def _index_pack(project: Project, pin: Mapping[str, str], pack: Path) -> None:
    upstream = project.lock.upstreams.get(pin["upstream"])
    locked = None
    if upstream:
        locked = upstream.pins.get(pin["ref"])
    if not locked:
        raise FormatError(
            f"the bundle has {pin['upstream']} {pin['ref']}, which is not in the bundle's lock", hint="don't use it"
        )
    store = project.store
    if locked.commit != pin["commit"]:
        raise FormatError(
            f"the bundle's commit of {pin['upstream']} is not the commit in the bundle's lock",
            hint="create the bundle again",
        )
    if not store.is_whole([locked.commit]):
        store.run("index-pack", "--stdin", "--fix-thin", data=pack.read_bytes())
        # The commit has no parents here, as after a shallow fetch.
        shallow = store.folder / "shallow"
        known = (fsio.read_or_none(shallow) or b"").decode().split()
        fsio.write_atomic(shallow, "".join(f"{c}\n" for c in sorted({*known, locked.commit})).encode())
    if not store.ref_or_none(locked.commit):
        raise FormatError(
            f"the bundle's pack of {pin['upstream']} lacks the pinned commit", hint="create the bundle again"
        )
    store.run("update-ref", base_ref(locked, "git"), locked.commit)
    if tag := pin.get("tag", ""):
        if not store.ref_or_none(f"{tag}^{{tag}}"):
            raise FormatError(
                f"the bundle's pack of {pin['upstream']} lacks the pinned tag", hint="create the bundle again"
            )
        store.run("update-ref", tag_ref(locked), tag)


@contextmanager
def _opened(bundle: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Unpack a bundle into a temporary folder. Yield its manifest and the folder.

    The size and hash of each unpacked file are checked.
    """
    try:
        data = bundle.open("rb")
    except OSError as error:
        raise UserError(f"{bundle}: {error.strerror}", hint="check the path") from None
    with data, tempfile.TemporaryDirectory(prefix="patchq-") as text:
        try:
            with tarfile.open(fileobj=data, mode="r|", tarinfo=Bounded) as tar:
                manifest = _unpack(tar, Path(text), bundle.name)
        except (tarfile.TarError, EOFError) as error:
            raise FormatError(f"{bundle.name} is damaged: {error}; nothing was applied", hint="copy it again") from None
        yield manifest, Path(text)


def _unpack(tar: tarfile.TarFile, folder: Path, where: str) -> dict[str, Any]:
    first = tar.next()
    if first is None or first.name != MANIFEST or not first.isreg() or first.size > MAX_MANIFEST:
        raise FormatError(f"{where} is not a bundle", hint="`patchq bundle fork.tar` writes one")
    stream = tar.extractfile(first)
    assert stream
    manifest = _manifest(stream.read(), where)
    left = dict(manifest["files"])
    if len(left) > MAX_MEMBERS or sum(size for size, _ in left.values()) > MAX_TOTAL:
        raise FormatError(f"{where} is larger than any project", hint="don't use it")
    while member := tar.next():
        if member.name not in left or not member.isreg():
            raise FormatError(f"{where} contains {member.name!r}, which its manifest doesn't list", hint="don't use it")
        size, sha256 = left.pop(member.name)
        data = tar.extractfile(member)
        if member.size != size or data is None or _copy(data, folder / member.name) != sha256:
            raise FormatError(f"{where}: {member.name} was changed after it was bundled", hint="copy it again")
    if left:
        raise FormatError(f"{where} lacks {next(iter(left))!r}", hint="copy the bundle again, because it is truncated")
    return manifest


def _manifest(data: bytes, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(data)
        if raw["version"] != VERSION:
            raise FormatError(f"{where} has format {raw['version']}, this patchq reads {VERSION}", hint="update patchq")
        for name, (size, sha256) in raw["files"].items():
            _check_file(name, size, sha256, where)
        if f"project/{LOCK_NAME}" not in raw["files"] or not isinstance(raw["set"], str):
            raise ValueError(LOCK_NAME)
        for pin in raw["pins"]:
            _check_pin(pin, raw["files"])
        folders = set()
        for name in raw["files"]:
            for folder in PurePosixPath(name).parents:
                folders.add(str(folder))
        if both := folders & raw["files"].keys():
            raise ValueError(f"{min(both)!r} is a file and a folder")
        if not isinstance(raw["trees"], dict):
            raise ValueError("trees")
        found: dict[str, Any] = raw
        return found
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{where} is not a bundle: {type(error).__name__} {error}", hint="don't use it") from None


def _check_file(name: str, size: Any, sha256: str, where: str) -> None:
    if len(name) > _MAX_NAME:
        raise ValueError(f"{name[:60]}…")
    if str(check_inside(name, where)) != name:
        raise ValueError(name)
    if not isinstance(size, int) or size < 0 or len(sha256) != 64 or name.split("/")[0] not in _FOLDERS:
        raise ValueError(name)
    if name.startswith("archives/") and name.split("/")[1:-1] != [sha256]:
        raise ValueError(name)


def _check_pin(pin: Mapping[str, Any], files: Mapping[str, Any]) -> None:
    for key in ("upstream", "ref", "source", "commit"):
        if not isinstance(pin[key], str):
            raise ValueError("pins")
    if pin.get("tag") and not re.fullmatch("[0-9a-f]{40}", pin["tag"]):
        raise ValueError("pins")
    if pin["source"] == "git" and f"packs/{pin['upstream']}.pack" not in files:
        raise ValueError(f"no pack of {pin['upstream']}")


_FOLDERS = ("project", "archives", "packs")


def _copy(data: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        while chunk := data.read(_CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()
