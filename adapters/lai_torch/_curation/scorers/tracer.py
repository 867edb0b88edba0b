"""Traces of batches for one estimator: what one batch tells of the model makes the next one cheaper."""

import warnings
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

import lai_core as lai
from lai_torch._model.batch import Loss
from lai_torch._model.mixing import mixing
from lai_torch._model.precision import Lowered
from lai_torch._model.valid import Masks, Valid
from lai_torch._recording.assemble import assemble, gated
from lai_torch._recording.record import record
from lai_torch._recording.watching.plan import Plans
from lai_torch._recording.watching.recorder import Shortcut
from lai_torch._recording.watching.recording import CachedProof, Recording
from lai_torch._recording.watching.uses import READ_BY_LAI, Use
from lai_torch.trace import GateTrace, check_explained

Batch = tuple[Any, Any]


class Tracer:
    """Traces batches of one model.

    Attributes
    ----------
    mixing
        An operation of the model that mixes samples without coupling their losses so far; None: no one
        does, as far as is known. Where one does, that they stay apart is looked at in each batch.
    """

    def __init__(
        self,
        model: nn.Module,  # model, loss: what to trace
        loss: Loss,
        *,
        every_layer: bool = False,  # whether output gradients are wanted at every layer, as for Ghost
        head_alone: bool = False,  # whether the estimator reads the last layer alone
        last: str | None = None,  # name of the final layer, where several reach the loss side by side
        # from a batch's inputs to the positions that count; None: their `attention_mask`, if there
        # is one
        valid: Valid | None = None,
        lowered: Lowered | None = None,  # the precision of the forward pass
    ) -> None:
        self.model, self.loss, self.every_layer, self.last = model, loss, every_layer, last
        self.head_alone, self.masks = head_alone, Masks(valid)
        self.lowered = lowered or Lowered(model, None)
        self._last: int | None = None
        self._known: CachedProof | None = None
        self._tried: frozenset[str] = frozenset()
        self._plans = Plans()
        self.mixing: str | None = None

    @property
    def knows_last(self) -> bool:
        """Whether an earlier trace told which layer is the last."""
        return self._last is not None

    def __call__(
        self, batch: Batch, positions: str | None = None, *, live: bool = False
    ) -> tuple[Any, Tensor]:
        """Return the trace of a batch, and the losses; on the graph of a training step if `live`.

        Once the last layer is known, nothing before it is differentiated, and where `positions` is
        `mean`, or the last layer alone is read, inputs before it are averaged or dropped as they come.
        """
        shortcut = None
        if self._last is not None:
            means = positions == "mean"
            shortcut = Shortcut(self._last, mean=self.head_alone or means, mean_of_last=means)
        with self.lowered():
            recording = record(
                self.model,
                self.loss,
                *batch,
                every_layer=self.every_layer,
                shortcut=shortcut,
                known=self._known,
                last=self.last,
                ghost_alone=self.every_layer and self.last is None,
                live=live and shortcut is not None,
                valid=self.masks,
                plans=self._plans,
                mixing=self.mixing is not None,
            )
            check_explained(recording)
            trace = assemble(recording)
            if self.every_layer:
                trace = _of_ghost(trace)
            self._learn(recording, batch)
        if not self.every_layer:
            if self._last is None:
                _warn_of_frozen(recording, head_alone=self.head_alone)
            self._last = recording.uses.index(recording.final)
        return trace, recording.losses if recording.live is None else recording.live

    @property
    def left(self) -> frozenset[str]:
        """The names of parameters that are left to backward passes of their own."""
        return frozenset() if self._known is None else self._known.skipped

    def leave(self, names: frozenset[str]) -> None:
        """Leave parameters to backward passes of their own from now on."""
        if self._known is not None:
            self._known = replace(self._known, skipped=self._known.skipped | names)

    def _learn(self, recording: Recording, batch: Batch) -> None:
        """Keep what a recording has proved; see whether new calls in it mix samples."""
        self._known = recording.known
        if recording.known.proved and not (self.mixing or recording.known.calls <= self._tried):
            self._tried = recording.known.calls
            self.mixing = mixing(self.model, self.loss, batch, recording.samples)

    def state(self) -> dict[str, Any]:
        """Return what was told, as plain values."""
        known = None if self._known is None else self._known.state()
        return {"last": self._last, "known": known, "tried": sorted(self._tried), "mixing": self.mixing}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self._last = state["last"]
        self._known = None if state["known"] is None else CachedProof.of_state(state["known"])
        self._tried, self.mixing = frozenset(state["tried"]), state["mixing"]


def _of_ghost(trace: lai.Trace) -> lai.Trace:
    """Return a trace without what LAI alone reads, the last layer aside: one sample may have less of it."""
    *before, last = trace.layers
    return lai.Trace([*(one for one in before if not isinstance(one, lai.ReadoutTrace)), last])


class GateTracer(Tracer):
    """Traces with the derivatives between the layers of a chain."""

    def __call__(
        self, batch: Batch, positions: str | None = None, *, live: bool = False
    ) -> tuple[GateTrace, Tensor]:
        """Return trace, gates and column norms, and the losses."""
        recording = record(
            self.model,
            self.loss,
            *batch,
            every_layer=False,
            last=self.last,
            gates=True,
            known=self._known,
            mixing=self.mixing is not None,
        )
        self._learn(recording, batch)
        return gated(recording), recording.losses


def _warn_of_frozen(recording: Recording, *, head_alone: bool) -> None:
    """Warn where most of what is read belongs to layers that do not train; of LLI, where the last is one."""
    read = [use for use in recording.uses if use.kind in READ_BY_LAI]
    frozen = [use for use in read if recording.parameters.keys().isdisjoint(use.weight.names)]
    if not recording.parameters:
        return  # nothing trains: what is scored is meant as if all did
    if head_alone:
        if recording.final in frozen:
            _warn(f"LLI scores the last layer alone, {recording.final.name!r}, which is frozen")
    elif 2 * sum(map(_width, frozen)) > sum(map(_width, read)):
        _warn(f"{len(frozen)} of the {len(read)} layers whose inputs LAI reads are frozen")


def _width(use: Use) -> int:
    return int(use.activations.shape[1 if use.kind == "convolution" else -1])


def _warn(what: str) -> None:
    warnings.warn(
        f"model: {what}: its scores stand for training these layers too; estimators 'ghost' and 'exact' "
        "score the parameters that train, and these alone",
        UserWarning,
        stacklevel=2,
    )
