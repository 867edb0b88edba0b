"""What was recorded of a batch: one record for each use of a parameter, and the trace that holds them."""
