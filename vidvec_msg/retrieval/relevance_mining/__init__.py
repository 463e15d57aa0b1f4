"""Pairs that may mean the same, judged by people, and what follows; the verb ``mine-relevance``."""
