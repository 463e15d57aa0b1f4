"""Pixels and sound: which frames, how they are decoded, and within which limits."""
