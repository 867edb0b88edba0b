"""What every run loads, tests and proofs: the ledger's record, and which cases are slow."""

pytest_plugins = ["tests.support.ledger_plugin", "tests.support.tiers"]
