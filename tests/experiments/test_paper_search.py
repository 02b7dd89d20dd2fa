"""The paper's algorithm: its network and its solve are what they are said to be."""

import numpy as np
import pytest
import torch
from experiments.paper_search import Network, Trial, list_trials, read, solve
from sklearn.linear_model import Ridge

from experiments import paper_search
from sknimo.network import Modulator, make_spec

ATOL = 1e-5  # single precision


def test_its_network_is_that_of_the_library():
    K, n, p, h = 2, 7, 5, 4
    network = Network(Trial(hidden=h), K, p, torch.Generator().manual_seed(0))
    X = torch.randn(K, n, p)
    weights = (
        network.inputs.transpose(1, 2),
        network.codes.transpose(1, 2),
        network.bias,
        network.second.transpose(1, 2),
        network.second_bias,
        network.out,
    )
    params = torch.cat([each.reshape(K, -1) for each in weights], 1)
    spec = make_spec(range(p), p, (h, h))
    modulator = Modulator.build(spec, torch.device("cpu"), torch.float32)
    everyone = torch.arange(p).unsqueeze(0)
    found = network.bends(X, 0.0, torch.Generator())
    for k in range(K):
        expected = modulator(params[k : k + 1], X[k], everyone)[0]
        torch.testing.assert_close(found[k], expected, atol=ATOL, rtol=ATOL)


def test_its_solve_is_a_ridge_regression_of_scaled_columns():
    X, y, c = torch.randn(1, 30, 4), torch.randn(1, 30), torch.rand(1, 4)
    gamma, level = solve(X, c, y, torch.tensor([0.7]))
    other = Ridge(alpha=0.7).fit((X * c)[0].numpy(), y[0].numpy())
    assert gamma[0].numpy() == pytest.approx(other.coef_, abs=ATOL)
    assert float(level) == pytest.approx(other.intercept_, abs=ATOL)


def test_trials_are_different_and_the_first_change_one_thing():
    trials = list_trials(20)
    assert len(set(trials)) == len(trials) > 25
    changed = [
        sum(a != b for a, b in zip(vars_of(t), vars_of(Trial()), strict=True))
        for t in trials[1:13]
    ]
    assert changed == [1] * 12


def vars_of(trial):
    return [getattr(trial, name) for name in Trial.__dataclass_fields__]


def test_fits_of_the_file_are_not_repeated(tmp_path, monkeypatch, capsys):
    path, calls = tmp_path / "search.csv", []

    def run(trial, setting, seeds, device):
        calls.append((trial, setting))
        return [0.1 * trial.noise + seed for seed in seeds]

    monkeypatch.setattr(paper_search, "run", run)
    monkeypatch.setattr("sys.argv", ["paper_search", "--out", str(path)])
    paper_search.main()
    count = len(calls)
    assert count == 3 * len(list_trials(20)) == len(set(calls))
    paper_search.main()
    assert len(calls) == count
    found = read(path)
    assert found[Trial()]["setting1"][101] == pytest.approx(101.02)
    monkeypatch.setattr("sys.argv", ["paper_search", "--out", str(path), "--best"])
    paper_search.main()
    best = {trial for trial, _ in calls[count:]}
    assert len(best) == 1 and next(iter(best)).noise == 0
    assert np.isfinite(paper_search.means(read(path), *best, tuple(range(10)))).all()
    assert "Seeds 0 to 9" in capsys.readouterr().out
