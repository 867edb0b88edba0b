"""Check the corrected bounds on at least 100,000 generated networks: ``python -m tests.thorough``.

Networks are drawn a thousand at a time from the families of `tests.support.networks`; scores come
from weight gradients that are built, bounds from `lai_core` under `jax.vmap`. Every corrected
statement must hold on every network to which it applies; how often the two bounds that the paper
prints for LAI fail is counted beside them. Writes ``build/thorough.json`` and ``build/thorough.log``,
and exits with 1 if a corrected statement fails anywhere, or applied nowhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lai_core import (
    bounds,
)
from lai_core.assumptions import decay_rate
from tests.support.backends import jax  # with 64 bits enabled
from tests.support.networks import ALIGNED, ASSUMING, FAMILIES, Case, Shape
from tests.support.noise_claims import claims_of_noise

BUILD = Path(__file__).resolve().parents[1] / "build"
CHUNK = 1000
SHAPES = [
    Shape(CHUNK, depth, width, n_val, n_train)
    for depth, width in ((1, 3), (2, 2), (2, 4), (3, 4), (4, 3), (6, 3), (8, 2))
    for n_val, n_train in ((1, 2), (3, 4))
]
TINY = 1e-6
Claim = tuple[str, np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Tally:
    """What became of one statement."""

    networks: int = 0
    violated: int = 0
    nearest: float = -np.inf
    families: set[str] = field(default_factory=set)

    def add(self, family: str, value: np.ndarray, bound: np.ndarray, scale: np.ndarray) -> None:
        """Count the networks on which ``value <= bound`` fails by more than rounding."""
        nets = len(value)
        value, bound, scale = (np.reshape(x, (nets, -1)) for x in (value, bound, scale))
        slack = bound - value
        room = 1e-9 * np.abs(bound) + 1e-12 * (1 + scale)
        self.networks += nets
        self.violated += int((~(slack >= -room)).any(axis=1).sum())  # a NaN violates, too
        if nets:
            self.nearest = max(self.nearest, float((-slack / (np.abs(bound) + np.abs(value) + TINY)).max()))
            self.families.add(family)


class Facts:
    """A chunk of networks: scores, similarities and constants, one row a network."""

    def __init__(self, case: Case) -> None:
        self.case, self.depth = case, case.depth
        self.alpha, self.beta = case.alpha, case.beta
        self.last = self.beta[:, -1]
        self.ghost, self.lai, self.lli = case.ghost, case.lai, case.lli
        self.norms = case.validation_norms[:, -1], case.training_norms[:, -1]
        norms = np.concatenate([case.validation_norms, case.training_norms], axis=2)
        measured = np.asarray(jax.vmap(decay_rate)(norms)).max(axis=1)
        self.rho = measured if case.rho is None else case.rho
        self.C_a = case.activation_bound
        self.alpha_bar = self.alpha[:, -1].min(axis=(1, 2))
        terms = np.abs(self.alpha * self.beta) + np.abs(self.alpha * self.last[:, None])
        self.scale = terms.sum(axis=(1, 2)) * np.ones_like(self.ghost)

    def vmap(self, function, *arrays, **constants) -> np.ndarray:
        """Evaluate a function of `lai_core` on every network, constants of a network included."""

        def one(arrays, constants):
            return function(*arrays, **constants, **({"depth": self.depth} if "rho" in constants else {}))

        return jax.tree.map(np.asarray, jax.vmap(one)(arrays, constants))

    def constants(self, *names: str) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in names}


def claims_of_any_network(facts: Facts) -> Iterator[Claim]:
    """Yield what needs no assumption beyond a measured rate."""
    rate = facts.constants("rho", "C_a")
    difference = {"lai": np.abs(facts.ghost - facts.lai), "lli": np.abs(facts.ghost - facts.lli)}
    found = facts.vmap(bounds.norm_product_bound, *facts.norms, rho=facts.rho)
    yield "norm-product-bound", np.abs(facts.beta), found, np.zeros_like(found)
    found = facts.vmap(bounds.pair_gap_bound, facts.beta, C_a=facts.C_a)
    zeta = np.abs(facts.vmap(bounds.gap, facts.alpha, facts.beta))
    yield "zeta-bound", zeta, found, np.abs(found)
    found = facts.vmap(bounds.lli_gap_bound_without_alignment, *facts.norms, **rate)
    yield "gap-without-alignment (LLI)", difference["lli"], found, facts.scale
    found = facts.vmap(bounds.lai_gap_bound_without_alignment, facts.last, *facts.norms, **rate)
    yield "gap-without-alignment (LAI)", difference["lai"], found, facts.scale
    mean = facts.vmap(bounds.mean_ratio, facts.alpha, facts.beta)
    farther = np.where(
        mean > 0.5, difference["lai"] - difference["lli"], difference["lli"] - difference["lai"]
    )
    yield "lai-nearer-than-lli", farther, np.zeros_like(farther), facts.scale
    for name, score in (("LAI", facts.lai), ("LLI", facts.lli)):
        regret = facts.vmap(bounds.selection_regret, facts.ghost, score)
        found = facts.vmap(bounds.selection_regret_bound, facts.ghost, score)
        yield f"selection-regret ({name})", regret, found, facts.scale.sum(1)
    yield from _certificates(facts)


def _certificates(facts: Facts) -> Iterator[Claim]:
    """Yield the certificate of the top half of the layers."""
    below = facts.depth // 2
    if below == 0:
        return
    networks, sides = facts.case.networks, (facts.case.validation, facts.case.training)
    factors = []
    for batch in sides:
        slopes = networks.gates(batch.activations[0])
        steps = [facts.vmap(bounds.layer_factors, networks.weights[t + 1], slopes[t]) for t in range(below)]
        factors.append(np.stack(steps, axis=1))
    norms = facts.case.validation_norms[:, below], facts.case.training_norms[:, below]
    found = facts.vmap(bounds.top_layers_bound, facts.alpha[:, :below], *factors, *norms)
    missing = np.abs((facts.alpha * facts.beta)[:, :below].sum(axis=(1, 2)))
    yield "top-layer-certificate", missing, found, facts.scale


def claims_under_the_assumptions(facts: Facts) -> Iterator[Claim]:
    """Yield what holds under A1, A2, A3 and non-expansive alignment."""
    rate = facts.constants("rho", "C_a")
    gap = np.abs(facts.ghost - facts.lai)
    arguments = (facts.last, *facts.norms)
    sharp = facts.vmap(bounds.sharp_conservative_bound, *arguments, **rate)
    yield "conservative-sharp", gap, sharp, facts.scale
    yield "app-conservative", sharp, facts.vmap(bounds.conservative_bound, *arguments, **rate), facts.scale
    found = facts.vmap(bounds.aligned_similarity_bound, facts.last, rho=facts.rho)
    yield "alignment-decay", np.abs(facts.beta), found, np.zeros_like(found)
    found = facts.vmap(bounds.lli_gap_bound, facts.last, **rate)
    yield "lli-gap", np.abs(facts.ghost - facts.lli), found, facts.scale
    powers = facts.rho[:, None] ** (2.0 * np.arange(facts.depth - 1, -1, -1))
    admissible = np.concatenate([powers[:, :-1] * 0.75, np.ones((len(powers), 1))], axis=1)
    weighted = np.einsum("bl,blzj,bzj->bj", admissible, facts.alpha, facts.last)
    yield "admissible-weights", np.abs(facts.ghost - weighted), found, facts.scale
    chosen = (facts.alpha_bar > TINY) & (np.abs(facts.lli) > TINY).all(axis=1)
    found = facts.vmap(bounds.lli_relative_bound, **facts.constants("rho", "C_a", "alpha_bar"))
    found = found[chosen, None] * np.ones_like(gap[chosen])
    error = np.abs(facts.ghost - facts.lli)[chosen] / np.abs(facts.lli)[chosen]
    yield "lli-relative-gap", error, found, facts.scale[chosen] / np.abs(facts.lli)[chosen]


def claims_with_aligned_embeddings(facts: Facts) -> Iterator[Claim]:
    """Yield what needs non-negative embedding similarities, too."""
    alpha = np.maximum(facts.alpha, 0)
    high = facts.rho[:, None] ** (2.0 * np.arange(facts.depth - 1, -1, -1))
    low = np.zeros_like(high)
    gap = facts.lai - facts.ghost
    smallest, largest = facts.vmap(bounds.lai_gap_range, alpha, facts.last, low, high)
    yield "lai-two-sided (lower)", smallest, gap, facts.scale
    yield "lai-two-sided (upper)", gap, largest, facts.scale
    lower = facts.vmap(bounds.lai_lower_bound, facts.last, alpha_bar=np.maximum(facts.alpha_bar, 0))
    yield "lai-lower-bound", lower, np.abs(facts.lai), facts.scale
    chosen = (facts.alpha_bar > TINY) & (facts.lai > TINY).all(axis=1)
    quotient, scale = facts.ghost[chosen] / facts.lai[chosen], facts.scale[chosen] / facts.lai[chosen]
    smallest, largest = facts.vmap(bounds.ghost_over_lai_range, alpha[chosen], low[chosen], high[chosen])
    yield "ghost-lai-range (lower)", smallest, quotient, scale
    yield "ghost-lai-range (upper)", quotient, largest, scale
    found = facts.vmap(bounds.relative_error_bound, alpha[chosen])
    yield "relative-below-one", np.abs(1 - quotient), found, scale


def claims_as_printed(facts: Facts) -> Iterator[Claim]:
    """Yield the two bounds that the paper prints for LAI, to be counted and not to be held."""
    rate = facts.constants("rho", "C_a")
    found = facts.vmap(bounds.geometric_bound_as_printed, facts.last, **rate)
    yield "app-abs-gap, as printed", np.abs(facts.ghost - facts.lai), found, facts.scale
    chosen = (facts.alpha_bar > TINY) & (np.abs(facts.lai) > TINY).all(axis=1)
    found = facts.vmap(bounds.lli_relative_bound, **facts.constants("rho", "C_a", "alpha_bar"))
    error = np.abs(facts.ghost - facts.lai)[chosen] / np.abs(facts.lai)[chosen]
    scale = facts.scale[chosen] / np.abs(facts.lai)[chosen]
    yield "app-rel-gap, as printed", error, found[chosen, None] * np.ones_like(error), scale


def check(networks: int, seed: int) -> tuple[dict[str, Tally], int]:
    """Draw chunks from every family in turn until enough networks were seen."""
    rng, tallies, seen = np.random.default_rng(seed), {}, 0
    while seen < networks:
        shape = SHAPES[seen // CHUNK // len(FAMILIES) % len(SHAPES)]
        for family, draw in FAMILIES.items():
            facts = Facts(draw(rng, shape))
            kinds = [claims_of_any_network, claims_of_noise]
            kinds += [claims_under_the_assumptions, claims_as_printed] if family in ASSUMING else []
            kinds += [claims_with_aligned_embeddings] if family in ALIGNED else []
            for kind in kinds:
                for name, value, bound, scale in kind(facts):
                    tallies.setdefault(name, Tally()).add(family, value, bound, scale)
            seen += shape.nets
    return tallies, seen


def main() -> int:
    """Check, write what was found, and say whether every corrected statement held."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    tallies, seen = check(options.networks, options.seed)
    seconds = time.perf_counter() - start
    lines = [f"{seen} networks, seed {options.seed}, {seconds:.0f} s"]
    for name, tally in tallies.items():
        lines.append(
            f"{name:32} {tally.networks:8} networks {tally.violated:8} violated"
            f"   nearest {tally.nearest:+.2e}   {len(tally.families)} families"
        )
    held = {name: tally for name, tally in tallies.items() if "printed" not in name}
    failed = [name for name, tally in held.items() if tally.violated or not tally.networks]
    lines.append(f"corrected statements: {len(held)}, violated: {', '.join(failed) or 'none'}")
    BUILD.mkdir(exist_ok=True)
    (BUILD / "thorough.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = {
        name: {"networks": tally.networks, "violated": tally.violated, "families": sorted(tally.families)}
        for name, tally in tallies.items()
    }
    record = {"networks": seen, "seed": options.seed, "seconds": round(seconds, 1), "statements": found}
    (BUILD / "thorough.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
