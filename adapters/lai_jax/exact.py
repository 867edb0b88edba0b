"""The exact inner product of gradients for any model, by one forward-mode pass."""

from collections.abc import Callable
from typing import Any

import jax

from lai_core._adapters import check_batch, check_exact_options
from lai_jax._exact.directional import directional_derivatives
from lai_jax._program.leaves import split_leaves
from lai_jax._program.losses import check_targets, losses_of_leaves


def exact_scores(
    apply: Callable[..., Any],
    params: Any,
    loss: Callable[..., Any],
    validation: Any,
    training: Any,
    *,
    at: str = "start",
    learning_rate: Any = None,
    reduction: str = "mean",
    optimizer: tuple[Any, Any] | None = None,
    per_position: bool = False,
) -> jax.Array:
    r"""Score every training sample by the exact first-order change of the validation loss.

    Implements :eq:`directional-derivative`. One gradient of the validation loss and one forward-mode
    pass over the batch along it: any architecture, any parameter, no layers to find. Where a function brings
    a reverse rule of its own (`jax.custom_vjp`), it is one gradient a sample, or a position. There, and where
    an operation is not followed, `apply` and `loss` must accept a batch of one, with which the batch is
    compared.

    Parameters
    ----------
    apply
        `apply(params, inputs)`: the model, a pure function.
    params
        Its parameters; the floating-point leaves move.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number a sample.
    validation, training
        `(inputs, targets)` each.
    at
        `start`: at the parameters as they are. `midpoint`: after half of the SGD step on the whole
        batch, where the score is the one-step Shapley value up to second order in the step, and exactly
        for a quadratic loss (:eq:`midpoint`). With an optimizer: the derivative of its step on half of the
        batch's gradient, which is the same for any step (:eq:`step-midpoint`).
    learning_rate
        Of that SGD step, for `midpoint`. With an `optimizer`, what the scores are divided by.
    reduction
        `mean` or `sum`: how the batch's losses make the training loss whose step is meant.
    optimizer
        `(tx, state)`: an optax transformation and its state before the step. The score is then the
        exact derivative of the transformation's step, at the batch's own gradient: moments, weight
        decay, clipping and schedules included. Clipping belongs into the chain.
    per_position
        Score every position: `loss` then returns `(n, t)`, one unnormalised number a position, as a language
        model's loss of each token. The score is of the position's own loss, whatever the position read. The
        loss of a sample is the sum over its positions.

    Returns
    -------
    jax.Array
        `(n_train,)`, or `(n_train, t)` per position, which add up to the samples' scores. Positive helps:
        the decrease of the summed validation loss per unit learning rate per unit weight of that loss. With
        an `optimizer` and no `learning_rate`, per step.

    Raises
    ------
    ValueError
        If an option is unknown, options exclude each other, or the loss is not one number a sample; if
        samples see one another, so that none has a gradient of its own.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs * params
    >>> loss = lambda outputs, targets: (outputs - targets) ** 2 / 2
    >>> batch = jnp.array([1.0, 1.0]), jnp.array([2.0, -2.0])
    >>> print(lai_jax.exact_scores(apply, jnp.array(0.0), loss, (jnp.ones(1), jnp.ones(1)), batch))
    [ 2. -2.]
    """
    check_exact_options(at, learning_rate, reduction, optimizer)
    if optimizer is not None and not (isinstance(optimizer, tuple) and hasattr(optimizer[0], "update")):
        msg = f"optimizer: expected a pair (tx, state) of optax, got {type(optimizer).__name__}"
        raise TypeError(msg)
    moving, losses = losses_of_leaves(apply, loss, params, per_position=per_position)
    for name, batch in (("validation", validation), ("training", training)):
        check_batch(name, batch)
        check_targets(*batch)
    share = 0.5 if at == "midpoint" else 1.0

    def sum_losses(values: list[jax.Array]) -> jax.Array:
        found = losses(values, training)
        return share * found.sum() / (found.shape[0] if reduction == "mean" else 1)

    def step(gradients: list[jax.Array]) -> list[jax.Array]:
        if optimizer is None:
            return [value - learning_rate * part for value, part in zip(moving, gradients, strict=True)]
        (tx, state), restored = optimizer, split_leaves(params)[1]
        updates = split_leaves(tx.update(restored(gradients), state, params)[0])[0]
        return [value + update for value, update in zip(moving, updates, strict=True)]

    point = moving
    if at == "midpoint" or optimizer is not None:
        point, vjp = jax.vjp(step, jax.grad(sum_losses)(moving))
    direction = jax.grad(lambda values: losses(values, validation).sum())(point)
    if optimizer is None:
        return directional_derivatives(losses, moving, training, direction)[1]
    (direction,) = vjp(direction)  # of the validation loss after the step, taken back through it
    rate = 1.0 if learning_rate is None else learning_rate
    return -directional_derivatives(losses, moving, training, direction)[1] / rate
