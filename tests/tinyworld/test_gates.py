"""What the shipped weights must show, over three adapter seeds, with the real trainer and real .mp4 files.

`hit@1` is hit_rate@1: the best-ranked candidate is right. Messages are the held-out paraphrases, which the
adapter's pairs do not contain, unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from vidvec_msg import Collection, Embedder, Item, load_embedder
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import read_frames
from vidvec_msg.retrieval.evaluate import evaluate_vectors
from vidvec_msg.tinyworld.collections import write_pairs, write_world
from vidvec_msg.train.fit import main as fit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.xdist_group("gates")]

SEEDS = (0, 1, 2)
POLICY = FramePolicy(fps=8.0, max_frames=32)  # all frames of a clip
ROOT = Path(__file__).parents[2]
Change = Callable[[np.ndarray], np.ndarray]


class Gates:
    """A world on disk and one adapter per seed, with the share of right answers of each condition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_world(folder / "world", seed=0)
        self.embedder = cache(self._embedder)
        self.split = cache(self._split)

    def _embedder(self, seed: int | None, shuffled: bool = False) -> Embedder:
        if seed is None:
            return load_embedder("tinyworld")
        name = f"{'shuffled' if shuffled else 'pairs'}_{seed}"
        pairs, run = self.folder / f"{name}.jsonl", self.folder / name
        write_pairs(pairs, seed=seed, shuffled=shuffled)
        config = ROOT / "configs" / "train" / "tinyworld.yaml"
        fit([
            "fit", f"--config={config}", f"--trainer.default_root_dir={run}", f"--data.pairs={pairs}",
            f"--seed_everything={seed}", "--trainer.enable_progress_bar=false", "--trainer.logger=false",
        ])  # fmt: skip
        return load_embedder(str(run / "embedder"))

    def _split(self, name: str) -> tuple[list[Item], list[Item], dict[str, dict[str, int]]]:
        collection = Collection.load(self.folder / "world", split=name)
        qrels = {query: dict(judged) for query, judged in collection.qrels[name].items()}
        named = {document for judged in qrels.values() for document in judged}
        clips = [_in_memory(item) for item in collection.corpus if item.id in named]
        return [item for item in collection.queries if item.id in qrels], clips, qrels

    def hits(self, embedder: Embedder, split: str = "test", change: Change | None = None) -> np.ndarray:
        """(message → clip, clip → message) hit@1, in percent."""
        messages, clips, qrels = self.split(split)
        if change is not None:
            clips = [replace(item, video=change(np.asarray(item.video))) for item in clips]
        evaluation = evaluate_vectors(
            embedder.encode(messages, role="query"), [item.id for item in messages],
            embedder.encode(clips, role="document"), [item.id for item in clips],
            qrels, metrics=["hit_rate@1"], intervals=False, chance=False,
        )  # fmt: skip
        both = (
            evaluation.forward.metrics["hit_rate@1"].value,
            evaluation.reverse.metrics["hit_rate@1"].value,
        )
        return 100 * np.array(both, dtype=float)

    def mean(
        self, *, shuffled: bool = False, split: str = "test", change: Change | None = None
    ) -> np.ndarray:
        values = [self.hits(self.embedder(seed, shuffled), split, change) for seed in SEEDS]
        print(f"{split} shuffled={shuffled} {change and change.__name__}: {np.round(values, 1).tolist()}")
        return np.mean(values, axis=0)


def _in_memory(item: Item) -> Item:
    """The clip as the frames that a file gives, so that a test can change them."""
    assert isinstance(item.video, Path)
    return replace(item, video=read_frames(item.video, POLICY).pixels, fps=POLICY.fps)


def blank(frames: np.ndarray) -> np.ndarray:
    return np.full_like(frames, 128)


def reversed_in_time(frames: np.ndarray) -> np.ndarray:
    return frames[::-1].copy()


def last_frame_only(frames: np.ndarray) -> np.ndarray:
    return np.repeat(frames[-1:], len(frames), axis=0)


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Gates:
    return Gates(tmp_path_factory.mktemp("gates"))


def test_before_it_knows_what_it_sees_but_not_what_is_meant(gates: Gates) -> None:
    assert (gates.hits(gates.embedder(None)) <= 15).all()


def test_text_alone_teaches_it_the_messages_of_clips(gates: Gates) -> None:
    assert (gates.mean() >= 75).all()


def test_shuffled_pairs_teach_nothing(gates: Gates) -> None:
    assert (gates.mean(shuffled=True) <= 15).all()


def test_it_looks_at_the_clip(gates: Gates) -> None:
    assert (gates.mean(change=blank) <= 10).all()


def test_wordings_never_seen_by_anything_are_understood(gates: Gates) -> None:
    assert (gates.mean(split="never_seen") >= 55).all()


def test_colours_never_seen_with_a_story_do_not_matter(gates: Gates) -> None:
    assert (gates.mean(split="combo") >= 65).all()


def test_it_uses_motion(gates: Gates) -> None:
    whole = gates.mean()
    assert (gates.mean(change=reversed_in_time) <= whole - 15).all()
    assert (gates.mean(change=last_frame_only) <= whole - 15).all()


def test_files_and_frames_in_memory_are_the_same_clip(gates: Gates) -> None:
    collection = Collection.load(gates.folder / "world", split="test")
    clips = [
        item for item in collection.corpus if item.id in set().union(*collection.qrels["test"].values())
    ][:16]
    embedder = gates.embedder(SEEDS[0], False)
    from_files = embedder.encode(clips, role="document")
    from_memory = embedder.encode([_in_memory(item) for item in clips], role="document")
    assert (from_files * from_memory).sum(axis=1).min() > 0.9999
