"""English prose and source code that come with Python itself: its language reference, and its library.

They vary with Python's version, so that records hold their hash.
"""

import ast
import enum
import hashlib
import inspect
from functools import lru_cache

import numpy as np

CODE = (ast, enum, inspect)
"""Library modules whose source is the foreign domain."""


@lru_cache(maxsize=1)
def prose() -> str:
    """Return the topics of the language reference, one after the other."""
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


@lru_cache(maxsize=1)
def modules() -> list[str]:
    """Return the source of some library modules, each by itself."""
    return [inspect.getsource(module) for module in CODE]


@lru_cache(maxsize=1)
def code() -> str:
    """Return them one after the other."""
    return "\n".join(modules())


def digest() -> str:
    """Return the hash of both."""
    return hashlib.sha256((prose() + code()).encode()).hexdigest()


@lru_cache(maxsize=1)
def alphabet() -> dict[str, int]:
    """Return the number of each character of both, from 1: 0 is padding."""
    return {char: number for number, char in enumerate(sorted(set(prose() + code())), 1)}


@lru_cache(maxsize=4)
def numbers(text: str) -> np.ndarray:
    """Return the numbers of a text's characters; one that neither corpus has is a space."""
    known = alphabet()
    return np.array([known.get(char, known[" "]) for char in text], dtype=np.int64)


def windows(text: str, count: int, length: int, random: np.random.Generator) -> np.ndarray:
    """Draw `(count, length)` consecutive characters."""
    ids = numbers(text)
    starts = random.integers(0, len(ids) - length, count)
    return ids[starts[:, None] + np.arange(length)]
