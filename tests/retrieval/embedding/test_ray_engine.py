"""The verb on a Ray cluster of two workers: the bytes of one process, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from fakes import KEYWORDS

from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import JobFailed, RefusedRequest, TooManyFailures
from vidvec_msg.retrieval.embed import embed
from vidvec_msg.retrieval.embedding import ray_actors, ray_engine

TESTS = Path(__file__).parents[2]
CLIP_GONE = {4, 21}
OPTIONS = {"shard_size": 5, "batch_size": 2, "max_failures": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of two workers with a processor each; they are gone when the file is done."""
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=made.address, log_to_driver=False, logging_level="WARNING")
    processes = [process.process for one in made.list_all_nodes() for kind in one.all_processes.values()
                 for process in kind]  # fmt: skip
    yield made.address
    ray.shutdown()
    made.shutdown()
    assert processes
    assert all(process.poll() is not None for process in processes)


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """23 documents: two texts without a keyword, two clips without their file."""
    rows = []
    for n in range(23):
        text = "nothing" if n in (7, 20) else " ".join(KEYWORDS[: 1 + n % len(KEYWORDS)])
        rows.append({"_id": f"d{n}", "text": text} | ({"video": "gone.mp4"} if n in CLIP_GONE else {}))
    folder = tmp_path / "collection"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def whole(collection: Path, tmp_path: Path) -> dict[str, bytes]:
    """What one process makes."""
    return content(embed(collection, "fakes:KeywordEmbedder", tmp_path / "whole", **OPTIONS))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def content(folder: Path) -> dict[str, bytes]:
    """Every byte but the spec in the manifest, in which the embedders of these tests differ."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    manifest = json.loads(files["manifest.json"])
    del manifest["embedder"]
    return files | {"manifest.json": json.dumps(manifest).encode()}


def encoded(notes: Path) -> dict[str, set[str]]:
    """First item of a batch → the processes that were given it."""
    found: dict[str, set[str]] = {}
    for path in notes.glob("d*.*"):
        found.setdefault(path.stem, set()).add(path.suffix)
    return found


@pytest.mark.slow
def test_a_unit_that_always_kills_its_process_ends_the_job_which_goes_on_anywhere(
    cluster: str,
    collection: Path,
    whole: dict[str, bytes],
    notes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_engine, "_TRIES_AGAIN", 1)
    spec = f"ray_embedders:Noting?notes={notes}&dies_at=d13&times=99"
    with pytest.raises(JobFailed, match=r"the cluster gave up: .* items are saved; the same command goes on"):
        embed(collection, spec, tmp_path / "v", engine="ray", actors=2, **OPTIONS)
    assert len(list(notes.glob("death.*"))) == 2
    saved = {path.stem for path in (tmp_path / "v" / ".work").glob("shard-*.npy")}
    assert "shard-00002" not in saved
    out = embed(collection, "fakes:KeywordEmbedder", tmp_path / "v", **OPTIONS)
    assert content(out) == whole


@pytest.mark.slow
def test_driver_and_workers_are_killed_on_the_way_and_the_bytes_are_those_of_one_process(
    cluster: str, collection: Path, whole: dict[str, bytes], notes: Path, tmp_path: Path
) -> None:
    spec = f"ray_embedders:Noting?notes={notes}&pause=0.3"
    words = ["embed", "--collection", collection, "--embedder", spec, "--out", tmp_path / "v"]
    words += ["--engine", "ray", "--actors", 1, *(f"--{name}={value}" for name, value in OPTIONS.items())]
    driver = subprocess.Popen(
        [sys.executable, "-m", "vidvec_msg.cli", *map(str, words)],
        env={**os.environ, "RAY_ADDRESS": cluster},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list((tmp_path / "v").glob(".work/shard-*.json")):
        assert driver.poll() is None, driver.stderr and driver.stderr.read()
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    saved = {int(path.stem.removeprefix("shard-")) for path in (tmp_path / "v").glob(".work/shard-*.json")}
    assert len(saved) < 5
    assert encoded(notes), "the driver did not use the cluster of RAY_ADDRESS"

    first = 5 * min(set(range(5)) - saved)  # of a shard that is missing
    later = tmp_path / "later"  # the actors of the first driver live on for a moment
    later.mkdir()
    spec = f"ray_embedders:Noting?notes={later}&pause=0.1&dies_at=d{first + 2}&times=2"
    out = embed(collection, spec, tmp_path / "v", engine="ray", actors=2, **OPTIONS)
    assert len(list(later.glob("death.*"))) == 2
    again = encoded(later)
    # of the unit's first batch: two processes that died, one that did not
    assert len(again[f"d{first}"]) == 3
    assert content(out) == whole
    assert json.loads((out / "manifest.json").read_text())["embedder"] == spec
    assert not {f"d{5 * shard}" for shard in saved} & set(again)
    assert f".{os.getpid()}" not in set().union(*again.values())
    with pytest.raises(
        TooManyFailures, match=r"4 of 23 items failed and 3 may \(max_failures\)"
    ):  # complete, and judged anew
        embed(collection, spec, out, engine="ray", **OPTIONS | {"max_failures": 3})
    assert encoded(later) == again


def test_an_error_in_an_actor_comes_back_in_its_own_words(collection: Path, notes: Path) -> None:
    """Without a cluster: what an actor gives back is a row of a table, whether it is a shard or an error."""
    spec = f"ray_embedders:Noting?notes={notes}&fails_at=d11"
    card = load_embedder(spec).card
    actor = ray_actors.ShardEmbedder(
        spec=spec, folder=str(TESTS), fingerprint=card.fingerprint, root=str(collection), role="document",
        batch_size=2, missing={}, dim=card.dim, dtype="float16",
    )  # fmt: skip
    rows = (collection / "corpus.jsonl").read_bytes().splitlines(keepends=True)
    made = [
        actor(pa.Table.from_pylist([{"first": at, "block": b"".join(rows[at : at + 2]), "error": ""}]))
        for at in (8, 10)
    ]
    assert (made[0]["error"][0].as_py(), made[0]["ids"][0].as_py()) == ("", ["d8", "d9"])
    with pytest.raises(
        RuntimeError, match="'keywords' failed on the batch of items d10, d11: MemoryError: out of"
    ):
        ray_engine._keep(None, made[1])


@pytest.mark.slow
def test_an_embedder_that_does_not_open_is_refused(cluster: str, collection: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="unknown option 'note'"):
        embed(collection, "ray_embedders:Noting?note=x", tmp_path / "x", engine="ray", **OPTIONS)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", [RefusedRequest, JobFailed, RuntimeError])
def test_errors_keep_their_kind_and_their_words(kind: type[Exception]) -> None:
    def fails() -> None:
        raise kind("start the endpoint")

    with pytest.raises(kind, match=r"^start the endpoint$"):
        ray_actors.raise_error_of(ray_actors.answer_of(fails))
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: .*by zero$"):
        ray_actors.raise_error_of(ray_actors.answer_of(lambda: 1 // 0))


def machine(**resources: float) -> dict[str, object]:
    return {"Alive": True, "Resources": resources}


@pytest.mark.parametrize(
    ("machines", "asked", "size", "resources"),
    [
        ([machine(CPU=8.0)], 0, 1, {"num_cpus": 8}),
        ([machine(CPU=8.0), machine(CPU=4.0), machine()], 0, 2, {"num_cpus": 4}),
        ([machine(CPU=8.0), machine(CPU=4.0)], 3, 3, {"num_cpus": 2}),
        ([machine(CPU=2.0)], 2, 2, {"num_cpus": 1}),
        ([machine(CPU=64.0), machine(CPU=32.0, GPU=8.0)], 0, 8, {"num_gpus": 1, "num_cpus": 4}),
        ([machine(CPU=16.0, GPU=1.0), machine(CPU=4.0, GPU=8.0)], 2, 2, {"num_gpus": 1, "num_cpus": 1}),
    ],
)
def test_an_actor_takes_a_gpu_and_its_share_of_the_processors(
    machines: list[dict[str, object]], asked: int, size: int, resources: dict[str, int]
) -> None:
    stand_in = SimpleNamespace(nodes=lambda: [*machines, {"Alive": False, "Resources": {"GPU": 4.0}}])
    assert ray_engine._actors(stand_in, asked) == (size, resources)


def test_more_actors_than_the_cluster_has_places_are_refused() -> None:
    stand_in = SimpleNamespace(nodes=lambda: [machine(CPU=9.0, GPU=2.0), machine(CPU=4.0)])
    with pytest.raises(
        RefusedRequest, match="--actors 3: the cluster has 2 GPUs on 1 machines, and each actor"
    ):
        ray_engine._actors(stand_in, 3)


def test_a_client_outside_the_cluster_is_refused(
    collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(
        RefusedRequest, match=r"start the job on one of its machines with RAY_ADDRESS=HOST:6379"
    ):
        embed(collection, "fakes:KeywordEmbedder", tmp_path / "v", engine="ray", **OPTIONS)
