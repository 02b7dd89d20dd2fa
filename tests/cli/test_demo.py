"""The demonstration shows what it promises."""

import re

import numpy as np
import pytest

from sknimo.cli.demo import NOISE, TRUTH, run_demo, simulate_trial


def test_the_trial_is_what_the_story_says():
    trial = simulate_trial(200_000, 0)
    near = {
        "dose": (trial.columns["dose"], 20, 1),
        "age": (trial.columns["age"], 60, 2),
        "egfr": (trial.columns["egfr"], 75, 4),
    }
    smoker = trial.columns["smoker"] == "yes"
    for name in ("age", "egfr"):  # at the mean dose kidneys do nothing
        at_mean = np.ones(len(smoker), dtype=bool)
        for other, (values, centre, width) in near.items():
            if other != name:
                at_mean &= np.abs(values - centre) < width
        x = near[name][0][at_mean]
        design = np.column_stack([np.ones(len(x)), x, smoker[at_mean]])
        fit, *_ = np.linalg.lstsq(design, trial.y[at_mean], rcond=None)
        assert fit[1] == pytest.approx(TRUTH[name], abs=0.02)
        assert fit[2] == pytest.approx(TRUTH["smoker[yes]"], abs=0.25)


@pytest.mark.slow
def test_the_demonstration_finds_the_truth_and_beats_the_lasso(capsys, tmp_path):
    run_demo(tmp_path / "report.html")
    shown = capsys.readouterr().out
    found = re.findall(r"^  (\S+) +(-?[\d.]+)   truth +(-?[\d.]+)$", shown, re.M)
    assert [name for name, *_ in found] == list(TRUTH)
    for name, coef, truth in found:
        near = 0.3 if "[" in name else 0.03
        assert float(coef) == pytest.approx(float(truth), abs=near)
    lasso, own = (
        float(re.search(rf"^  {label}.* ([\d.]+)$", shown, re.M)[1])
        for label in ("LassoCV", "sknimo")
    )
    assert NOISE**2 < own < 1.1 * NOISE**2 < 3 < lasso
    assert str(tmp_path / "report.html") in shown
    assert "what-if" in (tmp_path / "report.html").read_text().lower()
