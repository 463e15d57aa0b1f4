"""Embedders that do one thing wrong each, and are right in everything else.

``faulty_embedders:Faulty?fault=nan`` is a spec; what ``fault`` accepts stands in :data:`FAULTS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Inspection, Role
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.errors import Failure, ItemError
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.images import read_image
from vidvec_msg.media.video import Frames, frames_in_memory, read_frames

DIM = 48
POLICY = FramePolicy(fps=2.0, max_frames=4, max_pixels=100_000)
PROMPT = PromptTemplate()

# fault → the one check that must fail
FAULTS = {
    "raises": "answers",
    "refuses": "answers",
    "together": "answers",
    "refuses together": "answers",
    "float64": "float32",
    "list": "float32",
    "columns": "shape",
    "fewer rows": "shape",
    "flat": "shape",
    "empty": "empty input",
    "empty raises": "empty input",
    "nan": "finite",
    "infinity": "finite",
    "norm": "unit norm",
    "zero": "unit norm",
    "random": "repeatable",
    "neighbours": "batch against single",
    "sorted": "order",
    "mixed": "order",
    "role ignored": "roles",
    "role unsaid": "roles",
    "collapsed": "collapsed space",
    "no prompt": "prompt",
    "no words": "prompt",
    "lost frames": "frames",
    "no tokens": "visual tokens",
    "large": "visual tokens",
    "blind": "media matter",
    "reload": "save and load",
    "fingerprint": "save and load",
}

_loads = itertools.count()


class Faulty:
    """Words counted into hashed directions; pictures by the mean colours of a grid.

    Args:
        fault: one of :data:`FAULTS`; none by default.
        sees: reads images and clips too.
    """

    def __init__(self, fault: str = "", sees: bool = True) -> None:
        self.fault = fault
        self.load = next(_loads)
        self.rng = np.random.default_rng()
        self.card = EmbedderCard(
            name=fault or "sound",
            dim=DIM,
            modalities=("text", "image", "video") if sees else ("text",),
            weights=f"{fault} {self.load}" if fault == "fingerprint" else fault,
            role_prompts={"query": "find: "} if fault == "role ignored" else {},
            prompt=PROMPT,
            frames=POLICY if sees else None,
            max_tokens=128 if fault == "cut" else None,
        )

    def encode(self, items: Sequence[Item], *, role: Role) -> Any:
        if not items:
            if self.fault == "empty raises":
                raise IndexError("list index out of range")
            return np.zeros(0 if self.fault == "empty" else (0, DIM), np.float32)
        if self.fault == "raises":
            raise TypeError("expected str, got Item")
        if self.fault == "stumbles" and any("2023" in item.full_text for item in items):
            return 1 // 0
        if self.fault == "together" and len(items) > 1:
            raise RuntimeError("stack expects each tensor to be equal size")
        if self.fault == "refuses together" and len(items) > 1:
            raise ItemError([Failure(item.id, "no room beside others") for item in items])
        if self.fault == "refuses" and any(item.id == "text-5" for item in items):
            raise ItemError([Failure("text-5", "no keyword in it")])
        rows = np.stack([self.row(item, role) for item in items])  # (items, dim)
        if self.fault == "random":
            rows = rows + self.rng.normal(0, 0.1, rows.shape)
        if self.fault == "neighbours":
            rows = rows + rows.mean(axis=0)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return self.spoiled(rows.astype(np.float32), items)

    def row(self, item: Item, role: Role) -> np.ndarray:
        """An item's direction, not yet of norm 1."""
        if item.modality == "text":
            words = item.full_text.lower().split()
            row = sum((direction(word) for word in words), np.zeros(DIM))
        else:
            pixels = self.pixels(item)
            if self.fault == "blind":
                pixels = np.zeros_like(pixels)
            grid = [part.mean(axis=(0, 1, 2)) for half in np.array_split(pixels, 2, 1)
                    for part in np.array_split(half, 2, 2)]  # fmt: skip
            row = np.concatenate([np.ravel(grid) - 128, np.full(DIM - 12, 1.0)])
        if self.fault == "collapsed":
            row = row / np.linalg.norm(row) + 30 * direction("constant")
        if self.fault == "reload":
            row = row + self.load % 2 * direction("load") * np.linalg.norm(row)
        if self.fault == "role unsaid" and role == "query":
            row = row + direction("query") * np.linalg.norm(row)
        return row

    def pixels(self, item: Item) -> np.ndarray:
        """(frames, height, width, 3)."""
        return self.frames(item).pixels if item.video is not None else read_image(Path(str(item.image)))[None]

    def frames(self, item: Item) -> Frames:
        if isinstance(item.video, np.ndarray):
            return frames_in_memory(item.video, POLICY, fps=item.fps)
        return read_frames(Path(str(item.video)), POLICY, start=item.start, end=item.end)

    def spoiled(self, rows: np.ndarray, items: Sequence[Item]) -> Any:
        """What the fault makes of unit vectors."""
        places = np.arange(len(rows))
        long = [len(item.full_text) > 200 for item in items]
        if self.fault == "sorted":
            places = np.argsort([-len(item.full_text) for item in items], kind="stable")
        if self.fault == "mixed":  # in the order of its first item's kind, whatever the items' order
            kinds = [item.modality for item in items]
            places = np.argsort([kinds.index(kind) for kind in kinds], kind="stable")
            if len(set(kinds)) > 1:
                places = places[::-1]
        rows = rows[places]
        spoil = {
            "float64": lambda: rows.astype(np.float64),
            "list": lambda: rows.tolist(),
            "columns": lambda: np.hstack([rows, np.zeros_like(rows[:, :1])]),
            "fewer rows": lambda: rows[:-1] if len(rows) > 1 else rows,
            "flat": lambda: rows[0] if len(rows) == 1 else rows,
            "nan": lambda: np.where(np.array(long)[:, None], np.float32("nan"), rows),
            "infinity": lambda: np.where(np.array(long)[:, None], np.float32("inf"), rows),
            "zero": lambda: np.where(np.array(long)[:, None], np.float32(0), rows),
            "norm": lambda: rows * np.float32(2),
        }
        return spoil.get(self.fault, lambda: rows)()

    def inspect(self, items: Sequence[Item], *, role: Role) -> list[Inspection]:
        return [self.inspection(item) for item in items]

    def inspection(self, item: Item) -> Inspection:
        kind = item.modality
        slot = {"text": "{text}"}.get(kind, "{video}")
        content = item.full_text if kind == "text" and self.fault != "no words" else "<pad>"
        wording = getattr(PROMPT, kind).replace(slot, content)
        if self.fault == "no prompt":
            wording = content
        asked = used = 0
        if kind == "video":
            frames = self.frames(item)
            asked, used = round(frames.duration * POLICY.fps) or 1, len(frames.pixels)
            asked = min(asked, POLICY.max_frames)
            used = used // 2 if self.fault == "lost frames" else used
        if self.fault == "words only":
            return Inspection(item=item.id, wording=wording)
        return Inspection(
            item=item.id,
            wording=f"user\n{wording}assistant\n",
            visual_tokens=0 if kind == "text" or self.fault == "no tokens" else 7 * max(used, 1),
            frames_asked=asked,
            frames_used=used,
            size=None if kind == "text" else (999, 999) if self.fault == "large" else (160, 224),
            cut_tokens=30 if self.fault == "cut" and len(item.full_text) > 500 else 0,
            reader="decord" if kind == "video" else "",
        )


class WithOptions(Faulty):
    """One that can be loaded with another padding side or dtype.

    Args:
        fault: "padding": the left side is wrong; "dtype": bfloat16 is far from float32; "digits": it is not
            as near as it should be; "no float32" and "no memory": it cannot be loaded in float32.
        padding: side.
        dtype: of the arithmetic.
    """

    def __init__(self, fault: str = "", padding: str = "right", dtype: str = "bfloat16") -> None:
        super().__init__(fault, sees=False)
        if fault == "no float32" and dtype == "float32":
            raise ValueError("dtype must be bfloat16 on this machine, got 'float32'")
        if fault == "no memory" and dtype == "float32":
            raise MemoryError("cannot allocate 28 GiB")
        self.padding, self.dtype = padding, dtype
        self.card = EmbedderCard(name=fault or "sound", dim=DIM, padding=padding, dtype=dtype)

    def row(self, item: Item, role: Role) -> np.ndarray:
        row = super().row(item, role)
        if self.fault == "padding" and self.padding == "left":
            row = row + 0.2 * direction("pad") * np.linalg.norm(row)
        off = {"dtype": 0.3, "digits": 0.07}.get(self.fault, 0.03)
        return row if self.dtype == "float32" else row + off * direction("rounding") * np.linalg.norm(row)


class Bare:
    """What a user may write: no inspection, no frames on the card, and it knows texts only."""

    card = EmbedderCard(name="bare", dim=DIM, weights="1")

    def encode(self, items: Sequence[Item], *, role: Role) -> np.ndarray:
        return np.asarray(Faulty(sees=False).encode(items, role=role))


@lru_cache(maxsize=4096)
def direction(word: str) -> np.ndarray:
    """A unit vector of one's own for each word."""
    vector = np.random.default_rng(crc32(word.encode())).normal(size=DIM)
    return vector / np.linalg.norm(vector)
