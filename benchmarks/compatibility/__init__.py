"""Suites that ship inside other packages, run against the adapters and judged sample by sample."""
