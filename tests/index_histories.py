"""Indexes that change: vectors whose products are exact, histories of changes, and what there should be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.retrieval.indexes.add import add_vectors
from vidvec_msg.retrieval.indexes.build import build_index
from vidvec_msg.retrieval.indexes.compact import index_compact
from vidvec_msg.retrieval.indexes.delete import delete_items
from vidvec_msg.retrieval.indexes.vector_index import VectorIndex
from vidvec_msg.runs import file_digest, write_json

DIM = 16
CARD = EmbedderCard(name="table", dim=DIM, weights="table")

# id → version: everything that an index holds; an item's vector follows from the two
State = dict[str, int]


def signs(count: int, seed: int = 0, dim: int = DIM) -> Vectors:
    """Vectors of norm 1 whose products are exact in any order of summation, and often tie."""
    signed = np.random.default_rng(seed).integers(0, 2, (count, dim)) * 2 - 1
    return (signed / np.sqrt(dim)).astype(np.float32)


@cache
def vector_of(name: str, version: int) -> Vectors:
    """(DIM,), of :func:`signs`."""
    return signs(1, seed=hash((int(name[1:]), version)) % 2**32)[0]


def rows_of(state: Mapping[str, int]) -> Vectors:
    return np.array([vector_of(*item) for item in state.items()], np.float32).reshape(-1, DIM)


def vectors_folder(
    out: Path,
    rows: Vectors,
    ids: Sequence[str],
    *,
    card: EmbedderCard | None = None,
    role: str | None = "document",
    shard_size: int = 7,
    columns: Mapping[str, Sequence[object]] | None = None,
) -> Path:
    """A vectors folder as another tool would write it; no model and no torch."""
    out.mkdir(parents=True)
    shards = []
    for first in range(0, len(rows), shard_size):
        shards.append({"file": f"shard-{len(shards):05d}.npy", "rows": len(rows[first : first + shard_size])})
        np.save(out / str(shards[-1]["file"]), rows[first : first + shard_size])
    topics = [json.dumps({"topic": "even" if place % 2 == 0 else "odd"}) for place in range(len(ids))]
    known = {"id": ids, "text": [f"text of {name}" for name in ids], "groups": topics}
    pq.write_table(pa.table(known if columns is None else {"id": ids, **columns}), out / "ids.parquet")
    card = card or EmbedderCard(name="table", dim=rows.shape[1], weights="table")
    manifest = {
        "card": card.to_dict(),
        "count": len(rows),
        "dim": rows.shape[1],
        "shards": shards,
        "role": role,
    }
    write_json(out / "manifest.json", manifest)  # whole or not at all: tests kill whoever writes it
    return out


def folder_of_state(out: Path, state: Mapping[str, int]) -> Path:
    return vectors_folder(out, rows_of(state), list(state))


def best(queries: Vectors, rows: Vectors, ids: Sequence[str], k: int) -> list[list[tuple[float, str]]]:
    """Scores and ids by a matrix product, ties by id descending."""
    return [sorted(zip(row.tolist(), ids, strict=True), reverse=True)[:k] for row in queries @ rows.T]


def found(opened: VectorIndex, queries: Vectors, k: int, **options: object) -> list[list[tuple[float, str]]]:
    scores, ids = opened.search(queries, k, **options)  # type: ignore[arg-type]
    return [list(zip(row.tolist(), names, strict=False)) for row, names in zip(scores, ids, strict=True)]


def holds(index: Path, state: Mapping[str, int], *, mmap: bool = False) -> None:
    """Asserts that an index of exact search holds a state, and nothing else."""
    opened = VectorIndex.open(index, mmap=mmap)
    assert len(opened) == len(state)
    queries = signs(3, seed=99)
    for k in (1, 4, 1000):
        expected = best(queries, rows_of(state), list(state), k)
        assert found(opened, queries, k) == expected
    for name in list(state)[::5]:
        assert (opened.vector(name) == vector_of(name, state[name])).all()
        assert opened.metadata(name)["text"] == f"text of {name}"


def as_of_an_earlier_version(index: Path) -> Path:
    """The same index with the checksums that earlier versions wrote: SHA-256, without a name."""
    manifest = json.loads((index / "index.json").read_text())
    manifest["checksums"] = {name: file_digest(index / name) for name in manifest["checksums"]}
    (index / "index.json").write_text(json.dumps(manifest))
    return index


def beginning(folder: Path, *, factory: str = "Flat") -> State:
    """An index of 20 items in ``folder/index``."""
    state = {f"d{number}": 0 for number in range(20)}
    build_index(folder_of_state(folder / "first", state), folder / "index", factory=factory)
    return state


def next_state(state: State, step: int) -> State:
    """What change number ``step`` makes of a state: additions, replacements, deletions, nothing."""
    random = np.random.default_rng(step)
    kind, names = step % 4, sorted(state, key=lambda name: int(name[1:]))
    if kind == 0:
        return {**state, **{f"d{1000 + 4 * step + more}": 0 for more in range(4)}}
    if kind == 1:
        chosen = random.choice(names, 3, replace=False).tolist()
        return {**state, **{str(name): step for name in chosen}, f"d{1000 + 4 * step}": 0}
    if kind == 2:
        gone = set(random.choice(names, 4, replace=False).tolist())
        return {name: version for name, version in state.items() if name not in gone}
    return dict(state)


def carry_out(folder: Path, state: State, step: int) -> State:
    """Makes that change of ``folder/index``."""
    after, index = next_state(state, step), folder / "index"
    changed = {name: version for name, version in after.items() if state.get(name) != version}
    vectors = folder / f"vectors-{step}"
    if step % 4 == 2:
        delete_items(index, [name for name in state if name not in after])
    elif step % 4 == 3:
        index_compact(index)
    else:
        if not (vectors / "manifest.json").exists():  # a killed run may have left a part
            shutil.rmtree(vectors, ignore_errors=True)
            folder_of_state(vectors, changed)
        add_vectors(index, vectors, existing="replace")
    return after
