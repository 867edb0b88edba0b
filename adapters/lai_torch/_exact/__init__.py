"""Exact derivatives along a direction of the parameters."""
