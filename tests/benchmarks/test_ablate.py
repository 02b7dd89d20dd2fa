"""The ablation leaves no number of a search out, and changes one at a time."""

import sys
from dataclasses import fields
from pathlib import Path

import pytest

from sknimo.families import get_family
from sknimo.search import Settings

FOLDER = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(
    not FOLDER.exists(), reason="not part of a source distribution"
)


@pytest.fixture
def ablate(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import ablate

    yield ablate
    sys.modules.pop("ablate")


def every_field():
    fixed = Settings()
    yield from (field.name for field in fields(fixed))
    for part in ("curves", "evidence"):
        for field in fields(getattr(fixed, part)):
            yield f"{part}.{field.name}"


def test_every_number_is_ablated_or_named_as_left_out(ablate):
    ablated = {number.name.removeprefix("fit.") for number in ablate.make_numbers()}
    ablated -= set(ablate.PARAMETERS)
    assert ablated.isdisjoint(ablate.LEFT_OUT)
    assert ablated | ablate.LEFT_OUT == set(every_field())


def test_each_trial_changes_one_number(ablate):
    for number in ablate.make_numbers():
        for value in number.values():
            params, settings = number.put(value)
            assert value != number.default()
            assert bool(params) != (settings != Settings())
            assert len(params) <= 1


def test_a_table_is_drawn_anew_by_its_seed_alone(ablate):
    for table in ablate.TABLES.values():
        (X, y), (again, _), (other, _) = map(table.draw, (100, 100, 101))
        assert len(X) == len(y) == table.n_rows + ablate.N_TEST
        assert (X == again).all() and (X != other).any()


def test_numbers_of_a_known_dispersion_are_tried_where_it_is_known(ablate):
    for names, known in ((ablate.SPREAD, False), (ablate.KNOWN, True)):
        for table in map(ablate.TABLES.__getitem__, names):
            kinds = {"classification": "binomial", "poisson": "poisson"}
            family = get_family(kinds.get(table.kind, "gaussian"))
            assert family.estimates_dispersion != known
            assert family.separable == (table.name in ablate.SEPARABLE)


def test_a_run_stopped_in_the_middle_of_a_line_goes_on(ablate, tmp_path):
    path = tmp_path / "ablate.csv"
    fits = [
        ablate.Fit("optimism", f"({seed}, 1)", "class1", seed, 0.5, 1.25)
        for seed in range(3)
    ]
    for fit in fits[:2]:
        ablate.append_fit(path, fit)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = ablate.read_fits(path)
        assert list(kept.values()) == fits[: len(kept)]
        ablate.append_fit(path, fits[2])
        assert list(ablate.read_fits(path).values()) == [*fits[: len(kept)], fits[2]]


def test_ratios_compare_the_same_table_and_seed(ablate):
    fits = [
        ablate.Fit(ablate.DEFAULTS, "", "setting1", 100, loss=2.0, seconds=1.0),
        ablate.Fit(ablate.DEFAULTS, "", "class1", 100, loss=10.0, seconds=3.0),
        ablate.Fit("tiny_gain", "0.2", "setting1", 100, loss=1.0, seconds=2.0),
        ablate.Fit("tiny_gain", "0.2", "class1", 100, loss=15.0, seconds=4.0),
        ablate.Fit("tiny_gain", "0.2", "class1", 101, loss=99.0, seconds=9.0),
    ]
    number = ablate.Number("tiny_gain")
    ratio = ablate.compare(number, 0.2, {fit.key: fit for fit in fits})
    assert (ratio.mean, ratio.error, ratio.seconds) == (1.0, 0.5, 1.5)
    assert (ratio.worst, ratio.largest, ratio.n_fits) == ("class1", 1.5, 2)
