"""A replacement for ``dataclasses.dataclass`` that makes frozen dataclasses with slots in a fifth of the time.

Python's decorator compiles six methods for each class, and a short command imports dozens of such classes. Here, only
``__init__`` is compiled; all classes share the other methods.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, **options):
        """Make a class a dataclass.

        Classes that aren't frozen with slots, or that need more options than ``kw_only``, get Python's own decorator.
        """

        def make(given):
            own = given.__dict__.keys() & _SHARED.keys()
            if not frozen or not slots or options.keys() - {"kw_only"} or own:
                return dataclasses.dataclass(given, frozen=frozen, slots=slots, **options)
            if given.__doc__ is None:
                given.__doc__ = given.__name__  # Python would format the signature
            made = dataclasses.dataclass(given, init=False, repr=False, eq=False, slots=True, **options)
            for name, function in _SHARED.items():
                setattr(made, name, function)
            _add_init(made)
            return made

        if cls is None:
            return make
        return make(cls)


def _add_init(cls: Any) -> None:
    """Add ``__init__``, and the tuples of the compared, hashed and printed fields."""
    compared, hashed, printed = [], [], []
    positional, named, body = [], [], []
    values: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    for field in dataclasses.fields(cls):
        name = field.name
        if field.compare:
            compared.append(name)
        if field.hash or (field.hash is None and field.compare):
            hashed.append(name)
        if field.repr:
            printed.append(name)
        value, parameter = name, name
        if field.default is not dataclasses.MISSING:
            values[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            values[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        if field.init and field.kw_only:
            named.append(parameter)
        elif field.init:
            positional.append(parameter)
        elif parameter == name:
            continue
        else:
            body.append(f" {name} = {parameter.partition('=')[2]}\n")
        body.append(f" _set(_self, {name!r}, {value})\n")
    if hasattr(cls, "__post_init__"):
        body.append(" _self.__post_init__()\n")
    if named:
        positional += ["*", *named]
    exec(f"def __init__({', '.join(['_self', *positional])}):\n{''.join(body) or ' pass'}", values)
    cls.__init__ = values["__init__"]
    cls.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    cls._compared, cls._hashed, cls._printed = _getter(compared), _getter(hashed), tuple(printed)


def _getter(names: list[str]) -> Any:
    """Return a function from a record to the tuple of these attributes."""
    if len(names) > 1:
        return staticmethod(attrgetter(*names))
    return staticmethod(lambda record: tuple(getattr(record, name) for name in names))


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash(self._hashed(self))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._printed)
    return f"{self.__class__.__qualname__}({fields})"


def _setattr(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_SHARED = {
    "__eq__": _eq, "__hash__": _hash, "__repr__": _repr, "__setattr__": _setattr, "__delattr__": _delattr,
    "__getstate__": _getstate, "__setstate__": _setstate,
}  # fmt: skip
