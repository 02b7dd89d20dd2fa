"""The same fit on the CPU and on a GPU: agreement and seconds per step.

python benchmarks/devices.py [--steps 200]
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.datasets import make_nimo_classification, make_nimo_regression


def timed_fit(est, X, y):
    begin = time.perf_counter()
    est.fit(X, y)
    return est, time.perf_counter() - begin


def compare(name, make, X, y, steps):
    predictions, seconds = {}, {}
    for device in ("cpu", "cuda"):
        timed_fit(make(device, 2), X, y)  # warm up
        est, seconds[device] = timed_fit(make(device, steps), X, y)
        predictions[device] = est._eta(X)
    gap = np.abs(predictions["cpu"] - predictions["cuda"]).max()
    gap /= predictions["cpu"].std()
    print(
        f"{name:34s} largest gap / sd {gap:.1e}   ms per step: "
        f"cpu {1e3 * seconds['cpu'] / steps:8.2f}   "
        f"cuda {1e3 * seconds['cuda'] / steps:8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    warnings.simplefilter("ignore")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for dtype in ("float64", "float32"):

        def regressor(device, n_steps, dtype=dtype, budget=64e6):
            return NIMORegressor(
                max_iter=n_steps,
                patience=10**6,
                device=device,
                dtype=dtype,
                memory_budget=64e6 if device == "cpu" else 8e9,
                random_state=0,
            )

        def classifier(device, n_steps, dtype=dtype):
            return NIMOClassifier(
                max_iter=n_steps,
                patience=10**6,
                device=device,
                dtype=dtype,
                random_state=0,
            )

        data = make_nimo_regression(setting=2, n_samples=300, random_state=0)
        compare(f"regression 300 x 10, {dtype}", regressor, data.X, data.y, steps)
        labels = make_nimo_classification(setting=2, n_samples=300, random_state=0)
        compare(f"classes 300 x 10, {dtype}", classifier, labels.X, labels.y, steps)
        big = make_nimo_regression(setting=3, n_samples=20_000, random_state=0)
        compare(f"regression 20000 x 50, {dtype}", regressor, big.X, big.y, 10)


if __name__ == "__main__":
    main()
