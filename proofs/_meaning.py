r"""What the symbols of the proofs stand for: the reason of every sign that a symbol carries.

A symbol that is declared positive assumes something, as a relation of a ``given`` does. `SIGNS` names, slug
by slug, the hypothesis of the ledger that each such sign stands for, or one of `KINDS`: what a norm, a count
or a probability is by its meaning. The harness refuses any other. Indices are left out: ``beta`` is every
``beta0_1``. What a ``given`` has under the ledger's words, and `under` `MEANING`, is in `_words`.
"""

import re
from collections.abc import Iterator, Sequence

import sympy as sp

from proofs._relations import Relation, symbols_of

NORM = "a norm, or a bound of norms"
COUNT = "a count"
CHANCE = "a probability"
SQUARE = "a mean of squares, a variance or the root of one"
STEP = "a learning rate, or another size of a step"
DISTANCE = "a distance between two ends"
EXAMPLE = "the parameter of an example that is written out"
EXPONENTIAL = "an exponential"
KINDS = (NORM, COUNT, CHANCE, SQUARE, STEP, DISTANCE, EXAMPLE, EXPONENTIAL)

_LAST = r"$\beta^{(L)} \ge 0$ for every $z$"
_BELOW = r"$\alpha^{(l)} \ge 0$ for $l < L$"
_EACH = r"$\alpha^{(l)} \ge 0$"
_FLOOR = r"$\alpha^{(L)} \ge \bar\alpha > 0$"
_INSIDE = r"$0 \le \beta^{(l)} \le \beta^{(L)}$ for every layer and $z$"
_CONSERVATIVE = {"A1": "rho >= 0", "A2": "C_a >= 0", "A3": "beta >= 0", NORM: "m >= 0, n >= 0"}
_CHAIN = {"A1": "rho >= 0", NORM: "m >= 0, m_l >= 0, n >= 0, n_l >= 0"}
SIGNS: dict[str, dict[str, str]] = {
    "adam-direction": {r"$D > 0$ entrywise": "r > 0"},
    "adam-derivative": {
        r"$0 < \beta_1, \beta_2 < 1$": "decay >= 0",
        r"$\hat v > 0$ entrywise": "r > 0",
        STEP: "epsilon > 0",
        COUNT: "t > 0",
        NORM: "c > 0, d > 0, n > 0",
    },
    "adam-readouts": {SQUARE: "c > 0, r > 0"},
    "second-moment": {SQUARE: "D >= 0, q >= 0"},
    "cost-ratio": {COUNT: "d > 0"},
    "gradient-norm-decay": {"A1": "r > 0", NORM: "d > 0, n > 0"},
    "bounded-activations": {"A2": "C >= 0"},
    "non-negative-alignment": {
        "A3": "c >= 0",
        r"for one sign of all scores also $\alpha^{(l)} \ge 0$": "alpha >= 0",
        NORM: "n >= 0",
    },
    "non-expansive": {"for the decay also A1": "rho >= 0", NORM: _CHAIN[NORM]},
    "alignment-decay": _CHAIN,
    "norm-product-bound": _CHAIN,
    "app-conservative": _CONSERVATIVE,
    "conservative-sharp": _CONSERVATIVE,
    "lai-lower-bound": {_FLOOR: "abar >= 0", _LAST: "beta >= 0"},
    "app-relative-conservative": _CONSERVATIVE | {_FLOOR: "abar >= 0"},
    "gap-without-alignment": {
        r"A1 with any $\rho > 0$": "rho >= 0",
        "A2": "C_a >= 0",
        NORM: "m >= 0, n >= 0",
    },
    "decay-bounds-gain": {"A1 for every gradient": "rho >= 0"},
    "descent-meaning": {
        r"$\eta \ge 0$": "eta > 0",
        r"$\nabla L_V$ is $\lambda$-Lipschitz": "lambda > 0",
        NORM: "n > 0",
        DISTANCE: "q >= 0, v > 0",
    },
    "directional-derivative": {STEP: "h > 0"},
    "share-derivative": {STEP: "eta > 0"},
    "contrast-variance": {r"the means are independent with variances $v_k$": "v > 0"},
    "contrast-shrinkage": {
        r"the error has mean 0 and variance $v > 0$ and is uncorrelated with it": "v > 0",
        r"the true contrast has mean 0 and variance $t$": "t > 0",
    },
    "cochran-q": {r"the means are independent with standard deviations $e_k > 0$": "p > 0"},
    "hedge-step": {r"$K \ge 2$": "a > 0", r"$H > 0$": "h > 0", STEP: "e > 0"},
    "mixture-regret": {r"$\pi_k > 0$ with $\sum_k \pi_k = 1$": "p > 0", EXPONENTIAL: "u > 0"},
    "part-variance": {COUNT: "n > 0", SQUARE: "s > 0"},
    "false-discovery-rate": {CHANCE: "p >= 0, q > 0"},
    "zeta-bound": {"A2": "C >= 0"},
    "app-abs-gap": {EXAMPLE: "r > 0, rho > 0"},
    "app-rel-gap": {EXAMPLE: "r > 0, rho > 0"},
    "lli-gap": {"A1": "rho > 0", "A2": "C_a > 0"},
    "lli-relative-gap": {"A1": "rho > 0", "A2": "C_a > 0", _FLOOR: "abar > 0", _LAST: "beta >= 0"},
    "app-var-beta": {NORM: "rho >= 0", SQUARE: "sigma >= 0"},
    "gradient2": {EXAMPLE: "c > 0"},
    "random-weights-variance": {r"weights are independent Gaussians of mean zero and variance $v$": "v > 0"},
    "lai-two-sided": {_BELOW: "alpha >= 0", _LAST: "beta >= 0"},
    "relative-below-one": {_EACH: "alpha >= 0", _INSIDE: "beta >= 0"},
    "perturbation-norm": {NORM: "b >= 0, d >= 0, f >= 0, h >= 0"},
    "midpoint": {STEP: "eta > 0"},
    "shapley-first-order": {
        r"$\eta > 0$": "eta > 0",
        r"$\nabla L_V$ is $\lambda$-Lipschitz": "lambda > 0",
        NORM: "a >= 0",
    },
    "unit-gain-variance": {CHANCE: "p > 0"},
    "minkowski-lower-bound": {SQUARE: "s >= 0, t >= 0"},
    "app-var-CS-lb": {SQUARE: "s >= 0, t >= 0"},
    "app-var-corr-lb": {SQUARE: "V >= 0, n >= 0"},
    "signed-covariance-bound": {SQUARE: "V >= 0, n >= 0"},
    "variance-order": {
        r"fixed $\alpha \ge 0$": "a >= 0",
        r"$\sd \beta^{(l)} \le \sd \beta^{(L)}$ for every layer": "d >= 0, n >= 0",
    },
    "variance-criterion": {CHANCE: "p > 0"},
    "scale-free-variance": {CHANCE: "p > 0"},
}
_INDICES = re.compile(r"_*\d+")
_FACTOR = re.compile(r"(?<!\*)\b\d+\*")
_SIGNS = {
    "positive": "> 0",
    "negative": "< 0",
    "nonnegative": ">= 0",
    "nonpositive": "<= 0",
    "nonzero": "!= 0",
}


def allowed_of(slug: str) -> set[str]:
    """List what the symbols of a statement may assume."""
    return {sign for listed in SIGNS.get(slug, {}).values() for sign in listed.split(", ")}


def assumed_by_symbols(relations: Sequence[Relation], given: Sequence[Relation]) -> set[str]:
    """List the signs that symbols carry."""
    signs = (sign.split(" ", 1) for sign in carried(relations, given))
    return {f"{_INDICES.sub('', name)} {word}" for name, word in signs}


def unstated(slug: str, relations: Sequence[Relation], given: Sequence[Relation]) -> list[str]:
    """List what symbols assume and no hypothesis says."""
    return sorted(assumed_by_symbols(relations, given) - allowed_of(slug))


def carried(relations: Sequence[Relation], given: Sequence[Relation]) -> Iterator[str]:
    """Give the signs that symbols carry, indices and all."""
    for symbol in symbols_of(relations, given):
        words = (text for name, text in _SIGNS.items() if getattr(symbol, f"is_{name}", False))
        if isinstance(symbol, sp.Symbol) and (word := next(words, None)):  # the first one is the strictest
            yield f"{symbol.name} {word}"


def spelled(relation: Relation) -> str:
    """Write a relation without indices, and ``k`` for the counts that merging the indices leaves."""
    sides = [sp.sympify(side) for side in (relation.lhs, relation.rhs)]
    symbols = set().union(*(side.free_symbols for side in sides))
    stems = {symbol: sp.Symbol(_INDICES.sub("", symbol.name)) for symbol in symbols}
    left, right = (_FACTOR.sub("k*", str(side.xreplace(stems))) for side in sides)
    sign = {None: "=", True: "<", False: "<="}[getattr(relation, "strict", None)]
    return f"{left} {sign} {right}"
