"""The world as files: .mp4 clips in a collection with splits, and the adapter's training pairs.

    python -m vidvec_msg.tinyworld.collections --out world

One folder holds every split; `qrels/SPLIT.tsv` names the documents and queries that take part:

=========== ========================= =============================
split       clips                     messages
=========== ========================= =============================
validation  validation                held_out paraphrases
test        test                      held_out paraphrases
combo       combo (withheld colours)  held_out paraphrases
never_seen  test                      never_seen paraphrases
=========== ========================= =============================

Judge a split among its own clips (``--pool split``): the other splits' clips of the same story would crowd
the top. The same seed gives the same bytes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from vidvec_msg.tinyworld.clips import FPS, caption, draw_clip, sample_cast
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import COLOURS, LEAD_INS, SHAPES, STORIES, Story

log = logging.getLogger(__name__)

CLIP_SPLITS: dict[str, int] = {"validation": 4, "test": 8, "combo": 4}
"""Clips per story of each split, by default."""

_SPLIT_SEEDS = {"validation": 11, "test": 12, "combo": 13}
_PAIR_SEED = 14

PERSONAS: tuple[str, ...] = (
    "a retired teacher",
    "a night nurse",
    "a grandmother of nine",
    "a chess coach",
    "a bus driver",
    "a baker who rises at four",
    "a first-year student",
    "a marathon runner",
    "a careful accountant",
    "a stand-up comedian",
)
"""Who supposedly wrote a pair: the provenance column that synthesised data has too."""


def write_mp4(path: Path, frames: np.ndarray, *, fps: int = FPS) -> None:
    """Encode frames as H.264 in an .mp4, with PyAV's own encoder.

    Args:
        path: file to write.
        frames: (frames, height, width, 3) uint8, height and width even.
        fps: frames per second.
    """
    # one thread and bitexact: the same frames are the same bytes, whatever the machine was doing
    with av.open(
        str(path), "w", format="mp4", options={"fflags": "+bitexact", "movflags": "+faststart"}
    ) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "veryfast", "threads": "1", "flags": "+bitexact"}
        stream.codec_context.thread_count = 1
        for picture in frames:
            for packet in stream.encode(
                av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            ):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def split_cast(story: Story, split: str, number: int, seed: int) -> Cast:
    """The cast of one clip; no two splits, numbers or seeds share a stream, nor does pretraining with any."""
    stream = [_SPLIT_SEEDS[split], seed, STORIES.index(story), number]
    return sample_cast(story, np.random.default_rng(stream), combo=split == "combo")


def write_world(
    out: Path | str,
    *,
    seed: int = 0,
    clips_per_story: Mapping[str, int] | None = None,
    size: int = 160,
    transcript_every: int = 4,
) -> dict[str, int]:
    """Render the world into a collection folder.

    Args:
        out: folder; made if missing.
        seed: decides every cast. The shipped weights' pretraining clips come from other streams, whatever
            the seed.
        clips_per_story: clips per story of each split ("validation", "test", "combo"); `CLIP_SPLITS` by
            default. A split left out is not written.
        size: side of the clips, pixels, even.
        transcript_every: every n-th clip of a story carries a ``transcript`` (a narrator's literal words);
            0 for none.

    Returns:
        Counts: clips, queries, and judgements of each split.
    """
    root = Path(out)
    counts = dict(CLIP_SPLITS if clips_per_story is None else clips_per_story)
    if unknown := sorted(set(counts) - set(_SPLIT_SEEDS)):
        raise ValueError(f"unknown splits {unknown}; clips_per_story accepts {sorted(_SPLIT_SEEDS)}")
    if size % 2 or size < 48:
        raise ValueError(f"size is {size}; clips need an even side of at least 48 pixels")
    (root / "clips").mkdir(parents=True, exist_ok=True)
    (root / "qrels").mkdir(exist_ok=True)

    corpus: list[dict[str, Any]] = []
    members: dict[str, list[tuple[str, str]]] = {}  # split -> (clip id, story key)
    for split, per_story in counts.items():
        for story in STORIES:
            for number in range(per_story):
                cast = split_cast(story, split, number, seed)
                clip_id = f"{split}-{story.key}-{number}"
                path = f"clips/{clip_id}.mp4"
                write_mp4(root / path, draw_clip(story, cast, size=size))
                row: dict[str, Any] = {"_id": clip_id, "video": path}
                if transcript_every and number % transcript_every == transcript_every - 1:
                    row["transcript"] = caption(story, cast, number % len(story.captions))
                row["groups"] = {
                    "topic": story.topic,
                    "story": story.key,
                    "split": split,
                    "shift": "combo" if split == "combo" else "none",
                    "colour": cast.colour,
                }
                corpus.append(row)
                members.setdefault(split, []).append((clip_id, story.key))
    queries = [
        {
            "_id": f"{name}-{story.key}-{number}",
            "text": text,
            "groups": {"topic": story.topic, "story": story.key, "paraphrase": name},
        }
        for name in ("held_out", "never_seen")
        for story in STORIES
        for number, text in enumerate(story.paraphrases(name))
    ]
    write_lines(root / "corpus.jsonl", corpus)
    write_lines(root / "queries.jsonl", queries)
    report = {"clips": len(corpus), "queries": len(queries)}
    judged = {split: ("held_out", clips) for split, clips in members.items()}
    if "test" in members:
        judged["never_seen"] = ("never_seen", members["test"])
    for split, (paraphrase, clips) in judged.items():
        report[split] = _write_qrels(root / "qrels" / f"{split}.tsv", queries, clips, paraphrase)
    return report


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_qrels(
    path: Path, queries: list[dict[str, Any]], clips: list[tuple[str, str]], paraphrase: str
) -> int:
    lines = ["query-id\tcorpus-id\tscore"]
    for query in queries:
        if query["groups"]["paraphrase"] == paraphrase:
            lines += [
                f"{query['_id']}\t{clip}\t1" for clip, story in clips if story == query["groups"]["story"]
            ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return len(lines) - 1


def training_pairs(
    *, seed: int = 0, rows_per_story: int = 96, shuffled: bool = False
) -> list[dict[str, str]]:
    """The adapter's pairs: a literal storyline and a trained paraphrase of the same story's message.

    Args:
        seed: decides actors, wordings and order.
        rows_per_story: pairs per story.
        shuffled: the control. Every row's message comes from another story, a new one each row, so that
            nothing can be learned; a fixed relabelling of stories could be, and would look like success.

    Returns:
        Rows with id, anchor, positive, group (the anchor's story) and persona; consecutive 32 rows hold
        every story once.
    """
    rng = np.random.default_rng([_PAIR_SEED, seed])
    rows = []
    for round_number in range(rows_per_story):
        order = rng.permutation(len(STORIES))
        turn = int(
            rng.integers(1, len(STORIES))
        )  # story at place p gets the message of the one `turn` places on
        for place, index in enumerate(order):
            story = STORIES[index]
            meant = STORIES[order[(place + turn) % len(STORIES)]] if shuffled else story
            mine, theirs = [(str(rng.choice(list(COLOURS))), str(rng.choice(SHAPES))) for _ in range(2)]
            cast = Cast(*mine, *theirs)
            lead_in = LEAD_INS[int(rng.integers(len(LEAD_INS)))]
            rows.append(
                {
                    "id": f"pair-{round_number:03d}-{place:02d}",
                    "anchor": caption(story, cast, int(rng.integers(len(story.captions))), lead_in),
                    "positive": meant.trained[int(rng.integers(len(meant.trained)))],
                    "group": story.key,
                    "persona": PERSONAS[int(rng.integers(len(PERSONAS)))],
                }
            )
    return rows


def write_pairs(path: Path | str, *, seed: int = 0, rows_per_story: int = 96, shuffled: bool = False) -> int:
    """Write `training_pairs` as JSON lines; returns the number of rows."""
    rows = training_pairs(seed=seed, rows_per_story=rows_per_story, shuffled=shuffled)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_lines(target, rows)
    return len(rows)


def main(out: Path, seed: int = 0, size: int = 160) -> None:
    """Write the collection into OUT, and the pairs and their shuffled control beside it.

    Args:
        out: folder to write.
        seed: decides every cast, wording and order.
        size: side of the clips, pixels, even.
    """
    report = write_world(out, seed=seed, size=size)
    report["pairs"] = write_pairs(Path(out) / "pairs.jsonl", seed=seed)
    write_pairs(Path(out) / "pairs_shuffled.jsonl", seed=seed, shuffled=True)
    log.info(", ".join(f"{name} {count}" for name, count in report.items()) + f" → {out}")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    auto_cli(main, as_positional=False)
