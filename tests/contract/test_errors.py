"""Nothing is raised or warned of that `docs/errors.md` does not list."""

import ast
import builtins
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import sklearn.exceptions

import sknimo

PACKAGE = Path(sknimo.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
# Ends of the command, which the page tells by their exit codes.
OF_THE_COMMAND = {"UserError", "typer.Exit", "typer.BadParameter"}
# Caught where it is raised.
INSIDE = {"estimators/_saving.py": {"_NoPlaceError"}}
# Errors that others have raised, told again: as they are, or with rows counted anew.
PASSED_ON = {
    "cli/_errors.py": {"error"},
    "ranks.py": {"failed", "told_again"},
    "training/_streams.py": {"type(error)"},
}


def read_table(title):
    """Names in the first column of the table below a title."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.M)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


@cache
def trees():
    """Modules by their paths, parsed once by the process that asks."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def collect_returns():
    """What functions of each name say that they return."""
    found = defaultdict(set)
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns:
                found[node.name].add(ast.unparse(node.returns))
    return found


@cache
def raised_in(path):
    """Line and class of everything that is raised; a bare `raise` passes on."""
    return list(_raised_in(trees()[path]))


def _raised_in(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        exc = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = ast.unparse(exc)
        # `node.refuse(...)` returns one.
        made = collect_returns().get(name.rsplit(".", 1)[-1])
        for kind in made or {name}:
            yield node.lineno, kind


@cache
def warned_in(path):
    """Line and class of every warning."""
    return list(_warned_in(trees()[path]))


def _warned_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn":
            category = [k.value for k in node.keywords if k.arg == "category"]
            kind = node.args[1] if len(node.args) > 1 else (category or [None])[0]
            yield node.lineno, "UserWarning" if kind is None else ast.unparse(kind)


def test_only_documented_errors_are_raised():
    documented, wrong = read_table("Errors"), []
    for path in trees():
        known = documented | INSIDE.get(path, set()) | PASSED_ON.get(path, set())
        known |= OF_THE_COMMAND if path.startswith("cli/") else set()
        wrong += [(path, *each) for each in raised_in(path) if each[1] not in known]
    assert wrong == []


def test_only_documented_warnings_are_given():
    known = read_table("Warnings")
    found = [(path, *each) for path in trees() for each in warned_in(path)]
    assert found and [each for each in found if each[2] not in known] == []


def test_nothing_is_documented_that_is_never_raised():
    raised = {kind for path in trees() for _, kind in raised_in(path)}
    warned = {kind for path in trees() for _, kind in warned_in(path)}
    assert read_table("Errors") - raised == set()
    assert read_table("Warnings") - {"UserWarning"} == warned


def test_public_classes_are_documented_with_their_parents():
    ours = [getattr(sknimo, name) for name in sknimo.__all__]
    ours = [each for each in ours if isinstance(each, type)]
    for kind in ours:
        if issubclass(kind, Warning):
            assert kind.__name__ in read_table("Warnings")
            assert issubclass(kind, UserWarning)
        elif issubclass(kind, Exception):
            assert kind.__name__ in read_table("Errors")
    for name, parent in re.findall(r"\| `(\w+)` \(an? `(\w+)`\)", PAGE):
        kind = getattr(sknimo, name, None) or getattr(builtins, name)
        assert issubclass(kind, getattr(builtins, parent))
    assert issubclass(sklearn.exceptions.ConvergenceWarning, UserWarning)


def test_the_walk_would_find_others():
    tree = ast.parse(
        "raise RuntimeError('x')\nwarnings.warn('y', FutureWarning)\nraise"
    )
    assert list(_raised_in(tree)) == [(1, "RuntimeError")]
    assert list(_warned_in(tree)) == [(2, "FutureWarning")]
