"""A user's model and loss: one function from parameters and a batch to one loss a sample."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from lai_jax._program.leaves import replace_leaves, split_leaves
from lai_jax._program.program import walk_equations


def losses_of(apply: Any, loss: Any, *, per_position: bool = False) -> Callable[..., jax.Array]:
    """Return the function from parameters, inputs and targets to one loss a sample, or one a position."""
    for name, function in (("apply", apply), ("loss", loss)):
        if not callable(function):
            msg = f"{name}: expected a function, got {type(function).__name__}"
            raise TypeError(msg)

    def losses(params: Any, inputs: Any, targets: Any) -> jax.Array:
        if isinstance(inputs, Mapping):
            outputs = apply(params, **inputs)
        else:
            outputs = apply(params, *inputs) if isinstance(inputs, tuple) else apply(params, inputs)
        returned = loss(outputs, targets)
        if not jax.tree_util.all_leaves([returned]):
            msg = (
                f"loss: expected an array, one number a sample, got {type(returned).__name__}; return the "
                "losses alone"
            )
            raise TypeError(msg)
        values = jnp.asarray(returned)
        samples = batch_size(inputs)
        if per_position:
            if values.ndim != 2 or values.shape[0] != samples:
                msg = (
                    f"loss: expected one number a position, shape ({samples}, t), where per_position=True, "
                    f"got shape {values.shape}"
                )
                raise ValueError(msg)
        elif values.shape != (samples,):
            msg = f"loss: expected one number a sample, shape ({samples},), got shape {values.shape}"
            if values.shape == ():
                msg += "; leave out the mean or the sum over the batch"
            elif values.shape == (samples, samples):
                msg += (
                    "; outputs and targets may have broadcast, as (n, 1) and (n,) do: give both the same "
                    "shape, for example outputs[:, 0]"
                )
            elif values.shape[:1] == (samples,):
                msg += "; sum or average each sample's own positions"
            raise ValueError(msg)
        if not jnp.issubdtype(values.dtype, jnp.floating):
            msg = f"loss: expected real floating-point numbers, got {values.dtype}"
            raise TypeError(msg)
        _check_count(loss, (outputs, targets), samples)
        return values

    return losses


def _check_count(loss: Callable[..., Any], given: Any, samples: int) -> None:
    """Raise if a loss holds numbers that depend on how many samples the batch has, as one divided by it does.

    Such numbers are constants of the program, which no other batch of its size moves.
    """
    arrays, whole = arrays_of(given)

    def find_numbers(rows: int) -> list[float]:
        shapes = [(rows, *one.shape[1:]) if one.shape[:1] == (samples,) else one.shape for one in arrays]
        abstract = [jax.ShapeDtypeStruct(shape, one.dtype) for shape, one in zip(shapes, arrays, strict=True)]
        program = jax.make_jaxpr(lambda *each: loss(*whole([*each])))(*abstract).jaxpr
        atoms = (one for equation in walk_equations(program) for one in equation.invars)
        numbers = [one.val for one in atoms if isinstance(one, jex.Literal)]
        return [float(one) for one in numbers if jnp.issubdtype(jnp.result_type(one), jnp.floating)]

    try:
        own, other = find_numbers(samples), find_numbers(samples + 1)
    except Exception:  # whatever it is, it is about the size: the batch itself went through
        return
    # NaN, as `logsumexp` holds one for signs, is the same number in both
    if len(own) == len(other) and not np.array_equal(own, other, equal_nan=True):
        msg = (
            "loss: expected each sample's loss to be its own, got one that depends on how many samples the "
            "batch has: it divides by their number, or their mean is in it, so that samples are coupled; "
            "leave that out"
        )
        raise ValueError(msg)


def losses_of_leaves(
    apply: Any, loss: Any, params: Any, *, per_position: bool = False
) -> tuple[list[jax.Array], Callable[[list[jax.Array], Any], jax.Array]]:
    """Return the floating-point leaves of the parameters, and a batch's losses as a function of such ones."""
    losses = losses_of(apply, loss, per_position=per_position)
    moving, restored = split_leaves(params)
    return moving, lambda values, batch: losses(restored(values), *batch)


def arrays_of(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the arrays of a batch, and how to put others in their place; settings stay as they are."""
    leaves, structure = jax.tree.flatten(tree)
    moving = [place for place, leaf in enumerate(leaves) if is_array(leaf)]
    return [leaves[place] for place in moving], lambda arrays: jax.tree.unflatten(
        structure, replace_leaves(leaves, moving, arrays)
    )


def is_array(leaf: Any) -> bool:
    """Whether a leaf of inputs or targets is an array rather than a setting."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def is_batched(leaf: Any) -> bool:
    """Whether a leaf of inputs or targets has one entry a sample: every array with an axis."""
    return is_array(leaf) and len(leaf.shape) > 0


def batch_size(inputs: Any) -> int:
    """Return how many samples the inputs hold, at least one."""
    sizes = {leaf.shape[0] for leaf in jax.tree.leaves(inputs) if is_batched(leaf)}
    if len(sizes) != 1:
        found = f"first axes of sizes {sorted(sizes)}" if sizes else "no array with an axis"
        msg = (
            f"inputs: expected arrays of one batch, with the samples along the first axis, got {found}; "
            "what all samples share belongs into apply"
        )
        raise ValueError(msg)
    (size,) = sizes
    if size == 0:
        msg = "inputs: expected at least one sample, got 0"
        raise ValueError(msg)
    return int(size)


def check_targets(inputs: Any, targets: Any) -> None:
    samples = batch_size(inputs)
    for leaf in jax.tree.leaves(targets):
        if is_batched(leaf) and leaf.shape[0] != samples:
            msg = f"targets: expected {samples} samples as in inputs, got shape {tuple(leaf.shape)}"
            raise ValueError(msg)


def take(batch: Any, index: Any) -> Any:
    """Return some samples of a batch, by a slice or by their numbers; settings stay as they are."""
    # a numpy array takes no traced index
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[index] if is_batched(leaf) else leaf, batch)
