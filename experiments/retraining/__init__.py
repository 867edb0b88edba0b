"""Networks retrained on subsets, and the scores that a run adds up: the parts of the attribution study."""
