"""Builders that several test modules share: small problems, random models, a browser.

Every builder is a fixture that returns a function, takes a `seed` and draws from its
own generator, so a test states its data in one line and no test disturbs another.

Shapes: K models, n rows, q terms, r inputs, p features, P weights.
"""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from sknimo.families import get_family
from sknimo.features import (
    Clipped,
    Drawn,
    FeatureMap,
    Levels,
    Linear,
    OrMissing,
    Polynomial,
    PooledLevels,
    Ramps,
    RankGauss,
    Spline,
)
from sknimo.model import FittedModel
from sknimo.network import init_params, make_spec, unpack
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Problem

# Tests of many cases in these modules: of every so many one is quick, the others slow.
ONE_QUICK_OF = {
    "contract/test_sklearn.py": 19,
    "docs/test_pages.py": 3,
    "docs/test_reference.py": 4,
    "estimators/test_answers.py": 2,
    "estimators/test_blend.py": 5,
    "estimators/test_curves.py": 2,
    "estimators/test_cv.py": 2,
    "estimators/test_invariance.py": 4,
    "estimators/test_reference.py": 2,
    "estimators/test_resume.py": 5,
    "estimators/test_search_faults.py": 2,
    "estimators/test_searching.py": 2,
    "experiments/test_rivals.py": 3,
    "explain/test_attribution.py": 3,
    "explain/test_frames.py": 2,
    "explain/test_kinds.py": 2,
    "explain/test_local.py": 3,
    "search/test_blend.py": 4,
    "test_plots.py": 4,
    "estimators/test_faults.py": 6,
    "estimators/test_frames.py": 4,
    "estimators/test_models.py": 4,
    "estimators/test_tables.py": 4,
    "io/test_archive.py": 6,
    "parity/test_forward.py": 8,
    "parity/test_linear_truth.py": 5,
    "cli/test_numbers.py": 3,
    "report/test_page.py": 5,
    "report/test_whatif.py": 6,
    "solver/test_evidence.py": 4,
    "solver/test_outer.py": 4,
    "solver/test_profile.py": 6,
    "solver/test_resume.py": 2,
    "cli/test_fit.py": 3,
    "cli/test_stream.py": 2,
    "cli/test_apply.py": 2,
    "estimators/test_streaming.py": 3,
    "estimators/test_streaming_search.py": 3,
    "estimators/test_bags.py": 2,
    "explain/test_effects.py": 3,
    "explain/test_bends.py": 3,
    "explain/test_summary.py": 2,
    "solver/test_gradient.py": 3,
    "solver/test_joint.py": 3,
    "io/test_onnx.py": 3,
    "features/test_reading.py": 2,
    "estimators/test_extremes.py": 2,
    "estimators/test_verdict.py": 2,
    "report/test_report.py": 2,
    "explain/test_interactions.py": 2,
    "solver/test_stream.py": 3,
}
MANY_CASES = 4
# Tests that take seconds, and modules of them: slow ones.
LONG_MODULES = (
    "estimators/test_invariance.py",
    "estimators/test_members.py",
    "explain/test_agreement.py",
    "search/test_path.py",
    "solver/test_resume.py",
    "estimators/test_batches.py",
    "estimators/test_curves.py",
    "estimators/test_reference.py",
    "estimators/test_streaming_search.py",
    "experiments/test_rivals.py",
    "explain/test_frames.py",
)
LONG = {
    "benchmarks/test_growth.py": {
        "test_traffic_counts_operands_and_results_but_no_views",
    },
    "cli/test_fit.py": {
        "test_counts_are_fitted_as_counts",
        "test_counts_are_pointed_out",
        "test_every_format_gives_the_same_fit",
        "test_held_out_rows_judge_the_model",
        "test_rows_with_missing_cells_can_be_left_out",
        "test_without_fixed_penalties_are_found",
    },
    "cli/test_stream.py": {
        "test_penalties_are_searched_for_unless_they_are_set",
    },
    "contract/test_determinism.py": {
        "test_nothing_depends_on_hashes_or_generators_of_the_process",
    },
    "contract/test_imports.py": {
        "test_importing_the_package_adds_nothing_heavy_to_its_dependencies",
    },
    "contract/test_leaks.py": {
        "test_loads_leave_nothing_behind",
    },
    "estimators/test_answers.py": {
        "test_linear_truth_returns_the_glm",
    },
    "estimators/test_bags.py": {
        "test_an_interrupted_search_resumes_with_the_same_bits",
        "test_only_large_ones_go_this_way_unasked",
    },
    "estimators/test_blend.py": {
        "test_bends",
    },
    "estimators/test_extremes.py": {
        "test_units_at_the_edge_change_nothing",
    },
    "estimators/test_far_rows.py": {
        "test_predictions_stay_as_they_are_at_the_end_of_the_range",
        "test_the_fit_is_that_with_clipped_inputs",
    },
    "estimators/test_faults.py": {
        "test_the_layout_of_the_target_does_not_matter",
    },
    "estimators/test_frames.py": {
        "test_numeric_tables_give_one_fit_from_numpy_too",
        "test_the_search_sees_the_same_table_too",
    },
    "estimators/test_glm_path.py": {
        "test_the_one_standard_error_rule_holds_where_shrinking_hurts",
    },
    "estimators/test_invariance.py": {
        "test_any_number_of_threads_gives_the_same_answer",
        "test_the_same_seed_gives_the_same_fit",
    },
    "estimators/test_models.py": {
        "test_test_error_is_that_of_the_best_penalised_linear_model",
        "test_the_memory_budget_does_not_change_the_fit",
    },
    "estimators/test_resume.py": {
        "test_a_folder_that_fails_does_not_cost_the_fit",
        "test_a_seed_that_nobody_gave_is_drawn_once",
        "test_any_half_of_the_states_is_enough",
        "test_backends_of_joblib",
        "test_classes_resume_too",
        "test_dask",
        "test_every_rule_resumes",
        "test_nothing_is_computed_twice",
        "test_states_within_a_run_resume",
        "test_what_time_cut_short_is_not_kept",
    },
    "estimators/test_streaming.py": {
        "test_neither_do_blocks_of_the_solver",
        "test_with_categories_gaps_weights_and_offsets",
    },
    "estimators/test_tables.py": {
        "test_the_search_counts_rows_the_same_way",
    },
    "explain/test_agreement.py": {
        "test_faithfulness_monotonicity_and_infidelity_on_the_linear_task",
    },
    "explain/test_attribution.py": {
        "test_shapley_values_equal_those_of_shap",
    },
    "explain/test_kinds.py": {
        "test_the_order_of_levels_changes_nothing",
    },
    "fuzz/test_commands.py": {
        "test_random_commands_end_in_a_code_and_a_line",
    },
    "io/test_archive.py": {
        "test_a_sparse_model_of_many_features_is_small",
        "test_fifty_features_and_three_members_are_small_and_fast",
    },
    "report/test_page.py": {
        "test_paper_gets_the_report_in_light_colours_without_controls",
        "test_text_has_contrast_in_both_themes",
        "test_the_theme_follows_the_system_and_can_be_switched",
    },
    "report/test_whatif.py": {
        "test_a_fitted_estimator_and_its_page_agree",
        "test_combinations_that_no_row_has_are_told_and_not_proposed",
        "test_every_kind_of_feature_is_predicted_and_explained_as_in_python",
        "test_everything_on_the_page_can_be_reached_by_tab",
        "test_reset_returns_to_the_start",
        "test_the_page_has_the_interval_of_the_next_observation",
        "test_values_beyond_the_training_range_are_predicted_and_flagged",
        "test_what_other_features_fix_is_not_proposed_to_change_alone",
    },
    "search/test_bags.py": {
        "test_a_strong_bend_is_worth_all_of_it",
    },
    "search/test_path.py": {
        "test_stored_columns_have_the_path_of_columns_in_memory",
    },
    "solver/test_memory.py": {
        "test_estimator_never_makes_a_tensor_of_n_d_d_elements",
    },
    "solver/test_outer.py": {
        "test_objective_never_ends_above_the_nested_glm",
    },
    "solver/test_profile.py": {
        "test_sub_l1_mostly_finds_the_global_minimum",
    },
    "solver/test_resume.py": {
        "test_a_run_broken_off_at_any_step_goes_on_as_if_nothing_had_happened",
    },
    "test_machine.py": {
        "test_forked_processes_fit_after_a_fit_of_their_parent",
    },
    "test_plots.py": {
        "test_every_axis_is_labelled_and_no_labels_overlap",
    },
    "test_ranks.py": {
        "test_a_restart_never_meets_the_processes_before",
    },
}
# The solver knows no family by name: with these its tests are slow ones.
LATER_FAMILIES = ("negative_binomial", "tweedie")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# No sandbox, because tests run as root in containers; nothing that would call home.
BROWSER_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class FileColumns:
    """Terms and inputs in files, read by rows; counts what is read."""

    device = torch.device("cpu")

    def __init__(self, terms, inputs):
        self.tables = terms, inputs
        self.n_rows, self.n_terms = terms.shape
        self.n_read = 0
        self.largest = 0

    def read(self, rows):
        return self._copy(rows)

    def take(self, index):
        return self._copy(index.numpy())

    def _copy(self, rows):
        terms, inputs = (torch.from_numpy(np.array(t[rows])) for t in self.tables)
        self.n_read += len(terms)
        self.largest = max(self.largest, len(terms))
        return terms, inputs


def pytest_collection_modifyitems(items):
    """Mark most cases of tests with many cases as slow, always the same ones."""
    cases = {}
    for item in items:
        path = "/".join(item.path.parts[-2:]).removeprefix("tests/")
        if path in LONG_MODULES or item.name.split("[")[0] in LONG.get(path, ()):
            item.add_marker(pytest.mark.slow)
        family = item.callspec.params.get("family") if hasattr(item, "callspec") else ""
        if family in LATER_FAMILIES and path.startswith(("solver/", "search/")):
            item.add_marker(pytest.mark.slow)
        if path in ONE_QUICK_OF and hasattr(item, "callspec"):
            if item.get_closest_marker("slow") is None:
                test = (path, item.nodeid.split("[")[0])
                cases.setdefault(test, []).append(item)
    for (path, _), group in cases.items():
        if len(group) >= MANY_CASES:
            for place, item in enumerate(group):
                if place % ONE_QUICK_OF[path]:
                    item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small tensors: a second thread costs more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def draw_response():
    """Targets that a family can have produced, `(family_name, eta, seed) -> (n,)`."""

    def draw(family, eta, seed=0):
        rng = np.random.default_rng(seed)
        eta = np.asarray(eta, dtype=float)
        if family == "gaussian":
            return eta + 0.3 * rng.normal(size=eta.shape)
        if family == "binomial":
            return (rng.random(eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
        if family == "poisson":
            return rng.poisson(np.exp(np.clip(eta, -3, 3))).astype(float)
        mean = np.exp(np.clip(eta, -3, 3))
        if family == "negative_binomial":
            return rng.poisson(rng.gamma(1.5, mean / 1.5)).astype(float)
        if family == "tweedie":
            amounts = rng.poisson(2 * np.sqrt(mean))
            return rng.gamma(np.maximum(amounts, 1), np.sqrt(mean) / 2) * (amounts > 0)
        return rng.gamma(4.0, mean / 4.0) + 1e-3

    return draw


@pytest.fixture
def make_problem(draw_response):
    """A problem with bent coefficients: every second feature acts, the first is bent.

    `widths` gives the number of columns of each feature; `offset=True` adds a known
    part to the linear predictor. The network sees the terms themselves.
    """

    def make(
        family="gaussian",
        n_rows=60,
        widths=(1, 1, 1, 1),
        hidden=(5, 4),
        seed=0,
        offset=False,
        code="binary",
        mask=True,
        own_out=False,
    ):
        rng = np.random.default_rng(seed)
        owner = np.repeat(np.arange(len(widths)), widths)
        terms = rng.normal(size=(n_rows, len(owner)))
        terms = (terms - terms.mean(0)) / terms.std(0)
        truth = np.where(owner % 2 == 0, rng.uniform(0.4, 0.9, len(owner)), 0.0)
        bend = 1 + np.tanh(terms[:, -1:]) * (owner == 0)
        known = 0.5 * rng.normal(size=n_rows) if offset else np.zeros(n_rows)
        y = draw_response(family, known + (terms * bend) @ truth + 0.2, seed + 1)
        return Problem.in_memory(
            terms=torch.as_tensor(terms),
            term_feature=torch.as_tensor(owner),
            inputs=torch.as_tensor(terms.copy()),
            y=torch.as_tensor(y),
            offset=torch.as_tensor(known),
            family=get_family(family),
            spec=make_spec(owner.tolist(), len(widths), hidden, code, mask, own_out),
        )

    return make


@pytest.fixture
def make_members():
    """Members of a problem; `alpha` and `network_alpha` may differ between them.

    `weight` and `validation` are (n,) or (K, n) and need not sum to one.
    """

    def make(
        problem,
        n_models=1,
        penalty="lasso",
        alpha=0.05,
        delta=0.5,
        network_alpha=0.0,
        seeds=None,
        weight=None,
        validation=None,
    ):
        p = problem.spec.n_features

        def per_model(value):
            return torch.as_tensor(value, dtype=torch.float64).expand(n_models).clone()

        def shares(rows):
            rows = torch.as_tensor(rows, dtype=torch.float64)
            rows = rows.expand(n_models, problem.n_rows)
            return rows / rows.sum(-1, keepdim=True)

        return Members(
            penalty=make_penalty(
                penalty, per_model(alpha), problem.term_feature, p, delta
            ),
            network_alpha=per_model(network_alpha),
            seeds=tuple(range(n_models)) if seeds is None else tuple(seeds),
            weight=shares(torch.ones(problem.n_rows) if weight is None else weight),
            validation=None if validation is None else shares(validation),
        )

    return make


@pytest.fixture
def make_params():
    """Networks that bend: the usual start with a random output layer, (K, P)."""

    def make(spec, seeds=(0,), size=0.5):
        params = init_params(spec, seeds)
        for row, seed in zip(params, seeds, strict=True):
            generator = torch.Generator().manual_seed(1000 + int(seed))
            out = unpack(spec, row.unsqueeze(0)).out
            out.copy_(size * torch.randn(out.shape, generator=generator))
        return params

    return make


@pytest.fixture
def repeat_rows():
    """A problem with row i written `counts[i]` times, zero counts left out."""

    def repeat(problem, counts):
        rows = torch.arange(problem.n_rows).repeat_interleave(torch.as_tensor(counts))
        return problem.take(rows)

    return repeat


@pytest.fixture
def store(tmp_path):
    """The same problem with its columns on disk."""

    def write(problem):
        files = []
        for name in ("terms", "inputs"):
            path = tmp_path / f"{name}.npy"
            np.save(path, getattr(problem, name).numpy())
            files.append(np.load(path, mmap_mode="r"))
        return replace(problem, columns=FileColumns(*files))

    return write


@pytest.fixture(scope="session")
def browser():
    """Headless Chromium, or a skip that says how to get one."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium: `make browser` as root lets this test run")
    api = pytest.importorskip("playwright.sync_api")
    try:
        playwright = api.sync_playwright().start()
    except Exception as error:  # its own program lacks a library of the system
        pytest.skip(f"Playwright does not start ({error}): `make browser` as root")
    chromium = playwright.chromium.launch(executable_path=found, args=BROWSER_OPTIONS)
    yield chromium
    chromium.close()
    playwright.stop()


def random_basis(kind, rng):
    """A basis of a kind and the network's view of the same column."""
    reference, scale = rng.normal(), rng.uniform(0.5, 3)
    line = Linear(reference, scale)
    if kind == "linear":
        return line, line
    if kind == "residue":
        exact = Linear(1e8, 2.0, residue=1e-9)
        return exact, exact
    if kind == "constant":
        return Linear(reference, 0.0), Linear(reference, 0.0)
    if kind == "polynomial":
        return Polynomial(reference, scale, 1.4), line
    if kind == "spline":
        knots = np.sort(rng.normal(size=6))
        return Spline(reference, scale, knots, rng.normal(size=(5, 4))), line
    if kind == "levels":
        levels = Levels(("north", "south", "east"), 1, 0.45)
        return levels, levels
    if kind == "pooled_levels":
        names = ("north", "south", "islet", "east", "isle")
        levels = PooledLevels(names, 1, 0.45, (0, 1, 2, 3, 2))
        return levels, PooledLevels(names, 1, 0.4, (0, 1, 1, 3, 1))
    if kind == "few_missing":
        return OrMissing(line, 0.0), OrMissing(Clipped(line, reference, 9.0), 0.0)
    if kind == "rank_gauss":
        points = np.sort(rng.normal(reference, scale, 9))
        return line, RankGauss(reference, points, np.linspace(-2, 2, 9))
    if kind == "ramps":
        edges = np.sort(rng.normal(reference, scale, 8))
        curves = Ramps(reference, scale, edges, rng.normal(size=(7, 5)))
        pieces = Clipped(Ramps(reference, scale, edges), edges[0], edges[-1])
        return OrMissing(curves, 0.3), OrMissing(pieces, 0.3)
    if kind == "clipped":
        return line, Clipped(line, reference - scale, reference + scale)
    if kind == "drawn":
        centre, width = rng.normal(), rng.uniform(0.2, 1)
        at = float(np.arcsinh((reference - centre) / width))
        edges = np.sort(rng.normal(size=8))
        curves = Ramps(at, 0.8, edges, rng.normal(size=(7, 5)))
        own = reference, scale, centre, width
        low, high = centre + width * np.sinh(edges[[0, -1]])
        low, high = min(low, reference), max(high, reference)
        drawn = Clipped(Drawn(curves, *own), low, high)
        return OrMissing(drawn, 0.3), OrMissing(Drawn(Linear(at, 0.8), *own), 0.3)
    if kind == "or_missing":
        return OrMissing(line, 0.3), OrMissing(Clipped(line, reference, 9.0), 0.3)
    if kind == "levels_or_missing":
        levels = Levels(("a", "b"), 0, 0.5)
        return OrMissing(levels, 0.2), OrMissing(levels, 0.2)
    raise ValueError(kind)


EVERY_KIND = (
    "linear",
    "residue",
    "constant",
    "polynomial",
    "spline",
    "levels",
    "rank_gauss",
    "clipped",
    "or_missing",
    "levels_or_missing",
    "pooled_levels",
    "few_missing",
    "ramps",
    "drawn",
)


@pytest.fixture(scope="session")
def make_model():
    """A random model with the given kinds of features, by default one of each.

    It bends much harder than any fit would.
    """

    def make(
        kinds=None,
        family="gaussian",
        n_members=2,
        seed=0,
        names=None,
        size=0.6,
        idle=(),
        hidden=(5, 4),
        mask=True,
        own_out=False,
    ):
        kinds = EVERY_KIND if kinds is None else kinds
        rng = np.random.default_rng(seed)
        bases, inputs = zip(*(random_basis(kind, rng) for kind in kinds), strict=True)
        p = len(kinds)
        names = (
            tuple(f"{kind} {j}" for j, kind in enumerate(kinds))
            if names is None
            else names
        )
        plain = FeatureMap(tuple(names), bases, inputs)
        ends = [_ends(plain, j) for j in range(p)]
        low, high = zip(*ends, strict=True)
        features = FeatureMap(tuple(names), bases, inputs, low, high)
        owner = features.term_feature
        owners = features.input_feature.tolist()
        spec = make_spec(owners, p, hidden, mask=mask, own_out=own_out)
        params = init_params(spec, range(seed, seed + n_members))
        weights = unpack(spec, params)
        weights.out.copy_(torch.as_tensor(size * rng.normal(size=weights.out.shape)))
        silent = np.isin(owner, idle)
        coef = rng.normal(size=(n_members, len(owner))) * ~silent
        weights.first[:, :, np.isin(features.input_feature, idle)] = 0
        modulated = np.ones((n_members, p), dtype=bool)
        modulated[:, list(idle)] = False
        return FittedModel(
            features=features,
            family=get_family(family),
            spec=spec,
            coef=torch.as_tensor(coef),
            intercept=torch.as_tensor(rng.normal(size=n_members)),
            params=params,
            modulated=torch.as_tensor(modulated),
        )

    return make


def _ends(features, j):
    levels = features.levels(j)
    if levels is not None:
        return 0.0, float(len(levels) - 1)
    scale = features.scale[j]
    return float(features.reference[j] - 3 * scale), float(
        features.reference[j] + 3 * scale
    )
