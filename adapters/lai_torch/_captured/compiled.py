"""Functions that `torch.compile` reads in one graph, for a back end of ours."""

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_serial = itertools.count()


def own_code(function: Any) -> Any:
    """Give a function a name of its own: compilations are counted by code and its name."""
    function.__code__ = function.__code__.replace(co_name=f"{function.__name__}_{next(_serial)}")
    return function


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as a function that does not keep its object, which has to be there when it runs.

    The compiler keeps its back ends as long as the process lives: these must not keep a model.
    """
    weak: Any = weakref.WeakMethod(method)
    return lambda *args, **options: weak()(*args, **options)


@contextmanager
def naming(expected: str, eagerly: Callable[[], Any], why: Callable[[Exception], str]) -> Iterator[None]:
    """Compile inside, and say of what does not compile what was expected, and why it does not.

    An error of the function's own comes up as it is, where it is called `eagerly`.

    Raises
    ------
    ValueError
        `expected`, with the reason in place of its braces.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # torch's compiler has no class of errors that holds all of its own
        eagerly()
        raise ValueError(expected.format(why(error))) from error


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, of that of a back end which the compiler wraps as well."""
    said = getattr(error, "inner_exception", error)
    return next(iter(str(said).splitlines()), type(said).__name__)
