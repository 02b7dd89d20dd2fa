"""Seconds of a whole search against LassoNet's path fit, in the same run.

    python benchmarks/speed.py [--settings 1,3] [--seeds 3] [--first-seed 0]
                               [--n-jobs N] [--rivals lassonet]

Both fit the same 300 rows. `NIMORegressorCV` has its defaults, which use two processors
if torch may; with `--n-jobs` it uses as many processes. LassoNet has one path to walk
and no way to share it out; torch gets the number of threads with which it is fastest on
tables of this size, which is one. The two take turns, so that other work on the machine
meets both alike. A first fit, which loads libraries, is left out.
"""

from __future__ import annotations

import argparse
import os
from statistics import mean, median

from accuracy import Result, measure, show, usable_rivals
from rivals import RIVALS
from tasks import load_task

LIMIT = 0.1  # of the rival's time


def compare(setting: str, seeds: range, rivals: list, n_jobs: int | None) -> None:
    """Fit seed by seed, then print the ratio of the total times."""
    ours: list[Result] = []
    theirs: dict[str, list[Result]] = {rival.name: [] for rival in rivals}
    for seed in seeds:
        task = load_task(f"setting{setting}", seed, folder=None)
        ours.append(measure(task, RIVALS["sknimo"], n_jobs))
        print(line(ours[-1]), flush=True)
        for rival in rivals:
            theirs[rival.name].append(measure(task, rival, 1))
            print(line(theirs[rival.name][-1], ours[-1]), flush=True)
    for name, results in theirs.items():
        total = sum(r.seconds for r in ours) / sum(r.seconds for r in results)
        each = [a.seconds / b.seconds for a, b in zip(ours, results, strict=True)]
        verdict = "kept" if total <= LIMIT else "missed"
        print(
            f"setting {setting}: sknimo / {name} = {total:.2f} of the seconds "
            f"(median {median(each):.2f}, largest {max(each):.2f}; limit {LIMIT} "
            f"{verdict}), mean MSE {show(mean(r.value for r in ours))} against "
            f"{show(mean(r.value for r in results))}\n"
        )


def line(result: Result, ours: Result | None = None) -> str:
    text = (
        f"{result.task}  seed {result.seed:<4d} {result.rival:14s} "
        f"{result.seconds:7.1f} s  MSE {show(result.value):>7s}"
    )
    return (
        text if ours is None else f"{text}  ratio {ours.seconds / result.seconds:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", default="1,3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, help="processes; the default of sknimo")
    parser.add_argument("--rivals", default="lassonet")
    options = parser.parse_args()
    rivals = usable_rivals(options.rivals.split(","), RIVALS)
    measure(load_task("setting1", 0, folder=None), RIVALS["sknimo"], options.n_jobs)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for setting in options.settings.split(","):
        compare(setting, seeds, rivals, options.n_jobs)


if __name__ == "__main__":
    main()
