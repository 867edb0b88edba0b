"""What is compiled in tests: every estimator and policy, as functions of bare arrays."""

from collections.abc import Callable
from typing import Any

import lai_core as lai
from lai_core._engine.namespace import namespace_of
from lai_core.estimators.gates import GateTrace, gate_lai_scores
from lai_core.estimators.sketches import sketch_outputs, sketch_variance

Function = Callable[[Any, Any, Any, Any], Any]
"""Of validation activations and output gradients, then of training ones, both `(2, n, t, d)`: two layers."""


def _traces(*arrays: Any) -> tuple[lai.Trace, lai.Trace]:
    return tuple(  # type: ignore[return-value]  # two traces
        lai.Trace(
            [
                lai.LayerTrace(a[0, ...], g[0, ...], bias=True, weight="w"),
                lai.LayerTrace(a[1, ...], g[1, ...], bias=False, weight="w"),
            ]
        )
        for a, g in (arrays[:2], arrays[2:])
    )


def _preconditioned(*arrays: Any) -> Any:
    validation, training = _traces(*arrays)
    moment = lai.update_second_moment(None, training.layers[-1].output_gradients)
    return lai.preconditioned_lai_scores(lai.summarize(validation, "lai"), training, moment, exponent=0.5)


def _gated(*arrays: Any) -> Any:
    traces = [
        lai.Trace([lai.LayerTrace(a[0, :, 0, :]), lai.LayerTrace(a[1, :, 0, :], g[1, :, 0, :])])
        for a, g in (arrays[:2], arrays[2:])
    ]
    norms = [arrays[0][0, 0, 0, :] ** 2]
    slopes = [[g[0, :, 0, :]] for g in (arrays[1], arrays[3])]
    sides = zip(traces, slopes, strict=True)
    return gate_lai_scores(*(GateTrace(*side, norms) for side in sides))


def _sketched(*arrays: Any) -> Any:
    traces = _traces(*arrays)
    drawn = arrays[3][0, 0, 0, :]
    xp = namespace_of({"drawn": drawn})
    signs, permutation = xp.astype(drawn > 0, drawn.dtype) * 2.0 - 1.0, xp.argsort(drawn)
    sketched = [sketch_outputs(each, signs, permutation, width=2) for each in traces]
    return lai.lai_scores(*sketched) / sketch_variance(*traces, width=2) ** 0.5


PROGRAMS: dict[str, Function] = {
    "ghost_kernel": lambda *arrays: lai.ghost_kernel(*_traces(*arrays)),
    "lai_kernel": lambda *arrays: lai.lai_kernel(*_traces(*arrays), positions="mean"),
    "lli_scores": lambda *arrays: lai.lli_scores(*_traces(*arrays)),
    "ghost_scores": lambda *arrays: lai.ghost_scores(*_traces(*arrays), memory_budget=2**12),
    "self": lambda *arrays: lai.lai_scores(*[_traces(*arrays)[1]] * 2, exclude_self=True),
    "gate_lai": _gated,
    "flatten": lambda *arrays: lai.lai_scores(
        *_traces(*arrays), positions="flatten", layer_weights=[0.5, 2.0]
    ),
    "preconditioned": _preconditioned,
    "sketched": _sketched,
    "keep_positive": lambda *arrays: lai.keep_positive(lai.lai_scores(*_traces(*arrays))),
    "keep_top": lambda *arrays: lai.keep_top(lai.lai_scores(*_traces(*arrays)), 0.5, normalize="batch"),
    "reweight": lambda *arrays: lai.reweight(lai.lai_scores(*_traces(*arrays))),
    "sampling": lambda *arrays: lai.sampling_probabilities(lai.lai_scores(*_traces(*arrays))),
}
SHAPES = ((2, 3, 2, 3), (2, 3, 2, 3), (2, 5, 2, 3), (2, 5, 2, 3))
