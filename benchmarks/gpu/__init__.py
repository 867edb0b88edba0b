"""What curated steps take on a GPU; at toy size, where there is none, only that they run."""
