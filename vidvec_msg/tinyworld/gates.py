"""What the tiny model must show, measured with the real trainer on real .mp4 files.

    python -m vidvec_msg.tinyworld.gates --out runs/gates                    # the shipped weights
    python -m vidvec_msg.tinyworld.gates --out runs/gates --model DIR --write_card true

Three adapters are fitted on text alone and three on shuffled pairs; `hit@1` (hit_rate@1: the best-ranked
candidate is right) is taken in both directions on each condition. The pretrained model is one seed.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import read_frames
from vidvec_msg.tinyworld.collections import training_pairs, write_world
from vidvec_msg.tinyworld.stories import STORIES

if TYPE_CHECKING:
    from vidvec_msg.embedders.contract import Embedder

log = logging.getLogger(__name__)

ALL_FRAMES = FramePolicy(fps=8.0, max_frames=32)  # a clip of this world is 4 s at 8 frames per second
LEFT_OUT = tuple(story.key for story in STORIES[::4])
"""Stories that the adapters of the transfer test never see: one of each topic."""

Percent = np.ndarray  # (2,): message → clip, clip → message
Frames = np.ndarray  # (frames, height, width, 3) uint8


def blank(frames: Frames) -> Frames:
    """A grey clip: nothing to see."""
    return np.full_like(frames, 128)


def reversed_in_time(frames: Frames) -> Frames:
    """The same pictures, last to first."""
    return frames[::-1].copy()


def last_frame_only(frames: Frames) -> Frames:
    """How it ends, standing still."""
    return np.repeat(frames[-1:], len(frames), axis=0)


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the table.

    Args:
        what: in words.
        split: of the world's collection.
        pairs: what the adapters were fitted on: "true", "shuffled", "without" the left-out stories; None for
            no adapter.
        change: what is done to the clips.
        stories: only these take part, on both sides.
        most: gate: at most this many percent, in each direction.
        least: gate: at least this many.
    """

    what: str
    split: str = "test"
    pairs: str | None = "true"
    change: Callable[[Frames], Frames] | None = None
    stories: Sequence[str] = ()
    most: float | None = None
    least: float | None = None


CONDITIONS: Mapping[str, Condition] = {
    "before": Condition("before, held-out paraphrases", pairs=None, most=15),
    "after": Condition("**after, held-out paraphrases**", least=75),
    "shuffled": Condition("after, shuffled pairs", pairs="shuffled", most=15),
    "blank": Condition("after, blank clips", change=blank, most=10),
    "never_seen_before": Condition("before, paraphrases never seen by anything", "never_seen", None),
    "never_seen": Condition("after, paraphrases never seen by anything", "never_seen", least=55),
    "combo": Condition("after, combo clips (colours never drawn with the story)", "combo", least=65),
    "reversed": Condition("after, frames reversed", change=reversed_in_time),
    "last_frame": Condition("after, last frame only", change=last_frame_only),
    "left_out": Condition(
        f"{len(LEFT_OUT)} stories left out of the pairs, among themselves (chance {100 / len(LEFT_OUT):.1f})",
        pairs="without",
        stories=LEFT_OUT,
    ),
}


class Gates:
    """A world on disk, adapters fitted when first asked for, and the share of right answers per condition.

    Args:
        folder: where the world and the runs go; new.
        model: the pretrained model: "tinyworld", or a folder made by the build.
        seeds: one adapter each; the seed decides its pairs, their order and its first weights.
        clips_per_story: of each split; the world's own numbers by default.
    """

    def __init__(
        self,
        folder: Path,
        *,
        model: str = "tinyworld",
        seeds: Sequence[int] = (0, 1, 2),
        clips_per_story: Mapping[str, int] | None = None,
    ) -> None:
        self.folder, self.model, self.seeds = folder, model, tuple(seeds)
        write_world(folder / "world", seed=0, clips_per_story=clips_per_story)
        self._embedder = cache(self._load)
        self._split = cache(self._read)

    def measure(self, name: str) -> dict[str, Any]:
        """One condition: ``values`` per seed and their ``mean``, percent; message → clip, clip → message."""
        condition = CONDITIONS[name]
        seeds = self.seeds if condition.pairs else self.seeds[:1]
        values = np.array([self._hits(self._embedder(condition.pairs, seed), condition) for seed in seeds])
        result = {
            "what": condition.what,
            "values": values.round(1).tolist(),
            "mean": values.mean(axis=0).round(1).tolist(),
        }
        log.info("%s: %s, mean %s", name, result["values"], result["mean"])
        return result

    def embedder(self, pairs: str | None, seed: int = 0) -> Embedder:
        """The pretrained model, or the adapter of one seed on these pairs."""
        return self._embedder(pairs, seed)

    def _load(self, pairs: str | None, seed: int) -> Embedder:
        from vidvec_msg.embedders.load import load_embedder
        from vidvec_msg.train.fit import main as fit

        if pairs is None:
            spec = self.model if self.model == "tinyworld" else f"mllm:{self.model}"
            return load_embedder(spec, fps=2.0, max_frames=8, dtype="float32")
        rows = training_pairs(seed=seed, shuffled=pairs == "shuffled")
        if pairs == "without":
            rows = [row for row in rows if row["group"] not in LEFT_OUT]
        path, run = self.folder / f"{pairs}_{seed}.jsonl", self.folder / f"{pairs}_{seed}"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        with as_file(files("vidvec_msg.tinyworld") / "fit.yaml") as config:
            fit([
                "fit", f"--config={config}", f"--model.model={self.model}", f"--data.pairs={path}",
                f"--data.batch_size={len({row['group'] for row in rows})}", f"--seed_everything={seed}",
                f"--trainer.default_root_dir={run}", "--trainer.enable_progress_bar=false",
            ])  # fmt: skip
        return load_embedder(str(run / "embedder"))

    def _read(self, split: str) -> tuple[list[Item], list[Item], Mapping[str, Mapping[str, int]]]:
        """Messages, clips as all their frames in memory, and judgements of a split."""
        collection = Collection.load(self.folder / "world", split=split)
        qrels = collection.qrels[split]
        named = {document for judged in qrels.values() for document in judged}
        clips = [in_memory(item) for item in collection.corpus if item.id in named]
        return [item for item in collection.queries if item.id in qrels], clips, qrels

    def _hits(self, embedder: Embedder, condition: Condition) -> Percent:
        from vidvec_msg.embedders.check import CollapsedSpaceWarning
        from vidvec_msg.retrieval.evaluation.directions import evaluate_vectors

        messages, clips, qrels = self._split(condition.split)
        if condition.stories:
            messages = [item for item in messages if item.groups["story"] in condition.stories]
            clips = [item for item in clips if item.groups["story"] in condition.stories]
            qrels = {item.id: qrels[item.id] for item in messages}
        if condition.change is not None:
            clips = [replace(item, video=condition.change(np.asarray(item.video))) for item in clips]
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", CollapsedSpaceWarning
            )  # blank clips are all alike, and so they should
            evaluation = evaluate_vectors(
                embedder.encode(messages, role="query"), [item.id for item in messages],
                embedder.encode(clips, role="document"), [item.id for item in clips],
                qrels, metrics=["hit_rate@1"], intervals=False, chance=False,
            )  # fmt: skip
        both = (evaluation.forward, evaluation.reverse)
        return 100 * np.array([direction.metrics["hit_rate@1"].value for direction in both], dtype=float)


def in_memory(item: Item) -> Item:
    """The clip as all frames of its file, so that they can be changed."""
    if not isinstance(item.video, Path):
        raise TypeError(f"item {item.id!r} is no clip on disk")
    return replace(item, video=read_frames(item.video, ALL_FRAMES).pixels, fps=ALL_FRAMES.fps)


def missed(name: str, mean: Sequence[float]) -> str:
    """What a gate says of a condition's mean; empty if it holds or there is no gate."""
    condition = CONDITIONS[name]
    if condition.most is not None and max(mean) > condition.most:
        return f"{name}: {mean} is above {condition.most}"
    if condition.least is not None and min(mean) < condition.least:
        return f"{name}: {mean} is below {condition.least}"
    return ""


def main(out: Path, model: str = "tinyworld", seeds: int = 3, write_card: bool = False) -> None:
    """Measures every condition and prints the table; exits with 1 if a gate is missed.

    Args:
        out: folder for the world, the runs and gates.json; new.
        model: "tinyworld", or a folder made by the build.
        seeds: adapters per kind of pairs.
        write_card: write the table into the card (README.md) of the model's folder.
    """
    from vidvec_msg.embedders.models import resolve_model
    from vidvec_msg.runs import write_json
    from vidvec_msg.tinyworld import card

    gates = Gates(out, model=model, seeds=range(seeds))
    results = {name: gates.measure(name) for name in CONDITIONS}
    write_json(out / "gates.json", results)
    summary = {
        "command": "python -m vidvec_msg.tinyworld.gates --out DIR",
        "seeds": seeds,
        "conditions": results,
    }
    sys.stdout.write(card.gates_table(summary))
    if write_card:
        folder = Path(resolve_model(model))
        build = json.loads((folder / "build.json").read_text(encoding="utf-8"))
        build["gates"] = summary
        (folder / "build.json").write_text(json.dumps(build, indent=1) + "\n", encoding="utf-8")
        card.write_card(folder, build)
    problems = [problem for name, result in results.items() if (problem := missed(name, result["mean"]))]
    if problems:
        raise SystemExit("gates missed: " + "; ".join(problems))


if __name__ == "__main__":
    from jsonargparse import auto_cli

    logging.basicConfig(format="%(message)s", level=logging.INFO)
    auto_cli(main, as_positional=False)
