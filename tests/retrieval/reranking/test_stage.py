"""Which pairs are judged, which side is the clips', and what a blank clip is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.retrieval.fusing.lists import Lists
from vidvec_msg.retrieval.reranking.stage import (
    NOTHING,
    Stage,
    blank_clip,
    depth_of,
    groups_of,
    refuse_other_kinds,
)

TEXTS = tuple(Item(f"t{number}", text=f"text {number}") for number in range(3))
CLIPS = tuple(Item(f"c{number}", video=Path(f"{number}.mp4")) for number in range(4))


def lists(*rows: tuple[str, list[int]]) -> Lists:
    return Lists(
        "run", {query: (np.array(columns), -np.arange(len(columns), dtype=float)) for query, columns in rows}
    )


def stage(*, texts_ask: bool = True) -> Stage:
    """Every text has the clip of its number; of the last clip nobody asks."""
    queries, corpus = (TEXTS, CLIPS) if texts_ask else (CLIPS, TEXTS)
    pairs = [
        (text.id, clip.id) if texts_ask else (clip.id, text.id)
        for text, clip in zip(TEXTS, CLIPS, strict=False)
    ]
    sides = Sides(corpus, queries, {query: {document: 1} for query, document in pairs})
    by_text = lists(("t0", [1, 0, 2, 3]), ("t1", [3, 1, 2, 0]), ("t2", [2, 0, 1, 3]))
    by_clip = lists(("c0", [0, 1, 2]), ("c1", [2, 1, 0]), ("c2", [2, 0, 1]), ("c3", [0, 1, 2]))
    both = (by_text, by_clip) if texts_ask else (by_clip, by_text)
    return Stage(sides, {"forward": both[0], "reverse": both[1]})


@pytest.mark.parametrize("texts_ask", [True, False])
def test_pairs_are_grouped_by_clip_each_once_whoever_asks(texts_ask):
    groups = groups_of(stage(texts_ask=texts_ask), 2, "none", None)
    found = {group.clip.id: {text.id for text in group.texts} for group in groups}
    # c3 asks nobody, for it has no text of its own; t1 has it among its first two
    assert found == {"c0": {"t0", "t1", "t2"}, "c1": {"t0", "t1", "t2"}, "c2": {"t0", "t2"}, "c3": {"t1"}}
    assert all(len(group.texts) == len({text.id for text in group.texts}) for group in groups)


def test_priors_add_an_empty_text_to_each_clip_and_a_blank_clip_with_each_text():
    plain = groups_of(stage(), 1, "none", None)
    clip = groups_of(stage(), 1, "clip", None)
    assert [group.texts[-1].id for group in clip] == [NOTHING] * len(plain)
    both = groups_of(stage(), 1, "both", Item(NOTHING, text=""))
    assert both[-1].clip.id == NOTHING
    assert {text.id for text in both[-1].texts} == {"t0", "t1", "t2"}
    assert len(both) == len(plain) + 1


def test_a_pair_is_right_whoever_asks():
    for texts_ask in (True, False):
        assert stage(texts_ask=texts_ask).positive(("c1", "t1"))
        assert not stage(texts_ask=texts_ask).positive(("c1", "t0"))


def test_depths_by_name_and_by_number():
    assert depth_of(2, stage()) == 2
    assert depth_of("zero-shot", stage()) == 100  # the lists have all candidates
    assert depth_of("fitted", stage()) == 10
    short = Stage(stage().sides, {"forward": lists(("t0", [1, 0]))})
    with pytest.raises(RefusedRequest, match=r"depth is 10 \(fitted\), and the forward run lists 2 of 4"):
        depth_of("fitted", short)
    assert depth_of(2, short) == 2


def test_sides_that_no_reranker_takes_are_refused():
    with pytest.raises(RefusedRequest, match="j reads text, and clips of this collection are video"):
        refuse_other_kinds(stage(), ("text",), "j")
    mixed = Sides(CLIPS, (*TEXTS, CLIPS[0]), {"t0": {"c0": 1}})
    with pytest.raises(RefusedRequest, match="neither side is all texts: the queries are text/video"):
        refuse_other_kinds(Stage(mixed, {}), ("video",), "j")


def test_blank_clips_are_of_the_kind_and_size_of_the_others(tmp_path):
    assert blank_clip(TEXTS).full_text == ""
    frames = np.full((5, 8, 12, 3), 7, dtype=np.uint8)
    black = blank_clip([Item("v", video=frames, fps=2.0)]).video
    assert black.shape == frames.shape
    assert not black.any()
    image = blank_clip([Item("i", image=frames[0])]).image
    assert image.shape == (8, 12, 3)
    assert not image.any()
    (tmp_path / "broken.mp4").write_bytes(b"no clip")
    assert blank_clip([Item("b", video=tmp_path / "broken.mp4")]).video.shape == (8, 224, 224, 3)


def test_of_sound_and_of_mixed_kinds_there_is_no_blank_clip():
    for clips in ([Item("a", audio=Path("a.wav"))], [TEXTS[0], CLIPS[0]]):
        with pytest.raises(RefusedRequest, match="a prior of the query needs a blank clip"):
            blank_clip(clips)
