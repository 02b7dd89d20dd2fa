"""The site builds without a warning, and its links lead somewhere.

Without running tutorials and gallery, as `test_gallery.py` does; `make docs` does both.
"""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("pydata_sphinx_theme")

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


class Links(HTMLParser):
    """Where a page leads, and where one can land on it."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.targets += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors.add(found.get("id"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A copy of the pages, built."""
    folder = tmp_path_factory.mktemp("site")
    tracked = subprocess.run(
        ["git", "ls-files", "docs", "examples", "CHANGELOG.md", "CONTRIBUTING.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    for name in tracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
        + ["-D", "plot_gallery=0", "docs", "html"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    found = (page for page in site.rglob("*.html") if "_static" not in page.parts)
    return {page.resolve(): Links(page.read_text()) for page in found}


def test_no_internal_link_is_broken(pages):
    broken = []
    for page, links in pages.items():
        for target in map(urlsplit, links.targets):
            if target.scheme or target.netloc:
                continue
            path = (page.parent / unquote(target.path)).resolve()
            other = path if target.path else page
            anchor = unquote(target.fragment)
            if not other.exists():
                broken.append((page.name, target.geturl()))
            elif anchor and other in pages and anchor not in pages[other].anchors:
                broken.append((page.name, target.geturl()))
    assert broken == []


def test_pages_load_nothing_from_elsewhere(pages):
    for page in pages:
        text = page.read_text()
        for kind in (
            '<script src="http',
            '<script defer="defer" src="http',
            "<img src=http",
        ):
            assert kind not in text, page
        assert '<link rel="stylesheet" type="text/css" href="http' not in text, page


def test_the_start_page_shows_a_live_report(site):
    assert 'src="live/what-if.html"' in (site / "index.html").read_text()
    embedded = (site / "live" / "what-if.html").read_text()
    assert embedded.index('id="what-if"') < embedded.index('id="overview"')
    assert len(embedded) == len((site / "live" / "report.html").read_text())


def test_the_search_knows_what_readers_look_for(site):
    index = (site / "searchindex.js").read_text()
    for word in ("interact", "poisson", "onnx", "wheel"):
        assert word in index
