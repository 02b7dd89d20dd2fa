"""Random tables: whatever the columns hold, fits work or refuse by name.

Columns of random types, with gaps, few or many levels, few rows, large scales, weights
and offsets, in any container, whole or in blocks. A fit may refuse a table in words;
anything else must come out finite, explain itself exactly, survive being saved, and
predict other rows or refuse them in words.
"""

import datetime
import decimal
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    NIMOSurvival,
    NIMOSurvivalCV,
    RowBlocks,
    load,
)

SUM = 1e-8  # relative: contributions of columns at 1e99 and at 1e-99 are added up


@dataclass(frozen=True)
class Extremes:
    """How far values go; one place to raise them."""

    value: float = 1e307
    weight_ratio: float = 1e300
    offset: float = 1e6


EXTREMES = Extremes()
WORDS = ("a", "b", "c", "d")
ODD_WORDS = (
    "",
    " ",
    "nan",
    "None",
    "\0",
    "é\u0301",
    "𝒂",
    "=1+1",
    "<b>",
    "1",
    "x" * 300,
)
DAYS = pd.date_range("2020-01-01", periods=400)

NUMBERS = {
    "normal": lambda rng, z: z,
    "skewed": lambda rng, z: np.exp(3 * z),
    "counts": lambda rng, z: rng.poisson(2.0, len(z)),
    "constant": lambda rng, z: np.full(len(z), 7.0),
    "huge": lambda rng, z: EXTREMES.value * z,
    "tiny": lambda rng, z: z / EXTREMES.value,
    "far": lambda rng, z: 1e9 + z,
    "outlier": lambda rng, z: np.r_[z[1:], 1e30],
    "nearly constant": lambda rng, z: np.r_[np.zeros(len(z) - 1), 1.0],
    "two values": lambda rng, z: np.where(z > 0, 3.0, -1.0),
    "zeros of both signs": lambda rng, z: np.where(z > 0, 0.0, -0.0),
    "half": lambda rng, z: z.astype(np.float16),
    "single": lambda rng, z: z.astype(np.float32),
    "bytes": lambda rng, z: rng.integers(-128, 128, len(z)).astype(np.int8),
    "large integers": lambda rng, z: rng.integers(2**63, 2**64, len(z), np.uint64),
    "flag": lambda rng, z: z > 0.5,
}
LEVELS = {
    "text": lambda rng, z: rng.choice(WORDS, len(z)),
    "odd text": lambda rng, z: rng.choice(ODD_WORDS, len(z)).astype(object),
    "one level": lambda rng, z: np.full(len(z), "a"),
    "numbers as text": lambda rng, z: rng.integers(0, 3, len(z)).astype(str),
    "category": lambda rng, z: pd.Categorical(rng.choice(WORDS, len(z)), [*"dxcba"]),
    "ordered": lambda rng, z: pd.Categorical(
        rng.choice(WORDS, len(z)), [*"dxcba"], ordered=True
    ),
    "numeric category": lambda rng, z: pd.Categorical(rng.poisson(1.0, len(z))),
    "flag category": lambda rng, z: pd.Categorical(z > 0),
}
# What only pandas has, or what is no column of a table at all.
ODD = {
    "identifiers": lambda rng, z: [f"id {row}" for row in range(len(z))],
    "objects": lambda rng, z: np.round(z, 1).astype(object),
    "flags as objects": lambda rng, z: (z > 0).astype(object),
    "decimals": lambda rng, z: [decimal.Decimal(f"{v:.2f}") for v in z],
    "nullable integers": lambda rng, z: pd.array(rng.poisson(2.0, len(z)), "Int64"),
    "nullable numbers": lambda rng, z: pd.array(z, "Float64"),
    "nullable flags": lambda rng, z: pd.array(z > 0, "boolean"),
    "arrow numbers": lambda rng, z: pd.array(z, "double[pyarrow]"),
    "arrow text": lambda rng, z: pd.array(rng.choice(WORDS, len(z)), "string[pyarrow]"),
    "sparse": lambda rng, z: pd.arrays.SparseArray(np.where(z > 0, z, 0.0)),
    "mixed": lambda rng, z: [(1, "a", 2.5, None, True)[v] for v in _digits(rng, z, 5)],
    "bytes objects": lambda rng, z: [b"a" if v > 0 else b"b" for v in z],
    "lists": lambda rng, z: [[v] for v in z],
    "complex": lambda rng, z: z + 1j,
    "dates": lambda rng, z: DAYS[: len(z)],
    "zoned dates": lambda rng, z: DAYS[: len(z)].tz_localize("UTC"),
    "date objects": lambda rng, z: [datetime.date(2020, 1, 1)] * len(z),
    "durations": lambda rng, z: pd.to_timedelta(np.arange(len(z)), unit="h"),
    "periods": lambda rng, z: pd.period_range("2020", periods=len(z), freq="D"),
    "intervals": lambda rng, z: pd.cut(z, 3),
}
# Tables that can be fitted are the commoner case.
KINDS = [*NUMBERS, *LEVELS] * 12 + [*ODD]


def _digits(rng, z, n):
    return rng.integers(0, n, len(z))


def draw_column(rng, kind, n_rows):
    """One column; every kind is deterministic given the generator."""
    make = (NUMBERS | LEVELS | ODD)[kind]
    return pd.Series(make(rng, rng.normal(size=n_rows)))


@dataclass(frozen=True)
class Table:
    """Rows, what is known of them, and what they are put into."""

    frame: pd.DataFrame
    y: Any
    weight: Any
    offset: Any
    container: str
    is_wild: bool  # the family need not suit the target

    def give(self, frame=None):
        """The rows in their container, which may not be able to hold them."""
        return CONTAINERS[self.container](self.frame if frame is None else frame)

    def __repr__(self):
        kinds = {name: str(dtype) for name, dtype in self.frame.dtypes.items()}
        return (
            f"Table({kinds}, {len(self.frame)} rows in {self.container}, "
            f"y={self.y!r}, weight={self.weight!r}, offset={self.offset!r})"
        )


def to_polars(frame):
    """The same columns in polars; objects as it sees them."""
    columns = {}
    for name, column in frame.items():
        values = [None if pd.isna(value) is True else value for value in column]
        columns[str(name)] = pl.Series(values, strict=False)
    return pl.DataFrame(columns)


CONTAINERS = {
    "pandas": lambda frame: frame,
    "polars": to_polars,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "numpy": lambda frame: frame.to_numpy(),
    "lists": lambda frame: frame.to_numpy().tolist(),
}

TARGETS = {
    "normal": lambda rng, z: z,
    "constant": lambda rng, z: np.ones(len(z)),
    "huge": lambda rng, z: EXTREMES.value * z,
    "tiny": lambda rng, z: z / EXTREMES.value,
    "positive": lambda rng, z: np.exp(z),
    "counts": lambda rng, z: rng.poisson(3.0, len(z)),
    "zeros": lambda rng, z: np.zeros(len(z), dtype=int),
    "classes": lambda rng, z: (z > 0).astype(int),
    "rare class": lambda rng, z: (z > 1.5).astype(int),
    "words": lambda rng, z: np.where(z > 0, "yes", "no"),
    "objects": lambda rng, z: np.where(z > 0, "yes", "no").astype(object),
    "flags": lambda rng, z: pd.Series(z > 0, dtype="boolean"),
    "with a gap": lambda rng, z: np.r_[z[1:], np.nan],
    "column": lambda rng, z: z[:, None],
    "series": lambda rng, z: pd.Series(z, index=z),
    "amounts": lambda rng, z: np.where(z > 0, np.exp(z), 0.0),
    "several classes": lambda rng, z: rng.choice(WORDS, len(z)),
    "class seen once": lambda rng, z: np.r_[["odd"], rng.choice(WORDS, len(z) - 1)],
    "follow-up": lambda rng, z: follow_up(rng, z, rng.random(len(z)) < 0.7),
    "tied follow-up": lambda rng, z: follow_up(rng, np.round(z), z < 1),
    "all censored": lambda rng, z: follow_up(rng, z, np.zeros(len(z))),
    "early follow-up": lambda rng, z: np.stack([z, z > 0], axis=1),
    "odd events": lambda rng, z: follow_up(rng, z, rng.poisson(1.0, len(z))),
    "long follow-up": lambda rng, z: follow_up(rng, 200 * z, z < 1),
}
# Those that are neither a number nor one of two classes.
RESPONSES = ("several classes", "follow-up", "tied follow-up", "counts", "amounts")


def follow_up(rng, z, event):
    """Times and events, two columns."""
    return np.stack([np.exp(z), np.asarray(event, dtype=float)], axis=1)


WEIGHTS = {
    "none": lambda rng, z: None,
    "repeats": lambda rng, z: rng.integers(0, 3, len(z)),
    "fractions": lambda rng, z: rng.uniform(0.1, 2.0, len(z)),
    "unequal": lambda rng, z: EXTREMES.weight_ratio ** rng.uniform(0, 1, len(z)),
    "zeros": lambda rng, z: np.zeros(len(z)),
    "negative": lambda rng, z: z,
    "with a gap": lambda rng, z: np.r_[np.ones(len(z) - 1), np.nan],
    "short": lambda rng, z: np.ones(len(z) - 1),
    "one number": lambda rng, z: 2.0,
    "words": lambda rng, z: ["much"] * len(z),
}
OFFSETS = {
    "none": lambda rng, z: None,
    "small": lambda rng, z: z,
    "large": lambda rng, z: EXTREMES.offset * np.tanh(z),
    "equal": lambda rng, z: np.full(len(z), EXTREMES.offset),
    "one number": lambda rng, z: 1.5,
    "infinite": lambda rng, z: np.r_[z[1:], np.inf],
    "matrix": lambda rng, z: np.ones((len(z), 2)),
}


def often(*names, rest):
    """Mostly the first names, now and then any of the rest."""
    return st.sampled_from([*names] * (9 * len(rest) // len(names)) + [*rest])


RARELY = st.sampled_from((False,) * 19 + (True,))


def mask_some(rng, column, share):
    """Missing values in the way of the column's type."""
    return column.mask(rng.random(len(column)) < share)


@st.composite
def tables(draw, targets=("normal", "classes", "positive")):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(often(7, 25, 60, rest=(1, 2, 3, 4, 200)))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    columns = {}
    for j, kind in enumerate(kinds):
        values = draw_column(rng, kind, n_rows)
        share = draw(st.sampled_from((0,) * 12 + (0.1, 0.1, 0.5, 1.0)))
        columns[f"{kind} {j}"] = mask_some(rng, values, share) if share else values
    frame = pd.DataFrame(columns)
    if draw(RARELY):
        names = draw(st.sampled_from((["twice"], ODD_WORDS, range(9), [("a", 1)])))
        frame.columns = [names[j % len(names)] for j in range(len(kinds))]
    z = rng.normal(size=n_rows)
    y = TARGETS[draw(often(*targets, rest=TARGETS))](rng, z)
    weight = WEIGHTS[draw(often("none", "repeats", rest=WEIGHTS))](rng, z)
    offset = OFFSETS[draw(often("none", "small", rest=OFFSETS))](rng, z)
    container = draw(st.sampled_from(("pandas", "pandas", *CONTAINERS)))
    return Table(frame, y, weight, offset, container, draw(RARELY))


SHARED = {
    "basis": st.sampled_from(("linear", "poly2", "spline", "ramps", "auto")),
    "missing": st.sampled_from(("indicator",) * 5 + ("error",)),
    "reference": st.sampled_from(("mean", "median", "mode")),
    "input_scaling": st.sampled_from(("standard", "rank_gauss", "ramps")),
    "clip_inputs": st.sampled_from((False, True, "all")),
    "handle_unknown": st.sampled_from(("error", "reference")),
    "categorical": st.sampled_from((None,) * 12 + ([0], [0, 1], ["no such"])),
    "position_code": st.sampled_from(("binary", "none")),
}
PLAIN = {
    "penalty": st.sampled_from(("lasso", "ridge", "sub_l1")),
    "alpha": st.sampled_from((0.0, 1e-3, 0.1, 10.0)),
    "network_alpha": st.sampled_from((0.0, 1.0)),
    "scale_contributions": st.booleans(),
    "noise": st.sampled_from((0.0, 0.1)),
    "early_stopping": st.booleans(),
    "dtype": st.sampled_from(("float64", "float64", "float32")),
    "batch_size": st.sampled_from(("auto", "auto", 8)),
    "mask": st.booleans(),
}
SEARCHED = {
    "n_starts": st.just(1),
    "n_members": st.sampled_from((1, 3)),
    "cv": st.sampled_from((2, 3)),
    "rule": st.sampled_from(("min", "1se", "stability")),
    "relax": st.booleans(),
}


FAMILIES = ("gaussian", "poisson", "gamma", "negative_binomial", "tweedie")


def optional(strategies):
    """Some of the options, the others at their defaults."""
    return st.fixed_dictionaries({}, optional=strategies)


@st.composite
def estimators(draw, searching=False):
    """An estimator class and its parameters, all of them valid for some table."""
    options = draw(optional(SHARED)) | draw(optional(SEARCHED if searching else PLAIN))
    family = draw(st.sampled_from(FAMILIES))
    options = {"missing": "indicator"} | options
    options |= {"max_iter": 3, "hidden": (3, 3), "random_state": 0}
    if searching:
        options |= {"n_starts": 1, "cv": options.get("cv", 2)}
    return family, options


def admits(family, y):
    """Whether a family can have produced a target; anything odd is for it to judge."""
    try:
        y = np.asarray(y, dtype=float)
    except (TypeError, ValueError):
        return True
    if family == "negative_binomial" and (y != np.round(y)).any():
        return False
    return family == "gaussian" or bool((y > 0 if family == "gamma" else y >= 0).all())


def is_class(y):
    values = np.ravel(np.asarray(y, dtype=object))
    return isinstance(values[0], str) or len(pd.unique(pd.Series(values))) <= 2


def is_follow_up(y):
    return np.ndim(y) == 2 and np.shape(y)[1] == 2


def make_estimator(table, drawn, searching):
    family, options = drawn
    if is_follow_up(table.y):
        return (NIMOSurvivalCV if searching else NIMOSurvival)(**options)
    if is_class(table.y):
        return (NIMOClassifierCV if searching else NIMOClassifier)(**options)
    if not (table.is_wild or admits(family, table.y)):
        family = "gaussian"
    return (NIMORegressorCV if searching else NIMORegressor)(family, **options)


def cut(values, rows):
    """Some rows of an array, a number or nothing."""
    if values is None or np.ndim(values) == 0:
        return values
    return values.iloc[rows] if isinstance(values, pd.Series) else values[rows]


def take_rows(given, rows):
    """Some rows in their container, whose columns keep their types.

    Rows that are put into polars or arrow again may find another type: the same flags
    are text beside a word and flags alone.
    """
    if isinstance(given, list):
        return [given[row] for row in rows]
    if isinstance(given, pa.Table):
        return given.take(rows)
    return given.iloc[rows] if isinstance(given, pd.DataFrame) else given[rows]


def in_blocks(table, given):
    """The same rows in blocks of seven."""

    def blocks():
        for begin in range(0, len(table.frame), 7):
            rows = slice(begin, begin + 7)
            X = take_rows(given, list(range(len(table.frame))[rows]))
            known = (cut(v, rows) for v in (table.y, table.weight, table.offset))
            yield (X, *known)

    return RowBlocks(blocks)


def fit(est, table, given, is_streamed):
    if is_streamed:
        return est.fit(in_blocks(table, given))
    if is_follow_up(table.y):
        return est.fit(given, table.y, table.weight)
    return est.fit(given, table.y, table.weight, table.offset)


def check_fitted(est, table, given, folder):
    """What must hold for the rows of the fit."""
    # Rows of zero weight may hold levels and gaps that the fit has not seen.
    counted = np.broadcast_to(1 if table.weight is None else table.weight, len(table.y))
    rows = np.flatnonzero(counted).tolist()
    seen = take_rows(given, rows)
    eta = est._eta(seen)
    assert np.isfinite(eta).all()
    assert np.isfinite(est.coef_).all()
    path = folder / "model.sknimo"
    est.save(path)
    again = load(path)
    assert np.array_equal(again._eta(seen), eta)
    assert str(again.summary()) == str(est.summary())
    if isinstance(est, NIMOSurvival | NIMOSurvivalCV):
        survival = est.predict_survival_function(seen).values
        assert ((survival >= 0) & (survival <= 1)).all()
        assert (np.diff(survival, axis=1) <= 0).all()
    if eta.ndim == 2:
        assert est.predict_proba(seen).sum(1) == pytest.approx(1)
        est = est.for_class(est.classes_[-1])
        eta = (eta - eta.mean(1, keepdims=True))[:, -1]
    explanation = est.explain(seen)
    # At large scales of the target squares overflow; contributions need not.
    assert np.isfinite(explanation.values).all()
    bound = SUM * max(np.abs(explanation.values).sum(axis=1).max(), 1e-300)
    assert explanation.eta == pytest.approx(eta, rel=SUM, abs=bound)
    assert est.extrapolation_score(seen).max() == 0
    assert len(str(est.summary())) > 100


OTHER_ROWS = {
    "reversed": lambda frame, rng: frame.iloc[:, ::-1],
    "without a column": lambda frame, rng: frame.iloc[:, 1:],
    "with gaps": lambda frame, rng: frame.apply(lambda c: mask_some(rng, c, 0.3)),
    "as text": lambda frame, rng: frame.astype(str),
    "as objects": lambda frame, rng: frame.astype(object),
    "no rows": lambda frame, rng: frame.iloc[:0],
    "new level": lambda frame, rng: frame.assign(**{frame.columns[0]: "new"}),
    "numbers": lambda frame, rng: frame.assign(**{frame.columns[-1]: 3.0}),
    "shuffled types": lambda frame, rng: pd.DataFrame(
        np.roll(frame.to_numpy(dtype=object), 1, axis=1), columns=frame.columns
    ),
}


def check_table(table, drawn, is_streamed, other, folder, check_refusal, searching):
    """Fit, predict, explain, save and load one random table; how it ended."""
    try:
        given = table.give()
    except Exception:
        return "not held by the container"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        est = make_estimator(table, drawn, searching)
        try:
            fit(est, table, given, is_streamed)
        except Exception as error:
            check_refusal(error)
            return "refused"
        check_fitted(est, table, given, folder)
        try:
            changed = OTHER_ROWS[other](table.frame, np.random.default_rng(0))
            given = table.give(changed)
        except Exception:
            return "fitted"
        try:
            assert np.isfinite(est._eta(given)).all()
        except AssertionError:
            raise
        except Exception as error:
            check_refusal(error)
            return "fitted, other rows refused"
    return "fitted, other rows predicted"


@pytest.fixture
def check(tmp_path, check_refusal):
    def run(**case):
        case = {"searching": False} | case
        return check_table(**case, folder=tmp_path, check_refusal=check_refusal)

    return run


CASES = {
    "table": tables(),
    "drawn": estimators(),
    "is_streamed": st.sampled_from((False, False, False, True)),
    "other": st.sampled_from(sorted(OTHER_ROWS)),
}
SEARCHES = CASES | {"drawn": estimators(searching=True), "searching": st.just(True)}


@pytest.mark.slow
def test_random_tables_fit_or_are_refused_by_name(run_few, check):
    found = run_few(check, 25, **CASES)
    assert found["refused"] > 0 and found.total() > found["refused"]


@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_are_taken_as_the_container_holds_them(check, container):
    # Without the word the flags of counted rows would be flags again, not text.
    frame = pd.DataFrame({"mixed": ["a", 1, None, True, True, 2.5, True]})
    y, weight = np.arange(7.0), np.array([0, 0, 0, 1, 1, 0, 1])
    table = Table(frame, y, weight, None, container, False)
    options = {"missing": "indicator", "max_iter": 1, "random_state": 0}
    if container in ("numpy", "lists"):
        options["categorical"] = [0]
    ends = {"arrow": "not held by the container"}
    case = {"table": table, "drawn": ("gaussian", options), "other": "reversed"}
    end = check(**case, is_streamed=False)
    assert end == ends.get(container, "fitted, other rows refused")


@pytest.mark.slow
def test_many_random_tables_fit_or_are_refused_by_name(run_many, check):
    found = run_many("tables", check, 1000, **CASES)
    assert found["fitted, other rows predicted"] > 0.05 * found.total()


@pytest.mark.slow
def test_searches_of_random_tables_fit_or_are_refused_by_name(run_many, check):
    run_many("searches", check, 200, **SEARCHES)


@pytest.mark.slow
def test_classes_times_counts_and_amounts_fit_or_are_refused_by_name(run_many, check):
    cases = CASES | {"table": tables(RESPONSES)}
    found = run_many("responses", check, 500, **cases)
    assert found["fitted, other rows predicted"] > 0.05 * found.total()


@pytest.mark.slow
def test_searches_of_responses_fit_or_are_refused_by_name(run_many, check):
    run_many(
        "searches of responses", check, 100, **SEARCHES | {"table": tables(RESPONSES)}
    )
