"""What files tell about themselves; every file is a real one, made here."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from media.clips import grey_frames, turn_clockwise, write_clip, write_sound
from media.sounds import tone, write_media
from PIL import Image

from vidvec_msg.media.facts import medium_of_name, read_facts
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.video import VideoError


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clip(tmp_path_factory.mktemp("clips") / "clip ä.mp4", grey_frames(20))


def test_a_clip_tells_what_it_is(clip: Path) -> None:
    facts = read_facts(clip, depth="all")
    assert (facts.medium, facts.codec, facts.frames, facts.decoded_frames) == ("video", "h264", 20, 20)
    assert (facts.duration, facts.fps, facts.height, facts.width) == (2.0, 10.0, 48, 64)
    assert (facts.rotation, facts.variable_rate, facts.has_sound) == (0, False, False)


def test_the_first_frame_alone_leaves_the_others_uncounted(clip: Path) -> None:
    assert read_facts(clip).decoded_frames is None


def test_the_pool_gives_the_same_facts(clip: Path) -> None:
    pool = DecodePool(1)
    try:
        assert pool.facts(clip, depth="all") == read_facts(clip, depth="all")
        with pytest.raises(VideoError, match="no such file"):
            pool.facts(clip.with_name("gone.mp4"))
    finally:
        pool.close()


def test_stopping_after_the_first_frame_never_hangs(clip: Path) -> None:
    """Frame threads that log through Python wait for a lock which the closing thread holds."""
    for _ in range(60):
        read_facts(clip)


def test_a_turned_clip_is_upright(clip: Path, tmp_path: Path) -> None:
    facts = read_facts(turn_clockwise(clip, tmp_path / "turned.mp4", degrees=90))
    assert (facts.height, facts.width) == (64, 48)
    assert abs(facts.rotation) == 90


def test_a_variable_rate_is_seen(tmp_path: Path) -> None:
    times = [n * n * 20 for n in range(20)]
    facts = read_facts(write_clip(tmp_path / "vfr.mkv", grey_frames(20), at_ms=times))
    assert facts.variable_rate
    assert facts.frames == 20
    assert 7.2 < facts.duration < 7.6


def test_a_header_without_a_count_is_no_matter(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.webm", grey_frames(12), codec="libvpx-vp9")
    with av.open(str(path)) as container:
        assert container.streams.video[0].frames == 0
    assert read_facts(path).frames == 12


def test_frames_that_do_not_decode_are_told(clip: Path, tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", grey_frames(20) * 2, movflags="faststart")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * 0.8)])
    facts = read_facts(path, depth="all")
    assert facts.decoded_frames is not None
    assert 0 < facts.decoded_frames <= facts.frames <= 40
    assert facts.decoded_frames < 40


def test_sound_is_heard_of(tmp_path: Path) -> None:
    with_sound = write_media(tmp_path / "loud.mp4", samples=tone(1.0), frames=grey_frames(8))
    assert read_facts(with_sound).has_sound
    alone = read_facts(write_sound(tmp_path / "talk.m4a"))
    assert (alone.medium, alone.duration, alone.frames) == ("audio", 1.0, 0)


def test_an_image_has_a_size_and_no_time(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((30, 40, 3), np.uint8)).save(tmp_path / "a.png")
    facts = read_facts(tmp_path / "a.png")
    assert (facts.medium, facts.container, facts.height, facts.width) == ("image", "png", 30, 40)
    assert facts.duration == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "empty file"), (b"<html></html>", "no media file"), (b"\0" * 5000, "no media file")],
)
def test_what_is_no_medium_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(content)
    with pytest.raises(VideoError, match=told):
        read_facts(tmp_path / "clip.mp4")


def test_names_are_read_whatever_their_case() -> None:
    assert medium_of_name(Path("A.MP4")) == "video"
    assert medium_of_name(Path("a.Jpeg")) == "image"
    assert medium_of_name(Path("a.docx")) is None
    assert medium_of_name(Path("mp4")) is None
