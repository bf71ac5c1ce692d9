"""Builtin functions, and methods of builtin types, in a trial run."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from patchq.drift._effects.state import LONGEST, BoundMethod, RaisedError, TrialState
from patchq.drift._effects.values import MOST_ITEMS, Lazy, MadeContainer, Number, Unknown, UnknownError

#: Longest range to compute.
_LONGEST_RANGE = 64
#: Builtins without an effect that have no function here.
_PURE = {
    *("abs", "bytes", "callable", "chr", "divmod", "float", "format", "hash", "hex", "id", "issubclass", "oct", "ord"),
    *("pow", "repr", "round", "slice", "type", "int", "frozenset", "super"),
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
    *("operator.itemgetter", "os.fspath", "os.path.basename", "os.path.dirname", "os.path.splitext"),
}
#: Methods of texts that are computed.
_TEXT_METHODS = {
    *("capitalize", "casefold", "count", "endswith", "find", "isalnum", "isalpha", "isdigit", "islower", "isspace"),
    *("isupper", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rpartition"),
    *("rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper"),
}
#: Methods of PyTorch's modules: ``named_modules()`` yields the same as ``modules()``, with names.
_WITH_NAMES = {"buffers", "children", "modules", "parameters"}
#: Fewest and most arguments of methods that have an effect with other numbers of arguments.
_ARGUMENTS = {"get": (1, 2), "join": (1, 1), "replace": (2, 3), "decode": (0, 0), "encode": (0, 0)}
_Result = tuple[bool, Any]
_NOT_DONE: _Result = (False, None)


def dotted(state: TrialState, value: Any) -> str:
    """Return the dotted name of a global value; "" for other values."""
    if not state.surroundings.is_global(value):
        return ""
    term = state.surroundings.term(value)
    if term[0] == "global":
        return str(term[1])
    return f"{dotted(state, Unknown(int(str(term[1]))))}.{term[2]}"


def call_builtin(state: TrialState, name: str, arguments: list[Any], keywords: dict[str, Any]) -> _Result:
    """Call a builtin function: return whether this is one, and its result."""
    if state.surroundings.is_cpp and name not in ("min", "max", "clamp", "ceil_div"):
        return _NOT_DONE
    if name == "delattr" and len(arguments) == 2 and isinstance(arguments[1], str):
        state.event("delete", state.key(arguments[0]), arguments[1])
        return True, None
    if name == "open":
        mode = arguments[1] if len(arguments) > 1 else keywords.get("mode")
        if mode in ("r", "rt"):
            return True, state.call(
                state.surroundings.unknown("global", name),
                arguments[:1],
                {k: v for k, v in keywords.items() if k != "mode"},
            )
    call = _BUILTINS.get(name)
    if call is not None and not keywords:
        found = _applied(call, state, arguments)
        if found is not NotImplemented:
            return True, found
    if name in ("next", "iter", "print", "open") or (name not in _PURE and call is None):
        return _NOT_DONE
    if name == "dict" and not arguments:
        return True, MadeContainer("dict", list(keywords), list(keywords.values()))
    values = state.keys(map(state.now, arguments))
    named = state.named(keywords)
    return True, state.made("builtin", name, values, named)


@functools.cache
def _signature(call: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(call)


def _applied(call: Callable[..., Any], state: TrialState, arguments: list[Any]) -> Any:
    """Call a function of this module.

    :raises UnknownError: if the function doesn't take these arguments.
    """
    try:
        _signature(call).bind(state, *arguments)
    except TypeError:
        raise UnknownError from None
    return call(state, *arguments)


def call_method(state: TrialState, owner: Any, name: str, arguments: list[Any], keywords: dict[str, Any]) -> _Result:
    """Call a method of a builtin type, or one without effects: return whether this is one, and its result."""
    if isinstance(owner, MadeContainer):
        call = _METHODS.get(owner.kind, {}).get(name)
        if call is not None and not keywords:
            found = _applied(call, state, [owner, *arguments])
            if found is not NotImplemented:
                return True, found
        return True, _other_method(state, owner, name, arguments, keywords)
    if isinstance(owner, tuple) and name in ("index", "count"):
        return True, state.made("method", state.key(owner), name, *map(state.key, arguments))
    if name == "join" and isinstance(owner, str) and len(arguments) == 1:
        return True, _joined(state, owner, arguments[0])
    if isinstance(owner, str):
        return True, _of_text(state, owner, name, arguments, keywords)
    path = f"{dotted(state, owner)}.{name}"
    if path == "dict.fromkeys" and arguments:
        value = arguments[1] if len(arguments) > 1 else None
        return True, _made_dict(state, [(key, value) for key in state.iterate(arguments[0])])
    if path in ("os.environ.get", "os.getenv") and arguments and not keywords:
        return True, _environment(state, *arguments)
    if path == "os.path.join":
        return True, state.made("path", _paths(state, arguments))
    if path == "typing.cast" and len(arguments) == 2:
        return True, arguments[1]
    return _pure_method(state, owner, name, path, arguments, keywords)


def _without_names(state: TrialState, module: Unknown, name: str) -> Iterator[Any]:
    """Yield what ``named_modules()`` and the like of a PyTorch module yield, without the names."""
    for pair in state.iterate(state.event("call", state.key(state.attribute(module, f"named_{name}")), (), ())):
        if isinstance(pair, Unknown):
            state.surroundings.unpack(pair, 2)
        yield state.item(pair, 1)


def _pure_method(
    state: TrialState, owner: Any, name: str, path: str, arguments: list[Any], keywords: dict[str, Any]
) -> _Result:
    if path in _PURE_FUNCTIONS and not keywords:
        return True, state.made("call", path, *map(state.key, arguments))
    fewest, most = _ARGUMENTS.get(name, (0, 9))
    of_module = state.surroundings.is_global(owner) and path.count(".") == 1 and path.islower()
    if name in ("join", "get", "decode", "encode") and arguments and isinstance(arguments[0], int):
        # Of a thread or a queue.
        return _NOT_DONE
    if name not in _PURE_METHODS or keywords or of_module or not fewest <= len(arguments) <= most:
        if isinstance(owner, Unknown):
            return _method_of_unknown(state, owner, name, arguments, keywords)
        return _NOT_DONE
    now = state.now(owner)
    if name == "get" and isinstance(now, Unknown):
        return True, _get(state, now, *arguments)
    if name == "size":
        return True, _size_of(state, owner, *arguments)
    if name in ("items", "keys", "values") and not arguments and isinstance(now, Unknown):
        return True, Lazy(_of_mapping(state, now, name))
    if name in ("startswith", "endswith") and arguments and isinstance(arguments[0], tuple):
        return True, any(_has_end(state, now, name, one) for one in arguments[0])
    if name in ("removesuffix", "removeprefix") and isinstance(arguments[0], str):
        return True, _without_end(state, now, name, arguments[0])
    if name in ("startswith", "endswith") and len(arguments) == 1:
        return True, _has_end(state, now, name, arguments[0])
    return True, state.made("method", state.key(now), name, *map(state.key, arguments))


def _method_of_unknown(
    state: TrialState, owner: Unknown, name: str, arguments: list[Any], keywords: dict[str, Any]
) -> _Result:
    if name == "extend" and len(arguments) == 1 and isinstance(arguments[0], Lazy | MadeContainer):
        _extend_unknown(state, owner, arguments[0])
        return True, None
    if name == "setdefault" and len(arguments) == 2:
        return True, _set_default(state, owner, *arguments)
    if name in _WITH_NAMES and not arguments and not keywords:
        return True, Lazy(_without_names(state, owner, name))
    return _NOT_DONE


def _size_of(state: TrialState, owner: Any, *place: Any) -> Any:
    if state.surroundings.is_cpp:
        # It may be a vector, which changes its size.
        owner = state.now(owner)
    shape = state.attribute(owner, "shape")
    if place:
        return state.item(shape, place[0])
    return shape


def _has_end(state: TrialState, text: Any, name: str, part: Any) -> bool:
    return state.truth(state.made("method", state.key(text), name, state.key(part)))


def _of_mapping(state: TrialState, mapping: Unknown, name: str) -> Iterator[Any]:
    for key in state.iterate(mapping):
        if name == "keys":
            yield key
        elif name == "values":
            yield state.item(mapping, key)
        else:
            yield (key, state.item(mapping, key))


def _get(state: TrialState, owner: Unknown, key: Any, default: Any = None) -> Any:
    if state.contains(owner, key):
        return state.item(owner, key)
    return default


def _set_default(state: TrialState, owner: Unknown, key: Any, default: Any) -> Any:
    if state.contains(state.now(owner), key):
        return state.item(owner, key)
    state.store_item(owner, key, default)
    return default


def _extend_unknown(state: TrialState, owner: Unknown, items: Any) -> None:
    for one in state.iterate(items):
        state.call(BoundMethod(owner, "append"), [one], {})


def _without_end(state: TrialState, text: Any, name: str, part: str) -> Any:
    is_suffix = name == "removesuffix"
    if not part or not _has_end(state, text, "endswith" if is_suffix else "startswith", part):
        return text
    return state.item(text, slice(None, -len(part)) if is_suffix else slice(len(part), None))


def _environment(state: TrialState, name: Any, default: Any = None) -> Any:
    found = state.made("environment", state.key(name))
    if state.truth(state.made("is set", state.key(name))):
        return found
    return default


def _paths(state: TrialState, arguments: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for one in arguments:
        term = state.surroundings.term(one) if isinstance(one, Unknown) else ()
        if term[:1] == ("path",) and isinstance(term[1], tuple):
            found += term[1]
        else:
            found.append(state.key(one))
    return tuple(found)


def _joined(state: TrialState, separator: str, items: Any) -> Any:
    parts: list[Any] = []
    for one in state.iterate(items):
        parts += [separator, one] if parts else [one]
    return state.text(parts) if parts else ""


def _of_text(state: TrialState, owner: str, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
    plain = all(isinstance(one, str | int | None) for one in arguments)
    if name in _TEXT_METHODS and plain and not keywords:
        try:
            found = getattr(owner, name)(*arguments)
        except (TypeError, ValueError):
            raise UnknownError from None
        if isinstance(found, str) and len(found) > LONGEST:
            raise UnknownError
        return MadeContainer("list", found) if isinstance(found, list) else found
    if name == "format" and not keywords:
        parts = owner.split("{}")
        if len(parts) != len(arguments) + 1 or any("{" in part or "}" in part for part in parts):
            raise UnknownError
        texts: list[Any] = [parts[0]]
        for one, part in zip(arguments, parts[1:], strict=True):
            texts += [state.text_of(one), part]
        return state.text(texts)
    if keywords:
        raise UnknownError
    return state.made("method", state.key(owner), name, *map(state.key, arguments))


def _made_dict(state: TrialState, pairs: list[tuple[Any, Any]]) -> MadeContainer:
    found = MadeContainer("dict")
    for key, value in pairs:
        state.store_in(found, key, value)
    return found


# Builtins


def _any(state: TrialState, items: Any) -> bool:
    return any(map(state.truth, state.iterate(items)))


def _all(state: TrialState, items: Any) -> bool:
    return all(map(state.truth, state.iterate(items)))


def _bool(state: TrialState, value: Any = False) -> bool:
    return state.truth(value)


def _len(state: TrialState, value: Any) -> Any:
    value = state.now(value)
    if isinstance(value, MadeContainer):
        return len(value.items)
    if isinstance(value, tuple | str | bytes | range):
        return len(value)
    if isinstance(value, Unknown) and value.number in state.surroundings.iterated:
        return state.decisions.size(value)
    if isinstance(value, Unknown):
        size = state.surroundings.unknown("len", value.number)
        state.surroundings.is_number(size)
        return size
    return NotImplemented


def _str(state: TrialState, *values: Any) -> Any:
    if len(values) != 1:
        return NotImplemented
    return state.text_of(state.now(values[0]))


def _list(state: TrialState, items: Any = ()) -> MadeContainer:
    return MadeContainer("list", list(state.iterate(items)))


def _tuple(state: TrialState, items: Any = ()) -> tuple[Any, ...]:
    return tuple(state.iterate(items))


def _set(state: TrialState, items: Any = ()) -> MadeContainer:
    return state.made_set(state.iterate(items))


def _dict(state: TrialState, *items: Any) -> Any:
    found = MadeContainer("dict")
    if not items:
        return found
    if isinstance(items[0], Lazy | tuple) or (isinstance(items[0], MadeContainer) and items[0].kind == "list"):
        for pair in state.iterate(items[0]):
            state.store_in(found, state.item(pair, 0), state.item(pair, 1))
        return found
    state.update(found, items[0])
    return found


def _range(state: TrialState, *limits: Any) -> Any:
    if not 1 <= len(limits) <= 3:
        return NotImplemented
    limits = tuple(_size(state, one) for one in limits)
    if all(isinstance(one, int) for one in limits):
        try:
            found = range(*limits)
        except ValueError:
            raise RaisedError(("error", "ValueError"), None) from None
        if found[_LONGEST_RANGE:]:
            return _counted(state, *limits)
        return found
    if len(limits) == 3 and not isinstance(limits[2], int):
        return NotImplemented
    return _counted(state, *limits)


def _size(state: TrialState, limit: Any) -> Any:
    """Return the limit of a range: for ``len(x)``, the number of items of ``x`` in this run."""
    if isinstance(limit, Unknown) and state.surroundings.term(limit)[0] == "len":
        return min(state.decisions.content(limit), MOST_ITEMS)
    return limit


def _counted(state: TrialState, *limits: Any) -> Lazy:
    """Return the first items of a range whose limits are unknown."""
    start, end = (0, limits[0]) if len(limits) == 1 else limits[:2]
    step = limits[2] if len(limits) > 2 else 1
    for one in limits:
        if isinstance(one, Unknown):
            state.surroundings.is_number(one)
    count = state.decisions.draw("rounds", state.key(start), state.key(end), state.key(step)) % 4

    def items() -> Iterator[Any]:
        for at in range(count):
            yield state.operation(ast.Add(), state.now(start), at * step)

    return Lazy(items())


def _enumerate(state: TrialState, items: Any, start: Any = 0) -> Any:
    if not isinstance(start, int):
        return NotImplemented
    return Lazy((at, item) for at, item in enumerate(state.iterate(items), start))


def _zip(state: TrialState, *items: Any) -> Any:
    return Lazy(iter(zip(*map(state.iterate, items), strict=False)))


def _reversed(state: TrialState, items: Any) -> Any:
    return Lazy(reversed(list(state.iterate(items))))


def _map(state: TrialState, function: Any, *items: Any) -> Any:
    rounds = zip(*map(state.iterate, items), strict=False)
    return Lazy(state.call(function, list(given), {}) for given in rounds)


def _filter(state: TrialState, function: Any, items: Any) -> Any:
    def holds(item: Any) -> bool:
        return state.truth(item if function is None else state.call(function, [item], {}))

    return Lazy(item for item in state.iterate(items) if holds(item))


def _sum(state: TrialState, items: Any, start: Any = 0) -> Any:
    found = start
    for one in state.iterate(items):
        found = state.operation(ast.Add(), found, int(one) if isinstance(one, bool) else one)
    return found


def _extreme(name: str) -> Callable[..., Any]:
    def call(state: TrialState, *values: Any) -> Any:
        every = list(state.iterate(values[0])) if len(values) == 1 else list(values)
        if every and all(isinstance(one, int | float) for one in every):
            return min(every) if name == "min" else max(every)
        every = list(map(state.now, every))
        if len(values) == 2 and (less := state.is_less(*every)) is not None:
            return every[less != (name == "min")]
        keys = sorted(state.keys(every), key=repr)
        return state.made("builtin", name, *keys)

    return call


def _clamp(state: TrialState, value: Any, lowest: Any, highest: Any) -> Any:
    raised = _BUILTINS["max"](state, value, lowest)
    return _BUILTINS["min"](state, raised, highest)


def _ceil_div(state: TrialState, number: Any, divisor: Any) -> Any:
    """Return ``ceil_div(n, d)`` as ``(n + d - 1) / d``."""
    for one in (number, divisor):
        if isinstance(one, Unknown):
            state.surroundings.is_number(one)
    most = state.operation(ast.Sub(), divisor, 1)
    return state.operation(ast.FloorDiv(), state.operation(ast.Add(), number, most), divisor)


def _isinstance(state: TrialState, value: Any, kinds: Any) -> Any:
    if isinstance(kinds, tuple):
        return any(_isinstance(state, value, one) for one in kinds)
    if isinstance(value, Unknown | Number):
        return state.truth(state.made("isinstance", state.key(value), state.key(kinds)))
    return state.truth(state.made("isinstance", type(value).__name__, state.key(kinds)))


def _hasattr(state: TrialState, value: Any, name: Any) -> Any:
    return state.truth(state.surroundings.unknown("hasattr", state.key(value), state.key(name)))


def _getattr(state: TrialState, value: Any, name: Any, *default: Any) -> Any:
    if not isinstance(name, str):
        return NotImplemented
    if default and not _hasattr(state, value, name):
        return default[0]
    return state.attribute(value, name)


def _setattr(state: TrialState, owner: Any, name: Any, value: Any) -> Any:
    if not isinstance(name, str) or name.startswith("__"):
        return NotImplemented
    state.store(owner, name, value)
    return None


def _next(state: TrialState, items: Any, *default: Any) -> Any:
    if not isinstance(items, Lazy):
        return NotImplemented
    for one in items.items:
        return one
    if default:
        return default[0]
    raise RaisedError(("error", "StopIteration"), None)


def _iter(state: TrialState, items: Any) -> Any:
    if isinstance(items, MadeContainer | tuple | Lazy):
        return Lazy(state.iterate(items))
    return NotImplemented


def _sorted(state: TrialState, items: Any) -> Any:
    every = list(state.iterate(items))
    if all(isinstance(one, int | float) for one in every) or all(isinstance(one, str) for one in every):
        return MadeContainer("list", sorted(every))
    keys = sorted(state.keys(every), key=repr)
    whole = state.surroundings.unknown("sorted", tuple(keys))
    return MadeContainer("list", state.items_of(whole, len(every)))


def _cast(state: TrialState, kind: Any, value: Any) -> Any:
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
    "clamp": _clamp,
    "ceil_div": _ceil_div,
    "cdiv": _ceil_div,
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


def _other_method(
    state: TrialState, owner: MadeContainer, name: str, arguments: list[Any], keywords: dict[str, Any]
) -> Any:
    """Return the unknown result of a method; ``sort`` gives the list unknown items."""
    values = state.keys(arguments)
    named = state.named(keywords)
    whole = state.surroundings.unknown(name, state.key(owner), values, named)
    if name == "sort" and owner.kind == "list":
        owner.items[:] = state.items_of(whole, len(owner.items))
        return None
    if name in _PURE_OF_CONTAINERS:
        return whole
    result = state.event("call method", state.key(owner, shared=True), name, values, named)
    owner.items[:] = state.items_of(result, len(owner.items))
    owner.values[:] = state.items_of(result, len(owner.values))
    return result


def _append(state: TrialState, owner: MadeContainer, item: Any) -> None:
    owner.items.append(item)


def _extend(state: TrialState, owner: MadeContainer, items: Any) -> None:
    owner.items += state.within(list(state.iterate(items)), owner.items)


def _insert(state: TrialState, owner: MadeContainer, place: Any, item: Any) -> Any:
    if not isinstance(place, int):
        return NotImplemented
    owner.items.insert(place, item)
    return None


def _pop(state: TrialState, owner: MadeContainer, place: Any = -1) -> Any:
    if not isinstance(place, int):
        return NotImplemented
    try:
        return owner.items.pop(place)
    except IndexError:
        raise RaisedError(("error", "IndexError"), None) from None


def _clear(state: TrialState, owner: MadeContainer) -> None:
    owner.items.clear()
    owner.values.clear()


def _copy(state: TrialState, owner: MadeContainer) -> MadeContainer:
    return owner.copy()


def _reverse(state: TrialState, owner: MadeContainer) -> None:
    owner.items.reverse()


def _remove(state: TrialState, owner: MadeContainer, item: Any) -> None:
    at = state.position(owner, item)
    if at is None:
        raise RaisedError(("error", "KeyError" if owner.kind == "set" else "ValueError"), None)
    del owner.items[at]


def _discard(state: TrialState, owner: MadeContainer, item: Any) -> None:
    at = state.position(owner, item)
    if at is not None:
        del owner.items[at]


def _add(state: TrialState, owner: MadeContainer, item: Any) -> None:
    if state.position(owner, item) is None:
        owner.items.append(item)


def _add_all(state: TrialState, owner: MadeContainer, *every: Any) -> None:
    for items in every:
        for one in state.iterate(items):
            _add(state, owner, one)


def _dict_get(state: TrialState, owner: MadeContainer, key: Any, default: Any = None) -> Any:
    at = state.position(owner, key)
    return default if at is None else owner.values[at]


def _dict_pop(state: TrialState, owner: MadeContainer, key: Any, *default: Any) -> Any:
    at = state.position(owner, key)
    if at is None:
        return default[0] if default else state.item(owner, key)
    del owner.items[at]
    return owner.values.pop(at)


def _dict_default(state: TrialState, owner: MadeContainer, key: Any, default: Any = None) -> Any:
    if state.position(owner, key) is None:
        state.store_in(owner, key, default)
    return state.item(owner, key)


def _items(state: TrialState, owner: MadeContainer) -> Lazy:
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
        "keys": lambda state, owner: Lazy(iter(list(owner.items))),
        "values": lambda state, owner: Lazy(iter(list(owner.values))),
        "update": lambda state, owner, other: state.update(owner, other),
        "clear": _clear,
        "copy": _copy,
    },
}
