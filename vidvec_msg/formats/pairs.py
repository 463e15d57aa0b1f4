"""Training pairs: an anchor (the storyline, the video's stand-in) and its positive (the message).

Files of sentence-transformers (``anchor``, ``positive``, ``negative_1`` …) and of FlagEmbedding (``query``,
``pos``, ``neg``) load as they are; any other naming takes a column mapping.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Problems, RefusedRequest, did_you_mean
from vidvec_msg.extras import require

ROLES = ("anchor", "positive", "negatives", "group", "id")
"""What a column can be; every other column is provenance and is kept as it is."""

LAYOUTS: tuple[Mapping[str, str], ...] = (
    {"anchor": "anchor", "positive": "positive", "negatives": "negatives", "group": "group", "id": "id"},
    # FlagEmbedding: https://github.com/FlagOpen/FlagEmbedding, "Data format" of its fine-tuning examples
    {"anchor": "query", "positive": "pos", "negatives": "neg", "group": "group", "id": "id"},
)
"""Column names that are understood without a mapping, the first whose anchor and positive are there."""

SUFFIXES = (".jsonl", ".csv", ".parquet")

Row = tuple[str, Mapping[str, Any]]
"""Where the row stands ("line 3", for messages) and its columns."""

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_NUMBERED_NEGATIVE = re.compile(r"negative(_\d+)?")
_LOOKS_LIKE_TRAINING_TEXT = re.compile(r"(hard_)?neg(ative)?s?(_\d+)?|pos(itive)?s?(_\d+)?")


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of training data.

    Args:
        anchor: the storyline.
        positive: the message that belongs to it.
        negatives: texts that do not belong to the anchor, 0 to any number.
        group: rows of one group are never each other's negatives.
        id: name of the row, for messages.
        provenance: the other columns: persona, generator, prompt_sha, …
    """

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    group: str | None = None
    id: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


def read_pairs(source: str | Path, columns: Mapping[str, str] | None = None) -> list[Pair]:
    """Reads pairs from a file, or from a function that makes them.

    A row whose positive is a list (FlagEmbedding) gives one pair per entry; they share their anchor, so no
    loss of this package sets them against each other.

    Args:
        source: a ``.jsonl``, ``.csv`` or ``.parquet`` file, or ``module:function``: a function without
            arguments that yields rows (mappings), for example
            ``vidvec_msg.tinyworld.collections:training_pairs``.
        columns: name of the column per role (``anchor``, ``positive``, ``negatives``, ``group``, ``id``), for
            example ``{"anchor": "caption"}``. Roles left out keep their usual name. Negatives may also stand
            in ``negative``, ``negative_1``, ``negative_2`` …

    Raises:
        RefusedRequest: with every problem of the source in one message: no such file, unknown roles, missing
            columns, empty texts (with their rows), columns of negatives that nothing reads.
    """
    problems = Problems(f"pairs {source}")
    unknown = [role for role in columns or {} if role not in ROLES]
    for role in unknown:
        problems.add(
            f"columns: unknown role {role!r}{did_you_mean(role, ROLES)}; known roles: {', '.join(ROLES)}"
        )
    rows = list(rows_of(source, problems))
    if not rows and not problems.found:
        problems.add("it holds no row; at least one pair is needed")
    if not rows or unknown:
        problems.refuse_if_any()

    unreadable = len(problems.found)
    names = _names_of_columns(rows, columns or {}, problems)
    if len(problems.found) > unreadable:  # every row would be told to lack what no row has
        problems.refuse_if_any()
    pairs = [pair for row in rows for pair in _pairs_of_row(row, names, problems)]
    problems.refuse_if_any()
    return pairs


def rows_of(source: str | Path, problems: Problems) -> Iterator[Row]:
    """The rows of a source as they stand, each with its place; what cannot be read is noted as a problem.

    Raises:
        RefusedRequest: ``module:function`` that is not there.
    """
    if _FUNCTION.fullmatch(str(source)) and not Path(source).exists():
        yield from _rows_of_function(str(source))
        return
    path = Path(source)
    if not path.is_file():
        siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        problems.add(
            f"no such file{did_you_mean(path.name, siblings)}; "
            f"give a {', '.join(SUFFIXES)} file or module:function"
        )
    elif path.suffix in (".jsonl", ".csv"):
        try:
            yield from (_rows_of_jsonl if path.suffix == ".jsonl" else _rows_of_csv)(path, problems)
        except UnicodeDecodeError as error:
            problems.add(f"it is not UTF-8 ({error.reason} at byte {error.start}); convert it first")
    elif path.suffix == ".parquet":
        parquet = require("pyarrow.parquet", purpose="read Parquet pairs")
        for number, row in enumerate(parquet.read_table(path).to_pylist(), start=1):
            yield f"row {number}", row
    else:
        problems.add(
            f"unknown format {path.suffix or '(no suffix)'!r}; "
            f"accepted: {', '.join(SUFFIXES)}, or module:function"
        )


def _rows_of_csv(path: Path, problems: Problems) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        header = stream.readline()
        stream.seek(0)
        # spreadsheets of countries with a decimal comma write semicolons
        delimiter = ";" if ";" in header and "," not in header else ","
        for number, row in enumerate(csv.DictReader(stream, delimiter=delimiter), start=1):
            if None in row:  # an unquoted comma would cut the text there and shift the rest
                problems.add(f"row {number}: more cells than the header has; quote texts that hold a comma")
                continue
            yield f"row {number}", row


def _rows_of_jsonl(path: Path, problems: Problems) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                problems.add(f"line {number}: not JSON ({error})")
                continue
            if isinstance(row, dict):
                yield f"line {number}", row
            else:
                problems.add(
                    f"line {number}: holds a {type(row).__name__}; "
                    "each line is an object with anchor and positive"
                )


def _rows_of_function(source: str) -> Iterator[Row]:
    module, _, name = source.partition(":")
    try:
        function: Callable[[], Iterable[Mapping[str, Any]]] | None = getattr(
            import_module(module), name, None
        )
    except ModuleNotFoundError as error:
        raise RefusedRequest(f"pairs {source}: there is no module {error.name!r} to import") from error
    if not callable(function):
        raise RefusedRequest(f"pairs {source}: module {module} has no function {name!r} that yields rows")
    for number, row in enumerate(function(), start=1):
        yield f"row {number}", row


def _names_of_columns(rows: Sequence[Row], columns: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Column per role; problems for columns that are missing, or that hold texts nobody would read."""
    first = rows[0][1]
    fitting = [layout for layout in LAYOUTS if layout["anchor"] in first and layout["positive"] in first]
    names = {**(fitting or LAYOUTS)[0], **columns}
    for role in ("anchor", "positive", *(role for role in columns if role in ("negatives", "group", "id"))):
        if names[role] not in first:
            problems.add(
                f"no column {names[role]!r} for the {role}{did_you_mean(names[role], first)}; "
                f"it has: {', '.join(first)}. "
                f"Map it: --columns '{{{role}: NAME}}' (fit: --data.columns)"
            )
    used = set(names.values())
    filled = {name: None for _, cells in rows for name, cell in cells.items() if isinstance(cell, str | list)}
    for name in filled:  # in any row: the first one may have no negatives
        if name in used or _NUMBERED_NEGATIVE.fullmatch(name):
            continue
        if _LOOKS_LIKE_TRAINING_TEXT.fullmatch(name):
            problems.add(
                f"column {name!r} looks like training text but nothing reads it: map it or remove it"
            )
    return names


def _pairs_of_row(row: Row, names: Mapping[str, str], problems: Problems) -> Iterator[Pair]:
    where, cells = row
    anchor = _text(where, names["anchor"], cells.get(names["anchor"]), problems)
    positives = _texts(where, names["positive"], cells.get(names["positive"]), problems, required=True)
    numbered = sorted(
        (name for name in cells if _NUMBERED_NEGATIVE.fullmatch(name) and name != names["negatives"]),
        key=lambda name: int(name.partition("_")[2] or 0),
    )
    negatives = [
        text
        for name in (names["negatives"], *numbered)
        for text in _texts(where, name, cells.get(name), problems, required=False)
    ]
    used = {*names.values(), *numbered}
    group, identity = cells.get(names["group"]), cells.get(names["id"])
    for positive in positives:
        yield Pair(
            anchor=anchor,
            positive=positive,
            negatives=tuple(negatives),
            group=None if group in (None, "") else str(group),
            id=None if identity in (None, "") else str(identity),
            provenance={name: cell for name, cell in cells.items() if name not in used},
        )


def _text(where: str, column: str, cell: Any, problems: Problems) -> str:
    if isinstance(cell, str) and cell.strip():
        return cell
    given = "empty" if cell is None or isinstance(cell, str) else f"a {type(cell).__name__}"
    problems.add(f"{where}: {column} is {given}; a text is needed")
    return ""


def _texts(where: str, column: str, cell: Any, problems: Problems, *, required: bool) -> list[str]:
    """The texts of a cell: a text, a list of texts, or (CSV) a list in JSON."""
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        with suppress(ValueError):  # a text that happens to begin with a bracket stays one
            cell = json.loads(cell)
    if isinstance(cell, Sequence) and not isinstance(cell, str):
        if required and not cell:
            problems.add(f"{where}: {column} is an empty list; at least one text is needed")
        return [_text(where, f"{column}[{i}]", entry, problems) for i, entry in enumerate(cell)]
    if not required and (cell is None or cell == ""):
        return []
    return [_text(where, column, cell, problems)]
