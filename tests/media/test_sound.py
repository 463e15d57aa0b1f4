"""Sound of files: the right samples at the right second, silence told from sound, errors in one line."""

import signal

import numpy as np
import pytest
from media.clips import grey_frames, write_clip
from media.sounds import level, pitch, tone, write_media

from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.sound import SILENCE, NoSound, Sound, SoundError, loudest_second, read_sound

PICTURES = grey_frames(20)  # two seconds at 10 fps


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sounds")


@pytest.fixture(scope="module")
def rising(folder):
    """440 Hz in the first second, 880 in the second, 1760 in the third."""
    notes = np.concatenate([tone(1, hertz=hertz) for hertz in (440, 880, 1760)])
    return write_media(folder / "rising.wav", samples=notes, codec="pcm_s16le")


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.wav", "pcm_s16le"),
        ("b.mp4", "aac"),
        ("c.mkv", "libopus"),
        ("d.mp3", "libmp3lame"),
        ("e.flac", "flac"),
    ],
)
def test_any_codec_gives_the_tone_at_its_level(folder, name, codec):
    rate = 48_000
    path = write_media(folder / name, samples=tone(2, rate=rate), rate=rate, codec=codec)
    sound = read_sound(path)
    assert (sound.samples.dtype, sound.samples.ndim, sound.rate) == (np.float32, 1, 16_000)
    assert sound.duration == len(sound.samples) / 16_000
    assert sound.duration == pytest.approx(2, abs=0.06)  # a codec's last block is filled up
    middle = sound.samples[8_000:24_000]
    assert pitch(middle, 16_000) == pytest.approx(440, abs=2)
    assert level(middle) == pytest.approx(0.3 / np.sqrt(2), rel=0.05)
    assert not sound.silent


def test_uncompressed_sound_comes_back_sample_for_sample(folder):
    written = tone(1)
    path = write_media(folder / "exact.wav", samples=written, codec="pcm_f32le")
    np.testing.assert_allclose(read_sound(path).samples, written, atol=1e-6)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050])
def test_rate_is_the_asked_one(folder, rate):
    path = write_media(
        folder / f"rate{rate}.wav", samples=tone(1, rate=44_100), rate=44_100, codec="pcm_s16le"
    )
    sound = read_sound(path, rate=rate)
    assert len(sound.samples) == pytest.approx(rate, abs=2)
    assert pitch(sound.samples, rate) == pytest.approx(440, abs=2)


def test_channels_are_mixed_into_one(folder):
    two = np.stack([tone(1), np.zeros(16_000, np.float32)])
    path = write_media(folder / "stereo.wav", samples=two, layout="stereo", codec="pcm_f32le")
    np.testing.assert_allclose(read_sound(path).samples, two.mean(axis=0), atol=1e-6)
    six = write_media(folder / "six.mka", samples=tone(1), layout="5.1", codec="flac")
    assert read_sound(six).duration == pytest.approx(1, abs=0.01)


# --- segments and clocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "hertz", "seconds"),
    [(None, 1, 440, 1), (1, 2, 880, 1), (1.25, 1.75, 880, 0.5), (2, None, 1760, 1), (2.5, 99, 1760, 0.5)],
)
def test_a_segment_is_its_part(rising, start, end, hertz, seconds):
    sound = read_sound(rising, start=start, end=end)
    assert len(sound.samples) == seconds * 16_000
    assert pitch(sound.samples, 16_000) == pytest.approx(hertz, abs=2)
    whole = read_sound(rising).samples
    first = round((start or 0) * 16_000)
    np.testing.assert_array_equal(sound.samples, whole[first : first + len(sound.samples)])


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts", "ogg"])
def test_a_segment_far_in_is_found_by_seeking(folder, suffix):
    notes = np.concatenate([tone(1, hertz=200 + 20 * second) for second in range(20)])
    codec = {"ogg": "libopus", "mkv": "libopus"}.get(suffix, "aac")
    path = write_media(folder / f"long.{suffix}", samples=notes, codec=codec)
    whole = read_sound(path).samples
    part = read_sound(path, start=15.2, end=15.8).samples
    assert pitch(part, 16_000) == pytest.approx(500, abs=2)
    # containers count in milliseconds (Matroska) or finer: 16 samples at this rate
    apart = [np.abs(part - whole[first : first + 9_600]).max() for first in range(243_180, 243_221)]
    assert min(apart) < 0.03


def test_sound_that_begins_late_is_preceded_by_silence(folder):
    path = write_media(folder / "late.mp4", samples=tone(1), frames=PICTURES, delay=1.0)
    sound = read_sound(path)
    assert sound.duration == pytest.approx(2, abs=0.08)
    assert level(sound.samples[:14_000]) < 1e-3
    assert level(sound.samples[17_000:30_000]) > 0.1
    before = read_sound(path, end=0.5)
    assert (before.duration, before.silent) == (0.5, True)


def test_a_clock_that_starts_late_is_set_back_as_for_pictures(folder):
    path = write_media(folder / "broadcast.ts", samples=tone(2), frames=PICTURES)  # begins at 1.4 s
    sound = read_sound(path)
    assert sound.duration == pytest.approx(2, abs=0.15)
    assert level(sound.samples[4_000:28_000]) > 0.2


# --- silence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loudness", "silent"), [(0.0, True), (1e-5, True), (5e-4, False), (0.3, False)], ids=str
)
def test_silence_is_digital_silence_and_what_nobody_hears(folder, loudness, silent):
    path = write_media(folder / "quiet.wav", samples=tone(2, level=loudness), codec="pcm_f32le")
    assert read_sound(path).silent is silent


def test_silence_survives_a_codec(folder):
    path = write_media(folder / "quiet.mp4", samples=np.zeros(32_000, np.float32), frames=PICTURES)
    assert read_sound(path).silent


def test_a_bang_in_a_long_silence_is_not_silence():
    samples = np.zeros(600 * 16_000, np.float32)
    samples[200_000:200_400] = 1e-3
    assert level(samples) < SILENCE  # the mean over all of it would miss the bang
    assert loudest_second(samples, 16_000) == pytest.approx(1e-3 * np.sqrt(400 / 16_000))
    assert not Sound.of(samples, 16_000).silent
    assert loudest_second(samples[:0], 16_000) == 0.0


# --- what cannot be used ----------------------------------------------------------------------------------


def test_no_sound_stream(folder):
    path = write_clip(folder / "mute.mp4", PICTURES)
    with pytest.raises(NoSound, match=r"mute\.mp4: no sound stream \(it holds video\)"):
        read_sound(path)


def test_a_segment_behind_the_sound(rising):
    with pytest.raises(NoSound, match=r"its sound ends before the segment begins at 5 s"):
        read_sound(rising, start=5)
    with pytest.raises(NoSound, match=r"its sound ends before the segment begins at 50 s"):
        read_sound(rising, start=50)


@pytest.mark.parametrize(("start", "end"), [(-1, None), (2, 2), (2, 1), (None, 0)])
def test_segments_are_checked(rising, start, end):
    with pytest.raises(SoundError, match="is empty or begins before 0"):
        read_sound(rising, start=start, end=end)


def test_files_that_are_none(folder):
    with pytest.raises(SoundError, match=r"no such file: .*missing\.wav"):
        read_sound(folder / "missing.wav")
    (folder / "empty.wav").touch()
    with pytest.raises(SoundError, match=r"empty file: .*empty\.wav"):
        read_sound(folder / "empty.wav")
    (folder / "text.wav").write_text("this is no sound " * 100)
    with pytest.raises(SoundError, match=r"text\.wav: no sound file, or broken beyond use \(Invalid data"):
        read_sound(folder / "text.wav")
    header = write_media(folder / "header.mp4", samples=tone(1)).read_bytes()
    (folder / "cut.mp4").write_bytes(header[:40])
    with pytest.raises(SoundError, match=r"cut\.mp4: no sound file, or broken beyond use"):
        read_sound(folder / "cut.mp4")


def test_a_truncated_file_gives_what_there_is(folder):
    whole = write_media(folder / "whole.ogg", samples=tone(4, hertz=600), codec="libopus").read_bytes()
    cut = folder / "cut.ogg"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    sound = read_sound(cut)
    assert 1 < sound.duration < 4
    assert pitch(sound.samples, 16_000) == pytest.approx(600, abs=2)


def test_values_that_are_not_finite(folder):
    path = write_media(folder / "nan.wav", samples=np.full(16_000, np.nan, np.float32), codec="pcm_f32le")
    with pytest.raises(SoundError, match=r"nan\.wav: its sound holds values that are not finite"):
        read_sound(path)


def test_the_rate_is_checked(rising):
    with pytest.raises(ValueError, match="rate must be at least 1 sample per second, got 0"):
        read_sound(rising, rate=0)


# --- in a process that can be killed ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool():
    pool = DecodePool(workers=1, timeout=60)
    yield pool
    pool.close()


def test_a_worker_process_gives_the_same_sound(rising, pool):
    for span in ({}, {"start": 0.5, "end": 1.5}, {"rate": 8_000}):
        there, here = pool.read_sound(rising, **span), read_sound(rising, **span)
        np.testing.assert_array_equal(there.samples, here.samples)
        assert (there.rate, there.duration, there.silent) == (here.rate, here.duration, here.silent)
    without_limit = DecodePool(timeout=0).read_sound(rising)
    np.testing.assert_array_equal(without_limit.samples, read_sound(rising).samples)


def test_errors_keep_their_kind_and_the_process_lives_on(folder, rising, pool):
    mute = write_clip(folder / "mute2.mp4", PICTURES)
    pool.read_sound(rising)
    (worker,) = list(pool._idle.queue)
    with pytest.raises(NoSound, match="no sound stream"):
        pool.read_sound(mute)
    with pytest.raises(SoundError, match="no such file") as caught:
        pool.read_sound(folder / "missing.wav")
    assert not isinstance(caught.value, NoSound)
    pool.read_sound(rising)
    assert list(pool._idle.queue) == [worker]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a process with a POSIX signal")
def test_a_decoder_that_hangs_is_stopped(rising, pool, monkeypatch):
    pool.read_sound(rising)
    (worker,) = list(pool._idle.queue)
    worker._process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(pool, "timeout", 0.5)
        with pytest.raises(SoundError, match=r"rising\.wav: decoding took longer than 0.5 s and was stopped"):
            pool.read_sound(rising)
    assert not worker.alive
    assert pool.read_sound(rising).duration == 3
