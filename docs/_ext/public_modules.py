"""A section for every public module: the directive ``{public-modules} package``."""

from __future__ import annotations

import ast

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger


class PublicModules(SphinxDirective):
    """A section for every public module of a package whose names the package does not export."""

    required_arguments = 1

    def run(self):
        """Write the sections and parse them."""
        package = self.arguments[0]
        folder = ledger.ROOT / package
        exported = ledger.exported_names(folder / "__init__.py")
        text = []
        modules = [path for path in folder.glob("[!_]*") if path.suffix == ".py" or path.is_dir()]
        for path in sorted(modules):
            source = path / "__init__.py" if path.is_dir() else path
            tree = ast.parse(source.read_text(encoding="utf-8"))
            names = {name for name, _ in ledger.definitions(tree) if name[0] != "_" and "." not in name}
            if path.is_dir() or names - exported:
                module = f"{package}.{path.stem}"
                text += ["", f"## `{module}`", "", "```{eval-rst}", f".. automodule:: {module}"]
                text += ["   :members:", *(["   :imported-members:"] if path.is_dir() else []), "```"]
        place = nodes.Element()
        self.state.nested_parse(StringList(text, source=package), 0, place, match_titles=True)
        return place.children


def plain_property(app, what, name, obj, options, lines):
    """Keep napoleon from reading a type off the colon in a property's first line."""
    if what == "property":
        lines.insert(0, "")


def setup(app):
    """Register the directive, and look at docstrings before napoleon does."""
    app.add_directive("public-modules", PublicModules)
    app.connect("autodoc-process-docstring", plain_property, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
