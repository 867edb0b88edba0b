"""Proved statements as numbers: what is drawn for their arguments, and what their sides are then."""

import numpy as np
import sympy as sp

COMPILED = {}


def numbers(statement, side="rhs", *, depth=1, index=0):
    """Turn one side of a proved statement into a function of numbers, compiled once for every depth."""
    key = id(statement), side, depth, index
    if key not in COMPILED:
        COMPILED[key] = statement.numbers(side, depth=depth, index=index)
    return COMPILED[key]


def in_numbers(statement, depth, seed, side="rhs", index=0):
    """Draw numbers for a statement's arguments; give them and the value of one of its sides."""
    generator, values = np.random.default_rng(seed), {}
    drawn = [_drawn(argument, generator, values) for argument in statement.arguments(depth)]
    return drawn, np.asarray(numbers(statement, side, depth=depth, index=index)(*drawn), dtype=float)


def _drawn(argument, generator, values):
    """Draw in the argument's nesting; vectors and matrices become arrays; a symbol has one value."""
    if isinstance(argument, sp.MatrixBase):
        rows = np.array([_drawn(row, generator, values) for row in argument.tolist()])
        return rows[:, 0] if argument.shape[1] == 1 else rows
    if isinstance(argument, (list, tuple)):
        return [_drawn(item, generator, values) for item in argument]
    (symbol,) = argument.free_symbols
    if symbol not in values:
        value = int(generator.integers(1, 5)) if symbol.is_integer else generator.uniform(-2, 2)
        values[symbol] = abs(value) + 0.1 if symbol.is_nonnegative and not symbol.is_integer else value
    return values[symbol]
