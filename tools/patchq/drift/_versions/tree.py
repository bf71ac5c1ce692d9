"""Files of one version of an upstream, with names resolved across files."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from patchq.drift._cpp.facts import CppFile, read_cpp
from patchq.drift._effects.cpp import restore_cpp
from patchq.drift._effects.modules import Imported
from patchq.drift._effects.python import restore_python
from patchq.drift._effects.restored import replaced
from patchq.drift._python.facts import PythonFile, imported_from, read_python
from patchq.drift._versions.statements import Statement
from patchq.drift.bodies import Fact, language_of, reads_cpp, stem
from patchq.git.objects import TreeEntry
from patchq.names import BlobId

Read = Callable[[list[BlobId]], Mapping[BlobId, bytes]]
#: Most steps from a name to its definition.
_MOST_STEPS = 12
#: Names that a line of a Python file may define.
_DEFINED = re.compile(
    rb"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)"
    rb"|^[ \t]*(?:\w+\.)?(\w+)[ \t]*[:=][^=]"
    rb"|^[ \t]*[\"'](\w+)[\"'][ \t]*:",
    re.MULTILINE,
)
_CLASS = re.compile(rb"^[ \t]*class[ \t]+(\w+)[ \t]*\(([^)]*)\)", re.MULTILINE)
_WORD = re.compile(rb"\w+")
#: Translation of all bytes that are not part of a word to blanks.
_ONLY_WORDS = bytes(c if chr(c).isalnum() or c == 95 or c > 127 else 32 for c in range(256))
#: Ends of passages, and comments, by language.
_PASSAGES = {
    "python": (re.compile(rb"\n[ \t]*\n"), re.compile(rb"^[ \t]*#.*", re.MULTILINE)),
    "c++": (re.compile(rb"[;{}]"), re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)),
}
#: Longest line that is ignored in the search for copied code.
_SHORTEST_MARK = 12
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """Definition that an expression refers to.

    :ivar path: file of the definition; empty if another package defines it.
    :ivar name: qualified name; empty for the module itself.
    :ivar instance: True if the expression is an instance of the class, not the class itself.
    """

    path: bytes
    name: str
    instance: bool = False


class Files:
    """Cache of the contents and facts of blobs. Each blob is read and parsed once."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.contents: dict[BlobId, bytes] = {}
        self._python: dict[tuple[str, BlobId], PythonFile] = {}
        self._cpp: dict[BlobId, CppFile] = {}
        self._defined: dict[BlobId, frozenset[bytes]] = {}
        self._marks: dict[BlobId, frozenset[bytes]] = {}
        self._passages: dict[BlobId, list[bytes]] = {}
        self.statements: dict[BlobId, list[Statement]] = {}
        self._classes: dict[BlobId, list[tuple[bytes, frozenset[bytes]]]] = {}
        #: For each restored file: the arguments of :meth:`restored`.
        self._sides: dict[BlobId, tuple[bytes, BlobId, BlobId, Mapping[str, Collection[str]], Imported]] = {}
        #: Names of functions that patches change, and all words that they add.
        self.patched: set[str] = set()
        #: Shifts of line numbers in each restored file.
        self._shifts: dict[BlobId, list[tuple[int, int]]] = {}

    def restored(
        self, path: bytes, old: BlobId, new: BlobId, kept: Mapping[str, Collection[str]], imported: Imported
    ) -> BlobId:
        """Return an id for a new file in which functions with an unchanged effect have their old bodies.

        The content is computed when it is first read.

        :param kept: see :func:`patchq.drift._effects.python.restore_python`.
        :param imported: see :func:`patchq.drift._effects.python.restore_python`.
        """
        name = BlobId(f"{new} restored from {old}")
        self._sides[name] = path, old, new, kept, imported
        return name

    def unrestored(self, blob: BlobId) -> BlobId:
        """Return the id of the real new file for a restored one; other ids as they are.

        The words and lines of a restored file are in the real new file or in the old one. To look for them in the real
        file takes less time: it needn't be restored.
        """
        if blob in self._sides:
            return self._sides[blob][2]
        return blob

    def real_line(self, blob: BlobId | None, line: int) -> int:
        """Convert a line number in a restored file to the line number in the real new file."""
        for start, shift in reversed(self._shifts.get(blob or BlobId(""), ())):
            if line >= start:
                return line - shift
        return line

    def bring(self, blobs: Iterable[BlobId]) -> None:
        """Load the blobs that aren't cached yet, with one call of the reader."""
        lacking = [blob for blob in dict.fromkeys(blobs) if blob not in self.contents]
        made = [blob for blob in lacking if blob in self._sides]
        plain = [blob for blob in lacking if blob not in self._sides]
        for blob in made:
            plain += self._sides[blob][1:3]
        plain = [blob for blob in dict.fromkeys(plain) if blob not in self.contents]
        if plain:
            self.contents.update(self._read(plain))
        for blob in made:
            path, old, new, kept, imported = self._sides[blob]
            if path.endswith(b".py"):
                replacements = restore_python(self.contents[old], self.contents[new], kept, imported, self.patched)
            else:
                replacements = restore_cpp(self.contents[old], self.contents[new], kept, self.patched)
            self.contents[blob], self._shifts[blob] = replaced(self.contents[new], replacements)

    def content(self, blob: BlobId) -> bytes:
        self.bring([blob])
        return self.contents[blob]

    def defined(self, blob: BlobId) -> frozenset[bytes]:
        """Return the names that a Python file seems to define, found without parsing it."""
        if blob not in self._defined:
            found: set[bytes] = set()
            for groups in _DEFINED.findall(self.content(blob)):
                found.update(groups)
            self._defined[blob] = frozenset(found)
        return self._defined[blob]

    def classes(self, blob: BlobId) -> list[tuple[bytes, frozenset[bytes]]]:
        """Return each class in a Python file with the words in its base classes, found without parsing the file."""
        if blob not in self._classes:
            found = []
            for name, bases in _CLASS.findall(self.content(blob)):
                found.append((name, frozenset(_WORD.findall(bases))))
            self._classes[blob] = found
        return self._classes[blob]

    def words(self, blob: BlobId) -> frozenset[bytes]:
        """Return the words of a file."""
        return frozenset(self.content(blob).translate(_ONLY_WORDS).split())

    def passages(self, blob: BlobId, language: str) -> list[bytes]:
        """Return the parts of a file, each with whole statements, found without parsing the file."""
        if blob not in self._passages:
            end, remark = _PASSAGES[language]
            found = []
            for passage in end.split(remark.sub(b"", self.content(blob))):
                found.append(b" ".join(passage.split()))
            self._passages[blob] = found
        return self._passages[blob]

    def marks(self, blob: BlobId) -> frozenset[bytes]:
        """Return the lines of a file that are long enough to recognize copied code."""
        if blob not in self._marks:
            self._marks[blob] = frozenset(marks_of(self.content(blob).split(b"\n")))
        return self._marks[blob]

    def python(self, path: bytes, module: str, blob: BlobId) -> PythonFile:
        if (module, blob) not in self._python:
            package = path.endswith(b"/__init__.py") or path == b"__init__.py"
            self._python[module, blob] = read_python(module, self.content(blob), package=package)
        return self._python[module, blob]

    def cpp(self, blob: BlobId) -> CppFile:
        if blob not in self._cpp:
            self._cpp[blob] = read_cpp(self.content(blob))
        return self._cpp[blob]


class Tree:
    """Files of one version of an upstream."""

    def __init__(self, entries: Mapping[bytes, TreeEntry], files: Files, near: Tree | None = None) -> None:
        """Create the tree of a version from its entries.

        :param near: tree of another version, whose index of definitions is reused for files that are equal in both.
        """
        self.entries, self.files, self._near = entries, files, near
        self._over: dict[bytes, PythonFile] = {}
        self._word_files: Mapping[bytes, int] | None = None
        self._text_files: dict[bytes, int] = {}
        self._prefixes: tuple[str, ...] | None = None
        self._by_base: dict[bytes, list[bytes]] | None = None
        self._modules: dict[bytes, str] = {}
        self._definers: dict[bytes, list[bytes]] | None = None
        self._heirs: dict[bytes, list[tuple[bytes, bytes]]] | None = None

    def over(self, path: bytes, file: PythonFile) -> Tree:
        """Return a copy of this tree with one Python file replaced."""
        other = Tree(self.entries, self.files)
        other._over = {**self._over, path: file}
        other._prefixes, other._by_base, other._modules = self.prefixes, self._by_base, self._modules
        return other

    def word_files(self) -> Mapping[bytes, int]:
        """Return, for each word, the number of source files that contain it; for a stem, that of all its words."""
        if self._word_files is None:
            found: Counter[bytes] = Counter()
            blobs = [blob for path in self.entries if language_of(path) and (blob := self.blob(path))]
            self.files.bring(blobs)
            for blob in blobs:
                found.update(self.files.words(blob))
            for word, count in list(found.items()):
                found[stem(_text(word)).encode()] += count
            self._word_files = found
        return self._word_files

    def count_files(self, text: bytes) -> int:
        """Return the number of source files that contain a text."""
        if text not in self._text_files:
            self.word_files()
            blobs = [blob for path in self.entries if language_of(path) and (blob := self.blob(path))]
            self._text_files[text] = sum(text in self.files.content(blob) for blob in blobs)
        return self._text_files[text]

    def blob(self, path: bytes) -> BlobId | None:
        entry = self.entries.get(path)
        return entry.blob if entry and entry.mode[:3] == b"100" else None

    def content(self, path: bytes) -> bytes:
        blob = self.blob(path)
        return self.files.content(blob) if blob else b""

    def real_content(self, path: bytes) -> bytes:
        """Return the content of a file, without restoring it."""
        blob = self.blob(path)
        if blob is None:
            return b""
        return self.files.content(self.files.unrestored(blob))

    def python(self, path: bytes) -> PythonFile | None:
        """Return a Python file's facts; None if the tree doesn't have the file."""
        if path in self._over:
            return self._over[path]
        blob = self.blob(path)
        return self.files.python(path, self.module_of(path), blob) if blob and path.endswith(b".py") else None

    def cpp(self, path: bytes) -> CppFile | None:
        """Return a C++ or CUDA file's facts; None if the tree doesn't have the file or no parser is installed."""
        blob = self.blob(path)
        return self.files.cpp(blob) if blob and language_of(path) == "c++" and reads_cpp() else None

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Folders that hold top-level packages, with a slash at the end."""
        if self._prefixes is None:
            packages = {p[: -len("/__init__.py")] for p in map(_text, self.entries) if p.endswith("/__init__.py")}
            tops = {p.rpartition("/") for p in packages if p.rpartition("/")[0] not in packages}
            self._prefixes = tuple(sorted({f"{folder}/" if slash else "" for folder, slash, _ in tops} | {""}, key=len))
        return self._prefixes

    def module_of(self, path: bytes) -> str:
        """Return the dotted module name of a Python file."""
        if path not in self._modules:
            text = _text(path).removesuffix(".py").removesuffix("/__init__")
            best = max((p for p in self.prefixes if text.startswith(p)), key=len, default="")
            self._modules[path] = text[len(best) :].replace("/", ".")
        return self._modules[path]

    def path_of(self, module: str) -> bytes | None:
        """Return the file of a module; None if the tree doesn't contain the module."""
        part = module.replace(".", "/")
        for prefix in self.prefixes:
            for end in (".py", "/__init__.py"):
                path = f"{prefix}{part}{end}".encode()
                if path in self.entries or path in self._over:
                    return path
        return None

    def fact(self, found: Found) -> Fact | None:
        file = self.python(found.path)
        return file.fact(found.name) if file else None

    def lookup(self, path: bytes, name: str, steps: int = 0) -> Found | None:
        """Follow imports to the definition of a name in a module's namespace; return None if it isn't found."""
        file = self.python(path)
        if file is None or steps > _MOST_STEPS:
            return None
        if name in file.facts:
            return Found(path, name)
        if name in file.imports:
            module, attribute = file.imports[name]
            return self.imported(module, attribute, steps + 1)
        for module in file.stars:
            target = self.path_of(module)
            if target and (found := self.lookup(target, name, steps + 1)):
                return found
        return self._submodule(path, name)

    def imported(self, module: str, attribute: str, steps: int = 0) -> Found | None:
        """Return the definition that an import binds. For a definition in another package, the path is empty."""
        target = self.path_of(module)
        if target is None:
            whole = f"{module}.{attribute}".strip(".")
            top = module.partition(".")[0]
            inside = self.path_of(top) is not None
            nested = self.path_of(whole)
            if nested:
                return Found(nested, "")
            return None if inside else Found(b"", whole)
        if not attribute:
            return Found(target, "")
        return self.lookup(target, attribute, steps)

    def _submodule(self, path: bytes, name: str) -> Found | None:
        if not path.endswith(b"__init__.py"):
            return None
        target = self.path_of(f"{self.module_of(path)}.{name}")
        return Found(target, "") if target else None

    def member(self, owner: Found, name: str, steps: int = 0) -> Found | None:
        """Return the definition of an attribute, in the class itself or in its base classes."""
        file = self.python(owner.path)
        if file is None or steps > _MOST_STEPS:
            return None
        whole = f"{owner.name}.{name}"
        if whole in file.facts:
            return Found(owner.path, whole)
        for base in self.bases(owner):
            if found := self.member(base, name, steps + 1):
                return found
        return None

    def bases(self, owner: Found) -> list[Found]:
        """Return the direct base classes of a class, except base classes from other packages."""
        file = self.python(owner.path)
        node = file.nodes.get(owner.name) if file else None
        found = []
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            plain = base.value if isinstance(base, ast.Subscript) else base
            target = self.infer(plain, owner.path, "")
            if target and target.path and target != owner:
                found.append(replace(target, instance=False))
        return found

    def ancestors(self, owner: Found) -> list[Found]:
        """Return the direct and indirect base classes, nearest first."""
        found: dict[Found, None] = {}
        waiting = self.bases(owner)
        while waiting and len(found) < 50:
            one = waiting.pop(0)
            if one not in found:
                found[one] = None
                waiting += self.bases(one)
        return list(found)

    def infer(self, node: ast.expr, path: bytes, scope: str, steps: int = 0) -> Found | None:
        """Return the definition that an expression refers to, or the class of the object it evaluates to.

        :param scope: qualified name of the function that contains the expression; empty at module level.
        """
        if steps > _MOST_STEPS:
            return None
        if isinstance(node, ast.Name):
            return self._name(node.id, path, scope, steps)
        if isinstance(node, ast.Attribute):
            base = self.infer(node.value, path, scope, steps + 1)
            return self._attribute(base, node.attr, steps) if base else None
        if isinstance(node, ast.Call):
            return self._result(node, path, scope, steps)
        if isinstance(node, ast.Subscript):
            return self._item(node, path, scope, steps)
        if isinstance(node, ast.Await):
            return self.infer(node.value, path, scope, steps + 1)
        if isinstance(node, ast.BoolOp):
            return self.infer(node.values[0], path, scope, steps + 1)
        if isinstance(node, ast.IfExp):
            return self.infer(node.body, path, scope, steps + 1)
        return None

    def _item(self, node: ast.Subscript, path: bytes, scope: str, steps: int) -> Found | None:
        """Return the definition of ``table["key"]``, or of ``kernel`` in ``kernel[grid]``; None for the rest."""
        base = self.infer(node.value, path, scope, steps + 1)
        fact = self.fact(base) if base and base.path else None
        if base is None or fact is None:
            return None
        if fact.kind == "function":
            return base
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return None
        entry = replace(base, name=f"{base.name}[{key}]")
        return entry if self.fact(entry) else None

    def _attribute(self, base: Found, name: str, steps: int) -> Found | None:
        if not base.path:
            return Found(b"", f"{base.name}.{name}")
        if not base.name:
            return self.lookup(base.path, name, steps + 1) or self._entry(base.path, name)
        fact = self.fact(base)
        if fact is None:
            return None
        if fact.kind == "class":
            return self.member(replace(base, instance=False), name)
        typed = self.typed(base, steps + 1)
        return self.member(typed, name) if typed and typed.path else None

    def _entry(self, path: bytes, name: str) -> Found | None:
        """Return the table entry called ``name`` in a module whose ``__getattr__`` may return entries of a table."""
        file = self.python(path)
        whole = next((n for n in file.facts if n.endswith(f"[{name}]")), "") if file else ""
        return Found(path, whole) if whole else None

    def typed(self, found: Found, steps: int = 0) -> Found | None:
        """Return the class of the value of a constant, attribute or property; None if it is unknown."""
        file = self.python(found.path)
        shown = file.types.get(found.name) if file else None
        if shown is None or steps > _MOST_STEPS:
            return None
        scope = ""
        fact = file.fact(found.name) if file else None
        if fact and "attribute" in fact.traits:
            scope = f"{found.name.rpartition('.')[0]}.__init__"
        return self._annotated(shown, found.path, scope, steps)

    def _annotated(self, node: ast.expr, path: bytes, scope: str, steps: int) -> Found | None:
        """Return the class that an annotation names, or the class of a value expression; None if it is unknown."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError):
                return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [n for n in (node.left, node.right) if not (isinstance(n, ast.Constant) and n.value is None)]
            return self._annotated(sides[0], path, scope, steps + 1) if sides and steps < _MOST_STEPS else None
        if isinstance(node, ast.Subscript):
            name = ast.unparse(node.value).rpartition(".")[2]
            if name in ("Optional", "ClassVar", "Final", "Annotated"):
                inner = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
                return self._annotated(inner, path, scope, steps + 1) if steps < _MOST_STEPS else None
            return None
        found = self.infer(node, path, scope, steps + 1)
        fact = self.fact(found) if found and found.path and found.name else None
        if found is None or fact is None:
            return None
        return replace(found, instance=True) if fact.kind == "class" else self.typed(found, steps + 1)

    def _result(self, node: ast.Call, path: bytes, scope: str, steps: int) -> Found | None:
        """Return the class of a call's result; None if it is unknown."""
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            owner = self._own_class(path, scope)
            bases = self.bases(owner) if owner else []
            return replace(bases[0], instance=True) if bases else None
        function = self.infer(node.func, path, scope, steps + 1)
        if function is None or not function.path:
            return None
        fact = self.fact(function)
        if fact and fact.kind == "class":
            return replace(function, instance=True)
        file = self.python(function.path)
        shown = file.types.get(function.name) if file and fact and fact.kind == "function" else None
        return self._annotated(shown, function.path, "", steps + 1) if shown is not None else None

    def _own_class(self, path: bytes, scope: str) -> Found | None:
        file = self.python(path)
        parts = scope.split(".")
        for count in range(len(parts) - 1, 0, -1):
            name = ".".join(parts[:count])
            fact = file.fact(name) if file else None
            if fact and fact.kind == "class":
                return Found(path, name)
        return None

    def _name(self, name: str, path: bytes, scope: str, steps: int) -> Found | None:
        file = self.python(path)
        if name in ("self", "cls") and (owner := self._own_class(path, scope)):
            return replace(owner, instance=True)
        outer = scope
        while outer and file:
            node = file.nodes.get(outer)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if f"{outer}.{name}" in file.facts:
                    return Found(path, f"{outer}.{name}")
                if name in file.bound(outer):
                    return self._local(node, name, path, outer, steps)
            outer = outer.rpartition(".")[0]
        return self.lookup(path, name)

    def _local(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, path: bytes, scope: str, steps: int
    ) -> Found | None:
        """Return the class of a parameter or local variable; for a local import, return the imported definition."""
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.arg == name:
                return self._annotated(argument.annotation, path, "", steps) if argument.annotation else None
        values: list[ast.expr] = []
        module = self.module_of(path)
        file = self.python(path)
        for child in file.binding(scope) if file else ():
            source = _import_source(child, name, module, path.endswith(b"__init__.py"))
            if source is not None:
                return self.imported(*source)
            if isinstance(child, ast.AnnAssign) and _is_name(child.target, name):
                return self._annotated(child.annotation, path, "", steps)
            if isinstance(child, ast.Assign) and any(_is_name(t, name) for t in child.targets):
                values.append(child.value)
            elif isinstance(child, ast.withitem) and child.optional_vars and _is_name(child.optional_vars, name):
                values.append(child.context_expr)
        kinds = {found for v in values if (found := self._annotated(v, path, scope, steps + 1))}
        return kinds.pop() if len(kinds) == 1 else None

    def _python_blobs(self) -> dict[bytes, BlobId]:
        """Load all Python files, without restoring them; return their blobs by path."""
        python = {}
        for path in self.entries:
            blob = self.blob(path)
            if blob and path.endswith(b".py"):
                python[path] = self.files.unrestored(blob)
        self.files.bring(python.values())
        return python

    def definers(self, name: str) -> list[bytes]:
        """Return the Python files that seem to define a name, see :meth:`Files.defined`."""
        if self._definers is None:
            self._definers = {}
            for path, blob in self._python_blobs().items():
                if self._near is None or self._near.blob(path) != blob:
                    for each in self.files.defined(blob):
                        self._definers.setdefault(each, []).append(path)
        mine = self._definers.get(name.encode(), [])
        if self._near is None:
            return mine
        return [*(p for p in self._near.definers(name) if self._near.blob(p) == self.blob(p)), *mine]

    def descendants(self, name: str) -> dict[bytes, set[str]]:
        """Return, by file, the possible direct and indirect subclasses of a class called ``name``."""
        if self._heirs is None:
            self._heirs = {}
            for path, blob in self._python_blobs().items():
                for its_name, bases in self.files.classes(blob):
                    for base in bases:
                        self._heirs.setdefault(base, []).append((path, its_name))
        known = {name.encode()}
        waiting = list(known)
        found: dict[bytes, set[str]] = {}
        while waiting:
            for path, its_name in self._heirs.get(waiting.pop(), ()):
                found.setdefault(path, set()).add(its_name.decode())
                if its_name not in known:
                    known.add(its_name)
                    waiting.append(its_name)
        return found

    def includes(self, path: bytes, content: bytes | None = None) -> set[bytes]:
        """Return a C++ file and the files that it includes, directly or indirectly.

        :param content: content to use for the file at ``path``, instead of its content in the tree.
        """
        if self._by_base is None:
            self._by_base = {}
            for each in self.entries:
                if language_of(each) == "c++":
                    self._by_base.setdefault(each.rpartition(b"/")[2], []).append(each)
        known = {path}
        level = [path]
        while level:
            self.files.bring(blob for p in level if (blob := self.blob(p)))
            new = []
            for one in level:
                text = content if content is not None and one == path else self.content(one)
                for spelled in _INCLUDE.findall(text):
                    target = self._included(one, spelled)
                    if target and target not in known:
                        known.add(target)
                        new.append(target)
            level = new
        return known

    def _included(self, path: bytes, spelled: bytes) -> bytes | None:
        assert self._by_base is not None
        ends = spelled.removeprefix(b"./")
        while ends.startswith(b"../"):
            ends = ends[3:]
        candidates = self._by_base.get(ends.rpartition(b"/")[2], ())
        fitting = [c for c in candidates if c == ends or c.endswith(b"/" + ends)]
        return max(fitting, key=lambda c: _shared_start(c, path), default=None)


def marks_of(lines: Iterable[bytes]) -> set[bytes]:
    """Return the lines that are long enough to recognize copied code."""
    return {stripped for line in lines if len(stripped := line.strip()) > _SHORTEST_MARK}


def _shared_start(one: bytes, other: bytes) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _import_source(node: ast.AST, name: str, module: str, package: bool) -> tuple[str, str] | None:
    """Return the module and the attribute that an import binds to ``name``; None if it doesn't bind ``name``."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                return imported_from(node, module, package=package), alias.name
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname == name:
                return alias.name, ""
            if not alias.asname and alias.name.partition(".")[0] == name:
                return name, ""
    return None


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _text(path: bytes) -> str:
    return path.decode("utf-8", "replace")


def _slide(lines: Sequence[bytes], start: int, end: int) -> int:
    """Return by how many lines an added or removed block can move down without changing the diff's result.

    A block with a new function then starts at this function, not at the last lines of the function above.
    """
    moved = 0
    while end + moved < len(lines) and lines[start + moved] == lines[end + moved]:
        moved += 1
    return moved


def changed_lines(before: Sequence[bytes], after: Sequence[bytes]) -> tuple[set[int], set[int]]:
    """Return the numbers (from 1) of the removed lines in the old version and of the added lines in the new one."""
    lead, most = 0, min(len(before), len(after))
    while lead < most and before[lead] == after[lead]:
        lead += 1
    trail = 0
    while trail < most - lead and before[-1 - trail] == after[-1 - trail]:
        trail += 1
    parts = before[lead : len(before) - trail], after[lead : len(after) - trail]
    removed: set[int] = set()
    added: set[int] = set()
    matcher = difflib.SequenceMatcher(None, *parts, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "equal":
            down = _slide(before, lead + old_start, lead + old_end) if tag == "delete" else 0
            removed.update(range(lead + old_start + 1 + down, lead + old_end + 1 + down))
            down = _slide(after, lead + new_start, lead + new_end) if tag == "insert" else 0
            added.update(range(lead + new_start + 1 + down, lead + new_end + 1 + down))
    return removed, added
