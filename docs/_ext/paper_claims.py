"""The directive ``{paper-claims}``: the paper's sentences about its tables, with what the tables give."""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from tests.support.paper_claims import CLAIMS


class PaperClaims(SphinxDirective):
    """One row a claim."""

    def run(self):
        """Write the table and parse it."""
        rows = ["| the text | where | the table gives | |", "|---|---|---|---|"]
        for claim in CLAIMS:
            gives = ": ".join(filter(None, (claim.figures, claim.remark)))
            verdict = "holds" if claim.verdict else "**does not hold**"
            rows.append(f"| {_quoted(claim.said)} | {claim.place} | {gives} | {verdict} |")
        place = nodes.Element()
        self.state.nested_parse(StringList(rows, source="paper_claims"), 0, place)
        return place.children


def _quoted(said: str) -> str:
    """Quote words; what stands in parentheses is none of the paper's."""
    return said if said.startswith("(") else f"“{said}”"


def setup(app):
    """Register the directive."""
    app.add_directive("paper-claims", PaperClaims)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
