"""An embeddings endpoint that speaks OpenAI's protocol: requests, retries, cache."""
