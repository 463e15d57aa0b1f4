"""Collating: every distinct text once, little padding, negatives kept."""

from __future__ import annotations

import itertools

import pytest
import torch

from vidvec_msg.formats.pairs import Pair
from vidvec_msg.train.batches import Collate, PairBatch, Tokens, cut, cut_within, pad


def letters(text: str) -> Tokens:
    return Tokens([ord(letter) for letter in text])


def texts_of(batch: PairBatch) -> list[str]:
    return [
        "".join(map(chr, row[mask.bool()].tolist()))
        for passage in batch.passages
        for row, mask in zip(passage.input_ids, passage.attention_mask, strict=True)
    ]


PAIRS = [
    Pair("a long storyline", "msg", ("no", "nay"), id="first"),
    Pair("a long storyline", "other"),
    Pair("another", "msg", ("no",)),
]


def test_each_distinct_text_stands_once_and_every_role_finds_its_text() -> None:
    batch = Collate(letters)(list(enumerate(PAIRS)))
    texts = texts_of(batch)
    assert sorted(texts) == sorted({"a long storyline", "another", "msg", "other", "no", "nay"})
    assert texts == batch.texts
    assert [texts[row] for row in batch.anchors] == [pair.anchor for pair in PAIRS]
    assert [texts[row] for row in batch.positives] == [pair.positive for pair in PAIRS]
    # a read negative is never dropped on the way (VLM2Vec 67)
    negatives = [[texts[row] for row in rows if row >= 0] for rows in batch.negatives.tolist()]
    assert negatives == [list(pair.negatives) for pair in PAIRS]
    assert batch.names == ["first", "pair 2", "pair 3"]
    assert batch.tokens == sum(map(len, texts))


def test_distinct_texts_that_were_cut_are_counted() -> None:
    batch = Collate(lambda text: Tokens([ord(letter) for letter in text[:5]], cut=max(len(text) - 5, 0)))(
        list(enumerate(PAIRS))
    )
    assert batch.cut == 2  # the two storylines, each once
    assert Collate(letters)(list(enumerate(PAIRS))).cut == 0


def test_texts_are_sorted_by_length_and_cut_where_padding_is_least() -> None:
    batch = Collate(letters, passages=2)(list(enumerate(PAIRS)))
    lengths = [len(text) for text in texts_of(batch)]
    assert lengths == sorted(lengths)
    assert [tuple(passage.input_ids.shape) for passage in batch.passages] == [(5, 7), (1, 16)]
    assert len(Collate(letters, passages=1)(list(enumerate(PAIRS))).passages) == 1


def all_cuts(count: int, parts: int) -> list[list[tuple[int, int]]]:
    inner = itertools.combinations(range(1, count), parts - 1)
    return [list(itertools.pairwise((0, *places, count))) for places in inner]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_the_cut_is_the_best_of_all_cuts(parts: int) -> None:
    lengths = [2, 3, 3, 9, 10, 10, 40]

    def cost(bounds: list[tuple[int, int]]) -> int:
        return sum((last - first) * lengths[last - 1] for first, last in bounds)

    found = cut(lengths, parts)
    assert found in all_cuts(len(lengths), parts)
    assert cost(found) == min(map(cost, all_cuts(len(lengths), parts)))


@pytest.mark.parametrize("most", [40, 45, 80, 120, 1000])
def test_a_bound_of_tokens_makes_the_fewest_parts_that_keep_it(most: int) -> None:
    lengths = [2, 3, 3, 9, 10, 10, 40]

    def keeps(bounds: list[tuple[int, int]]) -> bool:
        return all((last - first) * lengths[last - 1] <= most for first, last in bounds)

    found = cut_within(lengths, most)
    fewest = next(parts for parts in range(1, 8) if any(map(keeps, all_cuts(len(lengths), parts))))
    assert keeps(found)
    assert found in all_cuts(len(lengths), fewest)


def test_a_text_above_the_bound_is_a_part_of_its_own() -> None:
    assert cut_within([2, 3, 40], 10) == [(0, 2), (2, 3)]
    batch = Collate(letters, passage_tokens=16)(list(enumerate(PAIRS)))
    assert [tuple(passage.input_ids.shape) for passage in batch.passages] == [(3, 3), (2, 7), (1, 16)]


def test_there_are_never_more_passages_than_texts() -> None:
    assert cut([3], 4) == [(0, 1)]


def test_rows_are_padded_on_the_right() -> None:
    passage = pad([[5, 6, 7], [8]], pad_id=9)
    assert passage.input_ids.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert passage.attention_mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_a_batch_moves_with_all_its_arrays() -> None:
    batch = Collate(letters)(list(enumerate(PAIRS))).to("meta")
    arrays = [batch.anchors, batch.positives, batch.negatives, batch.keys.anchor, batch.keys.negatives]
    arrays += [array for passage in batch.passages for array in (passage.input_ids, passage.attention_mask)]
    assert all(array.device == torch.device("meta") for array in arrays)
    assert len(batch) == 3
