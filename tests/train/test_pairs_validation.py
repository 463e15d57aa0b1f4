"""Retrieval among validation pairs: who is relevant to whom, and when it is measured."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs
from vidvec_msg.formats.relevance import reverse
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.fit import main
from vidvec_msg.train.lora import LoraOptions
from vidvec_msg.train.losses.cells import directions
from vidvec_msg.train.losses.pairs import EncodedPairs, PairKeys
from vidvec_msg.train.metrics_file import MetricsFile
from vidvec_msg.train.module import TextContrastive
from vidvec_msg.train.pairs_validation import PairsValidation, sides_of

PAIRS = [
    Pair("storm", "hold on", group="sea"),
    Pair("waves", "be brave", group="sea"),
    Pair("desert", "be brave"),
    Pair("desert", "drink"),
    Pair("alone", "call a friend"),
]


def test_what_shares_a_text_or_a_group_is_relevant() -> None:
    sides = sides_of(PAIRS)
    queries = {item.id: item.text for item in sides.queries}
    corpus = {item.id: item.text for item in sides.corpus}
    assert list(queries.values()) == ["storm", "waves", "desert", "alone"]
    assert list(corpus.values()) == ["hold on", "be brave", "drink", "call a friend"]
    found = {queries[q]: sorted(str(corpus[d]) for d in relevant) for q, relevant in sides.qrels.items()}
    assert found == {
        "storm": ["be brave", "hold on"],
        "waves": ["be brave", "hold on"],
        "desert": ["be brave", "drink"],
        "alone": ["call a friend"],
    }


def test_relevance_is_what_the_loss_takes_for_positives() -> None:
    keys = PairKeys.of(PAIRS)
    vectors = torch.eye(len(PAIRS))
    own = EncodedPairs(vectors, vectors, torch.zeros(len(PAIRS), 0, len(PAIRS)), keys)
    cells = directions(own, own, 0, shared="positives", symmetric=True)
    sides = sides_of(PAIRS)
    query = {item.text: item.id for item in sides.queries}
    document = {item.text: item.id for item in sides.corpus}
    backwards = reverse(sides.qrels)
    for i, one in enumerate(PAIRS):
        for j, other in enumerate(PAIRS):
            forward = document[other.positive] in sides.qrels[query[one.anchor]]
            # the loss looks at pairs, and may know less of a text than all its pairs together do
            assert forward >= bool(cells[0].positive[i, j])
            assert (query[other.anchor] in backwards[document[one.positive]]) >= bool(cells[1].positive[i, j])
    related = sum(len(relevant) for relevant in sides.qrels.values())
    texts = {
        (one.anchor, other.positive)
        for i, one in enumerate(PAIRS)
        for j, other in enumerate(PAIRS)
        if cells[0].positive[i, j]
    }
    assert related == len(texts)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


def fit(tiny: Path, pairs_file: Path, folder: Path, steps: int, callback: PairsValidation) -> list[str]:
    """Steps at which it was measured."""
    torch.manual_seed(0)
    Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=MetricsFile(folder / "metrics.csv"),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        limit_val_batches=0,
        callbacks=[callback],
    ).fit(
        TextContrastive(str(tiny), lora=LoraOptions(r=4)),
        datamodule=PairsData(str(pairs_file), batch_size=4, validation_fraction=0.25),
    )
    return [row["step"] for row in rows(folder) if row.get("val/pairs/forward/map")]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"every_n_steps": 2}, ["0", "2", "3"]),
        ({"at_start": False}, ["3"]),
    ],
)
def test_it_is_measured_at_the_ends_and_in_between(
    tiny: Path, pairs_file: Path, tmp_path: Path, options: dict[str, Any], expected: list[str]
) -> None:
    assert fit(tiny, pairs_file, tmp_path, 3, PairsValidation(metrics=["map"], **options)) == expected


def test_validation_pairs_are_measured_without_being_asked(
    tiny: Path, pairs_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--trainer.accelerator=cpu", "--model.model", str(tiny), "--model.lora.r=4"]
    words += ["--data.pairs", str(pairs_file), "--data.batch_size=4", "--data.validation_fraction=0.25"]
    words += ["--trainer.default_root_dir", str(tmp_path / "run"), "--trainer.max_steps=1"]
    assert main(["fit", *words]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    names = [
        f"val/pairs/{way}/{metric}"
        for way in ("forward", "reverse")
        for metric in ("hit_rate@1", "map", "mrr")
    ]
    assert set(names) <= summary["metrics"].keys()
    assert set(names) == summary["before"].keys()
    assert main(["validate", *words, "--ckpt_path=last"]) == 0
    assert "val/pairs/reverse/map" in capsys.readouterr().out


def test_numbers_are_those_of_the_vectors(tiny: Path, pairs_file: Path) -> None:
    torch.manual_seed(0)
    module = TextContrastive(str(tiny), lora=LoraOptions(r=4))
    callback = PairsValidation(metrics=["hit_rate@1"], batch_size=5)
    callback._pairs = read_pairs(str(pairs_file))
    found = callback.measure(module)
    sides = callback.sides()
    from vidvec_msg.train.text_tower import TowerEmbedder

    embedder = TowerEmbedder(module.tower, module.tokenise, module.card("x"))
    anchors = embedder.encode(sides.queries, role="query")
    positives = embedder.encode(sides.corpus, role="document")
    hits = [
        sides.corpus[int(best)].id in sides.qrels[query.id]
        for query, best in zip(sides.queries, np.argmax(anchors @ positives.T, axis=1), strict=True)
    ]
    assert found["forward"]["hit_rate@1"] == pytest.approx(np.mean(hits))


def test_without_validation_pairs_it_is_refused(tiny: Path, pairs_file: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="PairsValidation has no validation pairs to measure"):
        Trainer(
            logger=False, callbacks=[PairsValidation()], accelerator="cpu", enable_checkpointing=False
        ).fit(
            TextContrastive(str(tiny), lora=LoraOptions(r=4)),
            datamodule=PairsData(str(pairs_file), batch_size=4),
        )
