"""What scores a batch, one file an estimator."""
