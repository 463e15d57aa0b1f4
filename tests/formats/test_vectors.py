"""The reader of vectors folders: what it gives, and what it refuses."""

import json

import numpy as np
import pytest
from vectors_folder import write_vectors

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import Failure, RefusedRequest
from vidvec_msg.formats.vectors import VectorsFolder

IDS = ["a", "b", "c", "d", "e"]
VECTORS = np.arange(10, dtype=np.float32).reshape(5, 2)


@pytest.fixture
def folder(tmp_path):
    return write_vectors(tmp_path / "v", IDS, VECTORS, {"name": "x", "fingerprint": "f00"}, rows_per_shard=2)


def change(folder, **entries):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_what_it_gives(folder):
    found = VectorsFolder.open(folder)
    assert found.ids == tuple(IDS)
    assert (found.dim, found.fingerprint, found.card["name"]) == (2, "f00", "x")
    np.testing.assert_array_equal(found.matrix(), VECTORS)
    assert [shard.shape for shard in found.shards()] == [(2, 2), (2, 2), (1, 2)]
    np.testing.assert_array_equal(np.concatenate(list(found.shards())), VECTORS)
    assert found.failures == ()


def test_half_precision_comes_out_as_stored_and_the_matrix_as_float32(folder):
    for path in folder.glob("*.npy"):
        np.save(path, np.load(path).astype(np.float16))
    manifest = json.loads((folder / "manifest.json").read_text())
    change(folder, shards=[{"file": entry["file"], "rows": entry["rows"]} for entry in manifest["shards"]])
    found = VectorsFolder.open(folder)
    assert {shard.dtype for shard in found.shards()} == {np.dtype(np.float16)}
    assert found.matrix().dtype == np.float32


def test_failures(folder):
    (folder / "failures.jsonl").write_text('{"item": "z", "reason": "empty text"}\n\n')
    assert VectorsFolder.open(folder).failures == (Failure("z", "empty text"),)


def test_an_empty_folder_is_complete_too(tmp_path):
    found = VectorsFolder.open(write_vectors(tmp_path / "v", [], np.zeros((0, 4)), {"name": "x"}))
    assert found.matrix().shape == (0, 4)


def test_interrupted_or_absent(folder, tmp_path):
    (folder / "manifest.json").unlink()
    with pytest.raises(
        RefusedRequest,
        match=r"incomplete or was interrupted: manifest.json is missing. Run `vidvec-msg embed`",
    ):
        VectorsFolder.open(folder)
    with pytest.raises(RefusedRequest, match="does not exist"):
        VectorsFolder.open(tmp_path / "nothing")


def test_wrong_checksum(folder):
    path = folder / "shard-00001.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    found = VectorsFolder.open(folder)
    for read in (found.matrix, lambda: list(found.shards())):
        with pytest.raises(
            RefusedRequest, match=r"shard-00001.npy was changed or damaged \(checksum sha256:"
        ):
            read()


@pytest.mark.parametrize("kind", ["capitals", "named", "both", "null", "none"])
def test_checksums_of_other_tools(folder, kind):
    manifest = json.loads((folder / "manifest.json").read_text())
    for entry in manifest["shards"]:
        digest = entry.pop("sha256")
        entry |= {
            "capitals": {"sha256": digest.upper()},
            "named": {"checksum": f"sha256:{digest}"},
            "both": {"checksum": checksum(folder / entry["file"]), "sha256": digest},
            "null": {"checksum": None, "sha256": None},
            "none": {},
        }[kind]
    change(folder, shards=manifest["shards"])
    np.testing.assert_array_equal(VectorsFolder.open(folder).matrix(), VECTORS)
    np.save(folder / "shard-00001.npy", VECTORS[:2])
    if kind in ("null", "none"):
        VectorsFolder.open(folder).matrix()  # nothing says what it should be
        return
    with pytest.raises(RefusedRequest, match=r"shard-00001.npy was changed or damaged \(checksum"):
        VectorsFolder.open(folder).matrix()


def test_shards_that_are_not_described_are_refused_at_once_and_all_named(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    first, second, third = manifest["shards"]
    change(
        folder, shards=[{**first, "sha256": "md5:00"}, {"file": "shard-00001.npy"}, {**third, "rows": "1"}]
    )
    told = (
        r"(?s)vectors folder .*v: manifest.json: 3 problems"
        r".*shard 0: the checksum 'md5:00' is not known here; known are .*let it write one of these"
        r".*shard 1: found file 'shard-00001.npy' and rows None; it must be {\"file\": NAME, \"rows\": COUNT}"
        r".*shard 2: found file 'shard-00002.npy' and rows '1'; it must be"
    )
    with pytest.raises(RefusedRequest, match=told):
        VectorsFolder.open(folder)
    change(folder, shards=[first, second["file"], third])
    with pytest.raises(RefusedRequest, match=r"shard 1: found 'shard-00001.npy'; it must be"):
        VectorsFolder.open(folder)
    change(folder, shards={"0": first})
    with pytest.raises(RefusedRequest, match=r"'shards' is a dict; it must be a list of \{"):
        VectorsFolder.open(folder)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"count": 4}, "ids.parquet holds 5 ids, the shards 5 rows, and manifest.json says 4"),
        ({"shards": []}, "the shards 0 rows"),
        ({"dim": 3}, r"has shape \(2, 2\), the manifest says \(2, 3\)"),
    ],
)
def test_counts_that_differ(folder, entries, reason):
    change(folder, **entries)
    with pytest.raises(RefusedRequest, match=reason):
        VectorsFolder.open(folder).matrix()


def test_a_manifest_that_lacks_something(folder):
    (folder / "manifest.json").write_text('{"count": 5}')
    with pytest.raises(RefusedRequest, match=r"manifest.json lacks card, dim, shards"):
        VectorsFolder.open(folder)


def test_missing_parts(folder):
    (folder / "shard-00002.npy").unlink()
    with pytest.raises(RefusedRequest, match=r"shard-00002.npy missing"):
        VectorsFolder.open(folder)
    (folder / "ids.parquet").unlink()
    with pytest.raises(RefusedRequest, match=r"ids.parquet is missing"):
        VectorsFolder.open(folder)


@pytest.mark.parametrize("name", ["../other/shard-00000.npy", "parts/../../shard-00000.npy", "/tmp/x.npy"])
def test_files_outside_the_folder_are_refused(folder, name):
    """A slice comes from another machine, and joining links its shards."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][0]["file"] = name
    change(folder, shards=manifest["shards"])
    with pytest.raises(RefusedRequest, match=rf"manifest.json names '{name}'; shards lie in the folder"):
        VectorsFolder.open(folder)


def test_a_shard_is_never_unpickled(folder):
    path = folder / "shard-00000.npy"
    np.save(path, np.array([[object(), 1], [2, 3]], dtype=object), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][0].pop("sha256")
    change(folder, shards=manifest["shards"])
    with pytest.raises(
        RefusedRequest, match=r"shard-00000.npy cannot be read: Object arrays cannot be loaded"
    ):
        VectorsFolder.open(folder).matrix()


def test_ids_that_are_no_parquet(folder):
    (folder / "ids.parquet").write_text("a\nb\n")
    with pytest.raises(RefusedRequest, match="is not a Parquet file with a column `id`"):
        VectorsFolder.open(folder)
