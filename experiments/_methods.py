"""All methods by name: sknimo, the paper's form of NIMO, its ablations, the rivals.

`nimo` is the paper's method as a preset of this library: an l1 penalty on the bare
coefficients, one member, no refit, a binary position code, noise, Adam at the paper's
learning rates, both penalties chosen on the validation rows. The paper does not say how
wide its network is, how long it was trained and how strong its noise was; 64 units,
2000 steps and 0.2 were chosen on seed 100, which is not reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from rivals import (
    RIVALS,
    Fitted,
    Rival,
    Rows,
    Scaling,
    describe_nimo,
    fit_ebm,
    fit_sknimo,
    held_out_loss,
    quietly,
)

from experiments._joint import train_joint
from experiments.rivals import imn, localglmnet, nam

# Tables with more numbers get a smaller search.
LARGE_TABLE = 20_000


@dataclass(frozen=True)
class Penalties:
    """A grid: strengths of the coefficients' penalty and of the group shrinkage."""

    alphas: tuple[float, ...]
    network_alphas: tuple[float, ...]

    @property
    def pairs(self) -> list[tuple[float, float]]:
        return list(product(self.alphas, self.network_alphas))


@dataclass(frozen=True)
class PaperForm:
    """The paper's NIMO, and one thing after another taken away."""

    simulated: Penalties = Penalties((0.003, 0.01, 0.03), (2.0, 4.0, 10.0))
    real: Penalties = Penalties((0.01, 0.03, 0.1), (2.0, 5.0, 10.0))
    large: Penalties = Penalties((0.001, 0.01), (1.0,))
    max_iter: int = 2000
    device: str = "cpu"
    options: tuple[tuple[str, Any], ...] = ()

    def without(self, **options: Any) -> PaperForm:
        return replace(self, options=(*self.options, *options.items()))

    def penalties(self, rows: Rows) -> Penalties:
        if not rows.scale_target:
            return self.simulated
        return self.real if rows.X.size <= LARGE_TABLE else self.large

    def estimator_options(self, rows: Rows) -> dict[str, Any]:
        return {
            "penalty": "lasso",
            "scale_contributions": False,
            "hidden": (64, 64),
            "noise": 0.2,
            # Real tables learn five times as fast.
            "max_iter": self.max_iter // (2 if rows.scale_target else 1),
            "learning_rate": 5e-3 if rows.scale_target else 1e-3,
            "tol": 0.0,  # the paper trains for a fixed number of steps
            "dtype": "float32",
            "device": self.device,
        } | dict(self.options)


def fit_nimo(rows: Rows, seed: int, n_jobs: int, form: PaperForm) -> Fitted:
    """Fit on the training rows for each pair of penalties; validation rows choose."""
    import sknimo

    make = sknimo.NIMORegressor if rows.is_regression else sknimo.NIMOClassifier
    options, n = form.estimator_options(rows), rows.n_train
    trials = [
        make(alpha=alpha, network_alpha=shrinkage, random_state=seed, **options)
        for alpha, shrinkage in form.penalties(rows).pairs
    ]
    losses = [
        held_out_loss(trial.fit(rows.X[:n], rows.y[:n]), rows, rows.X[n:], rows.y[n:])
        for trial in trials
    ]
    return describe_nimo(trials[losses.index(min(losses))])


def fit_joint(rows: Rows, seed: int, n_jobs: int, form: PaperForm) -> Fitted:
    """The same search with joint gradient descent in place of elimination."""
    if not rows.is_regression:
        raise ValueError("Joint gradient descent is written for regression alone.")
    options, n = form.estimator_options(rows), rows.n_train
    shared = {
        key: options[key] for key in ("hidden", "noise", "max_iter", "learning_rate")
    }
    scaling = Scaling.learn(rows, n, always=True)
    Z, y = scaling.columns(rows.X), scaling.target(rows.y)
    trials = [
        train_joint(
            Z[:n],
            y[:n],
            scaling,
            alpha=alpha,
            network_alpha=shrinkage,
            seed=seed,
            **shared,
        )
        for alpha, shrinkage in form.penalties(rows).pairs
    ]
    losses = [held_out_loss(trial, rows, rows.X[n:], rows.y[n:]) for trial in trials]
    best = trials[losses.index(min(losses))]
    coef = best.slopes != 0
    return Fitted(quietly(best.predict), coef, slopes=best.slopes)


def fit_sknimo_train(rows: Rows, seed: int, n_jobs: int, **options: Any) -> Fitted:
    """On the training rows alone, as methods that need the others to validate on."""
    n = rows.n_train
    alone = replace(rows, X=rows.X[:n], y=rows.y[:n], n_held_out=0)
    return fit_sknimo(alone, seed, n_jobs, **options)


# Ablations of the paper's form, in the order of the table: what is changed.
ABLATIONS = {
    "nimo-no-mask": {"mask": False},
    "nimo-no-mask-no-code": {"mask": False, "position_code": "none"},
    "nimo-no-code": {"position_code": "none"},
    "nimo-no-noise": {"noise": 0.0},
    "nimo-sub-l1": {"penalty": "sub_l1"},
    "nimo-contributions": {"scale_contributions": True},
}
# Variants of the search.
SEARCHES = {
    "sknimo-one-member": {"n_members": 1},
    "sknimo-no-relax": {"relax": False},
    "sknimo-poly2": {"basis": "poly2"},
    "sknimo-spline": {"basis": "spline"},
    "sknimo-lines": {"basis": "linear"},
}


def make_methods(quick: bool, device: str = "cpu") -> dict[str, Rival]:
    """Every method; `quick` searches fewer penalties and averages fewer networks.

    `device` is that of sknimo and of the paper's form. A GPU pays for large tables
    alone, so it is never taken unasked.
    """
    form = PaperForm(device=device)
    n_members = {"nam": nam.N_MEMBERS, "localglmnet": localglmnet.N_MEMBERS}
    if quick:
        form = replace(
            form,
            simulated=Penalties((0.003, 0.01), (3.0, 10.0)),
            real=Penalties((0.01,), (3.0, 10.0)),
            large=Penalties((0.01,), (1.0,)),
            max_iter=1200,
        )
        n_members = dict.fromkeys(n_members, 1)
    methods = dict(RIVALS)
    if quick:  # its fourteen bags take longer than all else
        methods["ebm"] = replace(RIVALS["ebm"], fit_rows=partial(fit_ebm, outer_bags=3))

    def add(name: str, fit: Any, package: str = "sknimo") -> None:
        methods[name] = Rival(name, package, package, fit)

    add("nimo", partial(fit_nimo, form=form))
    for name, options in ABLATIONS.items():
        add(name, partial(fit_nimo, form=form.without(**options)))
    free = replace(form.simulated, network_alphas=(0.0,))
    add("nimo-no-group", partial(fit_nimo, form=replace(form, simulated=free)))
    add("nimo-joint", partial(fit_joint, form=form))
    for name, options in ({"sknimo": {}} | SEARCHES).items():
        add(name, partial(fit_sknimo, device=device, **options))
    add("sknimo-train", partial(fit_sknimo_train, device=device))
    add("nam", partial(nam.fit, n_members=n_members["nam"]), "torch")
    add("imn", imn.fit, "torch")
    add(
        "localglmnet",
        partial(localglmnet.fit, n_members=n_members["localglmnet"]),
        "torch",
    )
    return methods
