"""Expressions of formulas, such as `log(dose)`: read as data, never run as Python.

The text becomes a syntax tree, and only what `_Scope` knows by name is computed:
columns, numbers, arithmetic, comparisons and the functions of `FUNCTIONS`. Everything
else is refused. Length and depth are bounded before anything walks the tree.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.features import read_table, take_columns

MAX_EXPRESSION = 1_000  # characters
MAX_DEPTH = 100  # of a syntax tree
SHOWN = 200  # characters of a text in a message

# Quoted names, texts, operators of several characters, plain runs, anything else.
TOKENS = re.compile(
    r"`[^`]*`|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\*\*|%in%|[\w\s.,<>=!]+|.",
    re.DOTALL,
)

UFUNCS = (
    "abs absolute add arccos arcsin arcsinh arctan arctan2 cbrt ceil cos cosh divide "
    "exp exp2 expm1 floor hypot log log10 log1p log2 maximum minimum multiply negative "
    "power rint sign sin sinh sqrt square subtract tan tanh trunc"
).split()

Function = Callable[..., Any]
# By name, with or without `np.` before it: what to call, and the number of arguments.
FUNCTIONS: dict[str, tuple[Function, int]] = {
    **{name: (getattr(np, name), getattr(np, name).nin) for name in UFUNCS},
    "clip": (lambda x, low, high: np.minimum(np.maximum(x, low), high), 3),
    "where": (lambda condition, x, other: np.where(condition != 0, x, other), 3),
    "I": (lambda x: x, 1),
}


def _check_flags(symbol: str, *values: Any) -> None:
    for each in values:
        if not (np.isin(each, (0.0, 1.0)) | np.isnan(each)).all():
            raise ValueError(f"{symbol} joins conditions, such as (a > 1), not numbers")


def _both(left: Any, right: Any) -> Any:
    _check_flags("&", left, right)
    return left * right


def _either(left: Any, right: Any) -> Any:
    _check_flags("|", left, right)
    return np.maximum(left, right)


def _inverse(value: Any) -> Any:
    _check_flags("~", value)
    return 1.0 - value


OPERATORS: dict[type[ast.AST], Function] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.BitAnd: _both,
    ast.BitOr: _either,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: _inverse,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

ALLOWED = (
    "An expression has columns, numbers, + - * / // % **, comparisons, & | ~ between "
    f"them, and the functions {', '.join(sorted(FUNCTIONS))}. Compute other columns "
    "first, or pass a function of your own in functions="
)


def shorten(text: str) -> str:
    """Text as a message shows it."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


def parse_expression(text: str) -> ast.expr:
    """Syntax tree of bounded size; quoted columns are names that keep their quotes."""
    tokens = TOKENS.findall(text)
    bare = "".join(token for token in tokens if token[0] != "`")
    if len(bare) > MAX_EXPRESSION:
        raise ValueError(
            f"The formula has an expression of {len(bare):,} characters, at most "
            f"{MAX_EXPRESSION:,} are read: {shorten(text)}. Compute the column first."
        )
    mark = "column"
    while mark in bare:
        mark += "_"
    quoted = {f"{mark}{j}": name for j, name in enumerate(tokens) if name[0] == "`"}
    plain = "".join(
        f" {mark}{j} " if token[0] == "`" else token for j, token in enumerate(tokens)
    )
    try:
        # In brackets a comment is an error and a text over lines is none.
        tree = ast.parse(f"({plain})", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"Cannot read {shorten(text)} in the formula.") from error
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    if level:
        raise ValueError(
            f"The formula has an expression that is nested more than {MAX_DEPTH} deep, "
            f"{shorten(text)}. Compute the column first."
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = quoted.get(node.id, node.id)
    return tree


def column_of(node: ast.Name) -> str:
    """Column that a name stands for."""
    return node.id[1:-1] if node.id[0] == "`" else node.id


def find_columns(node: ast.AST, names: Collection[str]) -> tuple[str, ...]:
    """Columns that an expression mentions, in order; functions are none."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    functions = {id(part) for call in calls for part in ast.walk(call.func)}
    found = [
        column_of(each)
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and id(each) not in functions
    ]
    return tuple(dict.fromkeys(name for name in found if name in names))


def compute(
    text: str, data: Any, sources: tuple[str, ...], functions: Mapping[str, Function]
) -> np.ndarray:
    """Values of an expression, one number per row; NaN where a column is missing."""
    columns = {}
    for name in sources:
        table = read_table(take_columns(data, {name: None}), None, True)
        levels = None if table.levels is None else table.levels[0]
        columns[name] = Column(table.values[:, 0], levels)
    found = evaluate(text, columns, functions)
    missing = np.isnan([column.values for column in columns.values()]).any(axis=0)
    if np.shape(found) not in ((), missing.shape):
        raise ValueError(f"{shorten(text)} is not one number per row.")
    values = np.where(missing, np.nan, found)
    wrong = ~missing & ~np.isfinite(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"Cannot compute {shorten(text)}: it is {values[row]} at row {row}, from "
            + ", ".join(f"{name} = {each.show(row)}" for name, each in columns.items())
            + ". Correct the row, leave it out, or write an expression that admits it."
        )
    return values


def evaluate(
    text: str, columns: Mapping[str, Column], functions: Mapping[str, Function]
) -> Any:
    """Numbers of an expression over columns, or a refusal of what it may not have."""
    tree = parse_expression(text)
    try:
        with np.errstate(all="ignore"):
            return _Scope(columns, functions).evaluate(tree)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"Cannot compute {shorten(text)}: {error}.") from error


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of a column, or codes of its levels."""

    values: np.ndarray
    levels: tuple[Any, ...] | None

    def show(self, row: int) -> str:
        value = self.values[row]
        return str(value) if self.levels is None else repr(self.levels[int(value)])


@dataclass(frozen=True, slots=True)
class _Scope:
    """What the names in an expression stand for."""

    columns: Mapping[str, Column]
    functions: Mapping[str, Function]

    def evaluate(self, node: ast.expr) -> Any:
        """Numbers of a tree; whatever is not known here is refused by name."""
        match node:
            case ast.Constant(value=int() | float() as value):
                return np.float64(value)
            case ast.Name():
                column = self._find(node)
                if column.levels is not None:
                    name = column_of(node)
                    raise ValueError(
                        f"column {name!r} holds text. Compare it with a text, or write "
                        f"C({name})"
                    )
                return column.values
            case ast.UnaryOp(op=sign, operand=only) if type(sign) in OPERATORS:
                return OPERATORS[type(sign)](self.evaluate(only))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
                return OPERATORS[type(sign)](self.evaluate(left), self.evaluate(right))
            case ast.Compare() if all(type(sign) in OPERATORS for sign in node.ops):
                return self._compare(node)
            case ast.Call(keywords=[]):
                return self._call(node)
        found = shorten(ast.unparse(node))
        raise ValueError(f"{found} ({type(node).__name__}) is not allowed. {ALLOWED}")

    def _find(self, node: ast.Name) -> Column:
        name = column_of(node)
        if name not in self.columns:
            raise ValueError(
                f"{shorten(name)} is not defined: it is no column of the data"
            )
        return self.columns[name]

    def _compare(self, node: ast.Compare) -> Any:
        """One where all comparisons of a chain hold, zero elsewhere."""
        terms = [node.left, *node.comparators]
        holds: Any = True
        for left, sign, right in zip(terms, node.ops, terms[1:], strict=False):
            pair = self._levels(left, right) or self._levels(right, left)
            if pair is None:
                pair = self.evaluate(left), self.evaluate(right)
            elif not isinstance(sign, ast.Eq | ast.NotEq):
                raise ValueError("levels have no order: compare them by == or !=")
            holds = holds & OPERATORS[type(sign)](*pair)
        return np.multiply(1.0, holds)

    def _levels(self, left: ast.expr, right: ast.expr) -> tuple[Any, Any] | None:
        """Codes of a column of levels and the code of a literal beside it."""
        if not (isinstance(left, ast.Name) and isinstance(right, ast.Constant)):
            return None
        column = self._find(left)
        levels = column.levels
        if levels is None and isinstance(right.value, str):
            # Text of which nothing is there reads as a column of no type.
            levels = () if np.isnan(column.values).all() else None
        if levels is None:
            return None
        known = right.value in levels
        return column.values, levels.index(right.value) if known else -1.0

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        function = self.functions.get(name)
        if function is not None:
            values = [self.evaluate(argument) for argument in node.args]
            try:
                return np.asarray(function(*values), dtype=float)
            except Exception as error:  # it is the caller's: anything may come
                raise ValueError(
                    f"{name} raised {type(error).__name__}: {error}"
                ) from error
        known, n_arguments = FUNCTIONS.get(name.removeprefix("np."), (None, 0))
        if known is None:
            raise ValueError(f"the function {shorten(name)} is not defined. {ALLOWED}")
        if len(node.args) != n_arguments:
            raise ValueError(
                f"{name} takes {n_arguments} argument{'s' * (n_arguments > 1)}, "
                f"got {len(node.args)}"
            )
        return known(*(self.evaluate(argument) for argument in node.args))
