"""Who chooses and who tells: never the same query, never the same relevant item."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probed import HALVING, write_texts

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.probing.halves import halved, read_halves


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 11)), min_size=2, max_size=24),
    st.sampled_from([0.2, 0.5, 0.8]),
    st.integers(0, 3),
    st.booleans(),
)
def test_halves_share_neither_queries_nor_relevant_items(
    pairs: list[tuple[int, int]], share: float, seed: int, group: bool
) -> None:
    qrels: dict[str, dict[str, int]] = {}
    for query, document in pairs:
        qrels.setdefault(f"q{query}", {})[f"d{document}"] = 1
    # two documents of one text are one item, whatever their ids
    corpus = tuple(Item(f"d{n}", text=f"text {n // 2}") for n in range(12))
    queries = tuple(Item(f"q{n}", text=f"query {n}", groups={"topic": str(n % 4)}) for n in range(8))
    loaded = Collection(Path("/nowhere"), corpus, queries, {"test": qrels})
    try:
        first, second = halved(
            loaded, "test", share=share, keep_together="topic" if group else None, seed=seed
        )
    except RefusedRequest:  # said why in a test of its own
        return
    assert first
    assert second
    assert sorted([*first, *second]) == sorted(qrels)
    texts = {item.id: item.text for item in corpus}
    shown = [{texts[d] for judged in half.values() for d in judged} for half in (first, second)]
    assert not shown[0] & shown[1]
    if group:
        topics = [
            {query.groups["topic"] for query in queries if query.id in half} for half in (first, second)
        ]
        assert not topics[0] & topics[1]
    again = halved(loaded, "test", share=share, keep_together="topic" if group else None, seed=seed)
    assert again == (first, second)


def test_overlapping_segments_and_mirrored_texts_stay_together(tmp_path: Path) -> None:
    clip = tmp_path / "talk.mp4"
    clip.write_bytes(b"pixels" * 1000)
    segments = {"d0": (0, 10), "d1": (8, 18), "d2": (18, 28), "d3": (40, 50)}
    corpus = [Item(name, video=clip, start=a, end=b) for name, (a, b) in segments.items()]
    corpus.append(Item("d4", text="Query 3"))  # what another query says
    queries = tuple(Item(f"q{n}", text=f"query {n}") for n in range(5))
    loaded = Collection(tmp_path, tuple(corpus), queries, {"test": {f"q{n}": {f"d{n}": 1} for n in range(5)}})
    for seed in range(20):
        for half in halved(loaded, "test", share=0.5, keep_together=None, seed=seed):
            assert ("q0" in half) == ("q1" in half)
            assert ("q3" in half) == ("q4" in half)


def test_a_split_alone_is_halved_and_says_so(tmp_path: Path) -> None:
    halves = read_halves(write_texts(tmp_path / "C"), **HALVING)
    assert halves.how == "split test halved by queries (seed 0, 50% choose)"
    assert (len(halves.validation.queries), len(halves.test.queries)) == (5, 5)
    assert len(halves.validation.corpus) == len(halves.test.corpus) == len(halves.corpus) == 30
    assert len(halves.queries) == 10
    other = read_halves(tmp_path / "C", **{**HALVING, "seed": 1})
    assert other.validation.qrels.keys() != halves.validation.qrels.keys()
    few = read_halves(tmp_path / "C", **{**HALVING, "share": 0.2, "pool": "split"})
    assert (len(few.validation.queries), len(few.validation.corpus)) == (2, 6)


def test_named_splits_are_taken_as_they_are(tmp_path: Path) -> None:
    write_texts(tmp_path / "C", splits=True)
    halves = read_halves(tmp_path / "C", **{**HALVING, "validation": "validation"})
    assert set(halves.validation.qrels) == {"q1", "q3", "q5", "q7", "q9"}
    assert set(halves.test.qrels) == {"q0", "q2", "q4", "q6", "q8"}


def test_an_overlap_is_refused(tmp_path: Path) -> None:
    root = write_texts(tmp_path / "C", splits=True)
    with (root / "qrels" / "validation.tsv").open("a") as stream:
        stream.write("q0\td0-0\t1\n")
    with pytest.raises(
        RefusedRequest, match=r"the layer must be chosen on queries that the test does not have"
    ):
        read_halves(root, **{**HALVING, "validation": "validation"})
    with pytest.raises(RefusedRequest, match=r"validation and test are both 'test'"):
        read_halves(root, **{**HALVING, "validation": "test"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"share": 1.0}, r"validation_share is 1.0; it must be above 0 and below 1"),
        ({"keep_together": "tpic"}, r"keep_together is 'tpic', and no query has that group; .* topic"),
        ({"test": "dev"}, r"split 'dev' does not exist; the splits here are: test"),
    ],
)
def test_what_cannot_be_halved(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedRequest, match=reason):
        read_halves(write_texts(tmp_path / "C"), **{**HALVING, **options})


def test_without_relevance(tmp_path: Path) -> None:
    root = write_texts(tmp_path / "C")
    (root / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\td0-0\t0\n")
    with pytest.raises(RefusedRequest, match="no query has a positive"):
        read_halves(root, **HALVING)
    (root / "qrels" / "test.tsv").unlink()
    with pytest.raises(RefusedRequest, match=r"qrels/\*\.tsv is missing"):
        read_halves(root, **HALVING)


def test_queries_that_all_share_an_item_cannot_be_halved(tmp_path: Path) -> None:
    root = write_texts(tmp_path / "C")
    with (root / "qrels" / "test.tsv").open("a") as stream:
        stream.writelines(f"q{n}\td0-0\t1\n" for n in range(1, 10))
    with pytest.raises(RefusedRequest, match="its 10 queries hang together"):
        read_halves(root, **HALVING)
    assert json.loads((root / "queries.jsonl").read_text().splitlines()[0])["_id"] == "q0"
