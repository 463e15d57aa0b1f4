"""Every family alike: the same checks on each tiny real model, with its real processor."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from embedders.conftest import TEXTS, least_cosine, noise
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from tiny_models import Family
from torch import nn

from vidvec_msg import load_embedder
from vidvec_msg.embedders.adapter import write_adapter
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Inspects
from vidvec_msg.embedders.inspection import Tally
from vidvec_msg.embedders.language_model import hidden_state, linear_targets, load_language_model
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.pooling import last_token, reading_layer
from vidvec_msg.embedders.saved import save_embedder
from vidvec_msg.embedders.visuals import MIXES_SIZES, frames_as_images
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item

SEEING = [family for family in get_args(Family) if family not in ("text", "qwen2_5_omni", "qwen3_omni")]
# they bring every frame to one size: a smaller frame is blurred, not cheaper
FIXED_SIZE = {"smolvlm", "llava_onevision", "internvl", "gemma3"}
SAID = "somebody said this"

Make = Callable[..., MultimodalLLM]


@pytest.fixture(scope="module")
def make(llm: Make) -> Make:
    return lambda family, **options: llm(family, dtype="float32", **options)


@pytest.fixture(scope="module", params=SEEING)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def matrix(clip_file: Path) -> list[Item]:
    """Everything at once, in no order: 2 frames a second and 8 at most are asked for."""
    return [
        Item("portrait", video=noise(4, 64, 32, seed=3)),
        Item("text", text=TEXTS[1]),
        Item("eight frames", video=noise(8, 40, 48, seed=2), transcript=SAID),
        Item("image", image=noise(48, 40, seed=4)),
        Item("one frame", video=noise(1, 48, 40)),
        Item("file", video=clip_file, transcript=SAID),
        Item("short text", text="a dog"),
        Item("three of eight", video=noise(3, 48, 40, seed=1), fps=0.75),
        Item("landscape", video=noise(4, 32, 64, seed=3), transcript=""),
        Item("wide image", image=noise(32, 64, seed=5)),
        Item("again eight", video=noise(8, 40, 48, seed=8)),
    ]


def by_id(items: list[Item], *names: str) -> list[Item]:
    return [item for item in items if item.id in names]


# --- the same vector ------------------------------------------------------------------------------------


def test_a_mixed_batch_gives_the_vectors_of_single_items(make: Make, family: str, matrix: list[Item]) -> None:
    embedder = make(family, transcript="before")
    together = embedder.encode(matrix, role="document")
    check_vectors(together, matrix, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in matrix])
    assert least_cosine(together, alone) > 0.99999
    left = make(family, transcript="before", padding="left").encode(matrix, role="document")
    assert least_cosine(together, left) > 0.99999
    cosines = together @ together.T - np.eye(len(matrix))
    assert cosines.max() < 0.9999  # they are different items, after all


@pytest.mark.parametrize(("layer", "pooling"), [(-1, "mean"), (2, "last")])
def test_every_read_out_is_one_of_its_own_and_the_same_in_any_batch(
    make: Make, family: str, matrix: list[Item], layer: int, pooling: str
) -> None:
    items = by_id(matrix, "three of eight", "landscape", "text", "short text")
    embedder = make(family, layer=layer, pooling=pooling)
    together = embedder.encode(items, role="query")
    alone = np.concatenate([embedder.encode([item], role="query") for item in items])
    assert least_cosine(together, alone) > 0.99999
    other = make(family).encode(items, role="query")
    assert (together * other).sum(axis=1).max() < 0.999


def test_bfloat16_stays_near_float32(make: Make, llm: Make, family: str, matrix: list[Item]) -> None:
    items = by_id(matrix, "three of eight", "landscape", "text", "image")
    low = llm(family, dtype="bfloat16")
    vectors = low.encode(items, role="document")
    assert low.card.dtype == "bfloat16"
    assert least_cosine(vectors, make(family).encode(items, role="document")) > 0.999
    alone = np.concatenate([low.encode([item], role="document") for item in items])
    assert least_cosine(vectors, alone) > 0.9995


# --- what the model is given ----------------------------------------------------------------------------


def replaced_positions(embedder: MultimodalLLM, item: Item) -> int:
    """Positions whose embedding is not that of a word: what the model really put in."""
    inputs = dict(embedder.chat.batch(embedder._reader.turns([item])))
    with torch.inference_mode(), reading_layer(embedder.backbone.tower, 0) as state:
        embedder.backbone.base(**inputs, use_cache=False)
        words = embedder.backbone.tower.embed_tokens(inputs["input_ids"])
    return int((state() != words).any(dim=-1).sum())


def test_inspection_and_tally(make: Make, family: str, matrix: list[Item]) -> None:
    embedder = make(family, transcript="before")
    earlier = dataclasses.replace(embedder.tally)
    assert isinstance(embedder, Inspects)
    seen = dict(zip([i.id for i in matrix], embedder.inspect(matrix, role="document"), strict=True))
    assert embedder.tally == earlier  # inspecting is not encoding
    for item in matrix:
        found = seen[item.id]
        assert found.item == item.id
        assert found.visual_tokens == replaced_positions(embedder, item)
        ids = embedder.chat.batch(embedder._reader.turns([item]))["input_ids"]
        assert found.text_tokens + found.visual_tokens == ids.numel()
        assert (item.full_text or "Summarize above") in found.wording
        assert (SAID in found.wording) == (item.transcript == SAID)
        assert found.cut_tokens == 0
    asked_used = {
        name: (seen[name].frames_asked, seen[name].frames_used, seen[name].size, seen[name].reader)
        for name in ("one frame", "three of eight", "eight frames", "portrait", "image", "text")
    }
    assert asked_used == {
        "one frame": (1, 1, (48, 40), "memory"),
        "three of eight": (8, 3, (48, 40), "memory"),
        "eight frames": (8, 8, (40, 48), "memory"),
        "portrait": (4, 4, (64, 32), "memory"),
        "image": (0, 0, (48, 40), ""),
        "text": (0, 0, None, ""),
    }
    assert seen["file"].frames_used == 4
    assert seen["file"].reader in ("decord", "pyav")
    assert seen["text"].visual_tokens == 0 < seen["one frame"].visual_tokens
    assert seen["three of eight"].visual_tokens < seen["eight frames"].visual_tokens
    embedder.encode(matrix, role="document")
    assert embedder.tally == Tally(
        clips=earlier.clips + 7,
        frames_asked=earlier.frames_asked + sum(found.frames_asked for found in seen.values()),
        frames_used=earlier.frames_used + sum(found.frames_used for found in seen.values()),
        visual_tokens=earlier.visual_tokens + sum(found.visual_tokens for found in seen.values()),
    )


def test_inspecting_names_bad_items_and_counts_cut_tokens(make: Make, matrix: list[Item]) -> None:
    embedder = make("gemma3", max_tokens=60)
    with pytest.raises(ItemError, match="item 'nothing': empty text"):
        embedder.inspect([*matrix, Item("nothing")], role="query")
    with pytest.raises(ValueError, match="role must be one of query, document, got 'passage'"):
        embedder.inspect([], role="passage")  # type: ignore[arg-type]
    assert embedder.inspect([], role="query") == []
    (long,) = embedder.inspect([Item("long", text="word " * 200)], role="query")
    assert long.cut_tokens > 100
    assert long.text_tokens <= 60


@pytest.mark.parametrize("kind", ["video", "image"])
def test_pixel_budget(make: Make, family: str, kind: str) -> None:
    pixels = noise(4, 64, 64, seed=9)
    item = Item("a", video=pixels) if kind == "video" else Item("a", image=pixels[0])
    budgets = (0, 32 * 32, 16 * 16)
    seen = [make(family, max_pixels=budget).inspect([item], role="document")[0] for budget in budgets]
    # the last is below the size from which the Qwen processors of the tiny models enlarge: 32 x 32
    assert [found.size for found in seen] == [(64, 64), (32, 32), (16, 16)]
    tokens = [found.visual_tokens for found in seen]
    if family in FIXED_SIZE and kind == "video":
        assert tokens[0] == tokens[1] == tokens[2]
    elif family in FIXED_SIZE:
        assert tokens[0] >= tokens[1] >= tokens[2]
    else:
        assert tokens[0] > tokens[1] > tokens[2]
        assert tokens[0] == 16 * tokens[2]
    for budget, found in zip(budgets, seen, strict=True):
        assert found.visual_tokens == replaced_positions(make(family, max_pixels=budget), item)


def test_place_of_the_transcript(make: Make, family: str, matrix: list[Item]) -> None:
    items = by_id(matrix, "eight frames", "landscape")

    def wording(placement: str) -> tuple[str, str]:
        spoken, silent = make(family, transcript=placement).inspect(items, role="document")
        return spoken.wording, silent.wording

    chat = make(family).chat
    token = chat.rendering.token("image" if frames_as_images(chat.processor) else "video")
    assert token is not None
    spoken, silent = wording("none")
    assert SAID not in spoken
    assert spoken.replace(token, "") == silent.replace(token, "")
    for placement in ("before", "after"):
        spoken, unspoken = wording(placement)
        places = {
            "said": spoken.index(SAID),
            "first frame": spoken.index(token),
            "prompt": spoken.index("Summarize above video in one word:"),
        }
        first = ["said", "first frame"] if placement == "before" else ["first frame", "said"]
        assert sorted(places, key=places.__getitem__) == [*first, "prompt"]
        assert unspoken == silent  # an empty transcript leaves no trace


# --- seconds --------------------------------------------------------------------------------------------


def words(embedder: MultimodalLLM, item: Item) -> str:
    ids = embedder.chat.batch(embedder._reader.turns([item]))["input_ids"][0]
    return str(embedder.chat.tokenizer.decode(ids))


def test_real_seconds_are_worded(make: Make, clip_file: Path) -> None:
    """Frames of an unusual rate: 0.8 a second, and a file at 10 a second."""
    clip = Item("clip", video=noise(4, 32, 32), fps=0.8)  # frames at 0, 1.25, 2.5, 3.75 s of 5 s
    assert re.findall(r"Frame from (\d\d:\d\d):", words(make("smolvlm"), clip)) == [
        "00:00",
        "00:01",
        "00:02",
        "00:03",
    ]
    assert "series of four frames from a 0:00:05 [H:MM:SS] video" in words(make("smolvlm"), clip)
    assert re.findall(r"<([\d.]+) seconds>", words(make("qwen3_vl"), clip)) == ["0.6", "3.1"]  # of two each
    assert re.findall(r"Time ([\d.]+)s", words(make("videollama3"), clip)) == ["0.0", "1.2", "2.5", "3.8"]
    file = Item("file", video=clip_file)  # 2 s; frames 2, 7, 12 and 17
    assert re.findall(r"<([\d.]+) seconds>", words(make("qwen3_vl"), file)) == ["0.4", "1.4"]
    spoken = words(make("smolvlm"), file)
    assert re.findall(r"Frame from (\d\d:\d\d):", spoken) == ["00:00"] * 2 + ["00:01"] * 2


@pytest.mark.parametrize(("fps", "seconds"), [(None, 1.0), (0.8, 2.5), (4.0, 1.0)])
def test_seconds_of_a_temporal_step(make: Make, fps: float | None, seconds: float) -> None:
    """Two frames make a step; 2 frames a second are asked for, which a clip of 4 a second can give."""
    embedder = make("qwen2_5_vl")
    batch = embedder.chat.batch(embedder._reader.turns([Item("a", video=noise(4, 32, 32), fps=fps)]))
    assert batch["second_per_grid_ts"] == pytest.approx([seconds])


def test_seconds_change_the_vector_only_where_the_family_knows_them(make: Make, family: str) -> None:
    pixels = noise(4, 32, 32)
    slow, fast = make(family).encode(
        [Item("slow", video=pixels, fps=0.1), Item("fast", video=pixels, fps=2.0)], role="document"
    )
    knows = family in ("videollama3", "qwen2_5_vl", "qwen3_vl", "smolvlm")
    assert (float(slow @ fast) < 0.99999) == knows


# --- adapters -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(family: str, make: Make, tiny: Callable[..., str]) -> PeftModel:
    """LoRA on the language model alone, after three steps that push texts apart."""
    embedder = make(family)
    tower = load_language_model(tiny(family))
    torch.manual_seed(0)
    model = get_peft_model(tower, LoraConfig(r=4, lora_alpha=16, target_modules=linear_targets(tower)))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    ids = [text_ids(embedder, text) for text in TEXTS[:2]]
    for _ in range(3):
        one, other = (state_of(model, row) for row in ids)
        nn.functional.cosine_similarity(one, other).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def text_ids(embedder: MultimodalLLM, text: str) -> torch.Tensor:
    prompt = embedder.card.prompt
    assert prompt is not None
    return torch.tensor([embedder.chat.text_ids(prompt, text, max_tokens=1024)])


def state_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    state = last_token(hidden_state(model, ids, torch.ones_like(ids)), torch.ones_like(ids))
    return nn.functional.normalize(state, dim=-1)  # (1, dim)


def test_adapter_from_the_language_model_to_the_full_model_and_back_and_merged(
    family: str, make: Make, tiny: Callable[..., str], trained: PeftModel, matrix: list[Item], tmp_path: Path
) -> None:
    plain = make(family)
    items = by_id(matrix, "text", "short text", "image", "three of eight", "landscape")
    texts = [Item(str(number), text=text) for number, text in enumerate(TEXTS)]
    with torch.inference_mode():
        expected = torch.cat([state_of(trained, text_ids(plain, text)) for text in TEXTS]).numpy()
    save_embedder(tmp_path / "embedder", model=trained, card=plain.card)

    full = load_embedder(tmp_path / "embedder", decode_timeout=0)
    assert isinstance(full, MultimodalLLM)
    assert least_cosine(full.encode(texts, role="query"), expected) > 0.99999
    vectors = full.encode(items, role="document")
    assert (vectors @ vectors.T - np.eye(len(items))).max() < 0.9999  # not collapsed: what follows can fail
    assert least_cosine(vectors, plain.encode(items, role="document")) < 0.999  # clips move with the texts

    # and back: what sits on the full model's language model goes onto one of its own
    fresh = MultimodalLLM(tiny(family), fps=2.0, max_frames=8, decode_timeout=0, dtype="float32")
    on_full = PeftModel.from_pretrained(fresh.backbone.tower, str(tmp_path / "embedder"))
    (tmp_path / "back").mkdir()
    write_adapter(tmp_path / "back", on_full, base_model=tiny(family), revision=None)
    alone = PeftModel.from_pretrained(load_language_model(tiny(family)), str(tmp_path / "back")).eval()
    for name, tensor in get_peft_model_state_dict(trained).items():
        assert torch.equal(get_peft_model_state_dict(alone)[name], tensor)
    with torch.inference_mode():
        returned = torch.cat([state_of(alone, text_ids(plain, text)) for text in TEXTS]).numpy()
    np.testing.assert_allclose(returned, expected, atol=1e-5)

    # merged: plain linears, equal vectors, also from a checkpoint of their own
    merged = on_full.merge_and_unload()
    assert merged is fresh.backbone.tower
    assert not [name for name, _ in merged.named_modules() if "lora" in name]
    assert least_cosine(fresh.encode(items, role="document"), vectors) > 0.99999
    fresh.backbone.full.save_pretrained(tmp_path / "merged")
    fresh.chat.processor.save_pretrained(tmp_path / "merged")
    reopened = load_embedder(f"mllm:{tmp_path / 'merged'}?fps=2&max_frames=8&dtype=float32&decode_timeout=0")
    assert least_cosine(reopened.encode(items, role="document"), vectors) > 0.99999
    assert reopened.card.weights not in (plain.card.weights, full.card.weights)


# --- where models come from ---------------------------------------------------------------------------------


def test_a_hub_name_with_a_revision(
    tiny: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits of one name in the hub's cache, as a download leaves them."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--org--name"
    commits = {"0" * 40: tiny("gemma3"), "1" * 40: tiny("gemma3", seed=1)}
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    for commit, folder in commits.items():
        (repository / "snapshots").mkdir(exist_ok=True)
        (repository / "snapshots" / commit).symlink_to(folder, target_is_directory=True)
    items = [Item("text", text=TEXTS[1])]
    seen = {}
    for commit, folder in commits.items():
        named = load_embedder(f"mllm:org/name?revision={commit}&dtype=float32")
        assert (named.card.base_model, named.card.revision) == ("org/name", commit)
        seen[commit] = named.encode(items, role="query")
        local = load_embedder(f"mllm:{folder}?dtype=float32")
        np.testing.assert_array_equal(seen[commit], local.encode(items, role="query"))
        assert named.card.fingerprint == local.card.fingerprint
    first, second = seen.values()
    assert float((first * second).sum()) < 0.9
    main = load_embedder("mllm:org/name?dtype=float32").encode(items, role="query")
    np.testing.assert_array_equal(main, first)


# --- families that mix sizes ----------------------------------------------------------------------------


def test_one_call_gives_each_clip_the_inputs_of_its_own_call(make: Make, family: str) -> None:
    """What MIXES_SIZES claims."""
    embedder = make(family)
    name = type(embedder.chat.processor).__name__
    clips = (noise(2, 32, 64), noise(5, 48, 32), noise(1, 40, 40))
    turns = embedder._reader.turns([Item(str(number), video=clip) for number, clip in enumerate(clips)])
    assert embedder.chat.go_together(turns[0], turns[1]) == (name in MIXES_SIZES)
    if name not in MIXES_SIZES:
        return
    batch = embedder.chat.batch(turns)
    apart = [embedder.chat.batch([turn]) for turn in turns]
    for row, own in enumerate(apart):
        kept = batch["input_ids"][row][batch["attention_mask"][row] > 0]
        assert torch.equal(kept, own["input_ids"][0])
    for key in ("pixel_values", "pixel_values_videos", "video_grid_thw"):
        if key in batch:
            torch.testing.assert_close(batch[key], torch.cat([own[key] for own in apart]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("smolvlm", "do_image_splitting"), ("internvl", "crop_to_patches")],
)
def test_parts_of_images_are_counted_and_leave_clips_alone(
    tiny: Callable[..., str], name: str, setting: str
) -> None:
    """Processors that show an image in parts as well."""
    embedder = MultimodalLLM(tiny(name), fps=2.0, max_frames=8, dtype="float32", decode_timeout=0)
    part = embedder.chat.processor.image_processor
    setattr(part, setting, True)
    if name == "smolvlm":
        part.size, part.max_image_size = {"longest_edge": 64}, {"longest_edge": 32}
    items = [
        Item("tall", image=noise(64, 32)),
        Item("wide", image=noise(32, 64, seed=2)),
        Item("clip", video=noise(4, 32, 32)),
    ]
    tall, _, clip = embedder.inspect(items, role="document")
    assert tall.visual_tokens > 4
    assert clip.visual_tokens == 4 * 4
    for item, found in zip(items, (tall, _, clip), strict=True):
        assert found.visual_tokens == replaced_positions(embedder, item)
    together = embedder.encode(items, role="document")
    alone = np.concatenate([embedder.encode([item], role="document") for item in items])
    assert least_cosine(together, alone) > 0.99999


def test_what_does_not_move_costs_fewer_tokens_with_videollama3s_compression(
    tiny: Callable[..., str],
) -> None:
    embedder = MultimodalLLM(tiny("videollama3"), fps=2.0, max_frames=8, dtype="float32", decode_timeout=0)
    still, moving = (
        Item("still", video=np.repeat(noise(1, 48, 40), 6, axis=0)),
        Item("m", video=noise(6, 48, 40)),
    )
    plain = [found.visual_tokens for found in embedder.inspect([still, moving], role="document")]
    embedder.chat.processor.video_processor.use_token_compression = True
    seen = [found.visual_tokens for found in embedder.inspect([still, moving], role="document")]
    assert plain == [6 * 30, 6 * 30]
    assert seen == [30 + 5, 6 * 30]  # one frame, and a token of each other
    assert seen[0] == replaced_positions(embedder, still)
    together = embedder.encode([still, moving], role="document")
    alone = np.concatenate([embedder.encode([item], role="document") for item in (still, moving)])
    assert least_cosine(together, alone) > 0.99999


# --- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("qwen2_vl", "8, 8 given, 4, 4 found"),
        ("qwen3_vl", "8, 8 given, 4, 4 found"),
        ("videollama3", "8, 8 given, 4, 4 found"),
        ("smolvlm", "8, 8 given, 4, 4 found"),
        ("llava_onevision", "8, 8 given, 4, 4 found"),
        ("internvl", "8, 8 given, 8 found"),
    ],
)
def test_a_processor_that_drops_frames_is_refused(tiny: Callable[..., str], name: str, found: str) -> None:
    embedder = MultimodalLLM(tiny(name), dtype="float32", decode_timeout=0)
    processor = embedder.chat.processor
    kind = type(processor.video_processor)

    class EverySecondFrame(kind):  # type: ignore[misc, valid-type]
        def _preprocess(self, videos: list[torch.Tensor], **options: object) -> object:
            return super()._preprocess([video[::2] for video in videos], **options)

    processor.video_processor.__class__ = EverySecondFrame
    items = [Item("a", video=noise(8, 32, 32)), Item("b", video=noise(8, 32, 32, seed=1))]
    with pytest.raises(
        RefusedRequest,
        match=rf"{type(processor).__name__} changed the number of frames: {found} in the model's inputs.*"
        "do_sample_frames",
    ):
        embedder.encode(items, role="document")


def test_the_last_frame_is_repeated_for_a_temporal_patch_and_nowhere_else(make: Make, family: str) -> None:
    embedder = make(family)
    one, two, three = embedder.inspect(
        [
            Item("one", video=noise(1, 32, 32)),
            Item("two", video=np.repeat(noise(1, 32, 32), 2, axis=0)),
            Item("three", video=noise(3, 32, 32)),
        ],
        role="document",
    )
    steps = 2 if family.startswith("qwen") else 1
    newline = 1 if family == "llava_onevision" else 0  # behind all frames
    per_step = one.visual_tokens - newline
    assert one.frames_used == 1
    assert two.visual_tokens == newline + per_step * (2 // steps)
    assert three.visual_tokens == newline + per_step * -(-3 // steps)


def test_what_a_card_says(make: Make, family: str) -> None:
    card = make(family).card
    assert card.modalities == ("text", "image", "video")
    assert card.frames is not None
    assert dataclasses.replace(card, transcript="after").fingerprint != card.fingerprint
