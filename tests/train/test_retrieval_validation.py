"""Retrieval during training: the right numbers, both directions, texts and clips."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vidvec_msg.embedders.saved import load_saved, save_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection, write_collection
from vidvec_msg.retrieval.evaluate import evaluate_vectors
from vidvec_msg.tinyworld.collections import write_mp4
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.measurement import embedder_of, refuse_shared_prefixes
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.pairs_validation import PairsValidation
from vidvec_msg.train.retrieval_validation import RetrievalValidation

WORDS = ("dog", "cat", "fox", "owl")


@pytest.fixture(scope="module")
def module(tiny: Path) -> TextContrastive:
    torch.manual_seed(0)
    made = TextContrastive(str(tiny), lora=LoraOptions(r=4))
    with torch.no_grad():  # as if it had trained: a fresh adapter changes nothing and may not be saved
        for name, parameter in made.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.05)
    return made


def collection(folder: Path, *, clips: bool) -> Path:
    corpus: list[dict[str, Any]] = [
        {"_id": f"d{i}", "text": f"A small {word} rolls."} for i, word in enumerate(WORDS)
    ]
    if clips:
        folder.mkdir()
        for i, row in enumerate(corpus):
            frames = np.full((4, 32, 32, 3), 60 * i, dtype=np.uint8)
            frames[:, :8, : 8 * (i + 1)] = 255
            write_mp4(folder / f"{i}.mp4", frames, fps=2)
            row["video"] = f"{i}.mp4"
            del row["text"]
    queries = [{"_id": f"q{i}", "text": f"Keep trying like the {word}."} for i, word in enumerate(WORDS)]
    qrels = {
        "test": {f"q{i}": {f"d{i}": 1} for i in range(4)},
        "half": {f"q{i}": {f"d{i}": 1} for i in range(2)},
    }
    write_collection(folder, corpus=corpus, queries=queries, qrels=qrels)
    return folder


@pytest.mark.parametrize("clips", [False, True], ids=["texts", "clips"])
def test_it_measures_what_the_saved_embedder_gives(
    module: TextContrastive, tmp_path: Path, clips: bool
) -> None:
    folder = collection(tmp_path / "c", clips=clips)
    metrics = ["hit_rate@1", "map"]
    found = RetrievalValidation(str(folder), metrics=metrics, batch_size=3).measure(module)

    save_embedder(tmp_path / "e", model=module.tower, card=module.card("e"))
    embedder = load_saved(tmp_path / "e")
    loaded = Collection.load(folder, split="test")
    expected = evaluate_vectors(
        embedder.encode(loaded.queries, role="query"),
        [item.id for item in loaded.queries],
        embedder.encode(loaded.corpus, role="document"),
        [item.id for item in loaded.corpus],
        loaded.qrels["test"],
        metrics=metrics,
        chance=False,
        intervals=False,
    )
    assert found == {
        "forward": {name: expected.forward.metrics[name].value for name in metrics},
        "reverse": {name: expected.reverse.metrics[name].value for name in metrics},
    }


def test_the_full_model_is_released_and_its_folder_removed(module: TextContrastive, tmp_path: Path) -> None:
    items = Collection.load(collection(tmp_path / "c", clips=True), split="test").corpus
    with embedder_of(module, items) as embedder:
        folder = Path(str(embedder.card.adapter))
        assert folder.is_dir()
    assert not folder.exists()


def test_a_model_with_its_own_code_is_opened_with_it(
    module: TextContrastive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = Collection.load(collection(tmp_path / "c", clips=True), split="test").corpus
    monkeypatch.setattr(module, "trust_remote_code", True)
    given: dict[str, Any] = {}
    monkeypatch.setattr(
        "vidvec_msg.train.measurement.load_saved", lambda folder, **options: given.update(options)
    )
    with embedder_of(module, items):
        assert given == {"trust_remote_code": True}


def test_the_pool_may_be_the_splits_own_documents(module: TextContrastive, tmp_path: Path) -> None:
    folder = str(collection(tmp_path / "c", clips=False))
    metrics = ["hit_rate@2"]
    pools = {
        pool: RetrievalValidation(folder, "half", metrics, pool=pool).measure(module)["forward"]["hit_rate@2"]  # type: ignore[arg-type]
        for pool in ("corpus", "split")
    }
    assert pools["split"] == 1.0  # two documents are left, and two places
    assert pools["corpus"] <= 1.0


def test_an_item_that_cannot_be_embedded_is_left_out_and_told(
    module: TextContrastive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = collection(tmp_path / "c", clips=False)
    corpus = (folder / "corpus.jsonl").read_text().replace("A small dog rolls.", " ")
    (folder / "corpus.jsonl").write_text(corpus)
    found = RetrievalValidation(str(folder), metrics=["hit_rate@10"]).measure(module)
    assert found["forward"]["hit_rate@10"] == 0.75  # its message finds nothing, and counts
    assert "val: 1 items cannot be embedded and are left out, for example d0" in caplog.text


def test_problems_come_in_one_message_when_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest) as refusal:
        RetrievalValidation(str(tmp_path / "none"), every_n_steps=0, batch_size=0)
    for told in ("every_n_steps is 0", "batch_size is 0", "none"):
        assert told in str(refusal.value)
    with pytest.raises(RefusedRequest, match="map_at_ten"):
        RetrievalValidation(str(tmp_path), metrics=["map_at_ten"])


def test_clips_are_measured_before_training_too(tiny: Path, tmp_path: Path) -> None:
    """A fresh adapter is saved for the full model although nothing of it is trained yet."""
    torch.manual_seed(0)
    fresh = TextContrastive(str(tiny), lora=LoraOptions(r=4))
    items = Collection.load(collection(tmp_path / "c", clips=True), split="test").corpus
    with embedder_of(fresh, items) as embedder:
        assert embedder.encode(items, role="document").shape == (4, 64)


def test_two_measurements_under_one_prefix_are_refused(tmp_path: Path) -> None:
    folder = str(collection(tmp_path / "c", clips=False))
    one, other = RetrievalValidation(folder), RetrievalValidation(folder, prefix="val/half", split="half")
    refuse_shared_prefixes([one, other, PairsValidation(), object()])
    with pytest.raises(RefusedRequest, match="2 measurements log under the prefix 'val', and one would hide"):
        refuse_shared_prefixes([one, other, RetrievalValidation(folder)])


def test_a_resumed_fit_does_not_measure_again_where_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = RetrievalValidation(str(collection(tmp_path / "c", clips=False)), every_n_steps=2)
    measured: list[int] = []
    monkeypatch.setattr(callback, "_measure", lambda trainer, _: measured.append(trainer.global_step))
    trainer: Any = SimpleNamespace(global_step=4, estimated_stepping_batches=7)
    module: Any = None
    callback.on_train_start(trainer, module)
    for micro in range(1, 7):  # two batches a step
        trainer.global_step = 4 + micro // 2
        callback.on_train_batch_end(trainer, module, None, None, micro)
    assert measured == [6, 7]


def test_names_are_those_that_are_logged(module: TextContrastive, tmp_path: Path) -> None:
    callback = RetrievalValidation(str(collection(tmp_path / "c", clips=False)), prefix="val/few")
    assert callback.names[0] == "val/few/forward/hit_rate@1"
    assert callback.names == list(callback._values(module))
