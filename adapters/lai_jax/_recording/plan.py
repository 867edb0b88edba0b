"""Which parameter is explained by which sites, and as what."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import jax.numpy as jnp

from lai_core._adapters import GRADIENT_BUDGET
from lai_jax._program.errors import INSTEAD, UnexplainedError
from lai_jax._program.model import Model, final_layers
from lai_jax._program.program import Site
from lai_jax._program.views import View
from lai_jax._recording.arrays import Matrix, has_positions, is_plain_convolution, is_table, matrix_of
from lai_jax._recording.biases import fused_biases
from lai_jax._recording.uses import Iteration, Use


@dataclass
class Plan:
    """What a trace of the model consists of.

    Parameters
    ----------
    uses
        The layers' and tables' records in order, the last layer at the end.
    built
        The leaves whose gradients are built sample by sample, and the sites that takes.
    left_out
        Leaves that no record explains, and why.
    """

    uses: list[Use]
    built: dict[int, list[Site]] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)


def make_plan(model: Model, last: str | None, *, partial: bool = False) -> Plan:
    """Say which sites explain which parameters.

    Raises
    ------
    ValueError
        If there is no layer, or no single last one.
    """
    sites = model.program.sites()
    by_leaf: dict[int, list[Site]] = defaultdict(list)
    for site in sites:
        for leaf in site.operand.leaves:
            by_leaf[leaf].append(site)
    ordered = _ordered(model, sites, last)
    factored = {leaf for leaf, own in by_leaf.items() if _factorable(own, ordered[-1].site)}
    factored -= model.left_out.keys()
    uses = [replace(use, built=not use.site.operand.leaves <= factored) for use in ordered]
    uses = _shared([use for use in uses if use.site.is_layer or not use.built])
    fused = fused_biases(model.program, uses, by_leaf, model.left_out)
    plan = Plan([replace(use, bias=use.site.bias in fused) for use in uses], left_out=dict(model.left_out))
    whole = {leaf for site in fused for leaf in site.operand.leaves}
    for leaf, own in by_leaf.items():
        if leaf in factored | whole | model.left_out.keys():
            continue
        reason = _too_large(model, leaf)
        if reason is None:
            plan.built[leaf] = own
        elif partial:
            plan.left_out[leaf] = reason
        else:
            raise UnexplainedError(reason)
    return plan


def _too_large(model: Model, leaf: int) -> str | None:
    """Say why the per-sample gradients of a leaf cannot be built; None if they can."""
    value = model.parameters[leaf]
    entries, each = math.prod(jnp.shape(value)), jnp.result_type(value).itemsize
    if model.samples * entries * each <= GRADIENT_BUDGET:
        return None
    return (
        f"params: the gradient of {model.names[leaf]!r} has no factors where it is used, and as a "
        f"whole takes {model.samples} x {entries} numbers, more than {GRADIENT_BUDGET} bytes; trace fewer "
        f"samples at once, or pass partial=True to leave it out; {INSTEAD}"
    )


def site_name(model: Model, site: Site) -> str:
    """Name a site by its weight."""
    if site.frozen:
        view = site.operand.view
        if view is not None and view.leaf >= 0:  # a parameter behind stop_gradient
            return model.names[view.leaf]
        return f"captured {site.operand.shape}"
    return "+".join(model.names[leaf] for leaf in sorted(site.operand.leaves))


def iterations(site: Site) -> Iterator[Iteration]:
    """Run through the iterations of the loops around a site, in the order in which they run."""
    ranges = [range(length - 1, -1, -1) if reverse else range(length) for length, reverse in site.loops]
    return product(*ranges)


def _ordered(model: Model, sites: Sequence[Site], last: str | None) -> list[Use]:
    layers = [site for site in sites if site.is_layer]
    if not layers:
        msg = "apply: expected at least one product of a parameter with the inputs (a layer), got none"
        raise ValueError(msg)
    final = _last(model, layers, last)
    tables = [site for site in sites if site.kind == "gather"]
    uses: list[Use] = []
    for site in [*tables, *(site for site in layers if site is not final), final]:
        merged = bool(site.loops) and _loops_over_positions(site, site is final, model.samples)
        every: list[Iteration | None] = [None] if merged else list(iterations(site))
        for iteration in every:
            suffix = "".join(f"[{k}]" for k in iteration or ())
            uses.append(Use(site, iteration, site_name(model, site) + suffix))
    return uses


def _loops_over_positions(site: Site, final: bool, samples: int) -> bool:
    """Whether a loop uses one matrix again and again at positions, as a recurrent network does."""
    invariant = site.operand.view is not None and not any(site.operand.view.loops)
    if final and not (invariant and site.kind == "dense"):
        msg = (
            f"apply: the last layer ({site.eqn.primitive.name} in a scan) has another weight "
            "in each iteration, so that there is no single last one; unroll the scan, or apply the last "
            "layer after it"
        )
        raise UnexplainedError(msg)
    return final or (invariant and site.kind == "dense" and not has_positions(site, samples))


def _last(model: Model, layers: Sequence[Site], last: str | None) -> Site:
    names = [site_name(model, site) for site in layers]
    if last is not None:
        chosen = [site for site, name in zip(layers, names, strict=True) if name == last]
        if len(chosen) != 1:
            msg = f"last: expected the name of one layer, one of {sorted(set(names))}, got {last!r}"
            raise ValueError(msg)
        return chosen[0]
    final = final_layers(model.program)
    if len(final) == 1:
        return final[0]
    if not final:
        msg = (
            "apply: the last layer is in a scan whose next iteration uses its output, so that there is no "
            "single last layer; unroll the scan, or apply a last layer after it"
        )
        raise UnexplainedError(msg)
    found = sorted(site_name(model, site) for site in final)
    msg = f"apply: expected one last layer, found several: {found}; pass last=NAME"
    raise ValueError(msg)


def _factorable(sites: Sequence[Site], final: Site) -> bool:
    """Whether all uses of one leaf are plain matrices (or kernels, or tables) in it, equal or apart."""
    kinds = {site.kind for site in sites}
    # the last convolution is recorded as a matrix on patches, any other as a kernel
    if len(sites) > 1 and final in sites and final.kind == "convolution":
        return False
    if "lift" in kinds or (len(kinds) > 1 and "convolution" in kinds):
        return False
    seen: dict[Any, View] = {}
    for site in sites:
        view = site.operand.view
        if view is None or len(site.operand.leaves) != 1 or view.repeats() or not _is_plain(site):
            return False
        lengths = [length for length, _ in site.loops]
        loops = [range(n if stride else 1) for n, stride in zip(lengths, view.loops, strict=True)]
        for iteration in product(*loops):
            own = view.at(iteration)
            seen[_place(site, own)] = own
    if "gather" in kinds and len(seen) > 1:
        return False
    views = list(seen.values())
    return not any(left.overlaps(right) for i, left in enumerate(views) for right in views[:i])


def _is_plain(site: Site) -> bool:
    if site.kind == "gather":
        return is_table(site)
    return site.kind == "dense" or is_plain_convolution(site)


def _place(site: Site, view: View) -> Any:
    """Return what two uses of one matrix, either way round, have in common."""
    leaf, offset, groups, outputs, inputs = matrix_of(site, view)
    how: Any = ()
    if site.kind == "convolution":
        params = site.eqn.params
        how = (params["dimension_numbers"].rhs_spec, params["feature_group_count"], site.operand.shape)
    return leaf, offset, groups, frozenset((outputs, inputs)), how


def _shared(uses: Sequence[Use]) -> list[Use]:
    """Give uses of one matrix a common key, and say which of them are the other way round."""
    members: dict[Any, list[int]] = defaultdict(list)
    matrices: dict[int, Matrix] = {}
    for index, use in enumerate(uses):
        view = use.view(use.site.operand.view)
        if use.built or use.site.frozen or view is None:
            continue
        matrices[index] = matrix_of(use.site, view)
        members[_place(use.site, view)].append(index)
    result = list(uses)
    for indices in members.values():
        if len(indices) > 1:
            for index in indices:
                turned = matrices[index] != matrices[indices[0]]
                result[index] = replace(uses[index], key=uses[indices[0]].name, transposed=turned)
    return result
