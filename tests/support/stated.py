"""Examples in exact numbers, and a predicate for each hypothesis that the paper states of what then fails.

The ledger names the hypotheses (`tests.support.ledger.stated`); `admit` tries all those of a statement.
An example is a linear network with two samples (`Chain`, Appendix B), random layers of width one (`Law`,
Appendices A and C), the fit of a mean (`Fit`, Section 3), a second moment with its history (`Moments`,
Appendix E) or one backward operator (`Operator`, Appendix C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any

from tests.support import ledger

Vector = Sequence[Fraction | int]


def dot(left: Vector, right: Vector) -> Fraction:
    return sum((Fraction(x) * y for x, y in zip(left, right, strict=True)), Fraction(0))


def transposed(matrix: Sequence[Vector]) -> list[Vector]:
    return [list(column) for column in zip(*matrix, strict=True)]


@dataclass(frozen=True)
class Chain:
    """A linear network :math:`s^{(l)} = W^{(l)} a^{(l-1)}`, and a validation and a training sample.

    Any last gradient is that of half the squared distance from some target.
    """

    matrices: Sequence[Sequence[Vector]]
    inputs: tuple[Vector, Vector]
    last: tuple[Vector, Vector]
    rho: Fraction
    bound: Fraction
    floor: Fraction = Fraction(1)

    @property
    def activations(self) -> list[list[Vector]]:
        """The activations of both samples, from the inputs to the last layer's."""
        both = []
        for start in self.inputs:
            found: list[Vector] = [start]
            for matrix in self.matrices:
                found.append([dot(row, found[-1]) for row in matrix])
            both.append(found)
        return both

    @property
    def gradients(self) -> list[list[Vector]]:
        """The output gradients of both samples, from the first layer to the last."""
        both = []
        for start in self.last:
            found: list[Vector] = [start]
            for matrix in reversed(self.matrices[1:]):
                found.insert(0, [dot(column, found[0]) for column in transposed(matrix)])
            both.append(found)
        return both

    @property
    def alpha(self) -> list[Fraction]:
        of_z, of_j = self.activations
        return [dot(x, y) for x, y in zip(of_z[:-1], of_j[:-1], strict=True)]

    @property
    def beta(self) -> list[Fraction]:
        return [dot(x, y) for x, y in zip(*self.gradients, strict=True)]

    @property
    def signed_squares(self) -> list[Fraction]:
        """The squared cosines of the output gradients, with the cosines' signs."""
        squares = [dot(x, x) * dot(y, y) for x, y in zip(*self.gradients, strict=True)]
        return [b * abs(b) / square for b, square in zip(self.beta, squares, strict=True)]


@dataclass(frozen=True)
class Law:
    """Layers of width one above the first: ``(chance, Jacobians of z, of j, last gradients of z, of j)``.

    ``means`` are the systematic Jacobians, ``signals`` the clean last gradients, alphas numbers.
    """

    outcomes: Sequence[tuple[Fraction, Vector, Vector, int, int]]
    alpha: Vector
    means: Vector
    signals: tuple[int, int]

    def mean(self, values: Vector) -> Fraction:
        return dot(values, [outcome[0] for outcome in self.outcomes])

    def covariance(self, left: Vector, right: Vector) -> Fraction:
        products = [x * y for x, y in zip(left, right, strict=True)]
        return self.mean(products) - self.mean(left) * self.mean(right)

    @property
    def gains(self) -> list[Fraction]:
        """The squares of the products of systematic Jacobians above each layer: traces of numbers."""
        above = range(len(self.means) + 1)
        return [prod((Fraction(m) for m in self.means[layer:]), start=Fraction(1)) ** 2 for layer in above]

    @property
    def beta(self) -> list[list[Fraction]]:
        """Each layer's similarity in every outcome."""
        layers = range(len(self.means) + 1)
        return [
            [
                prod((*of_z[layer:], *of_j[layer:]), start=Fraction(g * h))
                for _, of_z, of_j, g, h in self.outcomes
            ]
            for layer in layers
        ]

    @property
    def noise(self) -> list[list[Fraction]]:
        """What each layer's similarity is beside its gain times the last one."""
        beta = self.beta
        return [
            [b - gain * last for b, last in zip(row, beta[-1], strict=True)]
            for gain, row in zip(self.gains, beta, strict=True)
        ]

    def weighted(self, rows: Sequence[Vector]) -> list[Fraction]:
        return [dot(self.alpha, column) for column in transposed(rows)]

    def variance(self, values: Vector) -> Fraction:
        return self.covariance(values, values)


@dataclass(frozen=True)
class Fit:
    """The mean of points, fitted by squares; ``shifted``: with the weight of each in turn less ``by``."""

    points: Vector
    target: Fraction
    minimiser: Fraction
    hessian: Fraction
    by: Fraction
    shifted: Vector
    printed: Vector


@dataclass(frozen=True)
class Moments:
    """A diagonal, and the gradients of the last layer of whose squares it is a running mean."""

    diagonal: Vector
    gradients: Sequence[Vector]
    decay: Fraction


@dataclass(frozen=True)
class Operator:
    """A backward operator between equal widths, and a gradient that it takes."""

    rows: Sequence[Vector]
    gradient: Vector


def _decays(net: Chain) -> bool:
    top = len(net.matrices) - 1
    return 0 < net.rho < 1 and all(
        dot(g, g) <= net.rho ** (2 * (top - layer)) * dot(row[top], row[top])
        for row in net.gradients
        for layer, g in enumerate(row)
    )


def _running_mean(example: Moments) -> bool:
    squares = [[Fraction(g) ** 2 for g in row] for row in example.gradients]
    found = squares[0]
    for square in squares[1:]:
        found = [example.decay * f + (1 - example.decay) * s for f, s in zip(found, square, strict=True)]
    return found == list(example.diagonal)


def _is_printed(fit: Fit) -> bool:
    slope = fit.minimiser - fit.target
    return list(fit.printed) == [-slope / fit.hessian * (fit.minimiser - x) for x in fit.points]


def _down_weighted(fit: Fit) -> bool:
    return fit.by > 0 and all(
        sum(theta - x for x in fit.points) - fit.by * (theta - point) == 0
        for theta, point in zip(fit.shifted, fit.points, strict=True)
    )


def _between_layers(law: Law) -> bool:
    return all(law.covariance(x, y) >= 0 for x, y in combinations(law.noise, 2))


def _with_the_signal(law: Law) -> bool:
    return law.covariance(law.beta[-1], law.weighted(law.noise)) >= 0


def _systematic(law: Law) -> bool:
    chances = [outcome[0] for outcome in law.outcomes]
    drawn = [[outcome[side] for outcome in law.outcomes] for side in (1, 2)]
    means = all([law.mean(column) for column in transposed(rows)] == list(law.means) for rows in drawn)
    return means and sum(chances) == 1 and min(chances) > 0


def _keeps_length(operator: Operator) -> bool:
    """Whether the gradient keeps its length however often the operator is applied."""
    carried = [dot(row, operator.gradient) for row in operator.rows]
    return carried == list(operator.gradient) and len(operator.rows) == len(operator.rows[0])


PREDICATES: dict[str, tuple[type, Callable[[Any], bool]]] = {
    "A1": (Chain, _decays),
    "A2": (Chain, lambda net: all(dot(a, a) <= net.bound**2 for row in net.activations for a in row)),
    "A3": (Chain, lambda net: all(b >= 0 for b in net.signed_squares)),
    "the variant of A3": (Chain, lambda net: max(net.signed_squares) == net.signed_squares[-1]),
    r"$\alpha^{(L)} \ge \bar\alpha > 0$": (Chain, lambda net: net.alpha[-1] >= net.floor > 0),
    r"fixed $\alpha$": (Law, lambda law: len(law.alpha) == len(law.means) + 1),
    "one validation sample": (Law, lambda law: all(len(outcome) == 5 for outcome in law.outcomes)),
    r"$\bar J = \E J$": (Law, _systematic),
    r"$\E \xi = 0$": (
        Law,
        lambda law: all(law.mean([o[3 + x] for o in law.outcomes]) == law.signals[x] for x in (0, 1)),
    ),
    "$c_l = 1$ for every layer": (Law, lambda law: set(law.gains) == {1}),
    r"$\Cov(\beta^\star, Y) \ge 0$": (Law, _with_the_signal),
    r"$\Cov(\varepsilon^{(l)}, \varepsilon^{(k)}) \ge 0$ for $l \ne k$": (Law, _between_layers),
    "many covariances between layers are non-negative": (Law, _between_layers),
    "correlations are non-negative": (
        Law,
        lambda law: (
            _between_layers(law)
            and _with_the_signal(law)
            and all(law.covariance(law.beta[-1], row) >= 0 for row in law.noise)
        ),
    ),
    r"$\hat\theta$ is stationary": (Fit, lambda fit: sum(fit.minimiser - x for x in fit.points) == 0),
    "$H$ is invertible": (Fit, lambda fit: fit.hessian == len(fit.points) > 0),
    "$z_j$ is down-weighted": (Fit, _down_weighted),
    "the influence has the printed sign": (Fit, _is_printed),
    "$D$ is a running mean of squared gradients of the last layer": (Moments, _running_mean),
    "gradients neither explode nor vanish": (Operator, _keeps_length),
}


def admit(slug: str, example: Any = None) -> None:
    """Show that an example satisfies every hypothesis that the paper states where it prints a statement."""
    hypotheses = ledger.stated(ledger.read()[slug])
    assert hypotheses is not None, f"{slug}: the ledger does not say what the paper assumes there"
    for words in hypotheses:
        kind, holds = PREDICATES[words]
        assert isinstance(example, kind), f"{slug}: {words!r} is about a {kind.__name__}, got {example}"
        assert holds(example), f"{slug}: the example violates {words!r}"
