"""``ids.parquet``: what a result list shows of each item."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from vidvec_msg.formats.items import Item

SNIPPET = 200  # characters of an item's text that ids.parquet keeps, enough to recognise it in a result list

METADATA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "text", "video", "image", "audio")),
        *((name, pa.float64()) for name in ("start", "end")),
        ("groups", pa.string()),
    ]
)


def metadata_table(items: Iterable[Item]) -> pa.Table:
    """What a result list shows of each item: one row an item, in their order.

    Returns:
        columns ``id``, ``text`` (its first 200 characters), ``video``, ``image``, ``audio`` (paths),
        ``start``, ``end`` (seconds) and ``groups`` (JSON).
    """
    rows = [
        {
            "id": item.id,
            "text": _snippet(item),
            "video": _path(item.video),
            "image": _path(item.image),
            "audio": _path(item.audio),
            "start": item.start,
            "end": item.end,
            "groups": _groups(item),
        }
        for item in items
    ]
    return pa.Table.from_pylist(rows, schema=METADATA)


def _groups(item: Item) -> str:
    return json.dumps(dict(item.groups), ensure_ascii=False)


def _path(source: object) -> str | None:
    return str(source) if isinstance(source, Path) else None


def _snippet(item: Item) -> str | None:
    text = " ".join((item.full_text or item.transcript or "").split())
    if not text:
        return None
    return text if len(text) <= SNIPPET else text[: SNIPPET - 1] + "…"
