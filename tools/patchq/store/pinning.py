"""Commands ``pin`` and ``fetch``: resolve pins, write them to the lock, and fetch them into the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from patchq.errors import PatchqError, SourceError, UserError
from patchq.formats.lock import BuildConfig, Pin, Upstream
from patchq.formats.lock import parse as parse_lock
from patchq.formats.lockedit import with_pin
from patchq.git.transport import Unreachable
from patchq.names import CommitId, sh
from patchq.project.journal import Change
from patchq.project.project import Project
from patchq.project.stack import Stack, load_stack
from patchq.sources import index
from patchq.sources.archive import members, opened_archive
from patchq.sources.bases import Base
from patchq.sources.packages import guess_build
from patchq.sources.pins import Fetcher, archive_file, check_signature, is_local_archive, pin_git
from patchq.store._heal import repair_objects, repair_records
from patchq.system import fsio, project_files
from patchq.system.paths import LOCK_NAME, check_name


def fetch(
    project: Project,
    names: Sequence[str],
    *,
    set_name: str = "",
    every: bool = False,
    source: str = "",
    offline: bool = False,
) -> list[Base]:
    """Fetch the pins of a set, or all pins, into the store, and repair the store."""
    with project.locked("fetch"):
        for line in repair_records(project):
            project.say(line)
        if every:
            pins: list[Pin] = []
            for upstream in project.lock.upstreams.values():
                pins += upstream.pins.values()
        else:
            pins = project.lock.pins_of(project.choose_set(set_name))
        project.check_names(pins, names, set_name or project.lock.default_set)
        fetcher = Fetcher(
            project.layout, project.lock, say=project.say, offline=offline, source=source, progress=project.progress
        )
        if names:
            pins = [item for item in pins if item.upstream in names]
        bases = fetcher.fetch(pins)
        for line in repair_objects(project, bases, fetcher.again):
            project.say(line)
        return bases


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Result of ``pin``.

    :ivar was: previous pin of the same ref, if there was one.
    :ivar set_was: previous ref of the upstream in the set; empty if there was none.
    :ivar left: stack of another ref whose patches the new ref lacks; None if the new ref's stack has patches.
    """

    pin: Pin
    was: Pin | None
    set_name: str
    set_was: str
    left: Stack | None = None

    @property
    def moved(self) -> list[tuple[str, str, str]]:
        """Changed values, each as a name, the old value and the new value."""
        pairs = [(f"the ref of {self.set_name}", self.set_was, self.pin.ref)]
        if self.was:
            pairs += [
                ("url", self.was.url, self.pin.url),
                ("commit", self.was.commit or "", self.pin.commit or ""),
                ("archive", self.was.archive, self.pin.archive),
                ("sha256", self.was.sha256, self.pin.sha256),
                ("subdir", self.was.subdir, self.pin.subdir),
            ]
            wheels = sorted({*self.was.wheels, *self.pin.wheels})
            pairs += [(name, self.was.wheels.get(name, ""), self.pin.wheels.get(name, "")) for name in wheels]
        found: list[tuple[str, str, str]] = []
        for what, old, new in pairs:
            if old != new and old:
                found.append((what, old, new))
        return found


def pin(
    project: Project,
    name: str,
    *,
    ref: str,
    url: str = "",
    commit: str = "",
    archive: str = "",
    subdir: str = "",
    into: str = "",
    set_name: str = "",
) -> Pinned:
    """Resolve a pin, write it to the lock, and return the new and the previous pin.

    :param commit: expected commit. It isn't verified if the host can't be reached.
    :raises SourceError: if a source is unavailable or contradicts ``commit``.
    """
    check_name(name, "an upstream")
    with project.locked("pin"):
        old = project.lock.upstreams.get(name)
        url = url or (old.url if old else "")
        if old and not into:
            nested = old.into
        else:
            nested = _split_into(into)
        if not url and not archive:
            project_name = name
            for pinned in old.pins.values() if old else ():
                if "==" in pinned.archive:
                    project_name = pinned.archive.partition("==")[0]
            release = f"{project_name}=={_version_in(ref)}"
            raise UserError(
                f"{ref} of {name} has neither a git source nor an archive",
                hint=f"`patchq pin {name} --archive {sh(release)} --ref {sh(ref)}` pins the release of the package "
                "index; --url names a git repository",
            )
        draft = Pin(
            upstream=name,
            ref=ref,
            url=url,
            commit=CommitId(commit) if commit else None,
            archive=archive,
            sha256="",
            subdir=subdir,
        )
        found, asked = _commit(project, draft)
        if archive and nested and not subdir and _same_archive(project, nested[0], archive):
            subdir = nested[1]
        if old and old.keyring:
            message = ""
            if asked:
                message = check_signature(project.layout, project.lock, project.store, replace(draft, commit=found))
            unchecked = "no signature was checked: only a git source has signatures, and git was not used"
            project.say(f"{name} {ref}: {message or unchecked}")
        if archive:
            sha256, wheels = _archive(project, replace(draft, subdir=subdir))
        else:
            sha256, wheels = ("", {})
        set_name = set_name or project.lock.default_set or "default"
        check_name(set_name, "a set")
        done = Pin(
            upstream=name,
            ref=ref,
            url=url,
            commit=found,
            archive=archive,
            sha256=sha256,
            subdir=subdir,
            source="",
            wheels=wheels,
        )
        was = None
        if old:
            was = old.pins.get(ref)
        set_was = project.lock.sets.get(set_name, {}).get(name, "")
        before = project_files.read(project.layout.root, project.layout.lock) or b""
        known = old is not None and (
            old.build is not None or old.into is not None or any(pin.archive for pin in old.pins.values())
        )
        build = None
        if not known:
            build = _infer_build(project, done)
        after = with_pin(before, Upstream(name=name, url=url, into=nested, build=build), done, set_name)
        parse_lock(after)
        change = Change(verb="pin", summary=f"pin {name} {ref}", files={LOCK_NAME: after})
        project.journal.perform(change)
    project.__dict__.pop("lock", None)
    left = _stack_left(project, done, set_was)
    return Pinned(pin=done, was=was, set_name=set_name, set_was=set_was, left=left)


def _stack_left(project: Project, done: Pin, set_was: str) -> Stack | None:
    """Return the first stack of another ref that has patches, if the newly pinned ref has no patches.

    The refs are searched in this order: the set's previous ref, the default set's ref, then all refs in the lock, last
    one first.

    :returns: the stack; None if the new ref's stack has patches, or if no other ref's stack has patches.
    """
    lock = project.lock
    if load_stack(project.layout, done).names:
        return None
    pins = lock.upstreams[done.upstream].pins
    for ref in (set_was, lock.sets.get(lock.default_set, {}).get(done.upstream), *reversed(list(pins))):
        if ref and ref != done.ref:
            stack = load_stack(project.layout, pins[ref])
            if stack.names:
                return stack
    return None


def _version_in(ref: str) -> str:
    """Return a ref without the prefixes ``release/`` and ``v``: ``v1.2`` gives ``1.2``."""
    return ref.removeprefix("release/").removeprefix("v")


def _split_into(into: str) -> tuple[str, str] | None:
    parent, _, path = into.partition(":")
    if into:
        return (parent, path)
    return None


def _same_archive(project: Project, parent: str, archive: str) -> bool:
    """Return True if an archive is a release of the parent upstream, and therefore contains the nested tree."""
    upstream = project.lock.upstreams.get(parent)
    if not upstream:
        return False
    project_name = archive.partition("==")[0]
    return any(pin.archive.partition("==")[0] == project_name for pin in upstream.pins.values())


def _commit(project: Project, draft: Pin) -> tuple[CommitId | None, bool]:
    """Return the commit of a pin, and True if the pin's git source has confirmed the commit."""
    if not draft.url:
        return draft.commit, False
    try:
        nested = project.lock.nested_in(draft.upstream)
        found = pin_git(project.layout, project.store, draft, skip=nested, keep=True)
    except Unreachable as error:
        if draft.commit:
            project.say(f"{draft.upstream}: {error.message}; commit {draft.commit} is recorded without a check")
            return draft.commit, False
        if draft.archive:
            project.say(f"{draft.upstream}: {error.message}; pinned by its archive alone")
            return None, False
        raise Unreachable(
            error.message, hint="name the commit with --commit, and an archive to fetch with --archive"
        ) from None
    if draft.commit and found != draft.commit:
        raise SourceError(
            f"{draft.upstream}: in the source, {draft.ref} is {found}, not {draft.commit}",
            hint="leave --commit out to pin the commit that the source has",
        )
    return found, True


def _archive(project: Project, draft: Pin) -> tuple[str, dict[str, str]]:
    if is_local_archive(draft.archive):
        path = project.layout.root / draft.archive
        if not path.is_file():
            raise UserError(
                f"the archive {path} doesn't exist",
                hint="--archive takes a release, such as `httpx==0.28.1`, or the path of a tar file",
            )
        return fsio.sha256_file(path), {}
    name, _, version = draft.archive.partition("==")
    sdist = index.find_sdist(name, version)
    wheels = {w.name: w.sha256 for w in index.find_wheels(name, version) if w.sha256}
    if draft.subdir:
        wheels = {}  # the wheels belong to the surrounding project
    return sdist.sha256 or fsio.sha256_file(index.download(sdist, "")), wheels


def _infer_build(project: Project, pin: Pin) -> BuildConfig | None:
    """Guess the build settings of an upstream from the package folders in its release archive.

    Return None for a pin that has no release wheels, that names a subfolder, or whose archive is a local file.
    """
    if not pin.wheels or pin.subdir or is_local_archive(pin.archive):
        return None
    distribution = pin.archive.partition("==")[0]
    paths: list[bytes] = []
    names: set[str] = set()
    path = archive_file(project.layout, pin)
    with path.open("rb") as file, opened_archive(file, path.name) as tar:
        for member in members(tar, path.name):
            paths.append(member.path)
            is_list = member.path.rpartition(b"/")[2] == b"top_level.txt"
            if is_list and not isinstance(member.data, bytes) and member.size < 4096:
                for line in member.data.read().decode("utf-8", "replace").split():
                    if line.isidentifier():
                        names.add(line)
    build = guess_build(distribution, paths, names, released=True)
    how = "from source"
    if build.profile == "overlay":
        how = "from the release's own wheels"
    project.say(f"{pin.upstream}: wheels of {distribution}, package {build.package}, are built {how} (upstream.lock)")
    return build


@dataclass(frozen=True, slots=True, kw_only=True)
class PinCheck:
    """Result of checking one source of a pin. ``ok`` is None if the source can't be reached."""

    pin: str
    source: str
    ok: bool | None
    message: str


def check_pins(project: Project, names: Sequence[str] = ()) -> list[PinCheck]:
    """Compare every source of every pin with the lock."""
    found = []
    for upstream in project.lock.upstreams.values():
        for item in upstream.pins.values() if not names or upstream.name in names else ():
            label = f"{item.upstream} {item.ref}"
            if item.url and item.commit:
                found.append(_check_git(project, item, label))
                if upstream.keyring and found[-1].ok:
                    found.append(_check_signed(project, item, label))
            if item.archive:
                try:
                    path = archive_file(project.layout, item)
                    found.append(
                        PinCheck(pin=label, source="archive", ok=True, message=f"{path.name} has the locked hash")
                    )
                except PatchqError as error:
                    found.append(PinCheck(pin=label, source="archive", ok=False, message=error.message))
    return found


def _check_git(project: Project, item: Pin, label: str) -> PinCheck:
    try:
        now = pin_git(project.layout, project.store, item, skip=project.lock.nested_in(item.upstream))
    except Unreachable as error:
        return PinCheck(pin=label, source="git", ok=None, message=f"not checked: {error.message}")
    except PatchqError as error:
        return PinCheck(pin=label, source="git", ok=False, message=error.message)
    if now == item.commit:
        return PinCheck(pin=label, source="git", ok=True, message=f"{item.ref} is still {now}")
    return PinCheck(
        pin=label, source="git", ok=False, message=f"{item.ref} moved: the lock has {item.commit}, the source has {now}"
    )


def _check_signed(project: Project, item: Pin, label: str) -> PinCheck:
    try:
        message = check_signature(project.layout, project.lock, project.store, item)
    except PatchqError as error:
        return PinCheck(pin=label, source="signature", ok=False, message=error.message)
    return PinCheck(pin=label, source="signature", ok=True, message=message)
