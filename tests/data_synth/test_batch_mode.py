"""The Batch API behind the same interface: uploaded, polled, collected, found again after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_synth.chat_server import UNUSABLE, ChatServer, chat_server
from data_synth.test_verb import PERSONAS, prices, rows, run, summary

from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.verb import synth
from vidvec_msg.errors import JobFailed, RefusedRequest, TooManyFailures


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with chat_server() as running:
        yield running


def batch(server: ChatServer, out: Path, **options: Any) -> dict[str, Any]:
    return run(server, out, mode="batch", poll=0.01, **options)


def test_a_batch_gives_the_pairs_that_single_requests_give_at_half_the_price(
    server: ChatServer, tmp_path: Path
) -> None:
    table = prices(tmp_path)
    one = run(server, tmp_path / "online", prices=table)
    other = batch(server, tmp_path / "batch", prices=table, batch_requests=8)
    assert len(server.batches) == 4
    assert (tmp_path / "online" / "pairs.jsonl").read_bytes() == (
        tmp_path / "batch" / "pairs.jsonl"
    ).read_bytes()
    assert other["spent"]["dollars"] == pytest.approx(one["spent"]["dollars"] / 2)
    assert other["structured"] == "json_schema"
    body = json.loads(server.files["file-0"].splitlines()[0])
    assert (body["method"], body["url"]) == ("POST", "/v1/chat/completions")
    assert body["body"]["model"] == "org/m"


def test_failed_rows_go_into_another_batch(server: ChatServer, tmp_path: Path) -> None:
    server.troubles, server.share = (*UNUSABLE, "broken", "fenced"), 0.4
    found = batch(server, tmp_path / "out", count=40, tries=15)
    assert found["pairs"] == 40
    assert len(server.batches) > 2
    assert max(server.usable.values()) == 1  # nothing that was usable was asked again
    assert rows(tmp_path / "out" / "replies" / "pairs_failed.jsonl")


def test_what_stays_without_an_answer_is_told(server: ChatServer, tmp_path: Path) -> None:
    server.always = "I'm sorry, but no."
    with pytest.raises(TooManyFailures, match="5 of 5"):
        batch(server, tmp_path / "out", count=5, tries=2)
    assert summary(tmp_path / "out")["funnel"][0]["reasons"] == {"refusal": 5}
    assert len(server.batches) == 2


@pytest.mark.parametrize("recorded", [True, False])
def test_a_killed_run_finds_its_batch_again(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """Killed while it waits, or between the submission and its record."""
    killed_in = "batch" if recorded else "submit"
    true = getattr(ChatEndpoint, killed_in)

    async def killed(self: ChatEndpoint, *given: Any, **more: Any) -> Any:
        await true(self, *given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(ChatEndpoint, killed_in, killed)
    with pytest.raises(KeyboardInterrupt):
        batch(server, tmp_path / "out", count=12)
    assert len(server.batches) == 1
    log = tmp_path / "out" / "replies" / "pairs_batches.jsonl"
    assert any("batch" in json.loads(line) for line in log.read_text().split("\n") if line) is recorded
    monkeypatch.setattr(ChatEndpoint, killed_in, true)
    assert batch(server, tmp_path / "out", count=12)["pairs"] == 12
    assert len(server.batches) == 1  # not paid for twice
    assert len(server.requests) == 12


@pytest.mark.parametrize("recorded", [True, False])
def test_a_killed_run_that_is_asked_for_more_does_not_pay_twice(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    """From another folder, too: the batch is found by the name that the run's folder keeps."""
    killed_in = "batch" if recorded else "submit"
    true = getattr(ChatEndpoint, killed_in)

    async def killed(self: ChatEndpoint, *given: Any, **more: Any) -> Any:
        await true(self, *given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(ChatEndpoint, killed_in, killed)
    with pytest.raises(KeyboardInterrupt):
        batch(server, tmp_path / "out", count=12)
    monkeypatch.setattr(ChatEndpoint, killed_in, true)
    monkeypatch.chdir(tmp_path)
    assert batch(server, Path("out"), count=30)["pairs"] == 30
    assert len(server.batches) == 2
    assert len(server.requests) == 30  # 12 and 18, none of them twice
    assert max(server.usable.values()) == 1


def test_answers_to_more_than_is_asked_for_now_are_not_lost(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = ChatEndpoint.batch

    async def killed(self: ChatEndpoint, *given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ChatEndpoint, "batch", killed)
    with pytest.raises(KeyboardInterrupt):
        batch(server, tmp_path / "out", count=20)
    monkeypatch.setattr(ChatEndpoint, "batch", true)
    assert batch(server, tmp_path / "out", count=5)["pairs"] == 5
    assert batch(server, tmp_path / "out", count=20)["pairs"] == 20
    assert (len(server.batches), len(server.requests)) == (1, 20)
    log = (tmp_path / "out" / "replies" / "pairs_batches.jsonl").read_text()
    states = [json.loads(line).get("state") for line in log.split("\n") if line]
    assert states == [None, "submitted", "partly", "collected"]


def test_a_batch_that_the_endpoint_has_forgotten_is_asked_again(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Services delete old batches and their files: the folder must not be stuck for ever."""
    true = ChatEndpoint.batch

    async def killed(self: ChatEndpoint, *given: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(ChatEndpoint, "batch", killed)
    with pytest.raises(KeyboardInterrupt):
        batch(server, tmp_path / "out", count=5)
    server.batches["batch-gone"] = server.batches.pop("batch-0")
    server.batches["batch-gone"]["metadata"] = {}
    server.batches["batch-gone"]["id"] = "batch-gone"
    monkeypatch.setattr(ChatEndpoint, "batch", true)
    assert batch(server, tmp_path / "out", count=5)["pairs"] == 5
    assert "batch batch-0 of an earlier run is no longer at 127.0.0.1" in caplog.text
    assert batch(server, tmp_path / "out", count=6)["pairs"] == 6  # and is not looked for again
    assert caplog.text.count("is no longer at") == 1


def test_the_budget_bounds_what_is_submitted(server: ChatServer, tmp_path: Path) -> None:
    found = batch(server, tmp_path / "out", count=30, prices=prices(tmp_path), max_tokens=200, budget=5.0)
    assert 0 < found["pairs"] < 30
    assert found["spent"]["dollars"] <= 5.0
    assert "the budget of $5 leaves no room" in found["stopped"]
    assert found["not_asked"] == 30 - found["pairs"]


def test_a_batch_that_the_endpoint_cannot_run(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_synth import chat_server as module

    def failing(server: ChatServer, batch: dict[str, Any]) -> None:
        batch["status"] = "failed"
        batch["errors"] = {"object": "list", "data": [{"code": "x", "message": "no schemas here", "line": 1}]}

    monkeypatch.setattr(module, "_run_batch", failing)
    with pytest.raises(
        JobFailed, match=r"could not run batch batch-0: no schemas here.*--structured json_object"
    ):
        batch(server, tmp_path / "out", count=4)


def test_an_endpoint_without_a_batch_api(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "data_synth.chat_server._Handler._elsewhere",
        lambda self, raw: self.send(404, {"detail": "Not Found"}),
    )
    with pytest.raises(RefusedRequest, match="Not Found"):
        synth(PERSONAS, "m", tmp_path / "out", endpoint=server.url, mode="batch", count=3, backoff=0.01)
    assert not (tmp_path / "out").exists()
