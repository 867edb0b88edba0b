"""The one fixture of the proofs: `settle` judges a statement and notes what it judged."""

from collections.abc import Callable, Mapping

import pytest

from proofs._harness import Proof, Statement, judge
from proofs._rewrites import Rewrite

pytest_plugins = ["tests.support.ledger_plugin", "tests.support.tiers"]


@pytest.fixture
def settle(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Hold a statement proved and its mutants rejected; see `proofs._harness`."""

    def settle(statement: Statement, proof: Proof | None, mutants: Mapping[str, Rewrite]) -> None:
        marked = {slug for mark in request.node.iter_markers("equation") for slug in mark.args}
        if statement.slug not in marked:
            raise AssertionError(f"the proof of {statement.slug!r} is marked {sorted(marked)}")
        for name, count in judge(statement, proof, mutants).items():
            request.node.user_properties.append((name, count))
        request.node.user_properties.append(("scope", statement.scope))

    return settle
