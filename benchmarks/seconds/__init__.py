"""What a curated step costs on the clock, beside a plain one and beside one written by hand."""
