"""Signatures of a Python package, read with griffe, and their changes between two refs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchq.errors import FormatError

if TYPE_CHECKING:
    import griffe


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a function.

    :ivar kind: kind with the name that :mod:`inspect` uses, such as ``positional or keyword``.
    :ivar default: source of the default value; None if there is none.
    """

    name: str
    kind: str
    default: str | None

    @property
    def positional(self) -> bool:
        return self.kind in ("positional-only", "positional or keyword")


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters of a function, without ``self`` and ``cls`` of methods."""

    path: str
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        """Name in a call: the name of the function, or the name of the class for a constructor."""
        parts = self.path.split(".")
        if parts[-1] == "__init__":
            return parts[-2]
        return parts[-1]

    @property
    def positional(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.parameters if p.positional)

    def takes(self, kind: str) -> bool:
        """Return whether the function has a parameter of a kind, such as ``variadic keyword``."""
        return any(p.kind == kind for p in self.parameters)

    def find(self, name: str) -> Parameter | None:
        """Return the parameter that a keyword argument sets; None if there is none."""
        return next((p for p in self.parameters if p.name == name and p.kind != "positional-only"), None)

    def accepts(self, count: int, keywords: set[str]) -> bool:
        """Return whether a call with these arguments fits the signature.

        :param count: number of positional arguments.
        :param keywords: names of keyword arguments.
        """
        if count > len(self.positional) and not self.takes("variadic positional"):
            return False
        if not self.takes("variadic keyword") and any(self.find(k) is None for k in keywords):
            return False
        given = {p.name for p in self.positional[:count]}
        if given & keywords:
            return False
        rest = []
        for p in self.parameters:
            if p.name not in given | keywords and p.default is None:
                rest.append(p)
        return all(p.kind.startswith("variadic") for p in rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Public API of a package.

    :ivar functions: signature of each function by its path.
    :ivar aliases: for each path of a function or class, including imports, the path of its definition.
    :ivar names: all paths.
    """

    package: str
    functions: Mapping[str, Signature]
    aliases: Mapping[str, str]
    names: frozenset[str]


def load_api(package: str, tree: Path) -> Api:
    """Read the API of a package from its source in ``tree``, without importing or running it.

    :raises FormatError: if the package isn't valid Python, or is nested too deeply.
    """
    import logging

    import griffe

    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    loader = griffe.GriffeLoader(search_paths=[tree], allow_inspection=False)
    try:
        root = loader.load(package, try_relative_path=False)
        loader.resolve_aliases(implicit=True, external=False)
    except (griffe.LoadingError, ImportError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"the signatures of {package} can't be read: {error}", hint="check its source") from None
    functions: dict[str, Signature] = {}
    aliases: dict[str, str] = {}
    names: set[str] = set()
    for path, item in _walk(root):
        names.add(path)
        target = item
        if item.is_alias:
            try:
                target = item.final_target  # type: ignore[union-attr]
            except Exception:
                continue  # griffe can't resolve aliases into other packages, or cycles
        if target.is_function:
            functions[target.path] = _signature(target.path, target)
            aliases[path] = target.path
        elif target.is_class:
            aliases[path] = target.path
    return Api(package=package, functions=functions, aliases=aliases, names=frozenset(names))


def _walk(root: Any) -> Iterator[tuple[str, griffe.Object | griffe.Alias]]:
    stack: list[tuple[str, Any]] = [(root.path, root)]
    while stack:
        path, item = stack.pop()
        yield path, item
        if not item.is_alias:
            for name, member in item.members.items():
                stack.append((f"{path}.{name}", member))


def _signature(path: str, function: Any) -> Signature:
    found = []
    for index, p in enumerate(function.parameters):
        if index == 0 and p.name in ("self", "cls") and function.parent is not None and function.parent.is_class:
            continue
        kind = "positional or keyword"
        if p.kind:
            kind = p.kind.value
        variadic = kind.startswith("variadic")
        found.append(Parameter(p.name, kind, None if p.default is None or variadic else str(p.default)))
    return Signature(path, tuple(found))


@dataclass(frozen=True, slots=True)
class SignatureChange:
    """Old and new signature of a function that is in both refs."""

    old: Signature
    new: Signature


def changes(old: Api, new: Api) -> tuple[list[SignatureChange], frozenset[str]]:
    """Return the changed signatures, and the names that the new API lacks."""
    changed = []
    for path, sig in old.functions.items():
        if path in new.functions and new.functions[path].parameters != sig.parameters:
            changed.append(SignatureChange(sig, new.functions[path]))
    return changed, old.names - new.names
