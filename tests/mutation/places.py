"""Every small change of a source: which node, and what stands there instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = "lai_core", "adapters/lai_storage"
"""What is changed: the packages that know no framework."""
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
AXES = {"0": 1, "1": 0, "2": 1, "-1": -2, "-2": -1}
DROPPED = {"abs", "conj", "conjugate", "sqrt", "transposed", "matrix_transpose"}
TURNED = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmax": "argmin",
    "any": "all", "all": "any",
}  # fmt: skip
ORDERED = {
    "isinstance", "hasattr", "getattr", "range", "super", "cast", "zip", "min", "max", "minimum", "maximum",
    "logical_and", "logical_or",
}  # fmt: skip
"""Calls whose swapped arguments say nothing: an error at once, or what is the same either way."""


@dataclass(frozen=True)
class Place:
    """One mutant: where it is, what stands there and what would."""

    file: str
    scope: str
    lines: tuple[int, int]
    span: tuple[int, int]
    old: str
    new: str
    number: int = 0

    @property
    def name(self) -> str:
        """Name it without line numbers, so that a list of names outlives edits elsewhere."""
        count = f" ({self.number + 1})" if self.number else ""
        return f"{self.file}::{self.scope}: {self.old} -> {self.new}{count}"


def sources(root: Path) -> list[Path]:
    return [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]


def places(file: Path, root: Path) -> list[Place]:
    """List every mutant of a file."""
    source = file.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[tuple[str, str, str], int] = {}
    listed = []
    for node, mutated, scope, lines in _mutations(ast.parse(source)):
        span = (starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset)
        old, new = ast.unparse(node), ast.unparse(mutated)
        key = (scope, old, new)
        number = found[key] = found.get(key, -1) + 1
        new = new if isinstance(node, (ast.stmt, ast.keyword)) else f"({new})"
        listed.append(Place(str(file.relative_to(root)), scope, lines, span, old, new, number))
    return listed


def _mutations(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, str, tuple[int, int]]]:
    """Walk the code that computes; give each node, its mutants, its function and its statement's lines."""
    functions: set[str] = set()
    left_over = {id(length) for node in ast.walk(tree) for length in _lengths_left_over(node)}

    def walk(node: ast.AST, scope: str, lines: tuple[int, int]) -> Iterator:
        inner = scope
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and scope not in functions:
            inner = f"{scope}.{node.name}".lstrip(".")  # a function within a function is part of its code
            if isinstance(node, ast.FunctionDef):
                functions.add(inner)
        if isinstance(node, ast.stmt):
            lines = (node.lineno, _header_end(node))
        if isinstance(node, ast.keyword) and node.arg == "strict":
            return  # a guard of `zip`, as an error's text is
        if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)) or id(node) in left_over:
            return
        if scope in functions:  # what runs at import cannot be put in place
            yield from ((node, mutated, scope, lines) for mutated in _mutants(node))
        if isinstance(node, ast.keyword) and node.arg in {"axis", "dim"}:
            return  # the axis itself was turned
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "type_params"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child, inner if name == "body" else scope, lines)

    yield from walk(tree, "", (1, 1))


def _lengths_left_over(node: ast.AST) -> list[ast.AST]:
    """List each -1 of a `reshape`, which is no number: it stands for what is left."""
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "reshape":
        return []
    lengths = [each for argument in node.args for each in getattr(argument, "elts", [argument])]
    return [length for length in lengths if ast.unparse(length) == "-1"]


def _header_end(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    return max(statement.lineno, body[0].lineno - 1) if isinstance(body, list) else statement.end_lineno


def _mutants(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATORS:
            yield _changed(node, op=OPERATORS[type(op)]())
        case ast.BoolOp(op=op):
            yield _changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.Compare(ops=[op, *rest]) if type(op) in COMPARISONS:
            yield _changed(node, ops=[COMPARISONS[type(op)](), *rest])
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            if not isinstance(operand, ast.Constant):
                yield operand
        case ast.keyword(arg="axis" | "dim", value=value):
            if (axis := ast.unparse(value)) in AXES:
                yield _changed(node, value=ast.parse(str(AXES[axis]), mode="eval").body)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value if value else 1.0)
        case ast.Call():
            yield from _mutants_of_call(node)


def _mutants_of_call(node: ast.Call) -> Iterator[ast.AST]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in DROPPED and len(node.args) == 1:
        yield node.args[0]
    if name in TURNED:
        field = "attr" if isinstance(node.func, ast.Attribute) else "id"
        yield _changed(node, func=_changed(node.func, **{field: TURNED[name]}))
    if len(node.args) > 1 and name not in ORDERED:
        first, second, *rest = node.args
        plain = not isinstance(first, (ast.Starred, ast.Constant)) and not isinstance(second, ast.Starred)
        if plain and ast.dump(first) != ast.dump(second):
            yield _changed(node, args=[second, first, *rest])


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})
