"""Proofs of the ledger's statements: sympy only, none of our own code."""
