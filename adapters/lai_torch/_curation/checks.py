"""What a curator's options, a batch's groups and a policy's weights must be."""

import inspect
from typing import Any, get_args

import torch
from torch import nn

import lai_core as lai
from lai_core._adapters import check_choice, check_count, check_number
from lai_core.estimators.catalogue import CATALOGUE
from lai_torch._curation.outcome import check_groups
from lai_torch._curation.validation import Validation
from lai_torch._model.batch import count
from lai_torch._model.walk import check_kinds_served, list_parameters
from lai_torch.options import Estimator
from lai_torch.options.passes import PassName
from lai_torch.options.protocols import wants
from lai_torch.report import check_ids

WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
"""Classes of torch that spread batches or parameters, and that nothing here sees through."""

PASSES = get_args(PassName)


def check_model(model: nn.Module) -> None:
    """Raise if a module inside a model spreads parameters or batches over processes, naming its class."""
    for module in model.modules():
        bases = [base for base in type(module).__mro__ if base.__module__.startswith("torch.")]
        if spread := [base.__name__ for base in bases if base.__name__ in WRAPPERS]:
            msg = (
                "model: expected one that DistributedDataParallel wraps as a whole, that fully_shard shards, "
                f"or that nothing spreads, got {spread[0]}; use one of those"
            )
            raise ValueError(msg)


def check_kinds(model: Any, loss: Any, generator: Any = None) -> None:
    """Raise unless model, loss and generator are of the kinds that they are taken for."""
    check_kinds_served([type(model)])
    if not isinstance(model, nn.Module):
        msg = f"model: expected a torch.nn.Module, got {_kind_of(model)}"
        raise TypeError(msg)
    # a class is callable, and makes a loss
    if not callable(loss) or isinstance(loss, type):
        msg = (
            f"loss: expected a function loss(outputs, targets) -> (n,), got {_kind_of(loss)}; for example "
            "torch.nn.CrossEntropyLoss(reduction='none')"
        )
        raise TypeError(msg)
    if generator is not None and not isinstance(generator, torch.Generator):
        msg = f"generator: expected a torch.Generator on the CPU, or None, got {_kind_of(generator)}"
        raise TypeError(msg)


def _kind_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_trains(model: nn.Module, loss: Any) -> None:
    """Raise where a step could not train: gradients are off, or every parameter is frozen."""
    if not torch.is_grad_enabled():
        found = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        msg = f"step: expected gradients to be on, got a call under {found}; leave it (score() works there)"
        raise ValueError(msg)
    if not any(parameter.requires_grad for parameter in list_parameters(model, loss).values()):
        msg = "model: expected at least one trainable parameter to step on, got none: all are frozen"
        raise ValueError(msg)


def check_optimizer(optimizer: Any, model: nn.Module) -> None:
    """Raise unless an optimizer, where there is one, can step on the model."""
    if optimizer is None:
        return
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        msg = (
            f"optimizer: expected a torch.optim.Optimizer, got {_kind_of(optimizer)}; make one, such as "
            "torch.optim.SGD(model.parameters(), lr=0.1)"
        )
        raise TypeError(msg)
    # `model.to(device)` may have replaced them since
    parameters = {id(parameter) for parameter in model.parameters()}
    if not any(id(p) in parameters for group in optimizer.param_groups for p in group["params"]):
        msg = (
            "optimizer: expected one that holds parameters of the model, got one that holds none; make it of "
            "model.parameters(), after the model is on its device"
        )
        raise ValueError(msg)
    # such as LBFGS, which asks for losses at points of its own
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        msg = (
            f"optimizer: expected one that steps on gradients, got {type(optimizer).__name__}, which needs a "
            "closure; score with Curator(...).score in a loop of your own"
        )
        raise ValueError(msg)


def check_together(estimator: Estimator, validation: Validation, optimizer: Any, backward: str) -> None:
    """Raise unless an estimator goes with the validation side, the optimizer and the pass."""
    name, facts = estimator.name, estimator.facts
    # the step that it scores at half is the optimizer's
    if facts.learning_rate and optimizer is None:
        msg = f"optimizer: estimator {name!r} needs the optimizer's learning rates, got None"
        raise ValueError(msg)
    # neither has samples to fit on that are not scored
    if facts.fits_weights and (validation.is_summary or validation.is_batch):
        msg = (
            f"validation: estimator {name!r} is calibrated on validation samples; pass "
            "(inputs, targets) or a loader, or use 'lai'"
        )
        raise ValueError(msg)
    if facts.summary is None and validation.is_summary:
        way_out = ", or use 'lai'" if facts.gates else ""
        msg = f"validation: estimator {name!r} has no ValidationSummary; pass (inputs, targets){way_out}"
        raise ValueError(msg)
    if validation.source == "batch" and not facts.exclude_self:
        msg = (
            f"validation: estimator {name!r} cannot leave a sample out of its own score; pass "
            "'batch+self', or use 'ghost'"
        )
        raise ValueError(msg)
    if validation.is_summary:
        check_summary(validation.source, estimator)
    check_choice("backward", backward, PASSES)
    # its graph keeps the layers' inputs, and the last layer's gradient alone
    able = [each for each in CATALOGUE if each.gradients == "output" and not each.gates]
    if backward != "selective":
        able = [each for each in CATALOGUE if each.shared_forward]
    if backward != "kept" and facts not in able:
        fitting = ", ".join(repr(each.name) for each in able)
        msg = f"backward: {backward!r} expects one of {fitting}, got {name!r}"
        raise ValueError(msg)
    if getattr(estimator, "parts", None) is not None:
        _check_is_set(validation, "parts: expected a validation set to cut")
    if getattr(estimator, "autocast", None) and backward not in {"kept", "selective"}:
        msg = f"autocast: {backward!r} trains on the pass that is scored; leave it out, or use 'selective'"
        raise ValueError(msg)
    # a pass that trains, or that is the validation set, too, has to hold the whole batch
    if getattr(estimator, "chunk", None) is not None and (backward != "kept" or validation.is_batch):
        other = f"backward={backward!r}"
        if backward == "kept":
            other = f"validation={validation.source!r}"
        msg = f"chunk: {other} runs the whole batch at once; leave it out, or use 'kept' and a validation set"
        raise ValueError(msg)


def check_summary(summary: lai.ValidationSummary, estimator: Estimator) -> None:
    wanted = estimator.facts.summary
    if summary.estimator != wanted:
        msg = f"validation: expected a summary for {wanted!r}, got one for {summary.estimator!r}"
        raise ValueError(msg)
    positions = getattr(estimator, "positions", None)
    # a sum is over one reading of positions, which cannot be changed afterwards
    if positions is not None and summary.positions not in {None, positions}:
        msg = (
            f"positions: expected {summary.positions!r}, how the summary reads them, got {positions!r}; "
            "leave it out, or summarize again"
        )
        raise ValueError(msg)
    if getattr(estimator, "sketch", None) is not None:
        msg = (
            "sketch: expected a validation set to sketch, got a ValidationSummary; pass (inputs, targets) or "
            "a loader"
        )
        raise ValueError(msg)


def check_seen(policy: Any, validation: Validation) -> None:
    # of a batch that is scored against itself, or of a sum, there are none
    if "validation_losses" in wants(policy):
        _check_is_set(validation, "validation: the policy asks for the losses of a validation set")


def _check_is_set(validation: Validation, expected: str) -> None:
    if validation.is_batch or validation.is_summary:
        got = repr(validation.source) if validation.is_batch else "a ValidationSummary"
        msg = f"{expected}, got {got}; pass (inputs, targets) or a loader"
        raise ValueError(msg)


def check_counts(warmup: Any, refresh: Any, accumulate: Any, max_norm: Any) -> None:
    for name, value, least in (("warmup", warmup, 0), ("refresh", refresh, 1), ("accumulate", accumulate, 1)):
        check_count(name, value, least)
    if max_norm is not None:
        check_number("max_norm", max_norm, above=0.0)


def check_micro_batches(
    batches: list[Any], groups: Any, estimator: Estimator, validation: Validation
) -> None:
    """Raise unless batches can be weighed together."""
    if not batches:
        msg = "batches: expected at least one, got none"
        raise ValueError(msg)
    # what is scored against itself cannot be cut
    whole = validation.is_batch or not hasattr(estimator, "chunk")
    if whole and len(batches) > 1:
        what = f"estimator {estimator.name!r}"
        if validation.is_batch:
            what = f"validation={validation.source!r}"
        msg = (
            f"batches: {what} reads an optimizer step in one part, got {len(batches)} micro-batches; "
            "pass one, or use 'lai' with a validation set"
        )
        raise ValueError(msg)
    if groups is None:
        groups = [None] * len(batches)
    if len(groups) != len(batches):
        msg = f"groups: expected those of each batch ({len(batches)}), got {len(groups)}"
        raise ValueError(msg)
    for own, batch in zip(groups, batches, strict=True):
        check_groups(own, count(*batch))


def count_samples(batch: Any, groups: Any, ids: Any = None) -> int:
    """Return how many samples a batch has, after checking what came with it."""
    samples = count(*batch)
    if ids is not None:
        check_ids(ids, samples)
    check_groups(groups, samples)
    return samples
