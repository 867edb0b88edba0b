"""Per-sample records of a model, read off the autograd graph of one batch's losses."""
