"""``{compatibility-counts}``, ``{compatibility-reasons}``: the counts that the suites pinned, as tables."""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

COUNTS = Path(__file__).parents[2] / "benchmarks" / "compatibility" / "counts.json"
ESTIMATORS = {"ghost": "Ghost", "exact": "`exact_scores`", "lai": "LAI"}
VERDICTS = ("exact", "refused", "wrong", "crash", "unfit")
MOST = 8


class _Table(SphinxDirective):
    has_content = False

    def run(self):
        """Parse the table that `rows` makes of the committed counts."""
        self.env.note_dependency(str(COUNTS))
        rows = self.rows(json.loads(COUNTS.read_text()))
        lines = ["| " + " | ".join(cells) + " |" for cells in (self.head, ["---"] * len(self.head), *rows)]
        place = nodes.container()
        self.state.nested_parse(StringList(lines, source=str(COUNTS)), self.content_offset, place)
        return place.children


class Counts(_Table):
    """Per suite and estimator, how many cases came to what."""

    head = ("suite", "cases", "estimator", *VERDICTS)

    def rows(self, pinned):
        """Return the cells."""
        return [
            (_suite(suite, entry), str(entry["cases"]), name, *(str(counts.get(v, 0)) for v in VERDICTS))
            for suite, entry in pinned.items()
            for estimator, name in ESTIMATORS.items()
            if (counts := entry["counts"][estimator])
        ]


class Reasons(_Table):
    """Per suite, the most frequent reasons of refusals, and of cases that ask nothing."""

    head = ("suite", "estimator", "verdict", "cases", "reason, and an example")

    def rows(self, pinned):
        """Return the cells."""
        return [
            (suite, ESTIMATORS.get(each["estimator"], "all"), each["verdict"], str(each["cases"]), _why(each))
            for suite, entry in pinned.items()
            for each in entry["reasons"][:MOST]
        ]


def _suite(suite, entry):
    return suite if entry["every"] == 1 else f"{suite} (every {entry['every']}th case)"


def _why(each):
    text = f"{each['reason']} (`{each['example']}`)"
    return text.replace("|", "\\|").replace("<", "\\<").replace("$", "\\$").replace("[", "\\[")


def setup(app):
    """Register the directives."""
    app.add_directive("compatibility-counts", Counts)
    app.add_directive("compatibility-reasons", Reasons)
    return {"version": "1", "parallel_read_safe": True}
