"""Excerpts in the search of a site that is opened as a file, where a browser lets no page read another.

The text of every page goes into one script, which the search page alone loads.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

TEXTS = "search-texts.js"
SCRIPTS = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)


def text(page: str) -> str:
    """Return what a built page says, without its navigation."""
    main = page.partition('role="main"')[2].partition("</article>")[0].partition(">")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", SCRIPTS.sub("", main))).replace("¶", " ").split())


def write_texts(app, exception):
    """Write the script when every page is there."""
    if exception is None and app.builder.name == "html":
        folder = Path(app.outdir)
        texts = {
            name: text((folder / f"{name}.html").read_text(encoding="utf-8")) for name in app.env.found_docs
        }
        script = f"const SEARCH_TEXTS = {json.dumps(texts, sort_keys=True)};\n"
        (folder / "_static" / TEXTS).write_text(script, encoding="utf-8")


def load_texts(app, pagename, *_):
    """Let the search page load the script, and what reads from it."""
    if pagename == "search":
        app.add_js_file(TEXTS)
        app.add_js_file("local-search.js")


def setup(app):
    """Write once, load on one page."""
    app.connect("build-finished", write_texts)
    app.connect("html-page-context", load_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
