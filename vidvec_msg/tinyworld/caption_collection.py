"""Literal sentences as queries: a collection on which the reranker can be seen at what it was taught.

    python -m vidvec_msg.tinyworld.caption_collection --out DIR

The clips are those of the world's test split. Queries are in wordings that the yes/no skill was never taught
with:

========= ============================ =================================
split     queries                      relevant
========= ============================ =================================
gists     the last gist of each story  all clips of the story
captions  the last caption, per clip   the clip whose actors it names
========= ============================ =================================

For messages on the same clips, of which the skill knows nothing, see `collections`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.tinyworld.clips import caption, draw_clip
from vidvec_msg.tinyworld.collections import CLIP_SPLITS, split_cast, write_lines, write_mp4
from vidvec_msg.tinyworld.stories import STORIES

log = logging.getLogger(__name__)


def write_captioned(
    out: Path | str, *, split: str = "test", seed: int = 0, clips_per_story: int = 0, size: int = 160
) -> dict[str, int]:
    """Render clips of the world into a collection whose queries are literal.

    Args:
        out: folder; made if missing.
        split: whose clips; the same seed gives the very clips of `collections.write_world`.
        seed: decides every cast.
        clips_per_story: 0 for as many as the world has.
        size: side of the clips, pixels, even.

    Returns:
        Counts: clips, and judgements of each split.
    """
    root = Path(out)
    for folder in ("clips", "qrels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    judged: Mapping[str, list[tuple[str, str]]] = {"gists": [], "captions": []}
    for story in STORIES:
        queries.append({"_id": f"gist-{story.key}", "text": story.gists[-1], "groups": {"story": story.key}})
        for number in range(clips_per_story or CLIP_SPLITS[split]):
            cast = split_cast(story, split, number, seed)
            clip = f"{split}-{story.key}-{number}"
            write_mp4(root / "clips" / f"{clip}.mp4", draw_clip(story, cast, size=size))
            groups = {"story": story.key, "topic": story.topic, "colour": cast.colour}
            corpus.append({"_id": clip, "video": f"clips/{clip}.mp4", "groups": groups})
            text = caption(story, cast, len(story.captions) - 1)
            queries.append({"_id": f"caption-{clip}", "text": text, "groups": {"story": story.key}})
            judged["gists"].append((f"gist-{story.key}", clip))
            judged["captions"].append((f"caption-{clip}", clip))
    write_lines(root / "corpus.jsonl", corpus)
    write_lines(root / "queries.jsonl", queries)
    for name, pairs in judged.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{clip}\t1" for query, clip in pairs)]
        (root / "qrels" / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return {"clips": len(corpus), **{name: len(pairs) for name, pairs in judged.items()}}


def main(out: Path, split: str = "test", seed: int = 0, size: int = 160) -> None:
    """Write the collection into OUT.

    Args:
        out: folder to write.
        split: of the world, whose clips are taken: "validation", "test" or "combo".
        seed: decides every cast.
        size: side of the clips, pixels, even.
    """
    report = write_captioned(out, split=split, seed=seed, size=size)
    log.info(", ".join(f"{name} {count}" for name, count in report.items()) + f" → {out}")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    auto_cli(main, as_positional=False)
