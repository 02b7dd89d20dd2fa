"""Every script of the gallery and every tutorial runs, each in a minute."""

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import matplotlib
import pytest

matplotlib.use("Agg")

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("plot_*.py"))
SCRIPTS += sorted((ROOT / "docs" / "tutorials").glob("*.py"))
MINUTE = 60.0

pytestmark = pytest.mark.slow


def test_there_is_a_gallery():
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_gallery_scripts_run_within_a_minute(script):
    begin = perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:sknimo", str(script)],
        env={**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * MINUTE,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert perf_counter() - begin < MINUTE
