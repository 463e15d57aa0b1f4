"""Validation queries are told from those of the test by what they hold."""

from pathlib import Path

import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation.held_apart import content, refuse_shared_queries
from vidvec_msg.retrieval.evaluation.sides import Sides


def sides(queries: dict[str, str], corpus: dict[str, str], **positives: str) -> Sides:
    return Sides(
        tuple(Item(name, text=text) for name, text in corpus.items()),
        tuple(Item(name, text=text) for name, text in queries.items()),
        {query: {document: 1} for query, document in positives.items()},
    )


TEST = sides(
    {"a": "Patience pays.", "b": "Rest well."}, {"x": "a snail", "y": "a bed", "z": "a car"}, a="x", b="y"
)


def refused(validation: Sides, *, same_folder: bool) -> str:
    with pytest.raises(RefusedRequest) as caught:
        refuse_shared_queries(TEST, validation, what="weights", same_folder=same_folder)
    return str(caught.value)


def test_other_queries_over_the_same_pool_are_fine() -> None:
    other = sides({"c": "Drive slowly."}, {"x": "a snail", "y": "a bed", "z": "a car"}, c="z")
    for same_folder in (True, False):
        refuse_shared_queries(TEST, other, what="weights", same_folder=same_folder)


def test_equal_ids_count_within_a_folder_alone() -> None:
    other = sides({"b": "Drive slowly."}, {"y": "a truck"}, b="y")
    refuse_shared_queries(TEST, other, what="weights", same_folder=False)
    told = refused(other, same_folder=True)
    assert "weights must be chosen on queries that the test does not have: 2 problems" in told
    assert "1 queries are in both: 'b'" in told
    assert "1 documents with a positive are in both: 'y'" in told


def test_a_copy_in_another_folder_under_other_ids_is_found() -> None:
    told = refused(sides({"v1": " rest   WELL. "}, {"w": "A snail"}, v1="w"), same_folder=False)
    assert "1 queries hold what queries of the test hold: 'v1' is 'b' of the test" in told
    assert (
        "documents with a positive hold what documents with a positive of the test hold: 'w' is 'x'" in told
    )


def test_an_item_without_a_positive_asks_nothing() -> None:
    silent = Sides(TEST.corpus, TEST.queries, {"a": {"z": 0}, "b": {"z": 0}})
    refuse_shared_queries(TEST, silent, what="weights", same_folder=True)


def test_media_are_told_by_their_bytes_and_segment(tmp_path: Path) -> None:
    one, copy, other = (tmp_path / name for name in ("one.mp4", "renamed.mp4", "other.mp4"))
    one.write_bytes(b"clip" * 100_000)
    copy.write_bytes(b"clip" * 100_000)
    other.write_bytes(b"clip" * 99_999 + b"clap")
    assert content(Item("a", video=one)) == content(Item("b", video=copy, transcript="said", text="a title"))
    assert content(Item("a", video=one)) != content(Item("a", video=other))
    assert content(Item("a", video=one, start=0, end=2)) != content(Item("a", video=one, start=2, end=4))
    assert content(Item("a", video=one, end=2)) == content(Item("a", video=one, start=0.0, end=2.0))
    assert content(Item("a", video=tmp_path / "gone.mp4")) != content(Item("a", video=tmp_path / "lost.mp4"))
