"""Proved statements as numbers, each compiled once."""

COMPILED = {}


def numbers(statement, side="rhs", *, depth=1, index=0):
    """Turn one side of a proved statement into numbers, once for every depth."""
    key = id(statement), side, depth, index
    if key not in COMPILED:
        COMPILED[key] = statement.numbers(side, depth=depth, index=index)
    return COMPILED[key]
