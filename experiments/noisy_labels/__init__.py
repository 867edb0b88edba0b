"""Rescue a training run on handwritten digits of which 40% are labelled wrongly."""
