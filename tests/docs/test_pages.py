"""Code on the pages runs, in the order of reading and with what it says it gives.

Tables that a page shows in full must have the words that are printed now, while their
numbers may drift a little with versions. A comment `<!-- setup ... -->` holds code that
readers do not see, such as a table. A block behind `<!-- not run: why -->` needs what
the tests do not have.
"""

import doctest
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
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
ELSEWHERE = ("tables.md",)  # pytest collects it by itself
DRIFTING = ("explanations.md",)
LONG = tuple(
    f"{name}.md"
    for name in (
        "choose", "coming_from", "explanations", "inference", "models", "report",
        "scaling",
    )
)  # fmt: skip
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    if "```python" in page.read_text() and page.name not in ELSEWHERE
]
# Libraries that code beside ours may need; its block is left out without them.
RIVALS = ("interpret",)
NOT_RUN = {"Ray", "Spark", "a cluster"}
# Languages of blocks: run, checked by name, or only shown.
KINDS = {"python", "shell", "text", "r", "bibtex"}
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]


class Words(doctest.OutputChecker):
    """Compares the words of two outputs, and whether a number stands in a place."""

    def check_output(self, want, got, optionflags):
        blank = [re.sub(r"[-+]?\d[\d.,e+-]*", "#", text) for text in (want, got)]
        return super().check_output(*blank, optionflags)


def run_block(code, names, where, checker=None):
    if ">>> " not in code:
        exec(compile(code, where, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(code, names, where, where, 0)
    said = []
    runner = doctest.DocTestRunner(checker, optionflags=FLAGS)
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
    checker = Words() if page.name in DRIFTING else None
    for block in BLOCK.finditer(page.read_text()):
        code = block["setup"] or block["code"]
        missing = [name for name in RIVALS if name in code and not find_spec(name)]
        if block["reason"] or missing:
            continue
        line = page.read_text()[: block.start()].count("\n") + 1
        run_block(code, names, f"{page.name}, block at line {line}", checker)


def test_what_is_not_run_says_why():
    reasons = [
        block["reason"]
        for page in PAGES
        for block in BLOCK.finditer(page.read_text())
        if block["reason"]
    ]
    assert set(reasons) <= NOT_RUN
    assert len(reasons) <= 4


def test_blocks_are_of_a_kind_that_is_checked():
    kinds = {
        kind
        for page in TEXTS
        for kind in re.findall(r"^```(.*)\n(?:.*\n)*?```$", page.read_text(), re.M)
        if not kind.startswith("{")
    }
    assert kinds <= KINDS


def shell_lines():
    """Commands of the blocks that a reader is to type, as lists of words."""
    for page in TEXTS:
        for block in re.findall(r"^```shell\n(.*?)^```", page.read_text(), re.S | re.M):
            for line in block.replace("\\\n", " ").splitlines():
                yield shlex.split(line, comments=True)


def is_known(words):
    """Whether the parts of a command are there: target, extra, script or module."""
    if words[0] == "make":
        return f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    if words[:2] == ["pip", "install"]:
        extras = re.findall(r"\[(.+)\]", words[2])
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = set(",".join(extras).split(",")) - {""}
        return wanted <= set(project["optional-dependencies"])
    if words[0] == "python" and words[1].endswith(".py"):
        text = (ROOT / words[1]).read_text()
        return all(f'"{word}"' in text for word in words if word.startswith("--"))
    if words[:2] == ["python", "-m"]:
        return find_spec(words[2].partition(".")[0]) or (ROOT / words[2]).exists()
    return "sknimo" in words or words[:2] == ["python", "-c"] or "pytest" in words


def test_commands_on_the_pages_name_what_there_is():
    # Options of `sknimo` itself are the business of `tests/cli/test_docs.py`.
    lines = list(shell_lines())
    assert len(lines) > 20
    assert [words for words in lines if not is_known(words)] == []


@pytest.mark.slow
def test_the_command_prints_what_its_page_shows(tmp_path):
    shutil.copy(ROOT / "tests" / "cli" / "patients.csv", tmp_path)
    page = (ROOT / "docs" / "command_line.md").read_text().replace("\\\n", " ")
    shown = re.findall(r"^```text\n\$ (sknimo [^\n]*)\n(.*?)^```", page, re.S | re.M)
    shown = [(line, text) for line, text in shown if "sknimo: error" not in text]
    assert len(shown) == 3
    for line, text in shown:
        line, _, head = line.partition(" | head -")
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line)],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=True,
        )  # fmt: skip
        said = done.stdout.splitlines(keepends=True)[: int(head or 1000)]
        assert Words().check_output(text, "".join(said), FLAGS), done.stdout


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
