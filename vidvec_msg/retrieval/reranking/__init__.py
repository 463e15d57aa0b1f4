"""Reranking: the best candidates of a run, judged pair by pair and put in a new order; ``rerank``."""
