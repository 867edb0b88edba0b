"""The exact inner product of gradients for any model, by one forward-mode pass."""

from typing import Any

import torch
from torch import Tensor, nn

from lai_core._adapters import check_batch, check_exact_options
from lai_torch._exact.directional import along
from lai_torch._exact.optimizer_step import check_optimizer, stepped
from lai_torch._model.batch import Loss, count
from lai_torch._model.functional import Function, Point, gradient


def exact_scores(
    model: nn.Module,
    loss: Loss,
    validation: Any,
    training: Any,
    *,
    at: str = "start",
    learning_rate: float | None = None,
    reduction: str = "mean",
    optimizer: torch.optim.Optimizer | None = None,
    max_norm: float | None = None,
) -> Tensor:
    r"""Score every training sample by the exact first-order change of the validation loss.

    One gradient of the validation loss and one forward-mode pass over the batch along it
    (:eq:`directional-derivative`): any architecture, any parameter, no layers to find. Model,
    optimizer, `.grad`, buffers and random state are afterwards as before.

    Parameters
    ----------
    model
        The model, in the mode (train or eval) in which it is meant.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number a sample.
    validation, training
        `(inputs, targets)` each.
    at
        `start`: the validation gradient at the parameters as they are. `midpoint`: after half of the
        SGD step on the whole batch, where the score is the one-step Shapley value up to second order
        in the step, and exactly for a quadratic loss (:eq:`midpoint`).
    learning_rate
        Of that step; for `midpoint` alone.
    reduction
        `mean` or `sum`: how the batch's losses make the training loss whose step is meant.
    optimizer
        A live `SGD`, `Adam` or `AdamW`: the score is then the exact derivative of its next step
        (:eq:`adam-derivative`), with momentum, both moments, weight decay, AMSGrad and groups.
    max_norm
        With an optimizer: the gradient is clipped to this norm first, as `clip_grad_norm_` does.

    Returns
    -------
    Tensor
        `(n_train,)`. Positive helps: the decrease of the summed validation loss per unit learning
        rate per unit weight of that sample's loss. With groups of different learning rates, per unit
        of the largest. Its attribute `method` says how it was computed: `forward`; where an operation
        has no forward mode, `double backward`; where it has neither, `differences` (central, with a
        relative error of about the two-thirds power of the precision). Its attribute `reason` says why
        not by forward mode, naming the operation that has none; None where forward mode served.

    Raises
    ------
    TypeError
        If a batch is no pair, or the optimizer is none of the three.
    ValueError
        If an option is unknown, options exclude each other, or the loss is not one number a sample.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> loss = lambda outputs, targets: ((outputs - targets) ** 2).sum(1) / 2
    >>> training = torch.ones(2, 1), torch.tensor([[2.0], [-2.0]])
    >>> lai_torch.exact_scores(model, loss, (torch.ones(1, 1), torch.ones(1, 1)), training).tolist()
    [2.0, -2.0]
    """
    check_options(at, learning_rate, reduction, optimizer, max_norm)
    for role, batch in (("validation", validation), ("training", training)):
        check_batch(role, batch)
    function = Function(model, loss)
    start = function.point()
    if optimizer is not None:
        step = gradient(function, start, training, reduction=reduction)
        after, pull = stepped(function, start, step, optimizer, max_norm)
        direction = pull(validation_gradient(function, after, validation, training))
    elif at == "midpoint" and learning_rate is not None:
        step = gradient(function, start, training, reduction=reduction)
        middle = {name: value - 0.5 * learning_rate * step[name] for name, value in start.items()}
        direction = validation_gradient(function, middle, validation, training)
    else:
        direction = validation_gradient(function, start, validation, training)
    scores, _, method = along(function, start, direction, training)
    # says how and why, without changing what is returned
    scores.method, scores.reason = method  # type: ignore[attr-defined]
    return scores


def validation_gradient(function: Function, point: Point, validation: Any, training: Any) -> Point:
    """Return the gradient of the summed validation loss, in chunks no larger than the training batch."""
    return gradient(function, point, validation, reduction="sum", size=count(*training))


def check_options(
    at: str, learning_rate: float | None, reduction: str, optimizer: Any, max_norm: float | None
) -> None:
    """Raise unless the options of `exact_scores` are known and go together.

    Raises
    ------
    ValueError
        If they are not.
    """
    check_exact_options(at, learning_rate, reduction, optimizer)
    if optimizer is not None:
        check_optimizer(optimizer)
    if learning_rate is not None and at == "start":
        msg = "learning_rate: an optimizer has its own; leave it out"
        raise ValueError(msg)
    if learning_rate is not None and not learning_rate > 0:
        msg = f"learning_rate: expected a positive number, got {learning_rate!r}"
        raise ValueError(msg)
    if max_norm is not None and (optimizer is None or not max_norm > 0):
        msg = f"max_norm: expected a positive norm together with an optimizer, got {max_norm!r}"
        raise ValueError(msg)
