"""Finished tasks on disk: every number comes back as it was."""

import math

import numpy as np
import pytest
import torch

from sknimo.checkpoint import Checkpoint, pack_record, unpack_record
from sknimo.search import GlmPath
from sknimo.solver import Coefficients, EvidenceState
from sknimo.training import TaskStore

AWKWARD = (0.1, -0.0, math.inf, -math.inf, math.nan, 5e-324, 1.7976931348623157e308)


def same(found, value):
    if isinstance(value, torch.Tensor):
        assert found.dtype == value.dtype
        assert found.shape == value.shape
        found, value = found.numpy(), value.numpy()
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        return found.tobytes() == value.tobytes()
    return type(found) is type(value) and repr(found) == repr(value)


@pytest.mark.parametrize("number", AWKWARD)
def test_a_restart_is_read_back_bit_for_bit(tmp_path, number):
    awkward = torch.tensor(AWKWARD, dtype=torch.float64)
    state = EvidenceState(
        params=awkward,
        coef=awkward[::2],
        intercept=torch.tensor(number, dtype=torch.float64),
        params_precision=awkward[:0],
        coef_precision=awkward.flip(0),
        dispersion=number,
        support=torch.tensor([True, False, True]),
        input_support=torch.zeros(0, dtype=torch.bool),
        log_evidence=-number,
        n_effective=1 / 3,
        n_iter=2**40,
    )
    store = TaskStore(Checkpoint.open(tmp_path, "a"))
    store.run("restart", lambda: state, ())
    found = store.load(EvidenceState, "restart")
    for name in EvidenceState.__dataclass_fields__:
        assert same(getattr(found, name), getattr(state, name)), name


def test_records_within_records_are_read_back():
    path = GlmPath(
        alphas=np.array(AWKWARD),
        coef=np.arange(6.0).reshape(2, 3).T,
        relaxation=0.5,
        index=1,
        cv_loss=np.empty((0, 3)),
        cv_error=np.arange(3),
        fold_loss=np.array([0.5, np.inf]),
        chosen=Coefficients(torch.ones(1, 3), torch.zeros(1)),
        of_folds=Coefficients(torch.ones(2, 3), torch.zeros(2)),
    )
    found = unpack_record(GlmPath, pack_record(path), torch.device("cpu"))
    names = ("alphas", "coef", "relaxation", "index", "cv_loss", "cv_error")
    for name in (*names, "fold_loss"):
        assert same(getattr(found, name), getattr(path, name)), name
    assert isinstance(found.chosen, Coefficients)
    assert torch.equal(found.chosen.coef, path.chosen.coef)
