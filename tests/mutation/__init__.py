"""Change `lai_core` and `lai_storage` in every small way, and count what the tests see."""
