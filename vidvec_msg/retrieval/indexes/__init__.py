"""What an index is made of: segments, changes, codes, estimates, and the engine that searches."""
