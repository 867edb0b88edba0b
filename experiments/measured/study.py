"""What the theory's constants are on trained networks, and how its advice and certificates fare there."""

from typing import Any

import lai_torch
import torch
from torch import Tensor

import lai_core as lai
from experiments.measured.networks import Trained
from lai_core import assumptions, bounds


def vectors(trace: lai.Trace) -> lai.Trace:
    """Return every layer's input and output gradient as one vector a sample, as the appendix has them."""
    layers = []
    for layer in trace.layers:
        if isinstance(layer, lai.LayerTrace | lai.ConvolutionTrace):
            pair = layer.activations, layer.output_gradients
            layers.append(lai.LayerTrace(*(each.reshape(each.shape[0], -1).double() for each in pair)))
    return lai.Trace(layers)


def constants(network: Trained) -> dict[str, Any]:
    """Measure the paper's constants; each printed bound over the gap that it bounds, medians over samples."""
    traces = [_trace(network, batch, "all") for batch in (network.validation, network.training)]
    sides = [vectors(trace) for trace in traces]
    report, found = assumptions.measure_assumptions(*sides), assumptions.similarities(*sides)
    depth, last = int(found.beta.shape[0]), found.beta[-1]
    rho, C_a, alpha_bar = (float(x) for x in (report.rho, report.C_a, report.alpha_bar))
    norms = found.validation_gradients[-1], found.training_gradients[-1]
    ghost, score, lli = (of(*sides) for of in (lai.ghost_scores, lai.lai_scores, lai.lli_scores))
    gap, given = (score - ghost).abs(), {"rho": rho, "C_a": C_a, "depth": depth}
    slopes = [float((beta * last).sum() / (last * last).sum()) for beta in found.beta]
    relative = None
    if alpha_bar > 0:  # else the printed bound divides by nothing positive
        given_too = {"rho": rho, "alpha_bar": alpha_bar, "C_a": C_a, "depth": depth}
        relative = _median(bounds.relative_conservative_bound(last, *norms, **given_too))
    return {
        "layers": depth, "rho": rho, "C_a": C_a, "alpha_bar": alpha_bar,
        "smallest_cosine": float(report.smallest_cosine), "opposing_share": float(report.opposing_share),
        "gain_low": min(slopes), "gain_high": max(slopes),
        "relative_error": _median(gap / score.abs()),
        "lli_relative_error": _median((lli - ghost).abs() / ghost.abs()),
        "conservative_over_gap": _median(bounds.conservative_bound(last, *norms, **given) / gap),
        "geometric_over_gap": _median(bounds.geometric_bound_as_printed(last, **given) / gap),
        "relative_bound": relative,
    }  # fmt: skip


def advice(network: Trained) -> dict[str, float]:
    """Measure how LAI compares with Ghost and with Adam's own step, and what selecting by it costs."""
    pair = network.validation, network.training
    ghost = lai.ghost_scores(*(_trace(network, batch, "all") for batch in pair))
    sides = [_trace(network, batch, "output") for batch in pair]
    positions = "tokens" if "tokens" in lai.fitting_positions(sides[0]) else "mean"
    score = lai.lai_scores(*sides, positions=positions)
    found = {
        "understated": float((score.abs() < ghost.abs()).double().mean()),
        "signs_differ": float(((score > 0) != (ghost > 0)).double().mean()),
        "regret_batch": float(bounds.selection_regret(ghost, score) / ghost.clamp(min=0).sum()),
        "regret_kept": 1.0 - float(ghost[score > 0].mean() / ghost.sort(descending=True).values[0]),
        "sign_rule_kept": 1.0 - float(ghost[ghost > 0].mean() / ghost.max()),
    }
    truth = lai_torch.exact_scores(
        network.model, network.loss, network.validation, network.training, optimizer=network.optimizer
    )
    moment, inputs = None, None
    for batch in network.batches:
        trace = _trace(network, batch, "output")
        moment = lai.update_second_moment(moment, trace.layers[-1].output_gradients, decay=0.95)
        inputs = lai.update_input_second_moments(inputs, trace, decay=0.95)
    options = {"positions": positions}
    for name, values in {
        "adam_ghost": ghost,
        "adam_lai": score,
        "adam_printed": lai.preconditioned_lai_scores(*sides, moment, **options),
        "adam_outputs": lai.preconditioned_lai_scores(*sides, moment, exponent=0.5, **options),
        "adam_both": lai.preconditioned_lai_scores(
            *sides, moment, input_second_moments=inputs, exponent=0.5, **options
        ),
    }.items():
        found[name] = float(torch.corrcoef(torch.stack([truth.double(), values.double()]))[0, 1])
    return found


def _trace(network: Trained, batch: Any, gradients: str) -> lai.Trace:
    return lai_torch.trace(network.model, network.loss, *batch, gradients=gradients, partial=True)


def _median(values: Tensor) -> float:
    return float(values.median())
