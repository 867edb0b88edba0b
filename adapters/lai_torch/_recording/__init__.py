"""One watched forward pass, and the records it gives."""
