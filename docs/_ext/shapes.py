"""Shapes in the reference: written once, in a signature's annotations, and shown with each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, get_args, get_origin

PARAMETER = re.compile(r"^:param (\w+):")
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


def show_shapes(app, what, name, obj, options, lines):
    """Write shapes into the fields that napoleon has made of a docstring."""
    if what in {"function", "class"} and any(map(PARAMETER.match, lines)):
        lines[:] = with_shapes(lines, obj)


def setup(app):
    """Look at docstrings after napoleon."""
    app.connect("autodoc-process-docstring", show_shapes, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
