"""A table as a source: JSON lines, CSV, Parquet, or a data set that Hugging Face's library saved."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.extras import require
from vidvec_msg.media.facts import Medium
from vidvec_msg.retrieval.collect.candidates import MEDIA, Candidate, LeftOut, clean_id

SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")

ROLES = ("id", "text", "title", "video", "image", "audio", "start", "end", "transcript", "ocr")
"""What a column can be; it has that name, unless --columns maps another one."""

CONTENT = ("text", "title", "video", "image", "audio", "transcript", "ocr")
_ROWS_AT_ONCE = 1024
_URL = re.compile(r"[a-z][a-z0-9+.-]+://")

Row = Mapping[str, Any]


def read_table(
    source: Path,
    *,
    columns: Mapping[str, str],
    groups: Sequence[str] = (),
    queries: str | None = None,
    media_root: Path | None = None,
    split: str | None = None,
) -> Iterator[Candidate | LeftOut]:
    """The rows of a table.

    Rows of one id are one row that several texts ask for, if nothing else in them differs (captions of a
    clip, one a row).

    Args:
        source: the file, or the folder of ``datasets.save_to_disk``; absolute.
        columns: name of the column per role; a role left out has the column of its own name, id also "_id".
        groups: columns that become groups.
        queries: column of texts that ask for the row, each a string or a list of strings.
        media_root: folder that relative paths of media start from; the file's own by default.
        split: of a data set with several.

    Raises:
        RefusedRequest: no such column; the message names those that there are.
    """
    rows = rows_of(source, split)
    first = next(rows, None)
    if first is None:
        raise RefusedRequest(f"source {source}: it holds no row")
    names = _names(source, first, columns, groups, queries)
    root = media_root or (source if source.is_dir() else source.parent)
    number = 0
    row: Row | None = first
    while row is not None:
        number += 1
        yield _candidate(row, f"{source.name}, row {number}", number, names, groups, queries, root)
        row = next(rows, None)


def _names(
    source: Path, first: Row, columns: Mapping[str, str], groups: Sequence[str], queries: str | None
) -> dict[str, str]:
    """Column per role that the table has."""
    unknown = [role for role in columns if role not in ROLES]
    if unknown:
        raise RefusedRequest(
            f"--columns: unknown role {unknown[0]!r}{did_you_mean(unknown[0], ROLES)}; "
            f"known roles: {', '.join(ROLES)}"
        )
    for name in (*columns.values(), *groups, *([queries] if queries else [])):
        if name not in first:
            raise RefusedRequest(
                f"source {source}: no column {name!r}{did_you_mean(name, first)}; it has: {', '.join(first)}"
            )
    names = {role: role for role in ROLES if role in first} | dict(columns)
    if "id" not in names and "_id" in first:
        names["id"] = "_id"
    if not any(role in names for role in CONTENT):
        raise RefusedRequest(
            f"source {source}: none of its columns is content ({', '.join(CONTENT)}); it has: "
            f"{', '.join(first)}. Say which is: --columns '{{video: NAME}}'"
        )
    return names


def _candidate(
    row: Row,
    where: str,
    number: int,
    names: Mapping[str, str],
    groups: Sequence[str],
    queries: str | None,
    root: Path,
) -> Candidate | LeftOut:
    cells = {role: _cell(row.get(name)) for role, name in names.items()}
    identity = cells.pop("id", None)
    found = Candidate(id=clean_id(str(number if identity is None else identity)), where=where)
    unpack: dict[Medium, tuple[str, bytes]] = {}
    for medium in MEDIA:
        cell = cells.pop(medium, None)
        if isinstance(cell, Mapping) and cell.get("bytes"):
            unpack[medium] = (Path(str(cell.get("path") or "")).suffix, bytes(cell["bytes"]))
            continue
        path = cell.get("path") if isinstance(cell, Mapping) else cell
        if path in (None, ""):
            continue
        if not isinstance(path, str):
            return LeftOut(where, f"{medium} is a {type(path).__name__}; it must be a path", broken=True)
        if _URL.match(path):
            return LeftOut(where, f"{medium} is an address ({path}); download it first", broken=True)
        found.media[medium] = Path(root, path)
    found.unpack = unpack
    for role in ("start", "end"):
        cell = cells.get(role)
        if isinstance(cell, str):
            try:
                cells[role] = float(cell)
            except ValueError:
                return LeftOut(where, f"{role} is {cell!r}; it must be seconds", broken=True)
    found.fields = {role: cell for role, cell in cells.items() if cell not in (None, "")}
    bad = [role for role, cell in found.fields.items() if role not in ("start", "end", *MEDIA)
           and not isinstance(cell, str)]  # fmt: skip
    if bad:
        kind = type(found.fields[bad[0]]).__name__
        return LeftOut(where, f"{bad[0]} is a {kind}; it must be text", broken=True)
    found.groups = {name: str(cell) for name in groups if (cell := _cell(row.get(name))) not in (None, "")}
    if queries is not None:
        asked = _cell(row.get(queries))
        found.asked = [str(text) for text in (asked if isinstance(asked, list) else [asked]) if text]
    if not (found.media or found.unpack or any(role in found.fields for role in CONTENT)):
        return LeftOut(where, "nothing in it", broken=True)
    return found


def _cell(value: Any) -> Any:
    """A cell as JSON has it: no NaN, no arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


# --- the files ------------------------------------------------------------------------------------------


def is_dataset(folder: Path) -> bool:
    """Whether a folder is what ``datasets.save_to_disk`` writes."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def rows_of(source: Path, split: str | None = None) -> Iterator[Row]:
    """The rows of a table as they are.

    Args:
        source: a file with one of :data:`SUFFIXES`, or the folder of ``datasets.save_to_disk``.
        split: of a data set with several.

    Raises:
        RefusedRequest: it cannot be read; the message holds the line.
    """
    if source.is_dir():
        return _rows_of_dataset(source, split)
    if split is not None:
        raise RefusedRequest(f"--split {split!r} chooses a part of a data set on disk; {source} is a file")
    suffix = source.suffix.lower()
    if suffix == ".jsonl":
        return _rows_of_jsonl(source)
    if suffix in (".csv", ".tsv"):
        return _rows_of_csv(source, "\t" if suffix == ".tsv" else ",")
    return _rows_of_parquet(source)


def _rows_of_jsonl(source: Path) -> Iterator[Row]:
    with source.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RefusedRequest(f"source {source}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise RefusedRequest(
                    f"source {source}, line {number}: holds a {type(row).__name__}, not an object"
                )
            yield row


def _rows_of_csv(source: Path, delimiter: str) -> Iterator[Row]:
    with source.open(encoding="utf-8-sig", newline="") as stream:
        for number, row in enumerate(csv.DictReader(stream, delimiter=delimiter), start=1):
            if None in row:
                raise RefusedRequest(
                    f"source {source}, row {number}: more cells than the header has; quote texts that hold "
                    f"a {delimiter!r}"
                )
            yield row


def _rows_of_parquet(source: Path) -> Iterator[Row]:
    parquet = require("pyarrow.parquet", purpose="read Parquet")
    try:
        file = parquet.ParquetFile(source)
    except Exception as error:  # pyarrow raises its own kinds
        raise RefusedRequest(f"source {source}: it is not Parquet ({error})") from error
    with file:
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
            yield from batch.to_pylist()


def _rows_of_dataset(folder: Path, split: str | None) -> Iterator[Row]:
    datasets = require("datasets", purpose="read a Hugging Face data set")
    found = datasets.load_from_disk(str(folder))
    if isinstance(found, datasets.DatasetDict):
        if split is None and len(found) > 1:
            raise RefusedRequest(f"source {folder} has the splits {', '.join(found)}; choose: --split NAME")
        name = split or next(iter(found))
        if name not in found:
            raise RefusedRequest(
                f"source {folder} has no split {name!r}{did_you_mean(name, found)}; "
                f"it has: {', '.join(found)}"
            )
        found = found[name]
    for column, feature in found.features.items():
        if hasattr(feature, "decode"):  # Image, Video, Audio: the files themselves, not what is in them
            found = found.cast_column(column, type(feature)(decode=False))
    yield from found
