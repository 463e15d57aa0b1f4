"""Where open_clip's models come from, and which weights are never opened."""

import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from embedders.conftest import least_cosine, noise
from tiny_dual_encoders import build_tiny_open_clip, open_clip_config

from vidvec_msg import load_embedder
from vidvec_msg.embedders.dual.encoder import DualEncoder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

ITEMS = [Item("t", text="a turtle"), Item("i", image=noise(40, 60))]


@pytest.fixture(scope="module")
def tiny_open_clip(tmp_path_factory):
    return build_tiny_open_clip(tmp_path_factory.mktemp("open_clip"))


@pytest.fixture
def zoo(tiny_open_clip, monkeypatch):
    """open_clip's list with one more model and its weights: ``tiny/mine``."""
    import open_clip

    pixels = json.loads((tiny_open_clip / "open_clip_config.json").read_text())["preprocess_cfg"]
    weights = tiny_open_clip / "open_clip_model.safetensors"
    tags = {"mine": {"file": str(weights), **pixels}}
    monkeypatch.setitem(open_clip.factory._MODEL_CONFIGS, "tiny", open_clip_config())
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "tiny", tags)
    return tags


@pytest.fixture
def copied(tiny_open_clip, tmp_path):
    return Path(shutil.copytree(tiny_open_clip, tmp_path / "model"))


def vectors(spec, **options):
    return DualEncoder(str(spec), dtype="float32", **options).encode(ITEMS, role="query")


def test_every_way_to_the_same_model(tiny_open_clip, zoo):
    expected = vectors(tiny_open_clip)
    assert least_cosine(vectors(f"open_clip:{tiny_open_clip}"), expected) > 0.99999
    assert least_cosine(vectors("open_clip:tiny/mine"), expected) > 0.99999
    by_spec = load_embedder("clip:open_clip:tiny/mine?dtype=float32&name=a").encode(ITEMS, role="query")
    assert least_cosine(by_spec, expected) > 0.99999


def test_a_file_of_weights(tiny_open_clip, zoo):
    """Without a tag open_clip knows no preprocessing: texts are the same, images are not."""
    text, image = vectors(f"open_clip:tiny/{tiny_open_clip}/open_clip_model.safetensors")
    expected_text, expected_image = vectors(tiny_open_clip)
    assert text @ expected_text > 0.99999
    assert image @ expected_image < 0.9999


def test_a_folder_of_the_hub(tiny_open_clip, monkeypatch):
    asked = {}

    def local_copy(name, **options):
        asked.update(options, name=name)
        return str(tiny_open_clip)

    monkeypatch.setattr("huggingface_hub.snapshot_download", local_copy)
    embedder = DualEncoder("hf-hub:timm/PE-Core-B-16", revision="abc", dtype="float32")
    assert least_cosine(embedder.encode(ITEMS, role="query"), vectors(tiny_open_clip)) > 0.99999
    assert (asked["name"], asked["revision"]) == ("timm/PE-Core-B-16", "abc")
    assert not any(pattern.endswith((".bin", ".pt", ".pth", "*")) for pattern in asked["allow_patterns"])
    assert (embedder.card.name, embedder.card.revision) == ("PE-Core-B-16", "abc")


def test_a_hub_name_without_a_network():
    with pytest.raises(RefusedRequest, match="cannot load the open_clip model 'hf-hub:nobody/nothing'"):
        DualEncoder("hf-hub:nobody/nothing")


def test_quick_gelu_follows_the_weights(zoo):
    plain = vectors("open_clip:tiny/mine")
    fingerprint = DualEncoder("open_clip:tiny/mine").card.fingerprint
    zoo["mine"]["quick_gelu"] = True
    assert np.abs(vectors("open_clip:tiny/mine") - plain).max() > 1e-4
    assert DualEncoder("open_clip:tiny/mine").card.fingerprint != fingerprint


def test_preprocessing_is_part_of_the_fingerprint(copied, tiny_open_clip):
    config = json.loads((copied / "open_clip_config.json").read_text())
    config["preprocess_cfg"]["resize_mode"] = "shortest"
    (copied / "open_clip_config.json").write_text(json.dumps(config))
    assert least_cosine(vectors(copied), vectors(tiny_open_clip)) < 0.9999
    assert DualEncoder(str(copied)).card.fingerprint != DualEncoder(str(tiny_open_clip)).card.fingerprint


# --- weights that are not opened ----------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


def test_pickles_are_never_opened(copied):
    """open_clip prefers open_clip_pytorch_model.bin to model.safetensors (as some repositories hold them)."""
    (copied / "open_clip_model.safetensors").rename(copied / "model.safetensors")
    assert len(vectors(copied)) == 2  # one safetensors file of any name will do
    torch.save({"bomb": Bomb()}, copied / "open_clip_pytorch_model.bin")
    with pytest.raises(RefusedRequest, match=r"but model.safetensors, open_clip_pytorch_model.bin: pickled"):
        DualEncoder(str(copied))
    (copied / "model.safetensors").unlink()
    with pytest.raises(RefusedRequest, match=r"Keep one \.safetensors file, named open_clip_model"):
        DualEncoder(str(copied))
    (copied / "open_clip_pytorch_model.bin").unlink()
    with pytest.raises(RefusedRequest, match="but no weights"):
        DualEncoder(str(copied))


def test_pickles_of_the_list_are_never_opened(zoo, tmp_path):
    torch.save({"bomb": Bomb()}, tmp_path / "weights.pt")
    zoo["mine"]["file"] = str(tmp_path / "weights.pt")
    with pytest.raises(RefusedRequest, match=r"are in weights\.pt, which would have to be unpickled"):
        DualEncoder("open_clip:tiny/mine")
    with pytest.raises(RefusedRequest, match="would have to be unpickled"):
        DualEncoder(f"open_clip:tiny/{tmp_path}/weights.pt")


def test_weights_that_do_not_fit(copied):
    config = json.loads((copied / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["layers"] = 3
    (copied / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedRequest, match=r"(?s)cannot load the open_clip model .*Missing key"):
        DualEncoder(str(copied))


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (
            "open_clip:tini/mine",
            {},
            r"knows no model 'tini' \(did you mean 'tiny'\?\); accepted are open_clip:MODEL",
        ),
        ("open_clip:tiny/mein", {}, r"has no weights 'mein' for tiny \(did you mean 'mine'\?\); it has mine"),
        ("open_clip:tiny", {}, "has no weights '' for tiny; it has mine"),
        ("open_clip:tiny/mine", {"revision": "abc"}, "revision is for models of the hub"),
    ],
)
def test_names(zoo, model, options, reason):
    with pytest.raises(RefusedRequest, match=reason):
        DualEncoder(model, **options)


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(RefusedRequest, match=r"holds no open_clip_config\.json"):
        DualEncoder(f"open_clip:{tmp_path}")


def test_without_open_clip(tiny_open_clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    message = r"open_clip is needed to load .* and is not installed: pip install 'vidvec-msg\[open_clip\]'"
    with pytest.raises(RefusedRequest, match=message):
        DualEncoder(str(tiny_open_clip))


def test_open_clip_leaves_the_logging_alone(tiny_open_clip, monkeypatch):
    """It would give the root logger a handler, and every line of a verb would appear twice."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    DualEncoder(str(tiny_open_clip))
    assert root.handlers == []
