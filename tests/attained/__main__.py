"""Print what is reached of each bound."""

from tests.attained import BOUNDS, climb

print(f"{'statement':32} {'entries':>7} {'starts':>6} {'evaluations':>11}  reached")
for bound in BOUNDS:
    found = climb(bound, enough=1.0 - 1e-6, starts=8)
    print(f"{bound.name:32} {bound.entries:7} {found.starts:6} {found.evaluations:11}  {found.reached:.6f}")
