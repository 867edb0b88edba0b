"""From a model and a batch to a `lai_core.Trace`, its gates, what it explains, and gradients' products."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

import lai_core as lai
from lai_core._adapters import Coverage as Coverage
from lai_core._adapters import check_batch, check_choice
from lai_core.estimators.gates import GateTrace as GateTrace
from lai_torch._graph.gates import read_gates
from lai_torch._graph.record import Reader
from lai_torch._graph.unlike import record_alike
from lai_torch._model.batch import Loss
from lai_torch._model.preserve import run_alone
from lai_torch._model.valid import Valid
from lai_torch._model.walk import list_parameters


@run_alone
def trace(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    gradients: str = "output",
    partial: bool = False,
    last: str | None = None,
    valid: Tensor | Valid | None = None,
) -> lai.Trace:
    """Record one batch: every layer's input, and the gradients of the last layer's or of every output.

    Parameters, their `.grad`, buffers, random state, training flags and hooks are afterwards as
    before, also when the model raises. Autocast is off and compiled modules run eagerly.

    Parameters
    ----------
    model
        The model, in the mode (train or eval) in which it is to be traced.
    loss
        `loss(outputs, targets) -> (n,)`: what the model returned, and one unnormalised number a sample.
    inputs
        A tensor, a tuple (passed as `*`) or a mapping (passed as `**`), samples on the first axis.
    targets
        Whatever `loss` takes, samples on the first axis.
    gradients
        `output`: those of the last layer alone, for LAI and LLI; nothing before that layer is
        differentiated (unless shapes leave open which axis holds the samples, as where a batch has
        as many positions as samples: one pass with all gradients then decides). `all`: those of
        every layer, for Ghost; a second backward pass with differently weighted samples proves that
        the recorded rows are each sample's own.
    partial
        Leave parameters that cannot be explained out of an `all` trace, rather than refuse.
    last
        Name of the final layer, needed where several reach the loss side by side.
    valid
        `(n, t)`, not zero where a position counts, or a function of the inputs that returns it: for LAI,
        padding counts for nothing. None: the inputs' `attention_mask`, where the model takes one.

    Returns
    -------
    lai_core.Trace
        Detached tensors in the model's own types and on its device.

    Raises
    ------
    TypeError
        If `inputs` or what `loss` returns is of a wrong kind.
    ValueError
        If an option is unknown, the loss is not one number per sample, samples are coupled
        (BatchNorm in training mode), several layers are final (with gradients="output", and no `last`), or
        parameters cannot be explained.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> batch = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> [layer.name for layer in lai_torch.trace(model, loss, *batch).layers]
    ['0', '2']
    """
    check_choice("gradients", gradients, ("output", "all"))
    if gradients == "all" and not any(one.requires_grad for one in list_parameters(model).values()):
        msg = "model: expected at least one trainable parameter for gradients='all', got none"
        raise ValueError(msg)
    reader = Reader(model, loss, every=gradients == "all", last=last, valid=valid)
    recording = reader.record((inputs, targets))
    if not partial:
        check_explained(recording.plan.unexplained)
    if reader.every and not recording.plan.last:
        # Ghost adds it up to nothing, and LAI and LLI refuse it as a last layer
        nothing = recording.losses.detach().new_zeros(len(recording.losses), 1)
        name = f"no single last layer: {recording.plan.refusal}"
        return lai.Trace([*recording.trace.layers, lai.GainTrace(None, nothing, name=name)])
    return recording.trace


@run_alone
def trace_gates(
    model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, last: str | None = None
) -> GateTrace:
    """Record one batch for gate-corrected LAI: inputs of layers, gates between them, the output's gradients.

    The model is a chain: linear layers on `(n, d)`, each with a matrix of its own, and between two of
    them any function that works entry by entry (an activation, a gain, BatchNorm or dropout in eval
    mode). That it does is checked on every batch, by two products with its Jacobian.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`.

    Returns
    -------
    GateTrace
        Detached tensors; costs one forward pass and two elementwise backward passes.

    Raises
    ------
    TypeError
        If `inputs` or what `loss` returns is of a wrong kind.
    ValueError
        If the model is no such chain, naming the layer; else as in `trace`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> from lai_core.estimators.gates import gate_lai_scores
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> found = lai_torch.trace_gates(model, loss, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    >>> gate_lai_scores(found, found).shape
    torch.Size([5])
    """
    reader = Reader(model, loss, every=False, last=last)
    return read_gates(reader.record((inputs, targets)))


def per_sample_norms(model: nn.Module, loss: Loss, batch: Any) -> Tensor:
    """Compute the norm of each sample's gradient over all trainable parameters.

    The root of `lai_core.self_influence` of a trace with all gradients: exact for any model not refused.

    Parameters
    ----------
    model, loss
        As for `trace`.
    batch
        `(inputs, targets)`.

    Returns
    -------
    Tensor
        `(n,)`, of each sample's own, unnormalised loss.

    Raises
    ------
    ValueError
        As `trace` does: if samples are coupled, so that none has a gradient of its own, or a parameter cannot
        be explained.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2 / 2
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> lai_torch.per_sample_norms(model, loss, (torch.tensor([[3.0, 4.0]]), torch.tensor([2.0]))).tolist()
    [10.0]
    """
    check_batch("batch", batch)
    return lai.self_influence(trace(model, loss, *batch, gradients="all"), "ghost").sqrt()


class PerSampleNorms:
    """Compute the norm of each sample's gradient from the forward pass that trains.

    The pass runs once, in the model's own mode: its graph is read, and stays for the backward pass. So norms
    are of what trains, dropout masks included, and cost no forward pass. `lai_core.diagnosis` computes the
    gradient noise scale from them.

    Parameters
    ----------
    model, loss
        As for `trace`.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> from lai_core.diagnosis import estimate_noise_scale, gradient_noise
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    >>> loss = lambda outputs, targets: (outputs[:, 0] - targets) ** 2
    >>> norms, found = lai_torch.PerSampleNorms(model, loss), []
    >>> for step in range(100):
    ...     inputs = torch.randn(32, 4)
    ...     losses, lengths = norms.forward(inputs, inputs.sum(1) + torch.randn(32))
    ...     losses.mean().backward()
    ...     total = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    ...     found.append(gradient_noise(lengths, total))
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    >>> noise, signal = (torch.stack(column) for column in zip(*found, strict=True))
    >>> print(estimate_noise_scale(noise, signal))
    gradient noise scale: 7.26 rows (6.93 to 7.63, 95% of 100 steps)
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        # the wrapper runs, so that it averages; the module within it is read
        wrapper = getattr(model, "_orig_mod", model)
        if isinstance(wrapper, nn.parallel.DistributedDataParallel):
            if wrapper.static_graph:
                msg = (
                    "model: expected a wrapper that averages in each backward pass, got static_graph=True: "
                    "reading the graph ends its first step early; leave static_graph out"
                )
                raise ValueError(msg)
            wrapper = wrapper.module  # proofs run on some processes alone, and communicate nothing
        self._trained, self._reader = model, Reader(wrapper, loss, every=True)

    @run_alone
    def forward(self, inputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
        """Run model and loss on a batch.

        Parameters
        ----------
        inputs, targets
            As for `trace`.

        Returns
        -------
        tuple
            `(n,)` losses, to be weighted and differentiated, and `(n,)` norms of the gradients of each
            sample's own, unweighted loss.

        Raises
        ------
        ValueError
            As `per_sample_norms` does; of one row where the model draws random numbers, as dropout does: its
            norm is that of its gradient.
        """
        named = list_parameters(self._reader.model, self._reader.loss)  # an engine is named before it runs
        if any(hasattr(one, "device_mesh") for one in named.values()):
            msg = (
                "model: expected whole parameters, got sharded ones (fully_shard); lai_torch.diagnose "
                "gathers them, for the norms of one batch"
            )
            raise ValueError(msg)
        found = self._reader.record_live((inputs, targets), self._trained)
        check_explained(found.plan.unexplained)
        return found.losses, lai.self_influence(found.trace, "ghost").sqrt()


@run_alone
def per_sample_inner_products(model: nn.Module, loss: Loss, first: Any, second: Any) -> Tensor:
    """Compute the inner products of the per-sample gradients of two batches, over all trainable parameters.

    They are `lai_core.ghost_kernel` of two traces with all gradients. For their sums over the first batch
    alone, `exact_scores` takes one forward-mode pass.

    Parameters
    ----------
    model, loss
        As for `trace`.
    first, second
        `(inputs, targets)` each; the same batch twice is traced once.

    Returns
    -------
    Tensor
        `(n_first, n_second)`.

    Raises
    ------
    ValueError
        As `per_sample_norms` does.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> loss = lambda outputs, targets: outputs[:, 0] * targets
    >>> batch = torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, -1.0])
    >>> lai_torch.per_sample_inner_products(model, loss, batch, batch).tolist()
    [[1.0, -2.0], [-2.0, 4.0]]
    """
    for role, batch in (("first", first), ("second", second)):
        check_batch(role, batch)
    batches = (first,) if second is first else (first, second)
    found = record_alike(Reader(model, loss, every=True), *batches)
    for one in found:
        check_explained(one.plan.unexplained)
    return lai.ghost_kernel(found[0].trace, found[-1].trace)


def check_explained(unexplained: Mapping[str, str]) -> None:
    """Raise if a trainable parameter has a gradient that no record explains."""
    if not unexplained:
        return
    found = "; ".join(f"{name!r} (used by {function})" for name, function in unexplained.items())
    msg = (
        f"model: expected every trainable parameter to be explained, cannot explain {found}; pass "
        "partial=True to leave them out, freeze them, or use lai_torch.exact_scores, which needs no trace"
    )
    raise ValueError(msg)


@run_alone
def coverage(model: nn.Module, loss: Loss, inputs: Any, targets: Any, *, last: str | None = None) -> Coverage:
    """Say which parameters Ghost explains on a batch, and what fraction of all trainable scalars they are.

    Parameters
    ----------
    model, loss, inputs, targets, last
        As for `trace`. Two samples are enough; one explains everything.

    Returns
    -------
    Coverage
        Names and counts. A parameter that the loss does not depend on has gradient zero, which is
        explained.

    Raises
    ------
    ValueError
        If samples are coupled or the loss is not one number per sample.

    Examples
    --------
    >>> import torch
    >>> import lai_torch
    >>> model = torch.nn.Linear(4, 3)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> lai_torch.coverage(model, loss, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])).fraction
    1.0
    """
    reader = Reader(model, loss, every=True, last=last)
    recording = reader.record((inputs, targets))
    named = list_parameters(model, loss)
    sizes = {name: parameter.numel() for name, parameter in named.items() if parameter.requires_grad}
    unexplained = dict(recording.plan.unexplained)
    kinds = {name: tuple(recording.kinds.get(name, ())) for name in sizes if name not in unexplained}
    total = sum(sizes.values())
    fraction = sum(sizes[name] for name in kinds) / total if total else 1.0
    # what is frozen needs no explanation, and is named so that nobody misses it
    frozen = tuple(name for name, parameter in named.items() if not parameter.requires_grad)
    return Coverage(fraction, total, kinds, unexplained, frozen)
