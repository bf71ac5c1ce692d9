"""Pins into the store: from git by commit, or from a release archive as a deterministic commit.

Whatever the source, a pin ends as one commit under ``refs/patchq/base/<upstream>/<ref>`` in
``.patchq/store.git``. An archive's commit has a fixed author and date and a message made of the
pin alone, so that its id is the same on every machine.
"""

from __future__ import annotations

import hashlib
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from patchq import fsio, index, keyring, runner
from patchq.diff import EXECUTABLE, REGULAR, SYMLINK, is_tree_path
from patchq.errors import FormatError, SourceError, UserError
from patchq.git import Git, Unreachable, fetch_commit, fetch_tag, init_store, remote_commit
from patchq.header import Ident
from patchq.lock import Lock, Pin
from patchq.paths import Layout, ref_to_folder
from patchq.types import CommitId, show_path

Say = Callable[[str], None]
#: Nothing that a source archive needs; what a bomb is made of.
MAX_MEMBER, MAX_TOTAL, MAX_MEMBERS = 2 << 30, 16 << 30, 2_000_000
_AUTHOR = b"patchq <patchq@localhost> 946684800 +0000"
REACH_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Base:
    """A pin in the store. ``source`` is ``git`` or ``archive``."""

    pin: Pin
    commit: CommitId
    source: str


def base_ref(pin: Pin, source: str) -> str:
    """Where the store keeps a pin: per source, since an archive may lack files that git has."""
    return f"refs/patchq/base/{source}/{pin.upstream}/{_ref_component(pin.ref)}"


def _ref_component(ref: str) -> str:
    return ref_to_folder(ref).replace("..", "%2E%2E")


def have_base(store: Git, pin: Pin, refs: Mapping[str, str]) -> Base | None:
    """The pin as the store has it, or None. ``refs`` are the store's refs.

    A base that was fetched for another commit or archive hash than the lock has now isn't it.
    """
    for source in ("git", "archive"):
        if pin.source in ("", source):
            found = refs.get(base_ref(pin, source))
            if found and (source == "git" and found == pin.commit):
                return Base(pin, CommitId(found), source)
            if found and source == "archive" and refs.get(_hash_ref(pin)) == found:
                return Base(pin, CommitId(found), source)
    return None


def _hash_ref(pin: Pin) -> str:
    """Says which archive a base was imported from, so that a re-pinned one is fetched again."""
    return f"refs/patchq/archive/{pin.sha256}/{pin.upstream}"


class Fetcher:
    """Brings the pins of a lock into the store."""

    def __init__(
        self,
        layout: Layout,
        lock: Lock,
        *,
        say: Say,
        offline: bool = False,
        source: str = "",
        progress: index.Progress | None = None,
    ) -> None:
        self.layout, self.lock, self.say = layout, lock, say
        self.offline, self.source, self.progress = offline, source, progress
        self.store = init_store(layout.store)
        self._unreachable: dict[str, str] = {}

    def fetch(self, pins: Iterable[Pin]) -> list[Base]:
        """Bring every pin that isn't there yet.

        :raises SourceError: if a pin can be had from none of its sources.
        """
        refs = self.store.refs("refs/patchq/base", "refs/patchq/archive")
        bases = []
        for pin in pins:
            base = None if self.source else have_base(self.store, pin, refs)
            if base and base.source == "git":
                self._check_signature(pin)
            bases.append(base or self._fetch(pin))
        return bases

    def again(self, pin: Pin) -> Base:
        """Bring a pin that the store has, since it lacks parts of it."""
        have = have_base(self.store, pin, self.store.refs("refs/patchq/base", "refs/patchq/archive"))
        if (have and have.source == "archive") or not pin.commit:
            return self._from_archive(pin)
        return self._from_git(pin, again=True)

    def _fetch(self, pin: Pin) -> Base:
        source = self.source or pin.source
        if source != "archive" and pin.commit and pin.url:
            if self.store.ref_or_none(pin.commit):
                self._check_signature(pin)
                return self._keep_git(pin)
            if not self.offline:
                try:
                    return self._from_git(pin)
                except Unreachable as error:
                    if not pin.archive or source == "git":
                        raise
                    self.say(f"{pin.upstream}: {error.message}; using the archive {pin.archive}")
        if source == "git" or not pin.archive:
            raise SourceError(
                f"{pin.upstream} {pin.ref} is not in the store"
                + (", and --offline forbids fetching it" if self.offline else " and has no archive"),
                hint="run `patchq fetch` without --offline" if self.offline else "add one: `patchq pin … --archive`",
            )
        return self._from_archive(pin)

    def _keep_git(self, pin: Pin) -> Base:
        assert pin.commit
        self.store.run("update-ref", base_ref(pin, "git"), pin.commit)
        return Base(pin, pin.commit, "git")

    def _from_git(self, pin: Pin, *, again: bool = False) -> Base:
        assert pin.commit
        folder = local_folder(self.layout, pin.url)
        url = str(folder) if folder else pin.url
        if folder and not is_repository(folder):
            commit = import_folder(self.store, folder, pin, skip=self.skip(pin))
            if commit != pin.commit:
                raise SourceError(
                    f"{folder} has changed since it was pinned: its files give {commit}, the lock has {pin.commit}",
                    hint=f"`patchq pin {pin.upstream} --url {pin.url} --ref {pin.ref}` pins what is there now",
                )
            return self._keep_git(pin)
        host = url.split("/")[2] if "://" in url else url
        if host in self._unreachable:
            raise Unreachable(f"{url} can't be reached ({self._unreachable[host]})", hint="")
        try:
            remote_commit(url, pin.ref, timeout=REACH_TIMEOUT)
        except Unreachable:
            self._unreachable[host] = f"{host} didn't answer"
            raise
        self.say(f"{pin.upstream}: fetching {pin.ref} from {url}")
        fetch_commit(self.store, url, pin.commit, pin.ref, again=again)
        self._check_signature(pin)
        return self._keep_git(pin)

    def _check_signature(self, pin: Pin) -> None:
        """Where a keyring is configured, nothing of git's is used before its signature was checked by that keyring."""
        upstream = self.lock.upstreams.get(pin.upstream)
        if not upstream or not upstream.keyring or not pin.commit:
            return
        checked = _signed_ref(self.layout.root / upstream.keyring, pin)
        if self.store.refs(checked).get(checked) == pin.commit:
            return
        if signed := check_signature(self.layout, self.lock, self.store, pin):
            self.say(f"{pin.upstream} {pin.ref}: {signed}")
            self.store.run("update-ref", checked, pin.commit)

    def _from_archive(self, pin: Pin) -> Base:
        path = self.archive_file(pin)
        if (upstream := self.lock.upstreams.get(pin.upstream)) and upstream.keyring:
            self.say(f"{pin.upstream}: an archive carries no signature for the keyring; its hash is what was checked")
        self.say(f"{pin.upstream}: importing {pin.archive}" + (f", {pin.subdir}" if pin.subdir else ""))
        commit = import_archive(self.store, path, pin, skip=self.skip(pin))
        self.store.update_refs(
            [(base_ref(pin, "archive"), self.store.ref_or_none(base_ref(pin, "archive")), commit),
             (_hash_ref(pin), self.store.ref_or_none(_hash_ref(pin)), commit)]
        )  # fmt: skip
        return Base(pin, commit, "archive")

    def skip(self, pin: Pin) -> list[str]:
        """Paths of the pin's archive that belong to upstreams nested in it."""
        return list(self.lock.nested_in(pin.upstream))

    def archive_file(self, pin: Pin) -> Path:
        """The pin's archive on disk, its hash checked.

        :raises SourceError: if it can't be had or is another file.
        """
        return archive_file(self.layout, pin, offline=self.offline, progress=self.progress)


def _signed_ref(keys: Path, pin: Pin) -> str:
    """Says that a pin's signature was checked, by a keyring with this content."""
    digest = hashlib.sha256(fsio.read_or_none(keys) or b"").hexdigest()
    return f"refs/patchq/signed/{digest}/{pin.upstream}/{_ref_component(pin.ref)}"


def check_signature(layout: Layout, lock: Lock, store: Git, pin: Pin) -> str:
    """Who signed a pin's tag or commit, by its upstream's keyring; empty where none is configured.

    :raises SourceError: if nobody whose key is in the keyring did.
    """
    upstream = lock.upstreams.get(pin.upstream)
    folder = local_folder(layout, pin.url)
    if not upstream or not upstream.keyring or not pin.commit:
        return ""
    url = str(folder) if folder else pin.url
    if not store.ref_or_none(pin.commit):
        fetch_commit(store, url, pin.commit, pin.ref)
    tag = fetch_tag(store, url, pin.ref, f"refs/patchq/tag/{pin.upstream}/{_ref_component(pin.ref)}")
    return keyring.verify(store, pin.commit, pin.ref, tag, layout.root / upstream.keyring)


def local_folder(layout: Layout, url: str) -> Path | None:
    """The folder that a URL names, if it names one on this machine."""
    if url.startswith("file://"):
        return Path(url[7:])
    if "://" in url or (":" in url.split("/")[0]):
        return None
    return (layout.root / Path(url).expanduser()).resolve()


def is_repository(folder: Path) -> bool:
    """Whether git can fetch from this folder."""
    return (folder / ".git").exists() or ((folder / "HEAD").exists() and (folder / "objects").is_dir())


def is_local_archive(archive: str) -> bool:
    """Whether an archive is named by its path rather than as ``PROJECT==VERSION``."""
    return "==" not in archive


def archive_file(layout: Layout, pin: Pin, *, offline: bool = False, progress: index.Progress | None = None) -> Path:
    """See :meth:`Fetcher.archive_file`."""
    if is_local_archive(pin.archive):
        path = (layout.root / Path(pin.archive).expanduser()).resolve()
        if not path.is_file():
            raise SourceError(f"the archive {path} is not there", hint="put it there, or `patchq pin` another")
        found = fsio.sha256_file(path)
        if found != pin.sha256:
            raise SourceError(
                f"{path.name} has SHA-256 {found}, the lock says {pin.sha256}; nothing was imported",
                hint="don't use this file before you know why; `patchq pin` re-pins on purpose",
            )
        return path
    if have := index.cached(pin.sha256):
        return have
    if offline:
        raise SourceError(
            f"{pin.archive} is not in the cache ({index.cache_folder()}), and --offline forbids fetching it",
            hint="run `patchq fetch` without --offline",
        )
    project, _, version = pin.archive.partition("==")
    return index.download(index.find_sdist(project, version), pin.sha256, progress)


# Trees as commits


@dataclass(frozen=True, slots=True)
class _Member:
    """A file to import: ``data`` is its content, or a symlink's target."""

    path: bytes
    mode: bytes
    size: int
    data: IO[bytes] | bytes


def import_archive(store: Git, path: Path, pin: Pin, *, skip: Iterable[str] = ()) -> CommitId:
    """Import a tar archive, streamed, as one deterministic commit; returns its id.

    The archive's one top folder is stripped; of ``pin.subdir`` only what is below it is taken;
    ``skip`` names folders that belong to nested upstreams.

    :raises FormatError: for a member that would land outside, a link out of the tree, a device,
        or a damaged archive. Nothing is imported then.
    """
    message = f"{pin.upstream} {pin.ref}\n\nImported from {pin.archive}\nsha256 {pin.sha256}\n"
    if pin.subdir:
        message += f"folder {pin.subdir}\n"
    try:
        with tarfile.open(path, "r|*") as tar:
            return _import(store, _tar_members(tar, path.name), message, pin.subdir, skip, path.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise FormatError(
            f"{path.name} is damaged: {error}; nothing was imported", hint="get the archive again"
        ) from None


def import_folder(store: Git, folder: Path, pin: Pin, *, skip: Iterable[str] = ()) -> CommitId:
    """Import a plain folder (no repository) as one deterministic commit; returns its id.

    :raises FormatError: as :func:`import_archive`.
    """
    message = f"{pin.upstream} {pin.ref}\n\nImported from a folder\n"
    return _import(store, _folder_members(folder), message, "", skip, str(folder))


def _import(
    store: Git, members: Iterator[_Member], message: str, subdir: str, skip: Iterable[str], where: str
) -> CommitId:
    ref = "refs/patchq/scratch/import"
    prefix = subdir.encode() + b"/" if subdir else b""
    skipped = tuple(s.encode() + b"/" for s in skip)
    body = message.encode()
    count = total = 0
    seen: set[bytes] = set()
    links: dict[bytes, bytes] = {}
    with fast_import(store) as out:
        out.write(
            b"commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n" % (ref.encode(), _AUTHOR, _AUTHOR, len(body), body)
        )
        for member in members:
            count, total = count + 1, total + member.size
            if member.size > MAX_MEMBER or total > MAX_TOTAL or count > MAX_MEMBERS:
                raise _refused(where, member.path, "the archive is larger than any source tree")
            if not is_tree_path(member.path):
                raise _refused(where, member.path, "would land outside, or in .git")
            if not member.path.startswith(prefix):
                continue
            path = member.path[len(prefix) :]
            if path.startswith(skipped):
                continue
            if path in seen:
                raise _refused(where, path, "is in it twice")
            seen.add(path)
            if member.mode == SYMLINK:
                links[path] = member.data if isinstance(member.data, bytes) else member.data.read()
            data = member.data if isinstance(member.data, bytes) else member.data.read()
            if len(data) != member.size:
                raise FormatError(
                    f"{where} is truncated at {show_path(path)}; nothing was imported", hint="get the archive again"
                )
            out.write(b"M %s inline %s\ndata %d\n" % (member.mode, quote_path(path), member.size))
            out.write(data)
            out.write(b"\n")
        _check_links(links, seen, where)
        if not seen:
            raise FormatError(
                f"{where} holds no files" + (f" below {subdir}" if subdir else ""), hint="check --archive and --subdir"
            )
        out.write(b"done\n")
    commit = store.ref_or_none(ref)
    assert commit
    store.run("update-ref", "-d", ref)
    return commit


@contextmanager
def fast_import(store: Git, *options: str) -> Iterator[IO[bytes]]:
    """A ``git fast-import`` to write to. Without a final ``done`` nothing is imported."""
    argv = ["git", "-c", "core.compression=1", "-c", "fastimport.unpackLimit=1", "fast-import",
            "--quiet", "--done", "--force", "--depth=1", "--date-format=raw", *options]  # fmt: skip
    packs = store.folder / "objects" / "pack"
    try:
        with runner.feed(argv, cwd=store.folder) as process:
            assert process.stdin
            yield process.stdin
    except BaseException:
        # A killed fast-import leaves its unfinished pack and a crash report.
        for rest in (*packs.glob("tmp_pack_*"), *store.folder.glob("fast_import_crash_*")):
            rest.unlink(missing_ok=True)
        raise


@contextmanager
def import_commits(store: Git, ref: bytes) -> Iterator[tuple[IO[bytes], dict[int, CommitId]]]:
    """A ``git fast-import`` of commits on a ref that doesn't stay, and their ids by mark, when all are written.

    No ref stays behind: objects that nobody names yet are all that a failure may leave.
    """
    ids: dict[int, CommitId] = {}
    with tempfile.TemporaryDirectory(prefix="patchq-") as folder:
        marks = Path(folder) / "marks"
        with fast_import(store, f"--export-marks={marks}") as out:
            yield out, ids
            out.write(b"reset %s\nfrom %s\n\ndone\n" % (ref, b"0" * 40))
        for line in marks.read_text().splitlines():
            mark, commit = line.split()
            ids[int(mark[1:])] = CommitId(commit)


def commit_start(ref: bytes, mark: int, author: Ident, message: str, parent: bytes) -> bytes:
    """What begins a commit for ``fast-import``; its committer is its author. ``parent`` is an id or a mark."""
    ident, text = author.line(), message.encode()
    head = b"commit %s\nmark :%d\nauthor %s\ncommitter %s\n" % (ref, mark, ident, ident)
    return head + b"data %d\n%s\nfrom %s\n" % (len(text), text, parent)


def quote_path(path: bytes) -> bytes:
    """A path as ``fast-import`` reads it."""
    if path.startswith(b'"') or b"\n" in path:
        return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    return path


def _refused(where: str, path: bytes, why: str) -> FormatError:
    return FormatError(
        f"{where}: {show_path(path)!r} {why}; nothing was imported",
        hint="don't use this archive before you know where it comes from",
    )


def _tar_members(tar: tarfile.TarFile, where: str) -> Iterator[_Member]:
    top: bytes | None = None
    for info in tar:
        name = info.name.encode("utf-8", "surrogateescape")
        if name.startswith(b"/") or b".." in name.split(b"/"):
            raise _refused(where, name, "would land outside")
        first, _, path = name.removeprefix(b"./").partition(b"/")
        if info.isdir():
            continue
        if top is None:
            top = first
        if first != top or not path:
            raise _refused(where, name, f"is not below the archive's one folder {show_path(top)!r}")
        if info.issym():
            target = info.linkname.encode("utf-8", "surrogateescape")
            yield _Member(path, SYMLINK, len(target), target)
        elif info.isreg():
            data = tar.extractfile(info)
            assert data
            yield _Member(path, EXECUTABLE if info.mode & 0o100 else REGULAR, info.size, data)
        else:
            raise _refused(where, name, "is neither a file nor a symbolic link")


def _folder_members(folder: Path) -> Iterator[_Member]:
    """Files in the order of their bytes, so that every machine gives the same commit."""
    import os

    def walk(at: bytes) -> Iterator[bytes]:
        for name in sorted(os.listdir(os.path.join(root, at))):
            if name == b".git":
                continue
            path = at + b"/" + name if at else name
            full = os.path.join(root, path)
            if os.path.isdir(full) and not os.path.islink(full):
                yield from walk(path)
            else:
                yield path

    root = os.fsencode(folder)
    for path in walk(b""):
        full = os.path.join(root, path)
        st = os.lstat(full)
        if stat.S_ISLNK(st.st_mode):
            target = os.readlink(full)
            yield _Member(path, SYMLINK, len(target), target)
        elif stat.S_ISREG(st.st_mode):
            with open(full, "rb") as file:
                yield _Member(path, EXECUTABLE if st.st_mode & 0o100 else REGULAR, st.st_size, file)
        else:
            raise _refused(str(folder), path, "is neither a file nor a symbolic link")


def _check_links(links: Mapping[bytes, bytes], files: Iterable[bytes], where: str) -> None:
    """No link leaves the tree, and no file lies below a link."""
    for path, target in links.items():
        landing = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith(b"/") or landing.startswith(b"../") or landing == b"..":
            raise _refused(where, path, f"is a link out of the tree, to {show_path(target)!r}")
    if links:
        below = tuple(link + b"/" for link in links)
        for path in files:
            if path.startswith(below):
                raise _refused(where, path, "would be written through a symbolic link")


# Pinning


def pin_git(layout: Layout, store: Git, pin: Pin, *, skip: Iterable[str] = ()) -> CommitId:
    """The commit that ``pin.ref`` names at ``pin.url`` now; of a plain folder, its files' commit.

    :raises UserError: if there is no such ref.
    :raises Unreachable: if the host doesn't answer.
    """
    folder = local_folder(layout, pin.url)
    if folder and not folder.is_dir():
        raise UserError(f"the folder {folder} is not there", hint="check --url")
    if folder and not is_repository(folder):
        return import_folder(store, folder, pin, skip=skip)
    url = str(folder) if folder else pin.url
    commit = remote_commit(url, pin.ref, timeout=REACH_TIMEOUT)
    if commit is None and pin.ref == pin.commit:
        return pin.commit  # a ref that is a commit id: hosts don't list those
    if commit is None and folder:
        commit = Git(folder).ref_or_none(pin.ref)
    if commit is None:
        raise UserError(f"{url} has no tag or branch {pin.ref!r}", hint=f"`git ls-remote {url}` lists what it has")
    return commit
