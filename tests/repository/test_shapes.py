"""The shapes in the signatures of what computes are enforced while the tests run."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from lai_core._engine import factors
from lai_core._engine.gradients import Workspace


def test_a_result_of_the_wrong_shape_or_type_is_an_error():
    work = Workspace(np, np.float64, 2**20)
    array = np.ones((3, 2, 4))
    assert factors.by_group(array, slice(0, 3), 1, work).shape == (1, 6, 4)
    integers = Workspace(np, np.int64, 2**20)
    with pytest.raises(TypeCheckError):
        factors.by_group(array.astype(int), slice(0, 3), 1, integers)
