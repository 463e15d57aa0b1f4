"""What is told about what a model was given."""

from __future__ import annotations

import pytest

from vidvec_msg.embedders.inspection import Tally


@pytest.mark.parametrize(
    ("tally", "told"),
    [
        (Tally(), ""),
        (
            Tally(clips=1200, frames_asked=9600, frames_used=9590, visual_tokens=230160),
            "1,200 clips (9,590 of 9,600 frames asked for), 230,160 visual tokens",
        ),
        (
            Tally(heard=3, silent=2, soundless=1, cut_sounds=1),
            "3 sounds heard (1 cut), 2 clips silent, 1 without a sound track",
        ),
    ],
)
def test_a_tally_is_one_line(tally: Tally, told: str) -> None:
    assert str(tally) == told
