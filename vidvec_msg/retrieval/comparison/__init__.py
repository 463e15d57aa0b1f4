"""Several evaluations side by side."""
