"""Several classes in one network: derivatives by hand, and the state that is kept.

Shapes: K members, C classes, B rows of a batch.
"""

import pytest
import torch

from sknimo.solver import JointOptions, JointTable
from sknimo.solver import _heads as module
from sknimo.solver import _joint as joint
from sknimo.solver._heads import (
    JointStart,
    heads_gradient,
    predict_heads,
    run_heads,
    split_heads,
    train_heads,
)

N_CLASSES = 4
AUTOGRAD_RTOL = 1e-10  # the same sums in another order
LOSS_RTOL = 1e-9

CASES = {
    "plain": {},
    "columns in groups": {"widths": (2, 1, 3)},
    "some modulated": {"widths": (2, 1, 3, 1), "active": (0, 2)},
    "none modulated": {"active": ()},
}


@pytest.fixture
def setup(make_problem, make_params, monkeypatch):
    """A problem with codes of classes, its table, and parameters of two members."""
    for place in (module, joint):
        monkeypatch.setattr(place, "DTYPE", torch.float64)

    def setup(n_rows=30, active=None, **options):
        problem = make_problem(n_rows=n_rows, hidden=(3, 4), **options)
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(N_CLASSES, (n_rows,), generator=generator).double()
        object.__setattr__(problem, "y", y)
        p, q = problem.spec.n_features, problem.n_terms
        active = torch.tensor(range(p) if active is None else active, dtype=torch.long)
        table = JointTable.of(problem, active)
        params = make_params(problem.spec, seeds=(0, 1))
        rest = torch.randn(2, 3 * 4 + N_CLASSES * (q + 1), generator=generator).double()
        return problem, table, torch.cat([params, 0.5 * rest], dim=1)

    return setup


def single_etas(problem, table, flat, rows):
    """Every class as a member of its own in the program for one linear predictor."""
    body = problem.spec.n_params - 4
    heads = split_heads(table, N_CLASSES, flat)
    etas = []
    for c in range(N_CLASSES):
        parts = [flat[:, :body], heads.out[:, c], heads.coef[:, c]]
        parts.append(heads.intercept[:, c : c + 1])
        etas.append(joint.forward(table, torch.cat(parts, 1), rows).eta)
    return torch.stack(etas, 2)


def draw(n_rows):
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(n_rows, (2, 12), generator=generator)
    return rows, torch.rand(2, 12, generator=generator, dtype=torch.float64) / 12


@pytest.mark.parametrize("case", CASES)
def test_each_class_is_a_model_of_the_kind_that_two_classes_have(case, setup):
    problem, table, flat = setup(**CASES[case])
    rows, _ = draw(problem.n_rows)
    eta = run_heads(table, split_heads(table, N_CLASSES, flat), rows).eta
    expected = single_etas(problem, table, flat, rows)
    torch.testing.assert_close(eta, expected, rtol=AUTOGRAD_RTOL, atol=AUTOGRAD_RTOL)


@pytest.mark.parametrize("case", CASES)
def test_gradient_by_hand_is_that_of_autograd(case, setup):
    problem, table, flat = setup(**CASES[case])
    rows, weight = draw(problem.n_rows)
    ridge = torch.linspace(0.1, 0.5, problem.n_terms, dtype=torch.float64)
    found = heads_gradient(table, N_CLASSES, flat, rows, weight, ridge)
    leaf = flat.clone().requires_grad_()
    eta = single_etas(problem, table, leaf, rows)
    loss = torch.nn.functional.cross_entropy(
        eta.flatten(0, 1), problem.y[rows].long().flatten(), reduction="none"
    )
    coef = split_heads(table, N_CLASSES, leaf).coef
    ((loss * weight.flatten()).sum() + (ridge * coef.square()).sum() / 2).backward()
    assert leaf.grad.norm() > 1e-3
    torch.testing.assert_close(found, leaf.grad, rtol=1e-8, atol=AUTOGRAD_RTOL)


def test_state_that_is_kept_has_the_loss_that_is_reported(setup):
    problem, table, flat = setup(n_rows=60)
    heads, n_weights = split_heads(table, N_CLASSES, flat), problem.spec.n_params + 12
    out = torch.stack([torch.arange(60) % 3 == k for k in range(2)]).double()
    start = JointStart(
        heads.coef, heads.intercept, flat[:, :n_weights], 1 - out, out, (0, 1)
    )
    torch.testing.assert_close(joint.join_parameters(start), flat)
    ridge = torch.full((problem.n_terms,), 1e-3)
    state = train_heads(table, start, ridge, JointOptions(8, 6))
    eta = predict_heads(table, state, torch.arange(60))
    own = eta.log_softmax(2)[:, torch.arange(60), problem.y.long()]
    expected = -(own * out).sum(1) / out.sum(1)
    torch.testing.assert_close(state.loss, expected, rtol=LOSS_RTOL, atol=0)
    for c in range(N_CLASSES):
        params = state.of_class(c, 4)
        flat = torch.cat([params, state.coef[:, c], state.intercept[:, c, None]], 1)
        rows = torch.arange(60).expand(2, -1)
        one = joint.forward(table, flat, rows).eta
        torch.testing.assert_close(one, eta[:, :, c], rtol=LOSS_RTOL, atol=1e-12)
