"""A real embeddings endpoint on loopback: vectors from a text's hash, trouble by seed, requests counted."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from loopback import TroubledHandler, TroubledServer, running

TROUBLES = ("busy", "broken", "slow", "cut", "torn", "few", "html", "indices")


def vector_of(text: str, dim: int) -> np.ndarray:
    """What the endpoint's model makes of a text; not of norm 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


class EmbeddingsServer(TroubledServer):
    """Change the attributes while it runs.

    Args:
        dim: of the model.
        troubles: what may happen to a request instead of an answer.
        share: of the requests that meet trouble.
        seed: of the trouble.
        longest: characters of a text that are accepted; 400 beyond.
        most: texts of a request that are accepted; 422 beyond.
    """

    def __init__(
        self,
        *,
        dim: int = 8,
        troubles: Sequence[str] = (),
        share: float = 0.4,
        seed: int = 0,
        longest: int = 10_000,
        most: int = 10_000,
    ) -> None:
        super().__init__(_Handler, troubles=troubles, share=share, seed=seed)
        self.dim, self.longest, self.most = dim, longest, most
        self.answered: list[str] = []  # texts
        self.special: dict[str, Any] = {}  # text → its embedding
        self.supports_dimensions = True


class _Handler(TroubledHandler):
    service = "/v1/embeddings"
    half = b'{"object": "list", "data": ['

    def _answer(self, body: dict[str, Any]) -> None:
        server, texts = self.server, body["input"]
        if len(texts) > server.most:
            return self.send(422, {"error": f"batch size {len(texts)} > maximum {server.most}"})
        if any(len(text) > server.longest for text in texts):
            return self._refuse(400, f"maximum context length is {server.longest} characters")
        dim = body.get("dimensions", server.dim) if server.supports_dimensions else server.dim
        entries = []
        for index, text in enumerate(texts):
            embedding = server.special.get(text)
            if embedding is None:
                vector = vector_of(text, server.dim)[:dim]
                embedding = vector.tolist()
                if body.get("encoding_format") == "base64":
                    embedding = base64.b64encode(vector.astype("<f4").tobytes()).decode()
            entries.append({"object": "embedding", "index": index, "embedding": embedding})
        with server.lock:
            server.dice.shuffle(entries)  # the order means nothing; the index does
            server.answered += texts
        tokens = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return self.send(200, {"object": "list", "data": entries, "model": body["model"], "usage": usage})

    def _few(self, body: dict[str, Any]) -> None:
        self.send(200, {"object": "list", "data": [], "model": "m"})

    def _html(self, body: dict[str, Any]) -> None:
        self.send(200, "<html>Please log in</html>")

    def _indices(self, body: dict[str, Any]) -> None:
        entries = [{"index": 0, "embedding": [1.0] * self.server.dim} for _ in body["input"]]
        if len(entries) == 1:
            return self._broken(body)  # one text's vector is its own, whatever the index
        return self.send(200, {"object": "list", "data": entries, "model": "m"})

    def _refuse(self, status: int, message: str) -> None:
        self.send(status, {"error": {"message": message, "type": "invalid_request_error"}})


def embeddings_server(**options: Any) -> AbstractContextManager[EmbeddingsServer]:
    """A running server; gone at the end of the block."""
    return running(EmbeddingsServer(**options))
