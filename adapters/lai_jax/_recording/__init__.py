"""From a program to the records of a trace."""
