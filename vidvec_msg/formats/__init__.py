"""What is on disk: items, pairs, collections, relevance. Standard library and numpy only."""
