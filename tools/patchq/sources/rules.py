"""Contribution rules in an upstream's tree: pull request template, hooks, rules for agents.

These files may be missing in a release archive. ``patches/<upstream>/contribute/`` may contain substitutes at
the same paths, written by the maintainers of the stack. If a file is in the tree, its substitute is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import FormatError
from patchq.git.objects import TreeEntry
from patchq.git.repository import Git
from patchq.names import CommitId
from patchq.system import project_files
from patchq.system.paths import Layout

#: Size limit of each file in bytes: YAML and Markdown parsers are slow.
_MOST = 64 << 10
HOOKS = ".pre-commit-config.yaml"
#: List of upstream's open pull requests and issues; patchq's own file, no substitute.
OPEN_ITEMS = "open-items.toml"
#: Paths at which git hosts expect a template, in any case.
_TEMPLATES = tuple(f"{folder}pull_request_template{end}" for folder in (".github/", "", "docs/") for end in (".md", ""))
_AGENTS = ("agents.md", "claude.md")
_FORMS = ".github/issue_template/"


@dataclass(frozen=True, slots=True)
class Document:
    """File with contribution rules in the tree, or its substitute."""

    path: str
    text: str
    replacement: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Contribution rules of an upstream. A field is None if the file is missing in the tree and has no substitute.

    :ivar agents: rules for contributions made with AI tools.
    :ivar bug_form: form or template of a bug report.
    :ivar replacements: contents of substitutes for files that the tree doesn't contain, by path.
    """

    template: Document | None
    hooks: Document | None
    agents: Document | None
    bug_form: Document | None
    replacements: dict[str, bytes]


def stand_in_folder(layout: Layout, upstream: str) -> Path:
    """Return the folder with an upstream's substitutes."""
    return layout.root / "patches" / upstream / "contribute"


def upstream_test(layout: Layout, upstream: str, path: str) -> Path:
    """Return the project's file with a test that a pull request adds to upstream's tree as ``path``."""
    return layout.root / "patches" / upstream / "upstream-tests" / path


def read_rules(layout: Layout, store: Git, upstream: str, commit: CommitId) -> Rules:
    """Read the rules in a commit's tree, and substitutes for missing files."""
    entries = {p.decode("utf-8", "replace"): e for p, e in store.list_tree(commit).items()}
    folder = stand_in_folder(layout, upstream)
    files = project_files.list_files(layout.root, folder)
    found = {}
    for p in files:
        if p != folder / OPEN_ITEMS:
            found[p.relative_to(folder).as_posix()] = p
    replacements = {name: project_files.read(layout.root, path) or b"" for name, path in found.items()}
    missing = {path: data for path, data in replacements.items() if path not in entries}

    def read(wanted: Sequence[str]) -> Document | None:
        return _find(store, entries, missing, lambda paths: [paths[w] for w in wanted if w in paths])

    def bug_form(paths: dict[str, str]) -> list[str]:
        forms = sorted(p for p in paths if p.startswith(_FORMS) and "bug" in p)
        return [paths[p] for p in forms]

    return Rules(
        template=read(_TEMPLATES),
        hooks=read((HOOKS,)),
        agents=read(_AGENTS),
        bug_form=_find(store, entries, missing, bug_form),
        replacements=missing,
    )


def _find(
    store: Git,
    entries: dict[str, TreeEntry],
    replacements: dict[str, bytes],
    choose: Callable[[dict[str, str]], list[str]],
) -> Document | None:
    for path in choose({p.lower(): p for p in entries})[:1]:
        data = store.read_blobs([entries[path].blob])[entries[path].blob]
        if len(data) > _MOST:
            raise FormatError(
                f"{path} has {len(data)} bytes; the limit is {_MOST}", hint="see docs/reference/formats.md"
            )
        return Document(path, data.decode("utf-8", "replace"))
    for path in choose({p.lower(): p for p in replacements})[:1]:
        return Document(path, replacements[path].decode("utf-8", "replace"), True)
    return None


def read_upstream_test(layout: Layout, upstream: str, path: str) -> bytes | None:
    """Return a test that a pull request adds to upstream's tree as ``path``; None if the project has no such test."""
    return project_files.read(layout.root, upstream_test(layout, upstream, path))
