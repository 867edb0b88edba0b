"""What every study stands on: records with a schema, intervals over seeds, operations, runs that resume."""
