"""From an estimator with its options to the scorer that it means."""

import functools
from typing import Any

import torch
from torch import nn

import lai_core as lai
from lai_core._adapters import DEFAULT_MEMORY_BUDGET
from lai_torch._curation.scorers.base import Scorer
from lai_torch._curation.scorers.calibrated import CalibratedScorer
from lai_torch._curation.scorers.exact import ExactScorer, MidpointScorer
from lai_torch._curation.scorers.gated import GateScorer, gate_product
from lai_torch._curation.scorers.preconditioned import PreconditionedScorer
from lai_torch._curation.scorers.sketch import Sketch
from lai_torch._curation.scorers.tracer import GateTracer, Tracer
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch._model.batch import Loss
from lai_torch._model.precision import Lowered
from lai_torch.options import LLI, CalibratedLAI, Estimator, GateLAI, Ghost, PreconditionedLAI


def scorer(
    model: nn.Module,
    loss: Loss,
    optimizer: Any,
    estimator: Estimator,
    generator: torch.Generator,
) -> Scorer:
    """Return the scorer of an estimator."""
    facts = estimator.facts
    if facts.learning_rate:
        return MidpointScorer(model, loss, optimizer, getattr(estimator, "of", "sgd"))
    if facts.gradients is None:
        return ExactScorer(model, loss, getattr(estimator, "method", None))
    options = {name: getattr(estimator, name, None) for name in ("positions", "sketch", "last", "valid")}
    sketch = None if options["sketch"] is None else Sketch(options["sketch"], generator)
    tracer = (GateTracer if facts.gates else Tracer)(
        model,
        loss,
        every_layer=facts.gradients == "all",
        head_alone=facts.parameters == "last",
        last=options["last"],
        valid=options["valid"],
        lowered=Lowered(model, getattr(estimator, "autocast", None)),
    )
    made: dict[str, Any] = {"facts": facts, "positions": options["positions"], "sketch": sketch}
    made["cut"] = getattr(estimator, "parts", None)
    made["memory_budget"] = getattr(estimator, "memory_budget", DEFAULT_MEMORY_BUDGET)
    match estimator:
        case Ghost():
            return TraceScorer(model, loss, tracer, lai.ghost_scores, **made)
        case LLI():
            return TraceScorer(model, loss, tracer, lai.lli_scores, **made)
        case GateLAI():
            return GateScorer(model, loss, tracer, gate_product, **made)
        case CalibratedLAI():
            return CalibratedScorer(model, loss, tracer, lai.lai_scores, **made)
        case PreconditionedLAI():
            product = functools.partial(lai.preconditioned_lai_scores, exponent=estimator.exponent)
            return PreconditionedScorer(
                model,
                loss,
                tracer,
                product,
                **made,
                decay=estimator.decay,
                scale_inputs=estimator.scale_inputs,
            )
        case _:
            return TraceScorer(model, loss, tracer, lai.lai_scores, **made)
