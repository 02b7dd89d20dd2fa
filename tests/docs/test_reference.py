"""The reference lists every public name, and each has an example that runs."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import sknimo
import sknimo.datasets
import sknimo.plots

PAGE = Path(__file__).parents[2] / "docs" / "api" / "index.md"
MODULES = (sknimo, sknimo.datasets, sknimo.plots)


def names_on_the_page():
    """Full names in the tables of the reference."""
    found, module = [], ""
    for line in PAGE.read_text().splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w[\w.]*", line):
            found.append(f"{module}.{line.strip()}")
    return found


def look_up(name):
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def documented_methods(cls):
    """Methods that are ours and that users call."""
    return [
        method
        for name, method in inspect.getmembers(cls, callable)
        if not name.startswith("_")
        and inspect.isroutine(method)
        and str(getattr(method, "__module__", "")).startswith("sknimo.")
    ]


ESTIMATORS = [name for name in names_on_the_page() if ".NIMO" in name]


def test_every_public_name_is_on_the_page():
    public = {
        f"{module.__name__}.{name}" for module in MODULES for name in module.__all__
    }
    public.discard("sknimo.__version__")
    assert public <= set(names_on_the_page())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_record_that_a_method_returns_is_on_the_page(name):
    listed = {full.rpartition(".")[2] for full in names_on_the_page()}
    said = "\n".join(inspect.getdoc(m) for m in documented_methods(look_up(name)))
    types = " ".join(re.findall(r"^Returns\n-+\n(.+)$", said, re.M))
    records = set(re.findall(r"\b[A-Z]\w+", types))
    assert {"Summary", "Intervals"} <= records
    assert records <= listed


@pytest.mark.parametrize("name", names_on_the_page())
def test_every_name_of_the_reference_has_an_example(name):
    # That examples run is pytest's own business: it collects the docstrings of `src`.
    text = inspect.getdoc(look_up(name))
    assert re.search(r"^Examples\n-+\n", text, re.M)
    assert ">>> " in text


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_method_of_an_estimator_has_an_example(name):
    silent = [
        method.__name__
        for method in documented_methods(look_up(name))
        if ">>> " not in (inspect.getdoc(method) or "")
    ]
    assert silent == []
