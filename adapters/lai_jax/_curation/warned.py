"""What LAI leaves out: said in a warning."""

import warnings

from lai_jax._program.model import Model, find_reaching_layers
from lai_jax._program.program import Use
from lai_jax._program.rules.axes import RULES
from lai_jax._recording.plan import Plan, use_name


def warn_of_unread(model: Model, plan: Plan) -> None:
    """Warn of matrices that multiply something of the batch from which LAI has no readout."""
    read = frozenset[int]().union(*(own.use.operand.leaves for own in plan.records if own.use.is_layer))
    reached = find_reaching_layers(model.program)
    found = {
        use_name(model, use): use.eqn.primitive.name
        for use, adding in sorted(model.summed, key=lambda one: one[0].number)
        if use in reached and not use.operand.leaves <= read and _is_matrix(use, adding)
    }
    unread = "; ".join(f"{name!r} (used by {function})" for name, function in found.items())
    if unread:
        warnings.warn(
            f"apply: LAI has no readout from the input of {unread}, and leaves it out; estimators 'ghost' "
            "and 'exact' see every parameter, or refuse",
            UserWarning,
            stacklevel=2,
        )


def _is_matrix(use: Use, adding: str) -> bool:
    """Whether a use takes matrices: not rows of a table that are vectors, nor what is only added."""
    if use.kind == "gather":
        windows = use.eqn.params["slice_sizes"]
        return sum(size > 1 for size in windows) > 1
    operand = use.operand
    if sum(size > 1 and axis not in operand.flat for axis, size in enumerate(operand.shape)) < 2:
        return False
    name = use.eqn.primitive.name
    if name == "triangular_solve" or name not in (*RULES, "scan", "cond"):
        return True  # a function, or what no rule follows
    if name in ("dot_general", "select_n"):  # a matrix for each sample, or one chosen by it
        return adding == "dot_general"
    # A gain has one entry for each that it meets; for a matrix what it meets is repeated along its outputs.
    output = use.eqn.outvars[0].aval.shape
    met = [one.aval.shape for place, one in enumerate(use.eqn.invars) if place != use.parameter]
    return any(len(shape) > 0 and shape != output for shape in met)
