"""`python -m experiments measured`: measure, show, and write JSON; the committed numbers as tables."""

import json
import platform
from pathlib import Path
from typing import Any

import click
import torch

from experiments.harness.page import markdown
from experiments.measured.study import advice, certificates, constants, networks

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


@click.command(help="Constants, advice and certificates of the theory on trained networks.")
@click.option("--only", default="", help="The networks whose name begins so; the others' numbers stay.")
@click.option("--out", type=Path, default=Path("build/experiments/measured.json"), show_default=True)
def measured(only: str, out: Path) -> None:
    """Run all three, or the first two on some networks."""
    found: dict[str, Any] = {"constants": {}, "advice": {}}
    if only and out.exists():
        found = json.loads(out.read_text(encoding="utf-8"))
    found["command"] = f"python -m experiments measured --out {out.as_posix()}"  # makes every row
    found["machine"] = f"{platform.machine()}, {platform.system()}, torch {torch.__version__}"
    for name, network in networks(only):
        found["constants"][name] = constants(network)
        found["advice"][name] = advice(network)
        click.echo(f"{name}: {json.dumps(found['constants'][name] | found['advice'][name])}")
    if not only:
        found["certificates"] = dict(certificates())
        click.echo(json.dumps(found["certificates"], indent=1))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


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
    lines = [[name, *(_written(row[key]) for key in columns)] for name, row in rows.items()]
    return markdown([first, *columns.values()], lines)


def _written(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
