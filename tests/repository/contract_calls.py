"""The call forms of the contract, verbatim, for the type checker (`make lint`); not run."""

from typing import Any

import lai_jax
import lai_torch

import lai_core as lai


def core(activations: Any, output_gradients: Any, second_moment: Any, scores: Any, fraction: float) -> None:
    """Call `lai_core` as design and README do."""
    layer = lai.LayerTrace(activations, output_gradients=None, bias=False, weight=None, groups=1, name="")
    layer = lai.LayerTrace(activations, output_gradients, True, "w", 2, "fc1")
    trace = lai.Trace([layer, layer])
    validation = training = trace
    lai.ghost_kernel(validation, training)
    lai.lai_kernel(validation, training, layer_weights=None, positions="tokens")
    lai.lai_kernel(validation, training, layer_weights=[1.0, 0.5], positions="mean", memory_budget=2**20)
    lai.lli_kernel(validation, training)
    lai.ghost_scores(validation, training, exclude_self=False)
    lai.lai_scores(validation, training, layer_weights=second_moment, positions="flatten", exclude_self=True)
    lai.lli_scores(validation, training)
    lai.preconditioned_lai_scores(validation, training, second_moment, exponent=1.0, epsilon=1e-8)
    lai.update_second_moment(None, output_gradients, decay=0.999)
    summary = lai.summarize(validation, "lai", positions="tokens")
    summary = lai.summarize((each for each in [trace]), "ghost")
    summary = summary + summary
    sum([summary, summary])
    lai.lai_scores(summary, training)
    lai.keep_positive(scores, normalize="kept")
    lai.keep_top(scores, fraction, normalize="batch")
    lai.reweight(scores)
    lai.sampling_probabilities(scores, floor=0.1)


def torch_adapter(model: Any, loss: Any, optimizer: Any, inputs: Any, targets: Any) -> None:
    """Call `lai_torch` as the contract does."""
    lai_torch.trace(model, loss, inputs, targets, gradients="output", partial=False, last=None)
    curator = lai_torch.Curator(
        model,
        loss,
        optimizer,
        (inputs, targets),
        estimator="lai",
        policy=lai.keep_positive,
        warmup=0,
        refresh=1,
        share=1.0,
        generator=None,
    )
    curator.step(inputs, targets)
    _weights, _report = curator.score(inputs, targets)
    lai_torch.coverage(model, loss, inputs, targets)
    lai_torch.selfcheck(model, loss, inputs, targets)
    lai_torch.exact_scores(
        model,
        loss,
        (inputs, targets),
        (inputs, targets),
        at="start",
        learning_rate=None,
        reduction="mean",
        optimizer=None,
        max_norm=None,
        method=None,
        explain=False,
    )
    batch = inputs, targets
    _scores, _method, _reason, _residual = lai_torch.exact_scores(model, loss, batch, batch, explain=True)


def jax_adapter(apply: Any, params: Any, loss: Any, tx: Any, inputs: Any, targets: Any, state: Any) -> None:
    """Call `lai_jax` as the contract does."""
    trace = lai_jax.trace(apply, params, loss, inputs, targets, gradients="output", partial=False, last=None)
    summary = lai.summarize(trace, "lai")
    update = lai_jax.curated_update(apply, loss, tx, estimator="lai", policy=lai.keep_positive)
    _params, _state, _report = update(params, state, summary, inputs, targets)
    lai_jax.coverage(apply, params, loss, inputs, targets)
    lai_jax.selfcheck(apply, params, loss, inputs, targets)
