"""Random tables: whatever the columns hold, fits work or refuse by name.

Columns of random kinds, constant ones, few rows, extreme scales and missing values, in
pandas or polars. A fit may refuse a table with a message of its own; anything else must
come out finite, explain itself exactly and survive being saved.
"""

import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sknimo
from sknimo import NIMOClassifier, NIMORegressor, load

PACKAGE = Path(sknimo.__file__).parent
SUM = 1e-8  # relative: contributions of columns at 1e200 and at 1e-200 are added up

KINDS = (
    "normal",
    "skewed",
    "counts",
    "flag",
    "constant",
    "huge",
    "tiny",
    "far",
    "outlier",
    "nearly constant",
    "text",
    "one level",
    "numbers as text",
    "category",
    "objects",
    "dates",
    "identifiers",
)


def draw_column(rng, kind, n_rows):
    """One column; every kind is deterministic given the generator."""
    z = rng.normal(size=n_rows)
    text = rng.choice(["a", "b", "c", "d"], n_rows)
    return {
        "normal": lambda: z,
        "skewed": lambda: np.exp(3 * z),
        "counts": lambda: rng.poisson(2.0, n_rows),
        "flag": lambda: z > 0.5,
        "constant": lambda: np.full(n_rows, 7.0),
        "huge": lambda: 1e200 * z,
        "tiny": lambda: 1e-200 * z,
        "far": lambda: 1e9 + z,
        "outlier": lambda: np.r_[z[1:], 1e30],
        "nearly constant": lambda: np.r_[np.zeros(n_rows - 1), 1.0],
        "text": lambda: text,
        "one level": lambda: np.full(n_rows, "a"),
        "numbers as text": lambda: rng.integers(0, 3, n_rows).astype(str),
        "category": lambda: pd.Categorical(text, ["d", "x", "c", "b", "a"]),
        "objects": lambda: np.round(z, 1).astype(object),
        "dates": lambda: pd.date_range("2020-01-01", periods=n_rows),
        "identifiers": lambda: [f"id {row}" for row in range(n_rows)],
    }[kind]()


TARGETS = ("normal", "constant", "huge", "tiny", "classes", "counts")


@st.composite
def tables(draw):
    """A frame, a target and weights."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.sampled_from((3, 4, 7, 25, 60)))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    columns = {}
    for j, kind in enumerate(kinds):
        values = pd.Series(draw_column(rng, kind, n_rows))
        if draw(st.booleans()):
            share = draw(st.sampled_from((0.1, 0.5, 1.0)))
            if draw(st.integers(0, 3)) == 0:  # missing values are the rarer case
                values = values.mask(rng.random(n_rows) < share)
        columns[f"{kind} {j}"] = values
    frame = pd.DataFrame(columns)
    target = draw(st.sampled_from(TARGETS))
    z = rng.normal(size=n_rows)
    y = {
        "normal": z,
        "constant": np.ones(n_rows),
        "huge": 1e100 * z,
        "tiny": 1e-100 * z,
        "classes": (z > 0).astype(int),
        "counts": rng.poisson(3.0, n_rows),
    }[target]
    weight = rng.integers(0, 3, n_rows) if draw(st.booleans()) else None
    if draw(st.booleans()):
        frame = to_polars(frame)
    return frame, y, weight


def to_polars(frame):
    """The same columns in polars; objects as it sees them."""
    columns = {}
    for name, column in frame.items():
        values = [None if pd.isna(value) else value for value in column.tolist()]
        columns[name] = pl.Series(values, strict=False)
    return pl.DataFrame(columns)


OPTIONS = st.fixed_dictionaries(
    {
        "basis": st.sampled_from(("linear", "poly2", "spline", "ramps", "auto")),
        "missing": st.sampled_from(("error", "indicator", "indicator")),
        "reference": st.sampled_from(("mean", "median", "mode")),
        "input_scaling": st.sampled_from(("standard", "rank_gauss", "ramps")),
        "clip_inputs": st.booleans(),
        "handle_unknown": st.sampled_from(("error", "reference")),
        "penalty": st.sampled_from(("lasso", "ridge")),
    }
)


def is_our_refusal(error):
    """Whether an error is a refusal in words: raised on purpose, by us or sklearn."""
    if not isinstance(error, ValueError | TypeError):
        return False
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return last.is_relative_to(PACKAGE) or "sklearn" in last.parts


def check(table, options, folder):
    """Fit, predict, explain, save and load one random table."""
    frame, y, weight = table
    is_binary = set(np.unique(y)) <= {0, 1}
    cls = NIMOClassifier if is_binary else NIMORegressor
    est = cls(max_iter=3, hidden=(3, 3), random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            est.fit(frame, y, sample_weight=weight)
        except Exception as error:
            assert is_our_refusal(error), error
            return
        # Rows of zero weight may hold levels and gaps that the fit has not seen.
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        rows = rows.tolist()
        seen = frame[rows] if isinstance(frame, pl.DataFrame) else frame.iloc[rows]
        eta = est._eta(seen)
        assert np.isfinite(eta).all()
        assert np.isfinite(est.coef_).all()
        explanation = est.explain(seen)
        # At these scales of the target squares overflow; contributions need not.
        assert np.isfinite(explanation.values).all()
        bound = SUM * max(np.abs(explanation.values).sum(axis=1).max(), 1e-300)
        assert explanation.eta == pytest.approx(eta, rel=SUM, abs=bound)
        assert est.extrapolation_score(seen).max() == 0
        assert len(str(est.summary())) > 100
        path = folder / "model.sknimo"
        est.save(path)
        assert np.array_equal(load(path)._eta(seen), eta)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def limit(n_examples):
    return settings(
        max_examples=n_examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@given(table=tables(), options=OPTIONS)
@limit(25)
def test_random_tables_fit_or_are_refused_by_name(table, options, folder):
    check(table, options, folder)


@pytest.mark.slow
@given(table=tables(), options=OPTIONS)
@limit(600)
def test_many_random_tables_fit_or_are_refused_by_name(table, options, folder):
    check(table, options, folder)
