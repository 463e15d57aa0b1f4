"""Sentences of an anchor are left out by the seed, the epoch and the text alone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, Tokens
from vidvec_msg.train.datamodule import PairsData
from vidvec_msg.train.loader import PairLoader
from vidvec_msg.train.plan import BatchPlan
from vidvec_msg.train.sentences import split_sentences, with_fewer_sentences

STORY = 'A man waits. Rain falls! He says "No." Who comes? Nobody… The lamp at no. 5 goes out.'
SENTENCES = ["A man waits.", "Rain falls!", 'He says "No."', "Who comes?", "Nobody…"]


def test_a_text_is_split_behind_its_final_marks() -> None:
    assert split_sentences(STORY)[:5] == SENTENCES
    assert " ".join(split_sentences(STORY)) == STORY
    assert split_sentences("no mark at all") == ["no mark at all"]
    assert split_sentences("雨が降る。彼は待つ。") == ["雨が降る。", "彼は待つ。"]


def test_sentences_stay_in_their_order_and_by_their_share() -> None:
    pair = Pair(STORY, "Waiting is long.", negatives=("A. B. C.",), group="g", id="1")
    sentences = split_sentences(STORY)
    kept = 0
    for epoch in range(400):
        shorter = with_fewer_sentences(pair, 0.6, (0, epoch))
        assert (shorter.positive, shorter.negatives, shorter.group) == (
            pair.positive,
            pair.negatives,
            pair.group,
        )
        here = split_sentences(shorter.anchor)
        places = [sentences.index(sentence) for sentence in here]
        assert places == sorted(places)
        kept += len(here)
    assert kept / (400 * len(sentences)) == pytest.approx(0.6, abs=0.03)


def test_one_sentence_at_least_stays_and_1_keeps_the_pair() -> None:
    pair = Pair(STORY, "m")
    assert {len(split_sentences(with_fewer_sentences(pair, 1e-9, (0, n)).anchor)) for n in range(50)} == {1}
    assert with_fewer_sentences(pair, 1.0, (0, 0)) is pair


def test_pairs_that_share_an_anchor_share_what_is_left_of_it() -> None:
    one, other = (with_fewer_sentences(Pair(STORY, text), 0.5, (0, 3)).anchor for text in ("m", "n"))
    assert one == other


def anchors(source: PairLoader, epochs: int = 1) -> list[list[str]]:
    return [sorted(text for batch in source for text in batch.texts) for _ in range(epochs)]


def loader(share: float, workers: int = 0) -> PairLoader:
    pairs = [Pair(f"{STORY} Part {row}.", f"message {row}") for row in range(8)]
    collate = Collate(lambda text: Tokens([ord(letter) for letter in text]))
    return PairLoader(pairs, BatchPlan([None] * 8, 4), collate, workers=workers, keep_sentences=share)


def test_epochs_show_other_sentences_and_a_resumed_run_the_same() -> None:
    first, second = anchors(loader(0.5), epochs=2)
    assert first != second
    resumed = loader(0.5)
    resumed.load_state_dict({"given": 2})
    assert anchors(resumed) == [second]
    assert anchors(loader(1.0)) != [first]


def test_the_data_shorten_what_trains_and_not_what_validates(tmp_path: Path) -> None:
    rows = [{"anchor": f"{STORY} Part {row}.", "positive": f"message {row}"} for row in range(8)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    data = PairsData(str(path), batch_size=2, validation_fraction=0.5, keep_sentences=0.4)
    data.read()
    module = SimpleNamespace(tokenise=lambda text: Tokens([ord(letter) for letter in text]))
    data.trainer = SimpleNamespace(world_size=1, global_rank=0, lightning_module=module)  # type: ignore[assignment]
    whole = {row["anchor"] for row in rows}
    validating = data.val_dataloader()
    assert isinstance(validating, PairLoader)
    trained, validated = anchors(data.train_dataloader())[0], anchors(validating)[0]
    assert len(whole & set(trained)) < 2
    assert len(whole & set(validated)) == 4


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(RefusedRequest, match=r"keep_sentences is .*above 0 and at most 1"):
        PairsData("vidvec_msg.tinyworld.collections:training_pairs", keep_sentences=share)
