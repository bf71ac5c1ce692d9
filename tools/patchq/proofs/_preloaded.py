"""Modules that are imported in advance and hidden in forks. This module uses the standard library only.

A proof must not pass in a fork only because another proof has imported a module. For example, ``import
torch`` doesn't import ``torch.utils.cpp_extension``, but the attribute exists once any code has imported that
module. Therefore, the server records which modules each preloaded module imports. A fork removes all
preloaded modules from :data:`sys.modules`. When the fork imports a module, this module and the modules that
it imports are restored.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any


class Preloaded:
    """Finder and loader of preloaded modules."""

    def __init__(self) -> None:
        self._tried: set[str] = set()
        self._brings: dict[str, set[str]] = {}
        self._asked: set[str] = set()
        self._ahead: set[str] = set()
        self._hidden: dict[str, ModuleType] = {}
        self._specs: dict[str, ModuleSpec] = {}
        self._children: set[str] = set()

    def load(self, names: Iterable[str]) -> None:
        """Import the modules that are not loaded yet. Skip modules that can't be imported on their own."""
        before = set(sys.modules)
        with self._noting():
            for name in names:
                if name not in sys.modules and name not in self._tried:
                    self._tried.add(name)
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        # Modules that another module put into sys.modules come back with that module.
        self._ahead |= (set(sys.modules) - before) & self._asked

    def hide(self) -> None:
        """Hide all preloaded modules in this process. Importing a module restores it."""
        for name in self._ahead:
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and spec is not None and spec.name == name:
                self._hidden[name], self._specs[name] = module, spec
        for name, module in self._hidden.items():
            del sys.modules[name]
            parent, _, tail = name.rpartition(".")
            above = self._hidden.get(parent) or sys.modules.get(parent)
            if above is not None and vars(above).get(tail) is module:
                delattr(above, tail)
                self._children.add(name)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a hidden module, with this object as its loader."""
        if name not in self._hidden:
            return None
        spec = copy.copy(self._specs[name])
        spec.loader = self  # type: ignore[assignment]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the preloaded module."""
        return self._hidden[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module, its parents and the modules that it imported."""
        assert module.__spec__
        name = module.__spec__.name
        module.__spec__ = self._specs[name]
        todo = [name]
        while todo:
            name = todo.pop()
            found = self._hidden.pop(name, None)
            if found is None:
                continue
            sys.modules[name] = found
            parent, _, tail = name.rpartition(".")
            if name in self._children:
                setattr(self._hidden.get(parent) or sys.modules[parent], tail, found)
            todo += [parent, *self._brings.get(name, ())]

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Record what each module imports, by ``import`` statements or :func:`importlib.import_module`."""
        statement, function = builtins.__import__, importlib.import_module

        def noted(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> ModuleType:
            module = statement(name, globals, locals, fromlist, level)
            if fromlist:
                name = getattr(module, "__name__", name)
                self._note([name, *(f"{name}.{part}" for part in fromlist)])
            elif not level:
                self._note([name])
            return module

        def noted_function(name: str, package: str | None = None) -> ModuleType:
            module = function(name, package)
            self._note([importlib.util.resolve_name(name, package)])
            return module

        builtins.__import__, importlib.import_module = noted, noted_function
        try:
            yield
        finally:
            builtins.__import__, importlib.import_module = statement, function

    def _note(self, names: Iterable[str]) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        owner = ""
        if frame:
            owner = str(frame.f_globals.get("__name__"))
        for name in names:
            parts = name.split(".")
            every = {".".join(parts[: n + 1]) for n in range(len(parts))} & sys.modules.keys()
            self._asked |= every
            self._brings.setdefault(owner, set()).update(every)
