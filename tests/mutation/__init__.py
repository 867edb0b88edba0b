"""Change `lai_core` everywhere a small change can be made, and count what the tests see."""
