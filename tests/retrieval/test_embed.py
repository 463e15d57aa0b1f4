"""Items → vectors folder: resumed = undisturbed, failures are recorded, bad requests are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from fakes import KEYWORDS, KeywordEmbedder

from vidvec_msg.cli import main
from vidvec_msg.embedders.contract import Role, Vectors
from vidvec_msg.errors import Failure, ItemError, JobFailed, RefusedRequest, TooManyFailures
from vidvec_msg.formats import items as items_module
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.items import Item, item_digest
from vidvec_msg.formats.kept_digests import DIGESTS, digests_kept_in
from vidvec_msg.retrieval.embed import (
    allowed_failures,
    embed,
    embed_items,
    encode_batch,
    items_per_call,
    refuse_missing_media,
    spec_from_anywhere,
)
from vidvec_msg.retrieval.embedding.writing import VectorsWriter

TESTS = Path(__file__).parent.parent


def items_of(count: int, *, bad: Sequence[int] = ()) -> list[Item]:
    words = [" ".join(KEYWORDS[: 1 + i % len(KEYWORDS)]) for i in range(count)]
    return [Item(f"d{i}", text="nothing" if i in bad else words[i]) for i in range(count)]


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Stubborn(KeywordEmbedder):
    """Stops with an unexpected error when it meets item ``at``."""

    def __init__(self, at: str, error: BaseException | None = None) -> None:
        super().__init__()
        self.at, self.error = at, error or MemoryError("out of memory")

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        if any(item.id == self.at for item in items):
            raise self.error
        return super().encode(items, role=role)


def test_rows_are_the_vectors_of_the_items_in_their_order(tmp_path: Path) -> None:
    items = items_of(23)
    options = {"role": "document", "batch_size": 3, "shard_size": 10}
    folder = embed_items(items, KeywordEmbedder(), out=tmp_path / "v", **options)
    assert list(folder.ids) == [item.id for item in items]
    np.testing.assert_array_equal(folder.matrix(), KeywordEmbedder().encode(items, role="document"))
    assert sorted(p.name for p in (tmp_path / "v").iterdir()) == [
        *("failures.jsonl", "ids.parquet", "manifest.json"),
        *("shard-00000.npy", "shard-00001.npy", "shard-00002.npy"),
    ]


def test_the_manifest_tells_how_the_vectors_were_made(tmp_path: Path) -> None:
    embedder = KeywordEmbedder()
    options = {"role": "query", "side": "queries", "shard_size": 3, "dtype": "float16", "max_failures": 1}
    embed_items(items_of(5, bad=[2]), embedder, out=tmp_path / "v", spec="fakes:KeywordEmbedder", **options)
    manifest = json.loads((tmp_path / "v" / "manifest.json").read_text())
    assert manifest["card"]["fingerprint"] == embedder.card.fingerprint
    expected = {"role": "query", "side": "queries", "count": 4, "dim": 8, "dtype": "float16", "failed": 1,
                "embedder": "fakes:KeywordEmbedder"}  # fmt: skip
    assert {name: manifest[name] for name in expected} == expected
    assert [(shard["file"], shard["rows"]) for shard in manifest["shards"]] == [
        ("shard-00000.npy", 2), ("shard-00001.npy", 2)]  # fmt: skip
    assert np.load(tmp_path / "v" / "shard-00000.npy").dtype == np.float16


def test_failed_items_are_recorded_and_the_rest_of_their_batch_is_kept(tmp_path: Path) -> None:
    items = items_of(10, bad=[0, 4, 5, 9])
    options = {"role": "document", "batch_size": 4, "shard_size": 5, "max_failures": 4}
    folder = embed_items(items, KeywordEmbedder(), out=tmp_path / "v", **options)
    assert list(folder.ids) == ["d1", "d2", "d3", "d6", "d7", "d8"]
    kept = [item for item in items if item.id in folder.ids]
    np.testing.assert_array_equal(folder.matrix(), KeywordEmbedder().encode(kept, role="document"))
    lines = [json.loads(line) for line in (tmp_path / "v" / "failures.jsonl").read_text().splitlines()]
    assert lines == [{"item": f"d{i}", "reason": "no keyword in it"} for i in (0, 4, 5, 9)]


def test_more_failures_than_allowed_are_an_error_after_the_rest_was_written(tmp_path: Path) -> None:
    expected = (
        r"2 of 6 items failed and 1 may \(max_failures\); the others are in .*v, "
        r"the reasons in .*failures\.jsonl: d1: no keyword in it; d3: no keyword in it\. "
        r"To try the failed items again, remove the folder\."
    )
    for _ in range(2):  # a complete folder says it again
        items = items_of(6, bad=[1, 3])
        with pytest.raises(TooManyFailures, match=expected):
            embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", max_failures=1)
    assert pq.read_table(tmp_path / "v" / "ids.parquet")["id"].to_pylist() == ["d0", "d2", "d4", "d5"]


def test_when_every_item_fails_nothing_is_written(tmp_path: Path) -> None:
    items = items_of(5, bad=range(5))
    expected = r"all 5 items failed, nothing was written: d0: no keyword in it; .*and 2 more"
    with pytest.raises(TooManyFailures, match=expected):
        embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", max_failures=9)
    assert not (tmp_path / "v").exists()


def test_when_the_first_items_all_fail_the_job_stops_early(tmp_path: Path) -> None:
    items = items_of(600, bad=range(500))
    embedder = KeywordEmbedder()
    with pytest.raises(
        TooManyFailures, match="the first 256 items failed, nothing was written: d0: no keyword"
    ):
        embed_items(items, embedder, role="document", out=tmp_path / "v", batch_size=32, max_failures=255)
    assert not (tmp_path / "v").exists()
    folder = embed_items(items, embedder, role="document", out=tmp_path / "v", max_failures=500)
    assert len(folder.ids) == 100


def test_a_kill_after_the_last_failure_does_not_make_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = items_of(5, bad=range(5))
    options = {"role": "document", "out": tmp_path / "v", "max_failures": 5}
    with monkeypatch.context() as patched:
        patched.setattr(VectorsWriter, "discard_work", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            embed_items(items, KeywordEmbedder(), **options)
    with pytest.raises(TooManyFailures, match="all 5 items failed, nothing was written"):
        embed_items(items, KeywordEmbedder(), **options)
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("given", "of", "allowed"),
    [(0, 10, 0), (3, 10, 3), (0.25, 10, 2), (1.0, 10, 1), (0.999, 10, 9), (0.29, 100, 29)],
)
def test_allowed_failures_are_a_count_or_a_share(given: float, of: int, allowed: int) -> None:
    assert allowed_failures(given, of) == allowed


def test_an_embedder_that_fails_otherwise_stops_the_job_and_names_the_batch(tmp_path: Path) -> None:
    expected = "'keywords' failed on the batch of items d4, d5: MemoryError: out of memory"
    with pytest.raises(RuntimeError, match=expected):
        embed_items(items_of(9), Stubborn("d4"), role="document", out=tmp_path / "v", batch_size=2)


def test_a_long_batch_is_named_by_its_first_items(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"on the batch of items d0, .*, d31, … and 8 more: MemoryError"):
        embed_items(items_of(40), Stubborn("d4"), role="document", out=tmp_path / "v")


class Preparing(KeywordEmbedder):
    """Notes what it was told of and what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, list[str]]] = []

    def prepare(self, items: Sequence[Item]) -> None:
        self.events.append(("prepare", [item.id for item in items]))

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        self.events.append(("encode", [item.id for item in items]))
        return super().encode(items, role=role)


def test_the_next_batch_is_prepared_before_this_one_is_encoded(tmp_path: Path) -> None:
    embedder = Preparing()
    items = [*items_of(4), Item("gone", video=tmp_path / "gone.mp4"), *items_of(7)[4:]]
    options = {"role": "document", "batch_size": 3, "max_failures": 1}
    embed_items(items, embedder, out=tmp_path / "v", **options)
    assert embedder.events == [
        ("prepare", ["d0", "d1", "d2", "d3", "d4"]),  # not the one whose file is missing
        ("encode", ["d0", "d1", "d2"]),
        ("prepare", ["d3", "d4", "d5", "d6"]),
        ("encode", ["d3", "d4"]),
        ("prepare", ["d5", "d6"]),
        ("encode", ["d5", "d6"]),
    ]
    embed_items(items, KeywordEmbedder(), out=tmp_path / "unprepared", **options)
    assert content(tmp_path / "v") == content(tmp_path / "unprepared")


@pytest.mark.parametrize(("medium", "size"), [(None, 1024), ("still.png", 32)])
def test_a_batch_size_of_0_is_chosen_by_the_kind_of_items(
    tmp_path: Path, medium: str | None, size: int
) -> None:
    items = items_of(1100)
    if medium is not None:
        (tmp_path / medium).write_bytes(b"pixels")
        items[-1] = Item("d1099", text="a dog", image=tmp_path / medium)
    embedder = Preparing()
    embed_items(items, embedder, role="document", out=tmp_path / "v")
    encoded = [len(ids) for event, ids in embedder.events if event == "encode"]
    assert max(encoded) == encoded[0] == items_per_call(items) == size
    assert sum(encoded) == len(items)


def test_a_refusal_of_the_embedder_stays_a_refusal() -> None:
    with pytest.raises(RefusedRequest, match="install it"):
        encode_batch(items_of(2), Stubborn("d1", RefusedRequest("install it")), role="document")


def test_an_item_error_about_other_items_is_the_embedders_fault() -> None:
    for named, text in ((["x"], r"names \['x'\]"), ([], "names no item")):
        error = ItemError([Failure(name, "bad") for name in named])
        with pytest.raises(RuntimeError, match=text + "; it must name items of its batch: d0, d1"):
            encode_batch(items_of(2), Stubborn("d1", error), role="document")


def test_vectors_that_are_not_finite_or_zero_are_failures_of_their_items(tmp_path: Path) -> None:
    class Broken(KeywordEmbedder):
        def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
            vectors = super().encode(items, role=role)
            for item, vector in zip(items, vectors, strict=True):
                vector *= {"d1": np.nan, "d3": 0}.get(item.id, 1)
            return vectors

    folder = embed_items(items_of(5), Broken(), role="document", out=tmp_path / "v", max_failures=2)
    assert list(folder.ids) == ["d0", "d2", "d4"]
    assert [failure.item for failure in folder.failures] == ["d1", "d3"]
    assert "not finite" in folder.failures[0].reason
    assert "norm 0" in folder.failures[1].reason


@pytest.mark.parametrize("shape", [(1, 8), (3, 8), (2, 7)])
def test_vectors_of_another_shape_stop_the_job(tmp_path: Path, shape: tuple[int, int]) -> None:
    embedder = KeywordEmbedder()
    embedder.encode = lambda items, *, role: np.ones(shape, np.float32)  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=r"failed on the batch of items d0, d1: ValueError: .*shape"):
        embed_items(items_of(2), embedder, role="document", out=tmp_path / "v")


def test_an_interrupted_job_goes_on_without_doing_finished_work_again(tmp_path: Path) -> None:
    items = items_of(20, bad=[3, 13])
    options = {"role": "document", "batch_size": 2, "shard_size": 6, "max_failures": 2, "save_every": 0}
    embed_items(items, KeywordEmbedder(), out=tmp_path / "whole", **options)
    with pytest.raises(KeyboardInterrupt):
        embed_items(items, Stubborn("d16", KeyboardInterrupt()), out=tmp_path / "v", **options)
    embedder = KeywordEmbedder()
    embed_items(items, embedder, out=tmp_path / "v", **options)
    assert embedder.encoded == ["d16", "d17", "d18", "d19"]  # 12 to 15 were saved as parts of the third shard
    assert content(tmp_path / "v") == content(tmp_path / "whole")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_what_is_done_when_the_embedder_or_the_user_stops_the_job_is_saved(
    tmp_path: Path, error: BaseException
) -> None:
    options = {"role": "document", "out": tmp_path / "v", "batch_size": 2}
    with pytest.raises((KeyboardInterrupt, RuntimeError)):
        embed_items(items_of(9), Stubborn("d7", error), **options)
    embedder = KeywordEmbedder()
    assert len(embed_items(items_of(9), embedder, **options).ids) == 9
    assert embedder.encoded == ["d6", "d7", "d8"]


def test_a_complete_folder_is_returned_and_nothing_is_embedded(tmp_path: Path) -> None:
    embed_items(items_of(5), KeywordEmbedder(), role="document", out=tmp_path / "v")
    embedder = KeywordEmbedder()
    folder = embed_items(items_of(5), embedder, role="document", out=tmp_path / "v", batch_size=1)
    assert embedder.encoded == []
    assert len(folder.ids) == 5


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"bias": 1.0}, r"embedder fingerprint: found '\w{16}', expected '\w{16}'"),
        ({"role": "query"}, "role: found 'document', expected 'query'"),
        ({"dtype": "float16"}, "dtype: found 'float32', expected 'float16'"),
        ({"shard_size": 4}, "items per shard: found 3, expected 4"),
        ({"count": 7}, "number of items: found 8, expected 7"),
        ({"text": "dog"}, "digest of the items: found"),
        ({"groups": {"topic": "x"}}, "digest of the items: found"),
    ],
)
def test_a_folder_of_another_request_is_refused(
    tmp_path: Path, change: dict[str, object], text: str, complete: bool
) -> None:
    change = dict(change)  # pytest hands the same one to every case
    options = {"role": "document", "out": tmp_path / "v", "shard_size": 3, "batch_size": 2}
    if complete:
        embed_items(items_of(8), KeywordEmbedder(), **options)
    else:
        with pytest.raises(RuntimeError):
            embed_items(items_of(8), Stubborn("d6"), **options)
    before = content(tmp_path / "v")
    items = items_of(change.pop("count", 8))
    items[5] = Item("d5", text=change.pop("text", items[5].text), groups=change.pop("groups", {}))
    embedder = KeywordEmbedder(bias=change.pop("bias", 0.0))
    with pytest.raises(RefusedRequest, match=f"holds vectors of another request:(.|\n)*{text}") as caught:
        embed_items(items, embedder, **options | change)
    assert "remove the folder to embed anew" in str(caught.value)
    assert content(tmp_path / "v") == before


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RefusedRequest, match="already holds files; give another folder"):
        embed_items(items_of(2), KeywordEmbedder(), role="document", out=tmp_path)


def test_all_problems_of_a_request_come_in_one_message(tmp_path: Path) -> None:
    twice = [Item("a", text="dog"), Item("a", text="apple")]
    with pytest.raises(RefusedRequest) as caught:
        embed_items(twice, KeywordEmbedder(), role="doc", out=tmp_path / "v", batch_size=-1, shard_size=0,
                    dtype="bfloat16", max_failures=-1)  # fmt: skip
    assert str(caught.value).splitlines() == [
        "cannot embed: 6 problems",
        "  - id 'a' stands 2 times; ids must be unique",
        "  - batch_size is -1; it must be at least 1 (items per call), or 0 to choose it",
        "  - shard_size is 0; it must be at least 1 (items per file)",
        "  - dtype is 'bfloat16'; it must be one of float32, float16",
        "  - role is 'doc'; it must be one of query, document",
        "  - max_failures is -1; it must be a count (0, 1, 2, …) or a share below 1 (0.01)",
    ]
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize("given", [1.5, float("nan"), float("inf"), -0.1])
def test_a_share_of_failures_above_one_is_refused(tmp_path: Path, given: float) -> None:
    with pytest.raises(RefusedRequest, match="max_failures is"):
        embed_items(items_of(1), KeywordEmbedder(), role="document", out=tmp_path / "v", max_failures=given)


def test_no_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="there are no items; the collection's file is empty"):
        embed_items([], KeywordEmbedder(), role="document", out=tmp_path / "v")


def test_missing_media_is_refused_before_anything_is_embedded(tmp_path: Path) -> None:
    clip = tmp_path / "there.mp4"
    clip.write_bytes(b"frames")
    gone = tmp_path / "gone.mp4"
    items = [Item("a", video=clip, transcript="dog"), Item("b", video=gone, transcript="apple")]
    embedder = KeywordEmbedder()
    expected = r"1 of 2 items lack their media and 0 may fail(.|\n)*  - b: .*gone\.mp4"
    with pytest.raises(RefusedRequest, match=expected):
        embed_items(items, embedder, role="document", out=tmp_path / "v")
    assert embedder.encoded == []
    assert not (tmp_path / "v").exists()
    folder = embed_items(items, embedder, role="document", out=tmp_path / "v", max_failures=0.5)
    assert list(folder.ids) == ["a"]
    assert [failure.item for failure in folder.failures] == ["b"]
    gone.write_bytes(b"found")  # then the folder is out of date
    with pytest.raises(RefusedRequest, match="digest of the items"):
        embed_items(items, embedder, role="document", out=tmp_path / "v", max_failures=0.5)


def test_ids_of_any_script_and_equal_contents_keep_their_rows(tmp_path: Path) -> None:
    items = [Item(name, text="dog apple") for name in ("ключ", "鍵 1", "a/b\tc", "🔑")]
    folder = embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", batch_size=2)
    assert list(folder.ids) == ["ключ", "鍵 1", "a/b\tc", "🔑"]
    assert len(np.unique(folder.matrix(), axis=0)) == 1


def collection_of(folder: Path) -> Path:
    folder.mkdir()
    rows = {"corpus": {"d1": "a dog", "d2": "an apple"}, "queries": {"q1": "dog"}}
    for side, texts in rows.items():
        lines = [json.dumps({"_id": name, "text": text}) + "\n" for name, text in texts.items()]
        (folder / f"{side}.jsonl").write_text("".join(lines))
    return folder


def test_the_verb_embeds_either_side_with_its_role(tmp_path: Path) -> None:
    collection = collection_of(tmp_path / "c")
    for side, role, ids in (("corpus", "document", ["d1", "d2"]), ("queries", "query", ["q1"])):
        out = embed(collection, "fakes:KeywordEmbedder", tmp_path / side, side=side)
        manifest = json.loads((out / "manifest.json").read_text())
        expected = {"role": role, "side": side, "embedder": "fakes:KeywordEmbedder"}
        assert {name: manifest[name] for name in expected} == expected
        assert pq.read_table(out / "ids.parquet")["id"].to_pylist() == ids
    out = embed(collection, "fakes:KeywordEmbedder", tmp_path / "v", role="query")
    assert json.loads((out / "manifest.json").read_text())["role"] == "query"


def test_three_broken_items_of_ten_are_a_matter_of_the_allowance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """30%: half of them clips whose file is missing, which are refused before the embedder is loaded."""
    folder = tmp_path / "c"
    folder.mkdir()
    texts = {n: {"text": "nothing" if n % 20 == 3 else "a dog"} for n in range(100)}
    rows = [
        {"_id": f"d{n}", **text} | ({"video": "gone.mp4"} if n % 4 == 1 else {}) for n, text in texts.items()
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["embed", "--collection", folder, "--embedder", "fakes:KeywordEmbedder", "--out", tmp_path / "v"]

    def run(share: float) -> tuple[int, str]:
        code = main([*map(str, words), "--max-failures", str(share)])
        return code, capsys.readouterr().err

    code, told = run(0.24)
    assert code == 2
    assert "25 of 100 items lack their media and 24 may fail (max_failures): 25 problems" in told
    assert "d1: file not found: " in told
    assert "… and 5 more" in told
    assert not (tmp_path / "v").exists()
    code, told = run(0.29)
    assert code == 1
    assert "30 of 100 items failed and 29 may (max_failures); the others are in" in told
    assert run(0.3) == (0, f"vectors folder {tmp_path / 'v'} is complete already: nothing to embed\n"
                           f"70 vectors of 8 dimensions in {tmp_path / 'v'}, 30 items failed\n")  # fmt: skip


def test_a_collection_that_changes_under_a_job_ends_it_and_what_is_done_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    lines = [json.dumps({"_id": f"d{n}", "text": "a dog"}) + "\n" for n in range(6)]
    (folder / "corpus.jsonl").write_text("".join(lines))
    real = KeywordEmbedder.encode

    def touches(self: KeywordEmbedder, items: Sequence[Item], *, role: Role) -> Vectors:
        os.utime(folder / "corpus.jsonl", ns=(0, 0))
        return real(self, items, role=role)

    options = {"batch_size": 2, "shard_size": 4}
    with monkeypatch.context() as patched:
        patched.setattr(KeywordEmbedder, "encode", touches)
        with pytest.raises(
            JobFailed, match=r"corpus\.jsonl was changed while it was in use; leave it as it is"
        ):
            embed(folder, "fakes:KeywordEmbedder", tmp_path / "v", **options)
    assert (tmp_path / "v" / ".work" / "part-000000000000.json").exists()
    embed(folder, "fakes:KeywordEmbedder", tmp_path / "v", **options)  # its content is the same
    embed(folder, "fakes:KeywordEmbedder", tmp_path / "whole", **options)
    assert content(tmp_path / "v") == content(tmp_path / "whole")


@pytest.mark.parametrize(("engine", "actors"), [("local", 2), ("ray", -1)])
def test_actors_are_a_matter_of_a_cluster(tmp_path: Path, engine: str, actors: int) -> None:
    with pytest.raises(
        RefusedRequest, match=f"--actors {actors}: a number of processes, 1 or more, of --engine ray"
    ):
        embed(
            collection_of(tmp_path / "c"),
            "fakes:KeywordEmbedder",
            tmp_path / "v",
            engine=engine,
            actors=actors,
        )


SLOW_JOB = """
import sys, time
from pathlib import Path
from fakes import KeywordEmbedder
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.embed import embed_items

class Slow(KeywordEmbedder):
    def encode(self, items, *, role):
        time.sleep(float(sys.argv[2]))
        return super().encode(items, role=role)

words = ("apple", "bridge dog", "nothing", "candle candle forest")
items = [Item(f"d{i}", text=words[i % 4]) for i in range(60)]
print("started", flush=True)
options = {"batch_size": 2, "shard_size": 14, "max_failures": 15, "save_every": 0}
embed_items(items, Slow(), role="document", out=Path(sys.argv[1]), **options)
"""


def start_job(out: Path, pause: float) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    job = subprocess.Popen(
        [sys.executable, "-c", SLOW_JOB, str(out), str(pause)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    job.stdout.readline()
    return job


@pytest.mark.slow
def test_killed_at_several_moments_it_ends_in_the_bytes_of_an_undisturbed_run(tmp_path: Path) -> None:
    assert start_job(tmp_path / "whole", 0).wait() == 0
    for moment in (0.0, 0.1, 0.4, 0.8):  # seconds after the first save; the whole job sleeps for 3
        job = start_job(tmp_path / "v", 0.1)
        while not list((tmp_path / "v").glob(".work/*.npy")):
            assert job.poll() is None
            time.sleep(0.001)
        time.sleep(moment)
        job.send_signal(signal.SIGKILL)
        job.wait()
        assert not (tmp_path / "v" / "manifest.json").exists(), "the kill came too late to test anything"
    assert start_job(tmp_path / "v", 0).wait() == 0
    assert content(tmp_path / "v") == content(tmp_path / "whole")


class Crash(BaseException):
    """Stands for a kill: nothing above catches it."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_stopped_at_any_rename_it_ends_in_the_bytes_of_an_undisturbed_run(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file arrives by a rename, so these are all the states that a kill can leave behind."""
    items = items_of(7, bad=[4])
    options = {"role": "document", "batch_size": 2, "shard_size": 5, "max_failures": 1, "save_every": 0}
    embed_items(items, KeywordEmbedder(), out=tmp_path / "whole", **options)
    rename = Path.replace
    crashes = 0
    for fatal in range(1, 100):
        calls = 0

        def replace(path: Path, target: Path, fatal: int = fatal) -> Path:
            nonlocal calls
            calls += 1
            if calls == fatal and when == "before":
                raise Crash
            rename(path, target)
            if calls == fatal:
                raise Crash
            return target

        out = tmp_path / f"v{fatal}"
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", replace)
            try:
                embed_items(items, KeywordEmbedder(), out=out, **options)
                break
            except Crash:
                crashes += 1
        embed_items(items, KeywordEmbedder(), out=out, **options)
        assert content(out) == content(tmp_path / "whole")
    assert crashes >= 15


def test_a_damaged_piece_of_unfinished_work_is_done_again(tmp_path: Path) -> None:
    options = {"role": "document", "batch_size": 2, "shard_size": 4, "save_every": 0}
    embed_items(items_of(12), KeywordEmbedder(), out=tmp_path / "whole", **options)
    with pytest.raises(RuntimeError):
        embed_items(items_of(12), Stubborn("d10"), out=tmp_path / "v", **options)
    shard = tmp_path / "v" / ".work" / "shard-00001.npy"
    shard.write_bytes(shard.read_bytes()[:-3])
    embedder = KeywordEmbedder()
    embed_items(items_of(12), embedder, out=tmp_path / "v", **options)
    assert embedder.encoded[0] == "d4"
    assert content(tmp_path / "v") == content(tmp_path / "whole")


def test_a_second_writer_is_refused_while_the_first_one_works(tmp_path: Path) -> None:
    job = start_job(tmp_path / "v", 0.5)
    try:
        while not (tmp_path / "v" / ".work" / "request.json").exists():
            time.sleep(0.01)
        with pytest.raises(RefusedRequest, match=r"another process is writing into --out .*v; wait until"):
            embed_items(items_of(60), KeywordEmbedder(), role="document", out=tmp_path / "v")
    finally:
        job.kill()
        job.wait()


def test_the_metadata_of_a_row_is_that_of_its_item(tmp_path: Path) -> None:
    clip = tmp_path / "clip.mp4"
    clip.write_bytes(b"frames")
    items = [
        Item("t", title="Title", text="dog " * 100, groups={"topic": "pets"}),
        Item("v", video=clip, start=1.5, end=4.0, transcript="a\ndog"),
    ]
    embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v")
    text, video = pq.read_table(tmp_path / "v" / "ids.parquet").to_pylist()
    assert text["text"].startswith("Title dog dog")
    assert text["text"].endswith("…")
    assert len(text["text"]) == 200
    assert json.loads(text["groups"]) == {"topic": "pets"}
    assert text["video"] is text["start"] is None
    assert (video["video"], video["start"], video["end"], video["text"]) == (str(clip), 1.5, 4.0, "a dog")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the clips that were read for their digests."""
    names: list[str] = []
    plain = items_module._hash_file_ends

    def hashing(digest: Any, path: Path) -> None:
        names.append(path.name)
        plain(digest, path)

    monkeypatch.setattr(items_module, "_hash_file_ends", hashing)
    return names


def clips(folder: Path, count: int) -> list[Item]:
    """Of an hour ago: a file that has just changed may change again within a tick of the clock."""
    made = []
    for item in items_of(count):
        path = folder / f"{item.id}.mp4"
        path.write_bytes(b"frames")
        os.utime(path, (time.time() - 3600,) * 2)
        made.append(replace(item, video=path))
    return made


def test_clips_that_have_not_changed_are_not_read_again(tmp_path: Path, read: list[str]) -> None:
    items, out = clips(tmp_path, 6), tmp_path / "v"
    options: dict[str, Any] = {"role": "document", "out": out, "batch_size": 1, "shard_size": 4}
    with pytest.raises(RuntimeError, match="failed on the batch of items d4"):
        embed_items(items, Stubborn("d4"), **options)
    assert sorted(read) == [f"d{n}.mp4" for n in range(6)]
    read.clear()
    embed_items(items, KeywordEmbedder(), **options)  # goes on
    embed_items(items, KeywordEmbedder(), **options)  # complete
    assert read == []
    plain = content(embed_items(items, KeywordEmbedder(), **options | {"out": tmp_path / "w"}).path)
    assert {n: b for n, b in content(out).items() if not n.startswith(".digests")} == {
        n: b for n, b in plain.items() if not n.startswith(".digests")
    }
    read.clear()
    os.utime(tmp_path / "d3.mp4")  # touched: read, and the same
    embed_items(items, KeywordEmbedder(), **options)
    assert read == ["d3.mp4"]
    (tmp_path / "d3.mp4").write_bytes(b"FRAMES")
    with pytest.raises(RefusedRequest, match="digest of the items: found '"):
        embed_items(items, KeywordEmbedder(), **options)


def test_a_job_that_was_killed_while_it_read_clips_goes_on(tmp_path: Path, read: list[str]) -> None:
    items, out = clips(tmp_path, 3), tmp_path / "v"
    out.mkdir()
    with digests_kept_in(out / DIGESTS):
        item_digest(items[0])
    read.clear()
    embed_items(items, KeywordEmbedder(), role="document", out=out)
    assert read == ["d1.mp4", "d2.mp4"]


def test_slices_are_joined_without_reading_clips_again(tmp_path: Path, read: list[str]) -> None:
    items, folder = clips(tmp_path, 6), tmp_path / "c"
    rows = [{"_id": item.id, "text": item.text, "video": str(item.video)} for item in items]
    write_collection(
        folder, corpus=rows, queries=[{"_id": "q", "text": "dog"}], qrels={"test": {"q": {"d0": 1}}}
    )
    for number in ("1/2", "2/2"):
        embed(folder, "fakes:KeywordEmbedder", tmp_path / "v", shard=number, shard_size=3)
    assert sorted(read) == [f"d{n}.mp4" for n in range(6)]
    read.clear()
    embed(folder, "fakes:KeywordEmbedder", tmp_path / "v", shard_size=3)
    embed(folder, "fakes:KeywordEmbedder", tmp_path / "v", shard_size=3)
    assert read == []


def test_the_job_ends_with_one_line_and_shows_no_bar_without_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level("INFO"):
        items = items_of(5, bad=[1])
        embed_items(items, KeywordEmbedder(), role="document", out=tmp_path / "v", max_failures=1)
    assert caplog.messages == [f"4 vectors of 8 dimensions in {tmp_path / 'v'}, 1 items failed"]
    assert capsys.readouterr() == ("", "")


def test_the_same_id_on_both_sides_counts_twice_among_missing_media(tmp_path: Path) -> None:
    items = [Item("a", video=tmp_path / "clip.mp4"), Item("a", image=tmp_path / "still.png")]
    with pytest.raises(RefusedRequest, match="2 of 2 items lack their media and 1 may fail"):
        refuse_missing_media(items, 1)


def test_a_recorded_embedder_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "tinyworld").mkdir()
    (tmp_path / "e.yaml").touch()
    (tmp_path / "v.npz").touch()
    specs = {
        "model": f"{tmp_path}/model",
        "st:model?dim=4": f"st:{tmp_path}/model?dim=4",
        "e.yaml": f"{tmp_path}/e.yaml",
        "st:org/name": "st:org/name",
        "fakes:KeywordEmbedder": "fakes:KeywordEmbedder",
        "tinyworld": "tinyworld",
        "mllm:tinyworld?fps=1": "mllm:tinyworld?fps=1",
        "mllm:org/name?adapter=model&fps=1": f"mllm:org/name?adapter={tmp_path}/model&fps=1",
        "vectors:v.npz?name=model": f"vectors:{tmp_path}/v.npz?name=model",
        "clip:open_clip:model": f"clip:open_clip:{tmp_path}/model",
        "clip:open_clip:ViT-B-32/v.npz": f"clip:open_clip:ViT-B-32/{tmp_path}/v.npz",
        "clip:open_clip:ViT-B-32/openai": "clip:open_clip:ViT-B-32/openai",
        "clip:hf-hub:model": "clip:hf-hub:model",
        "cascade:ocr:st:model?ocr_frames=4": f"cascade:ocr:st:{tmp_path}/model?ocr_frames=4",
        "cascade:asr+ocr:model": f"cascade:asr+ocr:{tmp_path}/model",
        "cascade:asr:tinyworld?speech_model=model": f"cascade:asr:tinyworld?speech_model={tmp_path}/model",
        "cascade:asr:fakes:KeywordEmbedder": "cascade:asr:fakes:KeywordEmbedder",
        "openai:model": "openai:model",  # the endpoint's name for it, not the folder here
        "cascade:asr:openai:model": "cascade:asr:openai:model",
    }
    assert {spec: spec_from_anywhere(spec) for spec in specs} == specs
    (tmp_path / "e.yaml").write_text("class_path: fakes.KeywordEmbedder\n")
    out = embed(collection_of(tmp_path / "c"), "e.yaml", tmp_path / "v")
    assert json.loads((out / "manifest.json").read_text())["embedder"] == f"{tmp_path}/e.yaml"


class Telling(KeywordEmbedder):
    """Counts, as embedders of clips do."""

    @property
    def tally(self) -> str:
        return f"{len(self.encoded)} things"


@pytest.mark.parametrize(
    ("embedder", "told"), [(Telling(), ["keywords was given so far: 3 things"]), (KeywordEmbedder(), [])]
)
def test_what_the_model_was_given_is_told_at_the_end(tmp_path, caplog, embedder, told):
    caplog.set_level("INFO", logger="vidvec_msg")
    items = [Item(f"i{row}", text=word) for row, word in enumerate(("apple", "dog", "forest"))]
    embed_items(items, embedder, role="document", out=tmp_path / "v")
    assert [record.message for record in caplog.records if "given so far" in record.message] == told
