r"""Which row of a batch makes its gradient: what is said of it.

The numbers are exact; what they say is a rule (`lai_core.diagnosis.rule`), for a large share alone blames
ordinary rows: in a fitted model one row often is most of an ordinary batch's gradient.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float

from lai_core._engine.checks import DEFAULT_MEMORY_BUDGET
from lai_core._engine.namespace import Array, device_of, namespace_of
from lai_core.diagnosis import rule
from lai_core.diagnosis.measure import Sizes, measure, measure_trace, to_list
from lai_core.diagnosis.picture import draw, say_percent
from lai_core.records.base import Trace
from lai_core.records.compatible import check_trace

CLOSE = 1e-3
"""Where the gradient of the other rows is this part of what it is the difference of, it is summed anew."""


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    r"""The gradients of one batch's samples, by their norms and inner products; printed, three lines.

    With :math:`G = \sum_j g_j` the shares :math:`\langle g_j, G\rangle / \|G\|^2` add up to 1.

    Sums are over the rows whose gradients are finite; of the others all numbers are NaN.

    Attributes
    ----------
    losses, norms, shares, cosines
        `(n,)`: each sample's loss, `|g_j|`, share of the batch's gradient, and the cosine of `g_j` with the
        gradient of the other samples, `G - g_j`.
    layer_norms
        `(n,)` for each trainable parameter: the norm of the part of `g_j` that is this parameter's.
    position_norms
        `(n, t)`: the norm of what layers compute at position t of sample j; norms of parts, which do not
        add up. Records without positions, as torch's of gains and biases, are not in it. None where layers
        have none.
    total_norm, rest_norm
        `|G|`, and what is left of it without the rows in `named`.
    named
        Rows that make the gradient, that cancel in it, or that are not finite, as `verdict` says. Empty
        where no few rows do: learning rate, initialisation and optimizer's state are to be looked at then.
    verdict
        `rows`, `cancel`, `not finite` or `no single row`.
    ids
        What the samples are called.
    nonfinite
        Where each row first was not finite.
    coupled
        Norms over the batch that couple its samples. Then no sample has a gradient of its own, and `g_j` is
        the part of the batch's gradient that row j's activations make in the layers.
    usual_norm
        What `|G|` usually is, where the caller knew.
    trained_norm
        The gradient norm that the training step saw, where the caller knew.
    update_excess
        How many times as long as usual the optimizer's step is, where that spiked.
    """

    losses: Float[Array, " n"]
    norms: Float[Array, " n"]
    layer_norms: Mapping[str, Float[Array, " n"]]
    shares: Float[Array, " n"]
    cosines: Float[Array, " n"]
    position_norms: Float[Array, "n t"] | None
    total_norm: float
    rest_norm: float
    named: tuple[int, ...]
    verdict: str
    ids: Sequence[Any] | None = None
    nonfinite: Mapping[int, str] = field(default_factory=dict)
    coupled: tuple[str, ...] = ()
    usual_norm: float | None = None
    trained_norm: float | None = None
    update_excess: float | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Return a dict for each sample, by descending norm, those that are not finite first."""
        lists = {name: to_list(getattr(self, f"{name}s")) for name in ("norm", "share", "cosine")}
        lists["loss"] = to_list(self.losses)
        layers = {name: to_list(norms) for name, norms in self.layer_norms.items()}
        order = sorted(
            range(len(lists["norm"])),
            key=lambda row: -(norm if math.isfinite(norm := lists["norm"][row]) else math.inf),
        )
        found = []
        for row in order:
            squares = {name: norms[row] ** 2 for name, norms in layers.items()}
            layer = max(squares, key=lambda name: (math.isfinite(squares[name]), squares[name]), default="")
            total = lists["norm"][row] ** 2
            one: dict[str, Any] = {"row": row, "id": None if self.ids is None else self.ids[row]}
            one |= {name: values[row] for name, values in lists.items()}
            one["layer"] = self.nonfinite.get(row, layer)
            one["layer_share"] = squares[layer] / total if total > 0 else math.nan
            span = None
            if self.position_norms is not None:
                span = rule.find_span([norm**2 for norm in to_list(self.position_norms[row, :])])
            found.append(one | {"positions": span})
        return found

    def to_json(self) -> str:
        """Return what is printed and the rows as JSON; numbers that are not finite are null."""
        plain = {
            "verdict": self.verdict,
            "named": list(self.named),
            "message": str(self),
            "total_norm": self.total_norm,
            "rest_norm": self.rest_norm,
            "usual_norm": self.usual_norm,
            "trained_norm": self.trained_norm,
            "update_excess": self.update_excess,
            "coupled": list(self.coupled),
            "rows": self.rows(),
        }
        return json.dumps(_finite(plain), default=format)  # format: a tensor's number alone

    def to_svg(self) -> str:
        """Return a picture: the longest rows, and of the first one its layers and positions."""
        return draw(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        rows = {one["row"]: one for one in self.rows()}
        norms = [one["norm"] for one in rows.values() if math.isfinite(one["norm"])]
        median = statistics.median(norms) if norms else math.nan
        lines = [self._say_which(rows, median), self._say_where(rows), self._say_besides(median)]
        return "\n".join(line for line in lines if line)

    def label(self, row: int) -> str:
        """Return what a row is called: its place in the batch, and its id."""
        return f"row {row}" if self.ids is None else f"row {row} (id {self.ids[row]})"

    def _say_which(self, rows: Mapping[int, Mapping[str, Any]], median: float) -> str:
        shown = self.named[:4] or tuple(rows)[:1]
        more = f" and {len(self.named) - 4} more" if len(self.named) > 4 else ""
        called = [self.label(row) for row in shown]
        for place, row in enumerate(shown):
            if math.isfinite(norm := rows[row]["norm"]) and median > 0:
                called[place] += f", norm {norm / median:.3g} times the median"
        each = ", ".join(called) + more
        if self.verdict == "not finite":
            return f"{each}: loss or gradient not finite"
        share = sum(rows[row]["share"] for row in self.named or shown)
        if self.verdict == "cancel":
            return f"{each}: cancel one another, {say_percent(share)} of the batch's gradient"
        if self.verdict == "rows":
            return f"{each}: {say_percent(share)} of the batch's gradient"
        return f"no single row makes the gradient; the longest, {each}: {say_percent(share)} of it"

    def _say_where(self, rows: Mapping[int, Mapping[str, Any]]) -> str:
        row = next(iter(self.named), None)
        if self.verdict == "not finite":
            return f"first in {self.nonfinite[self.named[0]]}"
        if row is None:
            hidden = rule.find_hidden({name: to_list(norms) for name, norms in self.layer_norms.items()})
            if hidden is not None:
                row, name, ratio = hidden
                where = f"{self.label(row)} in {name.removesuffix('.weight')}"
                return f"furthest apart in one layer: {where}, {ratio:.3g} times the median there"
            row = next(iter(rows))
        one = rows[row]
        if not one["layer_share"] > 0:
            return ""
        place = one["layer"].removesuffix(".weight")
        where = f"in {place} ({say_percent(one['layer_share'])} of its square)"
        if one["positions"] is None:
            return where
        first, last = one["positions"]
        return where + (f", position {first}" if first == last else f", positions {first} to {last}")

    def _say_besides(self, median: float) -> str:
        parts = [f"|G| {self.total_norm:.3g}, the median row's {median:.3g}"]
        if self.verdict == "not finite":
            parts = [] if math.isnan(median) else [f"of the other rows: {parts[0]}"]
        elif self.verdict == "rows":
            parts = [f"without: |G| {self.rest_norm:.3g}, not {self.total_norm:.3g}"]
            parts.append(f"the median row's {median:.3g}")
        elif self.verdict == "no single row":
            parts.append("look at the learning rate, the initialisation, the optimizer's state")
        if self.usual_norm is not None:
            parts.append(f"usually {self.usual_norm:.3g}")
        if self.trained_norm is not None:
            finite = len(self.rows()) - len(self.nonfinite)
            mean = f", the mean's is {self.total_norm / finite:.3g}" if finite else ""
            parts.append(f"training saw {self.trained_norm:.3g}{mean}")
        if self.update_excess is not None:
            parts.append(f"the optimizer's step is {self.update_excess:.3g} times its usual length")
        if self.coupled:
            parts.append(f"parts of the batch's gradient, which {', '.join(self.coupled)} couples")
        return "; ".join(parts)


def diagnose(
    trace: Trace,
    losses: Float[Array, " n"],
    *,
    ids: Sequence[Any] | None = None,
    usual_norm: float | None = None,
) -> Diagnosis:
    """Diagnose a batch from the trace of all its gradients: which row makes the gradient, and in which layer.

    Parameters
    ----------
    trace
        With the output gradients of every layer.
    losses
        Each sample's unnormalised loss.
    ids
        What to call the samples.
    usual_norm
        The usual norm of a batch's summed gradient, where a run knows it. Rows are then named until what
        is left is usual, also where a few long rows are usual.

    Returns
    -------
    Diagnosis
        Layers are called by the records' names, or by their weight keys.

    Raises
    ------
    ValueError
        If a layer has no output gradients, or `losses` or `ids` are not one a sample.

    Examples
    --------
    >>> import numpy as np
    >>> import lai_core as lai
    >>> from lai_core.diagnosis import diagnose
    >>> inputs, gradients = np.ones((8, 2)), np.ones((8, 1))
    >>> gradients[3] = 100.0
    >>> print(diagnose(lai.Trace([lai.LayerTrace(inputs, gradients, name="head")]), np.ones(8)))
    row 3, norm 100 times the median: 93% of the batch's gradient
    in head (100% of its square)
    without: |G| 9.9, not 151; the median row's 1.41
    """
    check_trace("trace", trace, "all", DEFAULT_MEMORY_BUDGET)
    samples = trace.layers[0].samples()
    check_ids(ids, samples)
    check_usual(usual_norm)
    if tuple(losses.shape) != (samples,):
        msg = f"losses: expected shape ({samples},), a loss for each sample of the trace, got {losses.shape}"
        raise ValueError(msg)
    called: dict[Any, Any] = {}
    for index, layer in enumerate(trace.layers):
        own: Any = index if layer.weight is None else layer.weight
        called["layer" if layer.weight is None else "weight", own] = layer.name or own
    finite = [math.isfinite(loss) for loss in to_list(losses)]
    part = measure_trace(lambda: trace, finite, lambda key: str(called[key[0]]))
    return conclude(
        measure([part]),
        losses,
        rows=part.rows,
        ids=ids,
        nonfinite={row: "the trace" for row in range(samples) if row not in part.rows},
        usual_norm=usual_norm,
    )


def check_ids(ids: Any, samples: int) -> None:
    """Raise unless there is an id for each sample."""
    if ids is not None and len(ids) != samples:
        msg = f"ids: expected one for each of the {samples} samples, got {len(ids)}"
        raise ValueError(msg)


def check_usual(norm: Any) -> None:
    """Raise unless a usual norm is None or a positive number."""
    if norm is not None and not 0 < norm < math.inf:
        msg = f"usual_norm: expected a positive number, got {norm!r}"
        raise ValueError(msg)


def conclude(
    sizes: Sizes | None,
    losses: Array,
    *,
    rows: Sequence[int] | None = None,
    ids: Sequence[Any] | None = None,
    nonfinite: Mapping[int, str] | None = None,
    coupled: tuple[str, ...] = (),
    usual_norm: float | None = None,
    excess: float | None = None,
    trained_norm: float | None = None,
    update_excess: float | None = None,
    parameters: Sequence[str] = (),
) -> Diagnosis:
    """Return the diagnosis of a batch in which `rows` have finite gradients, of these sizes."""
    # trainable `parameters` that have no size have gradient zero
    samples, bad = int(losses.shape[0]), dict(nonfinite or {})
    kept = list(range(samples)) if rows is None else list(rows)
    own = Sizes({}, [], 0.0, lambda _: []) if sizes is None else sizes
    layers: dict[str, list[float]] = {name: [0.0] * len(kept) for name in parameters}
    layers |= own.squares
    squares = [sum(column) for column in zip(*layers.values(), strict=True)]
    norms = [math.sqrt(square) for square in squares]
    length = math.sqrt(max(own.total, 0.0))
    if usual_norm:
        excess = length / usual_norm
    elif excess is not None and math.isfinite(excess):
        usual_norm = length / excess
    else:
        excess = None
    found = rule.find_makers(norms, own.products, length, lambda some: _drop_rows(own, some), excess)
    cancelling = [] if found else rule.find_cancelling(norms, rule.find_apart(norms), length)
    verdict = "not finite" if bad else "rows" if found else "cancel" if cancelling else "no single row"
    named = sorted(bad) or [kept[row] for row in found or cancelling]
    rest = _drop_rows(own, found)[-1] if found else length

    # on the losses' device, in their type if that is one of many digits
    xp = namespace_of({"losses": losses})
    kind = losses.dtype if losses.dtype in (xp.float32, xp.float64) else xp.float32

    def spread(values: Sequence[Any], nothing: Any = math.nan) -> Array:
        known = dict(zip(kept, values, strict=True))
        listed = [known.get(row, nothing) for row in range(samples)]
        return xp.asarray(listed, dtype=kind, device=device_of(losses))

    positions = own.positions
    return Diagnosis(
        losses,
        spread(norms),
        {name: spread([math.sqrt(square) for square in values]) for name, values in layers.items()},
        spread([product / own.total if own.total > 0 else 0.0 for product in own.products]),
        spread(_cosines(own, squares)),
        None if positions is None else spread(positions, [math.nan] * len(positions[0])),
        length,
        rest,
        tuple(named),
        verdict,
        ids,
        bad,
        coupled,
        usual_norm,
        trained_norm,
        update_excess,
    )


def _drop_rows(sizes: Sizes, rows: Sequence[int]) -> list[float]:
    """Return `|G|` without the first row, without the first two, and so on."""
    others = [row for row in range(len(sizes.products)) if row not in rows]
    gram = sizes.gram([others, *([row] for row in rows)])
    lengths = []
    for count in range(1, len(rows) + 1):
        left = [0, *range(count + 1, len(rows) + 1)]
        lengths.append(math.sqrt(max(0.0, sum(gram[i][j] for i in left for j in left))))
    return lengths


def _cosines(sizes: Sizes, squares: Sequence[float]) -> list[float]:
    """Return the cosine of each row's gradient with that of the others; 0 where one of them is 0."""
    found = []
    for row, (square, product) in enumerate(zip(squares, sizes.products, strict=True)):
        inner, rest = product - square, sizes.total - 2 * product + square
        if rest < CLOSE * max(sizes.total, square):
            gram = sizes.gram([[one for one in range(len(squares)) if one != row], [row]])
            inner, rest = gram[0][1], gram[0][0]
        scale = math.sqrt(max(rest, 0.0)) * math.sqrt(square)
        found.append(max(-1.0, min(1.0, inner / scale)) if scale > 0 else 0.0)
    return found


def _finite(value: Any) -> Any:
    """Return plain data with None in the place of numbers that are not finite."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
