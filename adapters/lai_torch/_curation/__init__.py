"""The loop behind `Curator`."""
