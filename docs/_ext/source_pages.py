"""Pages that show every proof and every marked test, with an anchor at each function."""

from __future__ import annotations

import ast
import html

from knowledge import known_of, node_page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tests.support import ledger


def source_pages(app):
    """Show every proof and every marked test, with an anchor at each function."""
    known = known_of(app.env)
    every = [
        node for found in (known.links.tests, known.links.proofs) for each in found.values() for node in each
    ]
    for path in sorted({node.partition("::")[0] for node in every}):
        yield node_page(path), {"title": path, "body": _listing(path)}, "page.html"


def _listing(path):
    text = (ledger.ROOT / path).read_text(encoding="utf-8")
    shown = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)).splitlines()
    for name, node in ledger.definitions(ast.parse(text)):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        shown[first] = f'<span id="{html.escape(name)}"></span>{shown[first]}'
    lines = "\n".join(shown)
    return f'<h1>{html.escape(path)}</h1><div class="highlight"><pre>{lines}\n</pre></div>'


def setup(app):
    """Add the pages to those that come from documents."""
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
