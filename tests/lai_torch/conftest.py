"""Every test of the torch adapter draws from one seed."""

from tests.support.fixtures import seeded

__all__ = ["seeded"]
