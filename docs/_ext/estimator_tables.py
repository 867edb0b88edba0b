"""``{estimators} choosing`` and ``{estimators} options``: the catalogue of estimators as tables."""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from lai_core.estimators.catalogue import CATALOGUE

BACKWARD = {"all": "through the whole model", "output": "to the last layer's output", None: "none"}

KEPT = {
    "summary": "a summary of fixed size",
    "traces": "every sample's trace",
    "gradient": "its summed gradient",
    "samples": "its samples: traced anew at each step",
}

NEEDS = {
    "second_moment": "the output gradients' second moment",
    "gates": "the activations' derivatives",
    "fits_weights": "Ghost on some validation samples",
    "learning_rate": "the step's learning rate",
}

TABLES = {
    "choosing": {
        "sees": lambda each: each.meaning,
        "cost beside plain training": lambda each: each.cost,
        "backward pass": lambda each: BACKWARD[each.gradients],
        "kept of the validation set": lambda each: KEPT[each.keeps],
    },
    "options": {
        "also needs": lambda each: next((text for name, text in NEEDS.items() if getattr(each, name)), ""),
        **{
            title: lambda each, name=name: "yes" if getattr(each, name) else ""
            for title, name in {
                "`positions`, layer weights": "positions",
                "`sketch`": "sketch",
                "one forward pass for scoring and training": "shared_forward",
                "`chunk`": "chunks",
                "`'batch+self'`": "batch_as_validation",
                "`'batch'`": "exclude_self",
            }.items()
        },
        "unit": lambda each: each.unit,
    },
}


class Estimators(SphinxDirective):
    """One row an estimator."""

    required_arguments = 1

    def run(self):
        """Write the table and parse it."""
        place = nodes.Element()
        text = StringList(table(self.arguments[0]), source="lai_core.estimators.catalogue")
        self.state.nested_parse(text, 0, place)
        return place.children


def table(name):
    """Return the lines of a table in markdown."""
    columns = TABLES[name]
    lines = [["estimator", *columns], ["---"] * (1 + len(columns))]
    lines += [[f"`{each.name}`", *(cell(each) for cell in columns.values())] for each in CATALOGUE]
    return ["| " + " | ".join(line) + " |" for line in lines]


def setup(app):
    """Register the directive."""
    app.add_directive("estimators", Estimators)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
