"""What every estimator runs on: checks, records, per-sample gradients and their contractions."""
