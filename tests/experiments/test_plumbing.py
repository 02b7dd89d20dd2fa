"""Cells are computed once, resumed, kept apart, measured and reported."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rivals
from experiments._data import MissingTableError, expand, load, simulate
from experiments._measure import measure, shap_values, slopes_at_mean
from experiments._methods import make_methods
from experiments._run import Artefact, Cell, Plan, parse_choice, parse_seeds, run
from experiments._tables import (
    PARTLY,
    Page,
    Table,
    compare,
    critical_difference,
    holm,
    judge_first,
    judge_pairs,
)
from matplotlib.figure import Figure
from scipy import stats
from statsmodels.stats.multitest import multipletests

from experiments import __main__ as everything
from experiments import _run as plumbing
from experiments import report

ROOT = Path(__file__).parents[2]


def choose(out, *arguments):
    return parse_choice("", ["--quick", "--out", str(out), *arguments])


def artefact_of(*datasets, methods=("lasso",), seeds=2):
    plan = Plan(datasets, methods, seeds=seeds, quick_seeds=seeds)
    return Artefact(99, "test", "A test", (plan,), lambda results: Page())


def test_a_finished_cell_is_not_computed_again(tmp_path, monkeypatch):
    artefact = artefact_of("setting4")
    first = run([artefact], choose(tmp_path))
    written = (tmp_path / "cells" / "setting4.csv").read_text()
    monkeypatch.setattr(plumbing, "try_cell", None)  # calling it would fail
    again = run([artefact], choose(tmp_path))
    assert (tmp_path / "cells" / "setting4.csv").read_text() == written
    assert (
        again.done
        == first.done
        == {Cell("quick", "setting4", "lasso", seed) for seed in (0, 1)}
    )
    assert again.values.keys() == first.values.keys()


def test_a_cell_that_was_cut_off_is_computed_again(tmp_path):
    artefact = artefact_of("setting4", seeds=1)
    run([artefact], choose(tmp_path))
    path = tmp_path / "cells" / "setting4.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))  # the last entry is lost
    again = run([artefact], choose(tmp_path))
    assert len(again.done) == 1
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["quantity"] for row in rows].count("seconds") == 1


def test_what_is_left_of_a_cut_cell_is_not_taken_for_its_successor(tmp_path):
    run([artefact_of("setting4", seeds=2)], choose(tmp_path))
    path = tmp_path / "cells" / "setting4.csv"
    lines = path.read_text().splitlines(keepends=True)
    cut = next(k for k, line in enumerate(lines) if ",seconds," in line)
    marked = [line.replace(",x1,", ",other,") for line in lines[:cut]]
    path.write_text("".join(marked + lines[cut + 1 :]))
    results = plumbing.read_results(tmp_path / "cells", "quick")
    assert {cell.seed for cell in results.done} == {1}
    assert "other" not in results.items("setting4", "lasso", "effect")[1]


def test_quick_and_full_cells_do_not_mix(tmp_path):
    run([artefact_of("setting4", seeds=1)], choose(tmp_path))
    assert not plumbing.read_results(tmp_path / "cells", "full").done


def test_a_fit_that_fails_leaves_the_others(tmp_path, monkeypatch, capsys):
    def fail(rows, seed, n_jobs):
        raise FloatingPointError("diverged")

    methods = make_methods(quick=True)
    methods["mlp"] = replace(methods["mlp"], fit_rows=fail)
    monkeypatch.setattr(plumbing, "methods_of", lambda *_: methods)
    artefact = artefact_of("setting4", methods=("mlp", "lasso"), seeds=1)
    results = run([artefact], choose(tmp_path))
    assert {cell.method for cell in results.done} == {"lasso"}
    assert "diverged" in capsys.readouterr().err


def test_missing_packages_and_tables_are_named_and_left_out(
    tmp_path, monkeypatch, capsys
):
    methods = make_methods(quick=True)
    methods["mlp"] = replace(methods["mlp"], package="nowhere", module="nowhere")
    monkeypatch.setattr(plumbing, "methods_of", lambda *_: methods)
    artefact = artefact_of("setting4", "boston", methods=("mlp", "lasso"), seeds=1)
    results = run([artefact], choose(tmp_path, "--data", str(tmp_path)))
    assert results.done == {Cell("quick", "setting4", "lasso", 0)}
    complaints = capsys.readouterr().err
    assert "pip install nowhere" in complaints
    assert "experiments.download boston" in complaints


def test_options_choose_methods_data_sets_and_seeds(tmp_path):
    choice = choose(tmp_path, "--methods", "lasso", "--datasets", "b", "--seeds", "3,5")
    plan = Plan(("a", "b"), ("lasso", "mlp"), seeds=9, quick_seeds=1)
    assert list(plan.cells(choice)) == [
        Cell("quick", "b", "lasso", 3),
        Cell("quick", "b", "lasso", 5),
    ]
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("7,") == (7,)


def test_a_name_that_no_plan_has_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="laso not among lasso"):
        run([artefact_of("setting4")], choose(tmp_path, "--methods", "laso"))


@pytest.mark.slow
def test_cells_are_computed_without_matplotlib(tmp_path):
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "sys.argv[1:] = ['--quick', '--cells-only', '--methods', 'lasso', '--datasets',"
        f" 'setting4', '--out', {str(tmp_path)!r}]\n"
        "from experiments.__main__ import main; main()"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cells" / "setting4.csv").exists()


def test_results_of_two_machines_can_be_joined(tmp_path):
    artefact = artefact_of("setting4", seeds=2)
    for seeds in ("0,", "1,"):
        run([artefact], choose(tmp_path / seeds, "--seeds", seeds))
    parts = [tmp_path / seeds / "cells" / "setting4.csv" for seeds in ("0,", "1,")]
    (tmp_path / "joined").mkdir()
    (tmp_path / "joined" / "all.csv").write_text("".join(p.read_text() for p in parts))
    joined = plumbing.read_results(tmp_path / "joined", "quick")
    assert {cell.seed for cell in joined.done} == {0, 1}


def test_every_method_of_every_artefact_exists():
    methods = make_methods(quick=False)
    assert list(make_methods(quick=True)) == list(methods)
    for artefact in everything.ARTEFACTS:
        for plan in artefact.plans:
            assert set(plan.methods) <= set(methods)
    numbers = [artefact.number for artefact in everything.ARTEFACTS]
    assert numbers == list(range(1, 13))


def test_data_sets_have_names_and_the_truth_of_their_rows():
    data = load("setting1", 3, None)
    assert data.names == ("x1", "x2", "x3", "x4", "x5")
    truth = simulate("setting1", 3)
    assert np.array_equal(truth.X[300:], data.task.X_test)
    assert data.test_truth.sum(axis=1) == pytest.approx(truth.signal[300:])
    squares = load("squares-expanded", 0, None)
    assert squares.names[3:5] == ("x1^2", "x1 x2")
    assert squares.test_truth is None
    with pytest.raises(MissingTableError, match="superconduct"):
        load("superconduct", 0, None)


def test_expansion_holds_every_square_and_product():
    X = np.random.default_rng(0).standard_normal((4, 3))
    wide, names = expand(X, ("a", "b", "c"))
    assert names == ("a", "b", "c", "a^2", "a b", "a c", "b^2", "b c", "c^2")
    assert np.array_equal(wide[:, 7], X[:, 1] * X[:, 2])


def test_slopes_are_those_of_a_known_function():
    X = np.random.default_rng(0).uniform(0, 3, (50, 2)) * [1, 100]
    slopes = slopes_at_mean(lambda Z: Z[:, 0] ** 2 + 0.5 * Z[:, 1], X)
    assert slopes == pytest.approx([2 * X[:, 0].mean(), 0.5])


def test_what_a_linear_method_has_is_recorded():
    entries = measure(load("setting4", 0, None), make_methods(True)["lasso"])
    found = {(quantity, item): value for quantity, item, value in entries}
    assert found["mse", ""] < 0.02
    assert found["effect", "x1"] == pytest.approx(-5, abs=0.1)
    assert found["coef_rmse", ""] < 0.05
    assert entries[-1][0] == "seconds"


@pytest.mark.slow
def test_what_only_nimo_has_is_recorded():
    methods = make_methods(True)
    entries = measure(load("setting1", 0, None), methods["sknimo-one-member"])
    found = {(quantity, item): value for quantity, item, value in entries}
    assert found["agreement", "x1"] > 0.9
    assert found["coef_exact", ""] == 1
    assert found["input_norm", "x4"] == 0
    assert {"first_layer", "contribution", "bend"} <= {entry[0] for entry in entries}


@pytest.mark.slow
def test_shap_values_are_those_of_shap():
    shap = pytest.importorskip("shap")
    rng = np.random.default_rng(0)
    background, rows = rng.standard_normal((8, 3)), rng.standard_normal((5, 3))

    def predict(X):
        return X[:, 0] * X[:, 1] + np.sin(X[:, 2])

    oracle = shap.explainers.Exact(predict, shap.maskers.Independent(background))
    values = shap_values(predict, rows, background, n_permutations=4000)
    # Sampled: the standard error with 4000 permutations is about 0.01.
    assert values == pytest.approx(oracle(rows, silent=True).values, abs=0.06)


def test_differences_are_paired_by_seed():
    a, b = {0: 1.0, 1: 2.0, 2: 4.0}, {1: 1.5, 2: 3.1, 5: 9.0}
    found = compare(a, b)
    assert found.gap == pytest.approx(0.7)
    assert (found.ours, found.theirs) == (3, pytest.approx(2.3))
    shifted = compare(a, {s: v - 1 for s, v in a.items()})
    assert (shifted.gap, shifted.p_value) == (pytest.approx(1), 0)
    assert (compare(a, a).gap, compare(a, a).p_value) == (0, 1)
    oracle = stats.ttest_rel([2, 4], [1.5, 3.1]).pvalue
    assert found.p_value == pytest.approx(oracle)


def test_splits_that_share_rows_are_told_apart_less_easily():
    rng = np.random.default_rng(0)
    a = dict(enumerate(rng.normal(1.0, 1.0, 9)))
    b = dict.fromkeys(a, 0.0)
    # Nadeau and Bengio (2003): the variance of the mean is that of one split times
    # 1/n + n_test/n_train in place of 1/n.
    values = np.array(list(a.values()))
    t_value = values.mean() / np.sqrt(values.var(ddof=1) * (1 / 9 + 0.25))
    oracle = 2 * stats.t.sf(t_value, 8)
    assert compare(a, b, overlap=0.25).p_value == pytest.approx(oracle)
    assert compare(a, b).p_value < oracle


def test_several_tests_of_a_claim_are_corrected_after_holm():
    p_values = [0.01, 0.04, 0.03, 0.005]
    oracle = multipletests(p_values, method="holm")[1]
    assert holm(p_values) == pytest.approx(oracle)
    assert holm([0.02, np.nan, 0.9]) == pytest.approx([0.04, np.nan, 0.9], nan_ok=True)


def test_a_claim_holds_everywhere_somewhere_or_nowhere():
    low = {seed: 1 + 0.01 * seed for seed in range(5)}
    high = {seed: value + 1 for seed, value in low.items()}
    better, same, worse = (low, high), (low, dict(low)), (high, low)
    assert judge_pairs("", {"a": better, "b": better}).holds is True
    assert judge_pairs("", {"a": better, "b": same}).holds == PARTLY
    assert judge_pairs("", {"a": better, "b": worse}).holds is False
    assert judge_pairs("", {"a": same}).holds is False
    assert judge_pairs("", {"a": worse}, larger_is_better=True).holds is True
    assert judge_pairs("", {"a": ({0: 1.0}, {1: 1.0})}).holds is None


def test_a_method_is_first_only_if_no_other_is_clearly_better():
    good = {seed: 1 + 0.01 * seed for seed in range(5)}
    near = {seed: 1 + 0.01 * (4 - seed) for seed in range(5)}
    bad = {seed: value + 1 for seed, value in good.items()}
    assert judge_first("", {"d": {"us": near, "them": good}}, "us").holds
    assert judge_first("", {"d": {"us": good, "them": bad}}, "us").holds
    assert not judge_first("", {"d": {"us": bad, "them": good}}, "us").holds
    assert judge_first("", {"d": {"us": {}, "them": good}}, "us").holds is None
    scores = {"d": {"us": bad, "them": good}}
    assert judge_first("", scores, "us", larger_is_better=True).holds
    tied = {"d": {"us": near, "them": good}}
    assert not judge_first("", tied, "us", strictly=True).holds
    clear = {"d": {"us": good, "them": bad}}
    assert judge_first("", clear, "us", strictly=True).holds


def test_the_critical_difference_is_the_published_one():
    # Demsar (2006), table 5: q = 2.343 for three methods at 5 %.
    assert critical_difference(3, 10) == pytest.approx(
        2.343 * np.sqrt(3 * 4 / 60), rel=1e-3
    )


def test_a_page_links_the_figures_that_it_saves(tmp_path):
    figure = Figure()
    table = Table("T", ("a", "b"), (("1", "2"),))
    page = Page((table,), {"Caption": figure})
    page.write(tmp_path, "07_x")
    text = (tmp_path / "07_x.md").read_text()
    assert "| 1 | 2 |" in text
    assert "![Caption](./07_x_1.png)" in text
    assert (tmp_path / "07_x_1.png").stat().st_size > 0


@pytest.mark.slow
def test_every_artefact_renders_from_few_results_and_the_report_names_gaps(tmp_path):
    run([artefact_of("setting1", "class1", seeds=2)], choose(tmp_path))
    results = plumbing.read_results(tmp_path / "cells", "quick")
    page = tmp_path / "docs" / "reproduction.md"
    report.write_report(results, tmp_path, page)
    text = page.read_text()
    for artefact in everything.ARTEFACTS:
        assert f"## {artefact.number}. {artefact.title}" in text
    assert "Missing:" in text and "Quick results" in text
    assert "nan" not in text
    links = [part.split(")")[0] for part in text.split("](reproduction/")[1:]]
    assert links
    assert all((tmp_path / "docs" / "reproduction" / link).exists() for link in links)


@pytest.mark.slow
def test_a_script_runs_from_the_command_line(tmp_path):
    command = [sys.executable, "-m", "experiments.coefficients", "--quick"]
    command += ["--methods", "lasso", "--datasets", "setting4", "--out", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "| Lasso |" in done.stdout
    assert (tmp_path / "03_coefficients_1.png").exists()


def test_benchmarks_and_experiments_share_their_adapters():
    methods = make_methods(quick=False)
    for name, rival in rivals.RIVALS.items():
        fit = methods[name].fit_rows
        assert getattr(fit, "func", fit) is rival.fit_rows
