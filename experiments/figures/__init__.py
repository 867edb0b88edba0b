"""The figures of the theory pages: of chains, and of what small networks gave once."""
