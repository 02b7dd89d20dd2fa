"""How the site is built: `make docs`. No step needs a network."""

import re
import sys
import warnings
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

import sknimo

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "sknimo"
author = "The sknimo developers"
copyright = author
release = version = sknimo.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "start_page",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_generated", "tutorials", "README.md", "**/*.ipynb"]
default_role = "literal"  # single backticks in docstrings are code
suppress_warnings = ["config.cache"]  # the order of the gallery is a class

# Markdown. Links may name any heading.
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4

# The reference: methods stand on the page of their class.
autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

# Tutorials and gallery: scripts that run here, once per change of theirs.
TUTORIALS = ["quickstart.py", "clinical.py", "counts.py", "science.py"]


def _first_tutorials(filename):
    """Sort key of scripts: tutorials in the order of reading, others by name."""
    known = filename in TUTORIALS
    return (TUTORIALS.index(filename) if known else len(TUTORIALS), filename)


class ReadingOrder:
    """Order of the scripts on a page of the gallery."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, filename):
        """Place of one script."""
        return _first_tutorials(filename)


sphinx_gallery_conf = {
    "examples_dirs": ["tutorials", "../examples"],
    "gallery_dirs": ["auto_tutorials", "auto_examples"],
    "filename_pattern": r"(/plot_|/tutorials/)",
    "ignore_pattern": r"(demo|readme_figure)\.py",
    "within_subsection_order": ReadingOrder,
    "subsection_order": ExplicitOrder(["*"]),
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib|list",
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "download_all_examples": False,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}
# A script that draws needs no window, and says so once.
warnings.filterwarnings("ignore", message=".*non-interactive.*")

html_theme = "pydata_sphinx_theme"
html_title = "sknimo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_sidebars = {"index": [], "install": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "sknimo"},
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "secondary_sidebar_items": ["page-toc"],
}

# Prompts and outputs are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def skip_foreign(app, what, name, obj, skip, options):
    """Leave out what scikit-learn documents itself, such as `get_params`."""
    return skip or str(getattr(obj, "__module__", "")).startswith("sklearn.")


def trim_code(app, name, source):
    """Drop the blank line with which doctest wants a block to end."""
    source[0] = re.sub(
        r"(^```python\n.*?)\n+^```", r"\1\n```", source[0], flags=re.S | re.M
    )


def setup(app):
    """Hook into the build."""
    app.connect("source-read", trim_code)
    app.connect("autodoc-skip-member", skip_foreign)
