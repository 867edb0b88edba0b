"""The ledger as data, ``statements.json``, and its picture: the directive ``{statement-graph}``."""

from __future__ import annotations

import functools
import hashlib
import html
import json
from pathlib import Path

from docutils import nodes
from knowledge import NAMES, formula_address, known_of
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger

SCHEMA = Path(__file__).with_name("statements.schema.json")
WIDTH, HEIGHT, GAP = 250, 26, 34
STROKES = {"every size": "", "compared": "6 3", "shown": "1 4", "refuted": "8 3 2 3", "nothing": "1 9"}


def data(app):
    """Give what the site knows of each statement."""
    known = known_of(app.env)
    return {slug: _entry(app, known, slug) for slug in known.entries}


def _entry(app, known, slug):
    entry, run = known.entries[slug], known.run.get(slug, {})
    nodes_ = [*known.links.tests.get(slug, []), *known.links.proofs.get(slug, [])]
    return {
        "title": entry.title,
        "source": list(entry.source),
        "place": entry.place,
        "equation_numbers": known.numbers.get(slug, []),
        "kind": entry.kind,
        "verdict": entry.verdict,
        "hypotheses": ledger.assumed(entry),
        "corrected": list(entry.corrected),
        "functions": known.links.functions.get(slug, []),
        "tests": known.links.tests.get(slug, []),
        "proofs": known.links.proofs.get(slug, []),
        "theorems": known.theorems.get(slug, []),
        "scope": run.get("scope"),
        "evidence": known.evidence(slug),
        "rests_on": sorted(known.rests_on.get(slug, ())),
        "hashes": {path: _digest(path) for path in sorted({node.partition("::")[0] for node in nodes_})},
        "outcome": known.verified(slug),
        "page": formula_address(app, "index", slug),
    }


@functools.cache
def _digest(path):
    return hashlib.sha256((ledger.ROOT / path).read_bytes()).hexdigest()


def write(app, exception):
    """Write the data, and the schema beside it."""
    if exception is None and app.builder.name == "html":
        text = json.dumps(data(app), indent=1, sort_keys=True, ensure_ascii=False)
        (Path(app.outdir) / "statements.json").write_text(text + "\n", encoding="utf-8")
        (Path(app.outdir) / SCHEMA.name).write_text(SCHEMA.read_text(encoding="utf-8"), encoding="utf-8")


def ranks(edges):
    """Give each statement its column: one more than the last of those on which it rests."""
    found = {}

    def rank(slug, above):
        if slug not in found:
            below = [other for other in edges.get(slug, ()) if other not in above]
            found[slug] = 1 + max((rank(other, {*above, slug}) for other in below), default=-1)
        return found[slug]

    for slug in sorted({*edges, *(other for used in edges.values() for other in used)}):
        rank(slug, {slug})
    return found


def kind_of_proof(lines):
    """Say how a statement is proved or refuted, by a key of `STROKES`."""
    if any("proof assistant" in line for line in lines):
        return "every size"
    if any(line.startswith("sympy, derivation") and "not compared" not in line for line in lines):
        return "compared"
    if any(line.startswith("refuted") for line in lines):
        return "refuted"
    return "shown" if any(line.startswith("sympy") for line in lines) else "nothing"


class statement_graph(nodes.General, nodes.Element):  # noqa: N801
    """The place of the graph; filled once all addresses are known."""


class StatementGraph(SphinxDirective):
    """What rests on what, as a picture."""

    def run(self):
        """Leave its place."""
        return [statement_graph()]


def fill(app, doctree, docname):
    """Draw the graph where its place is."""
    for place in list(doctree.findall(statement_graph)):
        place.replace_self(nodes.raw("", drawing(app, docname), format="html"))


def drawing(app, docname):
    """Draw statements in columns, an arrow from each to those on which it rests."""
    known = known_of(app.env)
    columns, places = {}, {}
    corrected = {slug: set(entry.corrected) for slug, entry in known.entries.items() if entry.corrected}
    edges = {slug: known.rests_on.get(slug, set()) | corrected.get(slug, set()) for slug in known.entries}
    for slug, column in sorted(ranks({slug: used for slug, used in edges.items() if used}).items()):
        row = columns[column] = columns.get(column, -1) + 1
        places[slug] = (10 + column * (WIDTH + 90), 10 + row * GAP)
    width = 10 + (1 + max(columns, default=0)) * (WIDTH + 90)
    height = 20 + (1 + max(columns.values(), default=0)) * GAP
    lines = [
        _arrow(places[slug], places[other], used=other in known.rests_on.get(slug, ()))
        for slug, others in sorted(edges.items())
        for other in sorted(others)
    ]
    boxes = [_box(app, docname, known, slug, place) for slug, place in places.items()]
    body = "".join((*lines, *boxes))
    return (
        f'<div class="statement-graph"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="What rests on what">{body}</svg></div>'
    )


def _arrow(start, end, *, used):
    (x, y), (u, v) = start, end
    x, y, u, v = x, y + HEIGHT / 2, u + WIDTH, v + HEIGHT / 2
    dashes = "" if used else ' stroke-dasharray="2 5"'
    curve = f"M{x},{y} C{x - 45},{y} {u + 45},{v} {u},{v}"
    return f'<path d="{curve}" fill="none" stroke="currentColor" opacity="0.4"{dashes}/>'


def _box(app, docname, known, slug, place):
    entry, (x, y) = known.entries[slug], place
    kind = kind_of_proof(known.evidence(slug))
    dashes = f' stroke-dasharray="{STROKES[kind]}"' if STROKES[kind] else ""
    title = html.escape(f"{entry.title}: {NAMES[entry.verdict]}, proof: {kind}")
    return (
        f'<a href="{formula_address(app, docname, slug) or "#"}" '
        f'class="verdict-{entry.verdict.replace(" ", "-")}"><title>{title}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="none" stroke="var(--c)" '
        f'stroke-width="2"{dashes}/><text x="{x + 8}" y="{y + 18}" font-size="13" fill="currentColor">'
        f"{html.escape(slug)}</text></a>"
    )


def setup(app):
    """Register the directive, and write the data at the end."""
    app.add_node(statement_graph)
    app.add_directive("statement-graph", StatementGraph)
    app.connect("doctree-resolved", fill)
    app.connect("build-finished", write)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
