"""Arrays whose entries hypothesis draws: zeros, ties and signs come up, and failing examples shrink."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays


def halves(shape: int | tuple[int, ...], least: int = -4, most: int = 4) -> st.SearchStrategy[np.ndarray]:
    """Draw an array of multiples of 1/2, small enough that sums and products are exact, none filled in."""
    entries = st.integers(least, most).map(lambda n: n / 2)
    return arrays.arrays(float, shape, elements=entries, fill=st.nothing())
