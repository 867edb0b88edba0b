"""What scoring a batch takes: by every way that one could take."""
