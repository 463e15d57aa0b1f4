"""Published benchmarks, as their owner has them on disk → a collection; the verb ``import-benchmark``."""
