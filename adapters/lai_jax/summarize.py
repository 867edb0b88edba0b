"""From a validation set to what a curated step scores against."""

from collections.abc import Callable
from typing import Any

import lai_core as lai
from lai_jax._curation.calibrated import fitted_weights
from lai_jax._curation.options import check_carried, check_counts, check_estimator
from lai_jax._curation.side import side_in_chunks, side_of
from lai_jax._program.losses import batch_size, check_targets
from lai_jax.sketch import Sketch
from lai_jax.validation import Validation


def summarize(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    inputs: Any,
    targets: Any,
    *,
    estimator: str = "lai",
    positions: str | None = None,
    sketch: Sketch | None = None,
    calibration: int = 32,
    chunk: int | None = None,
    last: str | None = None,
) -> Validation:
    """Trace a validation set and sum it up, for `curated_update` with the same estimator.

    Samples whose loss is not finite count for nothing. Works inside `jax.jit`.

    Parameters
    ----------
    apply, params, loss, inputs, targets, last
        As for `trace`.
    estimator
        `ghost`, `lai`, `lli`, `preconditioned_lai`, `gate_lai`, `calibrated_lai` or `exact`.
    positions
        What LAI's product means on layers with positions. None: `tokens` if every layer has the last
        layer's positions, else `mean`. Of `flatten` with positions there is no summary, and the set's
        trace is kept.
    sketch
        For `lai` and `calibrated_lai`: sketch the output gradients, here and in the step.
    calibration
        For `calibrated_lai`: on how many samples, at equal distances, the layer weights are fitted to
        Ghost; at least two.
    chunk
        Trace at most so many samples at once, one chunk after the other in one program.

    Returns
    -------
    Validation
        The third argument of the step.

    Raises
    ------
    TypeError
        If an argument is of a wrong kind.
    ValueError
        If an option is unknown or unfit, or as in `trace`, `trace_gates` or `lai_core.summarize`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: jnp.tanh(inputs @ params["w"]) @ params["o"]
    >>> params = {"w": jnp.ones((4, 8)), "o": jnp.ones((8, 50))}
    >>> loss = lambda outputs, targets: (outputs**2).sum(-1)
    >>> sketch = lai_jax.draw_sketch(jax.random.key(0), 50, 8)
    >>> found = lai_jax.summarize(apply, params, loss, jnp.ones((5, 4)), jnp.zeros(5), sketch=sketch)
    >>> [total.shape for total in found.side.totals[0]]
    [(8, 4), (8, 8)]
    """
    check_estimator(estimator)
    check_carried(estimator, sketch, None)
    check_counts(calibration=calibration, chunk=chunk)
    check_targets(inputs, targets)
    samples = batch_size(inputs)
    batch = (inputs, targets)

    def one(own: tuple[Any, Any], counted: Any) -> tuple[Any, str | None]:
        return side_of(apply, params, loss, own, counted, estimator, positions, sketch, last)

    if chunk is None or chunk >= samples:
        side, meaning = one(batch, True)
    else:
        side, meaning = side_in_chunks(one, batch, samples, chunk)
    if estimator != "calibrated_lai":
        return Validation(side, sketch, positions=meaning if isinstance(side, lai.Trace) else None)
    weights = fitted_weights(apply, params, loss, batch, positions=str(meaning), size=calibration, last=last)
    return Validation(side, sketch, weights, meaning if isinstance(side, lai.Trace) else None)
