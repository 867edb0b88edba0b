"""Scores of a data set as one page that opens in a browser.

Needs the extra `dataset`.
"""

import io
from base64 import b64encode
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.image import imsave

__all__ = ["write_report"]

EMPTY = {
    "gradient_norm": "only ghost, lli, and lai without a sketch compute it",
    "standard_error": "it needs a validation set that the estimator sums up in two parts or more",
}
"""Why a column may have no number."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem; border-bottom: 1px solid #8886; }
.shown td:nth-child(2) { min-width: 16rem; } img { height: 7rem; } svg { max-width: 100%; height: auto; }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
{{ picture }}
<p>A low score says that a gradient step on the sample would raise the validation loss, at these parameters.
To find wrong labels, a large own loss is often the better sign: look at both.</p>
{% for note in notes %}<p>{{ note }}</p>
{% endfor %}
{% for name, head, rows in tables %}<h2>{{ name }}</h2>
<div class="wide"><table{% if "sample" in head %} class="shown"{% endif %}>
<tr>{% for cell in head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% endfor %}
</body></html>
"""


def write_report(
    table: pa.Table,
    path: str | PathLike[str],
    *,
    title: str = "Scores of a data set",
    worst: int = 20,
    show: Callable[[Any], Any] | None = None,
) -> None:
    """Write one HTML file: scores against losses, the worst samples by each, each group's shares.

    Parameters
    ----------
    table
        What `score_dataset` or `read_scores` returned, of one checkpoint or averaged. Columns that were
        appended to it are listed beside the scores.
    path
        Of the file; it holds its pictures and loads nothing.
    title
        Its heading.
    worst
        How many samples the lists show.
    show
        From a sample's id to the sample, which is shown in the lists: text; an image as an array `(h, w)` or
        `(h, w, 3)`, or as an object of PIL. None: ids alone.

    Raises
    ------
    TypeError
        If the table, or what `show` returns, is of another kind.
    ValueError
        If a sample stands in the table more than once, as with several checkpoints.
    """
    if not isinstance(table, pa.Table):
        msg = f"table: expected what score_dataset or read_scores returned, got {type(table).__name__}"
        raise TypeError(msg)
    if (samples := len(pc.unique(table["id"]))) != len(table):
        msg = (
            f"table: expected one row a sample, got {len(table)} rows of {samples} samples; read it with "
            "average=True, or filter one checkpoint"
        )
        raise ValueError(msg)
    finite = table.filter(pc.is_finite(table["score"]))
    negative = finite.filter(pc.less(finite["score"], 0.0))
    certain = pc.less(pc.divide(negative["score"], negative["standard_error"]), -2.0)
    orders = {"Lowest scores": ("score", "ascending"), "Largest own losses": ("loss", "descending")}
    tables = [(name, *_list_rows(finite.sort_by([order])[:worst], show)) for name, order in orders.items()]
    if "group" in table.column_names:
        tables.append(("Groups", *_list_rows(_group(finite), None)))
    summary = (
        f"{len(table)} samples: {len(negative)} with a negative score "
        f"({len(negative) / max(len(finite), 1):.1%}), {pc.sum(certain).as_py() or 0} of them by more than "
        f"two standard errors; {len(table) - len(finite)} whose score is not a number."
    )
    parts = {"title": title, "summary": summary, "notes": empty_columns(table), "tables": tables}
    page = Environment(autoescape=True).from_string(PAGE)
    Path(path).write_text(page.render(**parts, picture=_draw(finite)), encoding="utf-8")


def empty_columns(table: pa.Table) -> list[str]:
    """Say of each column of `score_dataset` that holds no number why, in a sentence."""
    return [
        f"The column {name} is empty: {reason}."
        for name, reason in EMPTY.items()
        if len(table) and not pc.any(pc.is_finite(table[name])).as_py()
    ]


def _list_rows(table: pa.Table, show: Callable[[Any], Any] | None) -> tuple[list[str], list[list[Any]]]:
    """Return a heading and rows as text, with the samples after the ids."""
    head, rows = table.column_names, [[*map(_text, row.values())] for row in table.to_pylist()]
    if show is not None:
        at = head.index("id") + 1
        head.insert(at, "sample")
        for name, row in zip(table["id"].to_pylist(), rows, strict=True):
            row.insert(at, _sample(show(name)))
    return head, rows


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _sample(value: Any) -> Any:
    """Return a sample as text, or as an image inside the page."""
    if isinstance(value, str):
        return value
    written = io.BytesIO()
    try:
        if hasattr(value, "save"):
            value.save(written, format="png")
        else:
            imsave(written, value, format="png", cmap="gray")
    except (AttributeError, OSError, TypeError, ValueError) as error:
        msg = (
            "show: expected text, an array (h, w) or (h, w, 3), or an image of PIL that PNG can hold, got "
            f"{type(value).__name__}: {error}"
        )
        raise TypeError(msg) from error
    return Markup(f'<img alt="" src="data:image/png;base64,{b64encode(written.getvalue()).decode()}">')


def _group(table: pa.Table) -> pa.Table:
    """Return each group's number of samples, share of negative scores and mean score and loss."""
    table = table.append_column("negative", pc.cast(pc.less(table["score"], 0.0), pa.float64()))
    means = [("id", "count"), ("negative", "mean"), ("score", "mean"), ("loss", "mean")]
    found = table.group_by("group").aggregate(means).sort_by("group")
    names = ["group", "samples", "negative scores", "mean score", "mean loss"]
    return found.select(["group", *(f"{name}_{how}" for name, how in means)]).rename_columns(names)


def _draw(table: pa.Table) -> Markup:
    """Draw the scores against the losses, as SVG."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    axis.scatter(table["loss"].to_numpy(), table["score"].to_numpy(), s=3, color="#aa3377", rasterized=True)
    axis.axhline(0.0, color="#888888", linewidth=0.8)
    axis.set(xlabel="own loss", ylabel="score: positive helps")
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    svg = written.getvalue()
    return Markup(
        svg[svg.index("<svg") :].replace("<svg", '<svg role="img" aria-label="Scores against losses"')
    )
