"""Matching of Python definitions between the old and the new version."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from patchq.drift._api.signatures import Signature
from patchq.drift._python import facts as python_facts
from patchq.drift._versions.comparison import (
    COPIED,
    LEAST_LINES,
    Comparison,
    place_of,
)
from patchq.drift._versions.tree import Found, Tree, marks_of
from patchq.drift.bodies import Fact, lines_of


class Counterparts:
    """Finder of the new definition that corresponds to an old definition."""

    def __init__(self, whole: Comparison) -> None:
        self.whole, self.old, self.new = whole, whole.old, whole.new
        self._homes: dict[tuple[bytes, str], Found | None] = {}

    def counterpart(self, found: Found) -> Found | None:
        """Return the new definition that corresponds to an old definition; None if there is none.

        The new definition has the same name and is in the same or renamed file, in its imports or in a base class.
        """
        # A module may have become a package that imports the name.
        path = self.whole.new_path(found.path) or self.new.path_of(self.old.module_of(found.path))
        if path:
            file = self.new.python(path)
            if file and found.name in file.facts:
                return Found(path, found.name)
            owner, _, name = found.name.rpartition(".")
            if not owner:
                return self.new.lookup(path, name)
            new_owner = self.counterpart(Found(found.path, owner))
            if new_owner:
                return self.new.member(new_owner, name)
        return None

    def followed(self, found: Found) -> Found | None:
        """Return a definition's counterpart. Unlike :meth:`counterpart`, find classes that moved to another module."""
        if there := self.counterpart(found):
            return there
        owner, _, name = found.name.partition(".")
        if (found.path, owner) not in self._homes:
            self._homes[found.path, owner] = self._new_home(Found(found.path, owner))
        home = self._homes[found.path, owner]
        if home is None or not name:
            return home
        direct = Found(home.path, found.name)
        return direct if self.new.fact(direct) else self.new.member(home, name)

    def _new_home(self, found: Found) -> Found | None:
        """Return the only new class of the same name in another file; None if there are none or several."""
        fact = self.old.fact(found)
        if fact is None or fact.kind != "class":
            return None
        homes = []
        for path in self.whole.files_with(found.name.encode(), "python"):
            there = Found(path, found.name)
            new = self.new.fact(there)
            if new and new.kind == "class" and self.old.fact(there) is None and self.whole.counted(path):
                homes.append(there)
        return homes[0] if len(homes) == 1 else None

    def class_moved(self, name: str, path: bytes) -> bool:
        """Return whether a new class or method was moved here, because another file lost the same name."""
        owner = name.partition(".")[0]
        for other in self.whole.files_with(owner.encode(), "python"):
            here = Found(other, name)
            if other != path and self.old.fact(here) and not self.new.fact(here):
                return True
        return False

    def moved_definition(self, path: bytes, name: str) -> tuple[bytes, str] | None:
        """Return the new file and name of a definition: of its counterpart, or of a moved definition.

        A moved definition has the same simple name and an equal body. Return None if neither is found.
        """
        through = self.counterpart(Found(path, name))
        if through:
            return through.path, through.name
        base = self.old.python(path)
        assert base is not None
        simple = name.rpartition(".")[2]
        body = base.body(name)
        node = base.nodes[name]
        mine = marks_of(lines_of(self.old.content(path))[node.lineno : node.end_lineno])
        few = len(mine) < LEAST_LINES
        for other in self.whole.files_with(simple.encode(), "python"):
            blob = self.new.blob(other)
            if few or blob is None or len(self.old.files.marks(blob) & mine) < len(mine) * COPIED:
                continue
            file = self.new.python(other)
            for its_name in file.nodes if file else ():
                if file and its_name.rpartition(".")[2] == simple and file.body(its_name) == body:
                    return other, its_name
        return None

    def elsewhere(self, fact: Fact) -> str:
        """Return the place where a changed file now defines a removed definition's name; empty if there is none."""
        pattern = re.compile(rf"^\s*(?:async def|def|class) {re.escape(fact.simple)}\b".encode(), re.MULTILINE)
        for path in sorted(self.whole.changed):
            if path.endswith(b".py") and self.whole.counted(path) and pattern.search(self.new.real_content(path)):
                found = pattern.search(self.new.content(path))
                if found:
                    return place_of(path, self.new.content(path).count(b"\n", 0, found.end()) + 1)
        return ""

    def came_from(self, name: str, path: bytes) -> bool:
        """Return whether a new definition was only moved: another place lost a definition of the same simple name."""
        simple = name.rpartition(".")[2]
        for other in self.whole.changed:
            if f"def {simple}(".encode() not in self.old.content(other):
                continue
            old, new = self.old.python(other), self.new.python(other)
            for known in old.facts if old else ():
                gone = new is None or known not in new.facts
                if known.rpartition(".")[2] == simple and gone and (other, known) != (path, name):
                    return True
        return False

    def signature(self, tree: Tree, found: Found) -> Signature | None:
        """Return the signature of a function, or of a class's constructor; None if it is unknown.

        Named constants in the defaults are replaced by their values.
        """
        fact, file = tree.fact(found), tree.python(found.path)
        if fact is None or file is None:
            return None
        if fact.kind == "class":
            if generated := python_facts.constructor_of(file, found.name):
                return generated
            own = tree.member(found, "__init__")
            return self.signature(tree, own) if own else None
        if fact.parameters is None:
            return None
        parameters = []
        for p in fact.parameters:
            named = p.default is not None and p.default.isidentifier()
            target = tree.lookup(found.path, p.default) if named and p.default else None
            home = tree.python(target.path) if target and target.path and target.name else None
            value = home.value(target.name) if home and target else ""
            parameters.append(replace(p, default=value) if value else p)
        return Signature(fact.name if "." in fact.name else f".{fact.name}", tuple(parameters))


def shown_signature(signature: Signature) -> str:
    return (
        "(" + ", ".join(p.name + (f"={p.default}" if p.default is not None else "") for p in signature.parameters) + ")"
    )


def shown_fact(fact: Fact) -> str:
    return shown_signature(Signature(fact.name, fact.parameters or ()))


def fits(call: ast.Call, signature: Signature) -> bool:
    """Return whether a signature accepts a call. If the call has ``*`` or ``**``, only its keywords are checked."""
    keywords = {k.arg for k in call.keywords if k.arg}
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return signature.takes("variadic keyword") or all(signature.find(k) for k in keywords)
    return signature.accepts(len(call.args), keywords)
