"""A real embeddings endpoint on loopback: vectors from a text's hash, trouble by seed, requests counted."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

TROUBLES = ("busy", "broken", "slow", "cut", "torn", "few", "html", "indices")


def vector_of(text: str, dim: int) -> np.ndarray:
    """What the endpoint's model makes of a text; not of norm 1."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dim).astype(np.float32)


class EmbeddingsServer(ThreadingHTTPServer):
    """Change the attributes while it runs.

    Args:
        dim: of the model.
        troubles: what may happen to a request instead of an answer.
        share: of the requests that meet trouble.
        seed: of the trouble.
        longest: characters of a text that are accepted; 400 beyond.
        most: texts of a request that are accepted; 422 beyond.
    """

    daemon_threads = True

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
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dim, self.troubles, self.share, self.longest, self.most = dim, troubles, share, longest, most
        self.dice = random.Random(seed)
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []  # bodies, in order of arrival
        self.headers: list[dict[str, str]] = []
        self.answered: list[str] = []  # texts
        self.met: Counter[str] = Counter()  # troubles
        self.at_once = self.most_at_once = 0
        self.scripted: list[tuple[int, dict[str, str], Any]] = []  # status, headers, body: go before all else
        self.special: dict[str, Any] = {}  # text → its embedding
        self.retry_after = {"Retry-After": "0.05"}
        self.delay = 0.0  # seconds before an answer
        self.slow = 1.5  # seconds of the trouble called slow; longer than the time-out that is tested
        self.supports_dimensions = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingsServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.requests.append(body)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            server.at_once += 1
            server.most_at_once = max(server.at_once, server.most_at_once)
            scripted = server.scripted.pop(0) if server.scripted else None
            hit = bool(server.troubles) and server.dice.random() < server.share
            trouble = server.dice.choice(server.troubles) if hit else None
        try:
            if server.delay:
                time.sleep(server.delay)
            if scripted is not None:
                self._send(scripted[0], scripted[2], scripted[1])
            elif self.path != "/v1/embeddings":
                self._send(404, {"detail": "Not Found"})
            elif trouble is not None:
                server.met[trouble] += 1
                getattr(self, f"_{trouble}")(body["input"])
            else:
                self._answer(body)
        finally:
            with server.lock:
                server.at_once -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        server, texts = self.server, body["input"]
        if len(texts) > server.most:
            return self._send(422, {"error": f"batch size {len(texts)} > maximum {server.most}"})
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
        return self._send(200, {"object": "list", "data": entries, "model": body["model"], "usage": usage})

    def _busy(self, texts: list[str]) -> None:
        self._refuse(429, "Rate limit reached", self.server.retry_after)

    def _broken(self, texts: list[str]) -> None:
        self._send(500, "Internal Server Error")

    def _slow(self, texts: list[str]) -> None:
        time.sleep(self.server.slow)
        self.close_connection = True

    def _cut(self, texts: list[str]) -> None:
        self.close_connection = True  # no byte of an answer

    def _torn(self, texts: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"object": "list", "data": [')
        self.close_connection = True

    def _few(self, texts: list[str]) -> None:
        self._send(200, {"object": "list", "data": [], "model": "m"})

    def _html(self, texts: list[str]) -> None:
        self._send(200, "<html>Please log in</html>")

    def _indices(self, texts: list[str]) -> None:
        entries = [{"index": 0, "embedding": [1.0] * self.server.dim} for _ in texts]
        if len(texts) == 1:
            return self._broken(texts)  # one text's vector is its own, whatever the index
        return self._send(200, {"object": "list", "data": entries, "model": "m"})

    def _refuse(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error"}}, headers)

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        kind = "text/html" if isinstance(body, str) else "application/json"
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def embeddings_server(**options: Any) -> Iterator[EmbeddingsServer]:
    """A running server; gone at the end of the block."""
    server = EmbeddingsServer(**options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
