"""How near an optimiser comes to each bound that the ledger calls attained: `python -m tests.attained`."""

from tests.attained import approximation, other
from tests.attained.climb import BOUNDS, Bound, climb

__all__ = ["BOUNDS", "Bound", "approximation", "climb", "other"]
