"""Filters of pairs: each gives a reason or nothing, and every reject is kept with its reason."""
