"""Several processes, each with rows of its own, fit what one process fits.

The processes are real: they talk through gloo, hold shards of unequal size on disk, and
every rank must end with the same bits.

Shapes: K models, n rows, q terms, r inputs.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from sknimo.families import get_family
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.solver import Members, Options, Problem, solve

DOUBLE_ATOL = 1e-6  # the figures promised
SINGLE_ATOL = 1e-4
N_ROWS, WIDTHS, HIDDEN = 130, (1, 2, 1, 1), (5, 4)
OWNER = np.repeat(np.arange(len(WIDTHS)), WIDTHS)
# Each rank's rows; the last case has a rank without any.
SHARDS = {2: [0, 37, 130], 3: [0, 90, 90, 130]}
COMMON = dict(
    max_iter=16,
    check_every=4,
    patience=100,
    learning_rate=0.05,
    scale_contributions=True,
)
CASES = {
    "gaussian": dict(),
    "gaussian, noise": dict(noise=0.3),
    "gaussian, blocks": dict(memory_budget=30_000),
    "binomial": dict(scale_contributions=False),
    "binomial, single": dict(dtype="float32"),
    "poisson, batches": dict(batch_size=24),
    "gamma, batches, noise": dict(batch_size=24, noise=0.3, memory_budget=30_000),
}

WORKER = """
import json, sys
import numpy as np
import torch
import torch.distributed as distributed

from sknimo.checkpoint import Checkpoint
from sknimo.families import get_family
from sknimo.network import make_spec
from sknimo.penalties import make_penalty
from sknimo.ranks import current_ranks
from sknimo.solver import Members, Options, Problem, solve
from sknimo.solver._outer import _Run

torch.set_num_threads(1)
folder, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
plan = json.loads(sys.argv[4])
distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
)
begin, stop = plan["shards"][rank : rank + 2]
owner = torch.as_tensor(plan["owner"])


class Shard:
    "Own rows of a table on disk."

    n_rows, n_terms, device = stop - begin, len(owner), torch.device("cpu")

    def __init__(self, path):
        self.table = np.load(path, mmap_mode="r")[begin:stop]

    def read(self, rows):
        terms = torch.from_numpy(np.array(self.table[rows]))
        return terms, terms.clone()

    def take(self, index):
        return self.read(index.numpy())


for name, case in plan["cases"].items():
    family = name.split(",")[0]
    data = np.load(f"{folder}/{family}.npz")
    part = {key: torch.as_tensor(data[key][..., begin:stop]) for key in data.files}
    p = int(owner.max()) + 1
    problem = Problem(
        Shard(f"{folder}/terms.npy"), owner, part["y"], part["offset"],
        get_family(family), make_spec(owner.tolist(), p, tuple(plan["hidden"])),
        ranks=current_ranks(),
    )
    alpha = torch.tensor([0.005, 0.03], dtype=torch.float64)
    members = Members(
        make_penalty("lasso", alpha, owner, p), torch.full_like(alpha, 0.5), (3, 4),
        part["weight"], part["validation"],
    )
    case = dict(case, dtype=getattr(torch, case.get("dtype", "float64")))
    solution = solve(problem, members, Options(**case))
    np.savez(
        f"{folder}/{name}.{rank}.npz",
        history=solution.history.objective,
        status=[status.name for status in solution.status],
        **{
            key: getattr(solution, key).numpy()
            for key in (
                "coef", "intercept", "params", "modulated", "objective",
                "glm_objective", "kkt", "n_iter",
            )
        },
    )
    if "batch" in name:  # broken off and resumed: the same bits
        options = Options(**case, checkpoint_seconds=0.0)
        checkpoint = Checkpoint.open(f"{folder}/states {name} {size}", "test")
        step = _Run.step

        def break_off(self, number):
            if number == 10:
                raise KeyboardInterrupt
            step(self, number)

        _Run.step = break_off
        try:
            solve(problem, members, options, checkpoint=checkpoint)
        except KeyboardInterrupt:
            pass
        _Run.step = step
        distributed.barrier()  # the first rank has saved
        assert checkpoint.load("solve").facts["next_step"] == 8
        resumed = solve(problem, members, options, checkpoint=checkpoint)
        assert torch.equal(resumed.params, solution.params)
        assert torch.equal(resumed.coef, solution.coef)
distributed.barrier()
distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Data of every family on disk, and in memory."""
    folder = tmp_path_factory.mktemp("ranks")
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(N_ROWS, len(OWNER)))
    np.save(folder / "terms.npy", terms)
    eta = 0.6 * terms[:, 0] * (1 + np.tanh(terms[:, 3])) + 0.5 * terms[:, 2]
    held_out = np.arange(N_ROWS) % 5 == 0
    weight = np.stack([np.where(held_out, 0, rng.uniform(0.5, 1.5, N_ROWS))] * 2)
    validation = np.stack([np.where(held_out, 1.0, 0.0)] * 2)
    data = {}
    for family, y in {
        "gaussian": eta + 0.3 * rng.normal(size=N_ROWS),
        "binomial": (rng.random(N_ROWS) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": rng.poisson(np.exp(eta)).astype(float),
        "gamma": rng.gamma(4.0, np.exp(eta) / 4.0) + 1e-3,
    }.items():
        data[family] = dict(
            y=y,
            offset=0.2 * rng.normal(size=N_ROWS),
            weight=weight / weight.sum(-1, keepdims=True),
            validation=validation / validation.sum(-1, keepdims=True),
        )
        np.savez(folder / f"{family}.npz", **data[family])
    return folder, terms, data


def fit_alone(terms, data, name):
    """The oracle: one process, all rows in memory."""
    family = name.split(",")[0]
    part = {key: torch.as_tensor(value) for key, value in data[family].items()}
    owner, p = torch.as_tensor(OWNER), len(WIDTHS)
    problem = Problem.in_memory(
        terms=torch.as_tensor(terms),
        inputs=torch.as_tensor(terms),
        term_feature=owner,
        y=part["y"],
        offset=part["offset"],
        family=get_family(family),
        spec=make_spec(OWNER.tolist(), p, HIDDEN),
    )
    alpha = torch.tensor([0.005, 0.03], dtype=torch.float64)
    members = Members(
        make_penalty("lasso", alpha, owner, p),
        torch.full_like(alpha, 0.5),
        (3, 4),
        part["weight"],
        part["validation"],
    )
    case = COMMON | CASES[name]
    case["dtype"] = getattr(torch, case.get("dtype", "float64"))
    case.pop("memory_budget", None)
    return solve(problem, members, Options(**case))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_fit_what_one_process_fits_and_resume(size, tables):
    folder, terms, data = tables
    plan = json.dumps(
        dict(
            shards=SHARDS[size],
            owner=OWNER.tolist(),
            hidden=HIDDEN,
            cases={name: COMMON | case for name, case in CASES.items()},
        )
    )
    (folder / "meeting").unlink(missing_ok=True)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(folder), str(rank), str(size), plan],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * size, errors
    for name in CASES:
        found = [dict(np.load(folder / f"{name}.{rank}.npz")) for rank in range(size)]
        for other in found[1:]:
            for key, value in found[0].items():
                assert np.array_equal(value, other[key], equal_nan=value.dtype == float)
        alone = fit_alone(terms, data, name)
        assert alone.modulated.any(), name
        atol = SINGLE_ATOL if "single" in name else DOUBLE_ATOL
        for key in ("coef", "intercept", "params", "objective"):
            np.testing.assert_allclose(
                found[0][key], getattr(alone, key), rtol=0, atol=atol, err_msg=name
            )
        np.testing.assert_allclose(
            found[0]["history"], alone.history.objective, rtol=0, atol=atol
        )
        assert found[0]["status"].tolist() == [status.name for status in alone.status]
        assert np.array_equal(found[0]["modulated"], alone.modulated)
        assert found[0]["kkt"].max() < 1e-8
