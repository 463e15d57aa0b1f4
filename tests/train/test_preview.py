"""The preview of a batch says what the training step will see, and loads no weights."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from pytorch_lightning import Trainer

from vidvec_msg.cli import main as cli
from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.module import TextContrastive


@pytest.fixture(scope="module")
def config(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("preview")
    rows = [
        {
            "id": "one",
            "anchor": "A small red ball rolls. " * 9,
            "positive": "Keep trying.",
            "negatives": ["No."],
        },
        {"id": "two", "anchor": "A turtle passes a hare.", "positive": "Keep trying.", "negatives": []},
        {"id": "three", "anchor": "Two friends share bread.", "positive": "Sharing is caring."},
        {"id": "four", "anchor": "Lights come on.", "positive": "Sharing is caring.", "negatives": ["No."]},
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = {
        "model": {"model": str(tiny), "max_tokens": 50},
        "data": {"pairs": str(folder / "pairs.jsonl"), "batch_size": 4},
    }
    (folder / "fit.yaml").write_text(yaml.safe_dump(content))
    return folder / "fit.yaml"


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli(["preview", *words]) == 0
    return " ".join(capsys.readouterr().out.split())  # lines break where the page ends


def test_it_shows_the_exact_text_that_the_model_reads(
    config: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown(capsys, "--config", str(config), "--show", "4")
    chat = Chat.open(str(tiny))
    turn = chat.text_turn(PROMPTS["vidvec"], "A turtle passes a hare.", max_tokens=50)
    assert " ".join(repr(turn.prompt).split()) in told
    assert f"anchor, {turn.tokens} tokens" in told
    assert "anchor, 50 tokens, " in told  # the long one
    assert "tokens of the text cut" in told
    assert "negative 1" in told
    assert "Summarize above video in one word" in told


def test_it_counts_lengths_cuts_padding_and_cells(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "--config", str(config), "--show", "0")
    assert "4 pairs train, 0 validate: 1 steps an epoch of 4 pairs, 4 pairs seen" in told
    cells = [cell.strip() for cell in told.partition("│ anchor │")[2].split("│")]
    assert (cells[0], cells[4]) == ("4", "1")  # texts, and how many are cut
    needed = re.search(r"the longest text of all training pairs needs --model.max_tokens (\d+)", told)
    assert needed is not None
    for tokens, cut in ((int(needed[1]), "0"), (int(needed[1]) - 1, "1")):
        words = ("--config", str(config), "--show", "0", "--model.max_tokens", str(tokens))
        assert shown(capsys, *words).partition("│ anchor │")[2].split("│")[4].strip() == cut
    assert "7 distinct texts in 2 passages" in told  # two messages and one negative are shared
    # of an anchor: two positives of the other message, and the text "No." twice
    assert "4.0 negatives per anchor; 4 cells share a text or a group (further positives), 4 of 4" in told
    masked = shown(capsys, "--config", str(config), "--show", "0", "--model.loss.shared", "masked")
    assert "4 cells share a text or a group (masked)" in masked
    wrapped = ("Matryoshka", "--model.loss.dims", "[16]", "--model.loss.loss", "InfoNCE")
    options = ("--model.loss", *wrapped, "--model.loss.loss.shared", "masked")
    assert "(masked)" in shown(capsys, "--config", str(config), "--show", "0", *options)


def test_ranks_share_the_batch(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = shown(capsys, "--config", str(config), "--trainer.devices", "2", "--data.batch_size", "2")
    assert "1 steps an epoch of 4 pairs over 2 ranks" in told
    assert "among this rank's pairs; those of the other ranks come on top" in told


def test_no_weights_are_loaded(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vidvec_msg.train.module.load_language_model", lambda *_, **__: pytest.fail("loaded"))
    shown(capsys, "--config", str(config))


def test_it_is_the_first_batch_of_a_fit(config: Path, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pair that is shown first is the first that a run would train on."""
    content = yaml.safe_load(config.read_text())
    torch.manual_seed(0)
    made = TextContrastive(str(tiny), lora=LoraOptions(r=2))
    seen: list[str] = []
    made.on_train_batch_start = lambda batch, batch_idx: seen.extend(batch.names)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_steps=1, enable_checkpointing=False, **quiet)
    trainer.fit(made, datamodule=PairsData(**content["data"]))
    assert f"pair {seen[0]} " in shown(capsys, "--config", str(config), "--show", "1")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--data.batchsize=3"], "unknown option 'data.batchsize' (did you mean 'data.batch_size'?)"),
        (["--show=-1", "--model.prompt=vidvek"], "preview refused: 2 problems"),
        (["--data.pairs=nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_refusals(config: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert cli(["preview", "--config", str(config), *words]) == 2
    assert told in capsys.readouterr().err
