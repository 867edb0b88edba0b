"""What every run of the tests loads: the ledger's record, which spans tests and proofs."""

pytest_plugins = ["tests.support.ledger_plugin"]
