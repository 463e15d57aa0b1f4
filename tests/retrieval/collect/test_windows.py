from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.retrieval.collect.windows import windows


@settings(deadline=None)
@given(
    duration=st.floats(0, 10_000).map(lambda value: round(value, 2)),
    length=st.floats(1, 600).map(lambda value: round(value, 1)),
    share=st.floats(0, 0.9),
)
def test_windows_cover_a_clip_with_one_length(duration: float, length: float, share: float) -> None:
    overlap = round(length * share, 2)
    found = windows(duration, length, overlap)
    if duration <= length:
        assert found == []
        return
    assert found[0][0] == 0
    assert found[-1][1] == pytest.approx(duration, abs=1e-2)
    for start, end in found:
        assert end - start == pytest.approx(length, abs=2e-3)
    for (start, end), (following, _) in pairwise(found):
        assert start < following <= end - overlap + 2e-3  # no gap, and at least the overlap


def test_the_last_window_does_not_stand_twice() -> None:
    assert windows(2.0, 1.0, 0.8) == [(0, 1), (0.2, 1.2), (0.4, 1.4), (0.6, 1.6), (0.8, 1.8), (1, 2)]


@pytest.mark.parametrize(("length", "overlap"), [(0, 0), (-1, 0), (10, 10), (10, -1)])
def test_windows_that_cannot_be_are_refused(length: float, overlap: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        windows(100, length, overlap)
