"""Vectors of another environment: every format gives the same, and what is wrong is said at once."""

import json
import mmap
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.foreign_vectors import ForeignVectors

IDS = ["clip 1", "clip-2", "07", "ü/4", "five"]
VECTORS = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def write_npz(path, ids, vectors):
    np.savez(path, ids=np.array(ids, dtype=str), vectors=vectors)


def write_compressed_npz(path, ids, vectors):
    np.savez_compressed(path, id=np.array(ids), embeddings=vectors)


def write_npy_and_txt(path, ids, vectors):
    np.save(path, vectors)
    path.with_suffix(".ids.txt").write_text("".join(f"{one}\n" for one in ids), encoding="utf-8")


def write_npy_and_jsonl(path, ids, vectors):
    np.save(path, vectors)
    lines = [json.dumps({"_id": one, "text": "…"}) for one in ids]
    path.with_suffix(".ids.jsonl").write_text("\n".join(lines), encoding="utf-8")


def write_npy_and_parquet(path, ids, vectors):
    np.save(path, np.asfortranarray(vectors))
    pq.write_table(pa.table({"id": ids}), path.with_suffix(".ids.parquet"))


def write_parquet_lists(path, ids, vectors):
    pq.write_table(pa.table({"id": ids, "vector": list(vectors)}), path)


def write_parquet_fixed(path, ids, vectors):
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    pq.write_table(pa.table({"_id": ids, "embedding": column}), path, row_group_size=2)


def write_safetensors(path, ids, vectors):
    save_file({"vectors": vectors, "else": np.zeros(2)}, path, metadata={"ids": json.dumps(ids)})


def write_safetensors_and_txt(path, ids, vectors):
    save_file({"embeddings": vectors}, path)
    path.with_suffix(".ids.txt").write_text("\r\n".join(ids) + "\r\n", encoding="utf-8")


Writer = Callable[[Path, list[str], np.ndarray], None]
WRITERS: dict[str, tuple[str, Writer]] = {
    "npz": (".npz", write_npz),
    "compressed npz": (".npz", write_compressed_npz),
    "npy, txt": (".npy", write_npy_and_txt),
    "npy, jsonl": (".npy", write_npy_and_jsonl),
    "npy, parquet": (".npy", write_npy_and_parquet),
    "parquet, lists": (".parquet", write_parquet_lists),
    "parquet, fixed": (".parquet", write_parquet_fixed),
    "safetensors": (".safetensors", write_safetensors),
    "safetensors, txt": (".safetensors", write_safetensors_and_txt),
}


def written(folder: Path, writer: str, ids=IDS, vectors=VECTORS) -> Path:
    ending, write = WRITERS[writer]
    path = folder / f"clips.v2{ending}"  # a dot in the name belongs to the name
    write(path, list(ids), vectors)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(RefusedRequest) as caught:
        ForeignVectors.open(path)
    return str(caught.value)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_format_gives_the_same(tmp_path, writer, dtype):
    stored = VECTORS.astype(dtype)
    found = ForeignVectors.open(written(tmp_path, writer, vectors=stored))
    assert found.ids == tuple(IDS)
    assert found.dim == 3
    rows = found.rows([4, 0, 4])
    np.testing.assert_array_equal(rows, stored[[4, 0, 4]].astype(np.float32))
    assert rows.dtype == np.float32
    assert found.rows([]).shape == (0, 3)
    assert set(found.files) == set(tmp_path.iterdir())  # for the digest: what decides the vectors


def test_bfloat16(tmp_path):
    vectors = torch.from_numpy(VECTORS).to(torch.bfloat16)
    save_torch_file({"vectors": vectors}, tmp_path / "v.safetensors", metadata={"ids": json.dumps(IDS)})
    rows = ForeignVectors.open(tmp_path / "v.safetensors").rows([1, 3])
    np.testing.assert_array_equal(rows, vectors[[1, 3]].float().numpy())


def test_whole_numbers_and_bytes_are_ids(tmp_path):
    np.savez(tmp_path / "a.npz", ids=np.array([7, 8]), vectors=VECTORS[:2])
    np.savez(tmp_path / "b.npz", ids=np.array([b"x", "ü".encode()]), vectors=VECTORS[:2])
    pq.write_table(pa.table({"id": [1, 2], "vector": list(VECTORS[:2])}), tmp_path / "c.parquet")
    assert ForeignVectors.open(tmp_path / "a.npz").ids == ("7", "8")
    assert ForeignVectors.open(tmp_path / "b.npz").ids == ("x", "ü")
    assert ForeignVectors.open(tmp_path / "c.parquet").ids == ("1", "2")


@pytest.mark.parametrize("writer", ["npz", "npy, txt", "safetensors", "safetensors, txt"])
def test_vectors_stay_on_the_disk(tmp_path, writer):
    matrix = ForeignVectors.open(written(tmp_path, writer)).matrix
    while isinstance(matrix.base, np.ndarray):
        matrix = matrix.base
    assert isinstance(matrix.base, mmap.mmap)


def test_parquet_in_several_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("vidvec_msg.formats.foreign_files._PARQUET_ROWS", 2)
    for writer in ("parquet, lists", "parquet, fixed"):
        found = ForeignVectors.open(written(tmp_path, writer))
        np.testing.assert_array_equal(found.rows(range(5)), VECTORS)


# --- what is refused --------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return Path("exploded").touch, ()


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", ids=np.array([Bomb(), "b"], dtype=object), vectors=np.array([Bomb(), 1], dtype=object))
    told = refusal(Path("a.npz"))
    assert "2 problems" in told
    assert "array 'ids' holds Python objects, which only pickle could read" in told
    assert "save np.array(ids, dtype=str) where it was made" in told
    assert "array 'vectors' holds Python objects" in told
    np.save("b.npy", np.array([Bomb(), 1], dtype=object))
    Path("b.ids.txt").write_text("a\nb\n")
    assert "it holds Python objects" in refusal(Path("b.npy"))
    Path("c.pt").write_bytes(pickle.dumps(Bomb()))
    told = refusal(Path("c.pt"))
    assert ".pt is not one of .npz, .npy, .parquet, .safetensors; it is a pickle" in told
    assert "np.savez(file, ids=np.array(ids, dtype=str), vectors=vectors)" in told
    Path("d.npy").write_bytes(pickle.dumps(Bomb()))
    Path("d.ids.txt").write_text("a\n")
    refusal(Path("d.npy"))
    Path("e.npz").write_bytes(pickle.dumps(Bomb()))
    refusal(Path("e.npz"))
    assert not Path("exploded").exists()


@pytest.mark.parametrize("writer", WRITERS)
def test_everything_wrong_comes_at_once(tmp_path, writer):
    told = refusal(written(tmp_path, writer, ids=["a", "b", "a", " ", "a"], vectors=VECTORS.astype(np.int8)))
    assert "2 problems" in told
    assert re.search("int8|I8", told)
    assert "ids that are blank: row 3; ids that stand more than once: 'a' (3 times)" in told


def test_counts_that_differ(tmp_path):
    assert "2 ids for 5 vectors; each row needs its own id" in refusal(
        written(tmp_path, "npz", ids=["a", "b"])
    )


@pytest.mark.parametrize(
    ("vectors", "words"),
    [
        (
            np.zeros((5, 4, 3)),
            "shape (5, 4, 3): several an item, of frames or tokens? Make one of them first",
        ),
        (np.zeros(5), "shape (5,); it must be (items, dim)"),
        (np.zeros((5, 0)), "shape (5, 0); it must be (items, dim), neither of them 0"),
        (np.zeros((5, 3), dtype=np.int8), "the vectors are int8; they must be float16"),
        (np.zeros((5, 3), dtype=complex), "the vectors are complex128"),
        (np.full((5, 3), "x"), "the vectors are <U1"),
    ],
)
@pytest.mark.parametrize("writer", ["npz", "npy, txt"])
def test_vectors_that_are_none(tmp_path, vectors, words, writer):
    assert words in refusal(written(tmp_path, writer, vectors=vectors))


def test_safetensors_of_other_numbers(tmp_path):
    told = refusal(written(tmp_path, "safetensors", vectors=VECTORS.astype(np.int8)))
    assert "tensor 'vectors' is I8; it must be one of F64, F32, F16, BF16" in told


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([[1.0, 2.0], [1.0], [1.0, 2.0, 3.0], None, []],
         "lists of several lengths: the first has 2 numbers, row 1: 1, row 2: 3, row 3: null and 1 more"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], "column 'vector' is double; it must hold lists of floats, one a row"),
        ([[1, 2]] * 5, "column 'vector' is list<element: int64>; it must hold lists of floats"),
    ],
)  # fmt: skip
def test_parquet_columns_that_are_none(tmp_path, column, words):
    pq.write_table(pa.table({"id": IDS, "vector": column}), tmp_path / "v.parquet")
    assert words in refusal(tmp_path / "v.parquet")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"feats": VECTORS, "ids": np.array(IDS)},
         "it has no array of vectors: one of vectors, vector, embeddings, embedding (it holds feats, ids)"),
        ({"vectors": VECTORS, "embeddings": VECTORS, "ids": np.array(IDS)},
         "more than one array of vectors: vectors, embeddings; leave one"),
        ({"vectors": VECTORS},
         "there are no ids: neither in the file (docs/external_vectors.md says where) nor in v.ids.txt, "
         "v.ids.jsonl, v.ids.parquet"),
        ({"vectors": VECTORS, "ids": np.ones(5)},
         "array 'ids' is float64; ids are strings or whole numbers: np.array(ids, dtype=str)"),
        ({"vectors": VECTORS, "ids": np.array([IDS])}, "array 'ids' has the shape (1, 5)"),
    ],
)  # fmt: skip
def test_arrays_that_are_missing_or_wrong(tmp_path, arrays, words):
    np.savez(tmp_path / "v.npz", **arrays)
    assert words in refusal(tmp_path / "v.npz")


def test_ids_in_two_places(tmp_path):
    path = written(tmp_path, "npz")
    path.with_suffix(".ids.txt").write_text("a\n")
    assert "ids stand in more than one place: clips.v2.npz, clips.v2.ids.txt; leave one" in refusal(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"_id": "a"}\n{"name": "b"}\n',
            "v.ids.jsonl, line 2: it must be an object with one field _id or id",
        ),
        ('["a"]\n', "line 1: it must be an object"),
        ('{"_id": "a", "id": "b"}\n', "line 1: it must be an object with one field"),
        ('{"_id": "a"', "Expecting"),
    ],
)
def test_id_lines_that_are_none(tmp_path, text, words):
    np.save(tmp_path / "v.npy", VECTORS)
    (tmp_path / "v.ids.jsonl").write_text(text)
    assert words in refusal(tmp_path / "v.npy")


def test_id_columns_that_are_none(tmp_path):
    np.save(tmp_path / "v.npy", VECTORS)
    pq.write_table(pa.table({"name": IDS}), tmp_path / "v.ids.parquet")
    assert "v.ids.parquet has no column ids, id, _id" in refusal(tmp_path / "v.npy")
    pq.write_table(pa.table({"id": [None, 1.5, "a", "b", "c"][:2]}), tmp_path / "v.ids.parquet")
    assert "column 'id' holds NoneType, float; ids are strings or whole numbers" in refusal(
        tmp_path / "v.npy"
    )


@pytest.mark.parametrize("ids", ["no json", '{"a": 1}', "[1.5]"])
def test_metadata_that_is_none(tmp_path, ids):
    save_file({"vectors": VECTORS}, tmp_path / "v.safetensors", metadata={"ids": ids})
    assert "metadata 'ids'" in refusal(tmp_path / "v.safetensors")


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"garbage" * 100])
def test_files_that_are_broken(tmp_path, ending, content):
    (tmp_path / f"v{ending}").write_bytes(content)
    assert f"v{ending}: " in refusal(tmp_path / f"v{ending}")


@pytest.mark.parametrize("writer", ["npz", "npy, txt", "parquet, lists", "safetensors"])
def test_files_that_are_cut_off(tmp_path, writer):
    path = written(tmp_path, writer, ids=[str(n) for n in range(500)], vectors=np.ones((500, 30), np.float32))
    path.write_bytes(path.read_bytes()[:-20_000] if writer != "parquet, lists" else path.read_bytes()[:-50])
    assert "problem" in refusal(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v.npz", "there is no such file"),
        ("v.h5", ".h5 is not one of .npz, .npy, .parquet, .safetensors; save its content: np.savez("),
        ("v", "a name without ending is not one of"),
        ("v.xyz", ".xyz is not one of .npz, .npy, .parquet, .safetensors"),
    ],
)
def test_files_that_are_something_else(tmp_path, name, words):
    assert words in refusal(tmp_path / name)
