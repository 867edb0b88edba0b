"""Traces of batches for one estimator: what one batch tells of the model makes the next one cheaper.

Ghost multiplies records of one parameter with one another, and batches need not have the same: an expert that
no sample reaches has none, and a layer that runs until it is done has as many as it runs.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

import lai_core as lai
from lai_core.records.compatible import Layouts, layouts
from lai_torch._curation.state import CuratorState
from lai_torch._graph.assemble import TRANSPOSED
from lai_torch._graph.gates import read_gates
from lai_torch._graph.record import Reader, Recording
from lai_torch._model.batch import Loss
from lai_torch._model.precision import Lowered
from lai_torch._model.valid import Masks, Valid
from lai_torch.trace import check_explained

Batch = tuple[Any, Any]


class Tracer:
    """Traces batches of one model."""

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
        averaged: bool = False,  # whether the last layer's gradient is wanted averaged over positions
        gates: bool = False,  # whether the derivatives between the layers of a chain are wanted
    ) -> None:
        self.model, self.loss, self.every_layer, self.last = model, loss, every_layer, last
        self.head_alone, self.masks, self.gates = head_alone, Masks(valid), gates
        self.lowered = lowered or Lowered(model, None)
        self.reader = Reader(
            model, loss, every=every_layer, last=last, valid=self.masks, averaged=averaged, finite=True
        )

    def __call__(self, batch: Batch, *, live: bool = False) -> tuple[Any, Tensor]:
        """Return the trace of a batch, and the losses; on the graph of a training step if `live`."""
        with self.lowered():
            recording = self.reader.record_live(batch) if live else self.reader.record(batch)
        losses = recording.losses if live else recording.losses.detach()
        if self.gates:
            return read_gates(self.reader, recording), losses
        if recording.plan.unexplained:
            check_explained(recording.plan.unexplained)
        if not self.every_layer:
            self._check_trained(recording)
        trace = _drop_readouts(recording.trace) if self.every_layer else recording.trace
        return trace, losses

    def recall(self, state: CuratorState) -> None:
        """Take up what earlier batches told of the model's parameters."""
        self.reader.recall(frozenset(state.routed), frozenset(state.left))

    def remember(self, state: CuratorState) -> CuratorState:
        """Return a state with what this batch told of them."""
        routed, left = (tuple(sorted(names)) for names in (self.reader.routed, self.reader.left))
        if (routed, left) == (state.routed, state.left):
            return state
        return replace(state, routed=routed, left=left)

    def _check_trained(self, recording: Recording) -> None:
        """Raise where none of the layers that are read trains: every score would be zero."""
        read = recording.readouts[-1:] if self.head_alone else recording.readouts
        if any(one.layer.trains for one in read):
            return
        what = "LAI reads layers"
        if self.head_alone:
            what = f"LLI scores the last layer alone, {read[-1].layer.name!r}"
        msg = (
            f"model: expected a layer that trains, got frozen ones: {what}, so that every score would be "
            "zero; use estimator 'ghost' or 'exact', which score the parameters that train"
        )
        raise ValueError(msg)


def _drop_readouts(trace: lai.Trace) -> lai.Trace:
    """Return a trace without what LAI alone reads, the last layer aside: one sample may have less of it."""
    *before, last = trace.layers
    return lai.Trace([*(one for one in before if not isinstance(one, lai.ReadoutTrace)), last])


class UnlikeError(ValueError):
    """A batch has other records than what it is scored against; made again, both have the same."""


def check_alike(reader: Reader, summary: lai.ValidationSummary, trace: lai.Trace) -> None:
    """Raise where a batch has other records than a summary, once known which are to be read otherwise."""
    found = layouts(trace, "all" if reader.every else "output")
    if found == summary.layouts:
        return
    before, now = _group_layouts(summary.layouts), _group_layouts(found)
    if not reader.every:
        # LAI leaves experts out: this batch, or an earlier part, has shown that a layer of the summary is one
        if reader.routed & before.keys():
            msg = "model: expected the layers of the summary, some are experts"
            raise UnlikeError(msg)
        return
    names = {name for name in {*before, *now} if before[name] != now[name]}
    # A parameter that was left already has one record in every batch: what differs then is not mended so.
    kinds = {name: [dict(one)["kind"] for one in before[name]] for name in names & reader.left}
    unread = {name for name in names if kinds.get(name) != ["GainTrace"]}
    # what stands for the last layer of a batch without one: a side that is made again has none, too
    if unread == {"None"}:
        msg = (
            "model: expected a last layer, one whose output the loss reads, in every batch, got one in some "
            "alone; use estimator 'exact'"
        )
        raise ValueError(msg)
    if unread:
        reader.leave(frozenset(unread))
        msg = (
            f"model: expected records of the same parameters in every batch, got others of {sorted(unread)}; "
            "use estimator 'exact'"
        )
        raise UnlikeError(msg)


def _group_layouts(found: Layouts) -> defaultdict[str, list[Any]]:
    """Return the layouts of each parameter's records."""
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    for layout in found:
        key = str(dict(layout)["weight key"])
        # a matrix of several is called NAME[i]
        grouped[key.removesuffix(TRANSPOSED).partition("[")[0]].append(layout)
    return grouped
