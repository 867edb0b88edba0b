"""From scores to weights, and from the gradient of the weighted losses to new parameters."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lai_jax._curation.estimators import Scored
from lai_jax._curation.meshes import lay_like
from lai_jax._curation.rows import best
from lai_jax._program.leaves import check_finite, find_floating, real_leaves, replace_leaves


def weigh(
    policy: Callable[..., jax.Array], rows: int | float | None, scored: Scored
) -> tuple[jax.Array, jax.Array | None]:
    """Return the weights of a policy on the best `rows` scores, and which rows these are, if not all.

    A sample without a score has weight 0.
    """
    seen, chosen = scored.scores, None
    if rows is not None:
        chosen, seen = best(seen, rows)
    left_out = jnp.isnan(seen)
    more: dict[str, Any] = {}
    arguments = inspect.signature(policy).parameters
    # by name alone, and not where the policy has been given them
    known = policy.keywords if isinstance(policy, functools.partial) else {}
    if "losses" in arguments and "losses" not in known:
        more["losses"] = scored.losses
    if scored.parts is not None:
        kinds = {each.kind for each in arguments.values()}
        if "sizes" not in arguments and inspect.Parameter.VAR_KEYWORD not in kinds:
            msg = (
                "policy: expected one that takes sizes=, as lai_core.drop_harmful, since the validation set "
                f"was summarized in parts, got {getattr(policy, '__name__', policy)!s}"
            )
            raise TypeError(msg)
        more["sizes"] = scored.sizes
        seen = jnp.where(left_out, jnp.nan, scored.parts)  # a row left out has no score in any part
    weights = policy(seen, **more)
    shape, kind = jnp.shape(scored.scores), getattr(weights, "dtype", None)
    if getattr(weights, "shape", None) != shape or kind is None or not jnp.issubdtype(kind, jnp.floating):
        got = type(weights).__name__ if kind is None else f"{kind} of shape {tuple(weights.shape)}"
        msg = (
            f"policy: expected floating-point weights of shape {shape}, one a sample, got {got}; of what is "
            "to be kept make weights, as keep / keep.sum() does"
        )
        raise TypeError(msg)
    return jnp.where(left_out, 0.0, weights), chosen


def step_once(
    tx: Any, params: Any, opt_state: Any, gradients: list[jax.Array], kept: jax.Array
) -> tuple[Any, Any, jax.Array]:
    """Update, unless no sample was kept or the gradient is not finite."""
    leaves, restored = real_leaves(params)
    trainable = find_floating(leaves)
    given = replace_leaves([jnp.zeros_like(leaf) for leaf in leaves], trainable, gradients)
    expected: Any = jax.tree.structure(jax.eval_shape(tx.init, params))
    if expected != jax.tree.structure(opt_state):
        msg = (
            "opt_state: expected what tx.init(params) returned, or a step after it, got a state of another "
            "transformation or of other parameters"
        )
        raise TypeError(msg)
    try:
        updates, new_state = tx.update(restored(given), opt_state, params)
    except TypeError as error:
        if "keyword-only argument" not in str(error):
            raise
        msg = (
            "tx: expected one whose update takes gradients, state and parameters alone, got one that asks "
            f"for more ({error}); weigh by lai_jax.score, and update by the weighted losses in your own step"
        )
        raise TypeError(msg) from error
    skipped = ~(check_finite(gradients) & (kept > 0))
    moved, changes = list(leaves), real_leaves(updates)[0]
    for leaf in trainable:
        new = leaves[leaf] + changes[leaf].astype(leaves[leaf].dtype)
        moved[leaf] = lay_like(leaves[leaf], jnp.where(skipped, leaves[leaf], new))
    state = jax.tree.map(lambda old, new: lay_like(old, jnp.where(skipped, old, new)), opt_state, new_state)
    return restored(moved), state, skipped
