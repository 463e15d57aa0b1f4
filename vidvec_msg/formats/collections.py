"""A retrieval collection on disk: two sides of items, and which of them belong together.

A folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``: a superset of BEIR, so every
BEIR folder is one. Either side may hold any modality.

What a row may hold stands in :mod:`vidvec_msg.formats.rows`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.errors import Failure, Problems, RefusedRequest
from vidvec_msg.formats.item_file import ItemFile
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import HEADER, Qrels, gather, scan_qrels
from vidvec_msg.formats.rows import checked_item, scan_rows
from vidvec_msg.runs import replacing

Side = Literal["corpus", "queries"]
Unreachable = Literal["refuse", "keep"]


@dataclass(frozen=True)
class Collection:
    """Both sides of a collection and its relevance judgements, checked.

    Args:
        root: the folder, absolute.
        corpus: the documents, in the order of the file.
        queries: the queries, in the order of the file.
        qrels: split name → query id → document id → grade.
    """

    root: Path
    corpus: tuple[Item, ...]
    queries: tuple[Item, ...]
    qrels: Mapping[str, Qrels]

    @classmethod
    def load(
        cls, folder: Path | str, *, split: str | None = None, unreachable: Unreachable = "refuse"
    ) -> Collection:
        """Reads a folder and checks all of it.

        Args:
            folder: the collection.
            split: the only split to read; all of them by default.
            unreachable: what to do with judgements that name a document or query which the folder does
                not have. "refuse" them, or "keep" them: they count as positives that nobody can find.

        Raises:
            RefusedRequest: every problem in one message: missing files, invalid JSON, rows without an id or
                content, ids given twice, judgements of unknown items, a split that does not exist.
        """
        root = _existing(folder)
        problems = Problems(f"collection {root}")
        corpus, queries = (_read_side(root, side, problems) for side in ("corpus", "queries"))
        known = {item.id for item in queries}, {item.id for item in corpus}
        qrels = {
            path.stem: _read_split(path, known, problems, unreachable)
            for path in _split_files(root, split, problems)
        }
        problems.refuse_if_any()
        return cls(root, tuple(corpus), tuple(queries), qrels)


def open_side(folder: Path | str, side: Side) -> ItemFile:
    """Checks one side alone and leaves its items in the file, for corpora that memory does not hold.

    Raises:
        RefusedRequest: every problem of that side in one message.
    """
    root = _existing(folder)
    problems = Problems(f"collection {root}")
    path = _side_file(root, side, problems)
    problems.refuse_if_any()
    items = ItemFile.open(path, root, problems)
    if not items and not problems.found:
        problems.add(f"{path.name} holds no row")
    problems.refuse_if_any()
    return items


def load_side(folder: Path | str, side: Side) -> tuple[Item, ...]:
    """Reads and checks one side alone, for jobs that need no queries or no judgements.

    Raises:
        RefusedRequest: every problem of that side in one message.
    """
    root = _existing(folder)
    problems = Problems(f"collection {root}")
    items = _read_side(root, side, problems)
    problems.refuse_if_any()
    return tuple(items)


def missing_media(items: Iterable[Item]) -> list[Failure]:
    """The items whose media file does not exist, is empty or may not be read, each once: a cheap check before
    a slow job."""
    if isinstance(items, ItemFile) and items.modalities == {"text"}:
        return []  # known since it was opened: no need to read it all again
    failures = []
    for item in items:
        for source in (item.video, item.image, item.audio):
            if isinstance(source, Path) and (problem := _file_problem(source)):
                failures.append(Failure(item.id, f"{problem}: {source}"))
                break
    return failures


def _file_problem(path: Path) -> str:
    """Why a file cannot be used, as far as that is known without opening it; empty if it can."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a path may hold a zero byte
        return "file not found"
    except OSError as error:  # a folder that may not be entered, a disk that fails
        return f"file cannot be read ({error.strerror})"
    if not stat.S_ISREG(found.st_mode):
        return "file not found"
    if not found.st_size:
        return "file is empty"
    return "" if os.access(path, os.R_OK) else f"file cannot be read ({os.strerror(errno.EACCES)})"


def write_collection(
    out: Path | str,
    *,
    corpus: Iterable[Mapping[str, Any]],
    queries: Iterable[Mapping[str, Any]],
    qrels: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> None:
    """Writes a collection; its files take their places only when all have passed the checks.

    Args:
        out: the folder; media files may already lie in it. Files of an earlier collection are replaced;
            splits of it that would stay are refused, since they judge other items.
        corpus: rows as in ``corpus.jsonl``, media paths relative to ``out``.
        queries: rows as in ``queries.jsonl``.
        qrels: split name → query id → document id → grade.

    Raises:
        RefusedRequest: every problem in one message; no file has changed.
    """
    root = Path(out).resolve()
    problems = Problems(f"collection {root}")
    for path in sorted((root / "qrels").glob("*.tsv")):
        if path.stem not in qrels:
            problems.add(f"qrels/{path.name} is of an earlier collection; remove it, or give another folder")
    with ExitStack() as stack:
        # corpus.jsonl is entered first, so it is renamed last: while it is missing there is no collection
        corpus_file = stack.enter_context(replacing(root / "corpus.jsonl"))
        queries_file = stack.enter_context(replacing(root / "queries.jsonl"))
        documents = _write_rows(corpus_file, corpus, "corpus.jsonl", root, problems)
        asked = _write_rows(queries_file, queries, "queries.jsonl", root, problems)
        for split, judged in qrels.items():
            path = stack.enter_context(replacing(root / "qrels" / f"{split}.tsv"))
            with path.open("w", encoding="utf-8", newline="\n") as stream:
                stream.write("\t".join(HEADER) + "\n")
                for query, document, grade in _pairs(judged):
                    _check_pair(f"split {split!r}", query, document, (asked, documents), problems)
                    stream.write(f"{query}\t{document}\t{int(grade)}\n")
        problems.refuse_if_any()


# --- one file ---------------------------------------------------------------------------------------


def _existing(folder: Path | str) -> Path:
    root = Path(folder).resolve()
    if not root.is_dir():
        raise RefusedRequest(
            f"collection {root} does not exist; give a folder with corpus.jsonl, queries.jsonl, qrels/."
        )
    return root


def _side_file(root: Path, side: Side, problems: Problems) -> Path:
    """The file of a side; tells ``problems`` if there is none."""
    if side not in ("corpus", "queries"):
        raise RefusedRequest(f"side {side!r} does not exist; it is 'corpus' or 'queries'.")
    path = root / f"{side}.jsonl"
    if not path.is_file():
        problems.add(f"{path.name} is missing; it holds one JSON object a line, for example "
                     '{"_id": "a", "text": "..."}')  # fmt: skip
    return path


def _read_side(root: Path, side: Side, problems: Problems) -> list[Item]:
    path = _side_file(root, side, problems)
    if not path.is_file():
        return []
    first_line: dict[str, int] = {}
    items = []
    for line, item in _scan_items(path, root, problems):
        if item.id in first_line:
            problems.add(
                f"{path.name}:{line}: _id {item.id!r} was already used in line {first_line[item.id]}"
            )
            continue
        first_line[item.id] = line
        items.append(item)
    if not items and not problems.found:
        problems.add(f"{path.name} holds no row")
    return items


def _scan_items(path: Path, root: Path, problems: Problems) -> Iterator[tuple[int, Item]]:
    for number, _, row in scan_rows(path, problems):
        item = checked_item(row, f"{path.name}:{number}", root, problems)
        if item is not None:
            yield number, item


def _split_files(root: Path, split: str | None, problems: Problems) -> list[Path]:
    files = sorted((root / "qrels").glob("*.tsv"))
    if not files:
        problems.add(f"qrels/*.tsv is missing; each split is a TSV with the header {' '.join(HEADER)}")
        return []
    if split is None:
        return files
    chosen = [path for path in files if path.stem == split]
    if not chosen:
        have = ", ".join(path.stem for path in files)
        problems.add(f"split {split!r} does not exist; the splits here are: {have}")
    return chosen


def _read_split(
    path: Path, known: tuple[set[str], set[str]], problems: Problems, unreachable: Unreachable
) -> Qrels:
    judgements = list(scan_qrels(path, problems))
    if unreachable == "refuse":
        for line, query, document, _ in judgements:
            _check_pair(f"{path.name}:{line}", query, document, known, problems)
    elif unreachable != "keep":
        raise RefusedRequest(f"unreachable {unreachable!r} is not accepted; it is 'refuse' or 'keep'.")
    return gather(iter(judgements), path, problems)


def _check_pair(
    where: str, query: str, document: str, known: tuple[set[str], set[str]], problems: Problems
) -> None:
    queries, documents = known
    if query not in queries:
        problems.add(f"{where}: query {query!r} is not in queries.jsonl")
    if document not in documents:
        problems.add(f"{where}: document {document!r} is not in corpus.jsonl")


def _write_rows(
    path: Path, rows: Iterable[Mapping[str, Any]], name: str, root: Path, problems: Problems
) -> set[str]:
    ids: set[str] = set()
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for number, row in enumerate(rows, start=1):
            where = f"{name}:{number}"
            item = checked_item(dict(row), where, root, problems)
            if item is None:
                continue
            if item.id in ids:
                problems.add(f"{where}: _id {item.id!r} was already used")
            ids.add(item.id)
            kept = {key: value for key, value in row.items() if value is not None}
            stream.write(json.dumps(kept, ensure_ascii=False, default=str) + "\n")  # str: a Path
    return ids


def _pairs(judged: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[str, str, int]]:
    for query, grades in judged.items():
        for document, grade in grades.items():
            yield query, document, grade
