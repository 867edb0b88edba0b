"""The model as forward and backward graphs with a free batch size."""
