"""Models with their batches, and how far the library is from an oracle on them: for tests and benchmarks."""
