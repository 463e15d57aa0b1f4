import numpy as np
import pytest
from vectors_folder import write_vectors

from vidvec_msg import load_embedder
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.precomputed import Precomputed
from vidvec_msg.errors import ItemError, RefusedRequest
from vidvec_msg.formats.items import Item

CARD = EmbedderCard(name="elsewhere", dim=3, modalities=("text", "video"), weights="abc")
EYE = np.eye(3, dtype=np.float32)


def test_looked_up_by_id(tmp_path):
    write_vectors(tmp_path, ["a", "b", "c"], EYE * 2, CARD.to_dict(), rows_per_shard=2)
    embedder = load_embedder(f"vectors:{tmp_path}")
    vectors = embedder.encode([Item("c"), Item("a", text="whatever"), Item("c")], role="document")
    np.testing.assert_array_equal(vectors, EYE[[2, 0, 2]])  # of norm 1, whatever was stored
    assert vectors.dtype == np.float32
    assert embedder.encode([], role="query").shape == (0, 3)
    assert embedder.card == CARD
    assert embedder.card.fingerprint == CARD.fingerprint


def test_absent_ids_are_named(tmp_path):
    write_vectors(tmp_path, ["a"], EYE[:1], CARD.to_dict())
    with pytest.raises(ItemError) as caught:
        Precomputed(tmp_path).encode([Item("x"), Item("a"), Item("y")], role="query")
    assert [failure.item for failure in caught.value.failures] == ["x", "y"]
    assert "no vector of this id" in caught.value.failures[0].reason


def test_two_sides(tmp_path):
    write_vectors(tmp_path / "corpus", ["both", "clip"], EYE[:2], CARD.to_dict())
    write_vectors(tmp_path / "queries", ["both", "message"], EYE[[2, 1]], CARD.to_dict())
    embedder = Precomputed(tmp_path)
    np.testing.assert_array_equal(embedder.encode([Item("both")], role="document"), EYE[:1])
    np.testing.assert_array_equal(embedder.encode([Item("both")], role="query"), EYE[2:])
    # the reverse direction: a clip is the query
    np.testing.assert_array_equal(embedder.encode([Item("clip")], role="query"), EYE[1:2])


def test_sides_of_different_embedders(tmp_path):
    write_vectors(tmp_path / "corpus", ["a"], EYE[:1], CARD.to_dict())
    other = EmbedderCard(name="other", dim=3, weights="xyz")
    write_vectors(tmp_path / "queries", ["b"], EYE[:1], other.to_dict())
    with pytest.raises(RefusedRequest, match="were made by different embedders"):
        Precomputed(tmp_path)


def test_vectors_of_another_tool(tmp_path):
    write_vectors(tmp_path / "clip4clip", ["a"], EYE[:1], {"made_with": "something else"})
    card = Precomputed(tmp_path / "clip4clip").card
    assert (card.name, card.dim) == ("clip4clip", 3)


def test_folders_that_are_none(tmp_path):
    with pytest.raises(RefusedRequest, match=r"neither manifest.json nor the folders corpus/ and queries/"):
        Precomputed(tmp_path)


def test_zero_vectors_are_named(tmp_path):
    write_vectors(tmp_path, ["a", "b"], EYE[:2] * [[1], [0]], CARD.to_dict())
    with pytest.raises(ItemError, match="item 'b': the model gave a zero vector"):
        Precomputed(tmp_path).encode([Item("a"), Item("b")], role="query")
