"""What each function does with a parameter, and what no rule can read."""
