"""Before and after, from the rows of metrics.csv; and the picture of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vidvec_msg.train.curves import draw_curves
from vidvec_msg.train.ending import changes, no_better, split_name, told

TABLE = {
    0: {"train/loss": 3.0, "val/forward/map": 0.1, "val/reverse/map": 0.2, "val/pairs/forward/mrr": 0.5},
    1: {"train/loss": 2.0},
    2: {"train/loss": 1.0, "val/loss": 2.0, "val/forward/map": 0.4, "val/reverse/map": 0.2},
    3: {"train/loss": 1.5, "val/pairs/forward/mrr": 0.25},
    4: {"val/forward/map": 0.3, "val/reverse/map": 0.1, "val/new/forward/map": 0.7},
}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            4,
            [
                "val/forward (step 4): map 0.1000 → 0.3000",
                "val/reverse (step 4): map 0.2000 → 0.1000",
                "val/new/forward (step 4): map 0.7000",
                "val/pairs/forward (step 3): mrr 0.5000 → 0.2500",
            ],
        ),
        (
            2,  # the embedder is made from step 2: what came later does not describe it
            ["val/forward (step 2): map 0.1000 → 0.4000", "val/reverse (step 2): map 0.2000 → 0.2000"],
        ),
    ],
)
def test_lines_tell_what_was_measured_of_the_embedders_step(step: int, expected: list[str]) -> None:
    assert told(changes(TABLE, step)) == expected


def test_directions_without_a_better_metric_are_named() -> None:
    assert no_better(changes(TABLE, 4)) == ["val/reverse", "val/pairs/forward"]
    assert no_better(changes(TABLE, 2)) == ["val/reverse"]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("val/forward/map", ("val", "forward", "map")),
        ("val/clips/reverse/hit_rate@1", ("val/clips", "reverse", "hit_rate@1")),
        ("train/loss", ("train/loss", "", "")),
        ("forward/map", ("forward/map", "", "")),
        ("lr", ("lr", "", "")),
    ],
)
def test_names(name: str, parts: tuple[str, str, str]) -> None:
    assert split_name(name) == parts


def coloured(path: Path, colour: tuple[int, int, int]) -> int:
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(pixels - colour).sum(-1) < 12).sum())


FORWARD, REVERSE, VALIDATION = (0x1F, 0x5F, 0xA8), (0xC2, 0x57, 0x1A), (0x2F, 0x7D, 0x4F)


def test_the_picture_shows_both_directions_and_the_loss(tmp_path: Path) -> None:
    draw_curves(tmp_path / "all.png", TABLE, best=2)
    assert all(coloured(tmp_path / "all.png", colour) > 50 for colour in (FORWARD, REVERSE, VALIDATION))
    one_way = {step: {n: v for n, v in row.items() if "reverse" not in n} for step, row in TABLE.items()}
    draw_curves(tmp_path / "one.png", one_way)
    assert coloured(tmp_path / "one.png", FORWARD) > 50
    assert coloured(tmp_path / "one.png", REVERSE) == 0
    wide, narrow = (Image.open(tmp_path / name).width for name in ("all.png", "one.png"))
    assert wide == narrow  # panels for val, val/new, val/pairs in both: measurements, not directions


@pytest.mark.parametrize(
    "table",
    [{}, {0: {"train/loss": float("nan")}}, {0: {"val/forward/map": 0.5}}],
    ids=["no row", "nan", "0"],
)
def test_a_run_with_little_to_show_is_drawn_too(tmp_path: Path, table: dict[int, dict[str, float]]) -> None:
    draw_curves(tmp_path / "c.png", table)
    assert Image.open(tmp_path / "c.png").width > 300
