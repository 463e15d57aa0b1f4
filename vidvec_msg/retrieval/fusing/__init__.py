"""Several runs of one collection → one: their lists, how they are joined, and weights from other queries."""
