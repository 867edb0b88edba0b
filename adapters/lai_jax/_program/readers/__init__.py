"""How loops, branches, functions with derivative rules of their own, and programs of one sample are read."""
