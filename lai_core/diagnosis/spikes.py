"""When a number that a run repeats, such as its gradient norm, leaves its usual range."""

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

from lai_core._engine.checks import check_count

AGE = 16
"""Numbers for which a limit is used: sorting a window at every step costs more than a small model may."""


class SpikeRule:
    """Tell a spike from what a run's last numbers were.

    A number spikes if it is not finite, or longer than `threshold` where that is given, else than the larger
    of `median + deviations * MAD` and `ratio * median` of the last `window` numbers. A median and a median
    absolute deviation (MAD) do not move with the spikes among these.

    Parameters
    ----------
    threshold
        What is a spike, where that is known; None: what the run's own numbers say.
    deviations, ratio
        How far above the median a spike is. The ratio keeps quiet where all numbers are nearly equal.
    window
        How many numbers are remembered.
    warmup
        How many must have been seen before one is judged; 20 steps are not yet usual ones.

    Examples
    --------
    >>> from lai_core.diagnosis import SpikeRule
    >>> rule = SpikeRule(warmup=3)
    >>> [rule.judge(norm) for norm in [1.0, 1.1, 0.9, 1.0, 7.9, 1.2]]
    [False, False, False, False, True, False]
    """

    def __init__(
        self,
        *,
        threshold: float | None = None,
        deviations: float = 8.0,
        ratio: float = 2.0,
        window: int = 200,
        warmup: int = 20,
    ) -> None:
        for name, value in (("deviations", deviations), ("ratio", ratio), ("threshold", threshold)):
            if value is not None and not 0 < value < math.inf:
                msg = f"{name}: expected a positive number, got {value!r}"
                raise ValueError(msg)
        self.threshold, self.deviations, self.ratio = threshold, deviations, ratio
        self.warmup = check_count("warmup", warmup)
        self._numbers: deque[float] = deque(maxlen=check_count("window", window))
        self._age, self._limit = AGE, math.inf

    @property
    def usual(self) -> float | None:
        """The median of the numbers that are remembered; None before the first."""
        return statistics.median(self._numbers) if self._numbers else None

    def judge(self, number: float) -> bool:
        """Say whether a number spikes, and remember it."""
        spikes = self._spikes(number)
        if math.isfinite(number):
            self._numbers.append(number)
            self._age += 1
        return spikes

    def _spikes(self, number: float) -> bool:
        if not math.isfinite(number):
            return True
        if self.threshold is not None:
            return number > self.threshold
        if len(self._numbers) < self.warmup:
            return False
        if self._age >= AGE:
            middle = statistics.median(self._numbers)
            spread = statistics.median(abs(one - middle) for one in self._numbers)
            self._age = 0
            self._limit = max(middle + self.deviations * spread, self.ratio * middle)
        return number > self._limit

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule remembers, as plain numbers."""
        return {"numbers": list(self._numbers), "age": self._age, "limit": self._limit}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self._numbers.clear()
        self._numbers.extend(map(float, state["numbers"]))
        self._age, self._limit = int(state["age"]), float(state["limit"])
