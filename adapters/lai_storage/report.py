"""Scores of a data set, or shares of sources, as one page that opens in a browser.

Needs the extra `dataset`.
"""

import io
import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from mimetypes import guess_type
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from matplotlib.image import imsave

from lai_core.mixtures import MixtureUpdate
from lai_storage.tables import read_scores

__all__ = ["write_mixture", "write_report"]

SHOWN = {
    "score": "score: positive helps",
    "loss": "own loss",
    "gradient_norm": "gradient norm",
    "standard_error": "standard error of the score",
}

EMPTY = {
    "gradient_norm": "only ghost, lli, and lai without a sketch compute it",
    "standard_error": "it needs a validation set that the estimator sums up in two parts or more",
}
"""Why a column may have no number."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: right; vertical-align: top; white-space: nowrap; padding: .2rem .8rem;
  border-bottom: 1px solid #8886; }
.samples :is(th, td):nth-child(-n+2) { text-align: left; }
.samples td:nth-child(-n+2) { white-space: normal; overflow-wrap: anywhere; max-width: 30rem; }
.samples td:nth-child(1) { min-width: 4rem; } .samples td:nth-child(2) { min-width: 16rem; }
td img { height: 7rem; max-width: 100%; object-fit: contain; }
@media (max-width: 48rem) { /* a card for each sample */
  .samples, .samples tbody { display: block; } .samples tr:first-child { display: none; }
  .samples tr { display: block; padding: .6rem 0; border-bottom: 1px solid #8886; }
  .samples tr td { display: flex; justify-content: space-between; gap: 1rem; padding: 0; border: 0; }
  .samples tr td:nth-child(-n+2) { display: block; min-width: 0; max-width: none; }
  .samples td:nth-child(n+3)::before { content: attr(data-name); opacity: .7; }
}
.drawn { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: .5rem; }
svg { width: 100%; height: auto; background: #fff; border-radius: .4rem; }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
<div class="drawn">{% for picture in pictures %}{{ picture }}{% endfor %}</div>
<p>{{ reading }}</p>{% for note in notes %}
<p>{{ note }}</p>{% endfor %}
{% for name, head, rows in tables %}<h2>{{ name }}</h2><div class="wide">
{% set cards = head[1] == "sample" %}<table{% if cards %} class="samples"{% endif %}>
<tr>{% for cell in head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row -%}
<td{% if cards %} data-name="{{ head[loop.index0] }}"{% endif %}>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}</table></div>{% endfor %}
</body></html>
"""

READING = """A low score says that a gradient step on the sample would raise the validation loss, at these
parameters. To find wrong labels, a large own loss is often the better sign: look at both."""
READING_SHARES = """A higher mean score says that a larger share of the source would lower the next validation
loss more. The shares stay where the means do not differ by more than their errors."""


def write_report(
    table: Any,
    path: str | PathLike[str],
    *,
    title: str = "Scores of a data set",
    worst: int = 20,
    show: Callable[[Any], Any] | None = None,
) -> None:
    """Write one HTML file: distributions, the worst samples by score and by loss, each group's shares.

    Parameters
    ----------
    table
        What `score_dataset` or `read_scores` returned, of one checkpoint or averaged; the same as a pandas
        DataFrame; or the folder. Columns of numbers that were appended to it (another method's, say) are
        drawn and listed beside the scores.
    path
        Of the file; it holds its pictures and loads nothing.
    title
        Its heading.
    worst
        How many samples the lists show.
    show
        From a sample's id to the sample, which is shown in the lists: text; an image as an array `(h, w)` or
        `(h, w, 3)`, as an object of PIL, or as the `Path` of a file. None: ids alone.

    Raises
    ------
    TypeError
        If the table is of another kind.
    ValueError
        If a sample stands in the table more than once, as with several checkpoints.
    """
    table = _read_table(table)
    if (samples := len(pc.unique(table["id"]))) != len(table):
        msg = (
            f"table: expected one row a sample, got {len(table)} rows of {samples} samples; read it with "
            "average=True, or filter one checkpoint"
        )
        raise ValueError(msg)
    notes = empty_columns(table)
    finite = table.filter(pc.is_finite(table["score"]))
    negative = finite.filter(pc.less(finite["score"], 0.0))
    certain = pc.less(pc.divide(negative["score"], negative["standard_error"]), -2.0)
    orders = {"Lowest scores": ("score", "ascending"), "Largest own losses": ("loss", "descending")}
    orders |= {f"Largest {name}": (name, "descending") for name in _list_added(table)}
    tables = [(name, *_list_rows(finite.sort_by([order])[:worst], show)) for name, order in orders.items()]
    if "group" in table.column_names:
        tables.append(("Groups", *_groups(finite)))
    summary = (
        f"{len(table)} samples: {len(negative)} with a negative score "
        f"({len(negative) / max(len(finite), 1):.1%}), {pc.sum(certain).as_py() or 0} of them by more than "
        f"two standard errors; {len(table) - len(finite)} whose score is not a number."
    )
    parts = {"summary": summary, "pictures": _draw_scores(finite), "notes": notes, "tables": tables}
    _write(path, title=title, reading=READING, **parts)


def empty_columns(table: pa.Table) -> list[str]:
    """Say of each column of `score_dataset` that holds no number why, in a sentence."""
    return [
        f"The column {name} is empty: {reason}."
        for name, reason in EMPTY.items()
        if len(table) and not pc.any(pc.is_finite(table[name])).as_py()
    ]


def write_mixture(
    history: Sequence[MixtureUpdate],
    path: str | PathLike[str],
    *,
    names: Sequence[str] | None = None,
    title: str = "Shares of the sources",
) -> None:
    """Write one HTML file: the sources' shares and mean scores over time with their standard errors.

    Parameters
    ----------
    history
        What `lai_core.mixtures.Mixture.history` holds.
    path
        Of the file; it holds its picture and loads nothing.
    names
        Of the sources; None: their numbers.
    title
        Its heading.
    """
    if not history:
        msg = "history: expected at least one update, got none; call Mixture.step"
        raise ValueError(msg)
    sources = len(history[0].weights)
    names = [f"source {number}" for number in range(sources)] if names is None else names
    if len(names) != sources:
        msg = f"names: expected {sources}, one a source, got {len(names)}"
        raise ValueError(msg)
    head = ["update", *(f"{name}: {what}" for name in names for what in ("share", "score", "error"))]
    rows = [
        [str(number), *(_text(value) for source in zip(*update, strict=True) for value in source)]
        for number, update in enumerate(history, 1)
    ]
    shares = zip(names, history[-1].weights, strict=True)
    _write(
        path,
        title=title,
        summary=f"{len(history)} updates; now "
        + ", ".join(f"{name} {share:.1%}" for name, share in shares)
        + ".",
        pictures=_draw_mixture(history, names),
        reading=READING_SHARES,
        tables=[("Updates", head, rows)],
    )


def _write(path: str | PathLike[str], **parts: Any) -> None:
    """Fill the page's parts in and write it."""
    page = Environment(autoescape=True).from_string(PAGE)
    Path(path).write_text(page.render(**parts), encoding="utf-8")


def _panel() -> tuple[Figure, Any]:
    """Return a figure with one pair of axes, whose letters are legible at the width of a phone."""
    figure = Figure(figsize=(4, 2.6), layout="constrained")
    return figure, figure.subplots()


def _draw_mixture(history: Sequence[MixtureUpdate], names: Sequence[str]) -> list[Any]:
    """Draw shares and mean scores over the updates, these with bands of a standard error."""
    (left, shares), (right, scores) = _panel(), _panel()
    updates = range(1, len(history) + 1)
    weights, means, errors = (zip(*part, strict=True) for part in zip(*history, strict=True))
    for name, weight, mean, error in zip(names, weights, means, errors, strict=True):
        (line,) = shares.plot(updates, weight, label=name)
        bands = [
            (m - e, m, m + e) if math.isfinite(e) else (math.nan,) * 3  # a source that was not observed
            for m, e in zip(mean, error, strict=True)
        ]
        low, middle, high = zip(*bands, strict=True)
        scores.plot(updates, middle, color=line.get_color())
        scores.fill_between(updates, low, high, color=line.get_color(), alpha=0.25, lw=0)
    shares.set(xlabel="update", ylabel="share", ylim=(0, None))
    shares.legend(frameon=False, fontsize=9)
    scores.set(xlabel="update", ylabel="mean score ± standard error")
    scores.axhline(0.0, color="#888888", linewidth=0.8)
    return [_svg(left, "Shares of the sources"), _svg(right, "Mean scores of the sources")]


def _read_table(given: Any) -> pa.Table:
    """Return scores as a table of pyarrow."""
    if isinstance(given, str | PathLike):
        return read_scores(given)
    if not isinstance(given, pa.Table) and not hasattr(given, "columns"):
        msg = (
            "table: expected what read_scores returned, a pandas.DataFrame, or the folder that score_dataset "
            f"wrote, got {type(given).__name__}"
        )
        raise TypeError(msg)
    return given if isinstance(given, pa.Table) else pa.Table.from_pandas(given, preserve_index=False)


def _list_rows(table: pa.Table, show: Callable[[Any], Any] | None) -> tuple[list[str], list[list[Any]]]:
    """Return a heading and rows as text, of columns that hold anything, with the samples after the ids."""
    dropped = [name for name in SHOWN if not pc.any(pc.is_finite(table[name])).as_py()]
    table = table.drop_columns(dropped)
    if show is not None:
        samples = [_sample(show(name)) for name in table["id"].to_pylist()]
    head, rows = table.column_names, [[*map(_text, row.values())] for row in table.to_pylist()]
    if show is None:
        return head, rows
    at = head.index("id") + 1
    head.insert(at, "sample")
    for row, sample in zip(rows, samples, strict=True):
        row.insert(at, sample)
    return head, rows


def _sample(value: Any) -> Any:
    """Return a sample as text, or as an image inside the page."""
    if isinstance(value, str):
        return value
    if isinstance(value, PathLike):
        kind = guess_type(Path(value))[0] or "image/png"
        content = Path(value).read_bytes()
    else:
        kind, written = "image/png", io.BytesIO()
        if hasattr(value, "save"):
            value.save(written, format="png")
        else:
            imsave(written, value, format="png", cmap="gray")
        content = written.getvalue()
    return Markup(f'<img alt="" src="data:{escape(kind)};base64,{b64encode(content).decode()}">')


def _list_added(table: pa.Table) -> list[str]:
    """Return the names of the numbers that are none of `score_dataset`'s."""
    fields = [field for field in table.schema if field.name not in SHOWN]
    return [field.name for field in fields if pa.types.is_floating(field.type)]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _groups(table: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Return each group's number of samples, share of negative scores and mean score and loss."""
    table = table.append_column("negative", pc.cast(pc.less(table["score"], 0.0), pa.float64()))
    means = [("id", "count"), ("negative", "mean"), ("score", "mean"), ("loss", "mean")]
    found = table.group_by("group").aggregate(means).sort_by("group").to_pylist()
    head = ["group", "samples", "negative scores", "mean score", "mean loss"]
    return head, [
        [
            _text(row["group"]),
            str(row["id_count"]),
            f"{row['negative_mean']:.1%}",
            _text(row["score_mean"]),
            _text(row["loss_mean"]),
        ]
        for row in found
    ]


def _draw_scores(table: pa.Table) -> list[Any]:
    """Draw the distribution of each number, and the score against the loss; as SVG, marked safe."""
    pictures = []
    for name in (*SHOWN, *_list_added(table)):
        numbers = table.filter(pc.is_finite(table[name]))[name].to_numpy()
        if len(numbers):
            figure, axis = _panel()
            axis.hist(numbers, bins=60, color="#4477aa")
            axis.set(xlabel=SHOWN.get(name, name), ylabel="samples", yscale="log")
            pictures.append(_svg(figure, f"Distribution: {name.replace('_', ' ')}"))
    figure, axis = _panel()
    points = table["loss"].to_numpy(), table["score"].to_numpy()
    axis.scatter(*points, s=3, color="#aa3377", rasterized=True)
    axis.axhline(0.0, color="#888888", linewidth=0.8)
    axis.set(xlabel=SHOWN["loss"], ylabel=SHOWN["score"])
    return [*pictures, _svg(figure, "Scores against losses")]


def _svg(figure: Figure, described: str) -> Any:
    """Return a figure as SVG, marked safe, with what it shows for those who do not see it."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    svg = written.getvalue()
    label = f'<svg role="img" aria-label="{escape(described)}"'
    return Markup(svg[svg.index("<svg") :].replace("<svg", label))
