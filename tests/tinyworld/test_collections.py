"""The world on disk: real .mp4 files, consistent splits, the same bytes for the same seed."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from vidvec_msg.tinyworld.clips import draw_clip
from vidvec_msg.tinyworld.collections import split_cast, training_pairs, write_mp4, write_pairs, write_world
from vidvec_msg.tinyworld.stories import STORIES, STORY_BY_KEY

COUNTS = {"validation": 1, "test": 2, "combo": 1}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    write_world(out, seed=3, clips_per_story=COUNTS, size=48, transcript_every=2)
    return out


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judged(world: Path, split: str) -> Iterator[tuple[str, str]]:
    with (world / "qrels" / f"{split}.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            assert row["score"] == "1"
            yield row["query-id"], row["corpus-id"]


def decode(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_an_mp4_gives_back_what_was_drawn(tmp_path: Path) -> None:
    story = STORY_BY_KEY["wall_breaks"]
    clip = draw_clip(story, split_cast(story, "test", 0, 0), size=96)
    write_mp4(tmp_path / "clip.mp4", clip)
    seen = decode(tmp_path / "clip.mp4")
    assert seen.shape == clip.shape
    assert np.abs(seen.astype(int) - clip.astype(int)).mean() < 4  # of 255: the codec's loss
    with av.open(str(tmp_path / "clip.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert float(stream.average_rate or 0) == 8.0


def test_the_collection_is_consistent(world: Path) -> None:
    corpus, queries = rows(world / "corpus.jsonl"), rows(world / "queries.jsonl")
    assert len(corpus) == len({row["_id"] for row in corpus}) == 32 * sum(COUNTS.values())
    assert len(queries) == len({row["_id"] for row in queries}) == 32 * 4
    assert all((world / row["video"]).is_file() for row in corpus)
    assert {row["groups"]["topic"] for row in corpus} == {row["groups"]["topic"] for row in queries}
    assert Counter(row["groups"]["shift"] for row in corpus) == {"none": 96, "combo": 32}
    assert sum("transcript" in row for row in corpus) == 32


@pytest.mark.parametrize(
    ("split", "clips", "paraphrase"),
    [
        ("validation", 1, "held_out"),
        ("test", 2, "held_out"),
        ("combo", 1, "held_out"),
        ("never_seen", 2, "never_seen"),
    ],
)
def test_a_split_judges_its_own_clips_and_paraphrases(
    world: Path, split: str, clips: int, paraphrase: str
) -> None:
    corpus = {row["_id"]: row["groups"] for row in rows(world / "corpus.jsonl")}
    queries = {row["_id"]: row for row in rows(world / "queries.jsonl")}
    pairs = list(judged(world, split))
    assert len(pairs) == len(set(pairs)) == 32 * 2 * clips
    for query, clip in pairs:
        assert queries[query]["groups"]["story"] == corpus[clip]["story"]
        assert queries[query]["groups"]["paraphrase"] == paraphrase
        assert queries[query]["text"] in STORY_BY_KEY[corpus[clip]["story"]].messages
        assert corpus[clip]["split"] == ("test" if split == "never_seen" else split)


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        write_world(tmp_path / name, seed=seed, clips_per_story={"test": 1}, size=48)
        write_pairs(tmp_path / name / "pairs.jsonl", seed=seed, rows_per_story=4)
    found = {
        name: {
            str(path.relative_to(tmp_path / name)): path.read_bytes()
            for path in sorted((tmp_path / name).rglob("*"))
            if path.is_file()
        }
        for name in "abc"
    }
    assert found["a"] == found["b"]
    assert found["a"] != found["c"]
    assert set(found["a"]) == set(found["c"])


def test_splits_are_cast_apart() -> None:
    casts = {
        (split, number): split_cast(STORIES[0], split, number, 0)
        for split in ("validation", "test")
        for number in range(8)
    }
    assert len(set(casts.values())) == 16


def test_an_unknown_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown splits \['train'\].*'combo', 'test', 'validation'"):
        write_world(tmp_path, clips_per_story={"train": 1})
    with pytest.raises(ValueError, match="even side"):
        write_world(tmp_path, size=51)


def test_pairs_join_a_storyline_to_a_trained_paraphrase_of_its_message() -> None:
    pairs = training_pairs(seed=1, rows_per_story=6)
    assert len(pairs) == 32 * 6
    for pair in pairs:
        assert pair["positive"] in STORY_BY_KEY[pair["group"]].trained
    for begin in range(0, len(pairs), 32):
        assert len({pair["group"] for pair in pairs[begin : begin + 32]}) == 32
    seen = {pair["positive"] for pair in training_pairs(seed=1)}
    assert not any(text in seen for story in STORIES for text in story.held_out + story.never_seen)


def test_shuffled_pairs_hold_the_same_texts_and_no_true_pair() -> None:
    pairs = training_pairs(seed=1, rows_per_story=16, shuffled=True)
    assert [p["anchor"] for p in pairs] != [p["positive"] for p in pairs]
    told: dict[str, set[str]] = {}
    for pair in pairs:
        owner = next(story.key for story in STORIES if pair["positive"] in story.trained)
        assert owner != pair["group"]
        told.setdefault(pair["group"], set()).add(owner)
    # not a relabelling: a story meets another message almost every time
    assert min(len(owners) for owners in told.values()) > 8


def test_pairs_are_json_lines(tmp_path: Path) -> None:
    assert write_pairs(tmp_path / "new" / "pairs.jsonl", rows_per_story=2) == 64
    first = rows(tmp_path / "new" / "pairs.jsonl")[0]
    assert set(first) == {"id", "anchor", "positive", "group", "persona"}
