"""Ranks that die at any moment: the next fit ends with the same bits.

Two processes fit one model on shards of unequal size. One of them, or both, is killed
with SIGKILL at moments spread over the fit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the ranks are forked"),
]

N_KILLS, N_STEPS, N_ROWS = 20, 240, 330
# So that states follow each other closely, one at every check.
SERVER = """
import json, multiprocessing, sys
from functools import partial
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import shards
from sknimo.estimators import _plain

_plain.Options = partial(_plain.Options, checkpoint_seconds=0.0)
folder, fork = Path(sys.argv[2]), multiprocessing.get_context("fork")
for _ in sys.stdin:
    (folder / "meeting").unlink(missing_ok=True)
    ranks = [fork.Process(target=shards.main, args=(folder, k, 2)) for k in range(2)]
    for rank in ranks:
        rank.start()
    print(json.dumps([rank.pid for rank in ranks]), flush=True)
    for rank in ranks:
        rank.join()
    print(json.dumps([rank.exitcode for rank in ranks]), flush=True)
"""


class Pair:
    """Two ranks, forked anew for every fit: what is imported once serves them all."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(N_ROWS, 4)), columns=list("abcd"))
        frame["y"] = frame["a"] * (1 + np.tanh(frame["b"])) + 0.3 * frame["c"]
        frame["w"], frame["o"] = rng.integers(0, 3, N_ROWS), 0.1 * frame["d"]
        frame.to_pickle(folder / "table.pkl")
        self.folder = folder
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER, Path(__file__).parent, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def close(self):
        self.server.communicate()

    def start(self, checkpoint=None):
        """Ids of the two processes."""
        params = {
            "random_state": 0,
            "hidden": (5, 4),
            "noise": 0.1,
            "batch_size": 64,
            "max_iter": N_STEPS,
            "patience": N_STEPS,
            "tol": 0.0,
            "checkpoint": checkpoint,
        }
        task = {"classifier": False, "params": params, "cuts": [0, 120, N_ROWS]}
        (self.folder / "task.json").write_text(json.dumps({"fit": task}, default=str))
        for path in self.folder.glob("*.npz"):
            path.unlink()
        self.server.stdin.write("\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def wait(self):
        """Exit codes, and what those ranks have found that came to an end."""
        codes = json.loads(self.server.stdout.readline())
        paths = [self.folder / f"{rank}-of-2.npz" for rank in range(2)]
        return codes, [dict(np.load(path)) for path in paths if path.exists()]


@pytest.fixture
def pair(tmp_path):
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def saved_step(folder):
    """Steps that the saved run has made, once every state has proved whole."""
    step = 0
    for path in folder.iterdir():
        if path.name.startswith(".sknimo-"):
            continue  # being written, or cut off
        with safetensors.safe_open(path, framework="np") as file:
            for name in list(file.keys()):
                file.get_tensor(name)
            facts = json.loads(file.metadata()["sknimo"])["facts"]
        step = max(step, N_STEPS if facts["finished"] else facts["next_step"])
    return step


def test_killed_ranks_end_with_the_same_model(pair, tmp_path):
    rng = np.random.default_rng(0)
    pair.start()
    codes, expected = pair.wait()
    assert codes == [0, 0]
    assert np.ptp(expected[0]["fit.prediction"]) > 1
    for k in range(N_KILLS):
        folder = tmp_path / f"state {k}"
        least = int(N_STEPS * (k + rng.random()) / (N_KILLS + 1))
        ranks = pair.start(folder)
        deadline = time.monotonic() + 120
        while not folder.exists() or saved_step(folder) < least:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.05 * rng.random())
        victims = [(0,), (1,), (0, 1)][rng.integers(3)]
        for victim in victims:
            os.kill(ranks[victim], signal.SIGKILL)
        codes, found = pair.wait()
        assert all(codes[victim] == -signal.SIGKILL for victim in victims)
        # Nobody goes on alone, nor waits for the dead.
        assert 0 not in codes and found == []
        assert least <= saved_step(folder) < N_STEPS
        pair.start(folder)
        codes, found = pair.wait()
        assert codes == [0, 0]
        for ours, theirs in zip(found, expected, strict=True):
            for name, value in theirs.items():
                assert np.array_equal(ours[name], value), (k, name)
