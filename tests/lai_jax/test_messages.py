"""What a user is likely to hand over by mistake is refused by name, with the way out."""

import pytest

from tests.lai_jax.messages import MESSAGES
from tests.support.refusals import check_refusal


@pytest.mark.parametrize("said", MESSAGES)
def test_a_mistake_is_named(said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refusal(said, MESSAGES[said])
