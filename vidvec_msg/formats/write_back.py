"""Fields written back into a collection: what was computed once becomes part of its rows."""

from __future__ import annotations

import codecs
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vidvec_msg.formats.collections import Side
from vidvec_msg.runs import replacing

_FILES = ("video", "image", "audio")


def side_rows(folder: Path | str, side: Side) -> Iterator[dict[str, Any]]:
    """The rows of one side as they stand in the file, fields that are not read into items included.

    Args:
        folder: a collection that :func:`vidvec_msg.formats.collections.load_side` has checked.
        side: which file.
    """
    for raw in _lines(Path(folder) / f"{side}.jsonl"):
        if raw.strip():
            yield json.loads(raw)


def write_fields(
    folder: Path | str,
    side: Side,
    fields: Mapping[str, Mapping[str, Any]],
    *,
    out: Path | str | None = None,
) -> Path:
    """Writes fields into rows of one side; all else in the rows stays as it is.

    Rows without new fields keep their bytes. The file takes its place when it is whole: a reader sees the old
    one or the new one.

    Args:
        folder: a collection that has been checked.
        side: which file.
        fields: id → names and values, which go before those of the row.
        out: folder for a copy with these fields: both sides and the judgements, with relative media paths
            rewritten so that they lead to the same files. None changes ``folder`` itself.

    Returns:
        the folder that was written.
    """
    root = Path(folder).resolve()
    target = root if out is None else Path(out).resolve()
    if target != root:
        for path in sorted((root / "qrels").glob("*.tsv")):
            with replacing(target / "qrels" / path.name) as temporary:
                shutil.copyfile(path, temporary)
        other: Side = "queries" if side == "corpus" else "corpus"
        if (root / f"{other}.jsonl").is_file():
            _rewrite(root, target, other, {})
    _rewrite(root, target, side, fields)
    return target


def _rewrite(root: Path, target: Path, side: Side, fields: Mapping[str, Mapping[str, Any]]) -> None:
    with replacing(target / f"{side}.jsonl") as temporary, temporary.open("wb") as stream:
        for raw in _lines(root / f"{side}.jsonl"):
            stream.write(_rewritten(raw, root, target, fields))


def _rewritten(raw: bytes, root: Path, target: Path, fields: Mapping[str, Mapping[str, Any]]) -> bytes:
    """A row's line with its new fields; the line itself where there are none."""
    if not raw.strip():
        return raw
    row = json.loads(raw)
    new = dict(fields.get(str(row["_id"]), {}))
    if target != root:
        for name in _FILES:
            value = row.get(name)
            if value is not None and not Path(value).is_absolute():
                new[name] = os.path.relpath(root / value, target)
    if not new:
        return raw
    try:
        return (json.dumps({**row, **new}, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold and UTF-8 cannot
        return (json.dumps({**row, **new}) + "\n").encode()


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        for number, raw in enumerate(stream):
            yield raw.removeprefix(codecs.BOM_UTF8) if number == 0 else raw
