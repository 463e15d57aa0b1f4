"""The scale, the collapsed one, and what a cell says."""

from __future__ import annotations

import pytest

from vidvec_msg.data_synth.annotation.scale import COLLAPSED, MEANINGS, SCALE, collapsed, rating_of


def test_the_collapsed_scale_is_the_papers():
    # "ratings 4-6 are treated as positive, rating 3 as neutral, and ratings 1-2 as negative" (§4)
    assert [collapsed(rating) for rating in SCALE] == [0, 0, 1, 2, 2, 2]
    assert {collapsed(rating) for rating in SCALE} == set(COLLAPSED)
    assert tuple(MEANINGS) == SCALE


@pytest.mark.parametrize(
    ("cell", "rating"),
    [("4", 4), (" 4.0 ", 4), ("Too obvious", 6), ("too_obvious", 6), ("6", 6), ("", None), (" NA ", None),
     ("cannot judge", None), ("skip", None)],
)  # fmt: skip
def test_cells(cell: str, rating: int | None):
    assert rating_of(cell) == rating


@pytest.mark.parametrize("cell", ["0", "7", "3.5", "-1", "four", "inf", "1e400"])
def test_cells_that_say_nothing_on_the_scale(cell: str):
    with pytest.raises(ValueError, match=r"not on the scale|could not convert"):
        rating_of(cell)
