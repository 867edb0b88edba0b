"""How an inequality between floating-point numbers is held to, and how one is hunted."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import target


def at_most(value: Any, bound: Any, scale: Any = 1.0) -> bool:
    """Whether ``value <= bound`` up to rounding: bounds are attained; ``scale`` is what was subtracted."""
    value, bound = np.asarray(value), np.asarray(bound)
    return bool(np.all(value <= bound + 1e-9 * np.abs(bound) + 1e-12 * (1 + np.abs(scale))))


def hunt(value: Any, bound: Any, label: str = "nearness to a violation") -> None:
    """Steer hypothesis towards a violation of ``value <= bound``."""
    value, bound = np.ravel(value), np.ravel(bound)
    margin = np.max((value - bound) / (np.abs(value) + np.abs(bound) + 1e-12))
    target(float(margin), label=label)
