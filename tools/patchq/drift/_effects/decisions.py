"""Decisions between forms: tests in one order, without repeated tests and equal branches.

A form is a nested tuple of texts. A decision is ``("if", test, then, otherwise)``, as in an ordered binary decision
diagram: two decisions that choose alike are equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

#: Symbolic value, test or course of statements: nested tuples of texts.
Form = tuple[object, ...]
#: Length of the text from which a form is replaced by a digest.
_LONGEST = 200
#: Greatest number of decisions for a function, so that one with many tests doesn't take minutes.
_MOST_DECISIONS = 2000
#: Greatest number of values of a function that are made in two branches.
_MOST_CASES = 200
#: Greatest number of decisions among the operands of one value.
_MOST_DECIDED = 3
NONE: Form = ("constant", "None")
TRUE: Form = ("constant", "True")
FALSE: Form = ("constant", "False")
#: End of a function without a value.
FALLS: Form = ("falls",)


class Node(tuple[object, ...]):
    """Decision, or effect and what follows it. A digest stands for it in texts and comparisons.

    Branches share parts, so that the text of a decision can be far longer than the function.
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
    """Syntax without a form, or a function that is too long."""


def text_of(form: object) -> str:
    return repr(form)


def shortened(form: Form) -> Form:
    """Return a long form as its digest, so that forms of long functions stay small."""
    text = text_of(form)
    if len(text) <= _LONGEST:
        return form
    return (str(form[0]), hashlib.blake2b(text.encode(), digest_size=12).hexdigest())


def form_of(value: object) -> Form:
    assert isinstance(value, tuple)
    return value


def _common_end(one: Form, other: Form) -> Form | None:
    """Return the effects with which two courses both end; None if there are none."""
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
    """Return a course without its end."""
    if course == end:
        return ("joins",)
    return Node("then", course[1], _before(form_of(course[2]), end))


def _last_effect(course: Form) -> Form | None:
    """Return the last effect of a branch and its end; None if the branch has several ends."""
    while course[0] == "then":
        if form_of(course[2])[0] not in ("then", "if"):
            return course
        course = form_of(course[2])
    return None


def _is_fixed(test: Form) -> bool:
    """Return whether no effect can change a test.

    Variables and constants are fixed. A test of an attribute or a result is, if it compares with a constant, because
    other effects than stores, which are part of the form, are taken to leave attributes alone.
    """
    operands = [form_of(one) for one in test if not isinstance(one, str)]
    if all(one[0] in ("parameter", "constant", "name") for one in operands):
        return True
    if test[0] not in ("is", "==") or not any(one[0] == "constant" for one in operands):
        return False
    return all(_is_versioned(one) for one in operands)


def _is_versioned(value: Form) -> bool:
    """Return whether a value is made of variables, attributes and results of calls alone."""
    if value[0] == "attribute" and len(value) == 4:
        return _is_versioned(form_of(value[1]))
    return value[0] in ("parameter", "constant", "name", "outer") or (value[0] == "call" and len(value) == 4)


def mentions(decision: Form, test: Form) -> bool:
    """Return whether a decision contains a test."""
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


def decided_at(operands: Sequence[Form]) -> int:
    """Return the position of the first decision."""
    return next(position for position, one in enumerate(operands) if one[0] == "if")


class Decisions:
    """Decisions of one function."""

    def __init__(self) -> None:
        self._known: dict[tuple[Form, Form, Form], Form] = {}
        self._cases = 0
        self._simpler: dict[tuple[Form, Form, bool], Form] = {}

    def decide(self, test: Form, then: Form, otherwise: Form) -> Form:
        """Return the decision on a test, with equal branches and repeated tests left out."""
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
        """Return a decision on one test, of branches without this test."""
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
        """Return two courses that end with a store to one place as a condition, and the store of one of two values."""
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
        """Return two stores to one place under a test as the store of one of two values."""
        if not then[0] == otherwise[0] == "then":
            return None
        one, other = form_of(then[1]), form_of(otherwise[1])
        if one[0] == other[0] == "store" and one[1] == other[1]:
            value = self.decide(test, form_of(one[2]), form_of(other[2]))
            return Node("then", ("store", one[1], value), self.decide(test, form_of(then[2]), form_of(otherwise[2])))
        return None

    def given(self, form: Form, test: Form, holds: bool) -> Form:
        """Return a decision without the tests that are known."""
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
        """Return whether a value of these operands is made in two branches. Many decisions would take minutes."""
        decided = sum(one[0] == "if" for one in operands)
        if not 0 < decided <= _MOST_DECIDED or self._cases == _MOST_CASES:
            return False
        self._cases += 1
        return True

    def by_cases(self, make: Callable[[Sequence[Form]], Form], operands: Sequence[Form]) -> Form:
        """Return a value made of others; of decisions, it is a decision between the values of each branch."""
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
        """Return the end of a function with a value; a decision is one of several ends."""
        if value[0] == "if":
            return self.decide(
                form_of(value[1]), self.returned(form_of(value[2]), end), self.returned(form_of(value[3]), end)
            )
        if value == NONE and end == FALLS:
            return FALLS
        return ("return", value)

    def result(self, form: Form) -> Form:
        """Return the value of a function's course; decisions between values are one value."""
        if form[0] == "if":
            return self.decide(form_of(form[1]), self.result(form_of(form[2])), self.result(form_of(form[3])))
        if form[0] == "return":
            return form_of(form[1])
        if form == FALLS:
            return NONE
        raise UnknownError

    def any_of(self, items: Form, *, depth: int, negated: bool) -> Form:
        """Return the test whether any item is true; ``all`` is the opposite of whether any item is false.

        :param negated: return ``all``.
        """
        found = self._any_of(items, depth=depth, negated=negated)
        if negated:
            return self.negated(found)
        return found

    def _any_of(self, items: Form, *, depth: int, negated: bool) -> Form:
        """Return the test whether any item is true, or any is false."""
        if items[0] == "items":
            found = FALSE
            for item in reversed(items[1:]):
                found = self.decide(self._test_of(form_of(item), negated=negated), TRUE, found)
            return found
        parts: object = ((items, TRUE, 0),)
        effects: object = ()
        value: Form = ("each", depth)
        if items[0] == "list" and len(items) == 4:
            _, parts, effects, each = items
            value = form_of(each)
        return self.decide(("any", parts, effects, self._test_of(value, negated=negated)), TRUE, FALSE)

    def _test_of(self, value: Form, *, negated: bool) -> Form:
        if negated:
            return self.negated(self.truth(value))
        return self.truth(value)

    def truth(self, value: Form) -> Form:
        """Return the truth of a value as a decision."""
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
        """Return a comparison as a test; one of a length with 0 is the truth of what has the length."""
        for zero, other in ((left, right), (right, left)):
            if zero == ("constant", "0") and other[0] == "call" and len(other) == 4 and other[1] == ("name", "len"):
                if name == "==":
                    return self.negated(self.truth(other))
                if name == "<" and zero == left:
                    return self.truth(other)
        return self.decide((name, left, right), TRUE, FALSE)

    def membership(self, left: Form, right: Form) -> Form:
        """Return a test of membership; in written choices, it is one test for each."""
        if right[0] in ("Tuple", "List", "Set"):
            found = FALSE
            for choice in right[1:]:
                sides = sorted((left, form_of(choice)), key=text_of)
                found = self.decide(("==", *sides), TRUE, found)
            return found
        return self.decide(("in", left, right), TRUE, FALSE)

    def item(self, value: Form, position: int | Form) -> Form:
        """Return an element of a value; of a written tuple or list, the element itself."""
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
        return ("item", value, place)
