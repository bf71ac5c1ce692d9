"""Results of operators: constants are calculated, and operations that are written in two ways get one form."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from patchq.drift._effects.decisions import Form, form_of, shortened, text_of

#: Operators whose operands can be exchanged. ``+`` isn't one because of strings, ``|`` because of dictionaries.
_COMMUTATIVE = ("Mult", "BitAnd", "BitXor")
#: Greatest result to calculate, and greatest exponent or shift.
_GREATEST = 2**64
_LONGEST_SHIFT = 63
_CALCULATED: dict[str, Callable[[int, int], int]] = {
    "Add": lambda left, right: left + right,
    "Sub": lambda left, right: left - right,
    "Mult": lambda left, right: left * right,
}
#: Right operands that leave a number as it is.
_NEUTRAL = {"Add": 0, "Sub": 0, "Mult": 1, "LShift": 0, "RShift": 0}


def calculated(operator: str, left: Form, right: Form) -> Form:
    """Return the form of an operation.

    :param operator: class of the operator in Python's syntax tree, such as ``Add``.
    """
    number, other = _number_of(left), _number_of(right)
    if other is not None and operator == "LShift" and 0 <= other <= _LONGEST_SHIFT:
        return calculated("Mult", left, ("constant", repr(1 << other)))
    if number is not None and other is not None:
        result = _result(operator, number, other)
        if result is not None:
            return ("constant", repr(result))
    if other is not None and _NEUTRAL.get(operator) == other:
        return left
    if operator == "Add" and (_is_text(left) or _is_text(right)):
        return text_form([*_text_parts(left), *_text_parts(right)])
    if operator == "Add" and (_is_list(left) or _is_list(right)):
        return ("List", *_elements(left), *_elements(right))
    sides = [left, right]
    if operator in _COMMUTATIVE:
        sides.sort(key=text_of)
    return shortened(("operator", operator, *sides))


def _number_of(form: Form) -> int | None:
    """Return an integer constant; None for other forms."""
    if form[0] != "constant":
        return None
    try:
        found = ast.literal_eval(str(form[1]))
    except ValueError:
        return None
    return found if type(found) is int else None


def _result(operator: str, left: int, right: int) -> int | None:
    result = None
    if operator in _CALCULATED:
        result = _CALCULATED[operator](left, right)
    elif operator == "Pow" and 0 <= right <= _LONGEST_SHIFT and abs(left) <= _LONGEST_SHIFT:
        result = left**right
    if result is None or abs(result) > _GREATEST:
        return None
    return result


def _is_text(form: Form) -> bool:
    """Return whether a form is a string constant or an f-string."""
    if form[0] == "constant":
        return str(form[1])[:1] in "'\""
    return form[0] == "text" and len(form) > 1 and isinstance(form[1], tuple)


def _text_parts(form: Form) -> list[Form]:
    """Return the parts of an f-string that gives the same text as a string."""
    if form[0] == "text" and _is_text(form):
        return [form_of(part) for part in form[1:]]
    if _is_text(form):
        return [form]
    if form[:2] == ("call", ("name", "str")) and len(form_of(form[2])) == 1 and form[3] == ():
        form = form_of(form_of(form[2])[0])
    return [("formatted", form, -1, ("constant", "None"))]


def _is_list(form: Form) -> bool:
    """Return True for a written list and a call of ``list``."""
    return form[0] == "List" or form[:2] == ("call", ("name", "list"))


def _elements(form: Form) -> list[Form]:
    """Return the elements of a list that is joined with another list."""
    if form[0] == "List":
        return [form_of(one) for one in form[1:]]
    if form[:2] == ("call", ("name", "list")) and len(form_of(form[2])) == 1 and form[3] == ():
        form = form_of(form_of(form[2])[0])
    return [("star", form)]


def text_form(parts: Sequence[Form]) -> Form:
    """Return the form of an f-string. Adjacent constant parts are joined."""
    found: list[Form] = []
    for part in parts:
        if _is_text(part) and part[0] == "constant" and found and found[-1][0] == "constant":
            joined = ast.literal_eval(str(found[-1][1])) + ast.literal_eval(str(part[1]))
            found[-1] = ("constant", repr(joined))
        else:
            found.append(part)
    if len(found) == 1 and found[0][0] == "formatted" and found[0][2:] == (-1, ("constant", "None")):
        return ("call", ("name", "str"), (found[0][1],), ())
    if len(found) == 1 and found[0][0] == "constant":
        return found[0]
    return shortened(("text", *found))
