"""Life in a notebook: tables, figures, progress and reports show themselves."""

import pytest

from sknimo.machine import hide_progress

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.slow

CELLS = {
    "fit": """
        import pandas as pd
        from sknimo import NIMORegressorCV
        from sknimo.datasets import make_nimo_regression
        data = make_nimo_regression(setting=1, n_samples=80, random_state=0)
        X = pd.DataFrame(data.X, columns=list(data.names))
        est = NIMORegressorCV(n_starts=1, cv=2, verbose=True, random_state=0)
        est.fit(X, data.y)""",
    "unfitted": "NIMORegressorCV()",
    "summary": "est.summary()",
    "effects": "est.effects(X).to_frame()",
    "figure": """
        %matplotlib inline
        from sknimo.plots import plot_beeswarm
        ax = plot_beeswarm(est.explain(X))""",
    "progress": "from sknimo.machine import hide_progress; hide_progress(True)",
    "report": "est.report(None, X, data.y)",
}


@pytest.fixture(scope="module")
def outputs():
    """What each cell shows: the media types with their content, and streams."""
    cells = [
        nbformat.v4.new_code_cell("\n".join(line.strip() for line in code.split("\n")))
        for code in CELLS.values()
    ]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    shown = {}
    for name, cell in zip(CELLS, book.cells, strict=True):
        shown[name] = {}
        for output in cell.outputs:
            shown[name] |= output.get("data", {})
            if output.output_type == "stream":
                said = shown[name].get(output.name, "")
                shown[name][output.name] = said + output.text
    return shown


def test_a_fitted_estimator_and_its_summary_show_a_table(outputs):
    assert "<table" in outputs["summary"]["text/html"]
    assert outputs["fit"]["text/html"] == outputs["summary"]["text/html"]
    assert "at the reference" in outputs["summary"]["text/plain"]


def test_before_the_fit_scikit_learns_diagram_is_shown(outputs):
    assert "sk-container" in outputs["unfitted"]["text/html"]


def test_progress_is_shown_in_notebooks_but_not_in_files(outputs):
    # Bars come after two seconds and go when all is done, so none is left to look at.
    assert outputs["progress"]["text/plain"] == "False"
    assert hide_progress(True) is None  # tqdm asks whether there is a terminal
    assert hide_progress(False) is True


def test_a_fit_says_nothing_that_readers_did_not_ask_for(outputs):
    assert "Warning" not in outputs["fit"].get("stderr", "")


def test_records_become_frames_and_figures_stand_inline(outputs):
    assert "average_effect" in outputs["effects"]["text/html"]
    assert "image/png" in outputs["figure"]


def test_the_report_stands_in_a_frame_of_its_own(outputs):
    frame = outputs["report"]["text/html"]
    assert frame.startswith("<iframe srcdoc=")
    assert "what-if" in frame
    assert "allow-same-origin" not in frame  # the page cannot reach into the notebook
