"""What a user is likely to hand over by mistake is refused by name, with the way out."""

import pytest

from tests.lai_torch.messages import curators, datasets, exact, selective, traces, trainers
from tests.support.refusals import check_refusal

TABLES = curators, datasets, exact, selective, traces, trainers
ROWS = [row for table in TABLES for row in table.MESSAGES.items()]


@pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")  # the trainers' own
@pytest.mark.filterwarnings("ignore:.*fork", "ignore::pytest.PytestUnraisableExceptionWarning")  # of jax
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's compiler's
@pytest.mark.parametrize(("said", "calls"), ROWS, ids=[said for said, _ in ROWS])
def test_a_mistake_is_named(said, calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refusal(said, calls)
