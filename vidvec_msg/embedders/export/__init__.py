"""The way out: an embedder as a sentence-transformers or transformers folder."""
