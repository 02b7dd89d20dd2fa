"""Docstrings and pages say what signatures, fitted estimators and files say."""

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

import sknimo

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
FOLDERS = ("src", "tests", "benchmarks", "experiments", "examples")
# Names of the code, such as `Forward.bend`; symbols, such as `phi_j`, are shorter.
CODE_NAME = r"`(\w{6,}(?:\.\w{3,})?)`"

ESTIMATORS = [
    value
    for value in (getattr(sknimo, name) for name in sknimo.__all__)
    if inspect.isclass(value) and issubclass(value, BaseEstimator)
]
EVERY_ESTIMATOR = pytest.mark.parametrize(
    "cls", ESTIMATORS, ids=[cls.__name__ for cls in ESTIMATORS]
)


def read_section(cls, title):
    """Entries of a numpydoc section, name to type."""
    text = inspect.getdoc(cls)
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[^\n]*\n-+$|\Z)", text, re.S | re.M)
    return dict(re.findall(r"^(\w+) : (.+)$", found.group(1), re.M))


def default_in(kind):
    """Default that a numpydoc type states; plain "optional" stands for None."""
    stated = kind.partition("default=")[2]
    if not stated:
        return None if kind.endswith("optional") else "not stated"
    return ast.literal_eval(stated)


def signature_of(cls):
    parameters = inspect.signature(cls.__init__).parameters
    return {name: value for name, value in parameters.items() if name != "self"}


def make_table(cls):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(30, 2)), columns=["age", "dose"])
    y = (X["age"] + rng.normal(size=30) > 0).astype(int)
    if "Survival" in cls.__name__:
        return X, pd.DataFrame({"time": rng.exponential(size=30), "event": y})
    return X, y


@EVERY_ESTIMATOR
def test_docstring_lists_the_parameters_of_the_signature_in_order(cls):
    assert list(read_section(cls, "Parameters")) == list(signature_of(cls))


@EVERY_ESTIMATOR
def test_docstring_states_the_default_of_every_parameter(cls):
    documented = {
        name: default_in(kind) for name, kind in read_section(cls, "Parameters").items()
    }
    defaults = {name: value.default for name, value in signature_of(cls).items()}
    assert documented == defaults
    types = {name: type(value) for name, value in documented.items()}
    assert types == {name: type(value) for name, value in defaults.items()}


@EVERY_ESTIMATOR
def test_docstring_lists_the_options_that_errors_list(cls):
    X, y = make_table(cls)
    for name, kind in read_section(cls, "Parameters").items():
        if not kind.startswith("{"):
            continue
        documented = ast.literal_eval(kind[: kind.index("}") + 1])
        with pytest.raises(ValueError, match=f"^{name} must be one of") as error:
            cls(**{name: "no such option"}).fit(X, y)
        known = str(error.value).partition(", got")[0]
        assert set(re.findall(r"'(\w+)'", known)) == documented


@EVERY_ESTIMATOR
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_documented_attributes_are_those_that_fit_writes(cls):
    X, y = make_table(cls)
    est = cls(max_iter=5, random_state=0)
    before = set(vars(est))
    est.fit(X, y)
    written = {name for name in set(vars(est)) - before if not name.startswith("_")}
    assert set(read_section(cls, "Attributes")) == written


@EVERY_ESTIMATOR
def test_public_methods_have_a_docstring(cls):
    methods = inspect.getmembers(cls, inspect.isfunction)
    silent = [
        name
        for name, method in methods
        if not name.startswith("_") and not (method.__doc__ or "").strip()
    ]
    assert silent == []


def files_of_the_project():
    """Scripts and modules, as paths from the root."""
    return [
        path.relative_to(ROOT)
        for folder in FOLDERS
        for path in ROOT.joinpath(folder).rglob("*")
        if path.suffix in (".py", ".js")
    ]


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_module_that_a_page_names_exists(page):
    files = [f"/{path.as_posix()}" for path in files_of_the_project()]
    named = set(re.findall(r"[\w/]+\.(?:py|js)\b", page.read_text()))
    missing = [name for name in named if not any(f.endswith(f"/{name}") for f in files)]
    assert missing == []


def test_every_name_on_the_page_of_the_architecture_is_in_the_code():
    sources = [path for path in files_of_the_project() if path.parts[0] == "src"]
    code = "\n".join((ROOT / path).read_text() for path in sources)
    words = set(re.findall(r"\w+", code))
    named = re.findall(CODE_NAME, (ROOT / "docs" / "architecture.md").read_text())
    assert [name for name in named if not set(name.split(".")) <= words] == []
