"""Studies that train models: the paper's tables and figures, and our own."""
