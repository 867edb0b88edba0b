"""The table a person reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from experiments.noisy_labels.recipe import METHODS, REFERENCES


def methods_table(
    methods: Mapping[str, Mapping[str, Any]], references: Mapping[str, Mapping[str, Any]], title: str
) -> Table:
    """Lay the methods out, and below them plain training on other samples; shares in percent."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("", no_wrap=True)
    for name in ("accuracy", "stopped\nearly", "kept", "flipped\nof kept", "seconds", "times\nplain"):
        table.add_column(name, justify="right", no_wrap=True)
    for method in METHODS:
        row = methods[method.name]
        table.add_row(
            method.title,
            _with_deviation(row, "accuracy"),
            _with_deviation(row, "early_stopped"),
            _percent(row["kept_share"]),
            _percent(row["flipped_share_of_kept"]),
            f"{row['seconds']:.2f}",
            f"{row['seconds_ratio']:.1f}",
        )
    table.add_section()
    for method in REFERENCES:
        row = references[method.name]
        table.add_row(method.title, _with_deviation(row, "accuracy"), _with_deviation(row, "early_stopped"))
    return table


def markdown(methods: Mapping[str, Mapping[str, Any]]) -> str:
    """Return README's table of the methods."""
    lines = [
        "| method | accuracy after the last epoch | at the best validation epoch | samples kept "
        "| flipped labels among the kept |",
        "|---|---|---|---|---|",
    ]
    for method in METHODS:
        row = methods[method.name]
        shares = (_percent(row[key]) for key in ("kept_share", "flipped_share_of_kept"))
        cells = (_with_deviation(row, "accuracy"), _with_deviation(row, "early_stopped"), *shares)
        lines.append(f"| {method.title} | " + " | ".join(f"{cell} %" for cell in cells) + " |")
    return "\n".join(lines)


def claims_table(claims: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out what is claimed, what was found and whether it holds."""
    table = Table(box=None, pad_edge=False)
    table.add_column("claim")
    for name in ("found", "bound", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for claim in claims:
        verdict = Text("holds", "green") if claim["holds"] else Text("DOES NOT HOLD", "bold red")
        found, bound = (_percent(claim[key]) for key in ("value", "bound"))
        table.add_row(claim["claim"], found, bound, verdict)
    return table


def _with_deviation(row: Mapping[str, Any], name: str) -> str:
    return f"{_percent(row[f'{name}_mean'])} ± {_percent(row[f'{name}_std'])}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
