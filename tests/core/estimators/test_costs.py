"""What a chain of layers has no cost for."""

from lai_core.estimators.costs import cost_ratio
from tests.support.refusals import Table, refusals

REFUSED: Table = {
    "ValueError: widths: expected the input's and at least one layer's, got 1 of them": (
        lambda: cost_ratio([3])
    ),
    "TypeError: widths[1]: expected a whole number >= 1, got True": lambda: cost_ratio([3, True]),
}


test_what_has_no_cost_is_refused = refusals(REFUSED)
