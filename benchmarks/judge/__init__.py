"""Libraries of per-sample gradients, judged on one zoo of models against a loop of autograd."""
