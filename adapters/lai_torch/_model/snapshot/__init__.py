"""What a forward pass may write, as it was before."""
