"""Real files: constant and variable rate, turned, broken, and things that are no clips."""

import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from media.clips import (
    SIZE,
    corner_frames,
    frame_numbers,
    grey_frames,
    turn_clockwise,
    write_clip,
    write_sound,
)

from vidvec_msg.media import video
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.video import VideoError, frames_in_memory, read_frames

TWO_A_SECOND = FramePolicy(fps=2)


def both_readers(path, policy, **segment):
    """Through decord, and through PyAV alone."""
    return read_frames(path, policy, **segment), read_frames(path, policy, reader="pyav", **segment)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="module")
def steady(clips):
    return write_clip(clips / "steady.mp4", grey_frames(20))  # two seconds at 10 fps


@pytest.fixture(scope="module")
def unsteady(clips):
    times = [*range(0, 1000, 100), 1000, 3000]
    return write_clip(clips / "unsteady.mp4", grey_frames(12), at_ms=times)


def test_reading_before_torch_is_loaded_leaves_torch_whole(steady):
    """decord2 would load libnvblas for all, and torch's first matrix product would crash."""
    program = (
        "import sys; from pathlib import Path; from vidvec_msg.media.frames import FramePolicy; "
        "from vidvec_msg.media.video import read_frames; "
        "print(read_frames(Path(sys.argv[1]), FramePolicy()).reader); assert 'torch' not in sys.modules; "
        "import torch; print(int((torch.ones(300, 300) @ torch.ones(300, 300)).sum()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(steady)], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["decord", str(300**3)], done.stderr


def test_constant_rate(steady):
    for frames in both_readers(steady, TWO_A_SECOND):
        assert frames.pixels.shape == (4, *SIZE, 3)
        assert frames.pixels.dtype == np.uint8
        assert frame_numbers(frames.pixels) == frames.indices.tolist() == [2, 7, 12, 17]
        np.testing.assert_allclose(frames.times, [0.2, 0.7, 1.2, 1.7], atol=1e-6)
        assert frames.fps == pytest.approx(10)
        assert frames.duration == pytest.approx(2)
        assert frames.total_frames == 20
        assert frames.sampled_fps == pytest.approx(2)


def test_decord_comes_first_and_pyav_behind_it(steady, monkeypatch, caplog):
    caplog.set_level("DEBUG", logger="vidvec_msg")
    assert read_frames(steady, TWO_A_SECOND).reader == "decord"

    def fails(*_):
        raise RuntimeError("decord cannot")

    monkeypatch.setattr(video, "_read_with_decord", fails)
    assert read_frames(steady, TWO_A_SECOND).reader == "pyav"
    assert "steady.mp4: decord cannot read it (decord cannot)" in caplog.text


def test_variable_rate(unsteady):
    for frames in both_readers(unsteady, FramePolicy(fps=1)):
        assert frame_numbers(frames.pixels) == [5, 10]  # every fourth frame would be 0, 4, 8
        np.testing.assert_allclose(frames.times, [0.5, 1.0], atol=1e-6)


def test_webm_counts_no_frames_in_its_header(clips):
    path = write_clip(clips / "steady.webm", grey_frames(20), codec="libvpx-vp9")
    for frames in both_readers(path, TWO_A_SECOND):
        assert frame_numbers(frames.pixels) == [2, 7, 12, 17]
        assert frames.total_frames == 20


def test_transport_stream_whose_clock_starts_late(clips):
    path = write_clip(clips / "late.ts", grey_frames(20))
    with av.open(str(path)) as container:
        assert container.streams.video[0].start_time > 0
    for frames in both_readers(path, TWO_A_SECOND):
        assert frame_numbers(frames.pixels) == [2, 7, 12, 17]
        np.testing.assert_allclose(frames.times, [0.2, 0.7, 1.2, 1.7], atol=1e-4)


@pytest.mark.parametrize(
    ("start", "end", "numbers"), [(1.0, 2.0, [12, 17]), (0.5, 1.5, [7, 12]), (1.5, None, [17])]
)
def test_segment(steady, start, end, numbers):
    for frames in both_readers(steady, TWO_A_SECOND, start=start, end=end):
        assert frame_numbers(frames.pixels) == numbers
        np.testing.assert_allclose(frames.times, np.array(numbers) / 10 - start, atol=1e-6)


def test_seeking_finds_the_right_frames_far_from_a_key_frame(clips):
    frames = [np.full((*SIZE, 3), 20 + number % 20 * 10, np.uint8) for number in range(300)]
    path = write_clip(clips / "long.mp4", frames)
    for chosen in both_readers(path, FramePolicy(fps=1), start=20.0, end=24.0):
        assert chosen.indices.tolist() == [205, 215, 225, 235]
        assert frame_numbers(chosen.pixels) == [5, 15, 5, 15]


@pytest.mark.parametrize(
    ("degrees", "white_quarter"), [(90, (0, 1)), (180, (1, 1)), (270, (1, 0))], ids=["90", "180", "270"]
)
@pytest.mark.parametrize("size", [(48, 64), (128, 192)], ids=["small", "large"])
def test_phone_clips_come_out_upright(clips, degrees, white_quarter, size):
    plain = write_clip(clips / f"plain{size[0]}.mp4", corner_frames(10, size=size))
    path = turn_clockwise(plain, clips / f"turned{size[0]}_{degrees}.mp4", degrees=degrees)
    height, width = size if degrees == 180 else size[::-1]
    for frames in both_readers(path, TWO_A_SECOND):
        assert frames.pixels.shape[1:3] == (height, width)
        frame = frames.pixels[0].mean(axis=-1)
        quarters = frame.reshape(2, height // 2, 2, width // 2).mean(axis=(1, 3))
        assert np.unravel_index(quarters.argmax(), (2, 2)) == white_quarter


@pytest.mark.parametrize("count", range(1, 8))
def test_very_short_clips_give_what_exists(clips, count):
    path = write_clip(clips / f"short{count}.mp4", grey_frames(count))
    for frames in both_readers(path, FramePolicy(fps=30)):
        assert frame_numbers(frames.pixels) == list(range(count))


def test_pixel_budget_shrinks_and_never_enlarges(steady):
    small = read_frames(steady, FramePolicy(fps=2, max_pixels=768))
    height, width = small.pixels.shape[1:3]
    assert height * width <= 768
    assert width / height == pytest.approx(SIZE[1] / SIZE[0], rel=0.05)
    assert frame_numbers(small.pixels) == [2, 7, 12, 17]
    assert read_frames(steady, FramePolicy(fps=2, max_pixels=10**9)).pixels.shape[1:3] == SIZE


def test_truncated_file_is_used_as_far_as_it_goes(clips):
    noise = np.random.default_rng(0).integers(0, 255, (40, *SIZE, 3), dtype=np.uint8)
    whole = write_clip(clips / "whole.mp4", list(noise), movflags="faststart")
    path = clips / "half.mp4"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    frames = read_frames(path, TWO_A_SECOND)
    assert 1 <= len(frames.pixels) < 8
    assert len(frames.pixels) == len(frames.times) == len(frames.indices)


def _no_moov(folder):
    whole = write_clip(folder / "moov_last.mp4", grey_frames(20))
    path = folder / "no_moov.mp4"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


def _text(folder):
    path = folder / "text.mp4"
    path.write_text("<html>Not found</html>\n" * 50)
    return path


def _empty(folder):
    path = folder / "empty.mp4"
    path.touch()
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "missing.mp4", "no such file: .*missing.mp4"),
        (lambda folder: folder, "a folder, not a file: "),
        (_empty, "empty file: .*empty.mp4"),
        (_text, r"text.mp4: not a video, or broken beyond use \(Invalid data"),
        (_no_moov, r"no_moov.mp4: not a video, or broken beyond use"),
        (lambda folder: write_sound(folder / "sound.mp4"), r"sound.mp4: no video stream \(it holds audio\)"),
    ],
    ids=["missing", "folder", "empty", "text", "truncated", "sound only"],
)
def test_what_is_no_clip_gets_a_reason_in_one_line(tmp_path, make, reason):
    with pytest.raises(VideoError, match=reason) as caught:
        read_frames(make(tmp_path), TWO_A_SECOND)
    assert "\n" not in str(caught.value)


def test_segment_outside_the_clip_names_the_file(steady):
    with pytest.raises(VideoError, match=r"steady.mp4: segment 5–9 s begins after the clip's end at 2.00 s"):
        read_frames(steady, TWO_A_SECOND, start=5, end=9)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files as Linux lists them")
def test_readers_are_closed(steady, tmp_path):
    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    for read in (lambda: read_frames(steady, TWO_A_SECOND), lambda: both_readers(steady, TWO_A_SECOND)):
        read()
        before = open_files()
        for _ in range(10):
            read()
        assert open_files() == before


# --- frames in memory -------------------------------------------------------------------------------


def test_frames_in_memory_are_chosen_like_those_of_a_file():
    pixels = np.stack(grey_frames(20))
    frames = frames_in_memory(pixels, TWO_A_SECOND, fps=10)
    assert frame_numbers(frames.pixels) == [2, 7, 12, 17]
    assert (frames.reader, frames.duration) == ("memory", 2.0)


def test_frames_of_unknown_rate_were_taken_at_the_policys():
    frames = frames_in_memory(np.stack(grey_frames(6)), TWO_A_SECOND)
    assert frame_numbers(frames.pixels) == list(range(6))
    np.testing.assert_allclose(frames.times, np.arange(6) / 2)


@pytest.mark.parametrize(
    ("pixels", "reason"),
    [
        ("frames", "must be a numpy array of uint8 .*, got str"),
        ([[1, 2]], "got list"),
        (np.zeros((4, 8, 8, 3), np.float32), "must be uint8 from 0 to 255, got float32"),
        (np.zeros((4, 3, 8, 8), np.uint8), r"got \(4, 3, 8, 8\); channels come last"),
        (np.zeros((8, 8, 3), np.uint8), r"must have shape \(frames, height, width, 3\), got \(8, 8, 3\)"),
        (np.zeros((4, 8, 8, 4), np.uint8), r"got \(4, 8, 8, 4\)"),
        (np.zeros((0, 8, 8, 3), np.uint8), "are empty"),
    ],
)
def test_frames_in_memory_are_checked_and_never_stringified(pixels, reason):
    with pytest.raises(VideoError, match=reason):
        frames_in_memory(pixels, TWO_A_SECOND)
