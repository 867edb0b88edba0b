"""Changes of `lai_core` in one place, each of which the suite must see: `python -m tests.mutants`."""

from tests.mutants import engine, theory
from tests.mutants.mutant import ROOT, Mutant, survives

__all__ = ["MUTANTS", "ROOT", "Mutant", "survives"]

MUTANTS = engine.MUTANTS | theory.MUTANTS
