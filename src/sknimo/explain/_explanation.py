"""Explain rows: what each feature adds to each prediction.

Shapes: n rows, p features, q terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np

from sknimo.exceptions import check_option
from sknimo.explain._attribution import Attribution, integrated_gradients, shapley
from sknimo.explain._frames import (
    Origin,
    Shown,
    cut,
    label_column,
    make_frame,
    show_value,
    width_of,
)
from sknimo.explain._local import fill_offset, local_values, mean_of, response_effects
from sknimo.families import Family
from sknimo.features import Label
from sknimo.model import FittedModel

Method = Literal["min_energy", "native", "integrated_gradients", "shapley"]
Quantity = Literal[
    "values", "local_coef", "local_effect", "data", "std_err", "coef_std_err"
]

NOTES = {
    "min_energy": "contributions in the minimum-energy gauge",
    "native": "contributions as the network holds them, one valid split among many",
}
# Rows and features that a printed explanation shows before it cuts.
SHOWN_ROWS, SHOWN_FEATURES = 3, 6


@dataclass(frozen=True, slots=True, eq=False)
class Explanation(Shown):
    """Why each row is predicted as it is.

    `base_value + offset + values.sum(axis=1)` is the linear predictor, exactly. Rows
    are selected by indexing: `explanation[3]`, `explanation[:10]`, `explanation[mask]`.

    Attributes
    ----------
    values : ndarray of shape (n, p)
        Contribution of each feature to the linear predictor.
    local_coef : ndarray of shape (n, p)
        What the coefficient has become in this row. A line: slope per unit, so that
        contributions of the methods "min_energy" and "native" are `(data - reference)
        * local_coef`. A curve: its slope at the reference. Two levels: the contrast of
        the other level with the baseline. More levels: that of the row's own level,
        zero at the baseline; missing counts as a level.
    local_effect : ndarray of shape (n, p)
        What a change of the feature does to the linear predictor in this row, with what
        it does to the coefficients of the others. Not a contribution. Numeric:
        derivative per unit, NaN where the value is missing. Two levels: change from the
        baseline to the other level. More levels: change from the baseline to the row's
        own level.
    response_effect : ndarray of shape (n, p)
        The same for the mean response.
    base_value : float
        Linear predictor at the reference.
    offset : ndarray of shape (n,)
        Known part of the linear predictor, zero unless one was given.
    data : ndarray of shape (n, p)
        Numbers, codes of levels, NaN for missing values.
    reference : ndarray of shape (p,)
    names : tuple of str
    levels : tuple of (tuple of labels or None)
        Levels of each category by code, None for a numeric feature.
    family : Family
    method : str
        How `values` were shared out.
    note : str
        The same in words, with what was enumerated or sampled.
    error : ndarray of shape (n, p) or None
        Standard error of `values` where they were sampled.
    directed : ndarray of shape (p, p) or None
        How strongly feature k bends the coefficient of feature j, see `interactions`.
    origin : Origin
        The data frame library that `X` came from.
    std_err, coef_std_err : ndarray of shape (n, p) or None
        Standard errors of `values` and `local_coef`, approximate; None where the model
        has none.
    response : ndarray of shape (n,) or None
        Probability of one of several classes, which does not follow from its own
        linear predictor; None where the mean does.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> explanation = est.explain(data.X)
    >>> len(explanation[:10]), explanation.values.shape
    (10, (80, 5))
    """

    values: np.ndarray
    local_coef: np.ndarray
    local_effect: np.ndarray
    response_effect: np.ndarray
    base_value: float
    offset: np.ndarray
    data: np.ndarray
    reference: np.ndarray
    names: tuple[str, ...]
    levels: tuple[tuple[Label, ...] | None, ...]
    family: Family
    method: str
    note: str
    error: np.ndarray | None
    directed: np.ndarray | None
    origin: Origin
    std_err: np.ndarray | None = None
    coef_std_err: np.ndarray | None = None
    response: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Explanation:
        index = np.arange(len(self))[rows]
        picked = np.atleast_1d(index)
        if picked.ndim != 1:
            raise IndexError("An explanation is indexed by rows alone.")
        names = ("values", "local_coef", "local_effect", "response_effect", "error")
        more = ("offset", "data", "std_err", "coef_std_err", "response")
        rows = {name: getattr(self, name) for name in (*names, *more)}
        taken = {name: v[picked] for name, v in rows.items() if v is not None}
        return replace(self, **taken, origin=self.origin.take(picked))

    @property
    def eta(self) -> np.ndarray:
        """Linear predictor, (n,)."""
        return self.base_value + self.offset + self.values.sum(axis=1)

    @property
    def mean(self) -> np.ndarray:
        """Mean response, (n,)."""
        if self.response is not None:
            return self.response
        return mean_of(self.family, self.eta)

    @property
    def ratio_name(self) -> str | None:
        """What `ratios` are ("odds ratio", "rate ratio"), None where they are not."""
        return self.family.ratio_name

    @property
    def ratios(self) -> np.ndarray:
        """Factor by which each contribution multiplies odds or mean, (n, p)."""
        self._check_ratio()
        return np.exp(self.values)

    @property
    def local_ratios(self) -> np.ndarray:
        """Odds or mean ratio for one unit more of each feature, locally, (n, p)."""
        self._check_ratio()
        return np.exp(self.local_effect)

    def _check_ratio(self) -> None:
        if self.ratio_name is None:
            raise ValueError(
                f"The {self.family.link} link has no ratios: effects add up on the "
                "scale of the response itself."
            )

    @property
    def importance(self) -> np.ndarray:
        """Mean absolute contribution of each feature, (p,)."""
        return np.abs(self.values).mean(axis=0)

    def value_text(self, row: int, feature: int | str) -> str:
        """A value of the data as text: a level by its name, or "missing"."""
        j = self.column(feature)
        return show_value(float(self.data[row, j]), self.levels[j])

    def column(self, feature: int | str) -> int:
        """Position of a feature given by position or name."""
        return find_feature(self.names, feature)

    def strongest_modifier(self, feature: int | str) -> int | None:
        """The other feature that bends a feature's coefficient most, if any."""
        j = self.column(feature)
        if self.directed is None or self.directed[j].max() == 0:
            return None
        return int(self.directed[j].argmax())

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends of the intervals of `values`, (n, p) each."""
        if self.std_err is None:
            raise ValueError(
                "These contributions have no standard errors: conf_int() says why the "
                'model has none; methods other than "min_energy" and "native" never do.'
            )
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.std_err
        return self.values - reach, self.values + reach

    def to_frame(self, quantity: Quantity = "values") -> Any:
        """One quantity as a data frame of the library that `X` came from.

        Parameters
        ----------
        quantity : {"values", "local_coef", "local_effect", "data", "std_err", \
"coef_std_err"}, default="values"

        Returns
        -------
        data frame of shape (n, p)
            One row per row of `X`, one column per feature. Levels in "data" stand by
            their names.
        """
        check_option("quantity", quantity, get_args(Quantity))
        array = getattr(self, quantity)
        if array is None:
            raise ValueError(
                f"There is no {quantity} here: conf_int() says why the model has no "
                'standard errors; use quantity="values".'
            )
        columns: dict[str, Any] = {
            name: array[:, j] for j, name in enumerate(self.names)
        }
        if quantity == "data":
            for name, levels in zip(self.names, self.levels, strict=True):
                if levels is not None:
                    columns[name] = label_column(columns[name], levels)
        return make_frame(columns, self.origin, with_index=True)

    def to_shap(self) -> Any:
        """The contributions as a `shap.Explanation`, ready for shap's own plots."""
        try:
            import shap  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError("to_shap needs shap: pip install shap.") from error
        named = [j for j, levels in enumerate(self.levels) if levels is not None]
        shown = self.data.astype(object)
        for j in named:
            shown[:, j] = [show_value(code, self.levels[j]) for code in self.data[:, j]]
        return shap.Explanation(
            values=self.values,
            base_values=self.base_value + self.offset,
            data=self.data,
            display_data=shown if named else None,
            feature_names=list(self.names),
        )

    def __repr__(self) -> str:
        n_rows, p = self.values.shape
        head = (
            f"Explanation of {n_rows} row{'s' * (n_rows != 1)}, {p} features, "
            f"{self.family.link} link\n{self.note}\n"
            f"base value {self.base_value:.4g}"
        )
        body = [self._describe(i) for i in range(min(n_rows, SHOWN_ROWS))]
        if n_rows > SHOWN_ROWS:
            body.append(f"... {n_rows - SHOWN_ROWS} rows more")
        return "\n".join([head, *body])

    def _describe(self, row: int) -> str:
        """One row in words, largest contributions first, cut at 80 columns."""
        order = np.argsort(-np.abs(self.values[row]), kind="stable")[:SHOWN_FEATURES]
        text = f"eta {self.eta[row]:.4g} ="
        shown = "".join(
            f" {self.values[row, j]:+.3g} {cut(self.names[j], 40)}"
            for j in order
            if self.values[row, j] != 0
        )
        line = text + (shown or " base value")
        return line if width_of(line) <= 80 else cut(line, 77)[:-1] + " ..."


def explain(
    model: FittedModel,
    table: np.ndarray,
    *,
    method: Method = "min_energy",
    swap: np.ndarray | None = None,
    directed: np.ndarray | None = None,
    offset: np.ndarray | None = None,
    origin: Origin | None = None,
    max_exact: int = 12,
    n_permutations: int = 64,
    seed: int = 0,
) -> Explanation:
    """Explain the rows of a table.

    `swap` is the gauge from `fit_gauge`: it sets the contributions of "min_energy", and
    the local coefficients of every method but "native". `directed`, from `bending`,
    names the strongest modifiers. For the last three see `shapley`.
    """
    check_method(method)
    features = model.features
    local = local_values(model, table, None if method == "native" else swap)
    offset = fill_offset(offset, len(table))
    eta = model.base_value + offset + local.contributions.sum(axis=1)
    if method == "integrated_gradients":
        parts = integrated_gradients(model, table)
    elif method == "shapley":
        options = {"max_exact": max_exact, "n_permutations": n_permutations}
        parts = shapley(model, table, seed=seed, **options)
    else:
        parts = Attribution(local.contributions, NOTES[method])
    return Explanation(
        values=parts.values,
        local_coef=local.local_coef,
        local_effect=local.local_effect,
        response_effect=response_effects(
            model.family, local.local_effect, local.switches, eta, offset
        ),
        base_value=model.base_value,
        offset=offset,
        data=table,
        reference=features.reference,
        names=features.names,
        levels=tuple(map(features.levels, range(features.n_features))),
        family=model.family,
        method=method,
        note=parts.note,
        error=parts.error,
        directed=directed,
        origin=Origin() if origin is None else origin,
    )


def check_method(method: str) -> None:
    """Refuse an unknown method, naming the known ones."""
    check_option("method", method, get_args(Method))


def find_feature(names: tuple[str, ...], feature: int | str) -> int:
    """Position of a feature given by position or name."""
    if isinstance(feature, str):
        if feature not in names:
            shown = ", ".join(repr(name) for name in names[:8])
            raise KeyError(f"No feature {feature!r}; there are {shown}.")
        return names.index(feature)
    position = int(feature)
    if not -len(names) <= position < len(names):
        raise IndexError(f"There are {len(names)} features, got position {position}.")
    return position % len(names)
