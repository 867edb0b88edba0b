"""Curation in the trainers that people use; each module needs the package that it is named after."""
