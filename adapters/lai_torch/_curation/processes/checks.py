"""What several processes cannot do, said by name on each of them before anything runs."""

from typing import Any

from torch import Tensor, nn

from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import digest
from lai_torch._curation.validation import Validation
from lai_torch._model.batch import tensors
from lai_torch.options import Estimator, Kept


def check_spread(
    engine: Engine,
    estimator: Estimator,
    validation: Validation,
    backward: str,
    training: Kept,
) -> None:
    """Raise if what is asked for is not exact where samples or parameters are spread over processes."""
    name, facts = estimator.name, estimator.facts
    if engine.sharded:
        if backward != "kept":
            msg = f"backward: {backward!r} goes around what gathers sharded parameters; use 'kept'"
            raise ValueError(msg)
        if training.scaler is not None:
            msg = (
                "backward: a GradScaler looks at this process's part of the gradients alone; train in "
                "bfloat16, which needs none"
            )
            raise ValueError(msg)
    if training.balance and backward != "kept":
        msg = f"backward: rows are shared out by the pass 'kept', got {backward!r}"
        raise ValueError(msg)
    if facts.learning_rate and (engine.group.size > 1 or engine.sharded):
        msg = (
            f"estimator: {name!r} needs the gradient of the whole batch before it scores, which is spread "
            "over processes; use 'exact'"
        )
        raise ValueError(msg)
    if engine.group.size == 1:
        return
    adds_up = facts.summary is not None and getattr(estimator, "positions", None) != "flatten"
    alike = isinstance(validation.source, tuple) or validation.is_summary
    if getattr(estimator, "parts", None) is not None and not alike:
        msg = (
            "parts: expected (inputs, targets), which every process cuts alike, got a loader, of which each "
            "process has other rows; pass a set, or leave parts out"
        )
        raise ValueError(msg)
    if not (alike or (adds_up and not facts.fits_weights)):
        flat = facts.summary is not None and not adds_up
        what = f"{name!r} with positions='flatten'" if flat else repr(name)
        msg = (
            f"validation: estimator {what} has nothing to add up over processes and needs the whole set on "
            "each; pass (inputs, targets), the same on every process, or use 'lai'"
        )
        raise ValueError(msg)


def check_alike(engine: Engine, model: nn.Module, validation: Any) -> None:
    """Raise on every process unless what should be the same on each is."""
    if engine.group.size == 1:
        return
    parameters: list[Tensor] = [] if engine.sharded else list(model.parameters())
    if not engine.group.alike(digest(parameters)):
        msg = (
            "model: expected the same parameters on every process, got others; build it from the same seed, "
            "or load the same state"
        )
        raise ValueError(msg)
    given = tensors(validation) if isinstance(validation, tuple) else []
    if not engine.group.alike(digest(given)):
        msg = (
            "validation: expected the same (inputs, targets) on every process, which each trace a part of, "
            "got others; pass the whole set on each, or a loader that gives each process its own part"
        )
        raise ValueError(msg)
