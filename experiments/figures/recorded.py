"""What small networks gave once: figures and tables of the theory pages, from their committed records.

Commit `18ce3ef9` is the last that has the code which trained them: `python -m experiments figures` and
`python -m experiments measured`.
"""

from typing import Any

from matplotlib.figure import Figure

from experiments.figures import pictures
from experiments.harness import record as records
from experiments.harness.page import markdown

DEPTHS, RATES, RATE = (2, 3, 4, 6, 8, 12), (0.1, 0.3, 1.0, 2.0, 5.0), 0.1
"""Layers; learning rates of the one step; the rate of false discoveries of `drop_harmful`."""
CONSTANTS = {
    "layers": "layers",
    "rho": r"$\rho$",
    "C_a": "$C_a$",
    "alpha_bar": r"$\bar\alpha$",
    "gain_low": "least gain",
    "gain_high": "largest gain",
    "opposing_share": "pairs that oppose in a layer",
    "relative_error": r"LAI's error / \|LAI\|",
    "conservative_over_gap": "conservative bound / error",
    "geometric_over_gap": "printed geometric bound / error",
    "relative_bound": "printed relative bound",
}
ADVICE = {
    "understated": r"\|LAI\| < \|Ghost\|",
    "signs_differ": "signs differ",
    "regret_batch": "regret, `batch`",
    "regret_kept": "regret, `kept`",
    "sign_rule_kept": "Ghost's own, `kept`",
    "adam_ghost": "Adam: Ghost",
    "adam_lai": "LAI",
    "adam_printed": "printed",
    "adam_outputs": "outputs, 0.5",
    "adam_both": "both factors",
}
CERTIFICATES = {
    "signs": "signs certain",
    "orders": "orders certain",
    "bound_over_missing": "bound / what is missing",
    "certified_regret": "certified regret / best",
}


def read(name: str) -> dict[str, Any]:
    """Return a committed record, `figures` or `measured`."""
    return records.read(records.RESULTS / "theory" / f"{name}.json")


def draw_depth() -> Figure:
    """Draw the errors, one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(2, height=2.8, sharey=True)
    for axes, (steps, curves) in zip(panels, read("figures")["depth"].items(), strict=True):
        pictures.lines(axes, DEPTHS, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="layers", ylim=(0, 1.1))
    pictures.label(panels[0], ylabel="median of |error| / |Ghost|")
    pictures.legend(panels[0])
    return figure


def error_bars_table() -> str:
    """Write the committed record as two tables in markdown."""
    found = read("figures")["error_bars"]
    intervals = {name: row for name, row in found.items() if "held" in row}
    narrow = min(row["width"] for row in intervals.values())
    held = [(name, f"{row['held']:.1%}", f"{row['width'] / narrow:.2f}") for name, row in intervals.items()]
    policies = [
        (name, *(f"{share:.1%}" for share in row.values()))
        for name, row in found.items()
        if name not in intervals
    ]
    heads = (
        ("95% interval", "holds the mean", "width, the narrowest = 1"),
        (f"policy (`rate={RATE}`)", "of the harmful, dropped", "of the dropped, harmless"),
    )
    return "\n\n".join(markdown(*table) for table in zip(heads, (held, policies), strict=True))


def draw_one_step() -> Figure:
    """Draw one panel for each moment of training, from the committed record."""
    figure, panels = pictures.figure(3, height=3.0, sharey=True)
    for axes, (steps, curves) in zip(panels, read("figures")["one_step"].items(), strict=True):
        axes.axhline(0, color=pictures.INK, lw=0.8)
        pictures.lines(axes, RATES, curves)
        title = "untrained" if steps == "0" else f"after {steps} steps"
        pictures.label(axes, title=title, xlabel="learning rate", xscale="log", ylim=(-0.75, 1.03))
    pictures.label(panels[0], ylabel="correlation with the true value")
    handles, look = panels[0].get_legend_handles_labels(), {"fontsize": 8.5, "labelcolor": pictures.INK}
    figure.legend(*handles, loc="outside lower center", ncols=6, frameon=False, **look)
    return figure


def measured_tables() -> str:
    """Return all three, and where they come from."""
    found = read("measured")
    parts = [
        "## The constants, and each printed bound beside the truth",
        _table("network", CONSTANTS, found["constants"]),
        "Each layer's inputs and output gradients are one vector a sample; medians over samples.",
        "## The advice",
        _table("network", ADVICE, found["advice"]),
        "Shares of samples; regrets over the best; correlations with the derivative of Adam's step.",
        "## The certificates",
        _table("chain on digits", CERTIFICATES, found["certificates"]),
        f"`{found['command']}` of commit `18ce3ef9`; {found['machine']}.",
    ]
    return "\n\n".join(parts)


def _table(first: str, columns: dict[str, str], rows: dict[str, dict[str, Any]]) -> str:
    lines = [[name, *(_written(row[key]) for key in columns)] for name, row in rows.items()]
    return markdown([first, *columns.values()], lines)


def _written(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
