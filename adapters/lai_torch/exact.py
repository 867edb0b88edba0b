"""The exact inner product of gradients for any model, by one forward-mode pass."""

from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn

from lai_core._adapters import check_batch, check_choice, check_exact_options
from lai_torch._exact.by_position import RowSums, score_positions
from lai_torch._exact.directional import METHODS
from lai_torch._exact.optimizer_step import check_optimizer, take_step
from lai_torch._exact.prover import Prover
from lai_torch._model.batch import Loss, count
from lai_torch._model.function import Function, Point, gradient
from lai_torch._model.preserve import run_alone


class ExactScores(NamedTuple):
    """Exact scores, and how they were found; see `exact_scores`."""

    scores: Tensor
    """`(n_train,)`, as `exact_scores` returns them by itself."""
    method: str
    """`forward`, one forward-mode pass; `double backward`; or `reverse`, one reverse pass a sample."""
    reason: str | None
    """Why no earlier one of the three: the operation that has no such derivative, or by how much it was
    off from the gradient of a plain reverse pass. None where forward mode served."""
    residual: float | None
    """By how much a random combination of the scores differs from that combination's plain gradient along
    the direction, relative to the scores: near the precision of the model's type. None where all are NaN."""


@overload
def exact_scores(
    model: nn.Module,
    loss: Loss,
    validation: Any,
    training: Any,
    *,
    at: str = ...,
    learning_rate: float | None = ...,
    reduction: str = ...,
    optimizer: torch.optim.Optimizer | None = ...,
    max_norm: float | None = ...,
    method: str | None = ...,
    per_position: bool = ...,
    explain: Literal[False] = ...,
) -> Tensor: ...


@overload
def exact_scores(
    model: nn.Module,
    loss: Loss,
    validation: Any,
    training: Any,
    *,
    at: str = ...,
    learning_rate: float | None = ...,
    reduction: str = ...,
    optimizer: torch.optim.Optimizer | None = ...,
    max_norm: float | None = ...,
    method: str | None = ...,
    per_position: bool = ...,
    explain: Literal[True],
) -> ExactScores: ...


@run_alone
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
    method: str | None = None,
    per_position: bool = False,
    explain: bool = False,
) -> Tensor | ExactScores:
    r"""Score every training sample by the exact first-order change of the validation loss.

    One gradient of the validation loss and one forward-mode pass over the batch along it
    (:eq:`directional-derivative`): any architecture, any parameter, no layers to find. What a gradient
    is, a plain reverse pass through the model as it is decides: hooks, custom backward passes and cut
    paths count as in training. Every answer is proved on the batch itself: a random combination of the
    scores must equal that combination's plain gradient along the direction, on the batch and on parts of
    it. Where forward mode fails that, double backward is tried, then one reverse pass a sample. Model,
    loss, optimizer, `.grad`, buffers and random streams are afterwards as before.

    Parameters
    ----------
    model
        The model, in the mode (train or eval) in which it is meant.
    loss
        `loss(outputs, targets) -> (n,)`: one unnormalised number a sample. It may use the model's
        parameters; a module with trainable parameters of its own (proxies, centres) is scored with them.
    validation, training
        `(inputs, targets)` each. Training samples have to be independent; validation samples need not be, for
        their summed loss is one function.
    at
        `start`: the validation gradient at the parameters as they are. `midpoint`: after half of the
        SGD step on the whole batch, where the score is the one-step Shapley value up to second order
        in the step, and exactly for a quadratic loss (:eq:`midpoint`). With an optimizer: the derivative
        of its step on half of the batch's gradient, which is the same for any step (:eq:`step-midpoint`).
    learning_rate
        Of that SGD step; for `midpoint` without an optimizer.
    reduction
        `mean` or `sum`: how the batch's losses make the training loss whose step is meant.
    optimizer
        A live `SGD`, `Adam` or `AdamW`: the score is then the exact derivative of its next step
        (:eq:`adam-derivative`), with momentum, both moments, weight decay, AMSGrad and groups.
    max_norm
        With an optimizer: the gradient is clipped to this norm first, as `clip_grad_norm_` does.

    method
        `forward`, `double backward` or `reverse`: that one alone. None: the first of them that is proved.
    per_position
        Score every position: `loss` then returns `(n, t)`, one unnormalised number a position, as a language
        model's loss of each token. The score is of the position's own loss, whatever the position read. The
        loss of a sample is the sum over its positions.
    explain
        Whether to say how the scores were found.

    Returns
    -------
    Tensor or ExactScores
        `(n_train,)`, or `(n_train, t)` per position, which add up to the samples' scores. Positive helps:
        the decrease of the summed validation loss per unit learning rate per unit weight of that loss. With
        groups of different learning rates, per unit of the largest. NaN for a sample whose loss or gradient
        is not finite. With `explain`, a named tuple that holds them.

    Raises
    ------
    TypeError
        If a batch is no pair, or the optimizer is none of the three.
    ValueError
        If an option is unknown, options exclude each other, or the loss is not one number a sample; if
        samples see one another (BatchNorm in training mode, a loss that compares them), so that none has
        a gradient of its own; if no way agrees with the plain gradient; if the loss depends on a parameter
        that neither the model nor the loss holds; or if the validation gradient is not finite.

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
    check_exact_options(at, learning_rate, reduction, optimizer)
    if method is not None:
        check_choice("method", method, tuple(METHODS))
    if optimizer is not None:
        check_optimizer(optimizer)
    if learning_rate is not None and optimizer is not None:
        msg = "learning_rate: an optimizer has its own; leave it out"
        raise ValueError(msg)
    if learning_rate is not None and not learning_rate > 0:
        msg = f"learning_rate: expected a positive number, got {learning_rate!r}"
        raise ValueError(msg)
    if max_norm is not None and (optimizer is None or not max_norm > 0):
        msg = f"max_norm: expected a positive norm together with an optimizer, got {max_norm!r}"
        raise ValueError(msg)
    for role, batch in (("validation", validation), ("training", training)):
        check_batch(role, batch)
        try:
            count(*batch)
        except ValueError as error:
            msg = f"{role}: {error}"
            raise ValueError(msg) from error
    # one number a row: a sum over positions, of which each is scored by itself later
    if per_position:
        loss = RowSums(loss)
    function = Function(model, loss)
    prover = Prover(function, method)
    direction = _direction(function, validation, training, at, learning_rate, reduction, optimizer, max_norm)
    found: Any = prover(direction, training)
    # samples are proved first: positions are scored along the same direction
    if isinstance(loss, RowSums):
        found = score_positions(function, direction, training, found, prover.methods)
    found = ExactScores(found.scores, found.method, found.reason, found.residual)
    return found if explain else found.scores


def _direction(
    function: Function,
    validation: Any,
    training: Any,
    at: str,
    learning_rate: float | None,
    reduction: str,
    optimizer: torch.optim.Optimizer | None,
    max_norm: float | None,
) -> Point:
    """Return the validation gradient at the point that is meant, in chunks no larger than the batch."""
    size = count(*training)
    # plain SGD from where the model is: no step has to be taken
    if optimizer is None and at == "start":
        return gradient(function, validation, reduction="sum", size=size)
    start = function.point()
    used = optimizer is not None
    step = gradient(function, training, reduction=reduction, role="training", used=used)
    if optimizer is not None:
        # half the gradient, whatever the optimizer makes of it
        if at == "midpoint":
            step = {name: 0.5 * part for name, part in step.items()}
        after, vjp = take_step(function, start, step, optimizer, max_norm)
        with function.set_parameters(after):
            return vjp(gradient(function, validation, reduction="sum", size=size))
    rate = learning_rate or 0.0  # checked: it is positive
    with function.set_parameters({name: value - 0.5 * rate * step[name] for name, value in start.items()}):
        return gradient(function, validation, reduction="sum", size=size)
