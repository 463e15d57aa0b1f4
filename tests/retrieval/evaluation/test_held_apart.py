"""Validation queries are told from those of the test by what they hold."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation import held_apart
from vidvec_msg.retrieval.evaluation.cached_digests import digests_of_cache
from vidvec_msg.retrieval.evaluation.held_apart import (
    Shown,
    _Stretches,
    alike,
    contents_of,
    refuse_shared_queries,
    shown_by,
)
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


def test_a_mirrored_pair_of_texts_is_found() -> None:
    """Who searches for the bed by "Rest well." has told the reverse search of the test its answer."""
    told = refused(sides({"v": "A bed"}, {"w": "rest well."}, v="w"), same_folder=False)
    assert "1 queries hold what documents with a positive of the test hold: 'v' is 'y' of the test" in told
    assert "1 documents with a positive hold what queries of the test hold: 'w' is 'b' of the test" in told


def clips(root: Path, **segments: tuple[str, float | None, float | None]) -> Sides:
    """A query for each clip: a file, and where it starts and ends."""
    corpus = tuple(Item(n, video=root / file, start=a, end=b) for n, (file, a, b) in segments.items())
    queries = tuple(Item(f"q-{n}", text=f"{root} {n}") for n in segments)
    return Sides(corpus, queries, {f"q-{name}": {name: 1} for name in segments})


@pytest.mark.parametrize(
    ("test", "validation", "shared"),
    [
        ((0, 10), (5, 15), True),
        ((5, 15), (0, 10), True),
        ((0, 30), (10, 20), True),  # within
        ((10, 20), (0, None), True),  # the whole file holds its segments
        ((None, 10), (9.5, None), True),
        ((0, 10), (10, 20), False),  # neighbours touch
        ((0, 10), (20, 30), False),
    ],
)
def test_segments_that_overlap_are_one_clip(
    tmp_path: Path,
    test: tuple[float | None, float | None],
    validation: tuple[float | None, float | None],
    shared: bool,
) -> None:
    for folder in ("here", "there"):  # a copy in another folder, under another name
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / "one.mp4").write_bytes(b"clip" * 100_000)
    (tmp_path / "there" / "copy.mp4").write_bytes(b"clip" * 100_000)
    here = clips(tmp_path / "here", far=("one.mp4", 100, 101), mine=("one.mp4", *test))
    there = clips(tmp_path / "there", theirs=("copy.mp4", *validation))
    if not shared:
        refuse_shared_queries(here, there, what="weights", same_folder=False)
        return
    with pytest.raises(RefusedRequest, match=r"'theirs' is '(?:mine|far)' of the test"):
        refuse_shared_queries(here, there, what="weights", same_folder=False)


stretches = st.lists(
    st.builds(lambda what, start, size: Shown(what, start, start + size), st.sampled_from("ab"),
              st.integers(0, 30), st.integers(1, 9)),
    min_size=1, max_size=12,
)  # fmt: skip


def overlap(one: Shown, other: Shown) -> bool:
    return one.what == other.what and one.start < other.end and other.start < one.end


@given(stretches)
def test_numbers_are_alike_where_a_chain_of_overlaps_leads(shown: list[Shown]) -> None:
    numbers = alike(shown)
    reached = {one: {one} for one in shown}
    for _round in shown:
        for one in shown:
            reached[one] |= {other for near in reached[one] for other in shown if overlap(near, other)}
    for one in shown:
        assert {other for other in shown if numbers[other] == numbers[one]} == reached[one]


@given(stretches, stretches)
def test_refused_exactly_where_two_overlap(mine: list[Shown], theirs: list[Shown]) -> None:
    held = _Stretches({str(number): one for number, one in enumerate(mine)})
    for one in theirs:
        found = held.over(one)
        assert (found is not None) == any(overlap(one, other) for other in mine)
        assert found is None or overlap(one, mine[int(found)])


def test_contents_are_of_what_is_shown_wherever_it_lies(tmp_path: Path) -> None:
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.mp4").write_bytes(b"clip" * 100)
    here = clips(tmp_path / "here", a=("one.mp4", None, None), gone=("lost.mp4", None, None))
    there = Sides(clips(tmp_path / "there", a=("one.mp4", 0, None)).corpus, here.queries, here.qrels)
    before = contents_of(here)
    assert contents_of(there) == before  # a clip that is missing in both is none
    said = Sides((replace(here.corpus[0], transcript="said"),), here.queries, here.qrels)
    assert contents_of(said) == before
    (tmp_path / "here" / "one.mp4").write_bytes(b"clap" * 100)
    after = contents_of(here)
    assert (after["queries"], after["corpus"] == before["corpus"]) == (before["queries"], False)
    (tmp_path / "here" / "one.mp4").unlink()
    assert contents_of(here)["corpus"] not in (before["corpus"], after["corpus"])


def test_digests_that_are_kept_spare_reading_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, gone = (tmp_path / name for name in ("one.mp4", "other.mp4", "gone.mp4"))
    for place, content in ((one, b"clip"), (other, b"clap")):
        place.write_bytes(content * 100_000)
        os.utime(place, (1e9, 1e9))  # long ago: a file that was changed just now may change again
    items = [Item("a", video=one, end=2), Item("b", video=other), Item("c", video=gone)]
    plain = shown_by(items)
    read: list[Path] = []
    make = held_apart._digest_of_ends
    monkeypatch.setattr(held_apart, "_digest_of_ends", lambda path: (read.append(path), make(path))[1])
    for expected in ([one, other], []):
        with digests_of_cache(str(tmp_path / "cache")):
            assert shown_by(items) == plain
        assert read == expected
        read.clear()
    other.write_bytes(b"clop" * 100_000)
    os.utime(other, (2e9, 2e9))
    with digests_of_cache(str(tmp_path / "cache")):
        changed = shown_by(items)
    assert read == [other]
    assert (changed["a"], changed["b"] == plain["b"]) == (plain["a"], False)
    with digests_of_cache("none"):
        shown_by(items)
    assert read == [other, one, other, gone]


def test_a_cache_that_is_a_file_is_refused_and_one_that_cannot_be_made_is_done_without(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    os.utime(tmp_path / "file", (1e9, 1e9))
    with (
        pytest.raises(RefusedRequest, match=r"cache .*file is a file; give a folder, or 'none' for no cache"),
        digests_of_cache(str(tmp_path / "file")),
    ):
        pass
    for nowhere in (tmp_path / "file" / "cache", tmp_path / ("x" * 300)):  # as of a folder of another user
        with digests_of_cache(str(nowhere)):
            assert shown_by([Item("a", video=tmp_path / "file")])


def test_media_are_told_by_their_bytes_and_segment(tmp_path: Path) -> None:
    def content(item: Item) -> Shown:
        return shown_by([item])[item.id]

    one, copy, other = (tmp_path / name for name in ("one.mp4", "renamed.mp4", "other.mp4"))
    one.write_bytes(b"clip" * 100_000)
    copy.write_bytes(b"clip" * 100_000)
    other.write_bytes(b"clip" * 99_999 + b"clap")
    assert content(Item("a", video=one)) == content(Item("b", video=copy, transcript="said", text="a title"))
    assert content(Item("a", video=one)) != content(Item("a", video=other))
    assert content(Item("a", video=one, start=0, end=2)) != content(Item("a", video=one, start=2, end=4))
    assert content(Item("a", video=one, end=2)) == content(Item("a", video=one, start=0.0, end=2.0))
    assert content(Item("a", video=tmp_path / "gone.mp4")) != content(Item("a", video=tmp_path / "lost.mp4"))
