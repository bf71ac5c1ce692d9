"""Apply rules to trees of the store, and infer rules from a commit's changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from patchq.formats.diff import GITLINK, SYMLINK
from patchq.git.objects import TreeEntry, blob_id
from patchq.git.repository import Git
from patchq.names import BlobId, TreeId, show_path
from patchq.patterns._infer import infer
from patchq.patterns.regenerate import regenerate
from patchq.patterns.rules import Rule
from patchq.system import fsio


@dataclass(slots=True)
class StoredTree:
    """Tree of a commit in the store. Its files are listed on first use."""

    store: Git
    treeish: str
    _entries: dict[bytes, TreeEntry] | None = field(default=None, init=False)

    @property
    def entries(self) -> dict[bytes, TreeEntry]:
        """Return the regular files."""
        if self._entries is None:
            listed = self.store.list_tree(self.treeish)
            self._entries = {path: entry for path, entry in listed.items() if entry.mode not in (SYMLINK, GITLINK)}
        return self._entries

    def file_paths(self) -> Sequence[bytes]:
        """Return the paths of the regular files."""
        return list(self.entries)

    def read_files(self, paths: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the contents of the given paths that are regular files."""
        there = {path: self.entries[path].blob for path in paths if path in self.entries}
        blobs = self.store.read_blobs(there.values())
        return {path: blobs[blob] for path, blob in there.items()}


def changed_files(rules: Sequence[Rule], tree: StoredTree) -> dict[bytes, bytes]:
    """Return the new contents of the files that rules change.

    :raises RuleStop: if a rule doesn't match as often as it states.
    """
    found = regenerate(rules, tree)
    files: dict[bytes, bytes] = {}
    for path, text in found.items():
        if blob_id(text) != tree.entries[path].blob:
            files[path] = text
    return files


def write_tree(rules: Sequence[Rule], store: Git, treeish: str) -> TreeId:
    """Apply rules to a tree, and write the resulting tree to the store.

    :raises RuleStop: if a rule doesn't match as often as it states.
    """
    tree = StoredTree(store, treeish)
    lines = []
    for path, text in changed_files(rules, tree).items():
        store.run("hash-object", "-w", "--stdin", data=text)
        lines.append(b"%s %s\t%s\0" % (tree.entries[path].mode, blob_id(text).encode(), path))
    with fsio.temporary_folder() as folder:
        env = {"GIT_INDEX_FILE": str(folder / "index")}
        store.run("read-tree", treeish, env=env)
        store.run("update-index", "-z", "--index-info", data=b"".join(lines), env=env)
        return TreeId(store.run("write-tree", env=env).decode().strip())


def is_made_by(rules: Sequence[Rule], store: Git, parent: str, commit: str) -> bool:
    """Return whether rules make exactly the changes of a commit.

    :raises RuleStop: if a rule doesn't match as often as it states.
    """
    tree = StoredTree(store, parent)
    expected: dict[bytes, tuple[bytes, BlobId]] = {}
    for path, text in changed_files(rules, tree).items():
        expected[path] = (tree.entries[path].mode, blob_id(text))
    found = {}
    for change in store.changes(parent, commit):
        if change.new is None:
            return False
        found[change.path] = (change.new.mode, change.new.blob)
    return found == expected


def infer_rules(store: Git, parent: str, commit: str) -> tuple[list[Rule], str]:
    """Return rules that make the same changes as a commit.

    :returns: the rules and an empty string; or no rules and the first path for which no rule was found.
    """
    before, after = StoredTree(store, parent), StoredTree(store, commit)
    rules: list[Rule] = []
    for change in store.changes(parent, commit):
        path = change.path
        if change.old is None or change.new is None or change.old.mode != change.new.mode:
            return [], show_path(path)
        if path not in before.entries:
            return [], show_path(path)
        old, new = before.read_files([path])[path], after.read_files([path])[path]
        found = infer(path, old, new)
        if not found:
            return [], show_path(path)
        rules += found
    return rules, ""
