"""What each primitive does with samples, and what is known of values that no sample touches."""
