"""Fetch pins into the store: from git by commit, or from a release archive.

Each pin becomes one commit under ``refs/patchq/base/<source>/<upstream>/<ref>`` in ``.patchq/store.git``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from patchq.errors import SourceError, UserError, nearest
from patchq.formats.lock import Lock, Pin
from patchq.git.repository import Foreign, Git, init_store
from patchq.git.transport import (
    Unreachable,
    commit_named,
    fetch_commit,
    fetch_commits,
    fetch_tag,
    remote_commit,
    remote_refs,
)
from patchq.names import CommitId, sh
from patchq.sources.bases import Base, base_ref, hash_ref, have_base
from patchq.sources.folders import folder_commit, git_source, is_repository, keep_folder, local_folder, local_path
from patchq.system import fsio, project_files
from patchq.system.paths import Layout, cache_folder, check_ref, ref_component
from patchq.system.progress import Progress

Say = Callable[[str], None]
REACH_TIMEOUT = 20.0


class Fetcher:
    """Fetcher of a lock's pins into the store."""

    def __init__(
        self,
        layout: Layout,
        lock: Lock,
        *,
        say: Say,
        offline: bool = False,
        source: str = "",
        progress: Progress | None = None,
    ) -> None:
        self.layout, self.lock, self.say = layout, lock, say
        self.offline, self.source, self.progress = offline, source, progress
        self.store = init_store(layout.store)
        self._unreachable: dict[str, str] = {}
        self._told: dict[str, Unreachable] = {}

    def fetch(self, pins: Iterable[Pin]) -> list[Base]:
        """Fetch every pin that isn't in the store, and return the bases of all pins.

        :raises SourceError: if no source provides a pin.
        """
        refs = self.store.refs("refs/patchq/base", "refs/patchq/archive")
        pins, bases = list(pins), []
        wanted = []
        for p in pins:
            if self.source or not have_base(self.store, p, refs):
                wanted.append(p)
        self._together(wanted)
        kept = self._keep_all(wanted, refs)
        for pin in pins:
            base = None
            if not self.source:
                base = have_base(self.store, pin, refs)
            if base and base.source == "git":
                self._check_signature(pin)
            bases.append(base or kept.get(base_ref(pin, "git")) or self._fetch(pin))
        return bases

    def _keep_all(self, pins: Sequence[Pin], refs: Mapping[str, str]) -> dict[str, Base]:
        """Create the bases of pins whose commits are already in the store, and return them by ref.

        One check of several pins is faster than one check per pin.
        """
        wanted = []
        for p in pins:
            if p.commit and p.url and (self.source or p.source) != "archive":
                wanted.append(p)
        if len(wanted) > 1:
            here = self.store.commits_here(p.commit for p in wanted if p.commit)
        else:
            here = set()
        whole = [p for p in wanted if p.commit in here]
        if not whole or not self.store.is_whole(here):
            return {}
        for pin in whole:
            self._check_signature(pin)
        kept = {}
        for p in whole:
            if p.commit:
                kept[base_ref(p, "git")] = Base(p, p.commit, "git")
        self.store.update_refs([(ref, refs.get(ref), base.commit) for ref, base in kept.items()])
        return kept

    def again(self, pin: Pin) -> Base:
        """Fetch a pin again, because parts of it are missing in the store."""
        have = have_base(self.store, pin, self.store.refs("refs/patchq/base", "refs/patchq/archive"))
        if (have and have.source == "archive") or not pin.commit:
            return self._from_archive(pin)
        return self._from_git(pin, again=True)

    def _together(self, pins: Sequence[Pin]) -> None:
        """Fetch the commits of each repository over a single connection.

        Commits that can't be fetched together are fetched one by one later.
        """
        by_url: dict[str, list[Pin]] = {}
        if not self.offline and self.source != "archive":
            asked = pins
        else:
            asked = ()
        here = self.store.commits_here(p.commit for p in asked if p.commit)
        for pin in asked:
            if pin.source != "archive" and pin.commit and pin.url and pin.commit not in here:
                by_url.setdefault(pin.url, []).append(pin)
        for wanted in by_url.values():
            folder = local_folder(self.layout, wanted[0].url)
            if len(wanted) == 1 or (folder and not is_repository(folder)):
                continue
            if folder:
                url = str(folder)
            else:
                url = wanted[0].url
            try:
                remote_commit(url, wanted[0].ref, timeout=REACH_TIMEOUT)
            except Unreachable as error:
                self._told[_host(url)] = error
                continue
            self.say(f"{wanted[0].upstream}: fetching {len(wanted)} refs from {url}")
            if fetch_commits(self.store, url, list(dict.fromkeys(p.commit for p in wanted if p.commit))):
                self.store.join_packs()

    def _fetch(self, pin: Pin) -> Base:
        source = self.source or pin.source
        if source != "archive" and pin.commit and pin.url:
            begun = self.store.ref_or_none(pin.commit)
            if begun and self.store.is_whole([pin.commit]):
                self._check_signature(pin)
                return self._keep_git(pin)
            if not self.offline:
                try:
                    # A killed fetch may have left an incomplete commit.
                    return self._from_git(pin, again=bool(begun))
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
        if folder:
            url = str(folder)
        else:
            url = pin.url
        if folder and not folder.is_dir():
            raise Unreachable(
                f"{pin.upstream} {pin.ref} comes from {folder}, which doesn't exist",
                hint=f"restore the folder, or `patchq pin {pin.upstream} --url … --ref {sh(pin.ref)}`",
            )
        if folder and not is_repository(folder):
            self.say(f"{pin.upstream}: reading the files in {folder}")
            commit = folder_commit(self.layout, self.store, folder, pin, self.skip(pin))
            if commit != pin.commit or keep_folder(self.store, folder, pin, self.skip(pin)) != commit:
                raise SourceError(
                    f"{folder} has changed since it was pinned: its files give {commit}, but the lock has {pin.commit}",
                    hint=f"`patchq pin {pin.upstream} --url {sh(pin.url)} --ref {sh(pin.ref)}` pins the new files",
                )
            return self._keep_git(pin)
        host = _host(url)
        if error := self._told.pop(host, None):
            self._unreachable[host] = f"{host} didn't answer"
            raise error
        if host in self._unreachable:
            raise Unreachable(f"{url} can't be reached ({self._unreachable[host]})", hint="")
        try:
            remote_commit(url, pin.ref, timeout=REACH_TIMEOUT)
        except Unreachable:
            self._unreachable[host] = f"{host} didn't answer"
            raise
        self.say(f"{pin.upstream}: fetching {pin.ref} from {url}")
        fetch_commit(self.store, url, pin.commit, pin.ref, again=again)
        if not again:  # a store under repair may lack objects that its refs name
            self.store.join_packs()
        self._check_signature(pin)
        return self._keep_git(pin)

    def _check_signature(self, pin: Pin) -> None:
        """Check the signature of a pin from git before the pin is used. Do nothing if no keyring is configured."""
        upstream = self.lock.upstreams.get(pin.upstream)
        if not upstream or not upstream.keyring or not pin.commit:
            return
        checked = _signed_ref(self.layout.root, self.layout.root / upstream.keyring, pin)
        if self.store.refs(checked).get(checked) == pin.commit:
            return
        if signed := check_signature(self.layout, self.lock, self.store, pin, offline=self.offline):
            self.say(f"{pin.upstream} {pin.ref}: {signed}")
            self.store.run("update-ref", checked, pin.commit)

    def _from_archive(self, pin: Pin) -> Base:
        from patchq.sources.archive import import_archive

        path = self.archive_file(pin)
        if (upstream := self.lock.upstreams.get(pin.upstream)) and upstream.keyring:
            self.say(f"{pin.upstream}: an archive has no signature for the keyring; only its hash was checked")
        self.say(f"{pin.upstream}: importing {pin.archive}" + (f", {pin.subdir}" if pin.subdir else ""))
        commit = import_archive(self.store, path, pin, skip=self.skip(pin), say=self.say, progress=self.progress)
        self.store.update_refs(
            [
                (base_ref(pin, "archive"), self.store.ref_or_none(base_ref(pin, "archive")), commit),
                (hash_ref(pin), self.store.ref_or_none(hash_ref(pin)), commit),
            ]
        )
        return Base(pin, commit, "archive")

    def skip(self, pin: Pin) -> list[str]:
        """Return the paths in the pin's archive that belong to nested upstreams."""
        return list(self.lock.nested_in(pin.upstream))

    def archive_file(self, pin: Pin) -> Path:
        """Return the path of the pin's archive file, after checking its hash.

        :raises SourceError: if the archive can't be found, or if its hash differs.
        """
        return archive_file(self.layout, pin, offline=self.offline, progress=self.progress)


def _host(url: str) -> str:
    if "://" in url:
        return url.split("/")[2]
    return url


def tag_ref(pin: Pin) -> str:
    """Return the store's ref for the signed tag object that a pin names."""
    return f"refs/patchq/tag/{pin.upstream}/{ref_component(pin.ref)}"


def _signed_ref(root: Path, keys: Path, pin: Pin) -> str:
    """Return the ref whose existence means that a pin's signature was verified with the keyring's present content."""
    digest = hashlib.sha256(project_files.read(root, keys) or b"").hexdigest()
    return f"refs/patchq/signed/{digest}/{pin.upstream}/{ref_component(pin.ref)}"


def check_signature(layout: Layout, lock: Lock, store: Git, pin: Pin, *, offline: bool = False) -> str:
    """Return the signer of a pin's tag or commit; empty if no keyring is configured.

    :param offline: True to use only the tag that is already in the store.
    :raises SourceError: if there is no signature, or if it was made with a key that isn't in the keyring.
    """
    from patchq.sources import _keyring

    upstream = lock.upstreams.get(pin.upstream)
    if not upstream or not upstream.keyring or not pin.commit:
        return ""
    url = git_source(layout, pin.url)
    if not store.ref_or_none(pin.commit) and not offline:
        fetch_commit(store, url, pin.commit, pin.ref)
    tag = fetch_tag(store, url, pin.ref, tag_ref(pin), offline=offline)
    try:
        return _keyring.verify(store, pin.commit, pin.ref, tag, layout.root, layout.root / upstream.keyring)
    except SourceError as error:
        if offline and not tag:
            raise SourceError(
                f"{error.message}; if {pin.ref} is a tag, it may be signed, but --offline forbids fetching it",
                hint="run `patchq fetch` without --offline",
            ) from None
        raise


def is_local_archive(archive: str) -> bool:
    """Return True if an ``archive`` value in the lock is a path, not ``PROJECT==VERSION``."""
    return "==" not in archive


def archive_file(layout: Layout, pin: Pin, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Return the path of a pin's archive file; see :meth:`Fetcher.archive_file`."""
    from patchq.sources import index

    if is_local_archive(pin.archive):
        path = local_path(layout, pin.archive)
        if not path.is_file():
            raise SourceError(
                f"the archive {path} doesn't exist", hint="restore the archive, or pin another one with `patchq pin`"
            )
        found = fsio.sha256_file(path)
        if found != pin.sha256:
            raise SourceError(
                f"{path.name} has SHA-256 {found}, but the lock has {pin.sha256}; nothing was imported",
                hint="find out why the file differs before you use it; `patchq pin` accepts the new hash",
            )
        return path
    if have := index.cached(pin.sha256):
        return have
    if offline:
        raise SourceError(
            f"{pin.archive} is not in the cache ({cache_folder()}), and --offline forbids fetching it",
            hint="run `patchq fetch` without --offline",
        )
    project, _, version = pin.archive.partition("==")
    return index.download(index.find_sdist(project, version), pin.sha256, progress)


# Pinning


class Hosts:
    """Cache of the refs of git hosts. Each URL is queried once for all threads of a command."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, CommitId] | Unreachable] = {}
        self._lock = threading.Lock()

    def refs(self, url: str) -> dict[str, CommitId]:
        """Return all refs of the repository at ``url``.

        :raises Unreachable: if the host doesn't answer.
        """
        with self._lock:
            if url not in self._told:
                try:
                    self._told[url] = remote_refs(url, timeout=REACH_TIMEOUT)
                except Unreachable as error:
                    self._told[url] = error
        output = self._told[url]
        if isinstance(output, Unreachable):
            raise Unreachable(output.message, hint=output.hint)
        return output


def pin_git(
    layout: Layout, store: Git, pin: Pin, *, skip: Collection[str] = (), hosts: Hosts | None = None, keep: bool = False
) -> CommitId:
    """Return the commit to which ``pin.ref`` at ``pin.url`` points now.

    For a plain folder, return the commit of its files.

    :param hosts: cache of the hosts' responses.
    :param keep: True to import a plain folder's files into the store. Use this only if the user has requested
        the pin.
    :raises UserError: if the ref or the folder doesn't exist.
    :raises Unreachable: if the host doesn't answer.
    """
    folder = local_folder(layout, pin.url)
    if folder and not folder.is_dir():
        raise UserError(f"the folder {folder} doesn't exist", hint="check --url")
    if folder and not is_repository(folder):
        there = folder_commit(layout, store, folder, pin, skip)
        if keep:
            return keep_folder(store, folder, pin, skip)
        return there
    if folder:
        url = str(folder)
    else:
        url = pin.url
    check_ref(pin.ref, "a ref")
    refs = (hosts or Hosts()).refs(url)
    commit = commit_named(refs, pin.ref)
    if commit is None and pin.ref == pin.commit:
        return pin.commit  # the ref is a commit id, which hosts don't list
    if commit is None and folder:
        commit = Foreign(folder).ref_or_none(pin.ref)
    if commit is None:
        names = [r.split("/", 2)[2].removesuffix("^{}") for r in refs if r.startswith(("refs/tags/", "refs/heads/"))]
        listing = f"`git ls-remote {sh(url)}` lists its refs"
        near = nearest(pin.ref, names)
        raise UserError(f"{url} has no tag or branch {pin.ref!r}", hint=f"{near} {listing}" if near else listing)
    return commit
