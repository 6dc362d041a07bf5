"""The mutants of a module: each is one small change of its text, found by its syntax tree. Pure.

A mutant replaces a piece of the text, so all other lines, and their numbers, stay as they are. Not mutated: docstrings
and all other strings, annotations, decorators, assertions, and what only type checkers read.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

_BOUNDARIES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_ASSIGNED: Final = re.compile(r"(\w+)(?:: \S+)? = ")
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module.

    `path`: of the module, from the root of the checkout. `function`: its dotted name inside the module, "" outside all.
    `operator`: the kind of change. `start`, `end`: the replaced bytes of the module's text. `before`, `after`: the
    changed lines, without indentation at both ends. `occurrence`: 1 for the first of the mutants that have the same
    function and changed lines, 2 for the second. `in_function`: whether the innermost name of `function` is one, not a
    class: then the change has an effect only when that function is called.
    """

    path: str
    function: str
    operator: str
    line: int
    start: int
    end: int
    replacement: str
    before: str
    after: str
    occurrence: int = 1
    in_function: bool = False

    @property
    def constant(self) -> str:
        """The constant of the module that the change defines otherwise, as `module.NAME`; "" if it is none."""
        assigned = _ASSIGNED.match(self.before)
        if assigned is None or self.function:
            return ""
        return f"{self.path.removesuffix('.py').replace('/', '.')}.{assigned[1]}"

    def apply(self, source: bytes) -> bytes:
        """Return the module's text with the change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a module, in the order of its text. Raises SyntaxError."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    mutants: list[Mutant] = []
    ordered = sorted(set(finder.found), key=lambda one: (one.start, one.end, one.operator, one.replacement))
    seen: Counter[tuple[str, str, str]] = Counter()
    for mutant in ordered:
        seen[mutant.function, mutant.before, mutant.after] += 1
        mutants.append(replace(mutant, occurrence=seen[mutant.function, mutant.before, mutant.after]))
    return mutants


def textual_mutant(path: str, source: bytes, before: str, after: str) -> Mutant | None:
    """Return the mutant that replaces a text of the module; None unless it occurs there exactly once."""
    if source.count(before.encode()) != 1:
        return None
    start = source.index(before.encode())
    line = source.count(b"\n", 0, start) + 1
    return Mutant(path, "", "planted", line, start, start + len(before.encode()), after, before, after)


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a syntax tree."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope: list[str] = []
        self._in_function = [False]

    # --- what is not mutated ---------------------------------------------------------------------------------

    def visit_JoinedStr(self, _node: ast.JoinedStr) -> None:
        """Leave out formatted strings: messages, whose parts Python 3.11 does not locate."""

    def visit_Assert(self, _node: ast.Assert) -> None:
        """Leave out assertions, which state what is true anyway."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list):
            return
        self._scope.append(node.name)
        self._in_function.append(True)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._visit_all(node.body)
        self._scope.pop()
        self._in_function.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  ast's name

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        self._in_function.append(False)
        self._visit_all(node.body)
        self._scope.pop()
        self._in_function.pop()

    # --- statements --------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._negate(node.test)
            self.visit(node.test)
        self._visit_all([*node.body, *node.orelse])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._add(node, "statement removed", "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "raise removed", "pass")  # what it raises is a message: no mutants inside

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "statement removed", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "statement removed", "pass")
        if type(node.op) in _ARITHMETIC:
            changed = ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
            self._add(node, "arithmetic", ast.unparse(changed))
        self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node.value, "return value", "None")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "loop control", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "loop control", "break")

    # --- expressions -------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for index, operator in enumerate(node.ops):
            for kind, table in (("boundary", _BOUNDARIES), ("comparison", _OPPOSITES)):
                if type(operator) in table:
                    operators = [*node.ops]
                    operators[index] = table[type(operator)]()
                    self._add_expression(node, kind, ast.Compare(node.left, operators, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add_expression(node, "and/or", ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add_expression(node, "negation", node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
            self._add_expression(node, "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._add(node.func, "call", _CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, "constant", repr(node.value + 1))

    # --- help --------------------------------------------------------------------------------------------------

    def _visit_all(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            self.visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Negate a condition, unless another operator does the same."""
        is_compared_once = isinstance(test, ast.Compare) and len(test.ops) == 1
        is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not is_compared_once and not is_negated:
            self._add_expression(test, "negation", ast.UnaryOp(ast.Not(), test))

    def _add_expression(self, node: ast.expr, operator: str, changed: ast.expr) -> None:
        self._add(node, operator, f"({ast.unparse(changed)})")

    def _add(self, node: ast.expr | ast.stmt, operator: str, replacement: str) -> None:
        end_line, end_column = node.end_lineno, node.end_col_offset
        if end_line is None or end_column is None:
            raise ValueError(f"{self._path}:{node.lineno}: a node without an end")
        start, end = self._lines[node.lineno - 1] + node.col_offset, self._lines[end_line - 1] + end_column
        first, last = self._lines[node.lineno - 1], self._lines[end_line]
        before = self._source[first:last].decode()
        after = (self._source[first:start] + replacement.encode() + self._source[end:last]).decode()
        self.found.append(
            Mutant(
                self._path,
                ".".join(self._scope),
                operator,
                node.lineno,
                start,
                end,
                replacement,
                _stripped(before),
                _stripped(after),
                in_function=self._in_function[-1],
            )
        )


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _stripped(lines: str) -> str:
    return "\n".join(line.strip() for line in lines.strip().splitlines())
