"""Gradients of parameters that are no plain factor of a layer: materialised sample by sample."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._program.evaluate import Records, Wanted, apply_equation, run
from lai_jax._program.leaves import replace_leaves
from lai_jax._program.model import Model
from lai_jax._program.program import Use


def materialise_gradients(
    model: Model, uses: Sequence[Use], leaves: Sequence[int], records: Records, cotangents: Records
) -> dict[int, jax.Array]:
    """Return the per-sample gradients of whole parameters, `(n, size)` each, from all of their uses."""
    values = model.parameters
    wanted = Wanted(frozenset(use.number for use in uses), operands=True)

    def compute(moved: list[Any]) -> Records:
        return run(model.program, [*replace_leaves(values, leaves, moved), *model.data], {}, wanted)[1]

    # With w_u(theta) the value of the parameters at use u, a function of theta alone,
    #     d loss_j / d theta = sum_u (d w_u / d theta)^T (d loss_j / d w_u):
    # the second factor is each sample's own, from what was recorded at the use; the first is one linear
    # map for all samples, mapped over them.
    own = {use.number: _operand_gradients(use, records, cotangents[use.number]) for use in uses}
    _, vjp = jax.vjp(compute, [jnp.asarray(values[leaf]) for leaf in leaves])
    (gradients,) = jax.vmap(vjp)(own)
    return {leaf: own.reshape((model.samples, -1)) for leaf, own in zip(leaves, gradients, strict=True)}


def _operand_gradients(use: Use, records: Records, cotangent: jax.Array) -> jax.Array:
    """Return each sample's gradient of the parameters' value at a use, `(n, loops..., the value's shape)`."""
    if use.kind == "copy":
        return jnp.moveaxis(cotangent, len(use.loops), 0)
    shape, dtype = use.operand.shape, use.operand.dtype

    def pull_row(sample: jax.Array, gradient: jax.Array) -> jax.Array:
        def product(weight: jax.Array) -> jax.Array:
            given = [sample, weight] if use.parameter == 1 else [weight, sample]
            return apply_equation(use.eqn, given)[0]

        return jax.vjp(product, jnp.zeros(shape, dtype))[1](gradient)[0]

    def local(batch: jax.Array, gradients: jax.Array) -> jax.Array:
        return jax.vmap(pull_row)(use.samples_in.split(batch), use.samples_out.split(gradients))

    for _ in use.loops:
        local = jax.vmap(local, out_axes=1)
    return local(records[use.number], cotangent)
