"""Code on the pages runs, in the order of reading and with what it says it gives.

A comment `<!-- setup ... -->` holds code that readers do not see, such as a table.
A block behind `<!-- not run: why -->` needs what the tests do not have.
"""

import doctest
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"<!-- setup\n(?P<setup>.*?)^-->"
    r"|(?:<!-- not run: (?P<reason>[^>]*) -->\n+)?^```python\n(?P<code>.*?)^```",
    re.S | re.M,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# pytest collects these by itself, or another test reads them.
ELSEWHERE = ("explanations.md", "tables.md")
LONG = tuple(
    f"{name}.md"
    for name in ("choose", "coming_from", "inference", "models", "report", "scaling")
)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    if "```python" in page.read_text() and page.name not in ELSEWHERE
]
# Libraries that code beside ours may need; its block is left out without them.
RIVALS = ("interpret",)
NOT_RUN = {"Ray", "Spark", "a cluster"}


def run_block(code, names, where):
    if ">>> " not in code:
        exec(compile(code, where, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    said = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert not said, "".join(said)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.name in LONG))
        for page in PAGES
    ],
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem}
    for block in BLOCK.finditer(page.read_text()):
        code = block["setup"] or block["code"]
        missing = [name for name in RIVALS if name in code and not find_spec(name)]
        if block["reason"] or missing:
            continue
        line = page.read_text()[: block.start()].count("\n") + 1
        run_block(code, names, f"{page.name}, block at line {line}")


def test_what_is_not_run_says_why():
    reasons = [
        block["reason"]
        for page in PAGES
        for block in BLOCK.finditer(page.read_text())
        if block["reason"]
    ]
    assert set(reasons) <= NOT_RUN
    assert len(reasons) <= 4


def test_every_page_is_in_the_tree():
    linked = set()
    for page in ROOT.glob("docs/**/*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.S):
            linked |= set(re.findall(r"^[a-z_]+$", tree, re.M))
    pages = {page.stem for page in ROOT.glob("docs/*.md")}
    assert pages - linked == {"index"}


@pytest.mark.parametrize(
    "page", list(ROOT.glob("docs/*.md")), ids=lambda page: page.stem
)
def test_a_page_says_what_it_is_for_in_its_first_lines(page):
    text = page.read_text()
    if text.startswith("```{include}"):
        return
    title, first = text.split("\n\n")[:2]
    assert re.fullmatch(r"# .+", title)
    assert first[0].isalpha() or first[0] == "`"


def test_the_readme_fits_two_screens():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 110
