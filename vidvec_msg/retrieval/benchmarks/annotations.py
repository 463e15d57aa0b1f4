"""Files of annotations: found, read, and refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest, did_you_mean
from vidvec_msg.retrieval.collect.tables import SUFFIXES, rows_of

Row = Mapping[str, Any]


def find(folder: Path, *names: str) -> Path:
    """The first of several files that is there; in the folder, or one folder below it.

    Raises:
        RefusedRequest: none is there.
    """
    found = optional(folder, *names)
    if found is None:
        raise RefusedRequest(
            f"--source {folder} holds no {' and no '.join(names)}, also not one folder below"
        )
    return found


def optional(folder: Path, *names: str) -> Path | None:
    """As :func:`find`; None if none is there."""
    for name in names:
        for place in (folder / name, *sorted(folder.glob(f"*/{name}"))):
            if place.is_file():
                return place
    return None


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        RefusedRequest: it is no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise RefusedRequest(f"{path} is not JSON ({error})") from error


def read_list(path: Path) -> list[str]:
    """The lines of a list of ids, without blank ones."""
    return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]


def read_rows(path: Path) -> list[Row]:
    """The rows of a table: .csv, .tsv, .jsonl, .parquet, or a .json that is a list of objects.

    Raises:
        RefusedRequest: it cannot be read, or holds no row.
    """
    if path.suffix == ".json":
        rows = read_json(path)
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise RefusedRequest(f"{path} is not a list of objects")
    else:
        rows = list(rows_of(path))
    if not rows:
        raise RefusedRequest(f"{path} holds no row")
    return rows


def table_names(stem: str) -> tuple[str, ...]:
    """What a table of that name may be called."""
    return tuple(f"{stem}{suffix}" for suffix in (*SUFFIXES, ".json"))


def require_columns(path: Path, rows: Sequence[Row], names: Iterable[str]) -> None:
    """Refuses a table without the columns that its reader needs, all of them in one message.

    Raises:
        RefusedRequest: a column is missing.
    """
    have = list(dict.fromkeys(key for row in rows for key in row))
    missing = [f"{name!r}{did_you_mean(name, have)}" for name in names if name not in have]
    if missing:
        raise RefusedRequest(f"{path} has no column {', '.join(missing)}; it has: {', '.join(have)}")


def entry(one: Any, name: str, path: Path) -> str:
    """A field that every object of a published JSON file has, as text.

    Raises:
        RefusedRequest: this one has not.
    """
    if not isinstance(one, Mapping) or one.get(name) is None:
        raise RefusedRequest(f"{path} has an entry without {name!r}: {str(one)[:80]}")
    return str(one[name]).strip()


def cell(row: Row, name: str) -> str:
    """A cell as stripped text; empty if there is none."""
    value = row.get(name)
    return "" if value is None else str(value).strip()


def number(row: Row, name: str, path: Path) -> float | None:
    """A cell as a number of seconds; None if it is empty.

    Raises:
        RefusedRequest: it is no number.
    """
    text = cell(row, name)
    try:
        return float(text) if text else None
    except ValueError:
        raise RefusedRequest(f"{path}: {name} is {text!r}; it must be a number of seconds") from None


def parts_of(row: Row, name: str) -> list[str]:
    """A cell that holds a list: a list as it is, or JSON, or text with ``|`` between its parts."""
    value = row.get(name)
    if isinstance(value, list | tuple):
        return [str(part).strip() for part in value if str(part).strip()]
    text = cell(row, name)
    if text.startswith("["):
        try:
            return [str(part).strip() for part in json.loads(text) if str(part).strip()]
        except ValueError:
            pass  # a text that begins with a bracket
    return [part.strip() for part in text.split("|") if part.strip()]


def groups_of(row: Row, names: Iterable[str]) -> dict[str, str]:
    """The cells of a row that become groups, without empty ones."""
    return {name: cell(row, name) for name in names if cell(row, name)}
