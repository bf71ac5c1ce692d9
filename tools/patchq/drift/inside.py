"""Alarms in one upstream: changed definitions that a patch's lines call, read or override, and changed callers.

Facts about definitions (``_python``, ``_cpp``) are compared between two versions of the upstream. Only three kinds of
files are parsed: files that a patch changes, files that define the names that the patch uses, and changed files that
contain the name of a function that the patch touches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from patchq.drift._cpp import facts as cpp_facts
from patchq.drift._cpp.touched import TouchedCpp
from patchq.drift._cpp.uses import CppUses, distinct
from patchq.drift._python import facts as python_facts
from patchq.drift._python.counterparts import Counterparts
from patchq.drift._python.facts import imported_from
from patchq.drift._python.shape import FunctionNode
from patchq.drift._python.touched import TouchedPython
from patchq.drift._python.uses import PythonUses
from patchq.drift._versions.comparison import Comparison, Touch
from patchq.drift._versions.mentions import Mentions
from patchq.drift._versions.reach import Reach
from patchq.drift._versions.tree import Files, Read, Tree, changed_lines
from patchq.drift.alarms import Alarm, NotCompared, Reached, Unseen
from patchq.drift.bodies import SourceVersion, language_of, lines_of, reads_cpp, simple_name
from patchq.formats.diff import GITLINK
from patchq.git.diffs import PathChange
from patchq.git.objects import TreeEntry
from patchq.names import show_path

#: Path and line of a place.
_PLACE = re.compile(r"(.*?):(\d+)\b")
#: Function that is called with the current work, the amount done, the total and the unit.
Count = Callable[[str, int, int, str], None]
#: Name and changes of a patch, in the order of the series.
PatchChanges = tuple[str, Sequence[PathChange]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """Result of a comparison: the alarms of all patches, and the parts that were not compared.

    :ivar far: changed definitions that share rare names with a patch, the nearest first.
    """

    alarms: tuple[Alarm, ...]
    unseen: tuple[NotCompared, ...]
    far: tuple[Reached, ...] = ()


class PatchFacts:
    """Facts about a stack's patches, read once and then compared with any number of new versions.

    :param patches: name and changes of each patch in the stack of the old version.
    :param old: files of the old version, without the stack.
    :param read: function that reads blobs in one call.
    """

    def __init__(
        self, upstream: str, patches: Sequence[PatchChanges], old: Mapping[bytes, TreeEntry], read: Read
    ) -> None:
        self.upstream, self.old = upstream, Tree(old, Files(read))
        self.unseen: list[NotCompared] = []
        self.touches: list[Touch] = []
        self._kept: dict[str, Any] = {}
        #: Words that patches add to each function, by the path and the last name of the function.
        self._added: dict[bytes, dict[str, set[str]]] = {}
        changes = [change for _, each in patches for change in each]
        links = {id(c) for c in changes if any(e and e.mode in (GITLINK, b"120000") for e in (c.old, c.new))}
        sources = [c for c in changes if id(c) not in links and language_of(c.path)]
        self.old.files.bring(e.blob for c in sources for e in (c.old, c.new) if e)
        for patch, each in patches:
            for change in each:
                if id(change) not in links:
                    self._add(patch, change)

    def _add(self, patch: str, change: PathChange) -> None:
        language = language_of(change.path)
        if not _can_read(language):
            reason = Unseen.PARSER if language else Unseen.LANGUAGE
            self.unseen.append(NotCompared(patch=patch, path=show_path(change.path), reason=reason.value))
            return
        files = self.old.files
        before = files.content(change.old.blob) if change.old else b""
        after = files.content(change.new.blob) if change.new else b""
        touch = Touch(patch=patch, path=change.path, before=before, after=after)
        touch.removed, touch.lines = changed_lines(lines_of(before), lines_of(after))
        self.touches.append(touch)
        files.patched.update(map(simple_name, SourceVersion(change.path, before).at(touch.removed)))
        version, texts = SourceVersion(change.path, after), lines_of(after)
        for line in touch.lines:
            words, names = _words(texts[line - 1]), set(map(simple_name, version.at([line])))
            files.patched.update(words, names)
            for name in names:
                self._added.setdefault(touch.path, {}).setdefault(name, set()).update(words)

    def compare(
        self,
        new: Mapping[bytes, TreeEntry],
        *,
        moved: Callable[[bytes], bytes | None] = lambda path: None,
        ignored: Sequence[str] = (),
        far: bool = False,
        count: Count = lambda what, done, total, unit: None,
    ) -> Inside:
        """Return the alarms for an update from the old version to a new version.

        :param new: files of the new version.
        :param moved: function that returns the new path of a renamed file; None for other files.
        :param ignored: patterns of paths, such as tests, in which callers are ignored.
        :param far: also return related changes without an alarm, see :attr:`Inside.far`.
        :param count: function that is called with the progress, see :meth:`patchq.project.project.Project.count`.
        """
        version = Tree(self._restored(new), self.old.files, self.old)
        comparison = Comparison(
            self.upstream,
            self.touches,
            self.old,
            version,
            moved=moved,
            ignored=ignored,
            kept=self._kept,
        )
        _run(comparison, count)
        reached = Reach(comparison).found() if far and comparison.changed else []
        alarms, unseen = dict.fromkeys(comparison.alarms), dict.fromkeys([*self.unseen, *comparison.unseen])
        return Inside(
            alarms=tuple(replace(alarm, at=_real_place(version, alarm.at)) for alarm in alarms),
            unseen=tuple(unseen),
            far=tuple(replace(one, at=_real_place(version, one.at)) for one in reached),
        )

    def _restored(self, new: Mapping[bytes, TreeEntry]) -> dict[bytes, TreeEntry]:
        """Return the new files, with the old bodies of functions that do the same as before."""
        found = dict(new)
        tree = Tree(new, self.old.files, self.old)
        for path, entry in new.items():
            old = self.old.blob(path)
            if old and entry.blob != old and entry.mode[:3] == b"100" and _can_read(language_of(path)):
                imported = partial(self._imported, tree, path)
                kept = self._added.get(path, {})
                found[path] = TreeEntry(entry.mode, tree.files.restored(path, old, entry.blob, kept, imported))
        return found

    def _imported(self, tree: Tree, path: bytes, node: ast.ImportFrom) -> tuple[bytes | None, bytes | None]:
        """Return the old and new content of the module from which a statement in a file imports."""
        package = path.endswith(b"__init__.py")
        target = tree.path_of(imported_from(node, tree.module_of(path), package=package))
        before = self.old.blob(target) if target else None
        now = tree.blob(target) if target else None
        return tree.files.content(before) if before else None, tree.files.content(now) if now else None


def _real_place(version: Tree, at: str) -> str:
    """Convert a place ``path:line`` in a restored file to the place in the real new file."""
    match = _PLACE.match(at)
    if not match:
        return at
    line = version.files.real_line(version.blob(match[1].encode()), int(match[2]))
    return f"{match[1]}:{line}{at[match.end() :]}"


def _words(line: bytes) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", line.decode("utf-8", "replace"))


def _can_read(language: str) -> bool:
    return language == "python" or (language == "c++" and reads_cpp())


def state_of(path: bytes, content: bytes, name: str, *, body: bool) -> str:
    """Return the facts about a definition as text, for comparisons; empty if the file doesn't have the definition.

    :param body: include the statements of the definition.
    """
    if path.endswith(b".py"):
        python = python_facts.read_python("", content)
        facts = python.facts.get(name, [])
        bodies = [python.body(name)] if body and isinstance(python.nodes.get(name), FunctionNode) else []
    elif language_of(path) == "c++" and reads_cpp():
        cpp = cpp_facts.read_cpp(content)
        facts = cpp.facts.get(name, [])
        bodies = [cpp_facts.body_of(cpp, node) for node in cpp.nodes.get(name, ())] if body else []
    else:
        return ""
    return repr(([replace(fact, line=0) for fact in facts], bodies)) if facts else ""


def _run(whole: Comparison, count: Count) -> None:
    """Compare everything."""
    if not whole.changed:
        return
    counterparts = Counterparts(whole)
    python = TouchedPython(whole, counterparts), PythonUses(whole, counterparts)
    cpp = TouchedCpp(whole), CppUses(whole)
    for number, touch in enumerate(whole.touches):
        count("comparing definitions", number, len(whole.touches), "files of patches")
        if touch.path.endswith(b".py"):
            _compare_python(whole, touch, *python)
        else:
            _compare_cpp(whole, touch, *cpp)
    python[1].finish()
    mentions = Mentions(whole)
    for number, touch in enumerate(whole.touches):
        count("comparing statements", number, len(whole.touches), "files of patches")
        mentions.compare(touch)


def _compare_python(whole: Comparison, touch: Touch, touched: TouchedPython, uses: PythonUses) -> None:
    """Compare the definitions that a patch's change to a Python file depends on."""
    if touch.python is None:
        module = whole.old.module_of(touch.path)
        package = touch.path.endswith(b"__init__.py")
        sides = [python_facts.read_python(module, text, package=package) for text in (touch.before, touch.after)]
        touch.python = sides[0], sides[1]
    before, after = touch.python
    base = whole.old.python(touch.path)
    target = whole.new_path(touch.path)
    new = whole.new.python(target) if target else None
    for file in (after, new):
        if file is not None and file.tree is None:
            whole.not_compared(touch, Unseen.UNPARSABLE)
            return
    if base is not None and base.tree is None:
        whole.not_compared(touch, Unseen.UNPARSABLE)
        return
    changed = {before.function_at(n) for n in touch.removed} | {after.function_at(n) for n in touch.lines}
    touch.functions = [n for n in sorted(changed) if n and base and n in base.nodes]
    touch.added = [n for n in after.facts if n not in before.facts]
    if base is not None:
        for name in touch.functions:
            touched.compare(touch, name, base, after, target, new)
        touched.class_bases(touch, base, target, new)
        touched.added(touch, base, after, target, new)
    touched.overridden(touch, after)
    if base is not None or touch.path not in whole.new.entries:
        uses.compare(touch, after, base, target, new)


def _compare_cpp(whole: Comparison, touch: Touch, touched: TouchedCpp, uses: CppUses) -> None:
    """Compare the definitions that a patch's change to a C++ or CUDA file depends on."""
    base = whole.old.cpp(touch.path)
    target = whole.new_path(touch.path)
    new = whole.new.cpp(target) if target else None
    if touch.cpp is None:
        touch.cpp = cpp_facts.read_cpp(touch.before), cpp_facts.read_cpp(touch.after)
    before, after = touch.cpp
    touch.added = [n for n in after.facts if n not in before.facts]
    changed = {before.function_at(n) for n in touch.removed} | {after.function_at(n) for n in touch.lines}
    names = sorted({name for name, _ in changed if name})
    touch.functions = [n for n in names if base and n in base.facts]
    if base is not None:
        for name in touch.functions:
            numbers = sorted({number for n, number in changed if n == name})
            touched.compare(touch, name, numbers, base, after, target, new)
        touched.added(touch, base, after, target, new)
        touched.around(touch, base, before, after, target, new)
    touched.overridden(touch, after)
    used = list(distinct(after.uses(touch.lines)))
    for use in used:
        uses.compare(touch, use, after, new)
    uses.includes(touch, used)
    uses.asserts(touch, {use.name.rpartition("::")[2] for use in used})
