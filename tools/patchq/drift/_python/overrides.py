"""New overrides: subclass methods that only the new version has, and that override a method of the base class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from patchq.drift._python.callers import is_super
from patchq.drift._python.counterparts import Counterparts
from patchq.drift._python.facts import PythonFile
from patchq.drift._python.shape import walk
from patchq.drift._versions.comparison import Comparison
from patchq.drift._versions.tree import Found


class Overrides:
    """Search for new overrides of Python methods and class attributes."""

    def __init__(self, whole: Comparison, counterparts: Counterparts) -> None:
        self.whole, self.old, self.new_version = whole, whole.old, whole.new
        self.counterparts = counterparts
        self._descendants: dict[str, dict[bytes, set[str]]] = {}

    def changed(self, path: bytes, name: str) -> Iterator[tuple[Found, Found]]:
        """Yield the old and the new definition of each override that both versions have, if its file changed."""
        owner, _, method = name.rpartition(".")
        fact = self.old.fact(Found(path, owner)) if owner else None
        if fact is None or fact.kind != "class" or method.startswith("__"):
            return
        for other, classes in sorted(self._subclasses(owner).items()):
            before = self.old.python(other) if other in self.whole.changed and self.whole.counted(other) else None
            for its_name in before.facts if before else ():
                its_owner, _, its_method = its_name.rpartition(".")
                if its_method != method or its_owner.rpartition(".")[2] not in classes:
                    continue
                if self.new_version.fact(Found(other, its_name)) and Found(path, owner) in self.old.ancestors(
                    Found(other, its_owner)
                ):
                    yield Found(other, its_name), Found(other, its_name)

    def _subclasses(self, owner: str) -> dict[bytes, set[str]]:
        """Return, by file, the new version's classes that may inherit from a class."""
        simple = owner.rpartition(".")[2]
        if simple not in self._descendants:
            self._descendants[simple] = self.new_version.descendants(simple)
        return self._descendants[simple]

    def new(self, path: bytes, name: str, *, super_counts: bool = False) -> Iterator[tuple[bytes, str, int]]:
        """Yield the file, name and line of each new override of a member of a class.

        :param super_counts: also yield overrides that call the overridden method.
        :param path: file of the base class in the old version.
        :param name: qualified name of the member.
        """
        owner, _, method = name.rpartition(".")
        fact = self.old.fact(Found(path, owner)) if owner else None
        if fact is None or fact.kind != "class" or (method.startswith("__") and method != "__init__"):
            return
        target = self.whole.new_path(path)
        simple = owner.rpartition(".")[2]
        for other, classes in sorted(self._subclasses(owner).items()):
            if other not in self.whole.changed or not self.whole.counted(other):
                continue
            file = self.new_version.python(other) if f" {method}".encode() in self.new_version.content(other) else None
            before = self.old.python(other)
            for its_name, its_facts in file.facts.items() if file else ():
                its_owner, _, its_method = its_name.rpartition(".")
                if its_method != method or its_owner.rpartition(".")[2] not in classes:
                    continue
                if (before and its_name in before.facts) or self.counterparts.class_moved(its_name, other):
                    continue
                if not super_counts and _calls_overridden(file, its_name, simple, method):
                    continue
                if target and Found(target, owner) in self.new_version.ancestors(Found(other, its_owner)):
                    yield other, its_name, its_facts[-1].line


def _calls_overridden(file: PythonFile | None, name: str, owner: str, method: str) -> bool:
    """Return whether an override calls the overridden method, as ``super().method()`` or ``Base.method()``."""
    for node in walk(file.nodes[name]) if file and name in file.nodes else ():
        if not isinstance(node, ast.Call):
            continue
        called = f".{ast.unparse(node.func)}"
        above = is_super(node.func) and called.endswith(f".{method}")
        if above or called.endswith(f".{owner}.{method}"):
            return True
    return False
