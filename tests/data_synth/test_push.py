"""Pairs on a hub: a dataset repository with the card as its page, in one commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml
from embedders.hub_server import TOKEN, Hub, running_hub

from vidvec_msg.cli import main
from vidvec_msg.data_synth.filter_verb import filter_pairs
from vidvec_msg.errors import RefusedRequest

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_hub() as made:
        yield made


def test_pairs_become_a_dataset_with_their_card(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pairs"
    filter_pairs(str(DATA / "pairs.jsonl"), out, validation_share=0.1)
    assert main(["push", "--embedder", str(out), "--to", "ann/pairs", "--endpoint", hub.url]) == 0
    arrived = hub.repositories["ann/pairs"]["main"]
    del arrived[".gitattributes"]
    assert set(arrived) == {
        "README.md", "funnel.png", "pairs.jsonl", "pairs.parquet", "splits/train.jsonl",
        "splits/validation.jsonl", "summary.json",
    }  # fmt: skip
    assert arrived["README.md"] == (out / "card.md").read_bytes()
    assert arrived["pairs.jsonl"] == (out / "pairs.jsonl").read_bytes()
    header = yaml.safe_load(arrived["README.md"].split(b"---\n")[1])
    assert header["license"] == "unknown"
    assert hub.steps.count("commit") == 1
    assert all("/api/models/" not in asked for asked, _, _ in hub.asked)
    told = capsys.readouterr().out
    assert "left out: rejects.jsonl (not of the pairs themselves)" in told
    assert "note: the licence of the personas goes on with the pairs" in told


def test_a_run_that_did_not_end_is_not_published(hub: Hub, tmp_path: Path) -> None:
    from vidvec_msg.embedders.upload_list import upload_list

    (tmp_path / "pairs.jsonl").write_bytes(b"")
    with pytest.raises(RefusedRequest, match=r"summary.json is missing, so the run did not end"):
        upload_list(tmp_path)
