"""The writer: shards in any order, disks that fill up, and memory that holds one shard."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vidvec_msg.checksums import checksum
from vidvec_msg.errors import Failure, JobFailed, RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embedding import writing as unfinished
from vidvec_msg.retrieval.embedding.shard_files import write_matrix
from vidvec_msg.retrieval.embedding.writing import VectorsWriter, writing
from vidvec_msg.runs import file_digest

TESTS = Path(__file__).parents[2]
COUNT, SIZE, DIM = 17, 5, 3
ITEMS = [Item(f"d{n}", text=f"text {n}") for n in range(COUNT)]
FAILED = (3, 10, 11, 12, 13, 14)  # a whole shard among them
REQUEST = {"count": COUNT, "shard_size": SIZE, "dim": DIM, "dtype": "float32"}


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rows(first: int, stop: int) -> tuple[np.ndarray, list[str], list[Failure]]:
    kept = [n for n in range(first, stop) if n not in FAILED]
    matrix = np.array([[n, n + 1, n + 2] for n in kept], np.float32).reshape(len(kept), DIM)
    failures = [Failure(f"d{n}", "bad") for n in range(first, stop) if n in FAILED]
    return matrix, [f"d{n}" for n in kept], failures


def shard(writer: VectorsWriter, first: int) -> None:
    matrix, ids, failures = rows(first, min(first + SIZE, COUNT))
    stream = io.BytesIO()
    np.save(stream, matrix)
    writer.add_shard(first, memoryview(stream.getvalue()), ids, failures)


def in_order(out: Path) -> dict[str, bytes]:
    with writing(out, REQUEST) as writer:
        while writer.done < COUNT:
            writer.add(*rows(writer.done, min(writer.done + 2, writer.shard_end)))
        writer.finish(ITEMS, {})
    return content(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return in_order(tmp_path_factory.mktemp("whole") / "v")


def begun_by_an_earlier_version(work: Path) -> None:
    """The same unfinished work with the records that earlier versions wrote."""
    for path in work.glob("*-*.json"):
        record = json.loads(path.read_text())
        del record["checksum"]
        record["sha256"] = file_digest(path.with_suffix(".npy"))
        path.write_text(json.dumps(record))


@pytest.mark.parametrize("damaged", [False, True])
def test_what_an_earlier_version_began_is_taken_up(
    tmp_path: Path, whole: dict[str, bytes], damaged: bool
) -> None:
    out = tmp_path / "v"
    with writing(out, REQUEST) as writer:
        for _ in range(4):
            writer.add(*rows(writer.done, min(writer.done + 2, writer.shard_end)))
        writer.save()
    begun_by_an_earlier_version(writer.work)
    if damaged:
        (writer.work / "shard-00000.npy").write_bytes(b"torn")
    with writing(out, REQUEST) as writer:
        assert writer.done == (0 if damaged else 7)
        while writer.done < COUNT:
            writer.add(*rows(writer.done, min(writer.done + 2, writer.shard_end)))
        writer.finish(ITEMS, {})
    made = content(out)
    shards = json.loads(made.pop("manifest.json"))["shards"]
    kinds = [entry["checksum"].split(":")[0] for entry in shards]
    assert kinds == ["xxh3_128" if damaged else "sha256", *["xxh3_128"] * 3]
    assert made == {name: found for name, found in whole.items() if name != "manifest.json"}
    for entry in shards:
        assert checksum(out / entry["file"], like=entry["checksum"]) == entry["checksum"]


def test_what_a_newer_version_began_is_left_to_it(tmp_path: Path) -> None:
    out = tmp_path / "v"
    with writing(out, REQUEST) as writer:
        writer.add(*rows(0, SIZE))
    record = writer.work / "shard-00000.json"
    record.write_text(record.read_text().replace("xxh3_128:", "blake9:"))
    before = content(out)
    told = r"--out .*v: \.work/shard-00000\.json: the checksum 'blake9:.* update vidvec-msg"
    with pytest.raises(RefusedRequest, match=told), writing(out, REQUEST):
        pass
    assert content(out) == before


@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(0, COUNT, SIZE)), parts=st.integers(0, COUNT), cut=st.integers(0, 4))
def test_shards_in_any_order_and_stops_between_them_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory,
    whole: dict[str, bytes],
    order: list[int],
    parts: int,
    cut: int,
) -> None:
    out = tmp_path_factory.mktemp("v") / "v"
    with writing(
        out, REQUEST
    ) as writer:  # some by the item, then some by the shard, the rest after a restart
        while writer.done < parts:
            writer.add(*rows(writer.done, min(writer.done + 2, writer.shard_end)))
            writer.save()
        missing = [first for first, _ in writer.missing_shards()]
        for first in [first for first in order if first in missing][:cut]:
            shard(writer, first)
        processed, failed = writer.processed, writer.failed
        left = writer.missing_shards()
    with writing(out, REQUEST) as writer:
        assert (writer.processed, writer.failed) == (processed, failed)
        assert writer.missing_shards() == left
        for first, stop in left if cut % 2 else []:
            assert stop == min(first + SIZE, COUNT)
            shard(writer, first)
        while writer.done < COUNT:
            writer.add(*rows(writer.done, min(writer.done + 2, writer.shard_end)))
        assert writer.missing_shards() == []
        assert (writer.processed, writer.failed) == (COUNT, len(FAILED))
        assert [failure.item for failure in writer.failures] == [f"d{n}" for n in FAILED]
        writer.finish(ITEMS, {})
    assert content(out) == whole


def test_the_writer_goes_on_behind_shards_that_are_there(tmp_path: Path) -> None:
    with writing(tmp_path / "v", REQUEST) as writer:
        shard(writer, 5)
        assert (writer.done, writer.processed) == (0, 5)
        writer.add(*rows(0, 5))
        assert writer.done == 10


def test_metadata_is_written_by_the_shard(tmp_path: Path) -> None:
    in_order(tmp_path / "v")
    file = pq.ParquetFile(tmp_path / "v" / "ids.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [4, 5, 2]
    assert file.read()["id"].to_pylist() == [f"d{n}" for n in range(COUNT) if n not in FAILED]


def test_a_look_up_need_not_decode_a_whole_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "ROW_GROUP", 3)
    in_order(tmp_path / "v")
    file = pq.ParquetFile(tmp_path / "v" / "ids.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [3, 1, 3, 2, 2]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 3)])
def test_a_matrix_is_written_as_numpy_writes_it(dtype: str, shape: tuple[int, int]) -> None:
    matrix = np.arange(shape[0] * shape[1], dtype=dtype).reshape(shape)
    ours, theirs = io.BytesIO(), io.BytesIO()
    write_matrix(ours, matrix)
    np.save(theirs, matrix)
    assert ours.getvalue() == theirs.getvalue()


FULL_DISK = """
import resource, sys
from pathlib import Path
from fakes import KEYWORDS, KeywordEmbedder
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items

class Stops(KeywordEmbedder):
    def encode(self, items, *, role):
        if items[0].id == "d300":  # from here on no file may be longer
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        return super().encode(items, role=role)

items = [Item(f"d{n}", text=KEYWORDS[n % len(KEYWORDS)]) for n in range(500)]
embed_items(items, Stops(), role="document", out=Path(sys.argv[1]), batch_size=50, shard_size=100)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit to the size of files")
def test_a_disk_that_fills_up_ends_the_job_in_plain_words_and_it_goes_on(tmp_path: Path) -> None:
    """A real limit of the system: writing beyond it fails as it does on a full disk."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    run = [sys.executable, "-c", FULL_DISK]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [*run, str(tmp_path / "v"), "2000"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"JobFailed: cannot write into --out {tmp_path / 'v'}: " in done.stderr
    assert "300 of 500 items are saved. Make room, and the same command goes on." in done.stderr
    assert not list((tmp_path / "v").rglob("*.partial"))
    for out in ("v", "whole"):
        subprocess.run([*run, str(tmp_path / out), "10000000"], env=environment, check=True)
    assert content(tmp_path / "v") == content(tmp_path / "whole")


def test_a_manifest_that_cannot_be_written_leaves_the_folder_to_be_finished(
    tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def full(path: Path, content: object) -> None:
            raise OSError(28, "No space left on device", str(path))

        patched.setattr(unfinished, "write_json", lambda path, content: path.write_text(
            json.dumps(content)) if path.name == "request.json" else full(path, content))  # fmt: skip
        with pytest.raises(JobFailed, match=r"No space left on device: .*17 of 17 items are saved"):
            in_order(tmp_path / "v")
    assert in_order(tmp_path / "v") == whole
