"""What every study stands on: records, intervals over seeds, operations."""
