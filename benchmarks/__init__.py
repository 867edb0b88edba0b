"""Benchmarks: exactness, cost and scale, each with its figures as JSON under `build/`."""
