"""Fit from a formula: `NIMORegressor.from_formula("y ~ age + C(sex) + bs(bmi)", data)`.

A formula says which columns are features and how they enter; it makes no columns of its
own. `C(sex)` declares a category and `bs(bmi)` a curve of one feature, so that masks,
groups and the coefficient table stay those of the columns. Other expressions, such as
`np.log(dose)`, are computed row by row and become numeric columns.

A formula may come from a stranger: it names columns and listed functions, it is never
run as Python, and nothing in it is multiplied out.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sknimo.estimators._expressions import (
    FUNCTIONS,
    SHOWN,
    TOKENS,
    Function,
    column_of,
    compute,
    evaluate,
    find_columns,
    parse_expression,
    shorten,
)
from sknimo.features import (
    column_names,
    read_table,
    spread_option,
    take_column,
    take_columns,
    take_rows,
)

CURVES = ("bs", "cr", "cs", "ns", "poly", "s")
CODINGS = ("Treatment", "contr.treatment")
TERMS = ("C", "offset", *CURVES)
SIGNS = ("", "+", "-")
OPERATORS = (*SIGNS, "~", "|", ":", "*", "/", "%in%", "**", "^")
BRACKETS = {"(": ")", "[": "]", "{": "}"}
QUOTES = ("'", '"', "`")
MAX_BRACKETS = 20  # one in another
MAX_TEXT = 100_000  # characters of a formula
MAX_TERMS = 100_000  # that a formula writes out; a dot counts as all its columns


@dataclass(frozen=True, slots=True)
class Feature:
    """One term of a formula."""

    name: str  # column, or text of the expression
    sources: tuple[str, ...]  # columns that it is made of
    expression: str | None = None  # text that it is computed from; None for a column
    # "category", "spline" or "poly2"; None leaves it to the type of the column.
    kind: str | None = None
    # Level that a category is compared with, None for the most frequent.
    baseline: Any = None


Term = Feature | None  # None is the intercept


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the columns of a data frame become the table of an estimator."""

    formula: str
    target: Feature
    features: tuple[Feature, ...]
    functions: Mapping[str, Function]  # of the caller, by name

    def apply(self, data: Any) -> Any:
        """The features as a data frame of the same library."""
        known = column_names(data)
        if known is None:
            raise TypeError(
                f"The model was fitted from the formula {shorten(self.formula)}; pass "
                "a data frame with its columns."
            )
        self._check_columns(self.features, known)
        columns = {
            each.name: self._compute(each, data) if each.expression else None
            for each in self.features
        }
        return take_columns(data, columns)

    def target_of(self, data: Any) -> Any:
        """The left-hand side, one value per row."""
        self._check_columns((self.target,), column_names(data) or [])
        if self.target.expression:
            return self._compute(self.target, data)
        return take_column(data, self.target.name)

    def check_rows(self, data: Any) -> None:
        """Refuse functions of the caller that look at other rows than their own."""
        for each in (self.target, *self.features):
            if not (each.expression and self.functions):
                continue
            whole = self._compute(each, data)
            for rows in (slice(0, None, 2), slice(1, None, 2)):
                if len(whole[rows]) == 0:
                    continue
                part = self._compute(each, take_rows(data, rows))
                if not np.array_equal(part, whole[rows], equal_nan=True):
                    raise ValueError(
                        f"{each.name!r} depends on other rows than its own, so that "
                        "new rows would be read differently. Compute the column first."
                    )

    def _compute(self, feature: Feature, data: Any) -> np.ndarray:
        assert feature.expression is not None
        return compute(feature.expression, data, feature.sources, self.functions)

    def _check_columns(self, features: tuple[Feature, ...], names: list[str]) -> None:
        known = set(names)
        absent = [x for each in features for x in each.sources if x not in known]
        if absent:
            raise ValueError(
                f"The formula {shorten(self.formula)} needs column {absent[0]!r}, "
                "which the data do not have."
            )

    def options(self, data: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of an estimator, with what the formula says added to them."""
        names = [each.name for each in self.features]
        declared = [each.name for each in self.features if each.kind == "category"]
        given = params.get("categorical")
        given = [given] if isinstance(given, str | int) else list(given or ())
        levels = read_table(self.apply(data), [*declared, *given], True).levels
        kinds = spread_option("basis", params.get("basis", "linear"), names, "linear")
        basis = {}
        for j, each in enumerate(self.features):
            is_curve = each.kind in ("spline", "poly2")
            if is_curve or levels is None or levels[j] is None:
                basis[each.name] = each.kind if is_curve else kinds[j]
        own = {"categorical": [*declared, *given] or None, "basis": basis}
        return {**params, **own, **self._references(names, params.get("reference"))}

    def _references(self, names: list[str], given: Any) -> dict[str, Any]:
        """The parameter `reference` where the formula names a baseline, else nothing.

        A dictionary holds what was asked for alone, so that a summary counts no more.
        """
        named = {f.name: f.baseline for f in self.features if f.baseline is not None}
        if not named:
            return {}
        asked = None if given in ("auto", "mean") else given
        at = zip(names, spread_option("reference", asked, names, None), strict=True)
        return {"reference": {k: v for k, v in at if v is not None} | named}


class FromFormula:
    """Estimators that can be fitted from a formula."""

    _recipe: Recipe | None = None

    def __sklearn_clone__(self) -> Any:
        """A copy that is not fitted and reads tables by the same formula."""
        est = super().__sklearn_clone__()  # type: ignore[misc]
        est._recipe = self._recipe
        return est

    if TYPE_CHECKING:  # the estimator brings its own

        def fit(
            self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None
        ) -> Self: ...

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        *,
        sample_weight: Any = None,
        offset: Any = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        **params: Any,
    ) -> Self:
        """Fit the model that a formula describes.

        Parameters
        ----------
        formula : str
            Target, `~`, and features joined by `+`. A name is a column, numeric or
            categorical by its type. `C(sex)` is a category, `C(sex, Treatment("m"))`
            one with a baseline; `bs(bmi)`, `cr(bmi)` or `s(bmi)` a spline; `poly(bmi,
            2)` a parabola; `.` stands for all other columns. Expressions such as
            `log(dose)` or `I(dose > 2)` are computed row by row, from columns, numbers
            and listed functions only: a formula is never run as Python. There is always
            an intercept, and interactions are left to the network.
        data : data frame
            Has the columns that the formula names, the target among them.
        sample_weight, offset : array of shape (n_samples,), optional
            As in `fit`.
        functions : dict of str to callable, optional
            Python functions that expressions may call by name: they run, with whatever
            columns and numbers the formula gives them.
        **params
            Parameters of the estimator. What the formula says about a feature has
            precedence.

        Returns
        -------
        estimator
            Fitted. It predicts from data frames with the columns of the formula; other
            columns are ignored. A copy that was saved and loaded takes the features
            themselves, `feature_names_in_`.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> from sknimo import NIMORegressor
        >>> rng = np.random.default_rng(0)
        >>> data = pd.DataFrame({"age": rng.normal(50, 9, 80), "sex": ["f", "m"] * 40})
        >>> data["y"] = 0.1 * data["age"] + (data["sex"] == "m") + rng.normal(size=80)
        >>> est = NIMORegressor.from_formula(
        ...     "y ~ age + C(sex, Treatment('f'))", data, alpha=0, max_iter=0
        ... )
        >>> print(*est.coef_names_)
        age sex[m]
        >>> est.predict(data.head(2)).shape
        (2,)
        """
        est, recipe = cls._follow(formula, data, functions, params)
        return est.fit(data, recipe.target_of(data), sample_weight, offset)

    @classmethod
    def _follow(
        cls, formula: str, data: Any, functions: Any, params: Mapping[str, Any]
    ) -> tuple[Self, Recipe]:
        """An estimator that reads tables by a formula."""
        recipe = read_formula(formula, data, functions or {})
        recipe.check_rows(data)
        est = cls(**recipe.options(data, params))
        est._recipe = recipe
        return est, recipe


def read_formula(formula: str, data: Any, functions: Mapping[str, Function]) -> Recipe:
    """Take a formula apart and refuse what the model has no place for."""
    names = column_names(data)
    if names is None:
        raise TypeError(
            f"data must be a data frame with named columns, got {type(data).__name__}."
        )
    if not isinstance(formula, str):
        raise TypeError(f"formula must be a string, got {type(formula).__name__}.")
    if len(formula) > MAX_TEXT:
        raise ValueError(
            f"The formula has {len(formula):,} characters, at most {MAX_TEXT:,} are "
            "read. Write . for all other columns, or pass the columns to fit."
        )
    if not isinstance(functions, Mapping):
        raise TypeError(
            "functions must be a dict from names to functions, got "
            f"{type(functions).__name__}."
        )
    for name in functions:
        if name in (*FUNCTIONS, *TERMS):
            raise ValueError(f"functions has {name!r}, which formulas already know.")
    return _Reader(formula, names, functions).read()


class _Reader:
    """Reads a formula: terms joined by + and -, each a feature or the intercept."""

    def __init__(
        self, formula: str, names: list[str], functions: Mapping[str, Function]
    ) -> None:
        self.formula = formula
        self.names = names
        self.known = frozenset(names)
        self.functions = functions
        self.shown = shorten(formula)
        self.others = [Feature(name, (name,)) for name in names]  # for a dot
        self.n_terms = 0

    def read(self) -> Recipe:
        """The whole formula."""
        sides = self._split(self.formula, ("~", "|"))
        if [sign for sign, _ in sides] != ["", "~"] or not sides[0][1]:
            raise self._unreadable("write a target, ~, and features joined by +")
        targets = self._keep({}, self._terms(sides[0][1], self._read_column))
        target = targets[0] if len(targets) == 1 else None
        if target is None:
            raise ValueError(
                f"The formula {self.shown} needs a single target before the ~."
            )
        self.others = [each for each in self.others if each.name not in target.sources]
        terms = self._terms(sides[1][1] or "1", self._read_term)
        kept = self._keep({None: None}, terms)
        if None not in kept:
            raise ValueError(
                f"The formula {self.shown} removes the intercept. The model always has "
                "one: it is the prediction at the reference. Drop -1 or 0 from the "
                "formula."
            )
        features = tuple(each for each in kept if each is not None)
        if not features:
            raise ValueError(f"The formula {self.shown} has no features.")
        self._refuse_repetition((target, *features))
        return Recipe(self.formula, target, features, self.functions)

    def _unreadable(self, reason: str) -> ValueError:
        return ValueError(f"Cannot read the formula {self.shown}: {reason}.")

    def _split(self, text: str, signs: tuple[str, ...]) -> list[tuple[str, str]]:
        """Text between signs outside of all brackets, each with the sign before it."""
        parts, closing = [], []
        sign, start = "", 0
        for token in TOKENS.finditer(text):
            piece = token[0]
            if piece in BRACKETS:
                closing.append(BRACKETS[piece])
                if len(closing) > MAX_BRACKETS:
                    raise self._unreadable(
                        f"brackets are nested more than {MAX_BRACKETS} deep"
                    )
            elif piece in BRACKETS.values():
                if not closing or closing.pop() != piece:
                    raise self._unreadable(f"{piece} closes nothing")
            elif piece in QUOTES:
                raise self._unreadable(f"{piece} is not closed")
            elif not closing and piece in signs:
                parts.append((sign, text[start : token.start()].strip()))
                sign, start = piece, token.end()
        if closing:
            raise self._unreadable(f"{closing[-1]} is missing")
        return [*parts, (sign, text[start:].strip())]

    @staticmethod
    def _keep(start: dict[Term, None], terms: list[tuple[bool, Term]]) -> list[Term]:
        """Terms that are left when all were added or removed in turn."""
        for is_added, term in terms:
            if is_added:
                start[term] = None
            else:
                start.pop(term, None)
        return list(start)

    def _terms(
        self, text: str, read: Callable[[str], Feature]
    ) -> list[tuple[bool, Term]]:
        """Terms of a sum, None for the intercept, and whether each is added."""
        terms: list[tuple[bool, Term]] = []
        is_added, operand = True, ""
        for sign, after in self._split(text, OPERATORS):
            if sign not in SIGNS:
                raise self._product(operand, sign, after, read)
            if sign == "-":
                is_added = not is_added
            operand = after
            if operand:
                found = self._operand(operand, read)
                terms += [(own == is_added, term) for own, term in found]
                is_added = True
        if not operand:
            raise self._unreadable("a term is missing")
        return terms

    def _operand(
        self, text: str, read: Callable[[str], Feature]
    ) -> list[tuple[bool, Term]]:
        if text[0] == "(" and text[-1] == ")":
            return self._terms(text[1:-1], read)
        self.n_terms += len(self.others) if text == "." else 1
        if self.n_terms > MAX_TERMS:
            raise self._unreadable(f"it has more than {MAX_TERMS:,} terms")
        if text in ("0", "1"):
            return [(text == "1", None)]
        if text == ".":
            return [(True, each) for each in self.others]
        if text[0] == "{" and text[-1] == "}":
            text = text[1:-1].strip()
        return [(True, read(text))]

    def _product(
        self, left: str, sign: str, right: str, read: Callable[[str], Feature]
    ) -> ValueError:
        """Refusal of an interaction; nothing is multiplied out for it."""
        if not left or not right:
            return self._unreadable(f"a term is missing beside {sign}")
        factors = [each.name if each else "1" for _, each in self._terms(left, read)]
        size = ""
        if sign in ("**", "^"):
            if len(factors) == 1:
                return ValueError(
                    f"The formula has {shorten(f'{left} {sign} {right}')}, a product "
                    f"of a term with itself. Write {shorten(f'I({left} ** {right})')} "
                    "for the power of a column."
                )
            size = f" among {len(factors)}**{right[:SHOWN]} products of terms"
            pair = factors[:2]
        else:
            others = self._terms(right, read)
            pair = [factors[0], *(each.name if each else "1" for _, each in others[:1])]
        return ValueError(
            f"The formula asks for the interaction {shorten(':'.join(pair))}{size}. "
            "Leave it out: the network finds interactions between all features by "
            "itself."
        )

    def _read_term(self, text: str) -> Feature:
        """One feature from the text of a term."""
        match None if text in self.known else parse_expression(text):
            case ast.Call(func=ast.Name(id="C")) as call:
                return self._read_category(call, text)
            case ast.Call(func=ast.Name(id=name)) as call if name in CURVES:
                return self._read_curve(call, text, name)
            case ast.Call(func=ast.Name(id="offset")):
                raise ValueError(
                    f"The formula has {shorten(text)}. Pass the values as offset= to "
                    "from_formula and to predict instead."
                )
        return self._read_column(text)

    def _read_category(self, call: ast.Call, text: str) -> Feature:
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        baseline = None
        if len(values) == 2:
            coding = values[1]
            if isinstance(coding, ast.Call) and ast.unparse(coding.func) in CODINGS:
                given = [*coding.args, *(each.value for each in coding.keywords)]
                if len(given) == 1:
                    baseline = _literal(given[0], text)
        if not values or len(values) > 1 and baseline is None:
            raise ValueError(
                f"Cannot read {shorten(text)}: write C(column) or C(column, "
                "Treatment('baseline'))."
            )
        name = self._only_column(values[0], text)
        return Feature(name, (name,), kind="category", baseline=baseline)

    def _read_curve(self, call: ast.Call, text: str, function: str) -> Feature:
        values = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
        if not call.args:
            raise ValueError(f"Cannot read {shorten(text)}: it names no column.")
        name = self._only_column(call.args[0], text)
        if function == "poly":
            degree = _literal(values[0], text) if len(values) == 1 else None
            if degree != 2:
                raise ValueError(
                    f"Cannot read {shorten(text)}: write poly({name}, 2), or s({name}) "
                    "for a smooth curve of any shape."
                )
            return Feature(name, (name,), kind="poly2")
        if values:
            raise ValueError(
                f"Cannot read {shorten(text)}: knots are placed and smoothness is "
                f"learned from the data. Write {function}({name})."
            )
        return Feature(name, (name,), kind="spline")

    def _only_column(self, node: ast.expr, text: str) -> str:
        if not isinstance(node, ast.Name) or column_of(node) not in self.known:
            raise ValueError(
                f"Cannot read {shorten(text)}: it takes the name of a single column. "
                "Compute the column first."
            )
        return column_of(node)

    def _read_column(self, text: str) -> Feature:
        """A column by its name, or an expression over columns."""
        if text in self.known:
            return Feature(text, (text,))
        parsed = parse_expression(text)
        if isinstance(parsed, ast.Name):
            name = column_of(parsed)
            if name in self.known:
                return Feature(name, (name,))
            known = ", ".join(shorten(each) for each in self.names[:8])
            raise ValueError(
                f"The formula names column {shorten(name)}; the data have {known}"
                + (", ..." if len(self.names) > 8 else ".")
            )
        sources = find_columns(parsed, self.known)
        if not sources:
            evaluate(text, {}, self.functions)
            raise ValueError(f"The formula has {shorten(text)}, which names no column.")
        return Feature(ast.unparse(parsed), sources, expression=text)

    def _refuse_repetition(self, features: tuple[Feature, ...]) -> None:
        """Refuse two terms of one column: each would see itself through the other."""
        owner: dict[str, str] = {}
        for feature in features:
            for name in feature.sources:
                if name in owner:
                    raise ValueError(
                        f"The formula {self.shown} uses column {name!r} twice, in "
                        f"{owner[name]!r} and {feature.name!r}. A column may not act "
                        f"through two terms: write s({name}) for a curve, which "
                        "includes the line."
                    )
                owner[name] = feature.name


def _literal(node: ast.expr, text: str) -> str | float:
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.UnaryOp(
            op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
        ):
            return -value
    raise ValueError(
        f"Cannot read {shorten(text)}: {ast.unparse(node)} is neither text nor a "
        "number."
    )
