"""Which forward pass a step uses: one for scoring only, or one shared by scoring and training."""
