"""How well coefficients can be known by one who knows what bends what.

    python benchmarks/known_structure.py [--designs setting1,...] [--rows 200]
                                         [--replications R] [--first SEED]

The oracle of `intervals.py` knows the form of the truth and estimates its constants.
This one knows less: which features act and which of them bend which, but not how. It
fits

    eta(x) = b0 + sum_j x_j (c_j + h_j(features that bend j)),

where the `h_j` are Gaussian processes with a length for each feature, and sizes,
lengths and noise are those of largest likelihood. A model that must find support and
structure from the same rows can hardly do better. Tables are those of `intervals.py`.
Printed are the error of the effects at the mean and their posterior standard error,
both relative to the standard error of the oracle.

Only numpy and torch are used, and the designs of `intervals.py`.
"""

import argparse
import zlib

import numpy as np
import torch
from intervals import DESIGNS, TINY, Design
from torch import Tensor

# Features that act, each with those that bend it.
STRUCTURES = {
    "setting1": {0: [1, 2], 1: [], 2: []},
    "setting2": {0: [1, 2, 3], 1: [0], 2: [1, 3]},
    "setting3": {0: [1, 3], 1: [3, 4], 3: [1, 4], 4: [0, 3]},
}
STEPS = 150  # of the search for sizes, lengths and noise
STEP = 1e-3  # of numerical derivatives
SPREAD = 3.0  # of the prior of the logarithms of sizes, lengths and noise


class Process:
    """A Gaussian process of known structure."""

    def __init__(self, structure: dict[int, list[int]]) -> None:
        self.structure = structure
        start = {"base": torch.zeros(()), "noise": torch.tensor(-2.0)}
        for j, others in structure.items():
            start |= {f"line {j}": torch.zeros(()), f"size {j}": torch.zeros(())}
            start[f"length {j}"] = torch.full((len(others),), 0.7)
        self.log = {name: x.double().requires_grad_() for name, x in start.items()}

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Covariances of the linear predictors of two tables."""
        size = {name: log.exp() for name, log in self.log.items()}
        total = size["base"] ** 2 * a.new_ones(len(a), len(b))
        for j, others in self.structure.items():
            bend = size[f"line {j}"] ** 2
            if others:
                apart = (a[:, None, others] - b[None, :, others]) / size[f"length {j}"]
                near = torch.exp(-apart.square().sum(-1) / 2)
                bend = bend + size[f"size {j}"] ** 2 * near
            total = total + a[:, j : j + 1] * b[:, j] * bend
        return total

    def fit(self, x: Tensor, y: Tensor) -> None:
        """Sizes, lengths and noise of largest likelihood, then the posterior."""
        values = list(self.log.values())
        search = torch.optim.LBFGS(
            values, max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_grad=1e-4
        )

        def price() -> Tensor:
            search.zero_grad()
            factor, weight = self._solve(x, y)
            prior = sum((value / SPREAD).square().sum() for value in values) / 2
            loss = y @ weight / 2 + factor.diagonal().log().sum() + prior
            loss.backward()
            return loss

        search.step(price)  # type: ignore[arg-type]
        with torch.no_grad():
            self.x, (self.factor, self.weight) = x, self._solve(x, y)

    def _solve(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        noise = (2 * self.log["noise"]).exp() * torch.eye(len(x))
        factor = torch.linalg.cholesky(self.kernel(x, x) + noise)
        return factor, torch.cholesky_solve(y[:, None], factor)[:, 0]

    @torch.no_grad()
    def effect(self, at: np.ndarray, j: int) -> tuple[float, float]:
        """Effect of a feature at a point, and its standard error."""
        ends = torch.as_tensor(np.stack([at, at]))
        ends[:, j] += torch.tensor([STEP, -STEP])
        sign = torch.tensor([1.0, -1.0], dtype=torch.float64) / (2 * STEP)
        seen = sign @ self.kernel(ends, self.x)
        known = seen @ torch.cholesky_solve(seen[:, None], self.factor)[:, 0]
        left = sign @ self.kernel(ends, ends) @ sign - known
        return float(seen @ self.weight), float(left.clamp(min=0.0).sqrt())


def replicate(name: str, n_rows: int, seed: int) -> np.ndarray:
    """Errors and standard errors of the effects that are not zero, and the oracle's."""
    design: Design = DESIGNS[name]
    rng = np.random.default_rng([seed, n_rows, zlib.crc32(name.encode())])
    x = design.rows(rng, n_rows)
    y = design.target(rng, x)
    process = Process(STRUCTURES[name])
    process.fit(torch.as_tensor(x), torch.as_tensor(y))
    at, constants = x.mean(0), np.array(design.constants)
    truth, oracle = design.effects(at, constants), design.oracle(x, at)
    acting = np.flatnonzero(np.abs(design.effects(0 * at, constants)) > TINY)
    found = np.array([process.effect(at, int(j)) for j in acting])
    return np.column_stack([found[:, 0] - truth[acting], found[:, 1], oracle[acting]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--designs", default=",".join(STRUCTURES))
    parser.add_argument("--rows", default="200")
    parser.add_argument("--replications", type=int, default=12)
    parser.add_argument("--first", type=int, default=1000)
    args = parser.parse_args()
    print("design rows fits error width")
    for rows in map(int, args.rows.split(",")):
        for name in args.designs.split(","):
            seeds = range(args.first, args.first + args.replications)
            found = np.concatenate([replicate(name, rows, seed) for seed in seeds])
            error = np.sqrt((found[:, 0] ** 2).mean() / (found[:, 2] ** 2).mean())
            width = found[:, 1].mean() / found[:, 2].mean()
            print(f"{name} {rows} {len(seeds)} {error:.2f} {width:.2f}", flush=True)


if __name__ == "__main__":
    main()
