"""How well coefficients are known, as a page shows it.

Shapes: c coefficients.
"""

from dataclasses import dataclass, replace

import numpy as np

from sknimo.explain._summary import SummaryRow


@dataclass(frozen=True, slots=True, eq=False)
class KnownErrors:
    """Standard errors and intervals of all coefficients, NaN where there are none."""

    # Each (c,).
    std_error: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    z: np.ndarray
    notes: tuple[str, ...]  # why an entry has none, in a word
    reason: str = ""  # why none has, in a sentence
    level: float = 0.95

    def put(self, row: SummaryRow, at: int) -> SummaryRow:
        """A row with the error of its coefficient."""
        if np.isnan(self.std_error[at]):
            return replace(row, error_note=self.notes[at])
        return replace(
            row,
            std_error=float(self.std_error[at]),
            lower=float(self.lower[at]),
            upper=float(self.upper[at]),
            z=float(self.z[at]),
        )

    def words(self, rows: tuple[SummaryRow, ...]) -> tuple[str, ...]:
        """What a reader must know of them."""
        if self.reason:
            return (f"No standard errors or intervals: {self.reason}",)
        words = [
            f"{100 * self.level:g} % interval: of coef, approximate. It counts in that "
            "bends and members were estimated, but not that features were selected."
        ]
        if any(row.error_note == "removed" for row in rows):
            words.append("removed: selected away, which is no proof of no effect.")
        return tuple(words)
