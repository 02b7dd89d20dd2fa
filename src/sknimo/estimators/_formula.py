"""Fit from a formula: `NIMORegressor.from_formula("y ~ age + C(sex) + bs(bmi)", data)`.

A formula says which columns are features and how they enter; it makes no columns of its
own. `C(sex)` declares a category and `bs(bmi)` a curve of one feature, so that masks,
groups and the coefficient table stay those of the columns. Other expressions, such as
`np.log(dose)`, are computed row by row by formulaic and become numeric columns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from sknimo.features import (
    column_names,
    read_table,
    spread_option,
    take_column,
    take_columns,
    take_rows,
)

CURVES = ("bs", "cr", "cs", "ns", "s")
CODINGS = ("Treatment", "contr.treatment")


@dataclass(frozen=True, slots=True)
class Feature:
    """One term of a formula."""

    name: str  # column, or text of the expression
    sources: tuple[str, ...]  # columns that it is made of
    is_computed: bool = False  # whether formulaic computes it
    # "category", "spline" or "poly2"; None leaves it to the type of the column.
    kind: str | None = None
    # Level that a category is compared with, None for the most frequent.
    baseline: Any = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the columns of a data frame become the table of an estimator."""

    formula: str
    target: Feature
    features: tuple[Feature, ...]

    def apply(self, data: Any) -> Any:
        """The features as a data frame of the same library."""
        known = column_names(data)
        if known is None:
            raise TypeError(
                f"The model was fitted from the formula {self.formula!r}; pass a data "
                "frame with its columns."
            )
        self._check_columns(self.features, known)
        columns = {
            each.name: _compute(each.name, data) if each.is_computed else None
            for each in self.features
        }
        return take_columns(data, columns)

    def target_of(self, data: Any) -> Any:
        """The left-hand side, one value per row."""
        self._check_columns((self.target,), column_names(data) or [])
        if self.target.is_computed:
            return _compute(self.target.name, data)
        return take_column(data, self.target.name)

    def check_rows(self, data: Any) -> None:
        """Refuse expressions that look at other rows than their own."""
        for each in (self.target, *self.features):
            if each.is_computed:
                _check_rows(each.name, data)

    def _check_columns(self, features: tuple[Feature, ...], known: list[str]) -> None:
        for feature in features:
            for name in feature.sources:
                if name not in known:
                    raise ValueError(
                        f"The formula {self.formula!r} needs column {name!r}, which "
                        "the data do not have."
                    )

    def options(self, data: Any, params: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of an estimator, with what the formula says added to them."""
        names = [each.name for each in self.features]
        declared = [each.name for each in self.features if each.kind == "category"]
        given = params.get("categorical")
        given = [given] if isinstance(given, str | int) else list(given or ())
        levels = read_table(self.apply(data), [*declared, *given], True).levels
        kinds = spread_option("basis", params.get("basis", "linear"), names, "linear")
        at = spread_option("reference", params.get("reference", "mean"), names, "mean")
        basis, reference = {}, {}
        for j, each in enumerate(self.features):
            is_curve = each.kind in ("spline", "poly2")
            if is_curve or levels is None or levels[j] is None:
                basis[each.name] = each.kind if is_curve else kinds[j]
            reference[each.name] = at[j] if each.baseline is None else each.baseline
        return {
            **params,
            "categorical": [*declared, *given] or None,
            "basis": basis,
            "reference": reference,
        }


class FromFormula:
    """Estimators that can be fitted from a formula."""

    _recipe: Recipe | None = None

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
            `np.log(dose)` are computed row by row. There is always an intercept, and
            interactions are left to the network.
        data : data frame
            Has the columns that the formula names, the target among them.
        sample_weight, offset : array of shape (n_samples,), optional
            As in `fit`.
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
        recipe = read_formula(formula, data)
        recipe.check_rows(data)
        est = cls(**recipe.options(data, params))
        est._recipe = recipe
        return est.fit(data, recipe.target_of(data), sample_weight, offset)


def read_formula(formula: str, data: Any) -> Recipe:
    """Take a formula apart and refuse what the model has no place for."""
    try:
        from formulaic import Formula
        from formulaic.errors import FormulaicError
    except ImportError as error:
        raise ImportError(
            "from_formula needs formulaic: pip install 'sknimo[formula]'."
        ) from error
    names = column_names(data)
    if names is None:
        raise TypeError(
            f"data must be a data frame with named columns, got {type(data).__name__}."
        )
    if not isinstance(formula, str):
        raise TypeError(f"formula must be a string, got {type(formula).__name__}.")
    try:
        # What `.` stands for.
        parsed = Formula(formula, _context={"__formulaic_variables_available__": names})
    except FormulaicError as error:
        plain = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).strip()
        raise ValueError(f"Cannot read the formula {formula!r}: {plain}") from error
    left, right = getattr(parsed, "lhs", None), getattr(parsed, "rhs", None)
    if not isinstance(left, Iterable) or isinstance(right, tuple | None):
        raise ValueError(
            f"Cannot read the formula {formula!r}: write a target, ~, and features "
            "joined by +."
        )
    targets = [_only_factor(term) for term in left]
    if len(targets) != 1:
        raise ValueError(f"The formula {formula!r} needs a single target before the ~.")
    terms = list(right)
    if "1" not in map(str, terms):
        raise ValueError(
            f"The formula {formula!r} removes the intercept. The model always has one: "
            "it is the prediction at the reference. Drop -1 or 0 from the formula."
        )
    features = [
        _read_factor(_only_factor(term), names) for term in terms if str(term) != "1"
    ]
    if not features:
        raise ValueError(f"The formula {formula!r} has no features.")
    target = _as_column(targets[0], names)
    _refuse_repetition(formula, [target, *features])
    return Recipe(formula, target, tuple(features))


def _only_factor(term: Any) -> str:
    if len(term.factors) != 1:
        raise ValueError(
            f"The formula asks for the interaction {str(term)!r}. Leave it out: the "
            "network finds interactions between all features by itself."
        )
    return str(term.factors[0].expr)


def _read_factor(text: str, names: list[str]) -> Feature:
    """One feature from the text of a term."""
    if text in names:
        return Feature(text, (text,))
    call = _parse(text, names)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return _as_column(text, names)
    function = call.func.id
    if function == "C":
        return _read_category(call, text, names)
    if function in CURVES or function == "poly":
        return _read_curve(call, text, names)
    if function == "offset":
        raise ValueError(
            f"The formula has {text!r}. Pass the values as offset= to from_formula and "
            "to predict instead."
        )
    return _as_column(text, names)


def _read_category(call: ast.Call, text: str, names: list[str]) -> Feature:
    column, *rest = [*call.args, *(keyword.value for keyword in call.keywords)]
    baseline = None
    if rest:
        coding = rest[0]
        values: list[ast.expr] = []
        if isinstance(coding, ast.Call):
            values = [*coding.args, *(keyword.value for keyword in coding.keywords)]
        is_treatment = isinstance(coding, ast.Call) and (
            ast.unparse(coding.func) in CODINGS
        )
        if len(rest) > 1 or not is_treatment or len(values) != 1:
            raise ValueError(
                f"Cannot read {text!r}: write C(column) or C(column, "
                "Treatment('baseline'))."
            )
        baseline = _literal(values[0], text)
    name = _column_of(column, text, names)
    return Feature(name, (name,), kind="category", baseline=baseline)


def _read_curve(call: ast.Call, text: str, names: list[str]) -> Feature:
    assert isinstance(call.func, ast.Name)
    function = call.func.id
    values = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    if not call.args:
        raise ValueError(f"Cannot read {text!r}: it names no column.")
    name = _column_of(call.args[0], text, names)
    if function == "poly":
        degree = _literal(values[0], text) if len(values) == 1 else None
        if degree != 2:
            raise ValueError(
                f"Cannot read {text!r}: write poly({name}, 2), or s({name}) for a "
                "smooth curve of any shape."
            )
        return Feature(name, (name,), kind="poly2")
    if values:
        raise ValueError(
            f"Cannot read {text!r}: knots are placed and smoothness is learned from "
            f"the data. Write {function}({name})."
        )
    return Feature(name, (name,), kind="spline")


def _as_column(text: str, names: list[str]) -> Feature:
    """A column by its name, or an expression over columns."""
    if text in names:
        return Feature(text, (text,))
    parsed = _parse(text, names)
    if isinstance(parsed, ast.Name):
        known = ", ".join(repr(name) for name in names[:8])
        raise ValueError(
            f"The formula names column {text!r}; the data have {known}"
            + (", ..." if len(names) > 8 else ".")
        )
    sources = _columns_in(parsed, names)
    if not sources:
        raise ValueError(f"The formula has {text!r}, which names no column.")
    return Feature(text, sources, is_computed=True)


def _column_of(node: ast.expr, text: str, names: list[str]) -> str:
    found = _columns_in(node, names)
    if not isinstance(node, ast.Name) or len(found) != 1:
        raise ValueError(
            f"Cannot read {text!r}: it takes the name of a single column. Compute the "
            "column first."
        )
    return found[0]


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(
            f"Cannot read {text!r}: {ast.unparse(node)} is neither text nor a number."
        ) from error


def _parse(text: str, names: list[str]) -> ast.expr:
    """Syntax tree in which quoted names such as `my column` stand by number."""
    plain = re.sub(
        r"`([^`]*)`",
        lambda quoted: (
            f"__column_{names.index(quoted[1])}"
            if quoted[1] in names
            else "__no_column"
        ),
        text,
    )
    try:
        return ast.parse(plain, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"Cannot read {text!r} in the formula.") from error


def _columns_in(node: ast.expr, names: list[str]) -> tuple[str, ...]:
    """Columns that an expression mentions, in order."""
    quoted = {f"__column_{j}": name for j, name in enumerate(names)}
    found = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    found = [quoted.get(name, name) for name in found]
    return tuple(dict.fromkeys(name for name in found if name in names))


def _refuse_repetition(formula: str, features: list[Feature]) -> None:
    """Refuse two terms of one column: each would see itself through the other."""
    owner: dict[str, str] = {}
    for feature in features:
        for name in feature.sources:
            if name in owner:
                raise ValueError(
                    f"The formula {formula!r} uses column {name!r} twice, in "
                    f"{owner[name]!r} and {feature.name!r}. A column may not act "
                    f"through two terms: write s({name}) for a curve, which includes "
                    "the line."
                )
            owner[name] = feature.name


def _check_rows(text: str, data: Any) -> None:
    """Refuse an expression whose values change when other rows are left out."""
    whole = _compute(text, data)
    for rows in (slice(0, None, 2), slice(1, None, 2)):
        if len(whole[rows]) == 0:
            continue
        part = _compute(text, take_rows(data, rows))
        if not np.array_equal(part, whole[rows], equal_nan=True):
            raise ValueError(
                f"{text!r} depends on other rows than its own, so that new rows would "
                "be read differently. Compute the column first."
            )


def _compute(text: str, data: Any) -> np.ndarray:
    """Values of an expression, one number per row."""
    from formulaic import model_matrix
    from formulaic.errors import FormulaicError

    try:
        # The product turns flags into numbers.
        matrix = model_matrix(
            f"0 + np.multiply(1.0, {text})",
            data,
            context={},
            na_action="ignore",
            output="numpy",
        )
    except FormulaicError as error:
        reason = str(error).partition("[")[2].rstrip("]") or str(error)
        raise ValueError(f"Cannot compute {text!r}: {reason}.") from error
    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or values.shape[1] != 1:
        raise ValueError(f"{text!r} is not one number per row.")
    return values[:, 0]
