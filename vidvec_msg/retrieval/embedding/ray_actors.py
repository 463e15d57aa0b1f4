"""What runs on the machines of a Ray cluster: an actor turns the rows of a shard into the shard.

Errors go back in words, as part of an answer: a cluster wraps exceptions in pages of its own.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vidvec_msg.embedders.contract import Embedder, Prepares, Role
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import Failure, JobFailed, RefusedRequest
from vidvec_msg.formats.item_file import items_in, read_block
from vidvec_msg.retrieval.embedding.encoding import encode_batch
from vidvec_msg.retrieval.embedding.shard_files import joined, write_matrix

Unit = dict[str, Any]

_KINDS: dict[str, type[Exception]] = {"RefusedRequest": RefusedRequest, "JobFailed": JobFailed}

_ANSWER = pa.schema(
    [
        ("first", pa.int64()),
        ("matrix", pa.large_binary()),
        ("ids", pa.list_(pa.string())),
        ("failures", pa.string()),
        ("kind", pa.string()),
        ("error", pa.string()),
    ]
)


def read_unit(unit: Unit, *, path: str, stamp: tuple[int, int]) -> Unit:
    """A unit with the bytes of its rows; runs where the file is."""
    with Path(path).open("rb") as stream:
        block = answer_of(
            lambda: read_block(stream, unit["begin"], unit["end"], stamp=stamp, path=Path(path))
        )
    return {"first": unit["first"], "block": block.get("value", b""), **_without_value(block)}


class ShardEmbedder:
    """An actor: holds the embedder, takes the rows of a shard, gives back the shard."""

    def __init__(self, *, spec: str, folder: str, fingerprint: str, **job: Any) -> None:
        self.job = job
        self.opened = answer_of(lambda: _open(spec, folder, fingerprint))

    def __call__(self, units: pa.Table) -> pa.Table:
        """A row for each unit: its place, and its shard or what went wrong."""
        rows = [_row_of(unit["first"], self._shard(unit)) for unit in units.to_pylist()]
        return pa.Table.from_pylist(rows, schema=_ANSWER)

    def _shard(self, unit: Unit) -> dict[str, Any]:
        if unit["error"] or self.opened["error"]:
            return unit if unit["error"] else self.opened
        return answer_of(lambda: encode_shard(self.opened["value"], unit["block"], **self.job))


def encode_shard(
    embedder: Embedder,
    block: bytes,
    *,
    root: str,
    role: Role,
    batch_size: int,
    missing: Mapping[str, Failure],
    dim: int,
    dtype: str,
) -> dict[str, Any]:
    """One shard: the ``.npy`` bytes (rows, dim), the ids of the rows, and the failures as JSON.

    Args:
        embedder: makes the vectors.
        block: the rows of the shard's items, as they stand in the file.
        root: folder that relative media paths start from.
        role: "query" or "document".
        batch_size: items per call, so that the bytes are those of a local run.
        missing: items of the whole job whose media file is missing, by id.
        dim: of a vector.
        dtype: how vectors are stored.
    """
    items = items_in(block, Path(root))
    rows, ids, failures = [], list[str](), list[Failure]()
    for at in range(0, len(items), batch_size):
        if isinstance(embedder, Prepares):
            coming = items[at : at + 2 * batch_size]  # of this call and the next
            embedder.prepare([item for item in coming if item.id not in missing])
        vectors, kept, failed = encode_batch(items[at : at + batch_size], embedder, role=role, known=missing)
        rows.append(np.asarray(vectors, dtype=dtype))
        ids += kept
        failures += failed
    stream = io.BytesIO()
    write_matrix(stream, joined(rows, dim, dtype))
    told = json.dumps([asdict(failure) for failure in failures], ensure_ascii=False)
    return {"matrix": stream.getvalue(), "ids": ids, "failures": told}


def _open(spec: str, folder: str, fingerprint: str) -> Embedder:
    _find_modules_of(folder)
    embedder = load_embedder(spec)
    if embedder.card.fingerprint != fingerprint:
        raise RefusedRequest(
            f"embedder {spec!r} is another one on machine {os.uname().nodename}: fingerprint "
            f"{embedder.card.fingerprint} there, {fingerprint} elsewhere; give all machines the same weights"
        )
    return embedder


def card_answer(spec: str, folder: str) -> dict[str, Any]:
    """The embedder's card under ``card``, or what went wrong."""

    def card() -> dict[str, Any]:
        _find_modules_of(folder)
        return load_embedder(spec).card.to_dict()

    answer = answer_of(card)
    return {"card": answer.get("value"), **_without_value(answer)}


def _find_modules_of(folder: str) -> None:
    """Lets ``module:Class`` mean what it means to the driver, if its folder is there."""
    if folder not in sys.path and Path(folder).is_dir():
        sys.path.append(folder)


def answer_of(work: Callable[[], Any]) -> dict[str, Any]:
    """The ``value`` of some work, or its ``error`` in words and the ``kind`` of it that we know."""
    try:
        return {"value": work(), "kind": "", "error": ""}
    except Exception as error:
        named = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
        return {"kind": named, "error": str(error) if named or type(error) is RuntimeError else _whole(error)}


def _whole(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _without_value(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": answer["kind"], "error": answer["error"]}


def _row_of(first: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    made = answer.get("value") or {"matrix": b"", "ids": [], "failures": "[]"}
    return {"first": first, **made, **_without_value(answer)}


def raise_error_of(answer: Mapping[str, Any]) -> None:
    """Raises the error that an answer tells of, if it does."""
    if answer["error"]:
        raise _KINDS.get(answer["kind"], RuntimeError)(answer["error"])
