"""``videoprism:`` on a tiny real model: 4 frames of 36 pixels, the last one repeated."""

import json
import logging
import shutil
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine, noise
from tiny_dual_encoders import PRISM_FRAMES, build_tiny_dual_encoder

from vidvec_msg import load_embedder
from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Inspects, Prepares
from vidvec_msg.embedders.dual.videoprism import VideoPrism
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(build_tiny_dual_encoder(tmp_path_factory.mktemp("videoprism"), "videoprism"))


@pytest.fixture(scope="module")
def prism(folder):
    """A tiny embedder. One object per set of options."""

    @lru_cache
    def make(**options) -> VideoPrism:
        return VideoPrism(folder, **{"dtype": "float32", "decode_timeout": 0, **options})

    return make


def test_same_vector_in_any_batch(prism, mixed):
    embedder = prism()
    together = embedder.encode(mixed, role="document")
    check_vectors(together, mixed, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(together, alone) > 0.99999
    small = prism(batch_size=2, batch_frames=1).encode(mixed, role="document")
    assert least_cosine(together, small) > 0.99999
    backwards = embedder.encode(mixed[::-1], role="document")[::-1]
    assert least_cosine(together, backwards) > 0.99999
    assert np.abs(np.corrcoef(together) - np.eye(len(mixed))).max() < 0.9999  # and they differ


def test_the_card(prism):
    embedder = prism()
    card = embedder.card
    assert isinstance(embedder, Embedder)
    assert isinstance(embedder, Inspects)
    assert isinstance(embedder, Prepares)
    assert (card.dim, card.modalities, card.max_tokens) == (32, ("text", "image", "video"), 12)
    assert card.frames == FramePolicy.uniform(PRISM_FRAMES)
    assert card.pooling == "attention over 4 frames, the last one repeated"
    assert len(card.weights) == 64


@torch.inference_mode()
def test_pixels_are_squares_from_0_to_1(prism, folder):
    """The tower's own features for values between 0 and 1, whatever size, mean and sampling the processor's
    file says (here: 30 pixels, CLIP's mean, 2 frames)."""
    from torchvision.transforms.v2.functional import resize
    from transformers import VideoPrismClipModel

    clip = noise(PRISM_FRAMES, 36, 54)
    (vector,) = prism().encode([Item("v", video=clip)], role="document")
    pixels = torch.from_numpy(clip).permute(0, 3, 1, 2)
    squares = resize(pixels, [36, 36], interpolation=3, antialias=True).float() / 255
    model = VideoPrismClipModel.from_pretrained(folder).eval()
    expected = model.get_video_features(pixel_values_videos=squares[None]).pooler_output.flatten()
    np.testing.assert_allclose(vector, torch.nn.functional.normalize(expected, dim=0), atol=1e-3)


def test_a_short_clip_repeats_its_last_frame(prism):
    clip = noise(2, 40, 40)
    filled = np.concatenate([clip, clip[-1:], clip[-1:]])
    short, long = prism().encode([Item("a", video=clip), Item("b", video=filled)], role="document")
    np.testing.assert_allclose(short, long, atol=1e-6)


def test_an_image_is_a_clip_of_one_frame(prism):
    frame = noise(40, 52)
    image, one, four = prism().encode(
        [
            Item("image", image=frame),
            Item("one", video=frame[None]),
            Item("four", video=np.stack([frame] * PRISM_FRAMES)),
        ],
        role="query",
    )
    np.testing.assert_allclose(image, one, atol=1e-6)
    np.testing.assert_allclose(image, four, atol=1e-6)


def test_the_order_of_frames_matters(prism):
    """It sees a clip, not a bag of frames."""
    clip = noise(PRISM_FRAMES, 40, 40)
    forwards, backwards = prism().encode([Item("a", video=clip), Item("b", video=clip[::-1])], role="query")
    assert forwards @ backwards < 0.9999


@pytest.mark.parametrize("size", [(64, 20), (20, 64), (3, 40), (40, 3)], ids=str)
def test_any_shape(prism, size):
    item = Item("clip", video=noise(3, *size))
    check_vectors(prism().encode([item], role="document"), [item], prism().card)


def test_frames_are_uniform_over_the_clip(prism, clip_file):
    long, short, image, text = prism().inspect(
        [
            Item("long", video=clip_file),
            Item("short", video=noise(3, 40, 60)),
            Item("image", image=noise(8, 9)),
            Item("text", text="Lights! A dark house, and RAIN."),
        ],
        role="document",
    )
    assert (long.frames_asked, long.frames_used, long.reader) == (4, 4, "decord")
    assert (short.frames_used, short.size) == (3, (40, 60))
    assert {one.visual_tokens for one in (long, short, image)} == {4 * 2 * 2}  # what is repeated is seen too
    assert (text.wording, text.text_tokens) == ("lights a dark house and rain.", 7)


def test_texts_are_canonicalised(prism):
    """As google-deepmind/videoprism's utils.canonicalize_text, whose examples these are."""
    towers = prism().towers
    for text in ("Hello, World!", "Hello,World..", "  Hello   WORLD"):
        assert towers.wording(text) == "hello world."
    one, other = prism().encode(
        [Item("a", text="The slow turtle"), Item("b", text="the (slow) turtle!")], role="query"
    )
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_long_texts_are_cut_and_counted(prism, caplog):
    embedder = prism(name="tiny")
    with caplog.at_level(logging.WARNING):
        long, cut = embedder.encode(
            [Item("a", text="turtle " * 40), Item("b", text="turtle " * 13)], role="query"
        )
    assert "tiny: texts longer than the model's 12 tokens are cut" in caplog.text
    assert embedder.cut_items == 2
    np.testing.assert_allclose(long, cut, atol=1e-6)


@pytest.mark.parametrize("option", [{"max_pixels": 300}, {"document_prompt": "a video of {text}"}], ids=str)
def test_each_option_changes_a_vector_and_the_fingerprint(prism, mixed, option):
    moved = np.abs(
        prism(**option).encode(mixed, role="document") - prism().encode(mixed, role="document")
    ).max()
    assert moved > 1e-3
    assert prism(**option).card.fingerprint != prism().card.fingerprint


def test_as_a_spec(folder, prism, mixed):
    embedder = load_embedder(f"videoprism:{folder}?dtype=float32&decode_timeout=0")
    assert embedder.card.fingerprint == prism().card.fingerprint
    with pytest.raises(
        RefusedRequest, match="unknown option 'max_frames'"
    ):  # the model's config says how many
        load_embedder(f"videoprism:{folder}?max_frames=8")


def test_bad_items_are_named(prism):
    with pytest.raises(ItemError) as caught:
        prism().encode([Item("empty", text=" "), Item("good", text="a"), Item("x", video=None)], role="query")
    assert [failure.item for failure in caught.value.failures] == ["empty", "x"]


# --- models that are none -----------------------------------------------------------------------------------


def test_one_tower_alone(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "videoprism_vision_model"}))
    with pytest.raises(RefusedRequest, match="one tower alone: retrieval needs a checkpoint with both"):
        VideoPrism(str(tmp_path))


def test_other_models(tmp_path, folder):
    other = build_tiny_dual_encoder(tmp_path / "clip")
    with pytest.raises(RefusedRequest, match=r"is no VideoPrism \(clip\): use clip:"):
        VideoPrism(str(other))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(RefusedRequest, match="cannot load the VideoPrism model"):
        VideoPrism(str(copy))


def test_an_old_transformers(folder, monkeypatch):
    import transformers

    monkeypatch.delitem(sys.modules["transformers"].__dict__, "VideoPrismClipModel", raising=False)
    monkeypatch.setitem(transformers._class_to_module, "VideoPrismClipModel", "gone")
    with pytest.raises(RefusedRequest, match=r"pip install 'transformers>=5.13'"):
        VideoPrism(folder)
