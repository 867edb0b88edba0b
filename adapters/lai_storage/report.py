"""Scores of a data set, or shares of sources, as one page that opens in a browser.

Needs `pip install "lai-core[dataset]"`.
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

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ title }}</title><style>
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: right; padding: .2rem .8rem; border-bottom: 1px solid #8886; }
svg { width: 100%; height: auto; background: #fff; border-radius: .4rem; }
td { max-width: 30rem; overflow-wrap: anywhere; } td img { max-height: 6rem; }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
{{ picture }}
<p>{{ reading }}</p>
{% for name, head, rows in tables %}<h2>{{ name }}</h2><div class="wide"><table>
<tr>{% for cell in head %}<th scope="col">{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>
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
    table = _as_table(table)
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
    orders |= {f"Largest {name}": (name, "descending") for name in _added(table)}
    tables = [(name, *_listed(finite.sort_by([order])[:worst], show)) for name, order in orders.items()]
    if "group" in table.column_names:
        tables.append(("Groups", *_groups(finite)))
    summary = (
        f"{len(table)} samples: {len(negative)} with a negative score "
        f"({len(negative) / max(len(finite), 1):.1%}), {pc.sum(certain).as_py() or 0} of them by more than "
        f"two standard errors; {len(table) - len(finite)} whose score is not a number."
    )
    _write(path, title=title, summary=summary, picture=_picture(finite), reading=READING, tables=tables)


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
        picture=_drawn_mixture(history, names),
        reading=READING_SHARES,
        tables=[("Updates", head, rows)],
    )


def _write(path: str | PathLike[str], **parts: Any) -> None:
    """Fill the page's parts in and write it."""
    page = Environment(autoescape=True).from_string(PAGE)
    Path(path).write_text(page.render(**parts), encoding="utf-8")


def _drawn_mixture(history: Sequence[MixtureUpdate], names: Sequence[str]) -> Any:
    """Draw shares and mean scores over the updates, these with bands of a standard error."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    shares, scores = figure.subplots(1, 2)
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
    shares.legend(frameon=False, fontsize=8)
    scores.set(xlabel="update", ylabel="mean score, with its standard error")
    scores.axhline(0.0, color="#888888", linewidth=0.8)
    return _svg(figure, "Shares and mean scores of the sources over the updates")


def _as_table(given: Any) -> pa.Table:
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


def _listed(table: pa.Table, show: Callable[[Any], Any] | None) -> tuple[list[str], list[list[Any]]]:
    """Return rows as text, with their heading, and the samples behind them."""
    head, rows = table.column_names, table.to_pylist()
    cells: list[list[Any]] = [[_text(value) for value in row.values()] for row in rows]
    if show is None:
        return head, cells
    samples = [_sample(show(row["id"])) for row in rows]
    return [*head, "sample"], [[*row, sample] for row, sample in zip(cells, samples, strict=True)]


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


def _added(table: pa.Table) -> list[str]:
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


def _picture(table: pa.Table) -> Any:
    """Draw the distribution of each number, and the score against the loss; as SVG, marked safe."""
    names = [name for name in (*SHOWN, *_added(table)) if pc.any(pc.is_finite(table[name])).as_py()]
    figure = Figure(figsize=(9, 2.6 * -(-(len(names) + 1) // 2)), layout="constrained")
    axes = figure.subplots(-(-(len(names) + 1) // 2), 2).flatten()
    for axis, name in zip(axes, names, strict=False):
        axis.hist(table.filter(pc.is_finite(table[name]))[name].to_numpy(), bins=60, color="#4477aa")
        axis.set(xlabel=SHOWN.get(name, name), ylabel="samples", yscale="log")
    scatter = axes[len(names)]
    scatter.scatter(
        table["loss"].to_numpy(), table["score"].to_numpy(), s=3, color="#aa3377", rasterized=True
    )
    scatter.axhline(0.0, color="#888888", linewidth=0.8)
    scatter.set(xlabel=SHOWN["loss"], ylabel=SHOWN["score"])
    for axis in axes[len(names) + 1 :]:
        axis.set_axis_off()
    drawn = ", ".join(name.replace("_", " ") for name in names)
    return _svg(figure, f"Distributions: {drawn}; and scores against losses")


def _svg(figure: Figure, described: str) -> Any:
    """Return a figure as SVG, marked safe, with what it shows for those who do not see it."""
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    svg = written.getvalue()
    label = f'<svg role="img" aria-label="{escape(described)}"'
    return Markup(svg[svg.index("<svg") :].replace("<svg", label))
