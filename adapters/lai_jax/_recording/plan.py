"""Which parameter is explained by which uses, and as what."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import jax.numpy as jnp

from lai_core._adapters import GRADIENT_BUDGET
from lai_jax._program.errors import INSTEAD, UnexplainedError
from lai_jax._program.model import Model, find_reaching_layers
from lai_jax._program.program import Use
from lai_jax._program.views import View
from lai_jax._recording.arrays import Matrix, has_positions, matrix_of
from lai_jax._recording.biases import add_biases, bias_uses
from lai_jax._recording.planned import Iteration, PlannedRecord


@dataclass
class Plan:
    """What a trace of the model consists of."""

    records: list[PlannedRecord]  # the layers' and tables' records in order, the last layer at the end
    # the leaves whose gradients are materialised sample by sample, and the uses that takes
    materialised: dict[int, list[Use]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)  # leaves that no record explains, and why
    unread: str | None = None  # why LAI and LLI cannot read the last layer; None where they can

    @property
    def last(self) -> Use | None:
        """The last layer; None where LAI and LLI can read none."""
        return None if self.unread is not None else self.records[-1].use


def make_plan(model: Model, last: str | None, *, partial: bool = False, everything: bool = False) -> Plan:
    """Say which uses explain which parameters; where `everything` counts, without a last layer too."""
    reached = find_reaching_layers(model.program)
    uses = [use for use in model.program.uses() if use in reached or not use.is_layer]
    by_leaf: dict[int, list[Use]] = defaultdict(list)
    for use in uses:
        for leaf in use.operand.leaves:
            by_leaf[leaf].append(use)
    ordered, unread = _order(model, uses, last)
    if not everything and unread is not None:
        raise UnexplainedError(unread)
    final = ordered[-1].use if unread is None else None
    # A leaf theta is explained in the first of three ways that holds.
    #
    # 1. Factored. All of its uses are products s = W a in which W is a rearrangement of some of theta's
    #    entries. Sample j's gradient is sum_u g_ju a_ju^T, laid back into these entries, so that the
    #    records of the uses say it all. Ghost takes the inner product of two such sums: uses u and v
    #    contribute <g_u, g_v> <a_u, a_v> if they see the same entries (records with one key), and
    #    nothing if they see none in common. Uses that overlap in part have neither form: _factorable
    #    refuses them.
    factored = {leaf for leaf, own in by_leaf.items() if _factorable(own, final)}
    factored -= model.left_out.keys()
    biases = bias_uses(model.program)
    ordered = [replace(own, biased=own.use in biases) for own in ordered]
    while True:
        records = [replace(own, materialised=not own.use.operand.leaves <= factored) for own in ordered]
        # What is not factored stays a record where it is a layer, for LAI; a table it then tells nothing of.
        records = _share_keys([own for own in records if own.use.is_layer or not own.materialised])
        # 2. A bias. theta is added to the outputs of one factored layer, feature by feature, and does nothing
        #    else: its gradient is that layer's output gradient, summed over positions. A layer whose bias is
        #    none of these is not factored either: one record has both, or neither.
        records = add_biases(biases, records, by_leaf, model.left_out)
        halves = [own for own in records if own.biased and not (own.bias or own.seen_by_lai_alone)]
        apart = {leaf for own in halves for leaf in own.use.operand.leaves}
        factored -= apart
        if not apart:
            break
    if unread is None:
        unread = _find_other_use(model, records[-1], by_leaf, biases)
        if not everything and unread is not None:
            raise UnexplainedError(unread)
    as_bias = {leaf for own in records if own.bias for leaf in own.bias.operand.leaves}
    plan = Plan(records, left_out=dict(model.left_out), unread=unread)
    # 3. Materialised: each sample's gradient of the whole leaf, `(n, size)`, from all of its uses, under
    #    the budget. Anything that has uses can be, so that nothing else is ever refused here.
    for leaf, own in by_leaf.items() if everything else ():
        if leaf in factored | as_bias | model.left_out.keys():
            continue
        reason = _explain_size(model, leaf)
        if reason is None:
            plan.materialised[leaf] = own
        elif partial:
            plan.left_out[leaf] = reason
        else:
            raise UnexplainedError(reason)
    return plan


def _explain_size(model: Model, leaf: int) -> str | None:
    value = model.parameters[leaf]
    entries, each = math.prod(jnp.shape(value)), jnp.result_type(value).itemsize
    if model.samples * entries * each <= GRADIENT_BUDGET:
        return None
    return (
        f"params: the gradient of {model.names[leaf]!r} has no factors where it is used, and as a "
        f"whole takes {model.samples} x {entries} numbers, more than {GRADIENT_BUDGET} bytes; trace fewer "
        f"samples at once, or pass partial=True to leave it out; {INSTEAD}"
    )


def _find_other_use(
    model: Model, last: PlannedRecord, by_leaf: Mapping[int, Sequence[Use]], biases: Mapping[Use, Use]
) -> str | None:
    """Say which parameter of the last layer is used by what is no layer; None where none is."""
    own = [last.use, *([biases[last.use]] if last.biased else [])]
    known = {*biases.values(), *own}
    for leaf in sorted(frozenset[int]().union(*(use.operand.leaves for use in own))):
        if any(use.kind == "copy" and use not in known for use in by_leaf[leaf]):
            return (
                f"apply: expected a parameter {model.names[leaf]!r} of the last layer {last.name!r} that "
                "layers alone use, got another use of it, which LAI and LLI do not see; use estimator "
                "'ghost' or 'exact', or a parameter of its own"
            )
    return None


def use_name(model: Model, use: Use) -> str:
    if use.frozen:
        view = use.operand.view
        if view is not None and view.leaf >= 0:  # a parameter behind stop_gradient
            return model.names[view.leaf]
        return f"captured {use.operand.shape}"
    return "+".join(model.names[leaf] for leaf in sorted(use.operand.leaves))


def _order(model: Model, uses: Sequence[Use], last: str | None) -> tuple[list[PlannedRecord], str | None]:
    """Return the records in order, and why the last of them is not the last layer, if it is not."""
    layers = [use for use in uses if use.is_layer]
    tables = [use for use in uses if use.kind == "gather"]
    if not layers:
        none = "apply: expected at least one product of a parameter with the inputs (a layer), got none"
        return [each for use in tables for each in _records(model, use, merged=False)], none
    final, unread = _find_last(model, layers, last)
    if final.loops and unread is None and not _is_invariant(final):
        unread = (
            f"apply: the last layer ({final.eqn.primitive.name} in a scan) has another weight "
            "in each iteration, so that there is no single last one; unroll the scan, or apply the last "
            "layer after it"
        )
    records: list[PlannedRecord] = []
    # Of frozen layers the last one alone is read: LAI stands for Ghost over what trains.
    for use in [*tables, *(use for use in layers if use is not final and not use.frozen), final]:
        # a loop may use one matrix again and again at positions, as a recurrent network does
        merged = bool(use.loops) and _is_invariant(use)
        if merged and (use is not final or unread is not None):
            merged = not has_positions(use)
        records += _records(model, use, merged=merged)
    return records, unread


def _records(model: Model, use: Use, *, merged: bool) -> list[PlannedRecord]:
    """Return the records of a use: one, or one for each iteration of the loops around it."""
    ranges = [range(length - 1, -1, -1) if reverse else range(length) for length, reverse in use.loops]
    # in the order in which they run
    every: list[Iteration | None] = [None] if merged else [*product(*ranges)]
    named = [(iteration, "".join(f"[{k}]" for k in iteration or ())) for iteration in every]
    return [PlannedRecord(use, iteration, use_name(model, use) + suffix) for iteration, suffix in named]


def _is_invariant(use: Use) -> bool:
    """Whether every iteration of the loops around a use sees one matrix."""
    return use.kind == "dense" and use.operand.view is not None and not any(use.operand.view.loops)


def _find_last(model: Model, layers: Sequence[Use], last: str | None) -> tuple[Use, str | None]:
    """Return the last layer; where LAI and LLI cannot read it another one, and why they cannot."""
    names = [use_name(model, use) for use in layers]
    if last is not None:
        chosen = [use for use, name in zip(layers, names, strict=True) if name == last]
        if len(chosen) != 1:
            msg = f"last: expected the name of one layer, one of {sorted(set(names))}, got {last!r}"
            raise ValueError(msg)
        return chosen[0], None
    # those whose outputs reach the losses through no other layer
    program = model.program
    reached = program.values[program.outputs[0]].layers
    followed = frozenset[Use]().union(*(use.before for use in find_reaching_layers(program)))
    final = [use for use in program.uses() if use in reached and use not in followed]
    if not final:
        return layers[-1], (
            "apply: the last layer is in a scan whose next iteration uses its output, so that there is no "
            "single last layer; unroll the scan, or apply a last layer after it"
        )
    found = sorted({use_name(model, use) for use in final})
    if len(final) == 1 and final[0].is_layer:
        return final[0], None
    if any(use.is_layer for use in final):
        return layers[-1], f"apply: expected one last layer, found several: {found}; pass last=NAME"
    return layers[-1], (
        f"apply: the losses depend on {found[0]!r}, whose products with the samples are summed, without "
        "another layer behind it: LAI and LLI read no such layer, and would take an earlier one for the "
        "last; use estimator 'ghost' or 'exact', or write it as a product of matrices"
    )


def _factorable(uses: Sequence[Use], final: Use | None) -> bool:
    """Whether all uses of one leaf are plain matrices (or kernels, or tables) in it, equal or apart."""
    kinds = {use.kind for use in uses}
    # the last convolution is recorded as a matrix on patches, any other as a kernel
    if len(uses) > 1 and any(use is final and use.kind == "convolution" for use in uses):
        return False
    if "copy" in kinds or (len(kinds) > 1 and "convolution" in kinds):
        return False
    seen: dict[Any, View] = {}
    for use in uses:
        view = use.operand.view
        if view is None or len(use.operand.leaves) != 1 or view.repeats() or not is_plain(use):
            return False
        # Two iterations of a loop see the same entries where the view's stride over it is 0.
        lengths = [length for length, _ in use.loops]
        loops = [range(n if stride else 1) for n, stride in zip(lengths, view.loops, strict=True)]
        for iteration in product(*loops):
            own = view.at(iteration)
            seen[_place(use, own)] = own
    views = list(seen.values())  # one for each set of entries: no two may have one in common
    return not any(left.overlaps(right) for i, left in enumerate(views) for right in views[:i])


def is_plain(use: Use) -> bool:
    """Whether the gradient of what a use multiplies with has the factors of one of the kinds of records."""
    if jnp.issubdtype(use.output.dtype, jnp.complexfloating):
        return False  # of an outer product of complex numbers a real parameter's gradient is the real part
    params, samples = use.eqn.params, use.samples_in
    if use.kind == "gather":  # of whole rows of a table by one index
        numbers = params["dimension_numbers"]
        return bool(
            tuple(numbers.collapsed_slice_dims) == tuple(numbers.start_index_map) == (0,)
            and not numbers.operand_batching_dims
            and tuple(params["slice_sizes"][1:]) == tuple(use.operand.shape[1:])
        )
    return use.kind == "dense" or bool(
        use.eqn.invars[use.data].aval.shape[samples.axis] == samples.samples  # one map a sample
        and all(step == 1 for step in params["lhs_dilation"])
        and all(min(pair) >= 0 for pair in params["padding"])
        and len(params["window_strides"]) > 0
    )


def _place(use: Use, view: View) -> Any:
    """Return what two uses of one matrix, either way round, have in common."""
    leaf, offset, groups, outputs, inputs = matrix_of(use, view)
    how: Any = ()
    if use.kind == "convolution":
        params = use.eqn.params
        how = (params["dimension_numbers"].rhs_spec, params["feature_group_count"], use.operand.shape)
    return leaf, offset, groups, frozenset((outputs, inputs)), how


def _share_keys(records: Sequence[PlannedRecord]) -> list[PlannedRecord]:
    """Give records of one matrix a common key, and say which of them are the other way round."""
    members: dict[Any, list[int]] = defaultdict(list)
    matrices: dict[int, Matrix] = {}
    for index, own in enumerate(records):
        view = own.view(own.use.operand.view)
        if own.seen_by_lai_alone or view is None:
            continue
        matrices[index] = matrix_of(own.use, view)
        members[_place(own.use, view)].append(index)
    result = list(records)
    for indices in members.values():
        first = indices[0]
        for index in indices if len(indices) > 1 else ():
            # s = W a and s = W^T a meet where a head is tied to an embedding: the axes that are outputs
            # of the one are inputs of the other.
            turned = matrices[index] != matrices[first]
            result[index] = replace(records[index], key=records[first].name, transposed=turned)
    return result
