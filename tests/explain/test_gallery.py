"""The documentation's code and every gallery script run; each script in a minute."""

import doctest
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


def test_the_code_of_the_page_on_explanations_runs():
    page = (ROOT / "docs" / "explanations.md").read_text()
    examples = doctest.DocTestParser().get_examples(page)
    names = {}
    results = []
    for example in examples:
        try:
            code = compile(example.source, "explanations.md", "eval")
        except SyntaxError:
            exec(example.source, names)
        else:
            results.append((example, eval(code, names)))
    texts = [str(result) for _, result in results]
    # Numbers drift with versions; what the page says about them must not.
    summary = next(text for text in texts if "at the reference" in text)
    assert "No effect and no influence: weight" in summary
    assert any(result is True for _, result in results)
    price = next(
        result
        for text, (_, result) in zip(texts, results, strict=True)
        if text.startswith("Price")
    )
    assert price.names[price.price.argmax()] == "dose"
    assert names["est"].coef_[0] == pytest.approx(0.3, abs=0.05)
