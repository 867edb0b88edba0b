"""What a curator is given beside a model, a loss and an optimizer, checked before anything is made."""

from typing import Any

from lai_torch._curation.checks import check_counts, check_parts, check_seen, check_together
from lai_torch._curation.validation import Validation, own_stream
from lai_torch.options import Estimator, Kept, with_defaults
from lai_torch.options.asking import check_policy
from lai_torch.options.hosts import check_host


def checked_settings(
    validation: Any,
    optimizer: Any,
    *,
    estimator: Any,
    policy: Any,
    share: float,
    generator: Any,
    host: str | None = None,
    **options: Any,
) -> tuple[Estimator, Validation]:
    """Return the estimator and the validation side of a curator's options, after checking all of them.

    Parameters
    ----------
    validation, optimizer, estimator, policy, share, generator
        As for `Curator`.
    host
        What trains, as `check_host` names it. None: the curator itself, if it has an optimizer.
    options
        The other options of `Curator`.
    """
    chosen = with_defaults(estimator)
    side = Validation(validation, share, own_stream() if generator is None else generator)
    backward = options["backward"]
    check_together(chosen, side, optimizer, "kept" if isinstance(backward, Kept) else backward)
    check_parts(chosen, side)
    check_counts(options["warmup"], options["refresh"], options["accumulate"], options["max_norm"])
    check_policy(policy, getattr(chosen, "parts", None))
    check_seen(policy, side)
    if host is not None or optimizer is None:
        check_host(host or "score", **options)
    return chosen, side
