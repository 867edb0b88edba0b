"""``{computed} module:function arguments``: what a function of the repository returns, as the page is built.

A text is markdown. A matplotlib figure, or a mapping of figures by name, is drawn as SVG, with ``:alt:`` for
who does not see it. The functions read committed records: nothing trains here.
"""

from __future__ import annotations

import importlib
from typing import ClassVar

import matplotlib
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger

DRAWN = ledger.ROOT / "build" / "drawn"
STYLE = ledger.ROOT / "docs" / "matplotlibrc"


class Computed(SphinxDirective):
    """Call the function, and show what it returns."""

    required_arguments = 1
    optional_arguments = 9
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self):
        where, *arguments = self.arguments
        module, _, function = where.partition(":")
        with matplotlib.rc_context(fname=STYLE):
            found = getattr(importlib.import_module(module), function)(*arguments)
            if isinstance(found, str):
                place = nodes.Element()
                self.state.nested_parse(StringList(found.splitlines(), source=where), 0, place)
                return place.children
            figures = found if isinstance(found, dict) else {"": found}
            name = "-".join([*where.replace(":", ".").split("."), *arguments])
            return [self.picture(figure, f"{name}-{key}".strip("-")) for key, figure in figures.items()]

    def picture(self, figure, name):
        """Save a figure, and return the image that links to it."""
        if "alt" not in self.options:
            raise self.error("computed: expected :alt:, which says what the figure shows")
        DRAWN.mkdir(parents=True, exist_ok=True)
        path = DRAWN / f"{name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None})
        image = nodes.image(uri=f"/../{path.relative_to(ledger.ROOT)}", alt=self.options["alt"].strip('"'))
        image["classes"] = ["drawn"]
        return image


def setup(app):
    matplotlib.use("agg")
    app.add_directive("computed", Computed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
