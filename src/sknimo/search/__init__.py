"""Which model: from a problem and its folds to the members that are returned.

`search` is a function of tensors; nothing here knows scikit-learn.
"""

from sknimo.search._bags import large_features
from sknimo.search._blend import Beside
from sknimo.search._engine import is_large, search, takes_long
from sknimo.search._path import GlmPath
from sknimo.search._runner import MovableReference, movable_reference
from sknimo.search._settings import RuleName, Settings
from sknimo.search._verdict import Outcome, Verdict
