"""Parameters in the reference: their shapes, from annotations, and what a module's glossary says of them.

A docstring that says ``Arguments: :mod:`lai_core.bounds` `` leaves the parameters that it does not describe
to the section *Parameters* of that module's docstring.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import UnionType
from typing import Any, get_args, get_origin

from sphinx.ext.napoleon import NumpyDocstring

GLOSSARY = re.compile(r" ?Arguments: :mod:`([\w.]+)`\.")
PARAMETER = re.compile(r"^:param (\w+):")
FIELD = re.compile(r":(returns|raises)\b|\.\. rubric::")
RETURNED = re.compile(r"^:returns: \*(?:tuple of arrays|array)\*")


def shape(annotation: Any) -> str:
    """Write the axes that an annotation names, `(n_val, n_train)`; nothing where it names none."""
    if hasattr(annotation, "dim_str"):
        axes = annotation.dim_str.split()
        return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"
    arguments, origin = get_args(annotation), get_origin(annotation)
    parts = [part for part in map(shape, arguments) if part]
    several = Ellipsis in arguments or origin in (Sequence, Mapping)
    return ("each " if several and parts else "") + (" or " if origin is UnionType else ", ").join(parts)


def with_shapes(lines: list[str], function: Any) -> Iterator[str]:
    """Add to the fields of parameters and of what is returned the shapes that the annotations name."""
    signature = inspect.signature(function)
    for line in lines:
        if (found := PARAMETER.match(line)) and found[1] in signature.parameters:
            if text := shape(signature.parameters[found[1]].annotation):
                yield f":type {found[1]}: ``{text}``"
        elif (found := RETURNED.match(line)) and (text := shape(signature.return_annotation)):
            line = f"{found[0]} ``{text}``{line[found.end() :]}"
        yield line


def fields(lines: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Take the fields of parameters out of what napoleon has made of a docstring: by name, and the rest."""
    found: dict[str, list[str]] = {}
    rest, current = [], None
    for line in lines:
        if named := PARAMETER.match(line):
            current = found.setdefault(named[1], [])
        elif not line.startswith(" "):
            current = None
        (rest if current is None else current).append(line)
    return found, rest


def with_glossary(lines: list[str], function: Any, config: Any) -> list[str]:
    """Add the fields that a docstring leaves to a module's, in the order of the signature."""
    if (named := GLOSSARY.search("\n".join(lines))) is None:
        return lines
    own, rest = fields([GLOSSARY.sub("", line) for line in lines])
    glossary = inspect.getdoc(import_module(named[1])) or ""
    known, _ = fields(NumpyDocstring(glossary, config, what="module").lines())
    signature = inspect.signature(function)
    added = [line for name in signature.parameters for line in own.get(name) or known[name]]
    if not any(line.startswith(":returns:") for line in rest) and shape(signature.return_annotation):
        several = get_origin(signature.return_annotation) is tuple
        added.append(f":returns: *{'tuple of arrays' if several else 'array'}*")
    start = next((at for at, line in enumerate(rest) if FIELD.match(line)), len(rest))
    return [*rest[:start], "", *added, "", *rest[start:]]


def show_shapes(app, what, name, obj, options, lines):
    """Complete the fields that napoleon has made of a docstring, and write shapes into them."""
    if what in {"function", "class"}:
        lines[:] = with_glossary(lines, obj, app.config)
        if any(map(PARAMETER.match, lines)):
            lines[:] = with_shapes(lines, obj)


def setup(app):
    """Look at docstrings after napoleon."""
    app.connect("autodoc-process-docstring", show_shapes, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
