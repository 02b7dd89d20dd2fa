"""Random cases, run in one way: few in the quick tests, many with a seed in the slow.

`SKNIMO_FUZZ_CASES` is the number of cases of each kind in the slow tests, and
`SKNIMO_FUZZ_SEED` repeats a run; processes with other seeds draw other cases. A case
fails on an error outside of the documented classes, after ten seconds, or if memory has
grown by a gigabyte.
"""

import ast
import os
import random
import resource
import signal
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import sknimo

PACKAGE = Path(sknimo.__file__).parent
SEED = int(os.environ.get("SKNIMO_FUZZ_SEED", random.SystemRandom().getrandbits(32)))
MAX_SECONDS = 10  # of processor time: other work must not matter
MAX_KILOBYTES = 2**20


def too_long(*_):
    raise AssertionError(f"a case took more than {MAX_SECONDS} seconds")


@contextmanager
def within_bounds(kilobytes):
    """Fail, if need be in the middle, on much time; at the end on much memory."""
    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    start = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert time.process_time() - start < MAX_SECONDS
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - kilobytes < MAX_KILOBYTES, "a case took more than a gigabyte"


def run_cases(check, n_cases, strategies, **options):
    """Draw and check cases; how many ended in which way."""
    found = Counter()
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @given(**strategies)
    @settings(
        max_examples=n_cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        # A case is explained by what it is, not by lines that only it has run.
        phases=(Phase.generate, Phase.target, Phase.shrink),
        **options,
    )
    def run(**case):
        with within_bounds(kilobytes):
            found[check(**case)] += 1

    if not options:
        run = seed(SEED)(run)
    run()
    return found


@pytest.fixture(scope="session")
def run_few():
    """The same few cases at every call: `run_few(check, 25, table=tables())`."""

    def run(check, n_cases, **strategies):
        return run_cases(check, n_cases, strategies, derandomize=True)

    return run


@pytest.fixture
def run_many(capsys):
    """Many cases, with the seed and what became of them on the screen."""

    def run(kind, check, n_cases, **strategies):
        n_cases = int(os.environ.get("SKNIMO_FUZZ_CASES", n_cases))
        try:
            found = run_cases(check, n_cases, strategies)
        except BaseException as error:
            error.add_note(f"SKNIMO_FUZZ_SEED={SEED} SKNIMO_FUZZ_CASES={n_cases}")
            raise
        with capsys.disabled():
            ends = ", ".join(f"{count} {end}" for end, count in found.most_common())
            print(f"\n{found.total()} {kind} ({ends}), SKNIMO_FUZZ_SEED={SEED}")
        return found

    return run


@cache
def raising_lines(path):
    """Numbers of the lines of a module on which it raises something itself."""
    tree = ast.parse(Path(path).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return {line for node in found for line in range(node.lineno, node.end_lineno + 1)}


def check_raised(error, kinds=(ValueError, TypeError)):
    """Fail unless an error is a refusal in words: raised on purpose, by us or sklearn.

    A `ValueError` of another library is an accident that looks like a refusal, and so
    is one of a compiled function that we have called.
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(last.filename)
    ours = path.is_relative_to(PACKAGE) or "sklearn" in path.parts
    meant = ours and last.lineno in raising_lines(last.filename)
    if not (meant and isinstance(error, kinds)):
        raise AssertionError(f"not a refusal in words: {error!r}") from error


@pytest.fixture(scope="session")
def check_refusal():
    return check_raised
