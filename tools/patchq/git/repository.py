"""Git, as patchq uses it: the command itself, and its bulk doors for data.

No library stands between: GitPython takes 0.1 s to import, is 20 times too slow for bulk data, and
tells neither a full disk nor a killed git apart from its own errors.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import SourceError
from patchq.formats.header import Ident
from patchq.names import BlobId, CommitId, TreeId
from patchq.system import runner

#: What patchq's own git calls never take from a user's configuration.
_PINNED = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "patchq",
    "GIT_COMMITTER_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_NAME": "patchq",
    "GIT_AUTHOR_EMAIL": "patchq@localhost",
    "GIT_AUTHOR_DATE": "946684800 +0000",
    "GIT_COMMITTER_DATE": "946684800 +0000",
}
#: A URL in a lock is data: no transport that runs a command (``ext::``).
#: A server that sends less than a kilobyte a second for a minute is given up, too.
_SAFE_TRANSPORTS = {
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_HTTP_LOW_SPEED_LIMIT": "1000",
    "GIT_HTTP_LOW_SPEED_TIME": "60",
}
#: Packs past which they become one.
MAX_PACKS = 50
#: What git says where the store lacks something, or holds something damaged.
_LOST = re.compile(
    r"bad object|unable to read|missing (?:blob|tree|commit)|is corrupt|could not (?:read|parse)|bad tree"
)
_MEND = "`patchq fetch` mends the store: what it lacks is brought or made again"
#: Conflicts show what the patch was written against, too; a new file goes where its folder went.
_MERGE_CONFIG = ("merge.conflictStyle=zdiff3", "merge.directoryRenames=true")
_DIFF_CONFIG = (
    "diff.renames=true",
    "diff.renameLimit=0",
    "diff.algorithm=myers",
    "diff.indentHeuristic=true",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.interHunkContext=0",
    "diff.suppressBlankEmpty=false",
    "core.quotePath=true",
    "core.attributesFile=/dev/null",
    "format.encodeEmailHeaders=true",
)


def blob_id(content: bytes) -> BlobId:
    """The id that git gives to a blob of these bytes."""
    return BlobId(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file of a tree."""

    mode: bytes
    blob: BlobId


@dataclass(frozen=True, slots=True)
class PathChange:
    """What differs between two trees at one path; None is no file."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What ``export`` needs to know of a commit."""

    commit: CommitId
    tree: TreeId
    parents: tuple[CommitId, ...]
    author: Ident
    message: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One side of a path that conflicts: 1 the base's, 2 ours, 3 theirs."""

    path: bytes
    entry: TreeEntry
    number: int


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge comes to. Where it conflicts (``stages``) the tree's files hold markers, labelled by the commits."""

    tree: TreeId
    stages: tuple[Stage, ...]

    @property
    def paths(self) -> list[bytes]:
        """The paths that conflict."""
        return sorted({s.path for s in self.stages})


def _changes(fields: Sequence[bytes]) -> list[PathChange]:
    """What ``diff-tree -z`` says: a line of modes and blobs, then a path, and so on."""
    found = []
    for meta, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old, new, _ = meta.removeprefix(b":").split(b" ")
        sides = ((old_mode, old), (new_mode, new))
        entries = (None if mode == b"000000" else TreeEntry(mode, BlobId(blob.decode())) for mode, blob in sides)
        found.append(PathChange(path, *entries))
    return found


class Git:
    """Commands in one repository or worktree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sides: dict[tuple[str, str], CommitId] = {}

    def run(
        self,
        *args: str,
        data: bytes | None = None,
        env: Mapping[str, str] | None = None,
        config: Sequence[str] = (),
        ok_codes: Sequence[int] = (0,),
    ) -> bytes:
        """Standard output of ``git *args``.

        :raises runner.CommandError: when it fails.
        """
        argv = ["git", *(x for c in config for x in ("-c", c)), *args]
        every = {**_PINNED, **(env or {})}
        try:
            return runner.run(argv, cwd=self.folder, data=data, env=every, ok_codes=ok_codes).stdout
        except runner.CommandError as error:
            if _LOST.search(error.said):
                error.hint = _MEND
            raise

    def line(self, *args: str, ok_codes: Sequence[int] = (0,)) -> str:
        """The single line that a command prints."""
        return self.run(*args, ok_codes=ok_codes).decode().strip()

    # Objects

    def resolve(self, *names: str) -> list[str]:
        """Object ids of revisions; an unknown one fails."""
        out = self.run("rev-parse", *names).decode()
        return out.split("\n")[: len(names)]

    def ref_or_none(self, ref: str) -> CommitId | None:
        """The commit that ``ref`` points at, or None where there is no such ref."""
        found = self.line("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}", ok_codes=(0, 1, 128))
        return CommitId(found) if found else None

    def join_packs(self) -> None:
        """Make one pack of many: each fetch and each cold apply adds one, and every git looks into all of them."""
        if len(list((self.folder / "objects" / "pack").glob("*.pack"))) > MAX_PACKS:
            # Unreachable objects stay: undo may need them.
            self.run("repack", "-a", "-d", "-k", "-q")

    def is_whole(self, commits: Iterable[str]) -> bool:
        """Whether every commit, tree and file that these commits consist of is here."""
        data = "".join(f"{commit}\n" for commit in commits).encode()
        try:
            self.run("rev-list", "--objects", "--quiet", "--stdin", data=data)
        except runner.CommandError:
            return False
        return True

    def refs(self, *prefixes: str) -> dict[str, str]:
        """All refs below the prefixes, with the ids they point at."""
        out = self.run("for-each-ref", "--format=%(refname) %(objectname)", *prefixes).decode()
        pairs = (line.partition(" ") for line in out.splitlines())
        return {name: oid for name, _, oid in pairs}

    def tree_of(self, commits: Sequence[str]) -> list[TreeId]:
        """The trees of commits, in one call."""
        return [TreeId(t) for t in self.resolve(*(f"{c}^{{tree}}" for c in commits))]

    def list_tree(self, treeish: str, paths: Sequence[bytes] = ()) -> dict[bytes, TreeEntry]:
        """Every file of a tree, or those at these paths, by path."""
        out = self.run("ls-tree", "-r", "-z", "--full-tree", treeish, "--", *map(os.fsdecode, paths))
        found: dict[bytes, TreeEntry] = {}
        for line in out.split(b"\0")[:-1]:
            meta, path = line.split(b"\t", 1)
            mode, _, blob = meta.split(b" ")
            found[path] = TreeEntry(mode, BlobId(blob.decode()))
        return found

    def changes(self, before: str, after: str) -> list[PathChange]:
        """Each path that differs between two trees or commits; a rename is a removal and an addition."""
        return _changes(self.run("diff-tree", "-r", "-z", "--no-renames", before, after).split(b"\0")[:-1])

    def changes_of(self, commits: Sequence[CommitId]) -> list[list[PathChange]]:
        """What each of the commits changes of its parent."""
        data = "".join(f"{c}\n" for c in commits).encode()
        out = self.run("diff-tree", "-r", "-z", "--no-renames", "--stdin", data=data) if commits else b""
        found: dict[bytes, list[bytes]] = {c.encode(): [] for c in commits}
        fields = found[commits[0].encode()] if commits else []
        for field in out.split(b"\0")[:-1]:
            commit = field.strip()
            if commit in found:
                fields = found[commit]
            else:
                fields.append(field)
        return [_changes(found[c.encode()]) for c in commits]

    def diffs_of(self, commits: Sequence[CommitId]) -> list[bytes]:
        """The diff of each of the commits, renames as a removal and an addition."""
        data = "".join(f"{c}\n" for c in commits).encode()
        argv = ("diff-tree", "-p", "--full-index", "--no-renames", "--unified=3", "--no-ext-diff", "--no-textconv")
        out = self.run(*argv, "--src-prefix=a/", "--dst-prefix=b/", "--stdin", data=data, config=_DIFF_CONFIG)
        found = dict.fromkeys(commits, b"")
        # No line of a diff begins with an id.
        parts = re.split(rb"^([0-9a-f]{40})\n", out, flags=re.MULTILINE)
        found.update((CommitId(c.decode()), text) for c, text in zip(parts[1::2], parts[2::2], strict=True))
        return [found[c] for c in commits]

    def read_blobs(self, blobs: Iterable[BlobId]) -> dict[BlobId, bytes]:
        """The contents of blobs, by one ``cat-file --batch``.

        :raises SourceError: for one that the store has lost.
        """
        wanted = list(dict.fromkeys(blobs))
        if not wanted:
            return {}
        out = self.run("cat-file", "--batch", data="".join(b + "\n" for b in wanted).encode())
        found: dict[BlobId, bytes] = {}
        at = 0
        for blob in wanted:
            end = out.index(b"\n", at)
            words = out[at:end].split()
            if len(words) != 3:
                raise SourceError(
                    f"the store has lost the object {blob}",
                    hint=_MEND,
                )
            size = int(words[2])
            found[blob] = out[end + 1 : end + 1 + size]
            at = end + size + 2
        return found

    def commit_tree(self, tree: str, parents: Sequence[str], author: Ident, message: str) -> CommitId:
        """Write a commit whose committer is its author, so that its id depends on nothing else."""
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": f"@{author.when} {author.zone}",
            "GIT_COMMITTER_NAME": author.name,
            "GIT_COMMITTER_EMAIL": author.email,
            "GIT_COMMITTER_DATE": f"@{author.when} {author.zone}",
        }
        args = [x for p in parents for x in ("-p", p)]
        return CommitId(
            self.run("commit-tree", tree, *args, "-F", "-", data=message.encode(), env=env).decode().strip()
        )

    def log(self, *specs: str) -> list[CommitInfo]:
        """Commits of a range, oldest first, along first parents."""
        form = "%H%x00%T%x00%P%x00%an%x00%ae%x00%ad%x00%B%x01"
        out = self.run(
            "log", "--reverse", "--first-parent", "--encoding=UTF-8", "--date=raw", f"--format={form}", *specs, "--"
        ).decode("utf-8", "replace")
        found = []
        for record in out.split("\x01")[:-1]:
            commit, tree, parents, name, email, date, message = record.lstrip("\n").split("\0", 6)
            when, zone = date.split()
            found.append(
                CommitInfo(
                    CommitId(commit),
                    TreeId(tree),
                    tuple(CommitId(p) for p in parents.split()),
                    Ident(name, email, int(when), zone),
                    message,
                )
            )
        return found

    def patch_ids_of(self, commits: Sequence[CommitId]) -> list[str]:
        """git's stable patch id of each of the commits; empty for one that changes nothing."""
        log = (
            self.run("log", "-p", "--no-color", "--full-index", "--no-walk=unsorted", *commits, "--")
            if commits
            else b""
        )
        lines = self.run("patch-id", "--stable", data=log).decode().splitlines()
        found = {commit: pid for pid, commit in (line.split() for line in lines)}
        return [found.get(c, "") for c in commits]

    def merge_tree(self, base: str, ours: str, theirs: str) -> Merge:
        """Merge three trees in memory: git's ort merge, renames followed.

        git 2.39 takes no merge base, so the three trees become commits with a shared parent.
        """
        root = self._side(base, "")
        return self.merge([(self._side(ours, root), self._side(theirs, root))])[0]

    def merge(self, pairs: Sequence[tuple[CommitId, CommitId]]) -> list[Merge]:
        """Merge pairs of commits in memory, all by one process."""
        if not pairs:
            return []
        out = self.run(
            "merge-tree", "--write-tree", "--stdin", "-z", "--no-messages",
            data="".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode(), config=_MERGE_CONFIG,
        )  # fmt: skip
        fields, found = iter(out.split(b"\0")), []
        for _ in pairs:
            clean, tree, stages = next(fields), TreeId(next(fields).decode()), []
            while entry := next(fields):
                meta, path = entry.split(b"\t", 1)
                mode, blob, number = meta.split(b" ")
                stages.append(Stage(path, TreeEntry(mode, BlobId(blob.decode())), int(number)))
            assert (clean == b"1") == (not stages), "git says of a merge both that it is clean and that it is not"
            found.append(Merge(tree, tuple(stages)))
        return found

    def _side(self, tree: str, parent: str) -> CommitId:
        """A commit for a side of a merge, made once: the same patch is merged onto many trees."""
        if (tree, parent) not in self._sides:
            nobody = Ident("patchq", "patchq@localhost", 946684800, "+0000")
            message = "side\n" if parent else "base\n"
            self._sides[tree, parent] = self.commit_tree(tree, (parent,) if parent else (), nobody, message)
        return self._sides[tree, parent]

    def format_patches(self, spec: str, folder: Path) -> None:
        """Write a range as patch files, in the bytes that docs/reference/formats.md fixes."""
        self.run(
            "format-patch", "--quiet", f"--output-directory={folder}", "--always", "--zero-commit", "--full-index",
            "--no-signature", "--no-stat", "--keep-subject", "--unified=3", "--binary", "--no-ext-diff",
            "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--no-color", "--filename-max-length=40", spec,
            config=_DIFF_CONFIG,
        )  # fmt: skip

    def apply_to_index(self, patch: bytes, index: Path) -> None:
        """``git apply --cached`` with zero fuzz on a temporary index.

        :raises runner.CommandError: when git refuses.
        """
        self.run(
            "apply", "--cached", "--whitespace=nowarn", "-",
            data=patch, env={"GIT_INDEX_FILE": str(index)}, config=("core.attributesFile=/dev/null",),
        )  # fmt: skip

    def update_refs(self, moves: Sequence[tuple[str, str | None, str | None]]) -> None:
        """Move refs ``(name, old, new)`` in one transaction, old values checked; None is no ref."""
        zero = "0" * 40
        lines = [f"update {ref}\0{new or zero}\0{old or zero}\0" for ref, old, new in moves]
        if lines:
            self.run("update-ref", "-z", "--stdin", data="".join(lines).encode())


def bare_repository(folder: Path, *others: Git) -> Git:
    """A repository that has the objects of others too; made if it isn't there."""
    for name in ("objects/info", "refs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/none\n")
    lines = "".join(f"{(other.folder / 'objects').resolve()}\n" for other in others)
    (folder / "objects" / "info" / "alternates").write_text(lines)
    return Git(folder)


@contextmanager
def scratch(*others: Git) -> Iterator[Git]:
    """A repository that has the objects of others, and whose own are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="patchq-") as text:
        yield bare_repository(Path(text), *others)


_STORE_CONFIG = {
    # Packs are kept as they come: `gc` runs when apply asks for it, never behind its back.
    "gc.auto": "0",
    "core.logAllRefUpdates": "false",
    "core.autocrlf": "false",
    "core.looseCompression": "1",
}


def init_store(folder: Path) -> Git:
    """The bare repository that holds every upstream; made if it isn't there."""
    if not (folder / "HEAD").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Made beside and renamed: a store that is there is whole, whoever else makes it.
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as beside:
            new = Path(beside, "new")
            runner.run(["git", "init", "--quiet", "--bare", str(new)], env=_PINNED)
            for key, value in _STORE_CONFIG.items():
                Git(new).run("config", "--local", key, value)
            try:
                new.rename(folder)
            except OSError:
                if not (folder / "HEAD").exists():
                    raise
    return Git(folder)


_UNREACHABLE = re.compile(
    r"Could not resolve|unable to access|Connection (?:refused|timed out|reset)|no answer in|"
    r"Network is unreachable|Could not read from remote|failed to connect|does not appear to be a git",
    re.IGNORECASE,
)


class Unreachable(SourceError):
    """A git host that doesn't answer."""


def _unreachable(url: str, error: runner.CommandError) -> Unreachable:
    said = error.said.splitlines()[-1] if error.said else str(error.code)
    reason = re.sub(r"^fatal: (unable to access '[^']*': )?", "", said)
    return Unreachable(
        f"{url} can't be reached ({reason})", hint="check the address and the network, or use an archive"
    )  # fmt: skip


def remote_commit(url: str, ref: str, *, timeout: float) -> CommitId | None:
    """The commit that ``ref`` (a tag, a branch or ``HEAD``) names at ``url``, tags peeled.

    :param timeout: seconds to wait for an answer.
    :returns: None if the remote has no such ref.
    :raises Unreachable: if the host doesn't answer.
    """
    try:
        done = runner.run(["git", "ls-remote", "--", url], timeout=timeout, env=_SAFE_TRANSPORTS)
    except runner.CommandError as error:
        raise _unreachable(url, error) from None
    found = {name: commit for commit, name in (line.split("\t") for line in done.stdout.decode().splitlines())}
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        if name in found:
            return CommitId(found[name])
    return None


def default_branch(url: str, *, timeout: float) -> str:
    """The branch that a remote's ``HEAD`` is.

    :raises Unreachable: if the host doesn't answer.
    :raises SourceError: if it has none.
    """
    argv = ["git", "ls-remote", "--symref", "--", url, "HEAD"]
    try:
        out = runner.run(argv, timeout=timeout, env=_SAFE_TRANSPORTS).stdout.decode("utf-8", "replace")
    except runner.CommandError as error:
        raise _unreachable(url, error) from None
    match = re.match(r"ref: refs/heads/(\S+)\tHEAD$", out, re.MULTILINE)
    if not match:
        raise SourceError(f"{url} has no default branch", hint="--onto REF")
    return match[1]


def push(repository: Git, remote: str, commit: CommitId, branch: str, *, expected: str | None) -> None:
    """Push a commit as a branch, over what it was the last time only.

    :param expected: the commit that the branch is to have there now; None for no such branch.
    :raises SourceError: with what git said.
    """
    ref = f"refs/heads/{branch}"
    argv = ["git", "push", "--quiet", f"--force-with-lease={ref}:{expected or ''}", "--", remote, f"{commit}:{ref}"]
    try:
        # With the user's own configuration and helpers: this is the one door through which something leaves.
        runner.run(argv, cwd=repository.folder, env=_SAFE_TRANSPORTS)
    except runner.CommandError as error:
        raise SourceError(f"{remote} doesn't take {branch}: {error.said}", hint="look at what the remote has") from None


def fetch_commit(store: Git, url: str, commit: CommitId, ref: str, *, again: bool = False) -> None:
    """Bring one commit, without its history, into the store; ``again`` brings all of it, whatever is there.

    Servers that don't serve a bare commit id are asked for the ref instead.

    :raises SourceError: if neither brings the commit.
    """
    said = ""
    for spec in (commit, f"refs/tags/{ref}", f"refs/heads/{ref}"):
        options = ["--depth=1", "--no-tags", "--no-write-fetch-head", *(["--refetch"] if again else [])]
        try:
            # One pack, renamed when it is whole: loose objects could be left without what they refer to.
            config = ["-c", "fetch.unpackLimit=1"]
            runner.run(
                ["git", *config, "fetch", "--quiet", *options, "--", url, spec], cwd=store.folder, env=_SAFE_TRANSPORTS
            )
        except runner.CommandError as error:
            said = error.said
            continue
        if store.ref_or_none(commit):
            return
    raise SourceError(
        f"{url} doesn't give commit {commit} (asked by id and as {ref}): {said}",
        hint="run `patchq pin --check` to see whether the ref moved",
    )


def fetch_tag(store: Git, url: str, tag: str, into: str) -> str | None:
    """Bring a tag into the store as the ref ``into``; returns the id of its tag object.

    Where the host doesn't answer, what the store has of it is taken.

    :returns: None if there is no such tag, or one without an object of its own.
    """
    argv = ["git", "fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--", url]
    try:
        runner.run([*argv, f"+refs/tags/{tag}:{into}"], cwd=store.folder, env=_SAFE_TRANSPORTS)
    except runner.CommandError:
        if into not in store.refs(into):
            return None
    found = store.run("rev-parse", into).decode().strip()
    return found if store.run("cat-file", "-t", found).strip() == b"tag" else None


def fetch_history(repository: Git, url: str, ref: str) -> CommitId:
    """Bring a ref with all that leads to it; returns its commit.

    :raises SourceError: if the host doesn't answer, or has no such ref.
    """
    said = ""
    for spec in (f"refs/tags/{ref}", f"refs/heads/{ref}", ref):
        name = f"refs/history/{spec}"
        argv = ["git", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", url, f"+{spec}:{name}"]
        try:
            runner.run(argv, cwd=repository.folder, env=_SAFE_TRANSPORTS)
        except runner.CommandError as error:
            said = error.said
            continue
        found = repository.ref_or_none(name)
        if found:
            return found
    raise SourceError(f"{url} doesn't give the history of {ref}: {said}", hint="forecast without --blame: by releases")
