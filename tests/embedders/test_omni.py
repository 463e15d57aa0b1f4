"""The families that hear, on tiny real thinkers with their real processors and real files with sound."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import TEXTS, least_cosine, noise
from media.clips import grey_frames, write_clip
from media.sounds import tone, write_media
from peft import LoraConfig, get_peft_model
from tiny_omni import LONGEST, OMNI_FAMILIES, OmniFamily, build_tiny_omni

from vidvec_msg.embedders.adapter import write_adapter
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.language_model import hidden_state, linear_targets, load_language_model
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.omni import hears, inputs_of, longest_sound, thinker_config
from vidvec_msg.embedders.pooling import last_token
from vidvec_msg.embedders.prompts import PromptTemplate
from vidvec_msg.embedders.saved import load_saved, save_embedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.sound import SoundError

SAID = "somebody said this"
PICTURES = grey_frames(20)  # two seconds at 10 fps
TOKENS_A_SECOND = {"qwen2_5_omni": 25, "qwen3_omni": 13}

Folder = Callable[..., Path]
Make = Callable[..., MultimodalLLM]


@pytest.fixture(scope="module", params=OMNI_FAMILIES)
def family(request: pytest.FixtureRequest) -> OmniFamily:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folder of a family's tiny thinker: ``folder("qwen3_omni", whole=True)``."""

    @lru_cache
    def build(family: OmniFamily, **options: bool) -> Path:
        return build_tiny_omni(tmp_path_factory.mktemp(family), family, **options)

    return build


@pytest.fixture(scope="module")
def make(folder: Folder) -> Make:
    """An embedder: ``make("qwen3_omni", sound=True)``. Two frames a second and 8 at most."""

    @lru_cache
    def built(family: OmniFamily, *, whole: bool = False, **options: object) -> MultimodalLLM:
        settings = {"fps": 2.0, "max_frames": 8, "decode_timeout": 0, "dtype": "float32", **options}
        return MultimodalLLM(str(folder(family, whole=whole)), **settings)

    return built


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Clips of the same pictures with other sounds, and sounds alone."""
    at = tmp_path_factory.mktemp("files")
    low_then_high = np.concatenate([tone(1, hertz=300), tone(1, hertz=2_000)])
    return {
        "low": write_media(at / "low.mp4", samples=tone(2, hertz=300), frames=PICTURES),
        "high": write_media(at / "high.mp4", samples=tone(2, hertz=2_000), frames=PICTURES),
        "both": write_media(at / "both.mp4", samples=low_then_high, frames=PICTURES),
        "longer": write_media(at / "longer.mp4", samples=tone(3.3), frames=grey_frames(20) * 2),
        "brief": write_media(at / "brief.mp4", samples=tone(0.3), frames=PICTURES),
        "silent": write_media(at / "silent.mp4", samples=np.zeros(32_000, np.float32), frames=PICTURES),
        "mute": write_clip(at / "mute.mp4", PICTURES),
        "wav": write_media(at / "a.wav", samples=tone(1.7), codec="pcm_s16le"),
        "click": write_media(at / "click.wav", samples=tone(0.004), codec="pcm_s16le"),
        "ten": write_media(at / "ten.wav", samples=low_then_high.repeat(5), codec="pcm_s16le"),
        "quiet": write_media(at / "quiet.wav", samples=np.zeros(16_000, np.float32), codec="pcm_s16le"),
        "mp4 without sound": write_clip(at / "pictures.mp4", PICTURES),
    }


@pytest.fixture(scope="module")
def matrix(files: dict[str, Path]) -> list[Item]:
    """Everything at once, in no order."""
    return [
        Item("portrait", video=noise(4, 64, 32, seed=3)),
        Item("text", text=TEXTS[1]),
        Item("eight frames", video=noise(8, 40, 48, seed=2), transcript=SAID),
        Item("low", video=files["low"]),
        Item("image", image=noise(48, 40, seed=4)),
        Item("one frame", video=noise(1, 48, 40)),
        Item("wav", audio=files["wav"]),
        Item("silent", video=files["silent"], transcript=SAID),
        Item("longer", video=files["longer"], transcript=SAID),
        Item("short text", text="a dog"),
        Item("three of eight", video=noise(3, 48, 40, seed=1), fps=0.75),
        Item("brief", video=files["brief"]),
        Item("landscape", video=noise(4, 32, 64, seed=3), transcript=""),
        Item("click", audio=files["click"]),
        Item("wide image", image=noise(32, 64, seed=5)),
        Item("second half", video=files["both"], start=1.0),
        Item("words and sound", audio=files["ten"], start=1.0, end=6.0, transcript=SAID),
    ]


def vector(embedder: MultimodalLLM, item: Item) -> np.ndarray:
    return embedder.encode([item], role="document")[0]


# --- the same vector --------------------------------------------------------------------------------------


def test_a_mixed_batch_gives_the_vectors_of_single_items(
    make: Make, family: OmniFamily, matrix: list[Item]
) -> None:
    embedder = make(family, transcript="before", sound=True)
    together = embedder.encode(matrix, role="document")
    check_vectors(together, matrix, embedder.card)
    alone = np.stack([vector(embedder, item) for item in matrix])
    assert least_cosine(together, alone) > 0.99999
    other = make(family, transcript="before", sound=True, padding="left", batch_size=5)
    backwards = other.encode(matrix[::-1], role="document")[::-1]
    assert least_cosine(together, backwards) > 0.99999
    assert (
        together @ together.T - np.eye(len(matrix))
    ).max() < 0.99999  # they are different items, after all


@pytest.mark.parametrize(("layer", "pooling"), [(-1, "mean"), (2, "last")])
def test_every_read_out_in_any_batch(
    make: Make, family: OmniFamily, matrix: list[Item], layer: int, pooling: str
) -> None:
    items = [item for item in matrix if item.id in ("low", "longer", "text", "click", "one frame")]
    embedder = make(family, layer=layer, pooling=pooling, sound=True)
    together = embedder.encode(items, role="query")
    assert least_cosine(together, np.stack([vector(embedder, item) for item in items])) > 0.99999
    assert (together * make(family, sound=True).encode(items, role="query")).sum(axis=1).max() < 0.999


def test_a_whole_checkpoint_gives_the_thinkers_vectors_and_loads_nothing_else(
    make: Make, family: OmniFamily, matrix: list[Item]
) -> None:
    thinker, whole = make(family, sound=True), make(family, whole=True, sound=True)
    both = (embedder.encode(matrix, role="document") for embedder in (thinker, whole))
    np.testing.assert_allclose(*both, atol=1e-6)
    names = [name for name, _ in whole.backbone.full.named_parameters()]
    assert names == [name for name, _ in thinker.backbone.full.named_parameters()]
    assert not [name for name in names if "talker" in name]
    assert whole.card.modalities == ("text", "image", "video", "audio")


def test_worker_processes_give_the_same_vectors(
    make: Make, matrix: list[Item], files: dict[str, Path]
) -> None:
    """Sounds are decoded side by side and ahead there; each stays with its item, the bad one too."""
    here, there = (make("qwen2_5_omni", sound=True, decode_timeout=limit) for limit in (0, 60))
    np.testing.assert_allclose(*(one.encode(matrix, role="document") for one in (here, there)), atol=1e-6)
    bad = Item("quiet", audio=files["quiet"])
    with pytest.raises(ItemError) as caught:
        there.encode([*matrix[:9], bad, *matrix[9:]], role="document")
    assert [failure.item for failure in caught.value.failures] == ["quiet"]


def test_very_short_clips(make: Make, family: OmniFamily) -> None:
    items = [Item(str(frames), video=noise(frames, 32, 32), fps=25) for frames in range(1, 8)]
    check_vectors(make(family).encode(items, role="document"), items, make(family).card)


# --- the language model alone -----------------------------------------------------------------------------


def adapter_on_tower(folder: Path, out: Path) -> Path:
    """A LoRA adapter of the bare tower, as training makes it; random B stands for some steps."""
    tower = load_language_model(folder)
    model = get_peft_model(tower, LoraConfig(r=4, lora_alpha=8, target_modules=linear_targets(tower)))
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0.0, 0.1, generator=generator)
    out.mkdir()
    write_adapter(out, model.eval(), base_model=str(folder), revision=None)
    return out


def tower_vectors(tower: torch.nn.Module, embedder: MultimodalLLM) -> np.ndarray:
    rows = []
    for text in TEXTS:
        ids = torch.tensor([embedder.chat.text_ids(embedder.card.prompt, text, max_tokens=1024)])
        with torch.inference_mode():
            state = hidden_state(tower, ids, torch.ones_like(ids))
        rows.append(torch.nn.functional.normalize(last_token(state, torch.ones_like(ids)), dim=-1))
    return torch.cat(rows).numpy()


@pytest.mark.parametrize("whole", [False, True])
def test_the_tower_alone_gives_the_full_models_vectors(
    make: Make, folder: Folder, family: OmniFamily, texts: list[Item], whole: bool
) -> None:
    tower = load_language_model(folder(family, whole=whole))
    assert not [name for name, _ in tower.named_parameters() if "visual" in name or "audio" in name]
    embedder = make(family, whole=whole)
    alone = tower_vectors(tower, embedder)
    assert least_cosine(alone, embedder.encode(texts, role="query")) > 0.999999


def test_an_adapter_of_the_tower_on_the_full_model_merged_and_saved(
    make: Make, folder: Folder, family: OmniFamily, texts: list[Item], matrix: list[Item], tmp_path: Path
) -> None:
    from peft import PeftModel

    at = folder(family, whole=True)
    adapter = adapter_on_tower(at, tmp_path / "adapter")
    base = make(family, whole=True, sound=True)
    tower = PeftModel.from_pretrained(load_language_model(at), adapter)
    options = {"fps": 2.0, "max_frames": 8, "decode_timeout": 0, "dtype": "float32", "sound": True}
    tuned = MultimodalLLM(str(at), adapter=adapter, **options)
    after = tuned.encode(texts, role="query")
    assert least_cosine(tower_vectors(tower, base), after) > 0.999999
    assert least_cosine(after, base.encode(texts, role="query")) < 0.99  # the adapter does something
    everything = tuned.encode(matrix, role="document")  # pixels and sound go through it too
    assert (everything * base.encode(matrix, role="document")).sum(axis=1).max() < 0.999

    card = dataclasses.replace(base.card, weights="")
    save_embedder(tmp_path / "saved", model=tower, card=card)
    again = load_saved(tmp_path / "saved", decode_timeout=0)
    assert again.card.sound
    assert least_cosine(again.encode(matrix, role="document"), everything) > 0.999999

    assert merge_adapters(tuned.backbone.full) > 0
    assert least_cosine(tuned.encode(matrix, role="document"), everything) > 0.99999


# --- sound ------------------------------------------------------------------------------------------------


def test_a_clip_with_its_sound_is_another_one(make: Make, family: OmniFamily, files: dict[str, Path]) -> None:
    names = ("low", "high", "mute")
    items = [Item(name, video=files[name]) for name in names]
    seen = make(family).encode(items, role="document")
    heard = make(family, sound=True).encode(items, role="document")
    assert least_cosine(seen[[0, 0]], seen[[1, 2]]) > 0.9999  # to the eye they are one clip
    apart = heard @ heard.T
    assert apart[0, 1] < 0.9995  # by their sounds alone
    assert apart[0, 2] < 0.999
    assert apart[1, 2] < 0.999


def test_silent_and_soundless_clips_are_embedded_from_their_frames_and_counted(
    folder: Folder, make: Make, family: OmniFamily, files: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    listening = MultimodalLLM(
        str(folder(family)), sound=True, fps=2.0, max_frames=8, decode_timeout=0, dtype="float32", name="ears"
    )
    items = [
        Item("silent", video=files["silent"]),
        Item("low", video=files["low"]),
        Item("mute", video=files["mute"]),
        Item("in memory", video=np.stack(PICTURES), fps=10),
        Item("silent part", video=files["brief"], start=1.0),
        Item("text", text="a dog"),
    ]
    with caplog.at_level(logging.WARNING, logger="vidvec_msg"):
        vectors = listening.encode(items, role="document")
        listening.encode(items, role="document")
    quiet = [0, 2, 3, 4, 5]
    frames_alone = make(family).encode([items[row] for row in quiet], role="document")
    assert least_cosine(vectors[quiet], frames_alone) > 0.99999
    tally = listening.tally
    assert (tally.heard, tally.silent, tally.soundless, tally.cut_sounds) == (2, 2, 6, 0)
    (line,) = [record.getMessage() for record in caplog.records if "sound" in record.getMessage()]
    assert line.startswith("ears: of the sounds so far 1 were heard, 0 of them cut")
    assert line.endswith(
        "1 clips are silent and 3 have no sound track: these are embedded from their frames alone"
    )


def test_nobody_listens_unless_asked(make: Make, family: OmniFamily, files: dict[str, Path]) -> None:
    embedder = make(family, name="deaf")
    embedder.encode([Item("low", video=files["low"]), Item("mute", video=files["mute"])], role="document")
    tally = embedder.tally
    assert (tally.clips, tally.heard, tally.silent, tally.soundless) == (2, 0, 0, 0)


def test_a_segment_is_heard_as_its_own_sound(make: Make, family: OmniFamily, files: dict[str, Path]) -> None:
    embedder = make(family, sound=True)
    halves = [Item("a", video=files["both"], end=1.0), Item("b", video=files["both"], start=1.0)]
    (low, high) = (turn.sound for turn in embedder._reader.turns(halves))
    assert low is not None
    assert high is not None
    assert low.duration == 1.0
    assert high.duration == pytest.approx(1.0, abs=0.08)
    crossings = [int((np.diff(np.sign(sound.samples[4_000:12_000])) != 0).sum()) for sound in (low, high)]
    assert crossings == pytest.approx([300, 2_000], abs=4)  # half a second


@pytest.mark.parametrize(("options", "seconds"), [({}, 1.0), ({"max_frames": 2}, 2.0), ({"fps": 4.0}, 0.5)])
def test_the_model_is_told_how_many_seconds_a_patch_lasts(
    make: Make, family: OmniFamily, files: dict[str, Path], options: dict[str, float], seconds: float
) -> None:
    for sound in (False, True):
        embedder = make(family, sound=sound, **options)
        inputs = embedder.chat.batch(embedder._reader.turns([Item("low", video=files["low"])]))
        assert inputs["video_second_per_grid"].tolist() == pytest.approx([seconds])
        assert inputs.get("use_audio_in_video", False) is sound


def test_frames_and_sound_are_interleaved_in_time(
    make: Make, family: OmniFamily, files: dict[str, Path]
) -> None:
    """Qwen2.5-Omni alternates every two seconds, Qwen3-Omni with every temporal patch."""
    embedder = make(family, sound=True)
    inputs = embedder.chat.batch(embedder._reader.turns([Item("longer", video=files["longer"])]))
    tokens = embedder.chat.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    media = [token for token in tokens if token in ("<|VIDEO|>", "<|AUDIO|>")]
    runs = [token for token, before in zip(media, ["", *media[:-1]], strict=True) if token != before]
    turns = {"qwen2_5_omni": 2, "qwen3_omni": 4}[family]
    assert runs == ["<|VIDEO|>", "<|AUDIO|>"] * turns
    assert media.count("<|AUDIO|>") == pytest.approx(3.3 * TOKENS_A_SECOND[family], abs=3)


def test_the_familys_own_processing_gives_the_same_states(
    make: Make, family: OmniFamily, files: dict[str, Path]
) -> None:
    """As transformers' own call with the whole padding of the feature extractor."""
    embedder = make(family, sound=True)
    item = Item("low", video=files["low"])
    (turn,) = embedder._reader.turns([item])
    assert turn.frames is not None
    assert turn.sound is not None
    processor = embedder.chat.processor
    inputs = processor(
        text=[turn.prompt],
        videos=[turn.frames.pixels],
        audio=[turn.sound.samples],
        audio_from_video_indices=[0],
        load_audio_from_video=True,
        fps=2.0,
        do_sample_frames=False,
        return_tensors="pt",
    )
    with torch.inference_mode():
        state = embedder.backbone.base(**inputs, use_audio_in_video=True).last_hidden_state[:, -1]
    own = torch.nn.functional.normalize(state, dim=-1).numpy()
    assert least_cosine(own, vector(embedder, item)[None]) > 0.99999


def test_the_place_of_a_sound_is_kept_without_a_chat_template(
    make: Make, family: OmniFamily, files: dict[str, Path]
) -> None:
    """The model finds sound and pictures by the tokens that open them."""
    embedder = make(family, prompt=PromptTemplate(chat=False), sound=True)
    items = [Item("wav", audio=files["wav"]), Item("low", video=files["low"]), Item("t", text="a dog")]
    wav, low, _ = embedder.inspect(items, role="document")
    assert wav.wording.startswith("<|audio_bos|><|AUDIO|><|audio_eos|>\nSummarize")
    assert low.wording.startswith("<|vision_bos|><|VIDEO|><|vision_eos|>\nSummarize")
    check_vectors(embedder.encode(items, role="document"), items, embedder.card)


# --- audio items ------------------------------------------------------------------------------------------


def test_audio_items_are_embedded_with_or_without_the_option(
    make: Make, family: OmniFamily, files: dict[str, Path]
) -> None:
    items = [
        Item("wav", audio=files["wav"]),
        Item("low", audio=files["low"]),
        Item("high", audio=files["high"]),
    ]
    vectors = make(family).encode(items, role="document")
    np.testing.assert_allclose(vectors, make(family, sound=True).encode(items, role="document"), atol=1e-6)
    assert (vectors @ vectors.T - np.eye(3)).max() < 0.9999
    (wording, *_) = make(family).inspect(items, role="document")
    assert "Summarize above audio in one word: " in wording.wording


def test_inspection_tells_what_is_heard(make: Make, family: OmniFamily, files: dict[str, Path]) -> None:
    embedder = make(family, sound=True)
    items = [
        Item("low", video=files["low"]),
        Item("silent", video=files["silent"]),
        Item("wav", audio=files["wav"]),
        Item("text", text="a dog"),
    ]
    low, silent, wav, text = embedder.inspect(items, role="document")
    assert low.sound_seconds == pytest.approx(2, abs=0.08)
    assert wav.sound_seconds == pytest.approx(1.7)
    assert (silent.sound_seconds, text.sound_seconds) == (0, 0)
    assert low.visual_tokens == silent.visual_tokens > 0
    assert wav.visual_tokens == text.visual_tokens == 0
    assert (low.frames_used, wav.frames_used) == (4, 0)
    edges = 2  # the tokens that open and close the sound
    assert low.text_tokens == silent.text_tokens + edges


def test_a_sound_longer_than_the_model_takes(make: Make, files: dict[str, Path]) -> None:
    cut, full = make("qwen2_5_omni", name="cut"), make("qwen3_omni", name="full")
    assert (longest_sound(cut.chat.processor), longest_sound(full.chat.processor)) == (LONGEST, float("inf"))
    ten, six = Item("ten", audio=files["ten"]), Item("six", audio=files["ten"], end=float(LONGEST))
    assert float(vector(cut, ten) @ vector(cut, six)) > 0.99999
    assert cut.inspect([ten], role="document")[0].sound_seconds == LONGEST
    assert (cut.tally.heard, cut.tally.cut_sounds) == (2, 1)
    assert float(vector(full, ten) @ vector(full, six)) < 0.9999
    assert full.inspect([ten], role="document")[0].sound_seconds == 10
    assert (full.tally.heard, full.tally.cut_sounds) == (2, 0)


def test_a_processor_that_cuts_sounds_is_refused(make: Make, files: dict[str, Path]) -> None:
    chat = make("qwen3_omni").chat
    (turn,) = make("qwen3_omni")._reader.turns([Item("ten", audio=files["ten"])])
    cutting = copy.copy(chat.processor)
    cutting.audio_kwargs = {**cutting.audio_kwargs, "truncation": True, "max_length": 96_000}
    with pytest.raises(RefusedRequest, match=r"Qwen3OmniMoeProcessor cut a sound of 10\.0 s to 6\.0 s"):
        inputs_of(cutting, turn.prompt, sound=turn.sound)


def test_what_cannot_be_heard_is_named(
    make: Make, family: OmniFamily, files: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    items = [
        Item("good", audio=files["wav"]),
        Item("quiet", audio=files["quiet"]),
        Item("pictures only", audio=files["mp4 without sound"]),
        Item("text", audio=tmp_path / "text.wav"),
        Item("missing", audio=tmp_path / "missing.wav"),
        Item("late", audio=files["wav"], start=3.0),
    ]
    with pytest.raises(ItemError) as caught:
        make(family).encode(items, role="document")
    reasons = {failure.item: failure.reason for failure in caught.value.failures}
    assert list(reasons) == [item.id for item in items[1:]]
    assert "quiet.wav: silent; there is nothing to hear" in reasons["quiet"]
    assert "no sound stream (it holds video)" in reasons["pictures only"]
    assert "no sound file, or broken beyond use" in reasons["text"]
    assert "no such file" in reasons["missing"]
    assert "its sound ends before the segment begins at 3 s" in reasons["late"]


def test_a_sound_track_that_cannot_be_decoded_fails_the_clip(
    make: Make, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike silence it says nothing about the clip: without the option its frames are still to be had."""
    embedder = make("qwen2_5_omni", sound=True)

    class Broken:
        timeout = 0

        def read_sound(self, path: Path, **_: object) -> None:
            raise SoundError(f"{path}: decoding took longer than 1 s and was stopped")

    broken = dataclasses.replace(
        embedder._reader, listener=dataclasses.replace(embedder._reader.listener, pool=Broken())
    )
    monkeypatch.setattr(embedder, "_reader", broken)
    with pytest.raises(ItemError, match=r"item 'low': .*low\.mp4: decoding took longer than 1 s"):
        embedder.encode([Item("low", video=files["low"])], role="document")


# --- cards and families -----------------------------------------------------------------------------------


def test_the_option_is_in_the_fingerprint_and_its_default_is_not(make: Make) -> None:
    without, with_sound = make("qwen2_5_omni").card, make("qwen2_5_omni", sound=True).card
    assert with_sound.sound
    assert not without.sound
    assert with_sound.fingerprint != without.fingerprint
    earlier = without.to_dict()
    del earlier["sound"]  # a card that was written before there was the option
    assert EmbedderCard.from_dict(earlier).fingerprint == without.fingerprint
    assert EmbedderCard.from_dict(with_sound.to_dict()) == with_sound


def test_a_family_that_does_not_hear(llm: Make, tiny: Callable[..., str], files: dict[str, Path]) -> None:
    with pytest.raises(
        RefusedRequest, match=r"sound is true, .*VideoLlama3Processor\) takes no sound; Qwen2\.5"
    ):
        MultimodalLLM(tiny("videollama3"), sound=True)
    embedder = llm("videollama3")
    assert not hears(embedder.chat.processor)
    with pytest.raises(ItemError, match="this embedder reads text, image, video; the item is audio"):
        embedder.encode([Item("wav", audio=files["wav"])], role="document")


def test_only_omni_configurations_have_a_part_that_reads(folder: Folder, tiny: Callable[..., str]) -> None:
    from transformers import AutoConfig

    for family in OMNI_FAMILIES:
        whole, thinker = (AutoConfig.from_pretrained(folder(family, whole=flag)) for flag in (True, False))
        assert type(thinker_config(whole)) is type(thinker)
        assert thinker_config(thinker) is thinker
    other = AutoConfig.from_pretrained(tiny("videollama3"))
    assert thinker_config(other) is other


@pytest.mark.parametrize(("budget", "tokens"), [(0, 24), (1_024, 8)])
def test_a_pixel_budget_is_kept(
    make: Make, family: OmniFamily, files: dict[str, Path], budget: int, tokens: int
) -> None:
    """A token is 16 x 16 pixels of two frames: 3 x 4 of them for 48 x 64 pixels, twice for four frames."""
    embedder = make(family, max_pixels=budget)
    (seen,) = embedder.inspect([Item("low", video=files["low"])], role="document")
    assert seen.visual_tokens == tokens


@pytest.mark.slow
def test_a_fit_on_texts_serves_sound(folder: Folder, files: dict[str, Path], tmp_path: Path) -> None:
    """The whole way, for the mixture of experts: trained on the tower alone, used on the thinker."""
    from vidvec_msg import load_embedder
    from vidvec_msg.train.fit import main

    pairs = [{"anchor": f"clip {n} shows a ball", "positive": f"keep trying, take {n}"} for n in range(8)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    base = folder("qwen3_omni", whole=True)
    words = ["fit", "--model.model", str(base), "--data.pairs", str(tmp_path / "pairs.jsonl")]
    words += ["--trainer.accelerator=cpu", "--trainer.max_steps=2", "--data.batch_size=4"]
    words += ["--model.optimizer.lr=0.05", "--model.lora.r=4", "--trainer.enable_model_summary=false"]
    assert main([*words, "--trainer.default_root_dir", str(tmp_path / "run")]) == 0
    saved = tmp_path / "run" / "embedder"
    assert json.loads((saved / "embedder.json").read_text())["modalities"] == [
        "text",
        "image",
        "video",
        "audio",
    ]
    items = [Item("low", video=files["low"]), Item("wav", audio=files["wav"]), Item("text", text="a dog")]
    options = {"sound": True, "dtype": "float32", "decode_timeout": 0}
    tuned = load_embedder(saved, **options).encode(items, role="document")
    before = MultimodalLLM(str(base), max_frames=64, **options).encode(items, role="document")
    assert (tuned * before).sum(axis=1).max() < 0.9999
