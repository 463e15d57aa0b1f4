"""Clips by what is said and written in them, then any text embedder (`cascade:`)."""
