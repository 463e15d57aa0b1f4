"""TREC's run and qrels files, as trec_eval, pytrec_eval and ranx read them.

A run line is ``query Q0 document rank score tag`` and a qrels line ``query 0 document grade``, separated by
spaces. An id with white space in it would split into more columns, so ids are percent-encoded on the way
out (a space becomes ``%20``, a percent sign ``%25``) and decoded on the way in. Ids without either stay as
they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.runs import replacing

Run = dict[str, dict[str, float]]
"""Query id → document id → score; documents in the order of their ranks."""

Number = TypeVar("Number", int, float)

_ENCODED = re.compile(r"[%\s]")


def trec_id(identity: str) -> str:
    """An id as it stands in a TREC file: white space and percent signs percent-encoded."""
    return _ENCODED.sub(lambda match: quote(match[0], safe=""), identity)


def plain_id(written: str) -> str:
    """The id that :func:`trec_id` wrote."""
    return unquote(written) if "%" in written else written


WriteQuery = Callable[[str, Iterable[str], Iterable[float]], None]


@contextmanager
def run_writer(path: Path, *, tag: str) -> Iterator[WriteQuery]:
    """A run file that grows query by query and takes its place when the block ends well.

    Args:
        path: the file.
        tag: name of the run, the last column.

    Yields:
        ``write(query, documents, scores)`` with the documents best first. Scores are written with nine
        digits, so a float32 comes back bit for bit and equal scores stay equal.

    Raises:
        RefusedRequest: scores that rise down the list; a reader sorts by score and would see another order.
    """
    tag = trec_id(tag) or "run"
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:

        def write(query: str, documents: Iterable[str], scores: Iterable[float]) -> None:
            lines = []
            last = float("inf")
            name = trec_id(query)
            for rank, (document, score) in enumerate(zip(documents, scores, strict=True), start=1):
                if not score <= last:  # also catches NaN
                    raise RefusedRequest(
                        f"run {path.name}: query {query!r} has the score {score!r} at rank {rank}, "
                        f"after {last!r}; give documents best first, with finite scores."
                    )
                last = score
                lines.append(f"{name} Q0 {trec_id(document)} {rank} {score:.9g} {tag}\n")
            stream.writelines(lines)

        yield write


def write_run(path: Path, run: Mapping[str, Mapping[str, float]], *, tag: str = "vidvec-msg") -> None:
    """Writes a run file in one step; each query's documents are given best first."""
    with run_writer(path, tag=tag) as write:
        for query, scored in run.items():
            write(query, scored.keys(), scored.values())


def read_run(path: Path) -> Run:
    """Reads a run file; documents keep the order of the lines.

    Raises:
        RefusedRequest: the file is missing or has faulty lines, all named.
    """
    return _read(path, "run", form="query Q0 document rank score tag", column=4, number=_finite)


def write_trec_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Writes a TREC qrels file in one step."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for query, judged in qrels.items():
            name = trec_id(query)
            stream.writelines(f"{name} 0 {trec_id(document)} {grade}\n" for document, grade in judged.items())


def read_trec_qrels(path: Path) -> Qrels:
    """Reads a TREC qrels file.

    Raises:
        RefusedRequest: the file is missing or has faulty lines, all named.
    """
    return _read(path, "qrels", form="query 0 document grade", column=3, number=int)


def _read(
    path: Path, what: str, *, form: str, column: int, number: Callable[[str], Number]
) -> dict[str, dict[str, Number]]:
    """Query id → document id → the number in a column."""
    found: dict[str, dict[str, Number]] = {}
    problems = Problems(f"{what} {path}")
    names = form.split()
    for where, cells in _lines(path, problems, columns=len(names), form=form):
        query, document, cell = plain_id(cells[0]), plain_id(cells[2]), cells[column]
        try:
            value = number(cell)
        except ValueError:
            kind = "an integer" if number is int else "a finite number"
            problems.add(f"{where}: the {names[column]} is {cell!r}; it must be {kind}")
            continue
        if document in found.setdefault(query, {}):
            problems.add(f"{where}: query {query!r} has document {document!r} already; keep one line")
        found[query][document] = value
    problems.refuse_if_any()
    return found


def _finite(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(cell)
    return value


def _lines(path: Path, problems: Problems, *, columns: int, form: str) -> Iterator[tuple[str, list[str]]]:
    if not path.is_file():
        problems.add(f"the file is missing; its lines are: {form}")
        return
    with path.open(encoding="utf-8-sig", newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
            cells = line.split()
            if not cells:
                continue
            where = f"{path.name}:{number}"
            if len(cells) != columns:
                problems.add(f"{where}: {len(cells)} columns; a line is: {form}")
                continue
            yield where, cells
