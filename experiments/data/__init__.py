"""Data that is really there: what ships with Python and with packages. Nothing is downloaded."""
