"""Several processes that share one batch: what they add up, what they tell each other, how they train."""
