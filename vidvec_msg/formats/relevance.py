"""Which documents are right for which query, and how much: the qrels of a split.

A qrels file is BEIR's: tab-separated, with the header ``query-id  corpus-id  score`` and one judgement a
line. Relevance is a many-to-many map of its own, so ids stay unique on each side however many clips share
a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from vidvec_msg.errors import Problems
from vidvec_msg.runs import replacing

Qrels = dict[str, dict[str, int]]
"""Query id → document id → grade. A grade above 0 is relevant; 0 and below is judged and not relevant."""

HEADER = ("query-id", "corpus-id", "score")


class Judgement(NamedTuple):
    """One line of a qrels file."""

    line: int
    query: str
    document: str
    grade: int


def read_qrels(path: Path) -> Qrels:
    """Reads a qrels file (BEIR's TSV; a byte-order mark is tolerated).

    Raises:
        RefusedRequest: every problem of the file in one message.
    """
    problems = Problems(f"qrels {path}")
    qrels = gather(scan_qrels(path, problems), path, problems)
    problems.refuse_if_any()
    return qrels


def write_qrels(path: Path, qrels: Mapping[str, Mapping[str, int]]) -> None:
    """Writes a qrels file in one step, in the map's own order."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("\t".join(HEADER) + "\n")
        for query, judged in qrels.items():
            stream.writelines(f"{query}\t{document}\t{grade}\n" for document, grade in judged.items())


def reverse(qrels: Mapping[str, Mapping[str, int]]) -> Qrels:
    """The same judgements read from the documents: document id → query id → grade.

    Reversing twice gives the same judgements (queries without any are lost). Pool and counts differ from
    the forward ones, so numbers of the two directions are never averaged.
    """
    backwards: Qrels = {}
    for query, judged in qrels.items():
        for document, grade in judged.items():
            backwards.setdefault(document, {})[query] = grade
    return backwards


def positives(qrels: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Only the relevant judgements (grade above 0), and only the queries that have one."""
    kept = {query: {d: grade for d, grade in judged.items() if grade > 0} for query, judged in qrels.items()}
    return {query: judged for query, judged in kept.items() if judged}


def scan_qrels(path: Path, problems: Problems) -> Iterator[Judgement]:
    """The judgements of a file with their line numbers; a faulty line goes to ``problems`` instead."""
    if not path.is_file():
        problems.add(f"{path} is missing; it is a TSV with the header {' '.join(HEADER)}")
        return
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            where = f"{path.name}:{number}"
            try:
                row = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                problems.add(f"{where}: not UTF-8 ({error.reason})")
                continue
            cells = row.split("\t")
            if number == 1:
                if tuple(cells) != HEADER:
                    problems.add(f"{where}: the header is {row!r}; it must be {'<tab>'.join(HEADER)}")
                    return  # the meaning of every other line is in doubt
            elif row.strip():
                judgement = _judgement(cells, number, where, problems)
                if judgement is not None:
                    yield judgement


def gather(judgements: Iterator[Judgement], path: Path, problems: Problems) -> Qrels:
    """Judgements as a map; a pair judged twice must have been judged alike."""
    qrels: Qrels = {}
    for line, query, document, grade in judgements:
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, grade) != grade:
            problems.add(
                f"{path.name}:{line}: query {query!r} and document {document!r} have the score {grade} here "
                f"and {judged[document]} above; keep one line"
            )
    return qrels


def _judgement(cells: list[str], number: int, where: str, problems: Problems) -> Judgement | None:
    if len(cells) != len(HEADER):
        problems.add(
            f"{where}: {len(cells)} columns; a line has three, separated by tabs: {' '.join(HEADER)}"
        )
        return None
    query, document, score = cells
    grade = _grade(score)
    if grade is None:
        problems.add(f"{where}: the score is {score!r}; it must be an integer (0 means not relevant)")
        return None
    if not query or not document:
        problems.add(f"{where}: an id is empty")
        return None
    return Judgement(number, query, document, grade)


def _grade(score: str) -> int | None:
    """An integer, also written as 1.0; None for 0.9, which other tools silently round to 0."""
    try:
        return int(score)
    except ValueError:
        pass
    try:
        value = float(score)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None
