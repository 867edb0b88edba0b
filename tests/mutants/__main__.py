"""Try every mutant that has a name."""

import sys

from tests.mutants import MUTANTS, survives

if __name__ == "__main__":
    survivors = []
    for name, each in MUTANTS.items():
        survivors += [name] if survives(each, each.tests) else []
        print(f"{'SURVIVED' if name in survivors else 'caught  '}  {name}")
    sys.exit(f"{len(survivors)} mutants survived" if survivors else 0)
