"""Vectors cut to their first dimensions: the same everywhere, and recorded."""

import dataclasses

import numpy as np
import pytest
from embedders.conftest import least_cosine, noise
from sentence_transformers import SentenceTransformer

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.export.verb import export_embedder
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.merge import merge
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.saved import load_saved, read_card, save_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item

ITEMS = [
    *(Item(text, text=text) for text in ("a dog", "Keep trying.", "naïve café — 東京の夜 🐢")),
    Item("image", image=noise(48, 40)),
    Item("clip", video=noise(5, 48, 40), fps=2.0),
]


def cut(vectors, dim):
    first = vectors[:, :dim]
    return first / np.linalg.norm(first, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def saved(tiny, llm, tmp_path_factory):
    from embedders.test_merge import KINDS, adapted

    out = tmp_path_factory.mktemp("truncated") / "embedder"
    card = dataclasses.replace(llm(dtype="float32").card, name="mine", weights="", versions={})
    save_embedder(out, model=adapted(tiny(), **KINDS["lora"]), card=card)
    return out


@pytest.mark.parametrize("options", [{}, {"layer": 2, "pooling": "mean"}], ids=str)
def test_the_first_dimensions_normed_again(tiny, llm, options):
    whole = llm(dtype="float32", **options)
    for dim in (1, 63):
        found = MultimodalLLM(
            tiny(), truncate_dim=dim, fps=2.0, max_frames=8, decode_timeout=0, dtype="float32", **options
        )
        vectors = found.encode(ITEMS, role="document")
        assert vectors.shape == (5, dim) == (5, found.card.dim)
        np.testing.assert_allclose(vectors, cut(whole.encode(ITEMS, role="document"), dim), atol=1e-6)
        assert found.encode([], role="query").shape == (0, dim)
        assert found.card.fingerprint != whole.card.fingerprint


def test_all_of_them_is_no_truncation(tiny, llm):
    whole = llm(dtype="float32")
    same = MultimodalLLM(
        tiny(), truncate_dim=64, fps=2.0, max_frames=8, decode_timeout=0, dtype="float32"
    ).card
    assert same.truncate_dim == 0
    assert same.fingerprint == whole.card.fingerprint


def test_cards_from_before_keep_their_fingerprint():
    card = EmbedderCard(name="x", dim=4, weights="abc")
    old = {key: value for key, value in card.to_dict().items() if key not in ("truncate_dim", "merged_from")}
    assert EmbedderCard.from_dict(old).fingerprint == card.fingerprint
    assert dataclasses.replace(card, truncate_dim=4).fingerprint != card.fingerprint


@pytest.mark.parametrize("dim", [-1, 65])
def test_numbers_that_are_refused(tiny, dim):
    with pytest.raises(
        RefusedRequest, match=rf"truncate_dim is {dim}, and this model's vectors have 64 dime"
    ):
        load_embedder(f"mllm:{tiny()}?truncate_dim={dim}&dtype=float32")


def test_an_embedder_folder_is_cut_when_it_is_opened(saved):
    whole = load_saved(saved).encode(ITEMS, role="query")
    for opened in (load_embedder(f"{saved}?truncate_dim=16"), load_saved(saved, truncate_dim=16)):
        assert opened.card.truncate_dim == 16
        np.testing.assert_allclose(opened.encode(ITEMS, role="query"), cut(whole, 16), atol=1e-6)


def test_a_yaml_file(tiny, tmp_path, llm):
    path = tmp_path / "short.yaml"
    path.write_text(
        "class_path: vidvec_msg.embedders.multimodal_llm.MultimodalLLM\n"
        f"init_args: {{model: {tiny()}, truncate_dim: 8, dtype: float32, decode_timeout: 0}}\n"
    )
    expected = cut(llm(dtype="float32").encode(ITEMS[:3], role="query"), 8)
    np.testing.assert_allclose(load_embedder(path).encode(ITEMS[:3], role="query"), expected, atol=1e-6)


def test_it_stays_in_a_merged_folder(saved, tmp_path):
    merge(f"{saved}?truncate_dim=16", tmp_path / "short")
    assert read_card(tmp_path / "short").truncate_dim == 16
    expected = cut(load_saved(saved).encode(ITEMS, role="query"), 16)
    np.testing.assert_allclose(
        load_saved(tmp_path / "short").encode(ITEMS, role="query"), expected, atol=2e-5
    )
    longer = load_saved(tmp_path / "short", truncate_dim=0)  # nothing is lost
    assert longer.card.dim == 64
    assert "cut to its first 16 dimensions" in (tmp_path / "short" / "README.md").read_text()


def test_exported_folders(tiny, tmp_path, monkeypatch):
    ours = MultimodalLLM(tiny(), truncate_dim=16, fps=2.0, decode_timeout=0, dtype="float32")
    expected = ours.encode(ITEMS[:3], role="query")
    export_embedder(ours, tmp_path / "st")
    model = SentenceTransformer(str(tmp_path / "st"), device="cpu")
    assert least_cosine(model.encode([{"text": item.text} for item in ITEMS[:3]]), expected) > 0.99999
    export_embedder(ours, tmp_path / "plain", to="transformers")
    page = (tmp_path / "plain" / "README.md").read_text()
    assert "&truncate_dim=16" in page
    monkeypatch.chdir(tmp_path)
    lines = {}
    exec(page.partition("```python\n")[2].partition("```")[0], lines)
    assert least_cosine(lines["vector"].numpy()[None], expected[:1]) > 0.99999
