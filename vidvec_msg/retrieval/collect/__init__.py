"""Other people's files → a collection."""
