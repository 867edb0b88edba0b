"""The theory's constants, advice and certificates on trained networks: `python -m experiments measured`."""
