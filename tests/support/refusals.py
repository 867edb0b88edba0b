"""Tables of refusals: the words of an error, and the call that raises it."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Call = Callable[[], Any]
Table = dict[str, Call | list[Call]]


def check_refusal(said: str, calls: Call | Iterable[Call]) -> None:
    """Check that each call raises what is said, `"ValueError: steps: expected … got -1"`.

    An ellipsis stands for any words; the end is open. Warnings are errors in tests, and so are rows, too.
    """
    kind, _, words = said.partition(": ")
    pattern = ".*".join(map(re.escape, words.split("…")))
    for call in [calls] if callable(calls) else calls:
        with pytest.raises(Exception) as caught:  # noqa: PT011 # its kind is among the words
            call()
        found = str(caught.value)
        assert kind in {base.__name__ for base in caught.type.__mro__}, f"{caught.type.__name__}: {found}"
        assert re.match(pattern, found, re.DOTALL), found


def refusals(table: Table) -> Callable[[str], None]:
    """Make the test of a table, a case for each of its rows."""

    @pytest.mark.parametrize("said", table)
    def test(said: str) -> None:
        check_refusal(said, table[said])

    return test
