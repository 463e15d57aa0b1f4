"""What the tests' real HTTP servers on loopback have in common."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

Server = TypeVar("Server", bound=ThreadingHTTPServer)


class LoopbackServer(ThreadingHTTPServer):
    """Change the attributes while it runs."""

    daemon_threads = True
    request_queue_size = 256
    root = "/v1"

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.lock = threading.Lock()
        self.headers: list[dict[str, str]] = []  # of each request; names in small letters
        self.scripted: list[Any] = []  # answers that go before all else: status, headers, body

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is killed leaves its connections; that is no news."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.root}"


class LoopbackHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr, which tests read."""

    def small_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        """An answer: a page, where the body is a string, or JSON."""
        kind = "text/html" if isinstance(body, str) else "application/json"
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        fields = {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def tear(self, beginning: bytes) -> None:
        """An answer that ends in its middle."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(beginning)
        self.close_connection = True


class TroubledServer(LoopbackServer):
    """One whose requests meet trouble, and are counted.

    Args:
        handler: its service.
        troubles: names of what may happen to a request instead of a plain answer.
        share: of the requests that meet trouble.
        seed: of the trouble.
    """

    def __init__(
        self,
        handler: type[TroubledHandler],
        *,
        troubles: Sequence[str],
        share: float,
        seed: int,
        port: int = 0,
    ) -> None:
        super().__init__(handler, port)
        self.troubles, self.share = troubles, share
        self.dice = random.Random(seed)
        self.requests: list[dict[str, Any]] = []  # bodies, in order of arrival
        self.met: Counter[str] = Counter()  # troubles
        self.at_once = self.most_at_once = 0
        self.retry_after = {"Retry-After": "0.05"}
        self.delay = 0.0  # seconds before an answer
        self.slow = 1.5  # seconds of the trouble called slow; longer than the time-out that is tested


class TroubledHandler(LoopbackHandler):
    """Has a method ``_answer(body)``, and ``_NAME(body)`` for every further trouble."""

    server: Any
    service: str
    half: bytes  # the beginning of an answer

    def do_POST(self) -> None:
        server, length = self.server, int(self.headers["Content-Length"])
        raw = self.rfile.read(length)
        if len(raw) < length:
            return None  # the client died over it
        if self.path != self.service:
            return self._elsewhere(raw)
        body = json.loads(raw)
        with server.lock:
            server.requests.append(body)
            server.headers.append(self.small_headers())
            server.at_once += 1
            server.most_at_once = max(server.at_once, server.most_at_once)
            scripted = server.scripted.pop(0) if server.scripted else None
            hit = bool(server.troubles) and server.dice.random() < server.share
            trouble = server.dice.choice(server.troubles) if hit else None
        try:
            if server.delay:
                time.sleep(server.delay)
            if scripted is not None:
                self.send(scripted[0], scripted[2], scripted[1])
            elif trouble is not None:
                server.met[trouble] += 1
                getattr(self, f"_{trouble}")(body)
            else:
                self._answer(body)
        finally:
            with server.lock:
                server.at_once -= 1
        return None

    def _elsewhere(self, raw: bytes) -> None:
        self.send(404, {"detail": "Not Found"})

    def _answer(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def _busy(self, body: dict[str, Any]) -> None:
        self.send(429, {"error": {"message": "Rate limit reached"}}, self.server.retry_after)

    def _broken(self, body: dict[str, Any]) -> None:
        self.send(500, "Internal Server Error")

    def _slow(self, body: dict[str, Any]) -> None:
        time.sleep(self.server.slow)
        self.close_connection = True

    def _cut(self, body: dict[str, Any]) -> None:
        self.close_connection = True  # no byte of an answer

    def _torn(self, body: dict[str, Any]) -> None:
        self.tear(self.half)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """A server that answers; gone at the end of the block."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
