"""How the pictures of the studies and of the demo are drawn."""
