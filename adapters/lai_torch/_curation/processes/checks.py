"""What several processes cannot do, said by name on each of them before anything runs."""

import zlib

from lai_torch._curation.processes.engine import Engine
from lai_torch._curation.processes.group import digest
from lai_torch._curation.validation import Validation
from lai_torch._model.batch import tensors
from lai_torch.options import Estimator, KeptOptions


def check_spread(
    engine: Engine,
    estimator: Estimator,
    validation: Validation,
    backward: str,
    training: KeptOptions,
) -> None:
    """Raise if what is asked for is not exact where samples or parameters are spread over processes."""
    name, facts = estimator.name, estimator.facts
    if engine.sharded:
        if backward != "kept":
            msg = f"backward: {backward!r} goes around what gathers sharded parameters; use 'kept'"
            raise ValueError(msg)
        if training.scaler is not None:
            msg = (
                "backward: a GradScaler looks at this process's part of the gradients alone; train in "
                "bfloat16, which needs none"
            )
            raise ValueError(msg)
    if facts.learning_rate and engine.spread:
        msg = (
            f"estimator: {name!r} needs the gradient of the whole batch before it scores, which is spread "
            "over processes; use 'exact'"
        )
        raise ValueError(msg)
    if engine.group.size == 1:
        return
    adds_up = facts.summary is not None and getattr(estimator, "positions", None) != "flatten"
    # each process has all of it, and finds what the others find
    alike = isinstance(validation.source, tuple) or validation.is_summary
    if getattr(estimator, "parts", None) is not None and not alike:
        msg = (
            "parts: expected (inputs, targets), which every process cuts alike, got a loader, of which each "
            "process has other rows; pass a set, or leave parts out"
        )
        raise ValueError(msg)
    if not (alike or (adds_up and not facts.fits_weights)):
        what = repr(name)
        if facts.summary is not None and not adds_up:
            what += " with positions='flatten'"
        msg = (
            f"validation: estimator {what} has nothing to add up over processes and needs the whole set on "
            "each; pass (inputs, targets), the same on every process, or use 'lai'"
        )
        raise ValueError(msg)


def check_alike(engine: Engine, validation: Validation) -> None:
    """Raise on every process unless parameters and validation set are the same on each."""
    if engine.group.size == 1:
        return
    # shards differ, as they are meant to
    parameters = [each for each in engine.model.parameters() if not hasattr(each, "device_mesh")]
    if not engine.group.has_equal(digest(parameters)):
        msg = (
            "model: expected the same parameters on every process, got others; build it from the same seed, "
            "or load the same state"
        )
        raise ValueError(msg)
    # loaders may differ, each with a part of its own; the comparison below is for all to enter
    given, what, way_out = [], "", ""
    if isinstance(validation.source, tuple):
        given, what = tensors(validation.source), "(inputs, targets)"
        way_out = "pass the whole set on each, or a loader that gives each process its own part"
    elif validation.is_summary:
        given, what = tensors(validation.source.totals), "summary"
        way_out = "make it on one process, and load it on the others"
    if not engine.group.has_equal(digest(given)):
        msg = f"validation: expected the same {what} on every process, got others; {way_out}"
        raise ValueError(msg)


def check_call(engine: Engine, call: str, counts: dict[str, int], rates: list[float]) -> None:
    """Raise on every process unless each makes the same call, with a model and a curator in the same state.

    Else one would wait for numbers that another never sends, or models would drift apart.
    """
    named = dict(engine.model.named_parameters())
    if call == "step" and engine.sharded:
        whole = (name for name, each in named.items() if not hasattr(each, "device_mesh"))
        if alone := next((name for name in whole if named[name].requires_grad), None):
            msg = (
                f"model: expected shards of every parameter that trains, got {alone!r} whole on each, "
                "where nothing adds up its gradients; call fully_shard on what holds it, or freeze it"
            )
            raise ValueError(msg)
    trained = bytes(parameter.requires_grad for parameter in named.values())
    marks = {"which parameters train": trained, "the learning rates": repr(rates).encode()}
    here = {"which call this is": zlib.crc32(call.encode()), **counts}
    differing = engine.group.find_differing(here | {name: zlib.crc32(mark) for name, mark in marks.items()})
    if differing:
        own = {"which call this is": f"{call}()", **counts, "the learning rates": rates}
        words = [f"{name} ({own[name]} here)" if name in own else name for name in differing]
        msg = (
            f"{call}: expected every process to be where the others are, but they differ in "
            f"{', '.join(words)}; make the same calls on each, freeze the same parameters, set the same "
            "learning rates, and load the same state_dict"
        )
        raise ValueError(msg)
