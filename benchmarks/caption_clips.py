"""Storylines as clips that show them: for the cascade in docs/evaluation.md, which reads them back.

    python benchmarks/caption_clips.py data/storylines52 runs/evaluation/caption_clips

Some storylines of every message (one, drawn by a seed) become clips that show their words, white on dark, 640
× 480, H.264, all at once or in several captions. The copy of the collection has the same ids, messages and
judgements; its rows hold no text, so that whatever finds them has read the pixels. `--texts` writes the same
rows as texts, to compare. On a slow core reading a frame takes RapidOCR about five seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vidvec_msg.tinyworld.collections import write_mp4

SIZE = (640, 480)
MARGIN, LINE, LETTERS = 25, 28, 20  # pixels
SECONDS = 2  # of a caption, at a frame per second
PAPER, INK = (24, 30, 44), (245, 245, 240)


def chosen(qrels: Sequence[str], count: int, seed: int) -> list[str]:
    """Lines of qrels, without the header, of so many documents a query."""
    dice = random.Random(seed)
    members: dict[str, list[str]] = {}
    for line in qrels[1:]:
        query, document, _ = line.split("\t")
        members.setdefault(query, []).append(document)
    kept = {document for documents in members.values() for document in dice.sample(documents, count)}
    return [line for line in qrels[1:] if line.split("\t")[1] in kept]


def frames(text: str, captions: int) -> np.ndarray:
    """A text as so many captions, ``(frames, height, width, 3)`` uint8."""
    words = text.split()
    size = -(-len(words) // captions)
    shown = [caption(words[start : start + size]) for start in range(0, len(words), size)]
    return np.repeat(np.stack(shown), SECONDS, axis=0)


def caption(words: Sequence[str]) -> np.ndarray:
    """Words in lines, in the middle of the picture."""
    letters = ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), LETTERS)
    picture = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(picture)
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word}".strip()
        if pen.textlength(longer, font=letters) <= SIZE[0] - 2 * MARGIN:
            lines[-1] = longer
        else:
            lines.append(word)
    for number, line in enumerate(lines):
        top = SIZE[1] // 2 + LINE * number - LINE * len(lines) // 2
        pen.text((MARGIN, top), line, font=letters, fill=INK)
    return np.asarray(picture)


def write(source: Path, out: Path, *, count: int, captions: int, seed: int, texts: bool) -> int:
    """The collection; returns how many clips it has."""
    qrels = (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    kept = chosen(qrels, count, seed)
    wanted = {line.split("\t")[1] for line in kept}
    rows: list[dict[str, Any]] = []
    (out / "qrels").mkdir(parents=True)
    (out / "clips").mkdir()
    for line in (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["_id"] in wanted and not texts:
            row["video"] = f"clips/{row['_id']}.mp4"
            write_mp4(out / row["video"], frames(row.pop("text"), captions), fps=1)
        rows += [row] if row["_id"] in wanted else []
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (out / "corpus.jsonl").write_text(lines, encoding="utf-8")
    shutil.copy(source / "queries.jsonl", out / "queries.jsonl")
    (out / "qrels" / "test.tsv").write_text("\n".join([qrels[0], *kept]) + "\n", encoding="utf-8")
    return len(rows)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="a collection of texts with the split test")
    parser.add_argument("out", type=Path, help="the collection to make")
    parser.add_argument("--count", type=int, default=1, help="documents a query")
    parser.add_argument("--captions", type=int, default=1, help="a clip; its words are spread over them")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--texts", action="store_true", help="the same rows as texts")
    given = parser.parse_args()
    made = write(
        given.source, given.out,
        count=given.count, captions=given.captions, seed=given.seed, texts=given.texts,
    )  # fmt: skip
    print(f"{made} clips in {given.out}")


if __name__ == "__main__":
    main()
