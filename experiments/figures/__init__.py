"""The figures and tables of the theory pages: each module computes one from small networks, and draws it."""
