"""The validation side of a curated step as one pytree, and the sketch that it carries."""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from lai_storage import storable

import lai_core as lai
from lai_core.estimators.sketches import sketch_outputs


@storable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sketch:
    """A sketch of the last layer's output gradients; a pytree, made by `draw_sketch`.

    Calling it on a trace replaces the last layer's output gradients by their sketch, as
    `lai_core.estimators.sketches.sketch_outputs` does.

    Attributes
    ----------
    signs
        `(d_L,)`, -1 or 1 each.
    permutation
        `(d_L,)`: a permutation of the outputs.
    width
        Numbers a position that are left of an output gradient. Static: another width is another
        program, other signs are not.
    """

    signs: jax.Array
    permutation: jax.Array
    width: int = field(metadata={"static": True})

    def __call__(self, trace: lai.Trace) -> lai.Trace:
        """Return the trace with its last output gradients sketched."""
        return sketch_outputs(trace, self.signs, self.permutation, width=self.width)


def draw_sketch(key: jax.Array, outputs: int, width: int) -> Sketch:
    """Draw signs and a permutation for sketches of `outputs` numbers to `width`.

    Parameters
    ----------
    key
        Of `jax.random`; a new one wherever the sketch is to be a new one, such as at each new summary.
    outputs
        The last layer's outputs `d_L`.
    width
        Numbers a position to keep.

    Returns
    -------
    Sketch
        For `summarize`, whose result carries it to the training step: both sides use the same.

    Raises
    ------
    ValueError
        If the width lies outside [1, outputs].

    Examples
    --------
    >>> import jax
    >>> import lai_jax
    >>> sketch = lai_jax.draw_sketch(jax.random.key(0), 50, 8)
    >>> sketch.width, sketch.signs.shape, sorted(map(int, sketch.permutation)) == list(range(50))
    (8, (50,), True)
    """
    if not jnp.issubdtype(jnp.result_type(key), jax.dtypes.prng_key) and jnp.ndim(key) != 1:
        msg = f"key: expected one of jax.random.key(seed), got {key!r}"
        raise TypeError(msg)
    if not isinstance(outputs, int) or outputs < 1:
        msg = f"outputs: expected a whole number, 1 or more, got {outputs!r}"
        raise ValueError(msg)
    if not isinstance(width, int) or not 1 <= width <= outputs:
        msg = f"width: expected a whole number in [1, {outputs}], got {width!r}"
        raise ValueError(msg)
    one, other = jax.random.split(key)
    signs = jax.random.rademacher(one, (outputs,), jnp.int8)
    return Sketch(signs, jax.random.permutation(other, outputs), width)


@storable
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Validation:
    """What a curated step scores against; a pytree, as `summarize` makes it or put together by hand.

    Attributes
    ----------
    side
        A `ValidationSummary`; a `Trace` where there is no summary; a `GateTrace` for `gate_lai`; the
        summed gradient for `exact`. Sketched if there is a sketch.
    sketch
        With which the step sketches its own side.
    layer_weights
        `(L,)`: by which LAI weighs the layers; None: all 1.
    positions
        How to read positions where `side` is a `Trace`.
    parts
        Of how many parts of the validation set `side` has the summaries, along a first axis of every
        array; None: it is one summary.
    """

    side: Any
    sketch: Sketch | None = None
    layer_weights: jax.Array | None = None
    positions: str | None = field(default=None, metadata={"static": True})
    parts: int | None = field(default=None, metadata={"static": True})
