"""A small simulated table, models fitted to it, and a way to run commands."""

import warnings
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

from sknimo import NIMOClassifier, NIMORegressor
from sknimo.cli._app import app

PATIENTS = Path(__file__).parent / "patients.csv"
FEATURES = ["age", "dose", "sex", "ward"]
# Few steps: these tests ask what commands do with a model, not how good it is.
FAST = {"alpha": 0.01, "max_iter": 40, "random_state": 0}


@pytest.fixture(scope="session")
def patients():
    """The table, with its columns in the types that pyarrow finds."""
    return pa_csv.read_csv(PATIENTS)


@pytest.fixture(scope="session")
def regressor(patients):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return NIMORegressor(**FAST).fit(patients.select(FEATURES), patients["fall"])


@pytest.fixture(scope="session")
def classifier(patients):
    y = patients["relapse"].to_pylist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return NIMOClassifier(**FAST).fit(patients.select(FEATURES), y)


@pytest.fixture(scope="session")
def model_file(regressor, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "fall.sknimo"
    regressor.save(path)
    return str(path)


@pytest.fixture(scope="session")
def classifier_file(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "relapse.sknimo"
    classifier.save(path)
    return str(path)


@pytest.fixture
def sknimo():
    """Run a command: `sknimo("info", path).stdout`; `code` is what is expected."""

    def run(*arguments, code=0, given=None):
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=given)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return run
