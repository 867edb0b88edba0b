"""The reference, from what is public.

``{exported} package``: what the package exports, in groups ``Title: name name``; the rest comes last, except
those `without`.
"""

from __future__ import annotations

import importlib
import inspect
from typing import ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from tests.support import ledger


def _source(package):
    """Return where a package's names are exported: here, or among the adapters."""
    source = ledger.ROOT / package.replace(".", "/") / "__init__.py"
    return source if source.exists() else ledger.ROOT / "adapters" / package / "__init__.py"


def bases_shown_elsewhere(path):
    """Return the names of a class's foreign and exported bases, whose methods its entry leaves out."""
    package, name = path.rsplit(".", 1)
    found = getattr(importlib.import_module(package), name)
    exported = ledger.exported_names(_source(package))
    bases = found.__mro__[1:] if inspect.isclass(found) else ()
    return [one.__name__ for one in bases if one.__name__ in exported or one.__module__[:4] != "lai_"]


class Exported(SphinxDirective):
    """The exported names, group by group; except those `without`, which another page shows."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"without": str.split}

    def run(self):
        package = self.arguments[0]
        names = ledger.exported_names(_source(package)) - set(self.options.get("without", ()))
        groups = [line.split(":", 1) for line in self.content if line.strip()]
        chosen = [(title.strip(), listed.split()) for title, listed in groups]
        rest = sorted(names - {name for _, listed in chosen for name in listed})
        text = []
        for title, listed in [*chosen, *([("More", rest)] if rest else [])]:
            text += ["", f"## {title}", "", "```{eval-rst}"]
            for name in listed:
                if name[0].isupper():
                    stops = ", ".join(bases_shown_elsewhere(f"{package}.{name}"))
                    text += [
                        f".. autoclass:: {package}.{name}",
                        "   :members:",
                        f"   :inherited-members: {stops}",
                    ]
                else:
                    text += [f".. autofunction:: {package}.{name}"]
            text += ["```"]
        place = nodes.Element()
        self.state.nested_parse(StringList(text, source=package), 0, place, match_titles=True)
        return place.children


def plain_property(app, what, name, obj, options, lines):
    """Keep napoleon from reading a type off the colon in a property's first line.

    Napoleon skips empty lines before it looks; an escaped line end is no such line, and shows nothing.
    """
    if what in {"property", "attribute"}:
        lines.insert(0, "\\ ")


def skip_default(app, what, name, obj, skip, options):
    """Skip a field whose default is a function, which autodoc takes for a method of the field's name."""
    if what == "class" and inspect.isfunction(obj) and "." not in obj.__qualname__:
        return True
    return None


def by_public_name(app, env, node, contnode):
    """Resolve the module in which a class is written to the name under which `lai_core` exports it."""
    package, _, name = node.get("reftarget", "").partition(".")
    name = name.rsplit(".", 1)[-1]
    if package != "lai_core" or name not in ledger.exported_names(ledger.ROOT / package / "__init__.py"):
        return None
    target = f"{package}.{name}"
    place = node.get("refdoc", env.docname)
    return env.domains["py"].resolve_xref(env, place, app.builder, node["reftype"], target, node, contnode)


def setup(app):
    app.add_directive("exported", Exported)
    app.connect("autodoc-process-docstring", plain_property, priority=1)
    app.connect("autodoc-skip-member", skip_default)
    app.connect("missing-reference", by_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
