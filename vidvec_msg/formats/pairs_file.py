"""Pairs, written: a file that :func:`vidvec_msg.formats.pairs.read_pairs` reads back as it was."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.formats.pairs import ROLES, SUFFIXES, Pair
from vidvec_msg.runs import replacing, write_text


def write_pairs(path: Path, pairs: Iterable[Pair]) -> Path:
    """Writes pairs in one step: a reader sees the old file or the new one.

    The columns are ``id``, ``anchor``, ``positive``, ``negatives`` (a list; in CSV as JSON), ``group``, and
    those of the provenance.

    Args:
        path: ``.jsonl``, ``.csv`` or ``.parquet``.
        pairs: any number; their provenance is JSON-like.

    Returns:
        ``path``.

    Raises:
        RefusedRequest: another suffix, a provenance column of the name of a role, or (Parquet) a column of
            values of several kinds.
    """
    rows = [as_row(pair) for pair in pairs]
    if path.suffix == ".jsonl":
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
        write_text(path, "".join(lines))
    elif path.suffix == ".csv":
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=_columns(rows), restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    elif path.suffix == ".parquet":
        table = as_table(rows)
        with replacing(path) as temporary:
            require("pyarrow.parquet", purpose="write Parquet pairs").write_table(table, temporary)
    else:
        raise RefusedRequest(
            f"unknown format {path.suffix or '(no suffix)'!r} of {path}; accepted: {', '.join(SUFFIXES)}"
        )
    return path


def as_row(pair: Pair) -> dict[str, Any]:
    """A pair as a row of a file.

    Raises:
        RefusedRequest: a provenance column has the name of a role.
    """
    if taken := [name for name in pair.provenance if name in ROLES]:
        raise RefusedRequest(
            f"column {taken[0]!r} is not read as what its name says, and would be when the pairs are written "
            "with their usual names; rename it first"
        )
    return {
        "id": pair.id,
        "anchor": pair.anchor,
        "positive": pair.positive,
        "negatives": list(pair.negatives),
        "group": pair.group,
        **pair.provenance,
    }


def as_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as an Arrow table; columns that a row lacks are empty there.

    Raises:
        RefusedRequest: a column holds values of several kinds, which Parquet cannot.
    """
    arrow = require("pyarrow", purpose="write Parquet pairs")
    columns = {}
    for name in _columns(rows):
        try:
            columns[name] = arrow.array([row.get(name) for row in rows])
        except (arrow.ArrowException, TypeError, OverflowError) as error:
            raise RefusedRequest(
                f"column {name!r} holds values of several kinds, which Parquet cannot store ({error}); "
                "give a .jsonl file"
            ) from error
    return arrow.table(columns)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of all columns, in the order in which they come up."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
