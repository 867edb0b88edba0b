"""What a step depends on beside model, optimizer and batch, as one value, and that value as plain data."""

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from lai_storage import storable
from torch import Tensor

import lai_core as lai
from lai_core.records.convolution import Geometry
from lai_torch.trace import GateTrace


@storable
@dataclass(frozen=True)
class ValidationSide:
    """What a batch is scored against: the scores are summed over the parts."""

    # A summary of the validation set; or traces of its parts, where products do not sum up
    parts: tuple[Any, ...]
    positions: str | None = None  # how positions are read; None where it does not matter
    layer_weights: Tensor | None = None  # `(L,)`: what each layer's product is multiplied by; None: nothing
    sketch: int | None = None  # the seed of the sketch of the output gradients, where they have one


@dataclass(frozen=True, eq=False)
class CuratorState:
    """What the next step depends on. A step computes another one, and assigns it last."""

    estimator: str
    steps: int = 0
    skipped: int = 0
    dropped: int = 0
    idle: int = 0  # how many steps in a row kept nothing
    side: Any = None  # what batches are scored against; None before it is made
    served: int = 0  # how many steps the side has served
    ended: bool = False  # whether the validation iterator has ended, and a warning said so
    validation_losses: Tensor | None = None  # where the policy asks for them
    # the running means of squared output gradients, and of each layer's squared inputs
    second_moment: Tensor | None = None
    input_second_moments: tuple[Tensor | None, ...] | None = None
    # The parameters of which rows are routed to several matrices, and those left to a backward pass a
    # sample: an expert has a record in every batch once rows were routed to it in one.
    routed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    # of `auto`, the seconds of the steps that were timed, and the pass that it stays with
    timed: tuple[float, ...] = ()
    backward: str | None = None
    # The batches whose gradients wait in `.grad` for the optimizer, and how many of them kept a sample.
    batches: int = 0
    contributions: int = 0
    # of the parameters, where the curator itself left them
    versions: tuple[tuple[int, int], ...] | None = None
    trains: tuple[bool, ...] | None = None  # whether each parameter did when a batch was scored last


LIVE = {"batches", "contributions", "versions"}
"""Fields that hold of `.grad` and of the parameters as they are in memory: a resumed run begins them anew."""

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
"""The dataclasses that sides are made of."""


def dump_state(state: CuratorState) -> dict[str, Any]:
    return {one.name: pack(getattr(state, one.name)) for one in fields(state) if one.name not in LIVE}


def load_state(state: CuratorState, saved: Any) -> CuratorState:
    """Return the state that `dump_state` wrote; raise unless it is of a curator such as has `state`."""
    saved = _convert_old(saved)
    expected = {*dump_state(state), "generator"}
    missing = sorted(expected - saved.keys()) if isinstance(saved, dict) else sorted(expected)
    if missing:
        msg = f"state: expected what state_dict of a curator returned, got one without {missing[0]!r}"
        raise ValueError(msg)
    if saved["estimator"] != state.estimator:
        msg = (
            f"state: expected that of a curator with estimator {state.estimator!r}, got one of "
            f"{saved['estimator']!r}"
        )
        raise ValueError(msg)
    for name in ("steps", "skipped", "dropped", "idle", "served"):
        if not isinstance(saved[name], int) or saved[name] < 0:
            msg = f"state: expected a whole number of {name!r}, 0 or more, got {saved[name]!r}"
            raise ValueError(msg)
    return CuratorState(**{name: unpack(saved[name]) for name in expected - {"generator"}})


def _convert_old(saved: Any) -> Any:
    """Return a state that the release before this one wrote in the fields of this one."""
    if not (isinstance(saved, dict) and {"scorer", "summary"} <= saved.keys()):
        return saved
    scorer, summary = saved["scorer"], saved["summary"]
    old = {"timed": (), "backward": None} | saved
    new = {one.name: one.default for one in fields(CuratorState) if one.name not in {*LIVE, "estimator"}}
    new |= {name: old[name] for name in ("estimator", "steps", "skipped", "dropped", "backward")}
    side = summary["summary"]
    if isinstance(side, dict) and side["kind"] != "ValidationSide":  # a gradient alone
        side = pack(ValidationSide((unpack(side),)))
    # one that was sketched as it is no longer done is made anew
    new["side"] = None if scorer.get("sketch") is not None else side
    new |= {"served": summary["served"], "validation_losses": summary["losses"], "timed": pack(old["timed"])}
    moments = ("second_moment", "input_second_moments")
    new |= {name: pack(scorer.get(name)) for name in moments}
    new |= {name: pack(scorer.get(name, ())) for name in ("routed", "left")}
    return new | {"generator": saved["generator"]}


def pack(value: Any) -> Any:
    """Return nested dataclasses, tuples and lists as dictionaries that name them."""
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: pack(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, "fields": held}
    if isinstance(value, tuple | list):
        return {"kind": "tuple", "parts": [pack(part) for part in value]}
    if isinstance(value, dict):  # whose keys may be anything, `kind` too
        return {"kind": "dict", "parts": [[key, pack(part)] for key, part in value.items()]}
    return value


def unpack(plain: Any) -> Any:
    """Return what `pack` wrote down."""
    if not isinstance(plain, dict):
        return plain
    if plain["kind"] == "tuple":
        return tuple(unpack(part) for part in plain["parts"])
    if plain["kind"] == "dict":
        return {key: unpack(part) for key, part in plain["parts"]}
    return KINDS[plain["kind"]](**{name: unpack(value) for name, value in plain["fields"].items()})
