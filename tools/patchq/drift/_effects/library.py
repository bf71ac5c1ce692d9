"""Builtin functions, and methods of builtin types, in a trial run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from patchq.drift._effects.machine import Machine, RaisedError
from patchq.drift._effects.values import MOST_ITEMS, Container, Lazy, Number, Unknown, UnknownError

#: Longest range and text to compute.
_LONGEST_RANGE = 64
_LONGEST_TEXT = 10000
#: Builtins without an effect that have no function here.
_PURE = {
    *("abs", "bytes", "callable", "chr", "divmod", "float", "format", "hash", "hex", "id", "issubclass", "oct", "ord"),
    *("pow", "repr", "round", "slice", "sorted", "sum", "type", "range", "int", "frozenset", "super"),
}
#: Methods that have no effect in most classes.
_PURE_METHODS = {
    *("count", "data_ptr", "decode", "dim", "element_size", "encode", "endswith", "format", "get", "index"),
    *("has_value", "is_contiguous", "is_floating_point", "items", "join", "keys", "lower", "lstrip"),
    *("numel", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit", "rstrip", "size"),
    *("split", "startswith", "stride", "strip", "upper", "values"),
    *("isdigit", "isalpha", "isalnum", "isupper", "islower", "isnumeric", "isspace", "isidentifier", "title"),
    *("capitalize", "splitlines", "zfill", "rfind", "expandtabs", "is_file", "is_dir", "with_suffix"),
}
#: Functions of modules without an effect.
_PURE_FUNCTIONS = {
    *("math.ceil", "math.floor", "math.gcd", "math.log2", "math.prod", "math.sqrt", "operator.attrgetter"),
    *("operator.itemgetter", "os.fspath", "os.path.basename", "os.path.dirname", "os.path.join", "os.path.splitext"),
    *("os.getenv", "os.environ.get"),
}
#: Methods of texts that are computed.
_TEXT_METHODS = {
    *("capitalize", "casefold", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower", "isspace"),
    *("isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rpartition"),
    *("rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper"),
}
#: Fewest and most arguments of methods that have an effect with other numbers of arguments.
_ARGUMENTS = {"get": (1, 2), "join": (1, 1), "replace": (2, 3)}
_Result = tuple[bool, Any]
_NOT_DONE: _Result = (False, None)


def dotted(machine: Machine, value: Any) -> str:
    """Return the dotted name of a global value; "" for other values."""
    if not machine.surroundings.is_global(value):
        return ""
    term = machine.surroundings.term(value)
    if term[0] == "global":
        return str(term[1])
    return f"{dotted(machine, Unknown(int(str(term[1]))))}.{term[2]}"


def call_builtin(machine: Machine, name: str, arguments: list[Any], keywords: dict[str, Any]) -> _Result:
    """Call a builtin function: return whether this is one, and its result."""
    if name == "delattr" and len(arguments) == 2 and isinstance(arguments[1], str):
        machine.event("delete", machine.key(arguments[0]), arguments[1])
        return True, None
    if name == "open":
        mode = arguments[1] if len(arguments) > 1 else keywords.get("mode")
        if mode in ("r", "rt"):
            return True, machine.call(
                machine.surroundings.unknown("global", name),
                arguments[:1],
                {k: v for k, v in keywords.items() if k != "mode"},
            )
    call = _BUILTINS.get(name)
    if call is not None and not keywords:
        found = call(machine, *arguments)
        if found is not NotImplemented:
            return True, found
    if name in ("next", "iter", "print", "open") or (name not in _PURE and call is None):
        return _NOT_DONE
    if name == "dict" and not arguments:
        return True, Container("dict", list(keywords), list(keywords.values()))
    values = [machine.key(machine.now(one)) for one in arguments]
    named = tuple(sorted((key, machine.key(value)) for key, value in keywords.items()))
    return True, machine.made("builtin", name, tuple(values), named)


def call_method(machine: Machine, owner: Any, name: str, arguments: list[Any], keywords: dict[str, Any]) -> _Result:
    """Call a method of a builtin type, or one without effects: return whether this is one, and its result."""
    if isinstance(owner, Container):
        call = _METHODS.get(owner.kind, {}).get(name)
        if call is not None and not keywords:
            found = call(machine, owner, *arguments)
            if found is not NotImplemented:
                return True, found
        return True, _other_method(machine, owner, name, arguments, keywords)
    if isinstance(owner, tuple) and name in ("index", "count"):
        return True, machine.made("method", machine.key(owner), name, *map(machine.key, arguments))
    if name == "join" and isinstance(owner, str) and len(arguments) == 1:
        return True, _joined(machine, owner, arguments[0])
    if isinstance(owner, str):
        return True, _of_text(machine, owner, name, arguments, keywords)
    path = f"{dotted(machine, owner)}.{name}"
    if path == "dict.fromkeys" and arguments:
        value = arguments[1] if len(arguments) > 1 else None
        return True, _made_dict(machine, [(key, value) for key in machine.iterate(arguments[0])])
    if path in ("os.environ.get", "os.getenv") and arguments and not keywords:
        return True, _environment(machine, *arguments)
    if path == "os.path.join":
        return True, machine.made("path", _paths(machine, arguments))
    if path in ("typing.cast",) and len(arguments) == 2:
        return True, arguments[1]
    return _pure_method(machine, owner, name, path, arguments, keywords)


def _pure_method(
    machine: Machine, owner: Any, name: str, path: str, arguments: list[Any], keywords: dict[str, Any]
) -> _Result:
    if path in _PURE_FUNCTIONS and not keywords:
        return True, machine.made("call", path, *map(machine.key, arguments))
    fewest, most = _ARGUMENTS.get(name, (0, 9))
    of_module = machine.surroundings.is_global(owner) and path.count(".") == 1 and path.islower()
    if name not in _PURE_METHODS or keywords or of_module or not fewest <= len(arguments) <= most:
        is_written = len(arguments) == 1 and isinstance(arguments[0], Lazy | Container)
        if name == "extend" and is_written and isinstance(owner, Unknown):
            _extend_unknown(machine, owner, arguments[0])
            return True, None
        if name == "setdefault" and len(arguments) == 2 and isinstance(owner, Unknown):
            return True, _set_default(machine, owner, *arguments)
        return _NOT_DONE
    now = machine.now(owner)
    if name == "get" and isinstance(now, Unknown):
        return True, _get(machine, now, *arguments)
    if name == "size":
        shape = machine.attribute(owner, "shape")
        return True, machine.item(shape, arguments[0]) if arguments else shape
    if name in ("items", "keys", "values") and not arguments and isinstance(now, Unknown):
        return True, Lazy(_of_mapping(machine, now, name))
    if name in ("startswith", "endswith") and arguments and isinstance(arguments[0], tuple):
        return True, any(_has_end(machine, now, name, one) for one in arguments[0])
    if name in ("removesuffix", "removeprefix") and isinstance(arguments[0], str):
        return True, _without_end(machine, now, name, arguments[0])
    if name in ("startswith", "endswith") and len(arguments) == 1:
        return True, _has_end(machine, now, name, arguments[0])
    return True, machine.made("method", machine.key(now), name, *map(machine.key, arguments))


def _has_end(machine: Machine, text: Any, name: str, part: Any) -> bool:
    return machine.truth(machine.made("method", machine.key(text), name, machine.key(part)))


def _of_mapping(machine: Machine, mapping: Unknown, name: str) -> Iterator[Any]:
    for key in machine.iterate(mapping):
        if name == "keys":
            yield key
        elif name == "values":
            yield machine.item(mapping, key)
        else:
            yield (key, machine.item(mapping, key))


def _get(machine: Machine, owner: Unknown, key: Any, default: Any = None) -> Any:
    if machine.contains(owner, key):
        return machine.item(owner, key)
    return default


def _set_default(machine: Machine, owner: Unknown, key: Any, default: Any) -> Any:
    if machine.contains(machine.now(owner), key):
        return machine.item(owner, key)
    machine.store_item(owner, key, default)
    return default


def _extend_unknown(machine: Machine, owner: Unknown, items: Any) -> None:
    for one in machine.iterate(items):
        machine.call(machine.bound(owner, "append"), [one], {})


def _without_end(machine: Machine, text: Any, name: str, part: str) -> Any:
    is_suffix = name == "removesuffix"
    if not part or not _has_end(machine, text, "endswith" if is_suffix else "startswith", part):
        return text
    return machine.item(text, slice(None, -len(part)) if is_suffix else slice(len(part), None))


def _environment(machine: Machine, name: Any, default: Any = None) -> Any:
    found = machine.made("environment", machine.key(name))
    if machine.truth(machine.made("is set", machine.key(name))):
        return found
    return default


def _paths(machine: Machine, arguments: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for one in arguments:
        term = machine.surroundings.term(one) if isinstance(one, Unknown) else ()
        if term[:1] == ("path",) and isinstance(term[1], tuple):
            found += term[1]
        else:
            found.append(machine.key(one))
    return tuple(found)


def _joined(machine: Machine, separator: str, items: Any) -> Any:
    parts: list[Any] = []
    for one in machine.iterate(items):
        parts += [separator, one] if parts else [one]
    return machine.text(parts) if parts else ""


def _of_text(machine: Machine, owner: str, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    plain = all(isinstance(one, str | int | None) for one in arguments)
    if name in _TEXT_METHODS and plain and not keywords:
        try:
            found = getattr(owner, name)(*arguments)
        except (TypeError, ValueError):
            raise UnknownError from None
        if isinstance(found, str) and len(found) > _LONGEST_TEXT:
            raise UnknownError
        return Container("list", found) if isinstance(found, list) else found
    if name == "format" and not keywords:
        parts = owner.split("{}")
        if len(parts) != len(arguments) + 1 or any("{" in part or "}" in part for part in parts):
            raise UnknownError
        texts: list[Any] = [parts[0]]
        for one, part in zip(arguments, parts[1:], strict=True):
            texts += [machine.text_of(one), part]
        return machine.text(texts)
    if keywords:
        raise UnknownError
    return machine.made("method", machine.key(owner), name, *map(machine.key, arguments))


def _made_dict(machine: Machine, pairs: list[tuple[Any, Any]]) -> Container:
    found = Container("dict")
    for key, value in pairs:
        machine.store_in(found, key, value)
    return found


# Builtins


def _any(machine: Machine, items: Any = NotImplemented) -> Any:
    return items if items is NotImplemented else any(machine.truth(one) for one in machine.iterate(items))


def _all(machine: Machine, items: Any = NotImplemented) -> Any:
    return items if items is NotImplemented else all(machine.truth(one) for one in machine.iterate(items))


def _bool(machine: Machine, value: Any = False) -> bool:
    return machine.truth(value)


def _len(machine: Machine, value: Any) -> Any:
    value = machine.now(value)
    if isinstance(value, Container):
        return len(value.items)
    if isinstance(value, tuple | str | bytes | range):
        return len(value)
    if isinstance(value, Unknown):
        size = machine.surroundings.unknown("len", value.number)
        machine.surroundings.is_number(size)
        return size
    return NotImplemented


def _str(machine: Machine, *values: Any) -> Any:
    if len(values) != 1:
        return NotImplemented
    return machine.text_of(machine.now(values[0]))


def _list(machine: Machine, items: Any = ()) -> Container:
    return Container("list", list(machine.iterate(items)))


def _tuple(machine: Machine, items: Any = ()) -> tuple[Any, ...]:
    return tuple(machine.iterate(items))


def _set(machine: Machine, items: Any = ()) -> Container:
    return machine.made_set(machine.iterate(items))


def _dict(machine: Machine, *items: Any) -> Any:
    found = Container("dict")
    if not items:
        return found
    if isinstance(items[0], Lazy | tuple) or (isinstance(items[0], Container) and items[0].kind == "list"):
        for pair in machine.iterate(items[0]):
            machine.store_in(found, machine.item(pair, 0), machine.item(pair, 1))
        return found
    machine.update(found, items[0])
    return found


def _range(machine: Machine, *limits: Any) -> Any:
    limits = tuple(_size(machine, one) for one in limits)
    if all(isinstance(one, int) for one in limits):
        found = range(*limits)
        if len(found) > _LONGEST_RANGE:
            return _counted(machine, *limits)
        return found
    if len(limits) == 3 and not isinstance(limits[2], int):
        return NotImplemented
    return _counted(machine, *limits)


def _size(machine: Machine, limit: Any) -> Any:
    """Return the limit of a range: for ``len(x)``, the number of items of ``x`` in this run."""
    if isinstance(limit, Unknown) and machine.surroundings.term(limit)[0] == "len":
        return min(machine.decisions.content(limit), MOST_ITEMS)
    return limit


def _counted(machine: Machine, *limits: Any) -> Lazy:
    """Return the first items of a range whose limits are unknown."""
    start, end = (0, limits[0]) if len(limits) == 1 else limits[:2]
    step = limits[2] if len(limits) > 2 else 1
    for one in limits:
        if isinstance(one, Unknown):
            machine.surroundings.is_number(one)
    count = machine.decisions.draw("rounds", machine.key(start), machine.key(end), machine.key(step)) % 4

    def items() -> Iterator[Any]:
        for at in range(count):
            yield machine.operation(ast.Add(), machine.now(start), at * step)

    return Lazy(items())


def _enumerate(machine: Machine, items: Any, start: Any = 0) -> Any:
    if not isinstance(start, int):
        return NotImplemented
    return Lazy((at, item) for at, item in enumerate(machine.iterate(items), start))


def _zip(machine: Machine, *items: Any) -> Any:
    return Lazy(iter(zip(*(machine.iterate(one) for one in items), strict=False)))


def _reversed(machine: Machine, items: Any) -> Any:
    return Lazy(reversed(list(machine.iterate(items))))


def _map(machine: Machine, function: Any, *items: Any) -> Any:
    rounds = zip(*(machine.iterate(one) for one in items), strict=False)
    return Lazy(machine.call(function, list(given), {}) for given in rounds)


def _filter(machine: Machine, function: Any, items: Any) -> Any:
    def holds(item: Any) -> bool:
        return machine.truth(item if function is None else machine.call(function, [item], {}))

    return Lazy(item for item in machine.iterate(items) if holds(item))


def _sum(machine: Machine, items: Any, start: Any = 0) -> Any:
    found = start
    for one in machine.iterate(items):
        found = machine.operation(ast.Add(), found, int(one) if isinstance(one, bool) else one)
    return found


def _extreme(name: str) -> Callable[..., Any]:
    def call(machine: Machine, *values: Any) -> Any:
        every = list(machine.iterate(values[0])) if len(values) == 1 else list(values)
        if every and all(isinstance(one, int | float) for one in every):
            return min(every) if name == "min" else max(every)
        keys = sorted((machine.key(machine.now(one)) for one in every), key=repr)
        return machine.made("builtin", name, *keys)

    return call


def _isinstance(machine: Machine, value: Any, kinds: Any) -> Any:
    if isinstance(kinds, tuple):
        return any(_isinstance(machine, value, one) for one in kinds)
    if isinstance(value, Unknown | Number):
        return machine.truth(machine.made("isinstance", machine.key(value), machine.key(kinds)))
    return machine.truth(machine.made("isinstance", type(value).__name__, machine.key(kinds)))


def _hasattr(machine: Machine, value: Any, name: Any) -> Any:
    return machine.truth(machine.surroundings.unknown("hasattr", machine.key(value), machine.key(name)))


def _getattr(machine: Machine, value: Any, name: Any, *default: Any) -> Any:
    if not isinstance(name, str):
        return NotImplemented
    if default and not _hasattr(machine, value, name):
        return default[0]
    return machine.attribute(value, name)


def _setattr(machine: Machine, owner: Any, name: Any, value: Any) -> Any:
    if not isinstance(name, str) or name.startswith("__"):
        return NotImplemented
    machine.store(owner, name, value)
    return None


def _next(machine: Machine, items: Any, *default: Any) -> Any:
    if not isinstance(items, Lazy):
        return NotImplemented
    for one in items.items:
        return one
    if default:
        return default[0]
    raise RaisedError(("error", "StopIteration"), None)


def _iter(machine: Machine, items: Any) -> Any:
    if isinstance(items, Container | tuple | Lazy):
        return Lazy(machine.iterate(items))
    return NotImplemented


def _sorted(machine: Machine, items: Any) -> Any:
    every = list(machine.iterate(items))
    if all(isinstance(one, int | float) for one in every) or all(isinstance(one, str) for one in every):
        return Container("list", sorted(every))
    keys = sorted((machine.key(one) for one in every), key=repr)
    whole = machine.surroundings.unknown("sorted", tuple(keys))
    return Container("list", [machine.surroundings.unknown("item", machine.key(whole), at) for at in range(len(every))])


def _cast(machine: Machine, kind: Any, value: Any) -> Any:
    return value


_BUILTINS: dict[str, Callable[..., Any]] = {
    "any": _any,
    "all": _all,
    "bool": _bool,
    "len": _len,
    "str": _str,
    "list": _list,
    "tuple": _tuple,
    "set": _set,
    "dict": _dict,
    "range": _range,
    "enumerate": _enumerate,
    "zip": _zip,
    "reversed": _reversed,
    "map": _map,
    "filter": _filter,
    "sum": _sum,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "isinstance": _isinstance,
    "hasattr": _hasattr,
    "getattr": _getattr,
    "setattr": _setattr,
    "next": _next,
    "iter": _iter,
    "sorted": _sorted,
    "cast": _cast,
}


# Methods of containers

#: Methods of containers that are not computed and have no effect.
_PURE_OF_CONTAINERS = {
    *("index", "count", "union", "intersection", "difference", "issubset", "issuperset", "isdisjoint"),
    *("symmetric_difference",),
}


def _other_method(machine: Machine, owner: Container, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    """Return the unknown result of a method; ``sort`` gives the list unknown items."""
    values = tuple(machine.key(one) for one in arguments)
    named = tuple(sorted((key, machine.key(value)) for key, value in keywords.items()))
    whole = machine.surroundings.unknown(name, machine.key(owner), values, named)
    if name == "sort" and owner.kind == "list":
        owner.items[:] = [machine.made("item", machine.key(whole), machine.key(at)) for at in range(len(owner.items))]
        return None
    if name in _PURE_OF_CONTAINERS:
        return whole
    result = machine.event("call method", machine.key(owner, shared=True), name, values, named)
    owner.items[:] = [machine.made("item", machine.key(result), machine.key(at)) for at in range(len(owner.items))]
    owner.values[:] = [machine.made("item", machine.key(result), machine.key(one)) for one in owner.items]
    return result


def _append(machine: Machine, owner: Container, item: Any) -> None:
    owner.items.append(item)


def _extend(machine: Machine, owner: Container, items: Any) -> None:
    owner.items.extend(list(machine.iterate(items)))


def _insert(machine: Machine, owner: Container, place: Any, item: Any) -> Any:
    if not isinstance(place, int):
        return NotImplemented
    owner.items.insert(place, item)
    return None


def _pop(machine: Machine, owner: Container, place: Any = -1) -> Any:
    if not isinstance(place, int):
        return NotImplemented
    try:
        return owner.items.pop(place)
    except IndexError:
        raise RaisedError(("error", "IndexError"), None) from None


def _clear(machine: Machine, owner: Container) -> None:
    owner.items.clear()
    owner.values.clear()


def _copy(machine: Machine, owner: Container) -> Container:
    return owner.copy()


def _reverse(machine: Machine, owner: Container) -> None:
    owner.items.reverse()


def _remove(machine: Machine, owner: Container, item: Any) -> None:
    at = machine.position(owner, item)
    if at is None:
        raise RaisedError(("error", "KeyError" if owner.kind == "set" else "ValueError"), None)
    del owner.items[at]


def _discard(machine: Machine, owner: Container, item: Any) -> None:
    at = machine.position(owner, item)
    if at is not None:
        del owner.items[at]


def _add(machine: Machine, owner: Container, item: Any) -> None:
    if machine.position(owner, item) is None:
        owner.items.append(item)


def _add_all(machine: Machine, owner: Container, *every: Any) -> None:
    for items in every:
        for one in machine.iterate(items):
            _add(machine, owner, one)


def _dict_get(machine: Machine, owner: Container, key: Any, default: Any = None) -> Any:
    at = machine.position(owner, key)
    return default if at is None else owner.values[at]


def _dict_pop(machine: Machine, owner: Container, key: Any, *default: Any) -> Any:
    at = machine.position(owner, key)
    if at is None:
        return default[0] if default else machine.item(owner, key)
    del owner.items[at]
    return owner.values.pop(at)


def _dict_default(machine: Machine, owner: Container, key: Any, default: Any = None) -> Any:
    if machine.position(owner, key) is None:
        machine.store_in(owner, key, default)
    return machine.item(owner, key)


def _items(machine: Machine, owner: Container) -> Lazy:
    return Lazy(iter(list(zip(owner.items, owner.values, strict=True))))


_METHODS: dict[str, dict[str, Callable[..., Any]]] = {
    "list": {
        "append": _append,
        "extend": _extend,
        "insert": _insert,
        "pop": _pop,
        "clear": _clear,
        "copy": _copy,
        "reverse": _reverse,
        "remove": _remove,
    },
    "set": {
        "add": _add,
        "update": _add_all,
        "discard": _discard,
        "remove": _remove,
        "clear": _clear,
        "copy": _copy,
    },
    "dict": {
        "get": _dict_get,
        "pop": _dict_pop,
        "setdefault": _dict_default,
        "items": _items,
        "keys": lambda machine, owner: Lazy(iter(list(owner.items))),
        "values": lambda machine, owner: Lazy(iter(list(owner.values))),
        "update": lambda machine, owner, other: machine.update(owner, other),
        "clear": _clear,
        "copy": _copy,
    },
}
