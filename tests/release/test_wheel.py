"""The wheel alone, in an empty environment, does what the start page promises.

Needs a package index. The Python that runs the tests tries the versions of
`constraints.txt`. With `SKNIMO_RELEASE=all` every other Python that is to be had does
so, and the oldest libraries that `pyproject.toml` allows are tried: gigabytes.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS = ("cli", "report")
QUICK_START = """
import pathlib, sys
import sknimo
from sknimo.datasets import make_nimo_regression
assert "site-packages" in sknimo.__file__, sknimo.__file__
data = make_nimo_regression(setting=1, n_samples=120, random_state=0)
est = sknimo.NIMORegressorCV(n_starts=1, random_state=0).fit(data.X, data.y)
assert est.score(data.X, data.y) > 0.9
print(est.summary())
est.save("model.sknimo")
assert (sknimo.load("model.sknimo").predict(data.X) == est.predict(data.X)).all()
est.report("report.html", data.X, data.y)
"""

pytestmark = pytest.mark.slow


def run(*command, cwd, check=True):
    # Neither the checkout nor what the tests run in may help.
    kept = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    if check and done.returncode:
        raise AssertionError(f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done


@pytest.fixture(scope="session")
def dist(tmp_path_factory):
    """Wheel and source distribution of this checkout."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


def lowest(requirements):
    """`numpy>=1.26` as `numpy==1.26.*`: the oldest versions that are declared."""
    for text in requirements:
        name, bound = re.fullmatch(r"([\w-]+)>=([\d.]+)", text).groups()
        parts = bound.split(".")
        yield (
            f"{name}=={'.'.join(parts[:2])}.*" if len(parts) < 3 else f"{name}=={bound}"
        )


def write_oldest(path):
    optional = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(r for e in EXTRAS for r in optional[e])]
    path.write_text("\n".join(lowest(wanted)) + "\n")
    return path


def find_python(name):
    """An interpreter that starts; a shim may stand for one that does not."""
    path = shutil.which(f"python{name}")
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, check=False)
    return path if done.returncode == 0 else None


def cases():
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if os.environ.get("SKNIMO_RELEASE") != "all":
        return [(own, "newest")]
    found = [name for name in PYTHONS if name == own or find_python(name)]
    return [(name, "newest") for name in found] + [(found[0], "oldest")]


@pytest.fixture(scope="module", params=cases(), ids="-".join)
def empty(request, dist, tmp_path_factory):
    """An environment with the wheel, its extras, and nothing else."""
    python, versions = request.param
    folder = tmp_path_factory.mktemp(f"env-{python}-{versions}")
    interpreter = find_python(python) or sys.executable
    run(interpreter, "-m", "venv", folder / "env", cwd=folder)
    home = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    limits = ROOT / "constraints.txt"
    if versions == "oldest":
        limits = write_oldest(folder / "oldest.txt")
    (wheel,) = dist.glob("*.whl")
    extras = ",".join(EXTRAS)
    pip = [home / "python", "-m", "pip", "--disable-pip-version-check"]
    done = run(
        *pip,
        "install",
        "-q",
        "-c",
        limits,
        f"{wheel}[{extras}]",
        cwd=folder,
        check=False,
    )
    if re.search("No matching distribution|connection|resolve host", done.stderr, re.I):
        pytest.skip(f"the index lacks something: {done.stderr.strip()[-300:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    run(*pip, "check", cwd=folder)
    return home


def test_the_quick_start_runs_without_the_checkout(empty, tmp_path):
    (tmp_path / "start.py").write_text(QUICK_START)
    run(empty / "python", "start.py", cwd=tmp_path)
    assert "what-if" in (tmp_path / "report.html").read_text()


def test_the_commands_of_the_start_page_lead_to_a_report(empty, tmp_path):
    # Typed as they stand there; the fixture has done the first, from the wheel.
    page = (ROOT / "docs" / "index.md").read_text()
    install, fit, show = re.search(r"```shell\n(.*?)\n```", page, re.S)[1].split("\n")
    assert shlex.split(install) == ["pip", "install", f"sknimo[{','.join(EXTRAS)}]"]
    program, command, table, *options = shlex.split(fit)
    rows = (
        f"{50 + 7 * k % 90},{k % 40},{'abc'[k % 3]},{100 + 3 * (7 * k % 90) + k % 40}"
        for k in range(120)
    )
    target = options[options.index("--target") + 1]
    header = f"area,age,quarter,{target}"
    (tmp_path / table).write_text("\n".join([header, *rows]) + "\n")
    save = ["--model", "m.sknimo"]
    run(empty / program, command, table, *options, *save, cwd=tmp_path)
    report = options[options.index("--report") + 1]
    assert "what-if" in (tmp_path / report).read_text()
    assert show.startswith("python -m webbrowser") and report in show
    done = run(empty / program, "predict", "m.sknimo", table, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 121


def test_what_is_missing_is_named(empty, tmp_path):
    code = "import sknimo.plots"
    done = run(empty / "python", "-c", code, cwd=tmp_path, check=False)
    assert "sknimo[plot]" in done.stderr


def test_the_wheel_holds_the_package_and_its_metadata(dist):
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (meta,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        about = Parser().parsestr(archive.read(meta).decode())
    version = re.search(
        r'^VERSION = "(.+)"', (ROOT / "src/sknimo/version.py").read_text(), re.M
    )[1]
    assert about["Version"] == version
    assert about["License-Expression"] == "BSD-3-Clause"
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sknimo"}
    assert "sknimo/py.typed" in names
    assert "sknimo/report/assets/model.js" in names


def test_twine_accepts_both_distributions(dist):
    pytest.importorskip("twine")
    files = sorted(dist.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)
