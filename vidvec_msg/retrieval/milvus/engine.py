"""Every call to pymilvus: connections, collections, rows in and out; its errors in plain words.

A URI that is a path is a milvus-lite database: a folder that one process at a time may open. Others are
servers, whose token comes from the environment variable MILVUS_TOKEN and is written nowhere.
"""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.errors import JobFailed, RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.retrieval.indexes.conditions import PATHS, as_number, normal_path
from vidvec_msg.retrieval.milvus.filtering import METADATA, ids_expression

TOKEN = "MILVUS_TOKEN"  # the environment variable
LOCAL = "milvus.db"  # the default URI, inside the index folder
FILE_TYPES = ("FLAT", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8")  # indexes of milvus-lite
MOST = 16_384  # results per query, and queries per call, that a server allows
_LONGEST = 65_535  # bytes of a string field, the most that Milvus allows
_TIMEOUT = 60.0  # seconds that a server may take for one call
_AT_ONCE = 512  # ids that one expression names

FoundRow = tuple[str, float, dict[str, Any]]
"""Id, cosine and metadata of a result."""

_open_files: Counter[str] = Counter()  # connections of this process by address
_files_lock = Lock()


class Collection:
    """One collection of a Milvus server or file, opened. Calls may come from several threads.

    Args:
        uri: of the server, or path of the file.
        name: of the collection; it need not exist yet.

    Raises:
        RefusedRequest: pymilvus is not installed, or the server does not answer.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.uri = uri
        self.name = name
        self.most = MOST if is_server(uri) else np.iinfo(np.int32).max
        pymilvus = require("pymilvus", purpose="use the engine milvus")
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it logs what it raises, with tracebacks
        if not is_server(uri):
            require("milvus_lite", purpose="keep an index in a Milvus file")
            for name in ("grpc._server", "milvus_lite"):  # they log calls that milvus-lite lacks, and errors
                logging.getLogger(name).setLevel(logging.CRITICAL)
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
        with _files_lock, _in_words(self):
            self._client = pymilvus.MilvusClient(uri=uri, token=os.environ.get(TOKEN, ""), timeout=_TIMEOUT)
            _open_files[uri] += 1
        self._closed = False

    def close(self) -> None:
        """Ends the connection; the last one to a file also ends the server inside this process."""
        if self._closed:
            return
        self._closed = True
        self._client.close()
        with _files_lock:
            _open_files[self.uri] -= 1
            if not _open_files[self.uri] and not is_server(self.uri):
                lite = require("milvus_lite.server_manager", purpose="close a Milvus file")
                lite.server_manager_instance.release_server(self.uri)

    def exists(self) -> bool:
        """Whether there is such a collection."""
        with _in_words(self):
            return bool(self._client.has_collection(self.name))

    def create(self, dim: int, index: str, *, description: str) -> None:
        """Makes it, empty: fields ``id``, ``vector`` (cosine) and ``metadata`` (JSON).

        Args:
            dim: dimensions of a vector.
            index: Milvus's index type, with its parameters: "HNSW,M=16,efConstruction=200".
            description: is kept with it, where the server keeps one.
        """
        from pymilvus import DataType

        kind, parameters = index_parameters(index)
        schema = self._client.create_schema(
            auto_id=False, enable_dynamic_field=False, description=description
        )
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_LONGEST)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        schema.add_field(METADATA, DataType.JSON)
        with _in_words(self):
            indexes = self._client.prepare_index_params()
            indexes.add_index("vector", index_type=kind, metric_type="COSINE", params=parameters)
            self._client.create_collection(
                self.name, schema=schema, index_params=indexes, consistency_level="Strong"
            )

    def load(self) -> None:
        """Makes it ready to be asked; returns when it is."""
        with _in_words(self):
            self._client.load_collection(self.name)

    def dim(self) -> int:
        """Dimensions of its vectors."""
        with _in_words(self):
            fields = self._client.describe_collection(self.name)["fields"]
        return int(next(field["params"]["dim"] for field in fields if field["name"] == "vector"))

    def upsert(self, vectors: Vectors, rows: Sequence[Mapping[str, Any]]) -> None:
        """Puts items in, or in the place of those with the same ids.

        Args:
            vectors: (rows, dim), of norm 1.
            rows: metadata, ids included.
        """
        entities = [
            {"id": row["id"], "vector": vector, METADATA: stored(row)}
            for row, vector in zip(rows, vectors, strict=True)
        ]
        with _in_words(self):
            self._client.upsert(self.name, entities)

    def delete(self, ids: Sequence[str]) -> None:
        """Takes items out; ids that are not there are no error."""
        for part in _parts(ids):
            with _in_words(self):
                self._client.delete(self.name, filter=ids_expression(part))

    def drop(self) -> None:
        """Removes the whole collection."""
        with _in_words(self):
            self._client.drop_collection(self.name)

    def flush(self) -> None:
        """Has what was put in written to disk."""
        with _in_words(self):
            self._client.flush(self.name)

    def count(self, where: str = "") -> int:
        """Items, or those that an expression lets through."""
        with _in_words(self):
            answer = self._client.query(self.name, filter=where, output_fields=["count(*)"])
        return int(answer[0]["count(*)"])

    def rows(self, where: str, limit: int) -> list[dict[str, Any]]:
        """Metadata of some items that an expression lets through, at most ``limit``."""
        with _in_words(self):
            found = self._client.query(
                self.name, filter=where, output_fields=["id", METADATA], limit=min(limit, self.most)
            )
        return [told(row["id"], row[METADATA]) for row in found]

    def rows_of(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Metadata by id; ids that are not there are left out."""
        found: dict[str, dict[str, Any]] = {}
        for part in _parts(ids):
            found |= {row["id"]: row for row in self.rows(ids_expression(part), len(part))}
        return found

    def vector(self, item: str) -> Vectors | None:
        """The vector of an item, (dim,); None if there is no such item."""
        with _in_words(self):
            found = self._client.query(self.name, filter=ids_expression([item]), output_fields=["vector"])
        return np.array(found[0]["vector"], dtype=np.float32) if found else None

    def search(
        self,
        queries: Vectors,
        k: int,
        *,
        where: str = "",
        parameters: Mapping[str, Any],
        metadata: bool = False,
    ) -> list[list[FoundRow]]:
        """The k nearest of each query: ids, cosines and, if asked for, metadata.

        Args:
            queries: (queries, dim).
            k: results per query, at most :attr:`most`.
            where: an expression.
            parameters: of the search, by Milvus's names.
            metadata: whether to fetch it.
        """
        found: list[list[FoundRow]] = []
        for first in range(0, len(queries), MOST):
            with _in_words(self):
                answer = self._client.search(
                    self.name,
                    data=queries[first : first + MOST].tolist(),
                    filter=where,
                    limit=k,
                    output_fields=[METADATA] if metadata else [],
                    search_params={"metric_type": "COSINE", "params": dict(parameters)},
                    anns_field="vector",
                )
            found += [[_hit(hit) for hit in hits] for hits in answer]
        return found


def is_server(uri: str) -> bool:
    """Whether a URI is a server's; the path of a file otherwise."""
    return "://" in uri


def refuse_bad_uri(uri: str) -> None:
    """Refuses addresses that would have to be written down with a secret in them.

    Raises:
        RefusedRequest: it holds a user or a password, or a scheme that Milvus does not have.
    """
    if not is_server(uri):
        return
    parts = urlsplit(uri)
    if "@" in parts.netloc:
        raise RefusedRequest(
            f"--milvus_uri: leave out the user and password of {parts.hostname}; they would be written into "
            f"the index folder. Set the environment variable {TOKEN} to user:password instead."
        )
    if parts.scheme not in ("http", "https", "tcp"):
        raise RefusedRequest(
            f"--milvus_uri {uri}: give http://HOST:PORT, https://HOST:PORT, or the path of a file."
        )


def index_parameters(index: str) -> tuple[str, dict[str, int]]:
    """Milvus's index type and its parameters from "HNSW,M=16,efConstruction=200".

    Raises:
        RefusedRequest: a parameter that is no NAME=NUMBER.
    """
    kind, *rest = [part.strip() for part in index.split(",")]
    return kind, numbers_of(",".join(rest), f"--factory {index}")


def numbers_of(text: str, what: str) -> dict[str, int]:
    """Parameters from "ef=64,nprobe=8".

    Raises:
        RefusedRequest: a part that is no NAME=NUMBER.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not (equals and name and value.isdecimal()):
            raise RefusedRequest(f"{what}: {part!r} is no NAME=NUMBER, such as ef=64 or nprobe=16.")
        found[name] = int(value)
    return found


def stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as the JSON field holds it: what is known, and beside it what filters compare as numbers."""
    known = {
        name: normal_path(row[name]) if name in PATHS else row[name]
        for name in ("text", *PATHS, "start", "end")
        if row.get(name) is not None
    }
    seconds: dict[str, float] = {name: float(known[name]) for name in ("start", "end") if name in known}
    if any(name in known for name in PATHS):
        seconds.setdefault("start", 0.0)
    if "start" in seconds and "end" in seconds:
        seconds["duration"] = seconds["end"] - seconds["start"]
    groups = {str(name): str(value) for name, value in (row.get("groups") or {}).items() if value is not None}
    numbers = {name: as_number(value) for name, value in groups.items()}
    numbers = {name: number for name, number in numbers.items() if not math.isnan(number)}
    return {**known, "seconds": seconds, "groups": groups, "numbers": numbers}


def told(name: str, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Metadata as an index gives it."""
    known = metadata or {}
    plain = {column: known.get(column) for column in ("text", *PATHS, "start", "end")}
    return {"id": name, **plain, "groups": dict(known.get("groups") or {})}


def _hit(hit: Mapping[str, Any]) -> FoundRow:
    return hit["id"], hit["distance"], told(hit["id"], hit["entity"].get(METADATA))


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))


@contextmanager
def _in_words(collection: Collection) -> Iterator[None]:
    """Milvus's errors as ours."""
    from pymilvus.exceptions import ConnectionConfigException, MilvusException

    where = f"Milvus at {collection.uri}" if is_server(collection.uri) else f"Milvus file {collection.uri}"
    try:
        yield
    except ConnectionConfigException as error:
        raise RefusedRequest(
            f"{where} cannot be opened: {_first_line(error)} A file can be opened by one process at a time."
        ) from error
    except MilvusException as error:
        words = _first_line(error)
        if "connect" in words.lower() or "unavailable" in words.lower():
            raise RefusedRequest(
                f"{where} does not answer ({words}). Is it running, and is {TOKEN} set if it asks for one?"
            ) from error
        raise JobFailed(f"{where}, collection {collection.name}: {words}") from error


def _first_line(error: Exception) -> str:
    words = str(getattr(error, "message", "") or error)
    return words.strip().splitlines()[0] if words.strip() else type(error).__name__
