"""Conditional symbolic expressions in a normal form, so that equivalent conditionals are equal.

A form is a symbolic expression: a nested tuple of strings such as ``("==", ("parameter", "x"), ("constant", "0"))``.
A conditional is the form ``("if", test, then, otherwise)``. As in an ordered binary decision diagram, tests are in a
fixed order, no test is repeated, and the two branches of a conditional differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

#: Symbolic value, test or sequence of effects: nested tuples of strings.
Form = tuple[object, ...]
#: Most characters in the text of a form. A longer form is replaced by its digest.
_LONGEST = 200
#: Most conditionals per function. A function with more tests could take minutes.
_MOST_DECISIONS = 2000
#: Most values per function that are computed separately for the two branches of a conditional.
_MOST_CASES = 200
#: Most conditionals among the operands of one value.
_MOST_DECIDED = 3
NONE: Form = ("constant", "None")
TRUE: Form = ("constant", "True")
FALSE: Form = ("constant", "False")
#: End of a function that returns no value.
FALLS: Form = ("falls",)


class Node(tuple[object, ...]):
    """Conditional, or an effect and the effects after it. Its digest is used for comparisons and as its text.

    Branches share parts, so a conditional written out in full can be far longer than the function.
    """

    _digest: str

    def __new__(cls, *parts: object) -> Node:
        self = super().__new__(cls, parts)
        self._digest = hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()
        return self

    def __repr__(self) -> str:
        return self._digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._digest == other._digest

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._digest)


class UnknownError(Exception):
    """Error for a function that can't be evaluated: it contains unsupported syntax or is too long."""


def text_of(form: object) -> str:
    return repr(form)


def shortened(form: Form) -> Form:
    """Return the form itself, or its kind and a digest if its text is long."""
    text = text_of(form)
    if len(text) <= _LONGEST:
        return form
    return (str(form[0]), hashlib.blake2b(text.encode(), digest_size=12).hexdigest())


def form_of(value: object) -> Form:
    assert isinstance(value, tuple)
    return value


def _common_end(one: Form, other: Form) -> Form | None:
    """Return the longest common end of two sequences of effects; None if their last effects differ."""
    ends = set()
    while one[0] == "then":
        ends.add(one)
        one = form_of(one[2])
    while other[0] == "then":
        if other in ends:
            return other
        other = form_of(other[2])
    return None


def _before(course: Form, end: Form) -> Form:
    """Return a sequence of effects with the open end ``("joins",)`` in place of ``end``."""
    if course == end:
        return ("joins",)
    return Node("then", course[1], _before(form_of(course[2]), end))


def _last_effect(course: Form) -> Form | None:
    """Return the last effect of a branch, followed by the branch's end.

    Return None if the branch has no effect or ends in a conditional.
    """
    while course[0] == "then":
        if form_of(course[2])[0] not in ("then", "if"):
            return course
        course = form_of(course[2])
    return None


def _is_fixed(test: Form) -> bool:
    """Return whether a test has the same result before and after any effect.

    This is true for tests of variables and constants, and for comparisons (``is``, ``==``) of an attribute or a call's
    result with a constant. The form of an attribute contains the number of stores to it, and other effects are assumed
    to leave attributes unchanged.
    """
    operands = [form_of(one) for one in test if not isinstance(one, str)]
    if all(one[0] in ("parameter", "constant", "name") for one in operands):
        return True
    if test[0] not in ("is", "==") or not any(one[0] == "constant" for one in operands):
        return False
    return all(_is_versioned(one) for one in operands)


def _is_versioned(value: Form) -> bool:
    """Return whether a value is a variable, a constant, an attribute of such a value, or the result of a call."""
    if value[0] == "attribute" and len(value) == 4:
        return _is_versioned(form_of(value[1]))
    return value[0] in ("parameter", "constant", "name", "outer") or (value[0] == "call" and len(value) == 4)


def mentions(decision: Form, test: Form) -> bool:
    """Return whether a conditional contains a test, at any depth."""
    seen = set()
    waiting = [decision]
    while waiting:
        form = waiting.pop()
        if form[0] == "if" and form not in seen:
            seen.add(form)
            if form[1] == test:
                return True
            waiting += [form_of(form[2]), form_of(form[3])]
    return False


def mentions_item(form: object, depth: int) -> bool:
    """Return True if a form contains the item of a loop of this depth, or may contain it as a digest."""
    if not isinstance(form, tuple):
        return False
    if form == ("each", depth) or (len(form) == 2 and isinstance(form[1], str) and len(form[1]) == 24):
        return True
    return any(mentions_item(part, depth) for part in form)


def decided_at(operands: Sequence[Form]) -> int:
    """Return the position of the first operand that is a conditional."""
    return next(position for position, one in enumerate(operands) if one[0] == "if")


class Decisions:
    """Builder of the conditionals of one function."""

    def __init__(self) -> None:
        self._known: dict[tuple[Form, Form, Form], Form] = {}
        self._cases = 0
        self._simpler: dict[tuple[Form, Form, bool], Form] = {}

    def decide(self, test: Form, then: Form, otherwise: Form) -> Form:
        """Return ``then if test else otherwise`` in normal form. If both branches are equal, the result is ``then``."""
        if test == TRUE:
            return then
        if test == FALSE:
            return otherwise
        if test[0] == "if":
            _, inner, yes, no = test
            return self.decide(
                form_of(inner), self.decide(form_of(yes), then, otherwise), self.decide(form_of(no), then, otherwise)
            )
        key = (test, then, otherwise)
        if key not in self._known:
            if len(self._known) == _MOST_DECISIONS:
                raise UnknownError
            self._known[key] = self._decided(test, self.given(then, test, True), self.given(otherwise, test, False))
        return self._known[key]

    def _decided(self, test: Form, then: Form, otherwise: Form) -> Form:
        """Return ``then if test else otherwise`` in normal form, for branches that don't contain ``test``."""
        if then == otherwise:
            return then
        if then[0] == otherwise[0] == "then" and then[1] == otherwise[1]:
            return Node("then", then[1], self.decide(test, form_of(then[2]), form_of(otherwise[2])))
        end = _common_end(then, otherwise)
        if end is not None:
            under = self.decide(test, _before(then, end), _before(otherwise, end))
            return Node("then", ("under", under), end)
        stored = self._same_last_store(test, then, otherwise) or self._same_store(test, then, otherwise)
        if stored:
            return stored
        first = test
        for branch in (then, otherwise):
            if branch[0] == "if" and text_of(form_of(branch[1])) < text_of(first):
                first = form_of(branch[1])
        if first != test:
            return self.decide(
                first,
                self.decide(test, self.given(then, first, True), self.given(otherwise, first, True)),
                self.decide(test, self.given(then, first, False), self.given(otherwise, first, False)),
            )
        return Node("if", test, then, otherwise)

    def _same_last_store(self, test: Form, then: Form, otherwise: Form) -> Form | None:
        """Merge the last stores of both branches if they store to the same place; return None if they don't.

        ``if t: f(); x.a = 1`` and ``else: x.a = 2`` become ``if t: f()``, then ``x.a = 1 if t else 2``.
        """
        ends = _last_effect(then), _last_effect(otherwise)
        if ends[0] is None or ends[1] is None or ends[0][2] != ends[1][2]:
            return None
        one, other = form_of(ends[0][1]), form_of(ends[1][1])
        if not one[0] == other[0] == "store" or one[1] != other[1]:
            return None
        value = self.decide(test, form_of(one[2]), form_of(other[2]))
        end = Node("then", ("store", one[1], value), ends[0][2])
        before = self.decide(test, _before(then, ends[0]), _before(otherwise, ends[1]))
        if before == ("joins",):
            return end
        return Node("then", ("under", before), end)

    def _same_store(self, test: Form, then: Form, otherwise: Form) -> Form | None:
        """Merge the first stores of both branches if they store to the same place; return None if they don't.

        ``if t: x.a = 1; f()`` and ``else: x.a = 2`` become ``x.a = 1 if t else 2``, then ``if t: f()``.
        """
        if not then[0] == otherwise[0] == "then":
            return None
        one, other = form_of(then[1]), form_of(otherwise[1])
        if one[0] == other[0] == "store" and one[1] == other[1]:
            value = self.decide(test, form_of(one[2]), form_of(other[2]))
            return Node("then", ("store", one[1], value), self.decide(test, form_of(then[2]), form_of(otherwise[2])))
        return None

    def given(self, form: Form, test: Form, holds: bool) -> Form:
        """Return ``form`` simplified for the case that ``test`` is true (``holds``) or false (not ``holds``)."""
        if form[0] != "if" and (form[0] != "then" or not _is_fixed(test)):
            return form
        key = (form, test, holds)
        if key not in self._simpler and form[0] == "then":
            self._simpler[key] = Node("then", form[1], self.given(form_of(form[2]), test, holds))
        elif key not in self._simpler:
            _, inner, then, otherwise = form
            if inner == test:
                self._simpler[key] = self.given(form_of(form[3 - holds]), test, holds)
            else:
                sides = self.given(form_of(then), test, holds), self.given(form_of(otherwise), test, holds)
                self._simpler[key] = self.decide(form_of(inner), *sides)
        return self._simpler[key]

    def splits(self, operands: Sequence[Form]) -> bool:
        """Return whether to compute a value separately for each branch of a conditional among its operands.

        False if no operand is a conditional, or if there are too many conditionals to evaluate in reasonable time.
        """
        decided = sum(one[0] == "if" for one in operands)
        if not 0 < decided <= _MOST_DECIDED or self._cases == _MOST_CASES:
            return False
        self._cases += 1
        return True

    def by_cases(self, make: Callable[[Sequence[Form]], Form], operands: Sequence[Form]) -> Form:
        """Return ``make(operands)``, computed for each branch if an operand is a conditional.

        For example, ``(a if t else b) + c`` becomes ``a + c if t else b + c``.
        """
        if not self.splits(operands):
            return make(operands)
        position = decided_at(operands)
        decision = operands[position]
        sides = []
        for side in decision[2:]:
            sides.append(self.by_cases(make, [*operands[:position], form_of(side), *operands[position + 1 :]]))
        return self.decide(form_of(decision[1]), *sides)

    def negated(self, test: Form) -> Form:
        return self.decide(test, FALSE, TRUE)

    def returned(self, value: Form, end: Form) -> Form:
        """Return the form of ``return value``. If the value is a conditional, each branch gets its own ``return``."""
        if value[0] == "if":
            return self.decide(
                form_of(value[1]), self.returned(form_of(value[2]), end), self.returned(form_of(value[3]), end)
            )
        if value == NONE and end == FALLS:
            return FALLS
        return ("return", value)

    def result(self, form: Form) -> Form:
        """Return the value that a function returns. If branches return different values, the value is a conditional."""
        if form[0] == "if":
            return self.decide(form_of(form[1]), self.result(form_of(form[2])), self.result(form_of(form[3])))
        if form[0] == "return":
            return form_of(form[1])
        if form == FALLS:
            return NONE
        raise UnknownError

    def any_of(self, items: Form, *, depth: int, negated: bool) -> Form:
        """Return the form of ``any(items)``, or of ``all(items)`` if ``negated``.

        ``all(items)`` is true if no item is false.
        """
        found = self._any_of(items, depth=depth, negated=negated)
        if negated:
            return self.negated(found)
        return found

    def _any_of(self, items: Form, *, depth: int, negated: bool) -> Form:
        """Return the test whether any item is true. If ``negated``, return the test whether any item is false."""
        if items[0] == "items":
            found = FALSE
            for item in reversed(items[1:]):
                found = self.decide(self._test_of(form_of(item), negated=negated), TRUE, found)
            return found
        parts: Form = ((items, TRUE, 0),)
        effects: Form = ()
        value: Form = ("each", depth)
        if items[0] == "list" and len(items) == 4:
            parts, effects, value = form_of(items[1]), form_of(items[2]), form_of(items[3])
        return self.any_match(parts, effects, self._test_of(value, negated=negated))

    def any_match(self, parts: Form, effects: Form, test: Form) -> Form:
        """Return the test whether any item of a loop or comprehension passes a test.

        :param parts: iterables, with the tests of their ``if``.
        :param effects: effects of each round before the test.
        """
        if len(parts) == 1 and not effects:
            iterable, tests, is_async = form_of(parts[0])
            parts, test = ((iterable, TRUE, is_async),), self.decide(form_of(tests), test, FALSE)
        return self.decide(("any", parts, effects, test), TRUE, FALSE)

    def _test_of(self, value: Form, *, negated: bool) -> Form:
        if negated:
            return self.negated(self.truth(value))
        return self.truth(value)

    def truth(self, value: Form) -> Form:
        """Return the form of ``bool(value)``."""
        if value[0] == "call" and len(value) == 4 and value[1] == ("name", "len"):
            return self.truth(form_of(form_of(value[2])[0]))
        if value in (TRUE, FALSE):
            return value
        if value[0] == "constant":
            if value[1] in ("None", "0", "''", "0.0"):
                return FALSE
            return TRUE
        if value[0] == "if":
            return self.decide(form_of(value[1]), self.truth(form_of(value[2])), self.truth(form_of(value[3])))
        return self.decide(("truth", value), TRUE, FALSE)

    def compared(self, name: str, left: Form, right: Form) -> Form:
        """Return the form of a comparison. ``len(x) == 0`` becomes ``not x``, and ``0 < len(x)`` becomes ``x``."""
        for zero, other in ((left, right), (right, left)):
            if zero == ("constant", "0") and other[0] == "call" and len(other) == 4 and other[1] == ("name", "len"):
                if name == "==":
                    return self.negated(self.truth(other))
                if name == "<" and zero == left:
                    return self.truth(other)
        return self.decide((name, left, right), TRUE, FALSE)

    def membership(self, left: Form, right: Form) -> Form:
        """Return the form of ``left in right``. ``x in (1, 2)`` becomes ``x == 1 or x == 2``."""
        if right[0] in ("Tuple", "List", "Set"):
            found = FALSE
            for choice in right[1:]:
                sides = sorted((left, form_of(choice)), key=text_of)
                found = self.decide(("==", *sides), TRUE, found)
            return found
        return self.decide(("in", left, right), TRUE, FALSE)

    def item(self, value: Form, position: int | Form) -> Form:
        """Return the form of ``value[position]``. ``(a, b)[0]`` becomes ``a``."""
        if isinstance(position, int):
            return self.item(value, ("constant", repr(position)))
        place = position
        if value[0] in ("Tuple", "List") and place[0] == "constant" and str(place[1]).isdigit():
            number = int(str(place[1]))
            if number < len(value) - 1 and not any(form_of(one)[0] == "star" for one in value[1:]):
                return form_of(value[number + 1])
        if value[0] == "if":
            return self.decide(
                form_of(value[1]), self.item(form_of(value[2]), place), self.item(form_of(value[3]), place)
            )
        if place[0] == "if":
            return self.decide(
                form_of(place[1]), self.item(value, form_of(place[2])), self.item(value, form_of(place[3]))
            )
        return ("item", value, place)
