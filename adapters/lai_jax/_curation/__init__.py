"""The step behind `curated_update`."""
