"""Rows far from the training rows: counted over a whole table, told once."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sknimo.cli._errors import say
from sknimo.exceptions import ExtrapolationWarning


@dataclass(slots=True)
class FarRows:
    """How many rows are far, and the first of them as the user counts."""

    n_far: int = 0
    n_rows: int = 0
    first: int = 0

    @contextmanager
    def count(self, est: Any, X: Any, place: np.ndarray | int) -> Iterator[None]:
        """Count the far ones of some rows, and let predictions keep quiet of them.

        `place` holds where each row stands in its file, or where the first one does.
        """
        far = est.far_rows(X)
        if far.any() and self.n_far == 0:
            at = int(far.argmax())
            self.first = 1 + (place + at if isinstance(place, int) else int(place[at]))
        self.n_far += int(far.sum())
        self.n_rows += len(far)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            yield

    def tell(self) -> None:
        """One line on standard error if there are any."""
        if self.n_far:
            say(
                f"warning: {self.n_far} of {self.n_rows} rows lie far from all "
                f"training rows, where predictions are guesses; the first is row "
                f"{self.first}. Check these rows, or fit with --set clip_inputs=all "
                "to hold predictions at the training range."
            )
