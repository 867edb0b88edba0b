"""When a number that a run repeats, such as its gradient norm, leaves its usual range."""

import json
import math
import statistics
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lai_core._engine.checks import check_count
from lai_core.diagnosis.report import Diagnosis


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
        self.window = check_count("window", window)
        if self.warmup > self.window:
            msg = f"warmup: expected at most the window of {window} numbers, got {warmup}"
            raise ValueError(msg)
        self._numbers: deque[float] = deque(maxlen=self.window)

    @property
    def usual(self) -> float | None:
        """The median of the numbers that are remembered; None before the first."""
        return statistics.median(self._numbers) if self._numbers else None

    def judge(self, number: float) -> bool:
        """Say whether a number spikes, and remember it."""
        spikes = self._spikes(number)
        if math.isfinite(number):
            self._numbers.append(number)
        return spikes

    def _spikes(self, number: float) -> bool:
        if not math.isfinite(number):
            return True
        if self.threshold is not None:
            return number > self.threshold
        if len(self._numbers) < self.warmup:
            return False
        middle = statistics.median(self._numbers)
        if number <= self.ratio * middle:  # as most are: sorting the window once more would cost as much
            return False
        spread = statistics.median(abs(one - middle) for one in self._numbers)
        return number > middle + self.deviations * spread

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule remembers, as plain numbers."""
        return {"numbers": list(self._numbers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self._numbers.clear()
        self._numbers.extend(map(float, state["numbers"]))


class SpikeLog:
    """What a monitor keeps of a run: the rule, how many spikes it diagnosed lately, and a file of them.

    Parameters
    ----------
    path
        A file of JSON lines, one a spike, appended to; None: none is written.
    rule
        Which norms are spikes.
    most
        Diagnoses within one window of the rule: a run that explodes for good is not slowed down for good.
    """

    def __init__(self, path: str | Path | None, rule: SpikeRule | None, most: int) -> None:
        self.path, self.rule = None if path is None else Path(path), rule or SpikeRule()
        if self.path is not None:
            # refused now rather than where the run spikes
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("a").close()
        self.step = 0
        self._spikes: deque[int] = deque(maxlen=check_count("most", most))

    def judge(self, norm: float, *, known: bool = True, also: bool = False) -> float | None:
        """Count a step; return how many times the usual norm a norm is that is to be diagnosed, else None."""
        # Of what is not `known`, nothing can be diagnosed; `also`: whatever the norm is.
        usual, spikes = self.rule.usual, self.rule.judge(norm) or also
        step, self.step = self.step, self.step + 1
        if not (spikes and known) or (
            len(self._spikes) == self._spikes.maxlen and step - self._spikes[0] < self.rule.window
        ):
            return None
        self._spikes.append(step)
        return norm / usual if usual else math.nan

    def write(self, found: Diagnosis, norm: float, **more: Any) -> dict[str, Any]:
        """Append a diagnosis to the file; return what is written."""
        line = {"step": self.step - 1, "norm": norm if math.isfinite(norm) else None}
        line |= more | json.loads(found.to_json())
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return line

    def state_dict(self) -> dict[str, Any]:
        """Return the step, the spikes and the rule's state, as plain numbers."""
        return {"step": self.step, "spikes": list(self._spikes), "rule": self.rule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` returned."""
        self.rule.load_state_dict(state["rule"])
        self.step = int(state["step"])
        self._spikes.clear()
        self._spikes.extend(map(int, state["spikes"]))
