"""The committed numbers as tables in markdown."""

import json
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent / "measured.json"

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


def tables() -> str:
    """Return all three, and where they come from."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    parts = [
        "## The constants, and each printed bound beside the truth",
        _table("network", CONSTANTS, found["constants"]),
        "Each layer's inputs and output gradients are one vector a sample; medians over samples.",
        "## The advice",
        _table("network", ADVICE, found["advice"]),
        "Shares of samples; regrets over the best; correlations with the derivative of Adam's step.",
        "## The certificates",
        _table("chain on digits", CERTIFICATES, found["certificates"]),
        f"`{found['command']}`; {found['machine']}.",
    ]
    return "\n\n".join(parts)


def _table(first: str, columns: dict[str, str], rows: dict[str, dict[str, Any]]) -> str:
    lines = [[first, *columns.values()], ["---"] * (1 + len(columns))]
    lines += [[name, *(_written(row[key]) for key in columns)] for name, row in rows.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _written(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
