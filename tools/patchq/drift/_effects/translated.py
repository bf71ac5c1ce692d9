"""Translate C++ functions to Python syntax trees, so that the same code evaluates both languages.

A local variable that only holds a value, such as a number, becomes a Python variable. Every other variable becomes an
object: its declaration and each assignment to it are effects. Objects are arrays, references, instances of classes,
variables whose address is taken or that a lambda assigns, and variables in code that isn't translated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from patchq.drift._cpp.facts import CppFile, read_cpp, spelled_number, spelled_type
from patchq.drift._effects.values import UnknownError
from patchq.drift._python.shape import FunctionNode

#: Types whose variables hold only a value.
_PLAIN = re.compile(r"(u?int\d*(_t)?|size_t|ssize_t|ptrdiff_t|bool|char|short|long|float|double|half|auto|.*\*)$")
#: Casts and other functions without an effect.
_PURE = re.compile(
    r"((static|reinterpret|const|dynamic)_cast<.*>|(make_(tuple|pair)|to_string|abs|sizeof)\b.*|get<.*|"
    r"u?int\d*(_t)?|size_t|bool|float|double|half|dim3|typename)$"
)
#: Functions with known results.
_KNOWN = re.compile(
    r"((?P<min>min)|(?P<max>max)|(?P<clamp>clamp)|(\w+::)*(?P<ceil_div>ceil_?[dD]iv|CeilDiv|div_?(up|ceil)|cdiv))"
    r"(<[\w, ]+>)?"
)
_CAST = re.compile(r"(u?int\d*(_t)?|size_t|bool|float|double|half)$")
#: Macros that throw an exception.
_THROWING = re.compile(r"(?!.*(CHECK|ENFORCE|ASSERT|IF))[A-Z]+(_[A-Z]+)*_THROW|FLASHINFER_ERROR")
_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.FloorDiv,
    "%": ast.Mod,
    "&": ast.BitAnd,
    "|": ast.BitOr,
    "^": ast.BitXor,
    "<<": ast.LShift,
    ">>": ast.RShift,
}
_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
}
#: Methods that only read.
_READS = {
    *("value", "begin", "end", "c_str", "data", "scalar_type", "dtype", "sizes", "dim", "device", "numel"),
    *("get_device", "defined", "length", "ndim", "options", "strides", "layout", "name"),
}
_NAME = "identifier"
#: Name of the result of a macro.
_MACRO = "result of macro"
_FLOAT = re.compile(r"(float|double|half|__half|__nv_bfloat16)$")
_INTEGER = re.compile(r"(u?int\d*(_t)?|size_t|ssize_t|long|short|char|bool|unsigned)$")
#: Call of a container's method that copies its argument.
_ADDED = re.compile(r"^[\w.>-]+\.(push_back|emplace_back)\(\w+\)$")
#: Types of expressions that make an object.
_NEW_OBJECTS = ("call_expression", "initializer_list", "argument_list", "compound_literal_expression")
_BACK_INSERTERS = ("back_inserter", "std::back_inserter")
_UNARY: dict[str, type[ast.unaryop]] = {
    "-": ast.USub,
    "+": ast.UAdd,
    "~": ast.Invert,
    "compl": ast.Invert,
    "!": ast.Not,
    "not": ast.Not,
}
#: Other spellings of operators.
_SPELLINGS = {"and": "&&", "or": "||", "not_eq": "!=", "bitand": "&", "bitor": "|", "xor": "^"}
_LEAVING = ("return_statement", "break_statement", "continue_statement", "goto_statement", "throw_statement")
_GUARDS = ("preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef", "preproc_else")
#: Types of nodes that never name a local variable.
_NAMES = ("qualified_identifier", "this", "template_function", "sizeof_expression", "type_identifier")


def python_of(file: CppFile, node: Any, constant: Collection[str] = ()) -> FunctionNode:
    """Translate a C++ function definition to a Python function definition.

    :param constant: names of functions whose calls without variables are constants.
    :raises UnknownError: if a declaration has no name, or an initializer of a member can't be translated.
    """
    return _Translation(file, node, constant).function()


def parameters_of(function: Any) -> list[Any]:
    """Return the nodes of a function's parameters; an empty list if they aren't found, as in a conversion operator."""
    declarator = function.child_by_field_name("declarator")
    while declarator is not None and declarator.type != "function_declarator":
        inner = declarator.child_by_field_name("declarator")
        if inner is None and declarator.type == "reference_declarator":
            inner = declarator.named_children[-1]
        declarator = inner
    if declarator is None:
        return []
    return _parts(declarator.child_by_field_name("parameters"))


def node_of_parameter(parameter: Any) -> Any:
    """Return the node of a parameter's name; None for a parameter without name."""
    declared = parameter.child_by_field_name("declarator")
    return declared and node_of_name(declared)


def node_of_name(declarator: Any) -> Any:
    """Return the node of the name that a declarator declares; None if there is none."""
    try:
        return _declared(declarator)
    except UnknownError:
        return None


def types_of_locals(file: CppFile, function: Any) -> dict[str, set[str]]:
    """Return the types with which the local variables of a function are declared, except those that are ``auto``.

    Variables that hold values have no type in the translation, so that the caller compares these.
    """
    found: dict[str, set[str]] = {}
    for node in _every(function.child_by_field_name("body")):
        if node.type != "declaration":
            continue
        for declared in node.children_by_field_name("declarator"):
            shown = spelled_type(file.text(node.child_by_field_name("type")))
            if shown == "auto":
                shown = _type_of_cast(file, declared.child_by_field_name("value"))
            if shown and _is_reference(declared) and not is_const(file, node):
                shown += "&"
            if shown and _inner(declared).type == _NAME:
                found.setdefault(file.text(_declared(declared)), set()).add(shown)
    return found


def _type_of_cast(file: CppFile, value: Any) -> str:
    """Return the type of ``static_cast<int>(x)`` or of a number; "" for other expressions."""
    if value is not None and value.type == "number_literal":
        return _type_of_number(file.text(value))
    if value is None or value.type != "call_expression":
        return ""
    name = spelled_type(file.text(value.child_by_field_name("function")))
    kind = name.removeprefix("static_cast<").removesuffix(">")
    if _CAST.match(kind):
        return kind
    return ""


def _type_of_number(text: str) -> str:
    if spelled_number(text).isdigit():
        return "int"
    if text.endswith("f"):
        return "float"
    return "double"


def changes_copy(file: CppFile, function: Any) -> bool:
    """Return whether a function changes a part of a parameter that is a copy of its argument."""
    copies = set()
    for parameter in parameters_of(function):
        name = node_of_parameter(parameter)
        declared = parameter.child_by_field_name("declarator")
        if name is not None and declared.type == _NAME:
            copies.add(file.text(name))
    for each in _every(function):
        if each.type in ("assignment_expression", "update_expression"):
            target = each.child_by_field_name("left") or each.child_by_field_name("argument")
            if target.type != _NAME and re.split(r"\W", file.text(target))[0] in copies:
                return True
    return False


def constant_functions(file: CppFile, function: Any) -> set[str]:
    """Return the names of the functions that a function calls to initialize constants.

    Calls of these have no effect, if no variable is passed.
    """
    found = set()
    for node in _every(function):
        if node.type == "declaration" and any(file.text(child) == "constexpr" for child in node.children):
            for each in _every(node):
                if each.type == "call_expression":
                    found.add(spelled_type(file.text(each.child_by_field_name("function"))))
    return found


def aliases_of(file: CppFile, function: Any) -> dict[str, str]:
    """Return the names that a function gives to types and namespaces; without those that it gives twice."""
    found: dict[str, str] = {}
    twice = set()
    for each in _every(function.child_by_field_name("body")):
        if _is_alias(each):
            name, kind = _alias(file, each)
            if name in found:
                twice.add(name)
            found[name] = kind
    for name in twice:
        del found[name]
    return found


def _alias(file: CppFile, node: Any) -> tuple[str, str]:
    parts = _parts(node)
    if node.type == "type_definition":
        parts.reverse()
    return file.text(parts[0]), file.text(parts[1]).removeprefix("typename ")


def without_aliases(file: CppFile, function: Any, names: Mapping[str, str]) -> tuple[CppFile, Any]:
    """Replace names of types and namespaces in a function, and remove their definitions in it.

    Return the file and the function after the replacement.

    :param names: the types and namespaces by their names, in the order of their definitions.
    """
    full: dict[str, str] = {}
    for name, kind in names.items():
        full[name] = re.sub(r"\w+", lambda word: full.get(word[0], word[0]), kind)
    edits: dict[int, tuple[int, str]] = {}
    for each in _every(function.child_by_field_name("body")):
        if _is_alias(each) and _alias(file, each)[0] in full:
            edits[each.start_byte] = each.end_byte, ";"
        elif each.type in ("type_identifier", "namespace_identifier", _NAME) and file.text(each) in full:
            edits.setdefault(each.start_byte, (each.end_byte, full[file.text(each)]))
    if not edits:
        return file, function
    source, end = b"", 0
    for start, (after, text) in sorted(edits.items()):
        if start >= end:
            source += file.source[end:start] + text.encode()
            end = after
    file = read_cpp(source + file.source[end:])
    function = file.root.descendant_for_byte_range(function.start_byte, function.start_byte + 1)
    while function.type != "function_definition":
        function = function.parent
    return file, function


def _is_alias(node: Any) -> bool:
    """Return whether a statement is ``using A = b::C;``, ``typedef b::C A;`` or ``namespace a = b::c;``."""
    parts = _parts(node)
    if node.type == "type_definition" and parts[-1].type != "type_identifier":
        return False
    kinds = ("alias_declaration", "namespace_alias_definition", "type_definition")
    return node.type in kinds and len(parts) == 2 and node.parent.type == "compound_statement"


class _Translation:
    """Translation of one function."""

    def __init__(self, file: CppFile, node: Any, constant: Collection[str]) -> None:
        self.file, self.node, self.constant = file, node, constant
        #: Types of the function's template parameters.
        self.types = self._template_types()
        #: Types to which the function defines other names.
        self.aliases = {
            self.text(each.child_by_field_name("name")) for each in _every(node) if each.type == "alias_declaration"
        }
        #: Names of local variables that are objects, and of other variables that the function assigns.
        self.objects = self._objects()
        #: Types with which variables of each name are declared; of pointers and arrays, with a ``*``.
        self.kinds = self._kinds()
        #: Names that ``using`` makes known: ``{"E": "n::E"}``.
        self.used: dict[str, str] = {}
        #: Python names of the variables in each enclosing block.
        self.scopes: list[dict[str, str]] = [{}]
        #: Number of variables that only hold values, and number of objects, so far.
        self.counts = [0, 0]
        #: Lambdas of the statement, as functions that are defined before it.
        self.lambdas: list[ast.stmt] = []
        #: Update of each enclosing ``for`` loop.
        self.updates: list[list[ast.stmt]] = []

    def text(self, node: Any) -> str:
        return self.file.text(node)

    def function(self) -> FunctionNode:
        parameters = [ast.arg(name) for name in self._parameters()]
        body = [*self._initializers(), *self.block(self.node.child_by_field_name("body"))] or [ast.Pass()]
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        return ast.FunctionDef("function", arguments, body, [])

    def _parameters(self) -> list[str]:
        found = []
        for parameter in parameters_of(self.node):
            declared = node_of_parameter(parameter)
            if declared is None:
                continue
            name = self.text(declared)
            found.append(f"{name} 0")
            self.scopes[0][name] = found[-1]
            if _is_reference(parameter.child_by_field_name("declarator")) and not is_const(self.file, parameter):
                self.objects.add(name)
        return found

    def _initializers(self) -> list[ast.stmt]:
        """Translate the initializers of a constructor's members to assignments."""
        found: list[ast.stmt] = []
        for each in _every(self.node):
            if each.type != "field_initializer":
                continue
            name, *values = _parts(each)
            value = self._initial(values[0]) if values else None
            if name.type != "field_identifier" or value is None:
                found.append(ast.Expr(self._opaque(each)))
                continue
            found.append(ast.Assign([self._place(self.text(name))], value))
        return found

    def _objects(self) -> set[str]:
        found = {self.text(_parts(node)[0]) for node in _every(self.node) if node.type == "field_initializer"}
        #: Local variables that only hold values, if nothing else makes them objects.
        values = self._plain_parameters()
        targets: list[tuple[str, bool]] = []
        for node in _every(self.node.child_by_field_name("body")):
            if node.type == "declaration":
                self._sort(node, values, found)
            elif node.type in ("assignment_expression", "update_expression"):
                target = node.child_by_field_name("left") or node.child_by_field_name("argument")
                targets.append((self.text(target), target.type == _NAME and _is_statement(node)))
            else:
                found |= self._objects_by_use(node)
        for name, is_simple in targets:
            if not is_simple or name not in values:
                found.add(name)
        return found

    def _plain_parameters(self) -> set[str]:
        """Return the parameters that only hold values."""
        found = set()
        for parameter in parameters_of(self.node):
            name = node_of_parameter(parameter)
            is_reference = _is_reference(parameter.child_by_field_name("declarator"))
            if name is not None and not is_reference and self._is_plain(parameter):
                found.add(self.text(name))
        return found

    def _objects_by_use(self, node: Any) -> set[str]:
        """Return the names that must be those of objects because of how a node uses them."""
        match node.type:
            case "for_range_loop":
                declared = node.child_by_field_name("declarator")
                if _is_reference(declared) and not is_const(self.file, node):
                    return {self.text(_declared(declared))}
            case "pointer_expression":
                if self.text(node).startswith("&"):
                    return {self.text(node.child_by_field_name("argument")).strip("() ")}
            case "lambda_expression" if self._is_closure(node):
                return self._assigned_outside(node)
            case "lambda_expression" | "gnu_asm_expression":
                return {self.text(each) for each in _every(node) if each.type == _NAME}
            case "preproc_arg":
                return set(re.findall(r"\w+", self.text(node)))
        return set()

    def _is_closure(self, node: Any) -> bool:
        """Return whether a lambda copies no variables."""
        captures = "".join(self.text(node.child_by_field_name("captures")).split())
        return captures in ("[]", "[&]", "[this]", "[&,this]")

    def _assigned_outside(self, node: Any) -> set[str]:
        """Return the variables that a lambda assigns and doesn't declare."""
        assigned: set[str] = set()
        declared: set[str] = set()
        for each in _every(node):
            if each.type in ("assignment_expression", "update_expression"):
                assigned.add(self.text(each.child_by_field_name("left") or each.child_by_field_name("argument")))
            elif each.type in ("declaration", "parameter_declaration"):
                names = map(node_of_name, each.children_by_field_name("declarator"))
                declared.update(self.text(name) for name in names if name is not None)
        return assigned - declared

    def _template_types(self) -> set[str]:
        found = set()
        outer = self.node.parent
        while outer is not None and outer.type == "template_declaration":
            for one in outer.child_by_field_name("parameters").named_children:
                if one.type == "type_parameter_declaration" and one.named_children:
                    found.add(self.text(one.named_children[-1]))
            outer = outer.parent
        return found

    def _kinds(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for node in _every(self.node):
            if node.type in ("declaration", "parameter_declaration", "for_range_loop"):
                kind = node.child_by_field_name("type")
                if kind is None:
                    continue
                for declared in node.children_by_field_name("declarator"):
                    name = node_of_name(declared)
                    if name is not None and name.type != _NAME:
                        for one in name.named_children:
                            found.setdefault(self.text(one), set()).add("auto")
                    elif name is not None:
                        pointed = "*" * (_inner(declared).type != _NAME)
                        found.setdefault(self.text(name), set()).add(spelled_type(self.text(kind)) + pointed)
        return found

    def _sort(self, declaration: Any, values: set[str], objects: set[str]) -> None:
        """Add each variable of a declaration to ``values`` if it only holds a value, otherwise to ``objects``."""
        plain = self._is_plain(declaration)
        for declared in declaration.children_by_field_name("declarator"):
            name = self.text(_declared(declared))
            is_value = plain and not _is_reference(declared) and _inner(declared).type != "array_declarator"
            is_value = is_value or self._is_only_copied(declaration, declared)
            if is_value or self._is_only_passed_on(declaration, declared):
                values.add(name)
            else:
                objects.add(name)

    def _is_only_passed_on(self, declaration: Any, declared: Any) -> bool:
        """Return whether a variable is initialized with a list and used only as an argument in the next statement."""
        value, after = declared.child_by_field_name("value"), declaration.next_named_sibling
        if value is None or value.type != "initializer_list" or after is None:
            return False
        uses = []
        for node in _every(declaration.parent):
            if node.type == _NAME and self.text(node) == self.text(_declared(declared)):
                uses.append(node)
        if len(uses) != 2 or not after.start_byte <= uses[1].start_byte < after.end_byte:
            return False
        return bool(after.type == "expression_statement" and uses[1].parent.type == "argument_list")

    def _is_only_copied(self, declaration: Any, declared: Any) -> bool:
        """Return whether an object is only assigned and copied as a whole, so that it holds a value like a number."""
        words = {self.text(child) for child in declaration.children if child.type != "init_declarator"}
        if words & {"static", "extern", "thread_local", "__shared__"}:
            return False
        if _inner(declared).type not in (_NAME, "function_declarator"):
            return False
        name = self.text(_declared(declared))
        value = declared.child_by_field_name("value")
        if value is not None and value.type not in _NEW_OBJECTS:
            return False
        copies = 0
        for node in _every(self.node):
            if node.type != _NAME or self.text(node) != name:
                continue
            parent = node.parent
            if node == parent.child_by_field_name("declarator"):
                # Declared in this or another block.
                continue
            if node == parent.child_by_field_name("left"):
                if parent.child_by_field_name("right").type not in _NEW_OBJECTS:
                    return False
                continue
            is_added = parent.type == "argument_list" and _ADDED.search(self.text(parent.parent))
            if not is_added and parent.type not in ("return_statement", "assignment_expression"):
                return False
            copies += 1
        return copies > 0

    def _is_plain(self, declaration: Any) -> bool:
        """Return whether a declaration's variables only hold values: numbers, pointers or constants."""
        if any(child.type == "storage_class_specifier" for child in declaration.children):
            return False
        if "__shared__" in self.text(declaration):
            return False
        if is_const(self.file, declaration):
            return True
        declared = declaration.children_by_field_name("declarator")
        if any(_inner(one).type == "pointer_declarator" for one in declared):
            return True
        kind = declaration.child_by_field_name("type")
        if kind is None:
            return False
        kind = spelled_type(self.text(kind))
        return kind in self.types or bool(_PLAIN.match(kind))

    # Statements

    def block(self, node: Any) -> list[ast.stmt]:
        """Translate a block, or a single statement in the place of a block."""
        self.scopes.append({})
        found: list[ast.stmt] = []
        children = [node]
        if node.type == "compound_statement":
            children = node.named_children
        for child in children:
            found += self.statement(child)
        self.scopes.pop()
        return found

    def statement(self, node: Any) -> list[ast.stmt]:
        """Translate a statement to zero or more Python statements."""
        translate = getattr(self, f"_from_{node.type}", None)
        if node.has_error and any(child.is_error or child.is_missing for child in node.children):
            # The parser can't read a part of it.
            translate = None
        before, outer, depth = list(self.updates), self.lambdas, len(self.scopes)
        self.lambdas = []
        try:
            if translate is not None:
                found = list(translate(node))
            elif node.type in _GUARDS:
                found = self._guarded(node)
            else:
                found = [ast.Expr(self._opaque(node))]
            return [*self.lambdas, *found]
        except UnknownError:
            self.updates = before
            del self.scopes[depth:]
            return [self._unreadable(node)]
        finally:
            self.lambdas = outer

    def _unreadable(self, node: Any) -> ast.stmt:
        """Return a statement that can't be run in place of code that isn't translated and may leave its block."""
        parts: list[ast.expr] = [ast.Name(" ".join(self.text(node).split()), ast.Load())]
        for name in dict.fromkeys(self.text(each) for each in _every(node) if each.type == _NAME):
            if resolved := self._resolved(name):
                parts += [ast.Name(resolved, ast.Load()), ast.Name(resolved, ast.Store())]
        return ast.Match(ast.Tuple(parts, ast.Load()), [])

    def _from_comment(self, node: Any) -> list[ast.stmt]:
        return []

    def _from_expression_statement(self, node: Any) -> list[ast.stmt]:
        if not node.named_children:
            return []
        if node.named_children[0].type == _NAME:
            # A macro.
            return [ast.Expr(self._opaque(node))]
        if self._has_block(node):
            return self._macro(node.named_children[0], node.next_named_sibling)
        return self._expression(node.named_children[0])

    def _has_block(self, node: Any) -> bool:
        """Return whether a statement is a macro whose block is the next statement: ``DISPATCH(x, X, { … });``."""
        calls = [child for child in node.named_children if child.type == "call_expression"]
        return node.type == "expression_statement" and bool(calls) and self.text(calls[0]).endswith(",")

    def _macro(self, call: Any, block: Any) -> list[ast.stmt]:
        """Translate the part of a macro before its block. It may define the names in its arguments."""
        for each in _every(block):
            if each.type in ("break_statement", "continue_statement") and _leaves_node(each, block):
                raise UnknownError
        names = [self.text(one) for one in _parts(call.child_by_field_name("arguments")) if one.type == _NAME]
        value = self.value(call)
        result = ast.Name(self._new(_MACRO), ast.Load())
        found: list[ast.stmt] = [ast.Assign([ast.Name(result.id, ast.Store())], value)]
        for name in names:
            if not self._resolved(name):
                made = _pure("defined by", result, ast.Constant(name))
                found.append(ast.Assign([ast.Name(self._new(name), ast.Store())], made))
        return found

    def _from_compound_statement(self, node: Any) -> list[ast.stmt]:
        before = node.prev_named_sibling
        if before is not None and self._has_block(before):
            # The macro may leave it out.
            return [ast.If(ast.Name(self._resolved(_MACRO), ast.Load()), self.block(node) or [ast.Pass()], [])]
        return self.block(node)

    def _from_alias_declaration(self, node: Any) -> list[ast.stmt]:
        declared = node.child_by_field_name("name") or node.child_by_field_name("declarator")
        kind = node.child_by_field_name("type")
        others = [one for one in node.named_children if one not in (declared, kind)]
        if others or declared.type != "type_identifier":
            return [ast.Expr(self._opaque(node))]
        return [ast.Expr(_call(f"type {self.text(declared)}", self._with_values(spelled_type(self.text(kind)), kind)))]

    _from_type_definition = _from_alias_declaration

    def _from_using_declaration(self, node: Any) -> list[ast.stmt]:
        (name,) = node.named_children
        full = spelled_type(self.text(name))
        if any(child.type == "namespace" for child in node.children) or "::" not in full:
            return [ast.Expr(self._opaque(node))]
        self.used[full.rpartition("::")[2]] = full
        return []

    def _from_while_statement(self, node: Any) -> list[ast.stmt]:
        test = self.test(node.child_by_field_name("condition"))
        self.updates.append([])
        body = self.block(node.child_by_field_name("body"))
        self.updates.pop()
        return [ast.While(test, body or [ast.Pass()], [])]

    def _from_return_statement(self, node: Any) -> list[ast.stmt]:
        value = _parts(node)[:1]
        kind = self.node.child_by_field_name("type")
        if value and value[0].type == "initializer_list" and len(_parts(value[0])) > 1 and kind is not None:
            made = _pure(spelled_type(self.text(kind)), ast.List(self._values(value[0]), ast.Load()))
            return [ast.Return(made)]
        return [ast.Return(self._first(node))]

    def _from_throw_statement(self, node: Any) -> list[ast.stmt]:
        return [ast.Raise(self._first(node), None)]

    def _first(self, node: Any) -> ast.expr | None:
        """Return the expression in a ``return`` or ``throw`` statement; None if there is none."""
        for child in _parts(node):
            return self.value(child)
        return None

    def _from_break_statement(self, node: Any) -> list[ast.stmt]:
        if not self.updates:
            raise UnknownError
        return [ast.Break()]

    def _from_continue_statement(self, node: Any) -> list[ast.stmt]:
        if not self.updates:
            raise UnknownError
        return [*self.updates[-1], ast.Continue()]

    def _guarded(self, node: Any) -> list[ast.stmt]:
        """Translate ``#if`` to a Python ``if``. Variables declared inside belong to the enclosing C++ block."""
        condition, alternative = node.child_by_field_name("condition"), node.child_by_field_name("alternative")
        if condition is None:
            condition = node.child_by_field_name("name")
        found: list[ast.stmt] = []
        for child in node.named_children:
            if child not in (condition, alternative):
                found += self.statement(child)
        if node.type == "preproc_else":
            return found
        test = ast.Name(f"{node.children[0].type} {' '.join(self.text(condition).split())}", ast.Load())
        other: list[ast.stmt] = []
        if alternative is not None:
            other = self.statement(alternative)
        return [ast.If(test, found or [ast.Pass()], other)]

    def _opaque(self, node: Any, before: Sequence[str] = (), without: str = "") -> ast.Call:
        """Return code that isn't translated as a call of its text, with the variables that hold values as arguments.

        :param before: words to put before the text.
        :param without: name that is left out of the text.
        :raises UnknownError: if the code leaves a block, assigns such a variable, or contains a preprocessor
            conditional.
        """
        values: dict[str, str] = {}
        for each in _every(node):
            if each.type in _LEAVING and _leaves_node(each, node):
                raise UnknownError
            if each.type in _GUARDS and node.type != "switch_statement":
                raise UnknownError
            name = self.text(each)
            if each.type == _NAME and name != without and self._resolved(name):
                values.setdefault(name, f"value {len(values)}")
            if each.type in ("assignment_expression", "update_expression"):
                target = self.text(each.child_by_field_name("left") or each.child_by_field_name("argument"))
                if target not in self.objects and self._resolved(target):
                    raise UnknownError
        words = re.findall(r'"(?:[^"\\]|\\.)*"|\w+|\S', self.text(node))
        if without:
            values[without] = "%"
        inside = self._declared_in(node)
        shown = (values.get(word) or self._resolved(word) or inside.get(word) or word for word in words)
        text = " ".join([*before, *shown]).replace("] ( ) {", "] {")
        values.pop(without, None)
        return _call(text, *(ast.Name(self._resolved(name), ast.Load()) for name in values))

    def _declared_in(self, node: Any) -> dict[str, str]:
        """Return names for the variables that code declares, such as those of a lambda: their names don't count."""
        found: dict[str, str] = {}
        for each in _every(node):
            for declared in each.children_by_field_name("declarator") if each.type == "declaration" else ():
                name = node_of_name(declared)
                if name is not None:
                    found.setdefault(self.text(name), f"local {len(found)}")
        return found

    def _resolved(self, name: str) -> str:
        """Return the Python name of a local variable; "" for other names."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return ""

    def _new(self, name: str) -> str:
        if name in self.scopes[-1]:
            # Declared twice, after `#if` and after `#else`.
            return self.scopes[-1][name]
        # Objects have their own numbers, so that a new variable that only holds a value doesn't renumber them.
        is_object = name in self.objects
        self.counts[is_object] += 1
        found = f"{name} {self.counts[is_object]}"
        if is_object:
            found = f"%{self.counts[is_object]}"
        self.scopes[-1][name] = found
        return found

    def _from_declaration(self, node: Any) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        kind = node.child_by_field_name("type")
        shown = spelled_type(self.text(kind))
        for declared in node.children_by_field_name("declarator"):
            inner = _inner(declared)
            if inner.type == "function_declarator":
                found.append(self._made(shown, inner, kind) or ast.Expr(self._opaque(node)))
            elif inner.type == "structured_binding_declarator":
                value = self.value(declared.child_by_field_name("value"))
                names: list[ast.expr] = []
                for one in inner.named_children:
                    names.append(ast.Name(self._new(self.text(one)), ast.Store()))
                found.append(ast.Assign([ast.Tuple(names, ast.Store())], value))
            else:
                found += self._from_declared(node, declared, shown)
        return found

    def _from_declared(self, node: Any, declared: Any, shown: str) -> list[ast.stmt]:
        """Translate the declaration of one variable.

        :param node: the whole declaration.
        :param shown: type of the variable.
        """
        value, inner = declared.child_by_field_name("value"), _inner(declared)
        name = self.text(_declared(declared))
        given = self._initial(value)
        if given is not None:
            given = self._as_initial(given, value, shown)
        target = self._new(name)
        if name in self.objects and _PLAIN.match(shown) and inner.type == _NAME:
            place: ast.expr = self._place(target)
        elif name in self.objects:
            place, given = ast.Name(target, ast.Store()), self._declaration(node, declared, shown, given)
        else:
            place = ast.Name(target, ast.Store())
            if inner.type != "pointer_declarator" and self._is_only_passed_on(node, declared):
                given = _pure(shown, ast.List(self._values(value), ast.Load()))
            elif value is not None and value.type == "argument_list" and not _PLAIN.match(shown):
                given = self._made_of(shown, self._values(value), node.child_by_field_name("type"))
            elif isinstance(given, ast.List) and self._is_only_copied(node, declared):
                given = _pure(shown, given)
        if given is None:
            return []
        return [ast.Assign([place], given)]

    def _as_initial(self, given: ast.expr, value: Any, shown: str) -> ast.expr:
        """Return an initial value without a cast to the type of its variable, which makes no difference.

        A conversion between integers and other numbers becomes a cast.
        """
        if shown == "auto":
            return _without_cast(given, _type_of_cast(self.file, value))
        if self._converts(value, shown):
            return _pure(f"static_cast<{shown}>", _without_cast(given, shown))
        return _without_cast(given, shown)

    def _declaration(self, node: Any, declared: Any, shown: str, given: ast.expr | None) -> ast.expr:
        """Translate the declaration of an object to what makes it."""
        value, inner = declared.child_by_field_name("value"), _inner(declared)
        storage = []
        for one in node.children:
            if one.type in ("storage_class_specifier", "__shared__"):
                storage.append(self.text(one))
        is_object = inner.type == _NAME and not storage
        if isinstance(given, ast.Call) and is_object:
            # The function's result is the object itself.
            return given
        if is_object and value is not None and value.type == "argument_list" and self._is_used(declared):
            return self._made_of(shown, self._values(value), node.child_by_field_name("type"))
        words = ["declare", *storage, *["&"] * _is_reference(declared), shown]
        found = self._opaque(inner, words, without=self.text(_declared(declared)))
        found.args += self._values_in(node.child_by_field_name("type"))
        if given:
            found.args.append(given)
        return found

    def _made(self, shown: str, declarator: Any, kind: Any) -> ast.stmt | None:
        """Return the declaration of an object made of variables. The parser takes it for one of a function.

        Return None if it may be one of a function.
        """
        names = _parts(declarator.child_by_field_name("parameters"))
        if not names or not all(re.fullmatch(r"\w+(::\w+)*", self.text(one)) for one in names):
            return None
        known = any(self._resolved(self.text(one)) for one in names)
        if not known and "::" in self.text(declarator) and not self._is_used(declarator):
            return None
        values = [self._value_of_identifier(one) for one in names]
        if not self._is_only_copied(declarator.parent, declarator):
            self.objects.add(self.text(_declared(declarator)))
        made = shown
        if not self._is_used(declarator):
            # Its constructor and destructor are all that counts.
            made = f"declare {shown}"
        target = ast.Name(self._new(self.text(_declared(declarator))), ast.Store())
        return ast.Assign([target], self._made_of(made, values, kind))

    def _made_of(self, shown: str, values: Sequence[ast.expr], kind: Any) -> ast.expr:
        """Return a call of a type's constructor."""
        values = [*values, *self._values_in(kind)]
        if _PURE.match(shown):
            return _pure(shown, *values)
        return _call(shown, *values)

    def _is_used(self, declarator: Any) -> bool:
        """Return whether the function mentions a variable after its declaration."""
        name, end = self.text(_declared(declarator)), declarator.end_byte
        return any(
            each.start_byte > end and self.text(each) == name for each in _every(self.node) if each.type == _NAME
        )

    def _values(self, node: Any) -> list[ast.expr]:
        """Translate each expression in an argument list or initializer list."""
        return [self.value(one) for one in _parts(node)]

    def _initial(self, value: Any) -> ast.expr | None:
        """Translate an initializer: ``1`` for ``= 1``, ``(1)`` and ``{1}``; None for a variable without initializer."""
        if value is None:
            return None
        if value.type in ("initializer_list", "argument_list"):
            values = self._values(value)
            if len(values) == 1:
                return values[0]
            return ast.List(values, ast.Load())
        return self.value(value)

    def _expression(self, node: Any) -> list[ast.stmt]:
        if node.type == "assignment_expression":
            operator = self.text(node.child_by_field_name("operator"))
            value = self.value(node.child_by_field_name("right"))
            target = self._target(node.child_by_field_name("left"))
            if operator == "=":
                return [ast.Assign([target], value)]
            if self._is_text(node.child_by_field_name("left")):
                return [ast.Assign([target], _pure("join", self.value(node.child_by_field_name("left")), value))]
            return [ast.AugAssign(target, _OPERATORS[operator[:-1]](), value)]
        if node.type == "update_expression":
            target = self._target(node.child_by_field_name("argument"))
            operation = _OPERATORS[self.text(node.child_by_field_name("operator"))[0]]()
            return [ast.AugAssign(target, operation, ast.Constant(1))]
        if node.type == "comma_expression":
            return [*self._expression(node.named_children[0]), *self._expression(node.named_children[1])]
        if node.type == "binary_expression":
            streamed = list(self._streamed(node))
            return [ast.Expr(_call("<<", streamed[0], one)) for one in streamed[1:]]
        if node.type == "call_expression" and _only_reserves(self.file, node):
            return []
        if node.type == "call_expression" and _THROWING.fullmatch(self.text(node.child_by_field_name("function"))):
            return [ast.Raise(self.value(node), None)]
        return [ast.Expr(self.value(node))]

    def _streamed(self, node: Any) -> Iterator[ast.expr]:
        """Yield the stream, then each value written to it: ``s``, ``a`` and ``b`` for ``s << a << b``."""
        if node.type == "binary_expression" and self.text(node.child_by_field_name("operator")) == "<<":
            yield from self._streamed(node.child_by_field_name("left"))
            node = node.child_by_field_name("right")
        value = self.value(node)
        if node.type == "char_literal":
            value = self._value_of_string_literal(node)
        if isinstance(value, ast.Constant):
            value = ast.Constant(str(value.value))
        yield value

    def _target(self, node: Any) -> ast.Name | ast.Attribute | ast.Subscript:
        if node.type == _NAME and self.text(node) not in self.objects:
            return ast.Name(self._resolved(self.text(node)) or self.text(node), ast.Store())
        target = self.value(node)
        if not isinstance(target, ast.Attribute | ast.Subscript):
            raise UnknownError
        return target

    def _from_if_statement(self, node: Any) -> list[ast.stmt]:
        condition = node.child_by_field_name("condition")
        self.scopes.append({})
        before = self._initializer(condition)
        test = self.test(condition)
        body = self.block(node.child_by_field_name("consequence")) or [ast.Pass()]
        alternative = node.child_by_field_name("alternative")
        other: list[ast.stmt] = []
        if alternative is not None:
            other = self.block(alternative.named_children[-1])
        self.scopes.pop()
        return [*before, ast.If(test, body, other)]

    def _initializer(self, condition: Any) -> list[ast.stmt]:
        initializer = condition.child_by_field_name("initializer")
        if initializer is None:
            return []
        return self.statement(initializer.named_children[0])

    def _from_for_statement(self, node: Any) -> list[ast.stmt]:
        self.scopes.append({})
        initializer = node.child_by_field_name("initializer")
        found: list[ast.stmt] = []
        if initializer is not None and initializer.type == "declaration":
            found = self.statement(initializer)
        elif initializer is not None:
            found = self._expression(initializer)
        condition, update = node.child_by_field_name("condition"), node.child_by_field_name("update")
        test: ast.expr = ast.Constant(True)
        if condition is not None:
            test = self.test(condition)
        self.updates.append([])
        if update is not None:
            self.updates[-1] += self._expression(update)
        body = [*self.block(node.child_by_field_name("body")), *self.updates.pop()]
        self.scopes.pop()
        return [*found, ast.While(test, body or [ast.Pass()], [])]

    def _from_for_range_loop(self, node: Any) -> list[ast.stmt]:
        iterable = self.value(node.child_by_field_name("right"))
        declared = node.child_by_field_name("declarator")
        self.scopes.append({})
        inner = _inner(declared)
        names = [inner]
        if inner.type == "structured_binding_declarator":
            names = inner.named_children
        targets: list[ast.expr] = []
        for one in names:
            if self.text(one) in self.objects:
                raise UnknownError
            targets.append(ast.Name(self._new(self.text(one)), ast.Store()))
        target = targets[0]
        if len(targets) > 1:
            target = ast.Tuple(targets, ast.Store())
        self.updates.append([])
        body = self.block(node.child_by_field_name("body"))
        self.updates.pop()
        self.scopes.pop()
        return [ast.For(target, iterable, body or [ast.Pass()], [])]

    def _from_switch_statement(self, node: Any) -> list[ast.stmt]:
        """Translate a ``switch`` to a chain of ``if`` statements.

        :raises UnknownError: if a case ends with a conditional ``break``.
        """
        # The value is read once, before the first case.
        self.counts[0] += 1
        value: ast.expr = ast.Name(f"value of switch {self.counts[0]}", ast.Load())
        given = self.value(node.child_by_field_name("condition").child_by_field_name("value"))
        found: list[ast.stmt] = [ast.Assign([ast.Name(f"value of switch {self.counts[0]}", ast.Store())], given)]
        end, other = found, found
        choices: list[ast.expr] = []
        cases = _parts(node.child_by_field_name("body"))
        if any(case.type != "case_statement" for case in cases):
            return [ast.Expr(self._opaque(node))]
        for position, case in enumerate(cases):
            choice = case.child_by_field_name("value")
            statements = _statements_of(case)
            if choice is not None:
                choices.append(self.value(choice))
            elif not statements:
                raise UnknownError
            if not statements and position < len(cases) - 1:
                continue
            for after in cases[position + 1 :]:
                if not _leaves(statements):
                    statements = [*statements, *_statements_of(after)]
            body = self._case(statements)
            if choice is None:
                # Its choices are those that no other case has.
                other = body
            else:
                test = ast.Compare(value, [ast.In()], [ast.Tuple(choices, ast.Load())])
                condition = ast.If(test, body or [ast.Pass()], [])
                end.append(condition)
                end = condition.orelse
            choices = []
        if other is not found:
            end += other
        return found

    def _case(self, statements: Sequence[Any]) -> list[ast.stmt]:
        if statements and statements[-1].type == "break_statement":
            statements = statements[:-1]
        if any(each.type == "break_statement" for one in statements for each in _every(one)):
            raise UnknownError
        self.scopes.append({})
        found: list[ast.stmt] = []
        for one in statements:
            found += self.statement(one)
        self.scopes.pop()
        return found

    # Values

    def test(self, node: Any) -> ast.expr:
        if node.type == "condition_clause":
            node = node.child_by_field_name("value")
        if node.type == "declaration":
            raise UnknownError
        return self.value(node)

    def _place(self, name: str) -> ast.expr:
        """Return the attribute in which an object's value is stored."""
        return ast.Attribute(ast.Name(name, ast.Load()), "=", ast.Load())

    def value(self, node: Any) -> ast.expr:
        """Translate an expression."""
        if node.type in _NAMES:
            return self._with_values(spelled_type(self.text(node)), node)
        translate = getattr(self, f"_value_of_{node.type}", None)
        if translate is None:
            return self._opaque(node)
        found = translate(node)
        assert isinstance(found, ast.expr)
        return found

    def _with_values(self, text: str, node: Any) -> ast.expr:
        """Return a name; with the local variables that its template arguments mention, if they hold values."""
        first, _, rest = text.partition("::")
        if first in self.used:
            text = self.used[first] + (rest and f"::{rest}")
        values = self._values_in(node)
        if not values:
            return ast.Name(text, ast.Load())
        return _pure(text, *values)

    def _values_in(self, node: Any) -> list[ast.expr]:
        """Return the local variables in a type or name, such as ``Array<N>``, that hold values."""
        names = dict.fromkeys(self.text(each) for each in _every(node) if each.type in (_NAME, "type_identifier"))
        found: list[ast.expr] = []
        for name in names:
            if name not in self.objects and self._resolved(name):
                found.append(ast.Name(self._resolved(name), ast.Load()))
        return found

    def _field(self, node: Any, name: str) -> ast.expr:
        child = node.child_by_field_name(name)
        if child is None:
            raise UnknownError
        return self.value(child)

    def _value_of_lambda_expression(self, node: Any) -> ast.expr:
        if not self._is_closure(node):
            return self._opaque(node)
        updates, self.updates = self.updates, []
        self.scopes.append({})
        declarator = node.child_by_field_name("declarator")
        parameters: list[ast.arg] = []
        if declarator is not None:
            for declared in map(node_of_parameter, _parts(declarator.child_by_field_name("parameters"))):
                parameters.append(ast.arg(self._new((declared and self.text(declared)) or "")))
        body = self.block(node.child_by_field_name("body")) or [ast.Pass()]
        self.scopes.pop()
        self.updates = updates
        name = self._new("lambda")
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        self.lambdas.append(ast.FunctionDef(name, arguments, body, []))
        return ast.Name(name, ast.Load())

    def _value_of_parenthesized_expression(self, node: Any) -> ast.expr:
        return self.value(_parts(node)[0])

    def _value_of_number_literal(self, node: Any) -> ast.expr:
        number = spelled_number(self.text(node))
        if number.isdigit():
            return ast.Constant(int(number))
        return ast.Name(number, ast.Load())

    def _value_of_string_literal(self, node: Any) -> ast.expr:
        return ast.Constant(self.text(node)[1:-1])

    def _value_of_char_literal(self, node: Any) -> ast.expr:
        return ast.Name(self.text(node), ast.Load())

    def _value_of_concatenated_string(self, node: Any) -> ast.expr:
        return ast.Constant("".join(self.text(one)[1:-1] for one in node.named_children))

    def _value_of_true(self, node: Any) -> ast.expr:
        return ast.Constant(node.type == "true")

    _value_of_false = _value_of_true

    def _value_of_null(self, node: Any) -> ast.expr:
        return ast.Constant(None)

    _value_of_nullptr = _value_of_null

    def _value_of_identifier(self, node: Any) -> ast.expr:
        name = self.text(node)
        found = self._resolved(name) or name
        if name in self.objects:
            return self._place(found)
        return ast.Name(found, ast.Load())

    def _value_of_field_expression(self, node: Any) -> ast.expr:
        name = "".join(self.text(node.child_by_field_name("field")).split())
        if name in ("reset", "release", "swap") and "->" in [child.type for child in node.children]:
            # Of the object, not of the smart pointer.
            name = f"->{name}"
        return ast.Attribute(self._field(node, "argument"), name, ast.Load())

    def _value_of_cast_expression(self, node: Any) -> ast.expr:
        kind = spelled_type(self.text(node.child_by_field_name("type")))
        values = self._values_in(node.child_by_field_name("type"))
        return self._cast(kind, node.child_by_field_name("value"), values)

    def _cast(self, kind: str, node: Any, values: Sequence[ast.expr] = ()) -> ast.expr:
        """Return the cast of an expression to a type; the expression if the cast has no effect."""
        value = self.value(node)
        is_zero = isinstance(value, ast.Constant) and value.value == 0 and bool(_INTEGER.match(kind))
        if _CAST.match(kind) and (is_zero or (node.type == _NAME and self.kinds.get(self.text(node)) == {kind})):
            return value
        return _pure(f"static_cast<{kind}>", value, *values)

    def _value_of_unary_expression(self, node: Any) -> ast.expr:
        operator = self.text(node.child_by_field_name("operator"))
        return ast.UnaryOp(_UNARY[operator](), self._field(node, "argument"))

    def _value_of_pointer_expression(self, node: Any) -> ast.expr:
        inner = self._field(node, "argument")
        if self.text(node.child_by_field_name("operator")) == "&":
            if isinstance(inner, ast.Subscript) and node.child_by_field_name("argument").type == "subscript_expression":
                return ast.BinOp(inner.value, ast.Add(), inner.slice)
            if isinstance(inner, ast.Attribute):
                # The address doesn't depend on what is there.
                return _pure(f"&{inner.attr}".removesuffix("="), inner.value)
            return _pure("&", inner)
        return ast.Subscript(inner, ast.Constant(0), ast.Load())

    def _value_of_conditional_expression(self, node: Any) -> ast.expr:
        sides = self._field(node, "consequence"), self._field(node, "alternative")
        return ast.IfExp(self._field(node, "condition"), *sides)

    def _value_of_subscript_expression(self, node: Any) -> ast.expr:
        places = self._values(node.child_by_field_name("indices"))
        if not places:
            raise UnknownError
        place = places[0]
        if len(places) > 1:
            place = _tuple(places)
        return ast.Subscript(self._field(node, "argument"), place, ast.Load())

    def _value_of_initializer_list(self, node: Any) -> ast.expr:
        return ast.List(self._values(node), ast.Load())

    def _value_of_compound_literal_expression(self, node: Any) -> ast.expr:
        kind = spelled_type(self.text(node.child_by_field_name("type")))
        parts = _parts(node.child_by_field_name("value"))
        if _CAST.match(kind) and len(parts) == 1:
            return self._cast(kind, parts[0])
        return _pure(kind, self._field(node, "value"))

    def _value_of_binary_expression(self, node: Any) -> ast.expr:
        operator = self.text(node.child_by_field_name("operator"))
        operator = _SPELLINGS.get(operator, operator)
        left, right = (self.value(node.child_by_field_name(side)) for side in ("left", "right"))
        if operator == "&&":
            return ast.BoolOp(ast.And(), [left, right])
        if operator == "||":
            return ast.BoolOp(ast.Or(), [left, right])
        respelled = self._respelled(operator, node.child_by_field_name("left"), left, right)
        if respelled is not None:
            return respelled
        if operator == "+" and any(
            map(self._is_text, (node.child_by_field_name("left"), node.child_by_field_name("right")))
        ):
            return _pure("join", left, right)
        if operator in _COMPARISONS:
            return ast.Compare(left, [_COMPARISONS[operator]()], [right])
        if operator == "|" and ast.dump(right) < ast.dump(left):
            left, right = right, left
        if operator not in _OPERATORS:
            raise UnknownError
        return ast.BinOp(left, _OPERATORS[operator](), right)

    def _respelled(self, operator: str, node: Any, left: ast.expr, right: ast.expr) -> ast.expr | None:
        """Rewrite an operation that has two common spellings: ``x == 0`` to ``!x``. Return None for other operations.

        :param node: left operand, whose declaration shows whether it is unsigned.
        """
        if operator in ("==", "!=") and _is_find(left, right):
            lacks = ast.UnaryOp(ast.Not(), _counted(left))
            if operator == "==":
                return lacks
            return ast.UnaryOp(ast.Not(), lacks)
        if isinstance(right, ast.Constant) and right.value == 0:
            is_zero = ast.UnaryOp(ast.Not(), left)
            if operator == "==":
                return is_zero
            if operator == "!=" or (operator == ">" and self._is_unsigned(node)):
                return ast.UnaryOp(ast.Not(), is_zero)
        if operator == "-" and isinstance(right, ast.BinOp) and ast.dump(right) == _remainder(left, right.right):
            return ast.BinOp(ast.BinOp(left, ast.FloorDiv(), right.right), ast.Mult(), right.right)
        if operator == "&" and self._is_unsigned(node):
            mask = _number(right)
            if mask > 0 and mask & (mask + 1) == 0:
                return ast.BinOp(left, ast.Mod(), ast.Constant(mask + 1))
        return None

    def _respelled_method(self, function: Any, arguments: list[ast.expr]) -> ast.expr | None:
        """Return a call of a container's method in its other spelling; None for other calls."""
        container = self._field(function, "argument")
        name = self.text(function.child_by_field_name("field"))
        size = ast.Call(ast.Attribute(container, "size", ast.Load()), [], [])
        if name == "empty" and not arguments:
            return ast.UnaryOp(ast.Not(), size)
        if name == "front" and not arguments:
            return ast.Subscript(container, ast.Constant(0), ast.Load())
        if name == "emplace_back" and arguments:
            item = arguments[0]
            if len(arguments) > 1:
                item = ast.List(arguments, ast.Load())
            return ast.Call(ast.Attribute(container, "push_back", ast.Load()), [item], [])
        return None

    def _converts(self, value: Any, kind: str) -> bool:
        """Return whether an initial value is known to be an integer and its variable is not, or the other way round."""
        integer, other = False, False
        if _type_of_cast(self.file, value) == kind and value.type == "call_expression":
            value = value.child_by_field_name("arguments")
        for each in _every(value):
            if each.type in ("call_expression", "field_expression", "subscript_expression", "pointer_expression"):
                return False
            if each.type == "number_literal":
                kinds = {_type_of_number(self.text(each))}
            elif each.type == _NAME:
                kinds = self.kinds.get(self.text(each), {""})
            else:
                continue
            integer |= all(map(_INTEGER.match, kinds))
            other |= all(map(_FLOAT.match, kinds))
            if not all(_INTEGER.match(one) or _FLOAT.match(one) for one in kinds):
                return False
        return bool((_FLOAT.match(kind) and integer and not other) or (_INTEGER.match(kind) and other))

    def _is_text(self, node: Any) -> bool:
        """Return whether an expression is a text, so that the order of its parts counts."""
        if node.type == "binary_expression":
            return any(self._is_text(node.child_by_field_name(side)) for side in ("left", "right"))
        is_literal = node.type in ("string_literal", "concatenated_string")
        return is_literal or any("string" in kind for kind in self.kinds.get(self.text(node), ()))

    def _is_unsigned(self, node: Any) -> bool:
        """Return whether an expression is a variable declared as unsigned, or an element of such a variable."""
        if node.type == "call_expression":
            return self.text(node).endswith(".size()")
        while node.type in ("subscript_expression", "pointer_expression"):
            node = node.child_by_field_name("argument")
        kinds = self.kinds.get(self.text(node), ())
        return node.type == _NAME and any(re.match(r"(uint\d*_t|size_t|unsigned)\b", kind) for kind in kinds)

    def _value_of_call_expression(self, node: Any) -> ast.expr:
        function = node.child_by_field_name("function")
        arguments = self._values(node.child_by_field_name("arguments"))
        for child in node.children:
            if child.type == "kernel_call_syntax":
                return ast.Call(ast.Call(self.value(function), self._values(child), []), arguments, [])
        found = None
        if function.type == "field_expression":
            found = self._called_method(function, arguments)
        elif not self._resolved(self.text(function)):
            found = self._called_by_name(node, spelled_type(self.text(function)), arguments)
        if found is None:
            found = ast.Call(self.value(function), arguments, [])
        return found

    def _called_method(self, function: Any, arguments: list[ast.expr]) -> ast.expr | None:
        """Translate a call of a method with a known effect; return None for other calls."""
        read = self.value(function)
        if not arguments and isinstance(read, ast.Attribute) and read.attr in _READS:
            return ast.Subscript(read, _tuple(()), ast.Load())
        return self._respelled_method(function, arguments)

    def _called_by_name(self, node: Any, name: str, arguments: list[ast.expr]) -> ast.expr | None:
        """Translate a call of a function with a known effect; return None for other calls."""
        if name in ("copy", "std::copy") and (inserted := _inserted(arguments)):
            return inserted
        if name in self.constant and not any(map(self._resolved, map(self.text, _every(node)))):
            return _pure(name, *arguments)
        if known := _KNOWN.fullmatch(name):
            (short,) = filter(known.groupdict().get, known.groupdict())
            return ast.Call(ast.Name(short, ast.Load()), arguments, [])
        is_cast = name in self.types and len(arguments) == 1
        is_cast |= name in self.aliases and [type(one) for one in arguments] == [ast.Constant]
        if not is_cast and not _PURE.match(name):
            return None
        if is_cast or _CAST.match(name):
            name = f"static_cast<{name}>"
        if name.endswith("*>"):
            # A cast in C's style may be either.
            name = name.replace("reinterpret_cast", "static_cast")
        others = self._values_in(node.child_by_field_name("function"))
        if name.startswith("static_cast<") and len(arguments) == 1:
            (given,) = _parts(node.child_by_field_name("arguments"))
            return self._cast(name[len("static_cast<") : -1], given, others)
        return _pure(name, *arguments, *others)


def _is_find(left: ast.expr, right: ast.expr) -> bool:
    """Return True for a call of a container's ``find`` and a call of the same container's ``end``."""
    match left, right:
        case ast.Call(func=ast.Attribute(value=one, attr="find")), ast.Subscript(
            value=ast.Attribute(value=other, attr="end")
        ):
            return ast.dump(one) == ast.dump(other)
    return False


def _counted(find: ast.expr) -> ast.expr:
    """Return a call of ``find`` as a call of ``count``."""
    assert isinstance(find, ast.Call)
    assert isinstance(find.func, ast.Attribute)
    return ast.Call(ast.Attribute(find.func.value, "count", ast.Load()), find.args, [])


def _remainder(number: ast.expr, divisor: ast.expr) -> str:
    """Return the syntax tree of ``number % divisor`` as text."""
    return ast.dump(ast.BinOp(number, ast.Mod(), divisor))


def _number(value: ast.expr) -> int:
    """Return the value of an integer literal; 0 for other expressions."""
    if isinstance(value, ast.Constant) and isinstance(value.value, int):
        return value.value
    return 0


def _inserted(arguments: Sequence[ast.expr]) -> ast.expr | None:
    """Return ``x.insert(x.end(), a, b)`` for ``copy(a, b, back_inserter(x))``; None for other copies."""
    if len(arguments) != 3:
        return None
    target = arguments[-1]
    if not isinstance(target, ast.Call) or ast.unparse(target.func) not in _BACK_INSERTERS or len(target.args) != 1:
        return None
    (container,) = target.args
    end = ast.Subscript(ast.Attribute(container, "end", ast.Load()), _tuple(()), ast.Load())
    return ast.Call(ast.Attribute(container, "insert", ast.Load()), [end, *arguments[:2]], [])


def _without_cast(value: ast.expr, kind: str) -> ast.expr:
    """Return an initial value without a cast to the type of its variable."""
    match value:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[inner])) if name == f"static_cast<{kind}>":
            return inner
    return value


def _only_reserves(file: CppFile, node: Any) -> bool:
    """Return whether a call only reserves memory for a container: ``x.reserve(n)``."""
    field = node.child_by_field_name("function").child_by_field_name("field")
    return field is not None and file.text(field) == "reserve"


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _pure(name: str, *arguments: ast.expr) -> ast.expr:
    """Return ``name[arguments]``, which represents a call without an effect."""
    return ast.Subscript(ast.Name(name, ast.Load()), _tuple(arguments), ast.Load())


def _tuple(values: Sequence[ast.expr]) -> ast.expr:
    return ast.Tuple(list(values), ast.Load())


def _statements_of(case: Any) -> list[Any]:
    """Return the statements of a case, without the braces around them."""
    found = _parts(case)
    choice = case.child_by_field_name("value")
    if choice is not None:
        found.remove(choice)
    if len(found) == 1 and found[0].type == "compound_statement":
        found = _parts(found[0])
    return found


def _leaves(statements: Sequence[Any]) -> bool:
    """Return whether statements never reach the one after them."""
    if not statements:
        return False
    last = statements[-1]
    if last.type == "compound_statement":
        return _leaves(_parts(last))
    if last.type == "if_statement":
        other = last.child_by_field_name("alternative")
        return other is not None and _leaves([last.child_by_field_name("consequence")]) and _leaves(_parts(other))
    return last.type in _LEAVING


def _parts(node: Any) -> list[Any]:
    """Return the named children of a node, except comments."""
    return [child for child in node.named_children if child.type != "comment"]


def _every(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes in it, in the order of the source."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(reversed(found.children))


def _inner(declarator: Any) -> Any:
    """Return a declarator without its initializer and references."""
    while declarator.type in ("init_declarator", "reference_declarator"):
        children = declarator.named_children
        inner = declarator.child_by_field_name("declarator")
        declarator = inner
        if inner is None:
            declarator = children[-1]
    return declarator


def _declared(declarator: Any) -> Any:
    """Return the node of the name that a declarator declares."""
    while declarator.type not in (_NAME, "structured_binding_declarator"):
        inner = declarator.child_by_field_name("declarator")
        children = declarator.named_children
        if inner is None and not children:
            raise UnknownError
        declarator = inner
        if inner is None:
            declarator = children[-1]
    return declarator


def _is_reference(declarator: Any) -> bool:
    while declarator is not None:
        if declarator.type == "reference_declarator":
            return True
        declarator = declarator.child_by_field_name("declarator")
    return False


def is_const(file: CppFile, declaration: Any) -> bool:
    """Return whether a declaration's variables never change."""
    words = [file.text(child) for child in declaration.children if child.type == "type_qualifier"]
    return "const" in words or "constexpr" in words


def _is_statement(node: Any) -> bool:
    """Return whether an expression is a whole statement, or the initializer or update of a ``for`` loop."""
    parent = node.parent
    if parent.type == "comma_expression":
        return _is_statement(parent)
    if parent.type == "for_statement":
        return bool(parent.child_by_field_name("condition") != node)
    return bool(parent.type == "expression_statement")


def _leaves_node(node: Any, outer: Any) -> bool:
    """Return whether a statement such as ``break`` or ``return`` leaves a node around it."""
    ends = {"lambda_expression"}
    if node.type in ("break_statement", "continue_statement"):
        ends |= {"for_statement", "while_statement", "do_statement", "for_range_loop"}
    if node.type == "break_statement":
        ends.add("switch_statement")
    while node != outer:
        node = node.parent
        if node.type in ends:
            return False
    return True
