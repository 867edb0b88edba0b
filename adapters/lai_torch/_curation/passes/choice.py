"""Which pass a step takes."""

from torch import nn

from lai_torch._curation.passes.base import Pass, coupling, rounding
from lai_torch._curation.passes.kept import KeptPass
from lai_torch._curation.passes.selective import SelectivePass
from lai_torch._curation.passes.synchronised import LocalPass, SynchronisedPass
from lai_torch._curation.passes.whole import WholePass
from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.scorers.base import Scorer
from lai_torch._curation.scorers.choice import scorer
from lai_torch._curation.scorers.traces import TraceScorer
from lai_torch._curation.validation import own_stream
from lai_torch._model.batch import Loss
from lai_torch.options import LAI, Kept

BREAK_EVEN = 2 / 3
"""The share kept at which 1 + 3 k forwards, to score and then train on the kept rows, are 3."""


class Passes:
    """The passes that a curator may take, and the choice between them.

    Attributes
    ----------
    kept
        The pass that scores without a step, and trains where nothing is scored.
    shared
        The pass that scores and trains on one forward pass; `kept` where none was asked for.
    share
        The running mean of the share kept; None before the first step.
    """

    def __init__(
        self,
        model: nn.Module,  # model, loss: what is trained
        loss: Loss,
        scorer: Scorer,  # what reads a batch
        # `kept`, `selective`, `whole`, or `auto`, which chooses between `kept` and `whole` by the
        # running mean of the share kept
        backward: str,
        chunk: int | None,  # how many samples to read at once for scoring alone; None: the whole batch
        training: Kept,  # how the pass `kept` trains
        engine: Engine | None = None,  # how several processes train; None: there is one
    ) -> None:
        self.model = model
        self.share: float | None = None
        self.kept: Pass
        if engine is None or not engine.spread:
            self.kept = KeptPass(model, loss, scorer, chunk, training)
        elif backward == "kept":
            self.kept = SynchronisedPass(engine, loss, scorer, chunk, training)
        else:
            self.kept = LocalPass(model, loss, scorer, chunk, training)
        self.shared: Pass = self.kept
        self.by_share = backward == "auto"
        if isinstance(scorer, TraceScorer) and backward == "selective":
            last, masks = scorer.tracer.last, scorer.tracer.masks
            kind = scorer.tracer.lowered.kind
            self.shared = SelectivePass(
                model, loss, self.kept, last, masks, deferred=scorer.deferred, autocast=kind
            )
        elif isinstance(scorer, TraceScorer) and backward in {"whole", "auto"}:
            self.shared = WholePass(model, scorer.tracer, self.kept, scorer.deferred)

    def choose(self, *, scored: bool) -> Pass:
        """Return the pass of the next step, whose batch is scored or not."""
        if not scored:
            return self.kept
        if self.by_share:
            worth = self.share is not None and self.share > BREAK_EVEN
            unfit = coupling(self.model) or rounding(self.model)
            return self.shared if worth and unfit is None else self.kept
        return self.shared

    def observe(self, share: float) -> None:
        """Take the share of a batch that was kept into the running mean."""
        self.share = share if self.share is None else 0.9 * self.share + 0.1 * share


def made_pass(model: nn.Module, loss: Loss, name: str, last: str | None = None) -> Pass:
    """Return a pass by itself, as a curator with LAI makes it."""
    reader = scorer(model, loss, None, LAI(last=last), own_stream())
    return Passes(model, loss, reader, name, None, Kept()).shared
