"""Reading and running a user's function as a program: a jaxpr, calls inlined."""
