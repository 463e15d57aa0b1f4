"""Which frames are shown: tables worked out by hand."""

import numpy as np
import pytest

from vidvec_msg.media.frames import FramePolicy, frame_times
from vidvec_msg.media.timetable import Timetable, VideoError, choose_frames

TEN_AT_TEN = Timetable.at_constant_rate(10, 10.0)  # one second


@pytest.mark.parametrize(
    ("seconds", "fps", "most", "expected"),
    [
        (4.0, 1.0, 64, [0.5, 1.5, 2.5, 3.5]),
        (4.0, 0.5, 64, [1.0, 3.0]),
        (4.0, 2.0, 2, [1.0, 3.0]),  # the cap changes the spacing, not the coverage
        (0.2, 1.0, 64, [0.1]),  # at least one
    ],
)
def test_frame_times(seconds, fps, most, expected):
    times = frame_times(0.0, seconds, FramePolicy(fps=fps, max_frames=most))
    np.testing.assert_allclose(times, expected)


@pytest.mark.parametrize(
    ("policy", "start", "end", "indices", "times"),
    [
        (FramePolicy(fps=2), None, None, [2, 7], [0.2, 0.7]),
        (FramePolicy(fps=10), None, None, list(range(10)), [n / 10 for n in range(10)]),
        (FramePolicy(fps=30), None, None, list(range(10)), [n / 10 for n in range(10)]),  # each frame once
        (FramePolicy(fps=4), 0.5, None, [6, 8], [0.1, 0.3]),  # seconds from the segment's beginning
        (FramePolicy(fps=4), 0.0, 0.5, [1, 3], [0.1, 0.3]),
        (FramePolicy(fps=2), 0.0, 99.0, [2, 7], [0.2, 0.7]),  # an end behind the clip's is the clip's
        (FramePolicy(fps=1), 0.95, None, [9], [0.0]),
    ],
)
def test_choice_at_constant_rate(policy, start, end, indices, times):
    choice = choose_frames(TEN_AT_TEN, policy, start=start, end=end)
    assert choice.indices.tolist() == indices
    np.testing.assert_allclose(choice.times, times, atol=1e-9)


def test_variable_rate_is_sampled_by_time_and_not_by_number():
    # ten frames within the first second, then two stills of two seconds each
    table = Timetable(np.array([n / 10 for n in range(10)] + [1.0, 3.0]), 5.0)
    choice = choose_frames(table, FramePolicy(fps=1), start=None, end=None)
    assert choice.indices.tolist() == [5, 10, 11]  # at 0.5, then 1.5 and 2.5, then 3.5 and 4.5
    assert choice.times.tolist() == [0.5, 1.0, 3.0]


def test_frames_before_zero_are_not_seen():
    table = Timetable(np.array([-1.0, -0.5, 0.0, 0.5]), 1.0)
    assert choose_frames(table, FramePolicy(fps=2), start=None, end=None).indices.tolist() == [2, 3]


def test_a_frame_without_duration_is_still_a_frame():
    table = Timetable(np.array([0.0]), 0.0)
    choice = choose_frames(table, FramePolicy(fps=2), start=None, end=None)
    assert choice.indices.tolist() == [0]
    assert table.fps == 1.0


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (2.0, 3.0, r"segment 2–3 s begins after the clip's end at 1.00 s"),
        (2.0, None, r"segment 2–end s begins after"),
        (0.5, 0.5, "is empty"),
        (-1.0, None, "begins before 0"),
    ],
)
def test_segments_outside_are_refused(start, end, reason):
    with pytest.raises(VideoError, match=reason):
        choose_frames(TEN_AT_TEN, FramePolicy(), start=start, end=end)


def test_no_frames():
    with pytest.raises(VideoError, match="holds no frames"):
        choose_frames(Timetable(np.array([]), 0.0), FramePolicy(), start=None, end=None)


def test_policy_values_are_checked():
    with pytest.raises(ValueError, match="frames per second must be above 0, got 0"):
        FramePolicy(fps=0)
    with pytest.raises(ValueError, match="max_frames must be at least 1"):
        FramePolicy(max_frames=0)
    with pytest.raises(ValueError, match="max_pixels must be 0"):
        FramePolicy(max_pixels=-1)
    assert repr(FramePolicy(fps=2)) == repr(FramePolicy(fps=2.0))  # one policy, one fingerprint
