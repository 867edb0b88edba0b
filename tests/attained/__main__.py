"""Print what is reached of each bound."""

from tests.attained import BOUNDS, climb

for name, bound in BOUNDS.items():
    print(f"{name:32} {bound.entries:7} entries  {climb(bound, enough=1.0 - 1e-6, starts=8):.6f} reached")
