"""The call forms of the contract, verbatim, for the type checker (`make lint`); not run.

Each line of `wrong` is one mistake: where the checker passes it, the comment that ignores it is an error.
"""

import functools
from typing import Any

import lai_jax
import lai_torch
import torch
from torch import Tensor

import lai_core as lai


def core(activations: Any, output_gradients: Any, second_moment: Any, scores: Any, fraction: float) -> None:
    """Call `lai_core` as design and README do, where a type could be too narrow."""
    layer = lai.LayerTrace(activations, output_gradients=None, bias=False, weight=None, groups=1, name="")
    layer = lai.LayerTrace(activations, output_gradients, True, "w", 2, "fc1")
    trace = lai.Trace([layer, layer])
    lai.lai_kernel(trace, trace, layer_weights=None, positions="tokens")
    lai.lai_kernel(trace, trace, layer_weights=[1.0, 0.5], positions="mean", memory_budget=2**20)
    lai.update_second_moment(None, output_gradients, decay=0.999)
    summary = lai.summarize((each for each in [trace]), "ghost")
    sum([summary, summary + summary])
    lai.lai_scores(summary, trace, layer_weights=second_moment)
    lai.keep_positive(scores, normalize="kept")
    lai.keep_top(scores, fraction, normalize="batch")


def torch_adapter(model: Any, loss: Any, batch: Any) -> None:
    """Read what `lai_torch` returns as the contract does."""
    curator = lai_torch.Curator(model, loss, None, batch, estimator="lai", policy=lai.keep_positive)
    report = curator.step(*batch)
    if isinstance(report, lai_torch.ScoredReport):
        weights: Tensor = lai.keep_positive(report.scores)
        del weights
    _weights, _report = curator.score(*batch)
    _scores, _method, _reason, _residual = lai_torch.exact_scores(model, loss, batch, batch, explain=True)


def policies(model: Any, loss: Any, validation: Any) -> None:
    """Give a curator every kind of policy, estimator and pass."""

    def by_losses(scores: Tensor, losses: Tensor) -> Tensor:
        return torch.where(losses < 1.0, scores, 0.0)

    def by_step(scores: Tensor, losses: Tensor, step: int) -> Tensor:
        return torch.where(losses < step, scores, 0.0)

    def in_groups(scores: Tensor, *, groups: Tensor | None = None) -> Tensor:
        return scores if groups is None else scores * groups

    lai_torch.Curator(model, loss, None, validation, policy=by_losses)
    lai_torch.Curator(model, loss, None, validation, policy=by_step)
    lai_torch.Curator(model, loss, None, validation, policy=in_groups)
    lai_torch.Curator(model, loss, None, validation, policy=torch.ones_like)
    lai_torch.Curator(model, loss, None, validation, policy=lambda scores: scores)
    lai_torch.Curator(model, loss, None, validation, policy=functools.partial(lai.keep_top, fraction=0.5))
    lai_torch.Curator(model, loss, None, validation, policy=lai_torch.KeepBelowLoss(0.5), backward="auto")
    lai_torch.Curator(
        model, loss, None, validation, policy=lai_torch.GroupFloor(0.5, lai_torch.KeepBelowLoss(1.0))
    )
    scheduled = lai_torch.Scheduled(lai_torch.KeepBelowLoss(0.9), lambda step: step > 3)
    lai_torch.Curator(
        model, loss, None, validation, policy=scheduled, backward=lai_torch.KeptOptions(balance=True)
    )
    parts = lai_torch.LAI(parts=16)
    lai_torch.Curator(model, loss, None, validation, policy=lai.drop_harmful, estimator=parts)
    lai_torch.top_samples(model, loss, validation, validation, estimator="lli")
    lai_jax.score(model, {}, loss, validation, 1, 2, policy=functools.partial(lai.keep_top, fraction=0.5))
    lai_jax.curated_update(model, loss, None, policy=lai.drop_harmful, estimator="exact")


def wrong(model: Any, loss: Any, validation: Any, batch: Any) -> None:
    """Misspell, leave out, give another kind."""
    lai.ghost_scores(batch, batch, exclude_itself=False)  # type: ignore[call-arg]
    lai_torch.Curator(model, loss, None, validation, policy="keep_positive")  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation, policy=lai_torch.KeepBelowLoss)  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation, estimator="LAI")  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation, estimator=lai_torch.LAI)  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation, backward="both")  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation, positions="mean")  # type: ignore[call-arg]
    lai_torch.top_samples(model, loss, batch, batch, estimator="exact")  # type: ignore[arg-type]
    lai_torch.score_dataset(model, loss, batch, batch, "folder", estimator="gost")  # type: ignore[arg-type]
    lai_torch.Curator(model, loss, None, validation).step(batch).scores.sum()  # type: ignore[union-attr]
    lai_jax.curated_update(model, loss, None, policy="keep_positive")  # type: ignore[arg-type]
    lai_jax.curated_update(model, loss, None, estimator="midpoint")  # type: ignore[arg-type]
    lai_jax.summarize(model, batch, loss, batch, batch, estimator="gost")  # type: ignore[arg-type]
    _found: int = lai.keep_positive(torch.ones(2))  # type: ignore[assignment]
