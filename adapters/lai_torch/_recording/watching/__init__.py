"""Watching one forward pass: probes, uses, and where the samples lie."""
