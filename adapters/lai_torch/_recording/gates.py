"""From a recording with gates to what gate-corrected LAI takes: a trace, its gates, the column norms."""

from lai_core.estimators.gates import GateTrace, squared_column_norms
from lai_torch._recording.assemble import assemble
from lai_torch._recording.watching.recording import Recording


def gated(recording: Recording) -> GateTrace:
    """Return what a recording with gates holds.

    Returns
    -------
    GateTrace
        Its trace, gates and column norms.

    Raises
    ------
    ValueError
        If a layer after the last one was used.
    """
    *before, final = recording.uses
    if recording.last is not final:
        msg = (
            f"layer {final.name!r}: gate-corrected LAI expects the last layer, {recording.final.name!r}, to "
            "be used last; use estimator='lai', or 'ghost'"
        )
        raise ValueError(msg)
    gates = tuple(use.gates for use in before if use.gates is not None)
    matrices = [use.weight.tensor.T if use.transposed else use.weight.tensor for use in recording.uses[1:]]
    norms = tuple(squared_column_norms(matrix.detach()) for matrix in matrices)
    return GateTrace(assemble(recording), gates, norms)
