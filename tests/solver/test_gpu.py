"""On a GPU: the same answer, and a hot loop that never waits.

Shapes: K models, n rows.
"""

from dataclasses import replace

import pytest
import torch

import sknimo.solver._joint as joint
from sknimo.machine import to_device
from sknimo.network import start_networks
from sknimo.solver import (
    JointOptions,
    JointStart,
    JointTable,
    Options,
    solve,
    train_jointly,
)
from sknimo.solver._outer import _Run

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU here"
)

GPU = torch.device("cuda")
SAME_ATOL = 1e-8  # sums in another order
SHORT = Options(
    max_iter=20,
    check_every=5,
    patience=100,
    learning_rate=0.05,
    scale_contributions=True,
)
WAYS = {
    "all rows": dict(),
    "noise": dict(noise=0.2),
    "blocks": dict(memory_budget=60_000),
    "batches": dict(batch_size=16, noise=0.2),
}
EVERY_WAY = pytest.mark.parametrize("way", list(WAYS))


@EVERY_WAY
@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_gpu_finds_what_a_cpu_finds(way, family, make_problem, make_members):
    problem = make_problem(family, n_rows=80, widths=(1, 2, 1))
    members = make_members(problem, 2, alpha=0.02)
    options = replace(SHORT, **WAYS[way])
    expected = solve(problem, members, options)
    found = solve(to_device(problem, GPU), to_device(members, GPU), options)
    for name in ("coef", "intercept", "params", "objective"):
        torch.testing.assert_close(
            getattr(found, name).cpu(), getattr(expected, name), rtol=0, atol=SAME_ATOL
        )


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@EVERY_WAY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gaussian_step_never_waits_for_the_gpu(
    way, dtype, make_problem, make_members
):
    problem = make_problem(n_rows=80)
    members = to_device(make_members(problem, 2, alpha=0.02), GPU)
    problem = to_device(problem, GPU)
    options = replace(SHORT, check_every=100, dtype=dtype, **WAYS[way])
    run = _Run.begin(problem, members, options)
    for step in range(2):  # the first is a check
        run.step(step)
    try:
        torch.cuda.set_sync_debug_mode("error")
        for step in range(2, 6):
            run.step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_steps_that_are_recorded_are_those_of_a_cpu(family, make_problem, monkeypatch):
    """Passes enough to record both the step and the look at rows held out."""
    monkeypatch.setattr(joint, "DTYPE", torch.float64)
    problem = make_problem(family, n_rows=61, widths=(2, 1, 3), hidden=(3, 4))
    fold = torch.arange(61) % 3
    out = torch.stack([(fold == k).double() for k in range(3)])
    params = start_networks(problem.spec, [0, 1, 2])
    coef = 0.1 * torch.ones(3, problem.n_terms, dtype=torch.float64)
    start = JointStart(coef, coef[:, 0], params, 1 - out, out, (0, 1, 2))
    options = JointOptions(batch_size=8, max_passes=8, learning_rate=0.02)
    ridge = torch.full((problem.n_terms,), 1e-3, dtype=torch.float64)
    active = torch.arange(problem.spec.n_features)
    expected, found = (
        train_jointly(
            JointTable.of(to_device(problem, device), active),
            to_device(start, device),
            ridge.to(device),
            options,
        )
        for device in (torch.device("cpu"), GPU)
    )
    for name in ("coef", "intercept", "params", "loss"):
        torch.testing.assert_close(
            getattr(found, name).cpu(), getattr(expected, name), rtol=0, atol=SAME_ATOL
        )
