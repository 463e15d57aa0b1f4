"""A file of queries, checked as a whole before anything slow; it stays where it is, texts become rows."""

from __future__ import annotations

import codecs
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.errors import Failure, Problems
from vidvec_msg.formats.collections import missing_media
from vidvec_msg.formats.item_file import ItemFile
from vidvec_msg.retrieval.embed import allowed_failures

STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Queries:
    """The checked queries of a file. Make them with :func:`checked_queries`.

    Args:
        items: the queries, left in their file.
        failures: those that cannot be asked, by id: their media is missing, or not the embedder's.
    """

    items: ItemFile
    failures: Mapping[str, Failure]


@contextmanager
def checked_queries(path: Path, card: EmbedderCard, *, max_failures: float) -> Iterator[Queries]:
    """Reads a whole file once and says what is in it.

    Args:
        path: .jsonl with rows as in queries.jsonl, .txt with one text a line (each is called after its line,
            from 1), or ``-`` for either on stdin.
        card: of the embedder that the queries are for.
        max_failures: queries that may fail: a count, or a share of all if below 1.

    Yields:
        the queries; those of stdin or of texts lie in a copy, which goes when the block ends.

    Raises:
        RefusedRequest: faulty rows, ids that are not unique, no query at all, or more queries than may fail
            whose media is missing or which the embedder does not take.
    """
    problems = Problems(f"queries {path}")
    with tempfile.TemporaryDirectory(prefix="queries.") as folder:
        copy = Path(folder) / "queries.jsonl"
        if path == STDIN:
            found, root = _rows_of_stdin(copy, problems), Path.cwd()
        elif path.suffix == ".txt":
            with path.open("rb") as stream:
                found, root = _rows_of_lines(stream, copy, problems), Path.cwd()
        else:
            found, root = path, path.resolve().parent
        problems.refuse_if_any()
        items = ItemFile.open(found, root, problems)
        if not items and not problems.found:
            problems.add("it holds no query")
        problems.refuse_if_any()
        yield Queries(items, _failures_known_before(items, card, max_failures))


def _rows_of_stdin(copy: Path, problems: Problems) -> Path:
    """A copy of stdin as rows; lines that do not begin with a brace are texts."""
    original = copy.with_name("stdin")
    with original.open("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    with original.open("rb") as stream:
        first = next((line for line in stream if line.strip()), b"")
        if first.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
            return original
        stream.seek(0)
        return _rows_of_lines(stream, copy, problems)


def _rows_of_lines(stream: BinaryIO, copy: Path, problems: Problems) -> Path:
    """One row a text, called after its line."""
    with copy.open("w", encoding="utf-8") as rows:
        for number, line in enumerate(stream, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                problems.add(f"line {number} is not UTF-8 ({error.reason})")
                continue
            if text:
                rows.write(json.dumps({"_id": str(number), "text": text}, ensure_ascii=False) + "\n")
    return copy


def _failures_known_before(items: ItemFile, card: EmbedderCard, max_failures: float) -> dict[str, Failure]:
    """Queries that need no model to be seen to fail, if they are few enough."""
    if items.modalities <= {"text"} and "text" in card.modalities:
        return {}
    failures: dict[str, Failure] = {}
    for item in items:
        if item.modality not in card.modalities:
            reason = f"it is of modality {item.modality!r}; {card.name} takes {', '.join(card.modalities)}"
            failures[item.id] = Failure(item.id, reason)
        else:
            failures |= {failure.item: failure for failure in missing_media([item])}
    allowed = allowed_failures(max_failures, len(items))
    if len(failures) > allowed:
        problems = Problems(
            f"{len(failures)} of {len(items)} queries cannot be asked and {allowed} may fail (max_failures)"
        )
        for failure in failures.values():
            problems.add(f"{failure.item}: {failure.reason}")
        problems.refuse_if_any()
    return failures
