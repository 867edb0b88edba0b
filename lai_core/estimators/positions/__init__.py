"""Layers that are used at many positions of a sample: what LAI means there, and the score of a position."""
