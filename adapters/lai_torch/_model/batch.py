"""A batch as the user hands it over: how many samples, some of its rows, the model's call on it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], Tensor]
"""`loss(outputs, targets) -> (n,)`: one number per sample, unnormalised."""


def call(model: nn.Module, inputs: Any) -> Any:
    """Call `model` on `inputs`: an array, a tuple (passed as `*`) or a mapping (passed as `**`).

    Raises
    ------
    TypeError
        If `inputs` is none of these.
    """
    if isinstance(inputs, Tensor):
        return model(inputs)
    if isinstance(inputs, tuple):
        return model(*inputs)
    if isinstance(inputs, Mapping):
        return model(**inputs)
    raise _build_input_error(inputs)


def _build_input_error(inputs: Any) -> TypeError:
    way_out = {"list": "; pass a tuple, for model(*inputs)", "ndarray": "; pass torch.as_tensor(inputs)"}
    kind = type(inputs).__name__
    return TypeError(f"inputs: expected a tensor, a tuple or a mapping, got {kind}{way_out.get(kind, '')}")


def tensors(tree: Any) -> list[Tensor]:
    """Return the tensors in nested tuples, lists and mappings, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    return [tensor for _, part in _list_parts(tree) for tensor in tensors(part)]


def usable(tree: Any) -> Any:
    """Return a batch with copies of the tensors made in inference mode, which cannot go into a gradient."""
    if not any(tensor.is_inference() for tensor in tensors(tree)):
        return tree
    with torch.inference_mode(mode=False):  # a copy that is made within is one of these too
        return map_tensors(tree, lambda one: one.clone() if one.is_inference() else one)


def map_tensors(tree: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return nested tuples, lists and mappings with `function` applied to every tensor in them."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(value, function) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [map_tensors(part, function) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def count(inputs: Any, targets: Any) -> int:
    """Return the number of samples: the length of the first axis of the targets, else of the inputs.

    Raises
    ------
    ValueError
        If neither holds a tensor with an axis, the batch is empty, both hold other numbers of samples, or one
        is not collated.
    """
    sides = ("targets", targets, tensors(targets)), ("inputs", inputs, tensors(inputs))
    for name, side, found in sides:
        # a list of samples that nobody stacked
        if isinstance(side, list) and _are_entries(side):
            raise _build_collation_error(name, "list")
        for tensor in found:
            if tensor.is_nested:
                raise _build_dense_error(
                    name, "nested", "pad it (torch.nested.to_padded_tensor), and pass a mask"
                )
    # targets first: of several inputs, some may hold no rows
    for _, _, found in sides:
        first = next((tensor for tensor in found if tensor.ndim), None)
        if first is not None:
            samples = first.shape[0]
            if not samples:
                msg = f"inputs: expected at least one sample, got a tensor of shape {tuple(first.shape)}"
                raise ValueError(msg)
            if hasattr(inputs, "__array_interface__"):
                raise _build_input_error(inputs)
            for name, tree, held in sides:
                _check_collated(name, tree, samples)
                # no one can take some samples' rows of it
                for tensor in held:
                    if tensor.layout != torch.strided and holds_rows(tensor, samples):
                        kind = str(tensor.layout).removeprefix("torch.")
                        raise _build_dense_error(name, kind, "pass .to_dense()")
            _check_together(inputs, samples)
            if isinstance(inputs, list):
                raise _build_input_error(inputs)
            return samples
    kinds = ", ".join(type(side).__name__ for side in (inputs, targets))
    msg = (
        f"inputs: expected a tensor with a batch axis among the inputs or the targets, got none ({kinds}); "
        "pass torch.as_tensor(...) of each"
    )
    raise ValueError(msg)


def _check_together(inputs: Any, samples: int) -> None:
    """Raise where all inputs have one length, and targets another: of several, they may be no rows."""
    lengths = {one.shape[0] for one in tensors(inputs) if one.ndim}
    # several inputs of different lengths may be tables or offsets
    if len(lengths) == 1 and lengths != {samples}:
        msg = (
            f"inputs, targets: expected as many samples in both, got {lengths.pop()} in inputs and {samples} "
            "in targets; what all samples share belongs into the model, as a buffer"
        )
        raise ValueError(msg)


def _check_collated(side: str, tree: Any, samples: int) -> None:
    """Raise where a list or an array of numpy holds an entry for each sample; of one sample any may."""
    if isinstance(tree, list) and len(tree) == samples > 1:
        if _are_entries(tree) or not any(holds_rows(one, samples) for one in tensors(tree)):
            raise _build_collation_error(side, "list")
    elif hasattr(tree, "__array_interface__") and tree.shape[:1] == (samples,) != (1,):
        raise _build_collation_error(side, type(tree).__name__)
    for _, part in _list_parts(tree):
        _check_collated(side, part, samples)


def _are_entries(parts: list[Any]) -> bool:
    """Whether a list holds a mapping or a tensor for each sample: scalars, or tensors that differ in length.

    Others may hold rows, side by side.
    """
    if any(isinstance(part, Mapping) for part in parts):
        return True
    kinds = {(part.dtype, part.shape[1:]) if isinstance(part, Tensor) else None for part in parts}
    lengths = set()
    if len(kinds) == 1 and None not in kinds:
        lengths = {part.shape[:1] for part in parts}
    return len(lengths) > 1 or torch.Size() in lengths


def _build_collation_error(side: str, kind: str) -> ValueError:
    return ValueError(
        f"{side}: expected tensors with a row for each sample, got a {kind} with an entry for each; collate "
        "it to tensors (torch.stack, torch.as_tensor, padding), or leave it out of the batch"
    )


def _build_dense_error(side: str, kind: str, way_out: str) -> ValueError:
    return ValueError(
        f"{side}: expected dense tensors, samples on the first axis, got a {kind} one; {way_out}"
    )


def holds_rows(tensor: Tensor, samples: int) -> bool:
    """Whether a tensor of a batch is taken to hold a row of each sample."""
    return bool(tensor.ndim) and tensor.shape[0] == samples


def _list_parts(tree: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(tree, list | tuple):  # most are; to ask for mappings takes longer
        return enumerate(tree)
    return tree.items() if isinstance(tree, Mapping) else ()


def rows(tree: Any, index: Tensor | slice, samples: int) -> Any:
    """Return the rows `index` of every tensor whose first axis has length `samples`; the rest as it is."""

    def take(one: Tensor) -> Tensor:
        if not holds_rows(one, samples):
            return one
        return one[index.to(one.device)] if isinstance(index, Tensor) else one[index]

    return map_tensors(tree, take)


def find_unaligned(tree: Any, samples: int) -> list[Any]:
    """Return what holds no row for each sample, and is no plain value."""
    if isinstance(tree, Tensor):
        return [tree] if tree.ndim and not holds_rows(tree, samples) else []
    if isinstance(tree, list | tuple | Mapping):
        return [one for _, part in _list_parts(tree) for one in find_unaligned(part, samples)]
    return [] if tree is None or isinstance(tree, str | bytes | int | float | complex) else [tree]


def check_auxiliary(values: Any, samples: int) -> Tensor:
    """Return what an auxiliary loss returned: one number per sample, or a single one."""
    if isinstance(values, Tensor) and values.is_floating_point() and values.shape in {(), (samples,)}:
        return values
    got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    msg = f"auxiliary: expected a floating-point tensor of shape ({samples},) or (), got {got}"
    raise ValueError(msg)


def check_losses(values: Any, samples: int) -> Tensor:
    """Return what a loss returned, after checking that it is one number per sample.

    Raises
    ------
    TypeError
        If it is not a floating-point tensor.
    ValueError
        If it is not one number per sample.
    """
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        msg = f"loss: expected a floating-point tensor with one number per sample, got {kind}"
        raise TypeError(msg)
    if values.ndim == 0:
        msg = (
            f"loss: expected one number per sample, shape ({samples},), got a scalar: use "
            "reduction='none' and sum over everything but the first axis, for example "
            "lambda outputs, targets: F.cross_entropy(outputs, targets, reduction='none')"
        )
        raise ValueError(msg)
    if tuple(values.shape) != (samples,):
        msg = f"loss: expected one number per sample, shape ({samples},), got {tuple(values.shape)}: "
        # of all pairs: summed up it would train, on something else
        if tuple(values.shape) == (samples, samples):
            msg += (
                "outputs and targets may have broadcast, as (n, 1) and (n,) do; give both the same shape, "
                "for example outputs.squeeze(-1), then sum over everything but the first axis"
            )
        else:
            msg += "sum over everything but the first axis"
        raise ValueError(msg)
    return values


def halve_samples(among: Tensor) -> list[Tensor]:
    """Cut the samples of a mask in two by chance."""
    codes = torch.randperm(len(among), generator=seed_generator(), device="cpu").to(among.device)
    return [half for side in (0, 1) if bool((half := among & (codes % 2 == side)).any())]


def row_sources(part: Tensor) -> Tensor:
    """Return the row that fills each row: a part, a mask, and copies of it.

    A sample that is not replaced keeps its row, because random numbers depend on the row. A replaced row
    becomes a copy of the last kept sample before it, so that a batch that is ordered (by length) stays
    ordered.
    """
    places = torch.arange(len(part), device=part.device)
    return torch.where(part, places, part.nonzero()[0]).cummax(0).values


def seed_generator() -> torch.Generator:
    """Return a generator with a fixed seed; the user's random streams are not advanced."""
    return torch.Generator().manual_seed(0x5EED)
