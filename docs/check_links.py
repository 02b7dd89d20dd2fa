"""Check the links between Markdown files of the repository: `make lint` runs it.

A link must lead to a file of the repository and, after `#`, to a heading in it. Links
to the web are listed by `--web`, for a look from time to time; nothing is fetched.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ("_build", "_generated", "auto_examples", "auto_tutorials", "generated")
LINK = re.compile(r"\]\(<?([^()\s>]+)>?\)")


def pages():
    """Markdown files that are written by hand."""
    found = [
        *ROOT.glob("*.md"),
        *ROOT.glob(".github/**/*.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
    return [page for page in found if not set(page.parts) & set(GENERATED)]


def prose(page):
    """Text of a page without its code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)


def anchors(page):
    """Anchors of the headings, as GitHub and MyST make them."""
    found = set()
    for title in re.findall(r"^#+ +(.+?) *$", prose(page), re.M):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        found.add(slug)
    return found


def broken(page):
    """Links of a page that lead nowhere."""
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or ROOT not in other.parents:
            yield f"{page.relative_to(ROOT)}: no file {target}"
        elif anchor and other.suffix == ".md" and anchor not in anchors(other):
            yield f"{page.relative_to(ROOT)}: no heading {target}"


if __name__ == "__main__":
    if "--web" in sys.argv:
        links = {link for page in pages() for link in LINK.findall(prose(page))}
        print(*sorted(link for link in links if link.startswith("http")), sep="\n")
    else:
        faults = [fault for page in pages() for fault in broken(page)]
        sys.exit("\n".join(faults) or None)
