"""Values of a trial run: unknown objects, numbers and containers, and the decisions about them.

A function that is run without its surroundings gets *unknown* values for its parameters, for global names and for the
results of calls. An unknown value is described by how it came about, such as ``("attribute", <self>, "size")``. A
number (:class:`Number`) is a polynomial of unknown values, represented by its value at a random point. Everything that
a run has to know about an unknown value, such as its truth, is decided at random, from the run's seed and the
description. So both versions of a function get the same answers to the same questions.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Prime number. Polynomials are evaluated modulo it.
PRIME = 2**61 - 1
#: Number of classes of equal unknown values.
_CLASSES = 4
_MASK = 2**64 - 1
_MOST_CONSTANTS = 12
#: A further seed replaces one of this many decisions.
_REPLACED = 6
#: Most items of an unknown value that a loop reads.
MOST_ITEMS = 9
#: First words of the descriptions of texts.
_TEXTS = ("environment", "text", "path", "formatted")
Key = tuple[Hashable, ...]


class UnknownError(Exception):
    """The function contains something that a trial can't run."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Value with a description only.

    :ivar number: position of the description in :attr:`Surroundings.terms`.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Number:
    """Polynomial of unknown values: its value at the random point, modulo :data:`PRIME`."""

    value: int


@dataclass(eq=False, slots=True)
class MadeContainer:
    """List, set or dictionary that the function made.

    :ivar kind: ``list``, ``set`` or ``dict``.
    :ivar items: items; the keys of a dictionary.
    :ivar values: values of a dictionary.
    """

    kind: str
    items: list[Any] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def copy(self) -> MadeContainer:
        return MadeContainer(self.kind, list(self.items), list(self.values))


@dataclass(eq=False, slots=True)
class Lazy:
    """Iterator, such as a generator.

    :ivar running: the next item is being computed.
    """

    items: Iterator[Any]
    running: bool = False


class Surroundings:
    """Descriptions of unknown values, and findings about them, for all runs of the two versions of a function.

    :ivar terms: description of each unknown value.
    :ivar constants: for each unknown value, the constants that it is compared with.
    :ivar tested: unknown values whose truth or identity with ``None`` is tested.
    :ivar numeric: unknown values that are used as numbers.
    :ivar errors: names of all exceptions that are caught.
    :ivar is_cpp: the functions are translated from C++.
    :ivar sizes: numbers of items that unknown values may have.
    :ivar variables: names of global variables.
    """

    def __init__(self, errors: Sequence[str], sizes: Sequence[int], *, is_cpp: bool = False) -> None:
        self.is_cpp = is_cpp
        self.variables: set[str] = set()
        self.terms: list[Key] = []
        self._numbers: dict[Key, Unknown] = {}
        self._subjects: dict[Key, int] = {}
        self.constants: dict[int, list[Any]] = {}
        self.numeric: set[int] = set()
        self.ordered: set[int] = set()
        #: Unknown values of C++ that are operands of sums, as pointers are.
        self.pointers: set[int] = set()
        self.unpacked: dict[int, int] = {}
        #: Differences that are never zero, and unknown values that never equal a constant, by their numbers.
        self.unequal: set[Hashable] = set()
        #: Unknown values whose items are read one by one.
        self.iterated: set[int] = set()
        #: Whether a comparison first asked for the sign of a polynomial, rather than of its opposite.
        self.asked: dict[int, bool] = {}
        #: Number of findings about unknown values. A finding makes earlier decisions about the value void.
        self.findings = 0
        self.errors = [*errors, "another error", "KeyboardInterrupt"]
        self.sizes = [1, 1, 2, 2, 3, *sizes]

    def unknown(self, *term: Hashable) -> Unknown:
        """Return the unknown value with a description."""
        found = self._numbers.get(term)
        if found is None:
            found = Unknown(len(self.terms))
            self._numbers[term] = found
            self.terms.append(term)
        return found

    def number_of(self, subject: Key) -> int:
        """Return the number of a decision, in the order of the first ones."""
        return self._subjects.setdefault(subject, len(self._subjects))

    def term(self, value: Unknown) -> Key:
        return self.terms[value.number]

    def is_fixed(self, value: Any) -> bool:
        """Return whether a value is taken for a constant: a dotted global name, such as ``torch.half``, or a class."""
        if not isinstance(value, Unknown):
            return False
        term = self.term(value)
        if term[0] == "attribute":
            owner = Unknown(int(str(term[1])))
            return self.term(owner)[0] == "global" or self.is_fixed(owner)
        return term[0] == "global" and str(term[1])[:1].isupper()

    def is_global(self, value: Any) -> bool:
        """Return whether a value is a global name or an attribute of one."""
        return self.is_fixed(value) or (isinstance(value, Unknown) and self.term(value)[0] == "global")

    def is_module(self, value: Any) -> bool:
        """Return whether a value is a module, a class or something in it, rather than a global variable."""
        root = value
        while self.is_global(root) and self.term(root)[0] == "attribute":
            root = Unknown(int(str(self.term(root)[1])))
        if not self.is_global(root) or str(self.term(root)[1]) in self.variables:
            return False
        return not re.fullmatch(r"_.*|[A-Z][A-Z0-9_]+", str(self.term(root)[1]))

    def compare_with(self, value: Unknown, constant: Any, *, order: bool = False) -> None:
        """Note that a test compares an unknown value with a constant."""
        found = self.constants.setdefault(value.number, [])
        if order and value.number not in self.ordered:
            self.ordered.add(value.number)
            self.findings += 1
        if len(found) < _MOST_CONSTANTS and not any(type(one) is type(constant) and one == constant for one in found):
            found.append(constant)
            self.findings += 1

    def compared_sizes(self, value: Unknown) -> list[int]:
        """Return numbers of items around those with which a test compares the number of a value's items."""
        size = self._numbers.get(("len", value.number))
        found: set[int] = set()
        for one in self.constants.get(size.number, ()) if size else ():
            if type(one) is int:
                found.update((one - 1, one, one + 1))
        return sorted(one for one in found if one > 0)

    def is_number(self, value: Unknown) -> None:
        """Note that an unknown value is used as a number."""
        if value.number not in self.numeric:
            self.numeric.add(value.number)
            self.findings += 1

    def iterate(self, value: Unknown) -> None:
        """Note that a loop reads a value's items: the number of items is known from then on."""
        if value.number not in self.iterated:
            self.iterated.add(value.number)
            self.findings += 1

    def is_pointer(self, value: Unknown) -> None:
        """Note that a sum has a value of C++ as an operand."""
        if value.number not in self.pointers:
            self.pointers.add(value.number)
            self.findings += 1

    def differ(self, subject: Hashable) -> None:
        """Note that a difference is never zero, or that an unknown value never equals a constant."""
        if subject not in self.unequal:
            self.unequal.add(subject)
            self.findings += 1

    def unpack(self, value: Unknown, count: int) -> None:
        """Note that a value is unpacked to a number of variables."""
        if self.unpacked.get(value.number) != count:
            self.findings += value.number not in self.unpacked
            self.unpacked[value.number] = count


class Decisions:
    """Random decisions of one run, which depend on the run's seeds and on what is decided.

    :ivar seeds: most decisions come from the first seed; each further seed replaces some of them.
    """

    def __init__(self, surroundings: Surroundings, seeds: Sequence[int]) -> None:
        self.surroundings, self.seeds = surroundings, seeds
        #: Number of decisions so far.
        self.count = 0
        self._contents: dict[int, Any] = {}
        #: Result that most comparisons have in this run, and truth of most values; None if all are as frequent.
        #: So some runs get far into loops, and others past them.
        self.usual_sign = (None, -1, 1, -1)[seeds[0] % 4]
        self.usual_truth = (None, True, False)[seeds[0] // 4 % 3]

    def draw(self, *subject: Hashable) -> int:
        """Return a random number of 61 bits."""
        self.count += 1
        number = self.surroundings.number_of(subject)
        for seed in self.seeds[:0:-1]:
            if _mixed(~seed, number) % _REPLACED == 0:
                return _mixed(seed, number)
        return _mixed(self.seeds[0], number)

    def one_in(self, count: int, *subject: Hashable) -> bool:
        return self.draw(*subject) % count == 0

    def point(self, value: Unknown) -> int:
        """Return the number that stands for an unknown value in polynomials."""
        return _mixed(-1, value.number)

    def content(self, value: Unknown) -> Any:
        """Return the constant that an unknown value equals in this run; a class number if none.

        A class number is a tuple ``(truth, class)``. Values of one class are equal.
        """
        self.count += 1
        term = self.surroundings.term(value)
        if term[0] == "len":
            return self.size(Unknown(int(str(term[1]))))
        if value.number not in self._contents:
            choices: list[Any] = []
            for constant in self.surroundings.constants.get(value.number, ()):
                if ("content", value.number, constant) not in self.surroundings.unequal:
                    choices.append(constant)
                if value.number in self.surroundings.ordered and type(constant) in (int, float):
                    choices += [constant - 1, constant + 1]
            drawn = self.draw("content", value.number)
            truths = [True, False]
            if self.usual_truth is not None and drawn // 8 % 4:
                truths = [self.usual_truth] * 2
            fixed = self._without_truth(value)
            choices += [(truth, drawn // 64 % _CLASSES) if truth or not fixed else fixed[0] for truth in truths]
            self._contents[value.number] = choices[drawn // 1024 % len(choices)]
        return self._contents[value.number]

    def _without_truth(self, value: Unknown) -> list[Any]:
        """Return the one value without truth of a value's type: ``""``, 0 or ``nullptr``; none if it isn't known."""
        constants = self.surroundings.constants.get(value.number, ())
        if self.surroundings.term(value)[0] in _TEXTS:
            return [""]
        if any(one is None for one in constants):
            # In C++ a pointer; in Python, it isn't always a number.
            return [None] * self.surroundings.is_cpp
        is_number = value.number in self.surroundings.numeric
        return [0] * (is_number and ("content", value.number, 0) not in self.surroundings.unequal)

    def size(self, value: Unknown) -> int:
        """Return the number of an unknown value's items."""
        if value.number in self.surroundings.unpacked:
            return self.surroundings.unpacked[value.number]
        if not self.truth(value):
            return 0
        sizes = [*self.surroundings.sizes, *self.surroundings.compared_sizes(value)]
        return sizes[self.draw("size", value.number) % len(sizes)]

    def truth(self, value: Unknown) -> bool:
        content = self.content(value)
        if isinstance(content, tuple):
            return bool(content[0])
        if isinstance(content, Unknown):
            return True
        return bool(content)

    def sign(self, difference: int) -> int:
        """Return -1, 0 or 1 for a polynomial, such that ``sign(-x)`` is ``-sign(x)``."""
        difference %= PRIME
        if difference == 0:
            return 0
        smaller = min(difference, PRIME - difference)
        asked = self.surroundings.asked.setdefault(smaller, difference == smaller)
        drawn = self.draw("sign", smaller)
        found = drawn % 3 - 1
        if self.usual_sign is not None and drawn // 8 % 4:
            found = self.usual_sign
        if found == 0 and self.surroundings.unequal.intersection((smaller, PRIME - smaller)):
            found = -1
        return found if (difference == smaller) == asked else -found


def _mixed(seed: int, number: int) -> int:
    """Return a random number of 61 bits for two numbers."""
    found = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + 0x632BE59BD9B4E019) & _MASK
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        found = ((found ^ (found >> 30)) * factor) & _MASK
    return (found ^ (found >> 31)) % PRIME
