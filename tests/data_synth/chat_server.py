"""A real chat endpoint on loopback: pairs from a request's hash, trouble by seed, requests counted."""
# ruff: noqa: SIM905  # a list of words is read more easily as words

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from loopback import TroubledHandler, TroubledServer, running

WIRE = ("busy", "broken", "slow", "cut", "torn")  # no answer
UNUSABLE = ("refusal", "empty", "essay", "half")  # an answer that is no pair
ODD = ("fenced", "chatty", "commas", "backticks", "thinking")  # a pair, oddly wrapped
TROUBLES = (*WIRE, *UNUSABLE, *ODD)

_SEEN = (
    "red blue green tall small open empty wet bright round table chair door window lamp bottle cup "
    "plate basket rope ladder bench wheel boat train bridge gate fence tree dog horse pigeon boy "
    "girl woman man baby sister uncle hat coat glove scarf shoe drum piano kettle bucket broom "
    "letter photograph candle mirror clock"
).split()
_MEANT = (
    "patience envy mercy debt habit rumour luck pride exile grief thrift vanity silence praise doubt "
    "duty comfort ambition gossip routine kinship regret wonder custom talent fame shelter hunger "
    "faith trade"
).split()
_TURNS = (
    "outlives forgives invites hides repays feeds teaches borrows outgrows excuses wakes betrays"
).split()
_WHOM = (
    "neighbours strangers cousins rivals beginners winners latecomers landlords tenants heirs guests"
).split()


def pair_for(text: str) -> dict[str, str]:
    """What the endpoint's model writes for a request: the same for the same words, all filters pass it."""
    dice = random.Random(hashlib.sha256(text.encode()).digest())
    one, other, third = dice.sample(_MEANT, 3)
    turn, whom = dice.choice(_TURNS), dice.choice(_WHOM)
    message = f"Sooner than expected {one} {turn} {other} and {third} among {whom}."
    sentences = []
    for _ in range(8):
        a, b, c, d = dice.sample(_SEEN, 4)
        sentences.append(f"The {a} {b} stands in front of the {c} {d} and it turns.")
    return {"message": message, "storyline": " ".join(sentences)}


def wrapped(pair: dict[str, str], how: str) -> str:
    """A pair as models write it when they are asked for JSON."""
    plain = json.dumps(pair, ensure_ascii=False)
    if how == "fenced":
        return f"```json\n{json.dumps(pair, indent=2)}\n```"
    if how == "chatty":
        return f"Sure! Here is what {{you}} asked for:\n\n{plain}\n\nLet me know if you want another."
    if how == "commas":
        return plain[:-1] + ",\n}"
    if how == "backticks":
        return f"````\n{json.dumps({**pair, 'note': 'as in ```json {```'})}\n````"
    if how == "thinking":
        return f'<think>{{ hmm, "message": ... }}</think>\n{plain}'
    return plain


class ChatServer(TroubledServer):
    """Change the attributes while it runs.

    Args:
        troubles: what may happen to a request instead of a plain answer.
        share: of the requests that meet trouble.
        seed: of the trouble.
        forms: response formats that are taken; 400 for others.
        context: characters of a request that are accepted; 400 beyond.
    """

    def __init__(
        self,
        *,
        troubles: Sequence[str] = (),
        share: float = 0.4,
        seed: int = 0,
        forms: Sequence[str] = ("json_schema", "json_object", "none"),
        context: int = 1_000_000,
        port: int = 0,
    ) -> None:
        super().__init__(_Handler, troubles=troubles, share=share, seed=seed, port=port)
        self.forms, self.context = forms, context
        self.usable: Counter[str] = Counter()  # user's words → usable answers that were sent whole
        self.always: str | None = None  # the text of every answer
        self.answers: Any = pair_for  # words of the user → what is written
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.looks = 1  # polls of a batch before it is done

    @property
    def asked(self) -> list[str]:
        """The user's words of each request."""
        return [body["messages"][1]["content"] for body in self.requests]


class _Handler(TroubledHandler):
    service = "/v1/chat/completions"
    half = b'{"choices": [{"message": {"content": "{\\"mess'

    def _answer(self, body: dict[str, Any], how: str = "") -> None:
        status, content = completion(self.server, body, how)
        if status == 200 and how not in UNUSABLE and self.server.always is None:
            with self.server.lock:
                self.server.usable[body["messages"][1]["content"]] += 1
        self.send(status, content)

    def __getattr__(self, name: str) -> Any:
        """The troubles that are an answer."""
        if (how := name.removeprefix("_")) in (*UNUSABLE, *ODD):
            return lambda body: self._answer(body, how)
        raise AttributeError(name)

    # --- the Batch API ------------------------------------------------------------------------------------

    def _elsewhere(self, raw: bytes) -> None:
        server = self.server
        if self.path == "/v1/files":
            boundary = re.search(r"boundary=(\S+)", self.headers["Content-Type"])[1].encode()
            part = next(one for one in raw.split(b"--" + boundary) if b'name="file"' in one)
            name = f"file-{len(server.files)}"
            server.files[name] = part.split(b"\r\n\r\n", 1)[1].rsplit(b"\r\n", 1)[0]
            return self.send(200, _file(name, len(server.files[name])))
        if self.path == "/v1/batches":
            wanted = json.loads(raw)
            with server.lock:
                name = f"batch-{len(server.batches)}"
                server.batches[name] = {**_batch(name, wanted), "_looks": 0}
            return self.send(200, _shown(server.batches[name]))
        return self.send(404, {"detail": "Not Found"})

    def do_GET(self) -> None:
        server = self.server
        path = self.path.partition("?")[0]
        if path == "/v1/batches":
            rows = [_shown(batch) for batch in server.batches.values()]
            return self.send(200, {"object": "list", "data": rows, "has_more": False})
        if found := re.fullmatch(r"/v1/batches/(\S+)", path):
            if found[1] not in server.batches:
                return self.send(404, {"error": {"message": "No such batch"}})
            batch = server.batches[found[1]]
            batch["_looks"] += 1
            if batch["_looks"] > server.looks and batch["status"] == "in_progress":
                _run_batch(server, batch)
            return self.send(200, _shown(batch))
        if found := re.fullmatch(r"/v1/files/(\S+)/content", path):
            return self.send(200, server.files[found[1]].decode())
        return self.send(404, {"detail": "Not Found"})


def completion(server: ChatServer, body: dict[str, Any], how: str = "") -> tuple[int, Any]:
    """Status and body of an answer."""
    user = body["messages"][1]["content"]
    form = body.get("response_format", {}).get("type", "none")
    if form not in server.forms:
        return 400, {"error": {"message": f"response_format {form} is not supported"}}
    if sum(len(one["content"]) for one in body["messages"]) > server.context:
        return 400, {"error": {"message": f"maximum context length is {server.context} characters"}}
    text = server.always if server.always is not None else wrapped(server.answers(user), how)
    if how in UNUSABLE:
        text = {
            "refusal": "I'm sorry, but I can't help with that.",
            "empty": "",
            "essay": "A storyline could show a market in the morning, where people meet.",
            "half": '{"message": "Half a pair is none.", "storyl',
        }[how]
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": len(user.split()), "completion_tokens": len(text.split())}
    usage["total_tokens"] = sum(usage.values())
    finish = "length" if how == "half" else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return 200, {
        "id": "c", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice],
        "usage": usage,
    }  # fmt: skip


def _run_batch(server: ChatServer, batch: dict[str, Any]) -> None:
    good, bad = [], []
    for line in server.files[batch["input_file_id"]].decode().splitlines():
        row = json.loads(line)
        server.requests.append(row["body"])
        hit = bool(server.troubles) and server.dice.random() < server.share
        how = server.dice.choice(server.troubles) if hit else ""
        status, body = (500, {"error": "oh no"}) if how in WIRE else completion(server, row["body"], how)
        if status == 200 and how not in UNUSABLE:
            server.usable[row["body"]["messages"][1]["content"]] += 1
        answer = {"custom_id": row["custom_id"], "response": {"status_code": status, "body": body}}
        (good if status == 200 else bad).append(answer)
    server.dice.shuffle(good)  # their order means nothing
    for kind, rows in (("output_file_id", good), ("error_file_id", bad)):
        if rows:
            name = f"file-{len(server.files)}"
            server.files[name] = "".join(json.dumps(row) + "\n" for row in rows).encode()
            batch[kind] = name
    batch["status"] = "completed"


def _file(name: str, size: int) -> dict[str, Any]:
    return {
        "id": name, "object": "file", "bytes": size, "created_at": 0, "filename": "f", "purpose": "batch",
        "status": "processed",
    }  # fmt: skip


def _batch(name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name, "object": "batch", "endpoint": wanted["endpoint"],
        "input_file_id": wanted["input_file_id"], "completion_window": "24h", "status": "in_progress",
        "created_at": 0, "metadata": wanted.get("metadata"),
        "output_file_id": None, "error_file_id": None,
    }  # fmt: skip


def _shown(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if not name.startswith("_")}


def chat_server(**options: Any) -> AbstractContextManager[ChatServer]:
    """A running server; gone at the end of the block."""
    return running(ChatServer(**options))


if __name__ == "__main__":  # for looking at the verb by hand: python tests/data_synth/chat_server.py [SHARE]
    chosen = {"troubles": TROUBLES, "share": float(sys.argv[1])} if len(sys.argv) > 1 else {}
    with chat_server(**chosen) as server:
        print(server.url, flush=True)
        threading.Event().wait()
