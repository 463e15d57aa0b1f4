"""The table of every query, ``per_query.parquet``: where each positive came out, and what came out first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.formats.relevance import Qrels, reverse
from vidvec_msg.retrieval.evaluation.directions import Direction, Evaluation
from vidvec_msg.retrieval.evaluation.ranking import best_first
from vidvec_msg.runs import replacing

FILE = "per_query.parquet"
GROUP = "group:"  # begins the name of a column of groups
TOP = 10  # candidates listed

Groups = Mapping[str, Mapping[str, str]]


def write_per_query(
    path: Path, evaluation: Evaluation, qrels: Qrels, groups: tuple[Groups, Groups] = ({}, {})
) -> None:
    """Writes one row per direction and query.

    Columns: ``direction``, ``query``, ``positives`` (a count), ``best_rank`` (null if no positive is among
    the candidates), ``tied``; ``gold_ids``, ``gold_ranks`` (null: not a candidate) and ``gold_scores`` of
    every positive, best grade first; ``top_ids`` and ``top_scores`` of the first 10 candidates; ``gap``, the
    score of the best positive less that of the best wrong candidate (above 0 where rank 1 is right); a column
    ``group:KEY`` per group; and a column per metric.

    Args:
        path: the file.
        evaluation: both directions.
        qrels: judgements of the split, in the forward sense.
        groups: query → group → value, forward and reverse.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = sorted({key for side in groups for one in side.values() for key in one})
    tables = [
        _table("forward", evaluation.forward, qrels, groups[0], keys),
        _table("reverse", evaluation.reverse, reverse(qrels), groups[1], keys),
    ]
    with replacing(path) as temporary:
        pq.write_table(pa.concat_tables(tables), temporary)


def _table(name: str, direction: Direction, qrels: Qrels, groups: Groups, keys: list[str]) -> Any:
    import pyarrow as pa

    gold, best = direction.gold, direction.gold.best
    ends = pa.array(gold.starts, pa.int32())
    candidates = np.asarray(direction.candidate_ids, dtype=object)
    listed = direction.top[:, :TOP]
    real = np.isfinite(direction.top_scores[:, :TOP])  # -inf: the query itself, excluded
    tops = pa.array(np.concatenate([np.zeros(1, np.int64), real.sum(axis=1).cumsum()]), pa.int32())
    gold_ids = [document for query in direction.query_ids for document, _ in best_first(qrels[query])]
    columns: dict[str, Any] = {
        "direction": pa.array([name] * len(best), pa.string()),
        "query": pa.array(direction.query_ids, pa.string()),
        "positives": pa.array(gold.counts, pa.int64()),
        "best_rank": pa.array(best, pa.int64(), mask=best == 0),
        "tied": pa.array(gold.tied, pa.bool_()),
        "gold_ids": pa.ListArray.from_arrays(ends, pa.array(gold_ids, pa.string())),
        "gold_ranks": pa.ListArray.from_arrays(
            ends, pa.array(gold.ranks, pa.int64(), mask=np.asarray(gold.ranks == 0))
        ),
        "top_ids": pa.ListArray.from_arrays(tops, pa.array(candidates[listed[real]].tolist(), pa.string())),
        "top_scores": pa.ListArray.from_arrays(
            tops, pa.array(direction.top_scores[:, :TOP][real], pa.float32())
        ),
    }
    if direction.details is not None:
        scores, gaps = direction.details.gold_scores, direction.details.gaps(gold)
        columns["gold_scores"] = pa.ListArray.from_arrays(
            ends, pa.array(scores, pa.float32(), mask=~np.isfinite(scores))
        )
        columns["gap"] = pa.array(gaps, pa.float32(), mask=np.isnan(gaps))
    for key in keys:
        values = [groups.get(query, {}).get(key) for query in direction.query_ids]
        columns[f"{GROUP}{key}"] = pa.array(values, pa.string())
    columns |= {metric: pa.array(values, pa.float64()) for metric, values in direction.per_query.items()}
    return pa.table(columns)
