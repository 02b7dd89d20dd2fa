"""The command with more than two classes."""

import io
import json

import numpy as np
import pandas as pd
import pytest

WARDS = ("east", "north", "west")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three wards that two numbers tell apart, though not always."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    eta = np.column_stack([X[:, 0], X[:, 1], -X.sum(1)])
    ward = np.array(WARDS)[(2 * eta + rng.gumbel(size=eta.shape)).argmax(1)]
    path = tmp_path_factory.mktemp("tables") / "wards.csv"
    frame = pd.DataFrame({"age": X[:, 0], "dose": X[:, 1], "ward": ward})
    frame.to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_commands_take_several_classes(table, tmp_path, sknimo):
    model = tmp_path / "ward.sknimo"
    told = sknimo(
        *("fit", table, "--target", "ward", "--model", model, "--test", "0.3"),
        *("--fixed", "--set", "max_iter=0", "--json"),
    )
    assert "3 classes, as column 'ward' suggests" in told.stderr
    judged = json.loads(told.stdout)["held_out"]
    assert judged["log_loss"] < np.log(3)
    out = pd.read_csv(io.StringIO(sknimo("predict", model, table).stdout))
    chances = out[[f"probability_{ward}" for ward in WARDS]]
    assert np.allclose(chances.sum(axis=1), 1)
    assert (out["prediction"] == np.array(WARDS)[chances.to_numpy().argmax(1)]).all()

    refused = sknimo("explain", model, table, code=1)
    assert "Say --class and one of them" in refused.output
    made = sknimo("explain", model, table, "--class", "north").stdout
    told = pd.read_csv(io.StringIO(made))
    total = told["base_value"] + told["contribution_age"] + told["contribution_dose"]
    assert np.allclose(total, told["eta"])
    logs = np.log(chances)
    assert np.allclose(told["eta"], logs["probability_north"] - logs.mean(axis=1))
    assert (
        "north against the mean"
        in sknimo(*("explain", model, table, "--class", "north", "--row", "1")).stdout
    )
    assert "chances of east, north and west" in sknimo("info", model).stdout


def test_a_class_that_only_rows_held_out_have_is_told_before_the_fit(
    table, tmp_path, sknimo
):
    data = tmp_path / "d.csv"
    data.write_text(table.read_text() + "0.1,0.2,west end\n")
    args = ("fit", data, "--target", "ward", "--fixed", "--test", "0.99")
    told = sknimo(*args, "--set", "max_iter=0", code=1).stderr
    assert "are held out. Take another --seed" in told
