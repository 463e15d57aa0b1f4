"""Hard negatives for training pairs, found by any embedder; the verb ``mine-negatives``."""
