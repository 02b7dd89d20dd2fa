"""A report as one self-contained HTML file.

The template escapes every text. As a second line of defence the page forbids itself
everything but its own style and script, which it names by their hashes: markup that
slipped through could neither run nor reach a network.
"""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from sknimo.files import replace_file
from sknimo.report._inputs import ModelCard, Sample
from sknimo.report._page import make_page
from sknimo.report._story import tell
from sknimo.report._whatif import page_data

FRAME_HEIGHT = 720


@dataclass(frozen=True, slots=True)
class Report:
    """A finished report.

    Attributes
    ----------
    html : str
        The whole file.

    Examples
    --------
    >>> from sknimo import NIMORegressor, datasets
    >>> data = datasets.make_nimo_regression(n_samples=80, random_state=0)
    >>> est = NIMORegressor(tol=1.0, patience=3, random_state=0).fit(data.X, data.y)
    >>> est.report(None, data.X, data.y).html[:15]
    '<!DOCTYPE html>'
    """

    html: str = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file; an older one is replaced only once the new one is whole."""
        target = Path(path)
        with replace_file(target) as file:
            file.write(self.html.encode())
        return target

    def _repr_html_(self) -> str:
        """Show the report in a notebook, in a frame of its own."""
        return (
            f'<iframe srcdoc="{escape(self.html, quote=True)}" '
            'sandbox="allow-scripts allow-modals" title="sknimo report" width="100%" '
            f'height="{FRAME_HEIGHT}" style="border:1px solid #ccc;border-radius:6px">'
            "</iframe>"
        )


def render_report(
    card: ModelCard,
    sample: Sample,
    *,
    held_out: Sample | None = None,
    rows: int | Sequence[int] | None = None,
    title: str | None = None,
) -> Report:
    """Report on a fitted model.

    Parameters
    ----------
    card : ModelCard
    sample : Sample
        Rows that effects, figures and checks refer to; best the training rows.
    held_out : Sample, optional
        Rows that the model has not seen, to judge it by.
    rows : int or sequence of int, optional
        Rows of `sample` to explain one by one: how many, or which.
    title : str, optional
    """
    story = tell(card, sample, held_out, rows)
    page = make_page(story, title)
    data = page_data(story)
    style, script = _asset("report.css"), _asset("model.js") + _asset("page.js")
    html = _template().render(
        page=page,
        policy=_policy(style, script),
        style=style,
        script=script,
        data=embed_json(data),
    )
    return Report(html)


def embed_json(data: Any) -> str:
    r"""JSON that can stand inside a script element, whatever its strings hold.

    Examples
    --------
    >>> embed_json({"</script>": 1})
    '{"\\u003c/script\\u003e":1}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _policy(style: str, script: str) -> str:
    """Content security policy: nothing but this style and this script."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@cache
def _asset(name: str) -> str:
    text = files("sknimo.report").joinpath("assets", name).read_text("utf-8")
    if "</s" in text.lower():  # would end the element that holds it
        raise ValueError(f"{name} must not hold a closing tag.")
    return text


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "Reports need jinja2: pip install 'sknimo[report]'."
        ) from error
    source = files("sknimo.report").joinpath("assets", "report.html.jinja")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    return environment.from_string(source.read_text("utf-8"))
