"""Parameters without a record: one backward pass per sample."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.overrides import resolve_name

from lai_torch._recording.per_sample import over_budget
from lai_torch._recording.rules.unread import HIDDEN
from lai_torch._recording.watching.probes import leaves
from lai_torch._recording.watching.recorder import Recorder


def one_by_one(
    recorder: Recorder, values: Tensor, names: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return per-sample gradients of the parameters `names`, `(n, *shape)`, and those over the budget.

    They take one backward pass per sample through the whole batch: right for any function, at n times the
    cost of a record.
    """
    samples = recorder.samples
    found: dict[str, Tensor] = {}
    too_large: dict[str, str] = {}
    for name in names:
        parameter = recorder.parameters[name]
        if needed := over_budget(parameter, samples):
            function = next(iter(recorder.stuck.get(name, {})), None)
            used = HIDDEN if function is None else resolve_name(function) or str(function)
            too_large[name] = f"{used}; its per-sample gradients take {needed} bytes"
        else:
            found[name] = parameter.detach().new_zeros((samples, *parameter.shape))
    if not found:
        return found, too_large
    wanted: list[Tensor] = [recorder.parameters[name] for name in found]
    for sample, value in enumerate(values):
        gradients = recorder.differentiate(value, wanted, None)
        for rows, gradient in zip(found.values(), gradients, strict=True):
            if gradient is not None:
                rows[sample] = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
    return found, too_large


def foreign(recorder: Recorder, values: Tensor) -> dict[str, str]:
    """Return trainable parameters that the losses depend on and the model does not register."""
    own = {id(parameter) for parameter in recorder.parameters.values()}
    found = {}
    for leaf in leaves(values):
        if isinstance(leaf, nn.Parameter) and id(leaf) not in own:
            found[f"a parameter of shape {tuple(leaf.shape)}"] = "the loss, and not registered by the model"
    return found
