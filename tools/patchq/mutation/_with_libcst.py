"""Mutation operators for Python. The library LibCST supplies the position of each syntax node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider

from patchq.mutation._edit import Edit

_COMPARED = {
    cst.LessThan: "<=",
    cst.LessThanEqual: "<",
    cst.GreaterThan: ">=",
    cst.GreaterThanEqual: ">",
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.Is: "is not",
    cst.IsNot: "is",
    cst.In: "not in",
    cst.NotIn: "in",
}
_CALCULATED = {
    cst.Add: "-",
    cst.Subtract: "+",
    cst.Multiply: "//",
    cst.Divide: "*",
    cst.FloorDivide: "*",
    cst.Modulo: "*",
    cst.LeftShift: ">>",
    cst.RightShift: "<<",
    cst.BitAnd: "|",
    cst.BitOr: "&",
    cst.Power: "*",
}
#: Functions that log or print. Changes of their messages break nothing.
_TALK = ("debug", "info", "info_once", "warning", "warning_once", "error", "exception", "warn", "print", "critical")


def edits(content: bytes) -> Iterator[Edit]:
    """Yield the edits of a Python file; none if the file can't be parsed."""
    try:
        wrapper = MetadataWrapper(cst.parse_module(content), unsafe_skip_copy=True)
    except cst.ParserSyntaxError:
        return
    finder = _Finder(content)
    wrapper.visit(finder)
    yield from finder.found


class _Finder(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (ByteSpanPositionProvider, ParentNodeProvider)

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content
        self.found: list[Edit] = []
        self.scopes: list[list[str]] = []
        self.quiet = 0

    def text(self, node: cst.CSTNode) -> bytes:
        start, end = self.span(node)
        return self.content[start:end]

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        found = self.get_metadata(ByteSpanPositionProvider, node)
        return found.start, found.start + found.length

    def add(self, edit: Edit) -> None:
        """Add an edit, unless it is in the arguments of a call that logs, prints or raises."""
        if not self.quiet:
            self.found.append(edit)

    def put(self, node: cst.CSTNode, new: str | bytes, operator: str) -> None:
        """Add an edit that replaces a node by ``new``."""
        start, end = self.span(node)
        self.add(Edit(start=start, end=end, new=new if isinstance(new, bytes) else new.encode(), operator=operator))

    # Conditions and branches

    def _negate(self, test: cst.BaseExpression) -> None:
        self.put(test, b"not (" + self.text(test) + b")", "condition negated")

    def visit_If(self, node: cst.If) -> None:
        self._negate(node.test)
        self._empty(node.body, "branch removed")
        if isinstance(node.orelse, cst.Else):
            self._empty(node.orelse.body, "branch removed")

    def visit_While(self, node: cst.While) -> None:
        self.put(node.test, "False", "loop left out")

    def visit_For(self, node: cst.For) -> None:
        self.put(node.iter, "()", "loop left out")

    def visit_IfExp(self, node: cst.IfExp) -> None:
        self._negate(node.test)

    def visit_CompIf(self, node: cst.CompIf) -> None:
        self._negate(node.test)

    def visit_Assert(self, node: cst.Assert) -> None:
        self.put(node, "pass", "assertion left out")

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        self._empty(node.body, "branch removed")

    def _empty(self, body: cst.BaseSuite, operator: str) -> None:
        statements = body.body
        if not statements or (len(statements) == 1 and self.text(statements[0]).strip() in (b"pass", b"...")):
            return
        start, end = self.span(statements[0])[0], self.span(statements[-1])[1]
        self.add(Edit(start=start, end=end, new=b"pass", operator=operator))

    def visit_UnaryOperation(self, node: cst.UnaryOperation) -> None:
        if isinstance(node.operator, (cst.Not, cst.Minus)):
            self.put(node, self.text(node.expression), "operator left out")

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        other = "and"
        if isinstance(node.operator, cst.And):
            other = "or"
        self._between(node.left, node.right, f" {other} ", "and for or")
        self.put(node, self.text(node.left), "condition shortened")
        self.put(node, self.text(node.right), "condition shortened")

    def visit_Comparison(self, node: cst.Comparison) -> None:
        left = node.left
        for target in node.comparisons:
            new = _COMPARED.get(type(target.operator))
            if new:
                self._between(left, target.comparator, f" {new} ", "boundary moved")
            left = target.comparator

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> None:
        new = _CALCULATED.get(type(node.operator))
        if new and not isinstance(node.left, (cst.SimpleString, cst.FormattedString)):
            self._between(node.left, node.right, f" {new} ", "other arithmetic")

    def _between(self, left: cst.CSTNode, right: cst.CSTNode, new: str, operator: str) -> None:
        """Add an edit that replaces the operator between two operands. Parentheses are kept."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = self.content[start:end]
        closing = len(between) - len(between.lstrip(b" )\t\n\\"))
        opening = len(between) - len(between.rstrip(b" (\t\n\\"))
        word = between[closing : len(between) - opening]
        if not word or b"#" in word:
            return
        self.add(Edit(start=start + closing, end=end - opening, new=new.strip().encode(), operator=operator))

    # Constants

    def visit_Integer(self, node: cst.Integer) -> None:
        value = node.evaluated_value
        self.put(node, str(value + 1), "constant changed")
        if value > 1:
            self.put(node, str(value - 1), "constant changed")

    def visit_Float(self, node: cst.Float) -> None:
        self.put(node, f"({self.text(node).decode()} * 2 + 1)", "constant changed")

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in ("True", "False"):
            self.put(node, "False" if node.value == "True" else "True", "constant changed")

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        parent = self.get_metadata(ParentNodeProvider, node)
        value = node.evaluated_value
        if (
            isinstance(parent, (cst.Expr, cst.ConcatenatedString))
            or node.quote in ('"""', "'''")
            or not isinstance(value, str)
            or " " in value.strip()
        ):
            return
        self.put(node, '"patchq mutant"' if value == "" else '""', "constant changed")

    # Calls

    def visit_Call(self, node: cst.Call) -> None:
        if self._talks(node) or self.quiet:
            self.quiet += self._talks(node)
            return
        args = node.args
        for one, two in pairwise(args):
            plain = not (one.star or two.star or one.keyword or two.keyword)
            # An argument's span includes its parentheses; its value's span doesn't.
            if plain and self.text(one) != self.text(two):
                start, end = self.span(one)[0], self.span(two)[1]
                middle = self.content[self.span(one)[1] : self.span(two)[0]]
                new = self.text(two) + middle + self.text(one)
                self.add(Edit(start=start, end=end, new=new, operator="arguments swapped"))
        for number, arg in enumerate(args):
            last = number == len(args) - 1
            if arg.keyword or (last and not arg.star):
                self._leave_out(args, number)
            self._other_name(arg)

    def leave_Call(self, original_node: cst.Call) -> None:
        self.quiet -= self._talks(original_node)

    def _leave_out(self, args: Sequence[cst.Arg], number: int) -> None:
        start, end = self.span(args[number])
        if number + 1 < len(args):
            end = self.span(args[number + 1])[0]
        elif number:
            start = self.span(args[number - 1])[1]
        self.add(Edit(start=start, end=end, new=b"", operator="argument dropped"))

    def _other_name(self, arg: cst.Arg) -> None:
        """Add an edit of an argument that is a parameter of the enclosing function: the next parameter replaces it."""
        if not isinstance(arg.value, cst.Name) or not self.scopes or arg.star:
            return
        names = self.scopes[-1]
        if arg.value.value in names and len(names) > 1:
            other = names[(names.index(arg.value.value) + 1) % len(names)]
            self.put(arg.value, other, "another argument in scope")

    def _talks(self, node: cst.Call) -> bool:
        function = node.func
        if isinstance(function, cst.Attribute):
            name = function.attr.value
        else:
            name = getattr(function, "value", "")
        parent = self.get_metadata(ParentNodeProvider, node)
        return name in _TALK or isinstance(parent, cst.Raise)

    # Statements

    def visit_Expr(self, node: cst.Expr) -> None:
        if isinstance(node.value, cst.Call) and not self._talks(node.value):
            self.put(node, "pass", "call left out")

    def visit_Assign(self, node: cst.Assign) -> None:
        parent = self.get_metadata(ParentNodeProvider, self.get_metadata(ParentNodeProvider, node))
        attribute = isinstance(node.targets[0].target, (cst.Attribute, cst.Subscript))
        if attribute and not isinstance(parent, cst.Module):
            self.put(node, "pass", "assignment left out")

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self.put(node, "pass", "assignment left out")

    def visit_Raise(self, node: cst.Raise) -> None:
        self.put(node, "pass", "error left out")

    def visit_Return(self, node: cst.Return) -> None:
        if node.value is not None and self.text(node.value) != b"None":
            self.put(node.value, "None", "nothing returned")

    def visit_Continue(self, node: cst.Continue) -> None:
        self.put(node, "pass", "jump left out")

    def visit_Break(self, node: cst.Break) -> None:
        self.put(node, "pass", "jump left out")

    def visit_Decorator(self, node: cst.Decorator) -> None:
        start, end = self.span(node)
        end += len(self.content[end:]) - len(self.content[end:].lstrip())
        self.add(Edit(start=start, end=end, new=b"", operator="decorator left out"))

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        params = [p.name.value for p in (*node.params.params, *node.params.kwonly_params)]
        self.scopes.append([p for p in params if p not in ("self", "cls")])
        body = list(node.body.body)
        if body and isinstance(body[0], cst.SimpleStatementLine) and self._is_docstring(body[0]):
            body = body[1:]
        if body and isinstance(node.body, cst.IndentedBlock) and self.text(body[0]).strip() not in (b"pass", b"..."):
            start, end = self.span(body[0])[0], self.span(body[-1])[1]
            self.add(Edit(start=start, end=end, new=b"return None", operator="early return"))

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.scopes.pop()

    @staticmethod
    def _is_docstring(line: cst.SimpleStatementLine) -> bool:
        first = line.body[0]
        return isinstance(first, cst.Expr) and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))

    def visit_Param(self, node: cst.Param) -> None:
        if node.default is not None and self.text(node.default) == b"None":
            self.put(node.default, "0", "default changed")

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False  # annotations have no effect at run time

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False
