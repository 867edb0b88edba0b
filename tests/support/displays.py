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
    (r"\\overbrace\{.*?\}\^\{(\\alpha|\\beta)\^\{\(l\)\}\}", r" \1^{(l)} "),
    # indices that are the same all over a display
    (r"( I (?:\s*\^\{[^}]*\})?\s*)\(\s*z_j\s*;\s*\\hat\s*\{?\\theta\}?\s*\)?", r"\1 "),
    (r"\\sum\s*_\{?z(?:\s*\\in\s*V)?\}?", r"\\sum_z "),
    (r"\\sum_\{l\s*=\s*1\}\^(?:\{L\}|L)", r"\\sum_l "),
    (r"\\sum_\{1\s*\\le\s*l\s*<\s*k\s*\\le\s*L\}", r"\\sum_{l<k} "),
    (r"_?\{z\s*,\s*j\}|_\{?x\}?(?![A-Za-z])", " "),
)
_SCRIPT = r"\s*(\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|\w)"
SCRIPTS = (
    # subscripts before superscripts, and of these one
    (rf"\^{_SCRIPT}\s*_{_SCRIPT}", r"_\2^\1 "),
    (rf"\^{_SCRIPT}[\s}}]*\^\s*", r"^\1"),
)
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[^\s{}]")


def spelled(display: str) -> str:
    """Spell a display without sizes, spaces, fonts and braces, subscripts before superscripts."""
    for pattern, spelling in SPELLINGS:
        display = re.sub(pattern, spelling, display, flags=re.DOTALL)
    # brackets around what has no sum or difference in it; their scripts belong to what is inside
    inside = r"[([]((?:(?!\\sum|\\frac)[^()\[\]+=<,-])*)[])]"
    for pattern, spelling in (*[(inside, r" \1 ")] * 3, *SCRIPTS):
        display = re.sub(pattern, spelling, display)
    return " ".join(TOKEN.findall(display))
