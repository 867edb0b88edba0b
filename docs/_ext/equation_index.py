"""The filterable table of all statements: the directive ``{equation-index}``."""

from __future__ import annotations

import html
import re
from collections import Counter

from docutils import nodes
from knowledge import NAMES, anchor, formula_address, known_of, node_page, short
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger

HEAD = ("Statement", "Place", "Verdict", "See instead", "Function", "Tests", "Proofs")
NO_RUN = (
    '<p class="index-no-run">Outcomes are left out: this site was built without the record of a full run '
    "(<code>make test</code> writes it, <code>make docs</code> then shows it).</p>"
)
SOURCES = {
    "equation": "labelled equations",
    "display": "unlabelled displays",
    "assumption": "assumptions",
    "text": "claims in running text",
    "new": "ours",
}


class index_table(nodes.General, nodes.Element):  # noqa: N801
    """The place of the equation index; filled once all labels are known."""


class EquationIndex(SphinxDirective):
    """The table of all statements."""

    def run(self):
        """Leave its place."""
        return [index_table()]


def fill(app, doctree, docname):
    """Write the table where its place is."""
    for place in list(doctree.findall(index_table)):
        place.replace_self(nodes.raw("", _filter(app) + _table(app, docname), format="html"))


def _filter(app):
    entries = known_of(app.env).entries.values()
    counts = Counter(entry.verdict for entry in entries if "new" not in entry.source)
    verdicts = "".join(f'<option value="{v}">{NAMES[v]} ({counts[v]})</option>' for v in ledger.VERDICTS)
    sources = "".join(f'<option value="{name}">{text}</option>' for name, text in SOURCES.items())
    return (
        '<div class="index-filter"><input type="search" placeholder="filter by word" aria-label="filter">'
        f'<select aria-label="verdict"><option value="">every verdict</option>{verdicts}</select>'
        f'<select aria-label="source"><option value="">every source</option>{sources}</select>'
        '<span class="index-count"></span></div>'
    )


def section(entry):
    """Give the part of the paper in which a statement is printed, and its rank there; ours come last."""
    found = re.match(r"(Section|Appendix)s? (\w+)", entry.place)
    if "new" in entry.source or found is None:
        return (2, ""), "Ours"
    return (found[1] == "Appendix", found[2]), f"{found[1]} {found[2]}"


def _table(app, docname):
    known = known_of(app.env)
    titles = (*HEAD, "Last full run") if known.run else HEAD
    head = "".join(f"<th>{name}</th>" for name in titles)
    groups = {}
    for slug, entry in known.entries.items():
        groups.setdefault(section(entry), []).append(_row(app, docname, slug, entry))
    body = ""
    for (_, title), rows in sorted(groups.items()):
        heading = f'<tr class="index-section"><th colspan="{len(titles)}">{title}</th></tr>'
        body += f"<tbody>{heading}{''.join(rows)}</tbody>"
    table = f'<table class="equation-index"><thead><tr>{head}</tr></thead>{body}</table>'
    return ("" if known.run else NO_RUN) + f'<div class="table-wrapper">{table}</div>'


def _row(app, docname, slug, entry):
    known = known_of(app.env)
    word = (
        f'<span class="verdict-word verdict-{entry.verdict.replace(" ", "-")}">{NAMES[entry.verdict]}</span>'
    )
    address = formula_address(app, docname, slug) or "#"
    scope = known.run.get(slug, {}).get("scope")
    proved = f"<br><small>proof: {html.escape(scope)}</small>" if scope else ""
    cells = (
        f'<a href="{address}">{html.escape(entry.title)}</a><br><code>{slug}</code>{proved}',
        html.escape(known.place(slug)),
        "ours" if "new" in entry.source else word,
        "<br>".join(_corrected(other, app, docname) for other in entry.corrected),
        "<br>".join(_function(name, app, docname) for name in known.links.functions.get(slug, [])),
        _numbered(known.links.tests.get(slug, []), app, docname),
        _numbered(known.links.proofs.get(slug, []), app, docname),
        *([_outcome(known, slug)] if known.run else []),
    )
    data = f'data-verdict="{entry.verdict}" data-source="{" ".join(entry.source)}"'
    return f"<tr {data}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _corrected(slug, app, docname):
    return f'<a href="{formula_address(app, docname, slug) or "#"}"><code>{slug}</code></a>'


def _outcome(known, slug):
    names = ", ".join(known.namespaces(slug))
    return known.verified(slug) + (f"<br><small>{names}</small>" if names else "")


def _function(name, app, docname):
    known = app.env.get_domain("py").objects.get(name)
    text = f"<code>{html.escape(name.removeprefix('lai_core.'))}</code>"
    if known is None:
        return text
    return f'<a href="{app.builder.get_relative_uri(docname, known.docname)}#{known.node_id}">{text}</a>'


def _numbered(found, app, docname):
    links = []
    for count, node in enumerate(found, start=1):
        uri = f"{app.builder.get_relative_uri(docname, node_page(node))}#{anchor(node)}"
        links.append(f'<a href="{uri}" title="{html.escape(short(node))}">{count}</a>')
    return " ".join(links)


def setup(app):
    """Register the directive, and fill its place at the end."""
    app.add_node(index_table)
    app.add_directive("equation-index", EquationIndex)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
