"""Files of the library that a fit walks through until `coef_` is there.

    python benchmarks/walk.py

A profile hook over `NIMORegressorCV.fit` on a small table with a category notes each
file of `src/sknimo` when a function of it is first called, in all threads; imports do
not count. A room is a folder or a module of the top level; the walk returns when a file
that is new lies in a room that it has left.
"""

import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import sknimo

ROOT = Path(sknimo.__file__).parent


def make_table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    X["c"] = rng.choice(list("uvw"), 120)
    return X, X.a * (1 + X.b) + (X.c == "u") + 0.3 * rng.normal(size=120)


def walk(fit, last):
    """Files in order of first visit, and how many there were when `last` returned."""
    files, ends = {}, []

    def look(frame, event, _):
        code = frame.f_code
        if not code.co_filename.startswith(f"{ROOT}/"):
            return
        if event == "call" and code.co_name != "<module>":
            files.setdefault(code.co_filename)
        elif event == "return" and code.co_name == last:
            ends.append(len(files))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        fit()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [Path(name).relative_to(ROOT) for name in files], ends[0]


def count_returns(files):
    left, here, count = set(), None, 0
    for room in (path.parts[0] for path in files):
        if room != here:
            count += room in left
            left.add(here)
            here = room
    return count


def main():
    warnings.simplefilter("ignore")
    X, y = make_table()
    how = {"n_starts": 2, "cv": 3, "max_iter": 10, "random_state": 0, "n_jobs": 1}
    est = sknimo.NIMORegressorCV(**how, max_time=None)
    est.fit(X, y)  # imports are done
    files, end = walk(lambda: est.fit(X, y), last="_show_model")
    for name, part in (("up to coef_", files[:end]), ("the whole fit", files)):
        print(f"{name}: {len(part)} files, {count_returns(part)} returns to a room")
    print("\n".join(map(str, files[:end])))


if __name__ == "__main__":
    main()
