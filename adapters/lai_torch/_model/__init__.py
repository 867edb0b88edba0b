"""Calling a user's model without leaving a mark."""
