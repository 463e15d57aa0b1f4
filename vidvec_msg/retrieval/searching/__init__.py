"""Questions to an index: one or many, and what comes back."""
