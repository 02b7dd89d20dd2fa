"""What the start page shows is computed when the site is built: never out of date.

One simulated trial is fitted once. A picture (light and dark) and a table go to
`_generated/` before the pages are read, the report to `live/` once they are written.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.linear_model import LassoCV

from sknimo import NIMORegressorCV

INK = {"light": "#20242c", "dark": "#dfe3ea"}
OURS = {"light": "#1f6fb0", "dark": "#6db3ee"}
THEIRS = {"light": "#c8591c", "dark": "#f2955c"}
# Effects of one unit, or of the second level, at the reference.
TRUTH = {"dose": 0.3, "age": -0.1, "egfr": 0.0, "weight": 0.0, "smoker": -2.0}


@dataclass(frozen=True)
class Trial:
    """A fitted trial, and rows that neither model has seen."""

    X: pd.DataFrame
    y: pd.Series
    X_test: pd.DataFrame
    y_test: pd.Series
    est: NIMORegressorCV
    lasso: LassoCV


def bend_of(egfr):
    """By how much kidneys bend the effect of the dose."""
    return 1 + 0.8 * np.tanh((75 - egfr) / 18)


def simulate_trial(n_rows, seed):
    """Patients of a trial: a drug that works better where kidneys are weak."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.uniform(0, 40, n_rows),
            "age": rng.normal(60, 10, n_rows),
            "egfr": rng.normal(75, 18, n_rows).clip(15, 130),
            "weight": rng.normal(80, 14, n_rows),
            "smoker": rng.choice(["no", "yes"], n_rows, p=[0.7, 0.3]),
        }
    ).round(1)
    fall = 8 + 0.3 * (X["dose"] - 20) * bend_of(X["egfr"]) - 0.1 * (X["age"] - 60)
    fall = fall - 2 * (X["smoker"] == "yes") + rng.normal(size=n_rows)
    return X, fall.rename("fall of blood pressure").round(2)


def as_numbers(X):
    """Columns for a model that knows numbers alone."""
    return X.assign(smoker=(X["smoker"] == "yes").astype(float))


@cache
def fit_trial():
    """Fit the trial by sknimo and by a lasso."""
    X, y = simulate_trial(400, seed=0)
    X_test, y_test = simulate_trial(2000, seed=1)
    est = NIMORegressorCV(n_starts=2, random_state=0).fit(X, y)
    return Trial(X, y, X_test, y_test, est, LassoCV().fit(as_numbers(X), y))


def draw(trial, theme):
    """The effect of a milligram along the kidneys: truth, lasso and sknimo."""
    ink = INK[theme]
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color")
    style = dict.fromkeys((*colours, "ytick.color"), ink)
    low, high = trial.X["egfr"].quantile([0.02, 0.98])
    at = trial.X.iloc[:1].loc[[0] * 61].reset_index(drop=True)
    for name, value in zip(trial.X, trial.est.reference_, strict=True):
        at[name] = "no" if name == "smoker" else value
    at["egfr"] = np.linspace(low, high, len(at))
    effect = trial.est.explain(at).to_frame("local_effect")["dose"]
    with mpl.rc_context(style | {"font.size": 12}):
        figure = Figure(figsize=(6.4, 3.9), layout="constrained")
        axes = figure.subplots()
        truth = 0.3 * bend_of(at["egfr"])
        axes.plot(at["egfr"], truth, color=ink, lw=8, alpha=0.2, label="truth")
        axes.axhline(trial.lasso.coef_[0], color=THEIRS[theme], ls="--", label="lasso")
        axes.plot(at["egfr"], effect, color=OURS[theme], lw=2.5, label="sknimo")
        axes.set(xlabel="kidney function (eGFR)", ylabel="effect of one mg")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def tabulate(trial):
    """Coefficients at the reference and errors on new rows, as Markdown."""
    lines = ["| | truth | lasso | sknimo |", "|---|--:|--:|--:|"]
    rows = zip(TRUTH.items(), trial.lasso.coef_, trial.est.coef_, strict=True)
    for (name, truth), theirs, ours in rows:
        found = " | ".join(f"{round(value, 2) + 0.0:.2f}" for value in (theirs, ours))
        lines.append(f"| {name} | {truth:g} | {found} |")
    errors = [
        np.mean((model.predict(X) - trial.y_test) ** 2)
        for model, X in (
            (trial.lasso, as_numbers(trial.X_test)),
            (trial.est, trial.X_test),
        )
    ]
    lines.append(f"| *squared error* | *1* | *{errors[0]:.2f}* | *{errors[1]:.2f}* |")
    return "\n".join(lines) + "\n"


def prepare(app):
    """Write picture and table where the start page looks for them."""
    folder = Path(app.srcdir) / "_generated"
    folder.mkdir(exist_ok=True)
    for theme in INK:
        path = folder / f"effect-{theme}.svg"
        draw(fit_trial(), theme).savefig(path, transparent=True)
    (folder / "table.md").write_text(tabulate(fit_trial()))


def what_if_first(html):
    """The report with its what-if part at the top, where a small frame shows it."""
    part = re.search(r'<section id="what-if".*?</section>', html, re.S).group()
    rest = html.replace(part, "")
    return re.sub(r'(<main id="main">)', lambda found: found.group() + part, rest)


def finish(app, error):
    """Put the report beside the pages."""
    if error is None and app.builder.format == "html":
        trial = fit_trial()
        path = Path(app.outdir) / "live" / "report.html"
        path.parent.mkdir(exist_ok=True)
        report = trial.est.report(
            path,
            trial.X,
            trial.y,
            X_test=trial.X_test,
            y_test=trial.y_test,
            title="A simulated trial",
        )
        path.with_name("what-if.html").write_text(what_if_first(report.html))


def setup(app):
    """Hook into the build."""
    app.connect("builder-inited", prepare)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
