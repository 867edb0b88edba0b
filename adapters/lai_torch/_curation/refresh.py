"""What batches are scored against, made anew every `refresh` steps."""

import warnings
from dataclasses import replace

from torch import nn

from lai_torch._curation.estimators import Scorer
from lai_torch._curation.readings import Itself
from lai_torch._curation.state import CuratorState, ValidationSide
from lai_torch._curation.validation import Batch, Validation, move_to_model, select_keys
from lai_torch._model.batch import count
from lai_torch._model.function import UnusableError
from lai_torch._model.preserve import use_eval_mode
from lai_torch._model.walk import forget, list_parameters


class Refresh:
    """Makes the validation side of one model, where the one of a state is old."""

    def __init__(
        self,
        model: nn.Module,  # what is trained; sides are made of it in eval mode
        validation: Validation,  # where they come from
        scorer: Scorer,  # what makes them
        refresh: int,  # at how many steps a side is old
        positions: str | None,  # how a batch that scores itself is to be read
        *,
        keeps_losses: bool = False,  # whether the policy asks for the losses of the validation set
    ) -> None:
        self.model, self.validation, self.scorer, self.refresh = model, validation, scorer, refresh
        self.given = _take_undrawn(validation, positions)
        self.keeps_losses = keeps_losses

    def __call__(self, state: CuratorState, size: int) -> CuratorState:
        """Return the state with a side that is not old, made at most `size` rows at a time, for one step."""
        if self.given is not None:
            return state
        elsewhere = state.versions is not None and state.versions != self.read_versions()
        old = elsewhere or state.served >= self.refresh
        if state.side is None or old or not self.scorer.fits(state.side):
            state = self._make(state, size)
        return replace(state, served=state.served + 1)

    def read_versions(self) -> tuple[tuple[int, bool], ...] | None:
        """Return the versions of the parameters, by which it shows that a later step finds others.

        A side that is not old yet is made again where others changed them since, by a checkpoint, by steps
        of a plain loop or by thawing one. One process alone asks that: several have to make it together.
        """
        if self.given is not None or self.scorer.group.size > 1:
            return None
        held = list_parameters(self.model).values()
        return tuple((parameter._version, parameter.requires_grad) for parameter in held)

    def _make(self, state: CuratorState, size: int) -> CuratorState:
        """Return the state with a side of the next draw; as it is, with a warning, if that is no use."""
        drawn = self._draw()
        ago = f"{state.served} step{'s' * (state.served > 1)} ago"
        # no process has a batch; where one has, all take part
        if not self.scorer.group.reduce_max(drawn is not None):
            if state.side is None:
                msg = "validation: expected at least one batch from the loader, got none"
                raise ValueError(msg)
            # said once
            if not state.ended:
                warnings.warn(
                    f"validation: the iterator has ended and cannot start again; the summary made {ago} "
                    "stays in use; pass a loader, which starts again at its end",
                    UserWarning,
                    stacklevel=2,
                )
            return replace(state, ended=True)
        try:
            with use_eval_mode(self.model):
                side, losses = self.scorer.summarize(drawn, size), None
                if self.keeps_losses:
                    losses = self.scorer.measure_losses(drawn, size)
        # a draw that is of no use ends no run that has an earlier side
        except UnusableError as error:
            if state.side is None:
                raise
            warnings.warn(f"{error}; the summary made {ago} stays in use", UserWarning, stacklevel=2)
            return state
        # raised by the model or the loss, whose messages do not say on which batch
        except Exception as error:
            _note_validation(error)
            raise
        return replace(state, side=side, validation_losses=losses, served=0)

    def _draw(self) -> Batch | None:
        """Return the next batch of the source."""
        forget()  # a loader runs code of the user's
        with self.scorer.group.raise_together():
            drawn = self.validation.draw()
            if drawn is None:
                return None
            drawn = move_to_model(select_keys(self.model, drawn), self.model)
            try:
                count(*drawn)
            except ValueError as error:
                _note_validation(error)
                raise
            return drawn


def _note_validation(error: Exception) -> None:
    """Have an error say that it came up on the validation set, not on the batch."""
    error.add_note("This happened while tracing the validation set.")


def _take_undrawn(validation: Validation, positions: str | None) -> Itself | ValidationSide | None:
    """Return what there is to score against without a draw."""
    if validation.is_batch:
        return Itself(exclude_self=validation.source == "batch", positions=positions)
    if validation.is_summary:
        return ValidationSide((validation.source,), validation.source.positions)
    return None
