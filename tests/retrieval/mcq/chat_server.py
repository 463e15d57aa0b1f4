"""A real chat endpoint on loopback; what it answers is the test's matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from loopback import LoopbackHandler, LoopbackServer, running


class ChatServer(LoopbackServer):
    """Change the attributes while it runs.

    Args:
        reply: body of a request → words of the answer, or further fields of a choice (its logprobs).
    """

    def __init__(self, reply: Callable[[dict[str, Any]], str | dict[str, Any]]) -> None:
        super().__init__(_Handler)
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []


class _Handler(LoopbackHandler):
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append(body)
            self.server.paths.append(self.path)
            scripted = self.server.scripted.pop(0) if self.server.scripted else None
        if scripted is not None:
            self.send(scripted[0], scripted[2], scripted[1])
        else:
            said = self.server.reply(body)
            words, more = (said, {}) if isinstance(said, str) else ("", said)
            message = {"role": "assistant", "content": words}
            choice = {"index": 0, "message": message, "finish_reason": "stop", **more}
            self.send(200, {"choices": [choice]})


def chat_server(
    reply: Callable[[dict[str, Any]], str | dict[str, Any]],
) -> AbstractContextManager[ChatServer]:
    """A running server; gone at the end of the block."""
    return running(ChatServer(reply))


def words_of(body: dict[str, Any]) -> str:
    """The last text of a request: the question."""
    return [part["text"] for part in body["messages"][0]["content"] if part["type"] == "text"][-1]
