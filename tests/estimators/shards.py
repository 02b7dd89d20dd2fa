"""One rank of some fits: `python shards.py RANK SIZE FOLDER...`.

For each folder it reads `FOLDER/task.json` and the shards beside it, fits, and writes
what came out to `FOLDER/RANK-of-SIZE.npz`.
"""

import json
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import torch.distributed

from sknimo import (
    NIMOClassifier,
    NIMOClassifierCV,
    NIMORegressor,
    NIMORegressorCV,
    RowBlocks,
)

CLASSES = {
    (False, False): NIMORegressor,
    (False, True): NIMORegressorCV,
    (True, False): NIMOClassifier,
    (True, True): NIMOClassifierCV,
}


def read_shard(folder, cuts, rank):
    frame = pd.read_pickle(folder / "table.pkl").iloc[cuts[rank] : cuts[rank + 1]]
    frame = frame.reset_index(drop=True)
    for begin in range(0, len(frame), 37):
        part = frame.iloc[begin : begin + 37]
        X = part.drop(columns=["y", "w", "o"])
        yield X, part["y"].to_numpy(), part["w"].to_numpy(), part["o"].to_numpy()


def fit_all(folder, rank, size):
    tasks = json.loads((folder / "task.json").read_text())
    table = pd.read_pickle(folder / "table.pkl")
    found = {}
    for name, task in tasks.items():
        cuts = task["cuts"] if size > 1 else [0, len(table)]
        rows = RowBlocks(lambda c=cuts: read_shard(folder, c, rank), sharded=True)
        cls = CLASSES[task["classifier"], task.get("search", False)]
        est = cls(**task["params"])
        if "error" in task:
            try:
                est.fit(rows)
            except ValueError as error:
                found[f"{name}.error"] = str(error)
            continue
        est.fit(rows)
        X = table.drop(columns=["y", "w", "o"])
        eta = est.decision_function(X) if task["classifier"] else est.predict(X)
        found[f"{name}.coef"] = est.coef_
        found[f"{name}.prediction"] = eta
        found[f"{name}.names"] = est.coef_names_.astype(str)
        facts = est._facts
        figures = (facts.deviance, facts.null_deviance, facts.glm_deviance)
        found[f"{name}.deviances"] = figures
        found[f"{name}.levels"] = facts.effects.levels.n_rows
        if task.get("search"):
            found[f"{name}.losses"] = est.trials_["loss"]
            found[f"{name}.chosen"] = (est.bend_, est.n_members_)
    np.savez(folder / f"{rank}-of-{size}.npz", **found)


def main(folder, rank, size):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if size > 1:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=60),
        )
    fit_all(folder, rank, size)
    if size > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    for folder in sys.argv[3:]:
        main(Path(folder), int(sys.argv[1]), int(sys.argv[2]))
