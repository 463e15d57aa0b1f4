"""The flags on texts, and Whisper tiny.en for real in both engines, on sounds that it goes wrong about."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from media.spoken import murmur, tone
from media.whisper_twins import CT2, build_random, build_twin

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media import whisper_engines
from vidvec_msg.media.sound import Sound
from vidvec_msg.media.speech import (
    Segment,
    SpeechRecogniser,
    Transcript,
    engine_of,
    joined,
    listen,
    open_speech,
    repeats,
)

GETTYSBURG = (  # A. Lincoln, 1863
    "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived "
    "in Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a "
    "great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long "
    "endure. We are met on a great battle-field of that war. We have come to dedicate a portion of that "
    "field, as a final resting place for those who here gave their lives that that nation might live."
)


def sound(samples: np.ndarray) -> Sound:
    return Sound.of(samples, 16_000)


class Never:
    settings: dict[str, object] = {}  # noqa: RUF012

    def transcribe(self, sound: Sound) -> Transcript:
        raise RuntimeError("was asked")


# --- flags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        ("", False),
        ("no, no, no, I said", False),
        ("no, no, no, no, I said", True),
        ("Thank you. Thank you. Thank you. Thank you.", True),
        ("we are going to the sea " * 3, False),
        ("we are going to the sea " * 4, True),
        ("beep " * 100, True),
        ("谢谢观看请订阅" * 40, True),  # no spaces: found by its compression
        ("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", False),
        (GETTYSBURG, False),
    ],
)  # fmt: skip
def test_repeats(text, loop):
    assert repeats(text) is loop
    if loop:  # also in the middle of a long text
        assert repeats(f"{GETTYSBURG} {text} {GETTYSBURG}")


def test_a_transcript_of_segments():
    found = joined([Segment(" one ", 0.2), Segment("two  three", 0.8)], language="en", certainty=0.98765)
    assert found == Transcript(
        "one two three",
        language="en",
        language_probability=0.9877,
        no_speech_probability=round((3 * 0.2 + 10 * 0.8) / 13, 4),
    )
    assert found.doubtful
    nothing = joined([Segment(" ", 0.9)], language="en", certainty=None)
    assert (nothing.text, nothing.no_speech_probability, nothing.doubtful) == ("", None, False)
    assert nothing.reason == "no words were recognised"


def test_silence_is_not_given_to_an_engine():
    found = listen(Never(), sound(np.zeros(8_000, np.float32)))
    assert found == Transcript("", silent=True, reason="the sound is silent")
    with pytest.raises(RuntimeError, match="was asked"):
        listen(Never(), sound(murmur(0.5)))
    with pytest.raises(ValueError, match="at 16000 samples per second, got 8000"):
        listen(Never(), Sound.of(murmur(0.5), 8_000))


# --- which engine -----------------------------------------------------------------------------------------


def test_the_engine_goes_by_the_models_form(tmp_path):
    assert engine_of(str(CT2)) == "faster-whisper"
    assert engine_of("large-v3-turbo") == engine_of("Systran/faster-whisper-tiny") == "faster-whisper"
    assert engine_of("distil-whisper/distil-large-v3.5-ct2") == "faster-whisper"
    assert engine_of("openai/whisper-large-v3-turbo") == "transformers"
    assert engine_of("distil-whisper/distil-large-v3") == "transformers"
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    assert engine_of(str(tmp_path)) == "transformers"


@pytest.mark.parametrize("config", ["", "[]", '{"model_type": "bert"}'])
def test_a_folder_without_a_whisper_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(RefusedRequest, match=r"holds no Whisper model: neither model\.bin"):
        open_speech(str(tmp_path))
    with pytest.raises(RefusedRequest, match=r"cannot load the speech model .* with transformers"):
        open_speech(str(tmp_path), engine="transformers")
    with pytest.raises(RefusedRequest, match=r"cannot load the speech model .* with faster-whisper"):
        open_speech(str(tmp_path), engine="faster-whisper")


def test_other_refusals(monkeypatch):
    with pytest.raises(RefusedRequest, match=r"no such folder: \./nowhere"):
        open_speech("./nowhere")
    with pytest.raises(RefusedRequest, match="accepted: auto, faster-whisper, transformers"):
        open_speech(str(CT2), engine="whisper.cpp")
    with pytest.raises(RefusedRequest, match=r"cannot load the speech model 'colossal' with faster-whisper"):
        open_speech("colossal")
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(RefusedRequest, match=r"recognise speech .* pip install 'vidvec-msg\[asr\]'"):
        open_speech(str(CT2))


# --- the real model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def faster() -> SpeechRecogniser:
    return open_speech(str(CT2), device="cpu")


def test_words_over_near_silence_are_kept_and_doubted(faster):
    found = listen(faster, sound(murmur(2.0)))
    assert found.text != ""  # tiny.en invents something polite
    assert found.no_speech_probability is not None
    assert 0.6 < found.no_speech_probability <= 1
    assert found.doubtful
    assert (found.language, found.language_probability, found.silent) == ("en", 1.0, False)


def test_a_loop_is_kept_and_flagged(faster, monkeypatch):
    monkeypatch.setattr(whisper_engines, "LONGEST", 64)
    found = listen(faster, sound(tone(4.0)))
    assert found.text.lower().count("beep") > 10  # as it was written
    assert found.repetition


def test_the_same_sound_gives_the_same_words(faster):
    heard = sound(murmur(1.5))
    assert listen(faster, heard) == listen(faster, heard)


def test_settings_name_the_weights(faster):
    settings = faster.settings
    assert (settings["engine"], settings["model"], settings["language"]) == ("faster-whisper", CT2.name, None)
    assert len(settings["weights"]) == 16
    assert open_speech(str(CT2), language="en", device="cpu").settings != settings
    with pytest.raises(RefusedRequest, match="knows no language 'xx'; accepted: en"):
        open_speech(str(CT2), language="xx", device="cpu")


@pytest.mark.slow(minutes=0.5)
def test_both_engines_hear_the_same(faster, tmp_path, monkeypatch):
    """The same weights in transformers' form: same words, same probabilities."""
    monkeypatch.setattr(whisper_engines, "LONGEST", 24)  # the tone's loop is as long as it may be
    other = open_speech(str(build_twin(tmp_path)), device="cpu")
    one, two = (listen(engine, sound(murmur(4.0))) for engine in (faster, other))
    assert two.text == one.text != ""
    assert two.no_speech_probability == pytest.approx(one.no_speech_probability, abs=0.01)
    one, two = (listen(engine, sound(tone(2.0))) for engine in (faster, other))
    assert two.text.startswith(
        one.text.removesuffix("be").strip()
    )  # faster-whisper counts the prompt's tokens
    assert two.no_speech_probability == pytest.approx(
        one.no_speech_probability, abs=0.03
    )  # the two cut the sound's end differently
    assert one.repetition
    assert two.repetition
    assert (two.language, two.language_probability) == ("en", 1.0)
    assert other.settings["engine"] == "transformers"
    assert other.settings["weights"] != faster.settings["weights"]


def test_a_multilingual_model_by_transformers(tmp_path, monkeypatch):
    """Random weights: what it writes means nothing, that it runs over several windows does."""
    monkeypatch.setattr(whisper_engines, "LONGEST", 12)
    folder = build_random(tmp_path)
    engine = open_speech(str(folder), device="cpu")
    found = engine.transcribe(sound(tone(31.0)))
    assert found.language in {"en", "de", "fr"}
    assert 1 / 3 < (found.language_probability or 0) < 1
    assert engine.transcribe(sound(tone(31.0))) == found
    assert found.text != ""
    assert found.no_speech_probability == 0.0  # one word of 51,864
    german = open_speech(str(folder), language="de", device="cpu").transcribe(sound(tone(1.0)))
    assert (german.language, german.language_probability) == ("de", 1.0)
    with pytest.raises(RefusedRequest, match="knows no language 'xx'; accepted: de, en, fr"):
        open_speech(str(folder), language="xx", device="cpu")


def test_a_checkpoint_with_missing_parts_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = build_random(tmp_path)
    state = load_file(folder / "model.safetensors")
    del state["model.encoder.conv1.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RefusedRequest, match=r"1 parameters are missing .* model\.encoder\.conv1\.weight"):
        open_speech(str(folder), device="cpu")


def test_the_package_is_where_the_models_are() -> None:
    assert (Path(CT2) / "model.bin").is_file()
