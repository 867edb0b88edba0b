"""Displays in one spelling: where two of them still differ, they differ in what they say."""

from __future__ import annotations

import re

SPELLINGS = (
    # what typesets without saying anything
    (r"\\label\{[^}]*\}|\\vspace\{[^}]*\}|\\(?:begin|end)\{[a-z]+\}(?:\[[^\]]*\])?", " "),
    (r"\\(?:[bB]igg?[lrm]?|left|right|nolimits|nonumber|textstyle|medskip)(?![A-Za-z])", " "),
    (r"\\text\{ from Eq.*", " "),
    (r"\\(?:qquad|quad)|\\[,;:!\s]|\\\\|[&~]|\{\}", " "),
    (r"\\text\{exactly\.\}|[.,]\s*$", " "),
    # fonts and names
    (r"\\(?:operatorname|mathrm|textup|mathbf|textbf|mathcal|mathbb)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\(Ghost|LAI|Var|Cov|tr|E|R)(?![A-Za-z])", r" \1 "),
    (r"\{([-+<>=])\}|\\cdot(?![A-Za-z])", r" \1 "),
    (r"\\Hat(?![A-Za-z])", r"\\hat"),
    (r"\\overline(?![A-Za-z])", r"\\bar"),
    (r"\\lVert|\\rVert|\\\|(?:_2)?", " ‖ "),
    (r"\\norm\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", r" ‖ \1 ‖ "),
    (r"\\ip\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}", r" \\langle \1, \2 \\rangle "),
    (r"\\forall", r"\\text{for all}"),
    (r"\\text\{([^{}]*)\}", r" \1 "),
    (r"\\overbrace\{.*?\}\^\{(\\alpha|\\beta)\^\{\(l\)\}\}", r" \1^{(l)} "),
    (r"\\lt(?![A-Za-z])", "<"),
    (r"\\top", "T"),
    # indices that are the same all over a display
    (r"( I (?:\s*\^\{[^}]*\})?\s*)\(\s*z_j\s*;\s*\\hat\s*\{?\\theta\}?\s*\)?", r"\1 "),
    (r"\\sum\s*_\{?z(?:\s*\\in\s*V)?\}?", r"\\sum_z "),
    (r"\\sum_\{l\s*=\s*1\}\^(?:\{L\}|L)", r"\\sum_l "),
    (r"\\sum_\{1\s*\\le\s*l\s*<\s*k\s*\\le\s*L\}", r"\\sum_{l<k} "),
    (r"_?\{z\s*,\s*j\}|_\{?x\}?(?![A-Za-z])", " "),
)
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\S")


def spelled(display: str) -> str:
    """Spell a display without sizes, spaces and fonts, superscripts before subscripts."""
    for pattern, spelling in SPELLINGS:
        display = re.sub(pattern, spelling, display, flags=re.DOTALL)
    # brackets around what has no sum or difference in it; their scripts belong to what is inside
    inside = r"[([]((?:(?!\\sum|\\frac)[^()\[\]+=<,-])*)[])]"
    for _ in range(3):
        display = re.sub(inside, r" \1 ", display)
    return " ".join(_read(TOKEN.findall(display)))


def _read(tokens: list[str]) -> list[str]:
    """Gather the scripts of every token, whatever their order, and drop braces."""
    found: list[str] = []
    scripts: dict[str, list[str]] = {"^": [], "_": []}
    place = 0
    while place < len(tokens):
        token = tokens[place]
        if token in scripts:
            group, place = _group(tokens, place + 1)
            scripts[token] += group
            continue
        found += _written(scripts)
        if token not in "{}":
            found.append(token)
        place += 1
    return found + _written(scripts)


def _group(tokens: list[str], place: int) -> tuple[list[str], int]:
    """Give what is in the braces that open here, or the one token, and the place behind it."""
    if tokens[place] != "{":
        return [tokens[place]], place + 1
    depth, end = 1, place + 1
    while depth:
        depth += {"{": 1, "}": -1}.get(tokens[end], 0)
        end += 1
    return _read(tokens[place + 1 : end - 1]), end


def _written(scripts: dict[str, list[str]]) -> list[str]:
    written = [item for mark in "^_" if scripts[mark] for item in (mark, *scripts[mark])]
    scripts.update({"^": [], "_": []})
    return written
