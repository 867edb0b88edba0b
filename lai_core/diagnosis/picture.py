"""A picture of a diagnosis that a phone can show: the longest rows, and where the first one is long."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from textwrap import TextWrapper
from typing import Any

WIDTH, LINE, GAP, MARGIN = 360, 18, 4, 12
BAR_START, BAR_WIDTH = 128, 150
ROWS, LAYERS = 10, 6
NAMED, OTHER = "#b3261e", "#6b7a90"


def draw(diagnosis: Any) -> str:
    """Return a diagnosis as SVG."""
    rows = diagnosis.rows()
    first = rows[0]["row"]
    broken = TextWrapper(54, subsequent_indent="  ", break_on_hyphens=False)
    said = str(diagnosis).splitlines()
    lines = [part for line in said for part in broken.wrap(line)]
    bars = [
        (_name(one), one["norm"], say_percent(one["share"]), one["row"] in diagnosis.named)
        for one in rows[:ROWS]
    ]
    parts = [*_text(lines, 0)]
    height = (len(lines) + 1) * LINE
    blocks = [("gradient norm, share of the batch's gradient", bars)]
    known = math.isfinite(rows[0]["norm"])  # of a row that is not finite no part has a length
    if known:
        norms = {name: float(norms[first]) for name, norms in diagnosis.layer_norms.items()}
        longest = sorted(norms, key=norms.__getitem__, reverse=True)[:LAYERS]
        parts_of_first = [(name, norms[name], "", True) for name in longest]
        blocks.append((f"row {first} by parameter", parts_of_first))
    for title, block in blocks:
        parts += _text([title], height, "bold")
        height += LINE + GAP
        parts += _bars(block, height)
        height += (len(block) + 1) * LINE
    if known and diagnosis.position_norms is not None:
        values = [float(one) for one in diagnosis.position_norms[first, :]]
        parts += _text([f"row {first} by position, 0 to {len(values) - 1}"], height, "bold")
        height += LINE + GAP
        parts += _columns(values, height)
        height += 4 * LINE
    body = "".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + MARGIN}" '
        f'width="{WIDTH}" font-family="sans-serif" font-size="12" role="img">'
        f"<title>{escape(said[0])}</title>"
        f'<rect width="100%" height="100%" fill="white"/>{body}</svg>'
    )


def say_percent(share: float) -> str:
    """Return a share in percent; what rounds to 0 has no sign."""
    return f"{share:.0%}".replace("-0%", "0%")


def _name(row: dict[str, Any]) -> str:
    return f"row {row['row']}" if row["id"] is None else f"{row['row']}: {row['id']}"


def _text(lines: Sequence[str], top: int, weight: str = "normal") -> Iterator[str]:
    for number, line in enumerate(lines):
        y = top + (number + 1) * LINE
        yield f'<text x="{MARGIN}" y="{y}" font-weight="{weight}" fill="#1c1b1f">{escape(line)}</text>'


def _bars(block: Sequence[tuple[str, float, str, bool]], top: int) -> Iterator[str]:
    longest = max((norm for _, norm, _, _ in block if math.isfinite(norm)), default=0.0) or 1.0
    for number, (name, norm, share, named) in enumerate(block):
        y = top + number * LINE
        finite = math.isfinite(norm)
        width = BAR_WIDTH * norm / longest if finite else 0.0
        label = name if len(name) <= 17 else "…" + name[-16:]
        value = f"{norm:.3g} {share}".strip() if finite else "not finite"
        yield f'<text x="{MARGIN}" y="{y + 13}" fill="#1c1b1f">{escape(label)}</text>'
        yield (
            f'<rect x="{BAR_START}" y="{y + 3}" width="{max(width, 1):.1f}" height="12" '
            f'fill="{NAMED if named else OTHER}"/>'
        )
        x = BAR_START + width + 4
        yield f'<text x="{x:.1f}" y="{y + 13}" fill="#1c1b1f">{escape(value)}</text>'


def _columns(values: Sequence[float], top: int) -> Iterator[str]:
    longest = max(values) or 1.0
    each = (WIDTH - 2 * MARGIN) / len(values)
    for number, value in enumerate(values):
        height = 3 * LINE * value / longest
        yield (
            f'<rect x="{MARGIN + number * each:.2f}" y="{top + 3 * LINE - height + 4:.1f}" '
            f'width="{max(each * 0.9, 0.5):.2f}" height="{max(height, 0.5):.1f}" fill="{NAMED}"/>'
        )
