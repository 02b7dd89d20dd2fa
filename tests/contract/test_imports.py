"""Imports point down only, and a bare `import sknimo` stays light.

The rule is the table of imports in `docs/architecture.md`: for each part of the
package, the other parts and the libraries that it may import.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import sknimo

PACKAGE = Path(sknimo.__file__).parent

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def read_rule(page: str) -> dict[str, set[str]]:
    """What each part may import, as the table of a page says."""
    table = re.search(r"^\| part \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.M)
    rule = {}
    for line in table.group(1).splitlines():
        cells = [re.findall(r"`(\w+)`", cell) for cell in line.strip("|").split("|")]
        parts, below, libraries = cells
        for part in parts:
            assert part not in rule, f"{part} has two rows"
            rule[part] = {f"sknimo.{name}" for name in below} | set(libraries)
    return rule


ALLOWED = read_rule(PAGE.read_text())

# Libraries that cost time to load or may not be installed.
HEAVY = (
    "jinja2",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
    "shap",
)


@dataclass(frozen=True)
class Import:
    """One imported name and where it stands."""

    file: str
    line: int
    part: str
    name: str

    @property
    def target(self) -> str:
        """The library, or the part of this package."""
        words = self.name.split(".")
        return ".".join(words[:2]) if words[0] == "sknimo" else words[0]

    def __str__(self):
        return f"{self.file}:{self.line} imports {self.name}"


def imports_of(path: Path) -> Iterator[Import]:
    inside = path.relative_to(PACKAGE)
    part = inside.parts[0].removesuffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(str(inside), node.lineno, part, name)


@cache
def every_import() -> list[Import]:
    """Of all modules, which are parsed once by the process that asks."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return [found for path in paths for found in imports_of(path)]


def test_the_rule_itself_has_no_cycle():
    graph = {
        part: {name.removeprefix("sknimo.") for name in targets if "sknimo" in name}
        for part, targets in ALLOWED.items()
    }
    TopologicalSorter(graph).prepare()


def test_every_part_of_the_package_has_its_place():
    parts = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
    parts -= {"__pycache__", "py.typed"}
    assert parts == ALLOWED.keys()


@pytest.mark.parametrize("part", sorted(ALLOWED))
def test_imports_point_down_only(part):
    allowed = ALLOWED[part] | {f"sknimo.{part}"} | sys.stdlib_module_names
    wrong = [
        str(found)
        for found in every_import()
        if found.part == part and found.target not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_are_absolute():
    assert [str(found) for found in every_import() if found.name.startswith(".")] == []


def test_only_what_reads_input_imports_sklearn():
    using = {found.part for found in every_import() if found.target == "sklearn"}
    # The demonstration sets a lasso of scikit-learn beside the model.
    assert using - {"cli"} == {"estimators", "training"}


def test_nothing_is_allowed_that_is_not_imported():
    slack = {
        part: sorted(targets - {f.target for f in every_import() if f.part == part})
        for part, targets in ALLOWED.items()
    }
    assert {part: names for part, names in slack.items() if names} == {}


def test_private_sklearn_modules_are_not_imported():
    wrong = [
        str(found)
        for found in every_import()
        if found.target == "sklearn"
        and any(word.startswith("_") for word in found.name.split("."))
    ]
    assert not wrong, "\n".join(wrong)


def test_private_modules_stay_within_their_part():
    wrong = [
        str(found)
        for found in every_import()
        if found.target.startswith("sknimo.")
        and found.target != f"sknimo.{found.part}"
        and any(word.startswith("_") for word in found.name.split("."))
    ]
    assert not wrong, "\n".join(wrong)


def test_importing_the_package_adds_nothing_heavy_to_its_dependencies():
    # scikit-learn loads pandas itself wherever pandas is installed.
    code = f"""
import sys
import sklearn.base
before = set(sys.modules)
from sknimo import *
print(*(set({HEAVY!r}) & (sys.modules.keys() - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_importing_the_package_loads_no_library_before_an_estimator_is_asked_for():
    code = (
        "import sys, sknimo; print(*{'numpy', 'sklearn', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
