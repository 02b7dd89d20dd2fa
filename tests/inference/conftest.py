"""One quick fit of a search, which tests of intervals share."""

from dataclasses import dataclass

import numpy as np
import pytest

from sknimo import NIMORegressorCV


@dataclass(frozen=True)
class Case:
    """Rows and a fit of them."""

    X: np.ndarray
    y: np.ndarray
    est: NIMORegressorCV


def draw_rows(n_rows, seed):
    """Features, one of them binary, and a target that spreads with the first."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n_rows, 3))
    X[:, 1] = X[:, 1] > 0.2
    noise = random.normal(size=n_rows) * np.exp(0.7 * X[:, 0])
    return X, 2 * X[:, 0] - X[:, 1] + noise


def quick_search(**more):
    """A search that takes half a second."""
    return NIMORegressorCV(
        n_members=5, batch_size=64, max_iter=4, random_state=0, **more
    )


@pytest.fixture(scope="package")
def case():
    """A search on rows whose noise differs."""
    X, y = draw_rows(300, 0)
    return Case(X, y, quick_search().fit(X, y))
