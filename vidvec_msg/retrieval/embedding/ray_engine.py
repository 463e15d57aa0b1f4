"""The verb ``embed`` on a Ray cluster: the same vectors folder, made by many processes.

One shard is one unit of work. Ray Data reads its rows on the driver's machine, hands them to one of the
actors that hold the model, and brings the finished shard back to the driver, which writes it: shards may end
in any order. So actors need no file system in common with the driver, unless items have media. A unit whose
actor or machine dies is done again by another one; a driver that dies goes on with what it had written.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from vidvec_msg.embedders.contract import EmbedderCard, Role
from vidvec_msg.embedders.load import check_spec
from vidvec_msg.errors import Failure, JobFailed, RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.formats.collections import Side
from vidvec_msg.formats.item_file import ItemFile
from vidvec_msg.formats.vectors import VectorsFolder
from vidvec_msg.retrieval.embed import StoredType, refuse_missing_media, write_vectors
from vidvec_msg.retrieval.embedding.encoding import items_per_call
from vidvec_msg.retrieval.embedding.ray_actors import (
    ShardEmbedder,
    Unit,
    card_answer,
    raise_error_of,
    read_unit,
)
from vidvec_msg.retrieval.embedding.spec_paths import spec_from_anywhere
from vidvec_msg.retrieval.embedding.writing import VectorsWriter

log = logging.getLogger(__name__)

_TRIES_AGAIN = 4  # of a unit whose process died; one that always kills its process must not go round for ever


def embed_on_cluster(
    items: ItemFile,
    spec: str,
    *,
    actors: int,
    role: Role,
    out: Path,
    batch_size: int,
    shard_size: int,
    dtype: StoredType,
    max_failures: float,
    side: Side,
) -> VectorsFolder:
    """Embeds items into a vectors folder, as :func:`~vidvec_msg.retrieval.embed.embed_items` does.

    Args:
        items: what to embed.
        spec: of the embedder, which every actor loads; a path in it is one that every machine has.
        actors: processes that hold the model; 0: one per GPU, or one per machine without any.
        role, out, batch_size, shard_size, dtype, max_failures, side: see there.

    Raises:
        RefusedRequest: see there; or Ray is not installed, no cluster answers, or it has too little room.
        JobFailed: processes died again and again; a later call goes on.
    """
    check_spec(spec)
    missing = refuse_missing_media(items, max_failures)
    spec = spec_from_anywhere(spec)
    with _cluster() as ray:
        size, resources = _actors(ray, actors)
        card = _card_of(ray, spec, resources)
        log.info("embedding with %d actors of %s", size, _in_words(resources))
        worker: dict[str, Any] = {
            "spec": spec,
            "folder": str(Path.cwd()),
            "fingerprint": card.fingerprint,
            "dim": card.dim,
            "dtype": dtype,
            "role": role,
            "batch_size": batch_size or items_per_call(items),
            "root": str(items.root),
            "missing": missing,
        }
        return write_vectors(
            items,
            card,
            lambda writer: _shards(ray, writer, items, size, resources, worker),
            missing=missing,
            role=role,
            out=out,
            shard_size=shard_size,
            dtype=dtype,
            max_failures=max_failures,
            side=side,
            spec=spec,
        )


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray, connected: the caller's cluster, that of RAY_ADDRESS, or one on this machine that ends here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # its actors warn on stderr that their arguments live as long as this process, which is as long as they do
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    ray = require("ray", purpose="embed with --engine ray")
    require("ray.data", purpose="embed with --engine ray")
    address = os.environ.get("RAY_ADDRESS", "")
    if "://" in address:
        raise RefusedRequest(
            f"RAY_ADDRESS is {address}: shards come back to this process, which must be part of the cluster; "
            "start the job on one of its machines with RAY_ADDRESS=HOST:6379"
        )
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(
            address=address or "local",  # else it waits for minutes for a cluster that was killed here once
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except ConnectionError as error:
        raise RefusedRequest(f"no Ray cluster answers at RAY_ADDRESS={address}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _actors(ray: Any, asked: int) -> tuple[int, dict[str, int]]:
    """How many actors, and what each takes: a GPU and its share of the processors, or its share alone.

    Raises:
        RefusedRequest: the cluster cannot hold so many.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    with_gpus = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    useful = with_gpus or [machine for machine in machines if machine.get("CPU", 0) >= 1]
    kind = "GPU" if with_gpus else "CPU"
    places = sum(int(machine[kind]) for machine in useful)
    size = asked or (places if with_gpus else len(useful))
    if not 1 <= size <= places:
        raise RefusedRequest(
            f"--actors {asked}: the cluster has {places} {kind}s on {len(useful)} machines, and each actor "
            "takes one"
        )
    if with_gpus:
        share = min(machine.get("CPU", 1) // machine["GPU"] for machine in useful)
        return size, {"num_gpus": 1, "num_cpus": max(int(share), 1)}
    share = min(machine["CPU"] for machine in useful) // -(-size // len(useful))
    return size, {"num_cpus": max(int(share), 1)}


def _in_words(resources: Mapping[str, int]) -> str:
    names = {"num_gpus": "GPU", "num_cpus": "CPU"}
    return ", ".join(f"{amount} {names[name]}{'s' * (amount > 1)}" for name, amount in resources.items())


def _card_of(ray: Any, spec: str, resources: Mapping[str, int]) -> EmbedderCard:
    """The card, from a process that opens the embedder where actors will: this one may have no GPU."""
    task = ray.remote(**resources)(card_answer)
    try:
        told: dict[str, Any] = ray.get(task.remote(spec, str(Path.cwd())))
    except ray.exceptions.RayError as error:
        raise JobFailed(f"the cluster could not open embedder {spec!r}: {_first_line(error)}") from error
    raise_error_of(told)
    return EmbedderCard.from_dict(told["card"])


def _shards(
    ray: Any,
    writer: VectorsWriter,
    items: ItemFile,
    size: int,
    resources: Mapping[str, int],
    worker: Mapping[str, Any],
) -> Iterator[None]:
    """Has every shard that is missing made, and keeps each as it comes.

    Raises:
        JobFailed: a unit's process died again and again.
    """
    units = [
        {"first": first, "stop": stop, "begin": int(items.places[first]), "end": int(items.places[stop])}
        for first, stop in writer.missing_shards()
    ]
    if not units:
        return
    try:
        with _quiet(ray):
            made = _pipeline(ray, units, items, min(size, len(units)), resources, worker)
            for table in made.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=1):
                _keep(writer, table)
                yield
    except ray.exceptions.RayError as error:
        raise JobFailed(
            f"the cluster gave up: {_first_line(error)}. {writer.processed:,} of {len(items):,} items are "
            "saved; the same command goes on."
        ) from error


def _pipeline(
    ray: Any,
    units: Sequence[Unit],
    items: ItemFile,
    size: int,
    resources: Mapping[str, int],
    worker: Mapping[str, Any],
) -> Any:
    """Units → their rows, read here → their shards, made by the actors; a Ray Dataset with a row for each."""
    read = ray.data.from_items(list(units), override_num_blocks=len(units)).map(
        read_unit,
        fn_kwargs={"path": str(items.path), "stamp": items.stamp},
        num_cpus=0,  # it waits for the disk, and every processor may belong to an actor
        resources={_this_machine(ray): 0.001},
    )
    with warnings.catch_warnings():  # Ray 2.64 will take these two in another way
        warnings.filterwarnings("ignore", message="`ray_remote_args` is deprecated")
        return read.map_batches(
            ShardEmbedder,
            fn_constructor_kwargs=dict(worker),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
            max_restarts=-1,
            max_task_retries=_TRIES_AGAIN,
            **resources,
        )


def _this_machine(ray: Any) -> str:
    """The resource that only the driver's machine has."""
    own = ray.get_runtime_context().get_node_id()
    found: dict[str, float] = next(node["Resources"] for node in ray.nodes() if node["NodeID"] == own)
    return next(name for name in found if name.startswith("node:") and not name.startswith("node:__"))


def _keep(writer: VectorsWriter, made: pa.Table) -> None:
    """Writes one shard."""
    matrix = memoryview(made["matrix"][0].as_buffer())
    row = made.drop_columns("matrix").to_pylist()[0]
    raise_error_of(row)
    failures = [Failure(**failure) for failure in json.loads(row["failures"])]
    writer.add_shard(row["first"], matrix, row["ids"], failures)


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Without Ray Data's own bars and plans: the job has one bar."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, context.print_on_execution_start, logger.level
    context.enable_progress_bars = context.print_on_execution_start = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars, context.print_on_execution_start, level = before
        logger.setLevel(level)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
