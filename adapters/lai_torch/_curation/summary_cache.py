"""Cache of the validation summary, made anew every `refresh` steps, and its state as plain values."""

import warnings
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

import lai_core as lai
from lai_core.records.convolution import Geometry
from lai_torch._curation.scorers.base import Itself, Scorer, ValidationSide
from lai_torch._curation.validation import Validation, moved, select_keys
from lai_torch._model.batch import Staying, count
from lai_torch._model.function import UnusableError
from lai_torch._model.preserve import evaluating
from lai_torch._model.walk import forget, named_parameters
from lai_torch.trace import GateTrace

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        ValidationSide,
        lai.ValidationSummary,
        lai.Trace,
        GateTrace,
        lai.LayerTrace,
        lai.ReadoutTrace,
        lai.ExpertTrace,
        lai.ConvolutionTrace,
        Geometry,
    )
}
"""The dataclasses that summaries are made of."""


def packed(value: Any) -> Any:
    """Return nested dataclasses and tuples as dictionaries that name them."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: packed(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, "fields": held}
    if isinstance(value, tuple):
        return {"kind": "tuple", "parts": [packed(part) for part in value]}
    if isinstance(value, dict):  # whose keys may be anything, `kind` too
        return {"kind": "dict", "parts": [[key, packed(part)] for key, part in value.items()]}
    return value


def unpacked(plain: Any) -> Any:
    """Return what `packed` wrote down."""
    if not isinstance(plain, dict):
        return plain
    if plain["kind"] == "tuple":
        return tuple(unpacked(part) for part in plain["parts"])
    if plain["kind"] == "dict":
        return {key: unpacked(part) for key, part in plain["parts"]}
    return KINDS[plain["kind"]](**{name: unpacked(value) for name, value in plain["fields"].items()})


def check_state(state: Any, expected: dict[str, Any]) -> None:
    """Raise unless a state is one of a curator such as that whose state is `expected`."""
    missing = sorted(expected.keys() - state.keys()) if isinstance(state, dict) else sorted(expected)
    if missing:
        msg = f"state: expected what state_dict of a curator returned, got one without {missing[0]!r}"
        raise ValueError(msg)
    if state["estimator"] != expected["estimator"]:
        msg = (
            f"state: expected that of a curator with estimator {expected['estimator']!r}, got one of "
            f"{state['estimator']!r}"
        )
        raise ValueError(msg)
    for name in ("steps", "skipped", "dropped"):
        if not isinstance(state[name], int) or state[name] < 0:
            msg = f"state: expected a whole number of {name!r}, 0 or more, got {state[name]!r}"
            raise ValueError(msg)


class SummaryCache:
    """Holds a validation set's summary and its age."""

    def __init__(
        self,
        model: nn.Module,  # what is trained; summaries are made of it in eval mode
        validation: Validation,  # where they come from
        scorer: Scorer,  # what makes them
        refresh: int,  # at how many steps a summary is old
        positions: str | None,  # how a batch that scores itself is to be read
        *,
        keeps_losses: bool = False,
    ) -> None:
        self.model, self.validation, self.scorer, self.refresh = model, validation, scorer, refresh
        self._given = _given(validation, positions)
        self._summary: Any = None
        self.keeps_losses = keeps_losses
        self.losses: Tensor | None = None
        self.staying = Staying()
        self.served, self._ended = 0, False
        self._versions: list[int] | None = None  # of the parameters, where the curator itself left them

    @property
    def age(self) -> int:
        """How many steps ago the summary was made."""
        return max(self.served - 1, 0)

    def get(self, size: int) -> Any:
        """Return what a batch is scored against, made again, at most `size` rows at a time, if it is old."""
        if self._given is not None:
            return self._given
        elsewhere = self._versions is not None and self._versions != self._read_versions()
        old = elsewhere or self.served >= self.refresh
        if self._summary is None or old or not self.scorer.fits(self._summary):
            self._make(size)
        self.served += 1
        return self._summary

    def follow(self) -> None:
        """Take the parameters as they are now for those that a step of the curator's own left.

        A summary that is not old yet is made again where others changed them since, by a checkpoint or by
        steps of a plain loop. One process alone asks that: several have to make it together.
        """
        if self._given is None and self.scorer.group.size == 1:
            self._versions = self._read_versions()

    def _read_versions(self) -> list[int]:
        return [parameter._version for parameter in named_parameters(self.model).values()]

    def forget(self) -> None:
        """Have the summary made again when it is asked for next."""
        self._summary = None

    def _make(self, size: int) -> None:
        """Make a summary of the next draw; one that is of no use leaves the last in place, with a warning."""
        group = self.scorer.group
        forget()  # a loader runs code of the user's
        with group.agreed():
            drawn = self.validation.draw()
            drawn = None if drawn is None else moved(select_keys(self.model, drawn), self.model)
            if drawn is not None:
                try:
                    count(*drawn)
                except ValueError as error:
                    raise _on_validation(error) from error
                self.staying.see(drawn)
        if not group.most(drawn is not None):
            if self._summary is None:
                msg = "validation: expected at least one batch from the loader, got none"
                raise ValueError(msg)
            self._warn_of_end()
            return
        before = self.scorer.state()
        try:
            with evaluating(self.model):
                self._summary = self.scorer.summarize(drawn, size)
                if self.keeps_losses:
                    self.losses = self.scorer.all_losses(drawn, size)
        except UnusableError as error:
            if self._summary is None:
                raise
            self.scorer.load_state(before)
            ago = f"{self.served} step{'s' * (self.served > 1)} ago"
            warnings.warn(f"{error}; the summary made {ago} stays in use", UserWarning, stacklevel=2)
        except Exception as error:
            told = _on_validation(error)
            if told is error:
                raise
            raise told from error
        else:
            self.served = 0

    def _warn_of_end(self) -> None:
        """Warn, once, that no new summary can be made, so that scores are against an ever older one."""
        if not self._ended:
            self._ended = True
            ago = f"{self.served} step{'s' * (self.served > 1)} ago"
            warnings.warn(
                f"validation: the iterator has ended and cannot start again; the summary made {ago} stays in "
                "use; pass a loader, which starts again at its end",
                UserWarning,
                stacklevel=2,
            )

    def state(self) -> dict[str, Any]:
        """Return summary and age, as tensors and plain values."""
        return {"summary": packed(self._summary), "served": self.served, "losses": self.losses}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up what `state` returned."""
        self._summary, self.served = unpacked(state["summary"]), state["served"]
        self.losses, self._versions = state["losses"], None  # the model may be loaded before or after


PLAIN = (ValueError, TypeError, RuntimeError, NotImplementedError, KeyError, IndexError, AttributeError)
"""Errors that are made of a message alone."""


def _on_validation(error: Exception) -> Exception:
    """Return an error that says it came up on the validation set, not on the batch."""
    where = "while tracing the validation set"
    if type(error) in PLAIN:
        named = type(error)(f"{where}: {error}")
        vars(named).update(vars(error))  # its notes, on which process it happened
        return named
    error.add_note(f"This happened {where}.")
    return error


def _given(validation: Validation, positions: str | None) -> Itself | ValidationSide | None:
    """Return what there is to score against without a draw."""
    if validation.is_batch:
        return Itself(exclude_self=validation.source == "batch", positions=positions)
    if validation.is_summary:
        return ValidationSide((validation.source,), validation.source.positions)
    return None
