import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

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
    with pytest.raises(
        RefusedRequest, match=r"no manifest.json .*, and neither corpus nor queries as such a folder"
    ):
        Precomputed(tmp_path)
    with pytest.raises(RefusedRequest, match="there is no such file or folder"):
        Precomputed(tmp_path / "absent")


def test_zero_vectors_are_named(tmp_path):
    write_vectors(tmp_path, ["a", "b"], EYE[:2] * [[1], [0]], CARD.to_dict())
    with pytest.raises(ItemError, match="item 'b': the model gave a zero vector"):
        Precomputed(tmp_path).encode([Item("a"), Item("b")], role="query")


# --- files of another environment -------------------------------------------------------------------------


def write_file(path, ids, vectors):
    np.savez(path, ids=np.array(ids, dtype=str), vectors=np.asarray(vectors))
    return path


def test_a_file(tmp_path):
    write_file(tmp_path / "clip4clip.npz", ["a", "b", "c"], EYE.astype(np.float16) * 2)
    embedder = load_embedder(f"vectors:{tmp_path / 'clip4clip.npz'}")
    vectors = embedder.encode([Item("c"), Item("a", video=tmp_path / "a.mp4"), Item("c")], role="document")
    np.testing.assert_array_equal(vectors, EYE[[2, 0, 2]])
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(embedder.encode([Item("b")], role="query"), EYE[1:2])
    assert embedder.encode([], role="query").shape == (0, 3)
    assert (embedder.card.name, embedder.card.dim) == ("clip4clip", 3)
    assert set(embedder.card.modalities) == {"text", "image", "video", "audio"}
    assert load_embedder(f"vectors:{tmp_path / 'clip4clip.npz'}?name=mine").card.name == "mine"


def test_caches_notice_another_content_and_not_another_place(tmp_path):
    first = Precomputed(write_file(tmp_path / "a.npz", ["a"], EYE[:1])).card.fingerprint
    assert Precomputed(shutil.copy(tmp_path / "a.npz", tmp_path / "b.npz")).card.fingerprint == first
    assert Precomputed(write_file(tmp_path / "c.npz", ["a"], EYE[1:2])).card.fingerprint != first
    np.save(tmp_path / "d.npy", EYE[:1])
    (tmp_path / "d.ids.txt").write_text("a\n")
    one = Precomputed(tmp_path / "d.npy").card.fingerprint
    (tmp_path / "d.ids.txt").write_text("b\n")  # the same vectors of other items
    assert Precomputed(tmp_path / "d.npy").card.fingerprint != one


def test_a_folder_of_two_files(tmp_path):
    folder = tmp_path / "imagebind"
    folder.mkdir()
    write_file(folder / "corpus.npz", ["both", "clip"], EYE[:2])
    np.save(folder / "queries.npy", EYE[[2, 1]])
    (folder / "queries.ids.txt").write_text("both\nmessage\n")
    embedder = load_embedder(f"vectors:{folder}")
    np.testing.assert_array_equal(embedder.encode([Item("both")], role="document"), EYE[:1])
    np.testing.assert_array_equal(embedder.encode([Item("both")], role="query"), EYE[2:])
    mixed = embedder.encode([Item("clip"), Item("message"), Item("both")], role="query")
    np.testing.assert_array_equal(mixed, EYE[[1, 1, 2]])
    assert embedder.card.name == "imagebind"


def test_sides_that_do_not_belong_together(tmp_path):
    write_file(tmp_path / "corpus.npz", ["a"], EYE[:1])
    write_file(tmp_path / "queries.npz", ["b"], np.eye(4)[:1])
    with pytest.raises(RefusedRequest, match=r"dimensions of queries.npz 4 and corpus.npz 3"):
        Precomputed(tmp_path)
    (tmp_path / "queries.npz").unlink()
    write_vectors(tmp_path / "queries", ["b"], EYE[:1], CARD.to_dict())
    with pytest.raises(RefusedRequest, match=r"corpus.npz is a file and the other side a vectors folder"):
        Precomputed(tmp_path)
    write_file(tmp_path / "queries.npz", ["b"], EYE[:1])
    with pytest.raises(RefusedRequest, match=r"queries is there more than once \(queries.npz, queries\)"):
        Precomputed(tmp_path)


def test_bad_rows_are_named_and_the_others_are_not_lost(tmp_path):
    path = write_file(tmp_path / "v.npz", ["a", "b", "c"], [[1, 0, 0], [0, 0, 0], [0, np.nan, 1]])
    with pytest.raises(ItemError) as caught:
        Precomputed(path).encode([Item("a"), Item("b"), Item("c")], role="query")
    assert [failure.item for failure in caught.value.failures] == ["b", "c"]
    assert "zero vector" in caught.value.failures[0].reason
    assert "not finite" in caught.value.failures[1].reason
    wide = write_file(tmp_path / "w.npz", ["a"], np.array([[1e300, 0, 0]]))
    with pytest.raises(ItemError, match="not finite"):
        Precomputed(wide).encode([Item("a")], role="query")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("clips/0007.mp4", "no vector of this id, but one of '7': ids must be equal"),
        ("Cat", "no vector of this id, but one of 'cat.mp4': ids must be equal"),
        ("dog", "no vector of this id (v.npz: 2 ids, such as '7')"),
    ],
)
def test_an_absent_id_tells_what_may_be_meant(tmp_path, asked, told):
    path = write_file(tmp_path / "v.npz", ["7", "cat.mp4"], EYE[:2])
    with pytest.raises(ItemError) as caught:
        Precomputed(path).encode([Item("7"), Item(asked)], role="query")
    assert [(failure.item, failure.reason) for failure in caught.value.failures] == [(asked, told)]


@pytest.fixture
def collection(tmp_path):
    """Three clips, two messages; nobody looks into the clips."""
    folder = tmp_path / "collection"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"clip{n}", "video": f"clip{n}.mp4"} for n in range(3)]
    for row in corpus:
        (folder / row["video"]).write_bytes(b"not read")
    queries = [{"_id": f"message{n}", "text": f"message {n}"} for n in range(2)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "query-id\tcorpus-id\tscore\nmessage0\tclip0\t1\nmessage1\tclip1\t1\nmessage1\tclip2\t1\n"
    (folder / "qrels" / "test.tsv").write_text(judged)
    return folder


def test_through_the_verbs(tmp_path, collection, capsys):
    from vidvec_msg.cli import main

    folder = tmp_path / "other_model"
    folder.mkdir()
    write_file(folder / "corpus.npz", ["clip2", "clip0", "clip1"], [[0, 1, 0.1], [1, 0, 0], [0, 1, 0]])
    write_file(folder / "queries.npz", ["message0", "message1"], [[3.0, 0, 0], [0, 2, 0]])
    spec = ["--collection", str(collection), "--embedder", f"vectors:{folder}"]
    assert main(["evaluate", *spec, "--out", str(tmp_path / "e")]) == 0
    report = json.loads((tmp_path / "e" / "report.json").read_text())
    assert report["forward"]["metrics"]["map"]["value"] == 1.0
    assert report["reverse"]["metrics"]["map"]["value"] == 1.0
    assert main(["embed", *spec, "--out", str(tmp_path / "v")]) == 0
    assert main(["index", "--vectors", str(tmp_path / "v"), "--out", str(tmp_path / "i")]) == 0
    capsys.readouterr()
    assert main(["search", "--index", str(tmp_path / "i"), "--id", "clip1", "--k", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "clip2"
    assert main(["search", "--index", str(tmp_path / "i"), "--text", "anything"]) == 2
    assert "no vector of this id" in capsys.readouterr().err


def test_absent_ids_at_evaluate_are_counted_and_named(tmp_path, collection, capsys):
    from vidvec_msg.cli import main

    path = write_file(tmp_path / "v.npz", ["clip0", "clip1.mp4", "message0", "message1"], np.eye(4))
    words = ["evaluate", "--collection", str(collection), "--embedder", f"vectors:{path}"]
    assert main([*words, "--out", str(tmp_path / "e")]) == 1
    told = capsys.readouterr().err
    assert "2 of 5 items have no vector and 0 may (max_failures)" in told
    reasons = json.loads((tmp_path / "e" / "report.json").read_text())["failed"]
    assert reasons == {"corpus": 2, "queries": 0}


# --- what the page says -----------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "external_vectors.md"

# stands in for the other environment's model: the letters of a name or a text, counted
IMAGEBIND = {
    "imagebind/__init__.py": "",
    "imagebind/models/__init__.py": "",
    "imagebind/data.py": """
def load_and_transform_video_data(paths, device):
    if "broken" in paths[0]:
        raise ValueError("cannot be decoded")
    return paths
def load_and_transform_text(texts, device):
    return texts
""",
    "imagebind/models/imagebind_model.py": """
import torch
class ModalityType:
    VISION, TEXT = "vision", "text"
class Model(torch.nn.Module):
    def forward(self, inputs):
        return {k: torch.tensor([[float(v[0].count(c)) for c in "abcxyz"]]) for k, v in inputs.items()}
def imagebind_huge(pretrained):
    return Model()
""",
}


def blocks() -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def test_the_script_of_the_page(tmp_path, collection):
    for name, content in {**IMAGEBIND, "embed_elsewhere.py": blocks()[0]}.items():
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_text(content)
    rows = [{"_id": "a", "video": "aab.mp4"}, {"_id": "b", "video": "broken.mp4"}]
    (collection / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    script = [
        sys.executable,
        str(tmp_path / "there" / "embed_elsewhere.py"),
        str(collection),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    assert "corpus.npz: 1 vectors" in done.stdout
    assert "b: cannot be decoded" in done.stderr
    embedder = Precomputed(tmp_path / "out")
    assert embedder.encode([Item("a"), Item("message0")], role="document").shape == (2, 6)
    with pytest.raises(ItemError, match="item 'b': no vector of this id"):
        embedder.encode([Item("b")], role="document")


def test_the_parquet_lines_of_the_page(tmp_path):
    parts = [(["a", "b"], EYE[:2].astype(np.float16)), (["c"], EYE[2:].astype(np.float16))]
    exec(blocks()[1], {"dim": 3, "out": tmp_path, "batches": parts})
    np.testing.assert_array_equal(
        Precomputed(tmp_path).encode([Item("c"), Item("a")], role="document"), EYE[[2, 0]]
    )
