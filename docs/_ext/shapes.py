"""Parameters in the reference: their shapes and types, from annotations, and what others say of them.

A docstring leaves the parameters that it does not describe to the section *Parameters* of its module's
docstring, if that describes them all. "As for `trace`." becomes a link to `trace`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import UnionType
from typing import Any, get_args, get_origin

from sphinx.ext.napoleon import NumpyDocstring

PARAMETER = re.compile(r"^:param (\w+):")
REFERRED = re.compile(r"(\bAs (?:for|in) )(`[\w.]+`)")
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


def kind(annotation: Any) -> str:
    """Write a type, names without modules; nothing where anything goes, or where it is too long to read."""
    if annotation in (inspect.Parameter.empty, Any):
        return ""
    written = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", written).replace("NoneType", "None")
    text = re.sub(r"Literal\['[^\]]*\]", "str", text)
    if union := re.fullmatch(r"Union\[([^\[\]]*)\]|Optional\[([^\[\]]*)\]", text):
        text = union[1].replace(", ", " | ") if union[1] else f"{union[2]} | None"
    return "" if len(text) > 60 or re.search(r"[~<]|Array|\bAny$", text) else text


def with_shapes(lines: list[str], function: Any) -> Iterator[str]:
    """Add to the fields of parameters and of what is returned the shapes that the annotations name."""
    signature = inspect.signature(function)
    for line in lines:
        if (found := PARAMETER.match(line)) and found[1] in signature.parameters:
            annotation = signature.parameters[found[1]].annotation
            if text := shape(annotation) or kind(annotation):
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
    own, rest = fields(lines)
    glossary = inspect.getdoc(import_module(function.__module__)) or ""
    known, _ = fields(NumpyDocstring(glossary, config, what="module").lines())
    if not known:
        return lines
    signature = inspect.signature(function)
    left = set(signature.parameters) - set(own)
    if not left or not left <= set(known):
        return lines
    added = [line for name in signature.parameters for line in own.get(name) or known[name]]
    if not any(line.startswith(":returns:") for line in rest) and shape(signature.return_annotation):
        several = get_origin(signature.return_annotation) is tuple
        added.append(f":returns: *{'tuple of arrays' if several else 'array'}*")
    start = next((at for at, line in enumerate(rest) if FIELD.match(line)), len(rest))
    return [*rest[:start], "", *added, "", *rest[start:]]


def show_shapes(app, what, name, obj, options, lines):
    """Complete the fields that napoleon has made of a docstring, and write shapes into them."""
    if what in {"function", "method", "class"}:
        lines[:] = [REFERRED.sub(r"\1:py:obj:\2", line) for line in with_glossary(lines, obj, app.config)]
        if any(map(PARAMETER.match, lines)):
            lines[:] = with_shapes(lines, obj)


def setup(app):
    app.connect("autodoc-process-docstring", show_shapes, priority=800)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
