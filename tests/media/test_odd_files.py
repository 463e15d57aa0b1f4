"""What becomes of odd files: which frames, read by whom, or which reason; docs/decoding.md says the same."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from media import odd_files
from media.clips import frame_numbers, write_clip

from vidvec_msg.media import pyav_reader, video
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.sound import NoSound
from vidvec_msg.media.video import VideoError, read_frames

TWO_A_SECOND = FramePolicy(fps=2)
LITTLE_MEMORY = 256  # MiB


@pytest.fixture(scope="module")
def pool() -> Iterator[DecodePool]:
    pool = DecodePool(workers=1, timeout=60, memory=LITTLE_MEMORY)
    yield pool
    pool.close()


@dataclass(frozen=True)
class Read:
    """What is read of a file at 2 frames per second.

    Args:
        make: writes the file.
        frames: their numbers.
        seconds: at which they appear.
        reader: who decodes.
        facts: some of what probing finds.
    """

    make: Callable[[Path], Path]
    frames: list[int]
    seconds: list[float]
    reader: str = "decord"
    facts: dict[str, Any] = field(default_factory=dict)


STEADY = [2, 7, 12, 17], [0.2, 0.7, 1.2, 1.7]
UNSTEADY = [2, 7, 10], [0.2, 0.7, 1.0]

READ = {
    "variable rate": Read(odd_files.variable_rate, *UNSTEADY, facts={"variable_rate": True, "frames": 12}),
    "turned": Read(odd_files.turned, *STEADY, facts={"rotation": -90, "height": 96, "width": 64}),
    "turned, odd width": Read(odd_files.turned_to_odd_width, *STEADY, "pyav", facts={"width": 48}),
    "AV1": Read(odd_files.av1, *STEADY, facts={"codec": "libdav1d"}),
    "HEVC, 10 bits": Read(odd_files.hevc_of_10_bits, *STEADY, facts={"codec": "hevc"}),
    "VP9 in WebM": Read(odd_files.vp9, *STEADY, facts={"codec": "vp9", "frames": 20}),
    "FLV": Read(odd_files.flash, *STEADY, facts={"duration": 2.0}),
    "GIF": Read(odd_files.animated, *STEADY, facts={"medium": "video"}),
    "silent": Read(odd_files.silent, *STEADY, facts={"has_sound": False}),
    "silent track": Read(odd_files.with_silent_track, *STEADY, facts={"has_sound": True}),
    "one frame": Read(odd_files.one_frame, [0], [0.0], facts={"frames": 1, "duration": 0.1}),
    "header overcounts": Read(odd_files.overcounting_header, *STEADY, "pyav", facts={"frames": 20}),
    "index overcounts": Read(
        odd_files.overcounting_index, *STEADY, "pyav", facts={"frames": 40, "decoded_frames": 20}
    ),
    "bit rot": Read(
        odd_files.rotten,
        [2, 7, 2, 7, 12, 17],
        [0.2, 0.7, 2.2, 2.7, 3.2, 3.7],
        "pyav",
        facts={"frames": 40, "decoded_frames": 32},
    ),
    "edit list": Read(odd_files.edited, [12, 17], [0.2, 0.7], "pyav", facts={"duration": 1.0, "frames": 10}),
    "wrong suffix": Read(odd_files.misnamed, *UNSTEADY, facts={"container": "mov,mp4,m4a,3gp,3g2,mj2"}),
    "strange name": Read(odd_files.strange_name, *UNSTEADY),
    "link": Read(odd_files.linked, *UNSTEADY),
    "still picture": Read(odd_files.still_picture, [3], [0.0], "pyav", facts={"frames": 1}),
}


@pytest.mark.parametrize("name", READ)
def test_frames_by_their_seconds(name: str, pool: DecodePool, tmp_path: Path) -> None:
    odd = READ[name]
    path = odd.make(tmp_path)
    frames = pool.read(path, TWO_A_SECOND)
    assert frames.reader == odd.reader
    assert frame_numbers(frames.pixels) == odd.frames
    np.testing.assert_allclose(frames.times, odd.seconds, atol=1e-3)
    with_pyav = read_frames(path, TWO_A_SECOND, reader="pyav")
    assert frame_numbers(with_pyav.pixels) == odd.frames
    np.testing.assert_allclose(with_pyav.times, odd.seconds, atol=1e-3)
    facts = pool.facts(path, depth="all")
    assert {key: getattr(facts, key) for key in odd.facts} == odd.facts


@pytest.mark.parametrize(
    ("make", "reader"), [(odd_files.truncated_mp4, "pyav"), (odd_files.truncated_webm, "decord")]
)
def test_truncated_files_are_used_as_far_as_they_go(
    make: Callable[[Path], Path], reader: str, pool: DecodePool, tmp_path: Path
) -> None:
    path = make(tmp_path)
    frames = pool.read(path, TWO_A_SECOND)
    assert frames.reader == reader
    assert 0.5 < frames.duration < 1.9  # of two seconds
    assert len(frames.pixels) == round(frames.duration * 2)
    assert frame_numbers(frames.pixels) == np.round(frames.times * 10).tolist() == frames.indices.tolist()
    assert frame_numbers(read_frames(path, TWO_A_SECOND, reader="pyav").pixels) == frame_numbers(
        frames.pixels
    )


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "sound alone": (odd_files.sound_alone, r"song\.mp4: no video stream \(it holds audio\)"),
    "song with cover": (odd_files.sound_with_cover, r"song\.m4a: no video stream \(it holds audio\)"),
    "no frame": (odd_files.no_frame, r"none\.mp4: no video stream \(it holds nothing\)"),
    "cut before its index": (
        odd_files.truncated_before_index,
        r"no_index\.mp4: not a video, or broken beyond use \(Invalid data found when processing input\)",
    ),
    "web page": (odd_files.web_page, r"page\.mp4: not a video, or broken beyond use \(Invalid data"),
    "noise": (odd_files.noise, r"noise\.mp4: not a video, or broken beyond use \(Invalid data"),
    "animated WebP": (
        odd_files.animated_webp,
        r"moving\.webp: broken beyond use \(no frame could be decoded\)",
    ),
    "empty": (odd_files.empty, r"empty file: .*empty\.mp4"),
    "folder": (odd_files.folder_called_clip, r"a folder, not a file: .*folder\.mp4"),
    "broken link": (
        odd_files.broken_link,
        r"no such file: .*gone\.mp4 \(a link to moved_away\.mp4, which is not there\)",
    ),
    "pipe": (odd_files.named_pipe, r"neither a file nor a folder, but a pipe or device: .*pipe\.mp4"),
    "name in Latin-1": (
        odd_files.name_of_other_bytes,
        r"its name is not UTF-8, rename it: '.*caf\\udce9\.mp4'",
    ),
    "enormous": (
        odd_files.enormous,
        rf"bomb\.gif: decoding it takes more than {LITTLE_MEMORY} MiB; fewer frames or max_pixels may help",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_reason_in_one_line(name: str, pool: DecodePool, tmp_path: Path) -> None:
    make, reason = REFUSED[name]
    if name in ("pipe", "name in Latin-1", "enormous") and sys.platform != "linux":
        pytest.skip("no such files, or no such limit, on this system")
    path = make(tmp_path)
    with pytest.raises(VideoError) as caught:
        pool.read(path, TWO_A_SECOND)
    assert re.search(reason, str(caught.value))
    assert "\n" not in str(caught.value)


def test_a_clip_that_is_called_a_picture(pool: DecodePool, tmp_path: Path) -> None:
    path = odd_files.called_a_picture(tmp_path)
    assert frame_numbers(pool.read(path, TWO_A_SECOND).pixels) == UNSTEADY[0]
    with pytest.raises(VideoError, match=r"not an image: .*clip\.jpg; it is video, rename it"):
        pool.facts(path)


def test_a_silent_clip_has_no_sound_and_a_silent_track_has(pool: DecodePool, tmp_path: Path) -> None:
    with pytest.raises(NoSound, match=r"silent\.mp4: no sound stream \(it holds video\)"):
        pool.read_sound(odd_files.silent(tmp_path))
    assert pool.read_sound(odd_files.with_silent_track(tmp_path)).silent


@pytest.mark.parametrize("name", ["stream.m3u8", "stream.mp4"])
def test_nothing_is_fetched(name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = odd_files.playlist(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/part.ts")
        path = path.rename(tmp_path / name)
        with pytest.raises(VideoError, match="not a video"):
            read_frames(path, TWO_A_SECOND)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


# --- large files ------------------------------------------------------------------------------------


def test_4k_within_little_memory(pool: DecodePool, tmp_path: Path) -> None:
    """Five frames take 125 MB as they are, and one once they fit the pixel budget, one after the other."""
    path = odd_files.four_k(tmp_path)
    small = pool.read(path, FramePolicy(fps=2, max_pixels=320 * 180))
    assert frame_numbers(small.pixels) == list(range(5))
    assert small.pixels.shape == (5, 180, 320, 3)
    with pytest.raises(VideoError, match=rf"4k\.mp4: .* more than (the )?{LITTLE_MEMORY} MiB"):
        pool.read(path, FramePolicy(fps=2))
    assert len(pool.read(path, FramePolicy(fps=2, max_pixels=320 * 180)).pixels) == 5  # the job goes on


@pytest.mark.parametrize("max_pixels", [0, 500])
def test_large_frames_are_read_in_parts(
    max_pixels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = odd_files.silent(tmp_path)
    policy = FramePolicy(fps=10, max_pixels=max_pixels)
    whole = read_frames(path, policy)
    for part in (1, 3 * 48 * 64 * 3, 1 << 26):  # bytes: one frame, three, all
        monkeypatch.setattr(video, "_PART", part)
        frames = read_frames(path, policy)
        assert frames.reader == "decord"
        np.testing.assert_array_equal(frames.pixels, whole.pixels)


def test_three_hours_are_read_here_and_there(
    pool: DecodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both readers: a few frames from the key frame before each, in little memory."""
    path = odd_files.three_hours(tmp_path)
    policy = FramePolicy.uniform(16)
    middles = (np.arange(16) + 0.5) * 10_800 / 16
    brightness = 20 + 3 * (middles * 10 % 60)
    frames = pool.read(path, policy)
    assert (frames.reader, frames.total_frames) == ("decord", 108_000)
    assert frames.duration == pytest.approx(10_800)
    np.testing.assert_allclose(frames.times, middles, atol=1e-3)
    np.testing.assert_allclose(frames.pixels.mean(axis=(1, 2, 3)), brightness, atol=2)

    decoded = 0
    decodable = pyav_reader.decodable

    def counted(*arguments: Any) -> Iterator[tuple[int, Any]]:
        nonlocal decoded
        for one in decodable(*arguments):
            decoded += 1
            yield one

    monkeypatch.setattr(pyav_reader, "decodable", counted)
    with_pyav = read_frames(path, policy, reader="pyav")
    np.testing.assert_array_equal(with_pyav.indices, frames.indices)
    np.testing.assert_allclose(with_pyav.pixels.mean(axis=(1, 2, 3)), brightness, atol=2)
    assert decoded < 16 * 60


# --- the frames that were chosen, and no others -------------------------------------------------------

H264 = {"closed": "keyint=30:bframes=3:b-pyramid=normal", "long": "keyint=250:bframes=16:b-adapt=0"}
H264 |= {"short": "keyint=12:min-keyint=12:bframes=0", "open": "keyint=30:bframes=3:open-gop=1:scenecut=0"}
ENCODED: dict[str, tuple[str, str, dict[str, str], str]] = {  # suffix, codec, options, who reads
    "H.264, closed groups": ("mp4", "libx264", {"x264-params": H264["closed"]}, "decord"),
    "H.264 in Matroska": ("mkv", "libx264", {"x264-params": H264["closed"]}, "decord"),
    "H.264, one group": ("mp4", "libx264", {"x264-params": H264["long"]}, "decord"),
    "H.264, short groups": ("mkv", "libx264", {"x264-params": H264["short"]}, "decord"),
    "H.264, open groups": ("mp4", "libx264", {"x264-params": H264["open"]}, "pyav"),
    "H.264, open, Matroska": ("mkv", "libx264", {"x264-params": H264["open"]}, "pyav"),
    "H.264, refreshed bit by bit": ("mp4", "libx264", {"x264-params": "intra-refresh=1:keyint=30"}, "pyav"),
    "H.264 in MPEG-TS": ("ts", "libx264", {"x264-params": H264["closed"]}, "pyav"),
    "H.264, open, MPEG-TS": ("ts", "libx264", {"x264-params": H264["open"]}, "pyav"),
    "HEVC as x265 makes it": ("mp4", "libx265", {"x265-params": "log-level=none:pools=1:keyint=30"}, "pyav"),
    "VP9 with hidden frames": ("webm", "libvpx-vp9", {"g": "30", "auto-alt-ref": "1"}, "decord"),
    "AV1": ("mp4", "libsvtav1", {"preset": "11", "g": "30"}, "decord"),
    "MPEG-4 in AVI": ("avi", "mpeg4", {"g": "30", "bf": "2"}, "pyav"),
    "MPEG-4 in MP4": ("mp4", "mpeg4", {"g": "30", "bf": "2"}, "pyav"),
    "MPEG-2 in MPEG-TS": ("ts", "mpeg2video", {"g": "15", "bf": "2"}, "pyav"),
    "WMV": ("wmv", "wmv2", {"g": "30"}, "pyav"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_the_frames_that_were_chosen_and_no_others(name: str, tmp_path: Path) -> None:
    """Of both readers, with their seeks and what they leave out, against every frame decoded in order."""
    suffix, codec, options, reader = ENCODED[name]
    rate = 25 if codec == "mpeg2video" else 10
    pictures = [np.pad(one, ((8, 8), (0, 0), (0, 0)), mode="edge") for one in odd_files.grainy_frames(100)]
    path = write_clip(tmp_path / f"clip.{suffix}", pictures, codec=codec, options=options, fps=rate)
    with av.open(str(path)) as container:
        every = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    assert len(every) == 100
    random = np.random.default_rng(0)
    for share in (0.02, 0.05, 0.1, 0.3):  # of the frames
        for start in (None, float(random.uniform(0, 80)) / rate):
            policy = FramePolicy(fps=share * rate)
            frames = read_frames(path, policy, start=start)
            assert frames.reader == reader
            with_pyav = frames if reader == "pyav" else read_frames(path, policy, start=start, reader="pyav")
            assert with_pyav.indices.tolist() == frames.indices.tolist()
            np.testing.assert_array_equal(with_pyav.pixels, every[frames.indices])
            apart = np.abs(frames.pixels.astype(int) - every[frames.indices]).mean()
            assert apart < 1.5  # decord rounds colours in another way; neighbours are 10 apart


def test_no_neighbour_is_given_for_a_frame_that_does_not_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is not forbidden, decord repeats the nearest frame and says nothing."""
    options = {"x264-params": "intra-refresh=1:keyint=30"}
    path = write_clip(tmp_path / "clip.mp4", odd_files.grainy_frames(100), options=options)
    policy = FramePolicy(fps=2)
    monkeypatch.setattr(video, "decord_doubt", lambda packets: "")
    with pytest.raises(VideoError, match=r"decord cannot read it .*duplicate frames"):
        read_frames(path, policy, reader="decord")
    monkeypatch.setattr(video, "_NO_SUBSTITUTES", -1)
    silent = read_frames(path, policy, reader="decord")
    assert frame_numbers(silent.pixels) != [n % 20 for n in silent.indices]


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        ([3], [(0, [3])]),
        ([12], [(0, [12])]),  # not worth a seek: 10 frames at most from the beginning
        ([25, 28], [(20, [25, 28])]),
        ([5, 9, 31, 38, 45], [(0, [5, 9]), (30, [31, 38, 45])]),
    ],
)
def test_where_decoding_begins(
    wanted: list[int], parts: list[tuple[int, list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyav_reader, "_WORTH_SEEKING", 12)
    assert pyav_reader.stretches(np.array([0, 10, 20, 30, 40]), wanted) == parts


def test_a_last_frame_of_unknown_duration_stays_as_long_as_most() -> None:
    table, origin = pyav_reader._from_zero(np.array([2.0, 2.1, 2.2, 2.5]), 0.0)
    assert (table.end, origin) == (pytest.approx(0.6), 2.0)


def test_the_name_of_a_file_is_no_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = odd_files.strange_name(tmp_path)
    monkeypatch.chdir(tmp_path)
    for reader in ("decord", "pyav"):
        assert len(read_frames(Path(path.name), TWO_A_SECOND, reader=reader).pixels) == 3  # type: ignore[arg-type]


def test_every_maker_is_used() -> None:
    used = {odd.make.__name__ for odd in READ.values()} | {make.__name__ for make, _ in REFUSED.values()}
    others = {"grainy_frames", "half", "damaged", "playlist", "four_k", "three_hours"}
    others |= {"truncated_mp4", "truncated_webm", "called_a_picture"}
    made_here = {
        name for name, one in vars(odd_files).items() if getattr(one, "__module__", "") == odd_files.__name__
    }
    assert made_here == used | others
