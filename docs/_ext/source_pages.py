"""Pages that show every proof, every marked test and the kernel's files, with an anchor at each function."""

from __future__ import annotations

import ast
import html
import re

from knowledge import kernel_page, known_of, node_page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from tests.support import ledger

_NAMED = re.compile(r"^(?:Definition|Theorem|Lemma) (\w+)", re.MULTILINE)


def source_pages(app):
    """Show every proof and every marked test, with an anchor at each function."""
    known = known_of(app.env)
    every = [
        node for found in (known.links.tests, known.links.proofs) for each in found.values() for node in each
    ]
    for path in sorted({node.partition("::")[0] for node in every}):
        yield node_page(path), {"title": path, "body": _listing(path)}, "page.html"
    for source in sorted((ledger.ROOT / "proofs/coq").rglob("*.v")):
        path = source.relative_to(ledger.ROOT).as_posix()
        yield kernel_page(path), {"title": path, "body": _listing(path)}, "page.html"


def _listing(path):
    text = (ledger.ROOT / path).read_text(encoding="utf-8")
    lexer = get_lexer_by_name("python" if path.endswith(".py") else "coq")
    shown = highlight(text, lexer, HtmlFormatter(nowrap=True)).splitlines()
    for name, line in _python_names(text) if path.endswith(".py") else _coq_names(text):
        shown[line] = f'<span id="{html.escape(name)}"></span>{shown[line]}'
    lines = "\n".join(shown)
    return f'<h1>{html.escape(path)}</h1><div class="highlight"><pre>{lines}\n</pre></div>'


def _python_names(text):
    for name, node in ledger.definitions(ast.parse(text)):
        yield name, min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1


def _coq_names(text):
    for match in _NAMED.finditer(text):
        yield match.group(1), text.count("\n", 0, match.start())


def setup(app):
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
