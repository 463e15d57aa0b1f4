"""Item → vector: the contract, prompts, pooling, multimodal LLMs, and everybody else's models."""
