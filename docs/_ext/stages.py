"""``{stages} title``: the stages of a step as a picture, and a table of the file behind each.

A line a stage: ``name | what happens | path::definition | what it hands on``. The definition must exist, so
that the page cannot name a file that has moved. ``:back:`` labels an arrow from the last stage to the first.
"""

from __future__ import annotations

import ast
import html
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger

WIDTH, BOX, GAP, TOP, HEIGHT = 900, 130, 80, 10, 54


class Stages(SphinxDirective):
    """A row of boxes with arrows between them, and the table below it."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"back": directives.unchanged}
    has_content = True

    def run(self):
        """Draw the picture, write the table and parse it."""
        stages = [[part.strip() for part in line.split("|")] for line in self.content if line.strip()]
        for _, _, where, _ in stages:
            check_defined(where)
        title = self.arguments[0]
        drawn = svg(title, stages, self.options.get("back", ""))
        picture = nodes.raw("", f'<div class="stages">{drawn}</div>', format="html")
        place = nodes.Element()
        self.state.nested_parse(StringList(table(stages), source=title), 0, place)
        return [picture, *place.children]


def check_defined(where):
    """Raise unless a `path::definition` is there."""
    path, _, name = where.partition("::")
    tree = ast.parse((ledger.ROOT / path).read_text(encoding="utf-8"))
    if name not in {found for found, _ in ledger.definitions(tree)}:
        msg = f"stages: expected {name!r} to be defined in {path}"
        raise ValueError(msg)


def table(stages):
    """Return the lines of the table."""
    rows = [
        f"| {name} | {what} | `{where.partition('::')[2]}` in `{where.partition('::')[0]}` |"
        for name, what, where, _ in stages
    ]
    return ["", "| stage | what happens | where |", "|---|---|---|", *rows, ""]


def svg(title, stages, back):
    """Return the picture: text that a screen reader reads, lines in the page's own colour."""
    said = " ".join(f"{name}: {what}; it hands on {handed}." for name, what, _, handed in stages)
    middle, bottom = TOP + HEIGHT / 2, TOP + HEIGHT
    parts = [_text(GAP / 2 - 4, middle - 8, "a batch"), _arrow(6, middle, GAP - 6)]
    for index, (name, _, _, handed) in enumerate(stages):
        left = GAP + index * (BOX + GAP)
        box = f'x="{left}" y="{TOP}" width="{BOX}" height="{HEIGHT}" rx="6"'
        parts.append(f'<rect {box} fill="none" stroke="currentColor" stroke-width="1.5"/>')
        parts.append(_text(left + BOX / 2, middle + 5, name, "600 15px"))
        parts.append(_arrow(left + BOX + 4, middle, left + BOX + GAP - 6))
        parts.append(_text(left + BOX + GAP / 2, middle - 8, handed))
    width = GAP + len(stages) * (BOX + GAP)
    if back:
        start, end, low = width - GAP - BOX / 2, GAP + BOX / 2, bottom + 34
        path = f"M{start} {bottom + 2} V{low} H{end} V{bottom + 12}"
        parts.append(f'<path d="{path}" fill="none" stroke="currentColor" stroke-dasharray="5 4"/>')
        parts.append(_head(end, bottom + 4, "up"))
        parts.append(_text((start + end) / 2, low - 8, back))
        said += f" Then {back} goes from the last stage back to the first."
    return (
        f'<svg role="img" viewBox="0 0 {width} {bottom + 48}" width="100%" style="max-width:{WIDTH}px" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{html.escape(title)}</title>'
        f"<desc>{html.escape(said)}</desc>{''.join(parts)}</svg>"
    )


def _text(x, y, words, font="13px"):
    style = f'fill="currentColor" style="font:{font} sans-serif"'
    return f'<text x="{x}" y="{y}" text-anchor="middle" {style}>{html.escape(words)}</text>'


def _arrow(x, y, end):
    line = f'<line x1="{x}" y1="{y}" x2="{end - 6}" y2="{y}" stroke="currentColor"/>'
    return line + _head(end, y, "right")


def _head(x, y, towards):
    right, up = ((x, y), (x - 9, y - 5), (x - 9, y + 5)), ((x, y), (x - 5, y + 9), (x + 5, y + 9))
    points = " ".join(f"{a},{b}" for a, b in (right if towards == "right" else up))
    return f'<polygon points="{points}" fill="currentColor"/>'


def setup(app):
    """Register the directive."""
    app.add_directive("stages", Stages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
