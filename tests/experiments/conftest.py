"""The experiments are a package at the root of the repository."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

if (ROOT / "experiments").exists():
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
else:  # a source distribution carries the tests without the experiments
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tables"
