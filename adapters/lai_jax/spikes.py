"""Watch a run's gradient norm, and name the rows of a batch that spikes before the parameters move."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lai_core.diagnosis import Diagnosis, SpikeLog
from lai_core.diagnosis import SpikeRule as SpikeRule
from lai_jax.diagnose import diagnose_spike


class SpikeMonitor:
    """Diagnose a batch whose gradient norm leaves its usual range, before the parameters move.

    `check` the norm that the step computed (`optax.tree.norm(gradients)`), outside of `jax.jit`, with the
    parameters that it was computed at. Until a step spikes this costs one number read.

    Parameters
    ----------
    apply, loss
        As for `diagnose`; `loss(outputs, targets) -> (n,)`, weighted as it is trained.
    path
        A file of JSON lines, one a spike, appended to. None: none is written.
    rule
        Which norms are spikes. None: `SpikeRule()`, 8 MAD above the median of the last 200 and 2 medians.
    most
        Diagnoses within one window of the rule.
    on_spike
        Called with what is written, a dictionary.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import lai_jax
    >>> apply = lambda params, inputs: inputs @ params
    >>> loss = lambda outputs, targets: (outputs - targets) ** 2
    >>> monitor = lai_jax.SpikeMonitor(apply, loss, rule=lai_jax.SpikeRule(warmup=3))
    >>> gradient = jax.grad(lambda params, *batch: loss(apply(params, batch[0]), batch[1]).mean())
    >>> params, inputs, targets = jnp.ones(2), jnp.ones((8, 2)), jnp.ones(8)
    >>> for step in range(6):
    ...     targets = targets.at[3].add(1000.0 * (step == 5))
    ...     found = monitor.check(jnp.linalg.norm(gradient(params, inputs, targets)), params, inputs, targets)
    >>> found.named
    (3,)
    """

    def __init__(
        self,
        apply: Callable[..., Any],
        loss: Callable[..., Any],
        *,
        path: str | Path | None = None,
        rule: SpikeRule | None = None,
        most: int = 5,
        on_spike: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self.apply, self.loss, self.on_spike = apply, loss, on_spike
        self.log = SpikeLog(path, rule, most)

    def check(
        self, norm: Any, params: Any, inputs: Any, targets: Any, *, ids: Sequence[Any] | None = None
    ) -> Diagnosis | None:
        """Judge the norm of a step's gradient, and diagnose its batch if it spikes.

        Parameters
        ----------
        norm
            Of the gradient before it was clipped.
        params
            Those at which it was computed.
        inputs, targets, ids
            As for `diagnose`.

        Returns
        -------
        Diagnosis or None
            None of a step that does not spike.
        """
        number = float(norm)
        excess = self.log.judge(number)
        if excess is None:
            return None
        function = self.apply, params, self.loss
        try:
            found = diagnose_spike(function, (inputs, targets), ids=ids, excess=excess, trained_norm=number)
        except Exception as error:  # whatever it is: a run goes on as it would without a monitor
            warnings.warn(f"SpikeMonitor: no diagnosis of a norm of {number:.3g}: {error}", stacklevel=2)
            return None
        line = self.log.write(found, number)
        if self.on_spike is not None:
            self.on_spike(line)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what the monitor knows of the run, as plain numbers."""
        return self.log.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self.log.load_state_dict(state)
