"""A real chat endpoint on loopback; what it answers is the test's matter."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer(ThreadingHTTPServer):
    """Change the attributes while it runs.

    Args:
        reply: body of a request → words of the answer, or further fields of a choice (its logprobs).
    """

    daemon_threads = True

    def __init__(self, reply: Callable[[dict[str, Any]], str | dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.scripted: list[tuple[int, dict[str, str], Any]] = []  # status, headers, body: before all else

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append(body)
            self.server.paths.append(self.path)
            scripted = self.server.scripted.pop(0) if self.server.scripted else None
        if scripted is not None:
            self._send(*scripted)
        else:
            said = self.server.reply(body)
            words, more = (said, {}) if isinstance(said, str) else ("", said)
            message = {"role": "assistant", "content": words}
            choice = {"index": 0, "message": message, "finish_reason": "stop", **more}
            self._send(200, {}, {"choices": [choice]})

    def _send(self, status: int, headers: dict[str, str], body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def chat_server(reply: Callable[[dict[str, Any]], str | dict[str, Any]]) -> Iterator[ChatServer]:
    """A running server; gone at the end of the block."""
    server = ChatServer(reply)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def words_of(body: dict[str, Any]) -> str:
    """The last text of a request: the question."""
    return [part["text"] for part in body["messages"][0]["content"] if part["type"] == "text"][-1]
