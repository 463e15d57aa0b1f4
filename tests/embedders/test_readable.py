"""Files of embedders are looked at before weights are read: what opens passes, what cannot is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tiny_models import build_tiny_mllm

from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.readable import refuse_unreadable
from vidvec_msg.embedders.saved import save_reading
from vidvec_msg.errors import RefusedRequest


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_mllm(tmp_path_factory.mktemp("readable") / "model")


@pytest.fixture
def saved(model: Path, tmp_path: Path) -> Path:
    """An embedder folder whose model lies elsewhere."""
    shutil.copytree(model, tmp_path / "model")
    embedder = MultimodalLLM(str(tmp_path / "model"))
    save_reading(tmp_path / "saved", embedder=embedder, name="mine", note="Read as it is.")
    return tmp_path / "saved"


def test_what_opens_passes(model: Path, saved: Path) -> None:
    for spec in (f"mllm:{model}", f"mllm:{model}?layer=2", str(saved), f"{saved}?model={model}"):
        refuse_unreadable(spec)
        load_embedder(spec)
    refuse_unreadable("builtins:object")  # of others the spec alone is looked at


def by_class(folder: Path, model: Path, name: str) -> list[str]:
    """Specs that name the class, and the model as one of its options."""
    module = "multimodal_llm" if name == "MultimodalLLM" else "sentence_transformer"
    path = f"vidvec_msg.embedders.{module}"
    (folder / "mine.yaml").write_text(f"class_path: {path}.{name}\ninit_args: {{model: {model}}}\n")
    return [str(folder / "mine.yaml"), f"{path}:{name}?model={model}"]


def test_a_class_and_its_options(model: Path, tmp_path: Path) -> None:
    for spec in by_class(tmp_path, model, "MultimodalLLM"):
        refuse_unreadable(spec)
        load_embedder(spec)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model.safetensors").write_bytes(b"damaged")
    for spec in by_class(tmp_path, tmp_path / "half", "SentenceTransformerEmbedder"):
        assert "model.safetensors cannot be read (" in refused(spec)
    with pytest.raises(RefusedRequest, match="its option model is missing; give a folder or a hub name"):
        refuse_unreadable("vidvec_msg.embedders.multimodal_llm:MultimodalLLM")


def refused(spec: object) -> str:
    with pytest.raises(RefusedRequest) as refusal:
        refuse_unreadable(str(spec))
    with pytest.raises(RefusedRequest):
        load_embedder(str(spec))
    told = str(refusal.value)
    assert told.startswith(f"embedder {str(spec)!r}: ")
    return told


def test_what_cannot_open_is_named(saved: Path, tmp_path: Path) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    for spec in (saved, f"mllm:{tmp_path / 'model'}"):
        assert f"{weights} cannot be read (" in refused(spec)
        assert refused(spec).endswith("; copy it again")
    weights.rename(tmp_path / "model" / "weights.bin")
    assert "holds no .safetensors file; weights.bin would have to be unpickled" in refused(saved)
    (tmp_path / "model" / "config.json").write_text("{")
    assert "its configuration cannot be read" in refused(saved)
    shutil.rmtree(tmp_path / "model")
    assert f"no model '{tmp_path / 'model'}': accepted are" in refused(saved)
    (saved / "embedder.json").write_text(json.dumps({"name": "mine"}))
    assert "embedder.json: " in refused(saved)


def test_a_sentence_transformers_folder(tmp_path: Path) -> None:
    assert "no such folder; st: is followed by a folder that" in refused(f"st:{tmp_path / 'none'}")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model.safetensors").write_bytes(b"damaged")
    assert "model.safetensors cannot be read (" in refused(f"st:{tmp_path / 'half'}")
