"""What a release rests on: one version, a quick import, lists that agree."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import sknimo

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Half a second on a quiet machine; what is loaded decides, so that is checked.
HEAVY = ("matplotlib", "narwhals", "numpy", "pandas", "pyarrow", "sklearn", "torch")


def test_the_import_loads_nothing_heavy():
    code = f"import sknimo, sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_recipe_has_the_version_and_the_requirements():
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    assert f'version: "{sknimo.__version__}"' in recipe
    optional = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *optional["cli"], *optional["report"]]:
        name, bound = text.split(">=")
        name = {"torch": "pytorch"}.get(name, name)
        assert f"    - {name} >={bound}\n" in recipe


def test_every_tool_that_make_installs_is_pinned():
    pinned = set(
        re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    )
    wanted = [r for extra in PROJECT["optional-dependencies"].values() for r in extra]
    wanted += [*PROJECT["dependencies"], "build", "twine"]
    names = {re.match(r"[\w-]+", text)[0].lower() for text in wanted} - {"sknimo"}
    assert names - pinned == set()


def test_the_changelog_has_a_section_for_the_version():
    titles = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert titles[0] == "Unreleased"
    if "dev" not in sknimo.__version__:
        assert titles[1] == sknimo.__version__
