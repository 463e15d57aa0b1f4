"""A retrieval collection on disk: two sides of items, and which of them belong together.

A folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``: a superset of BEIR, so every
BEIR folder is one. Either side may hold any modality.

Rules of a row:

- ``_id`` (a string, or an integer that becomes one) is unique on its side. It holds no tab, line break or
  other control character and no space at either end, because the qrels are tab-separated. Spaces inside
  are fine; the TREC files write them as ``%20``, as :mod:`vidvec_msg.formats.trec` says.
- Content is any of ``text``, ``title``, ``video``, ``image``, ``audio``, ``transcript``, ``ocr``. A null is
  the same as leaving the field out. A row without any is refused; a row whose text is blank (BEIR's
  corpora have some) is loaded, and the embedder records it as failed.
- Paths are relative to the folder. ``start`` and ``end`` are seconds; ``groups`` maps names to values.
- ``transcript_info`` and ``ocr_info`` say where a recognised text comes from; they are not read into items.
- Other fields (BEIR's ``metadata``, for instance) are ignored, except one that looks like a slip of the
  pen for a known one, such as ``texts``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.errors import Failure, Problems, RefusedRequest, nearest
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import HEADER, Qrels, gather, scan_qrels
from vidvec_msg.runs import replacing

Side = Literal["corpus", "queries"]
Unreachable = Literal["refuse", "keep"]

_TEXTS = ("text", "title", "transcript", "ocr")
_FILES = ("video", "image", "audio")
_SECONDS = ("start", "end")
_INFOS = ("transcript_info", "ocr_info")
FIELDS = ("_id", *_TEXTS, *_FILES, *_SECONDS, "groups", *_INFOS)

_TYPO = 0.82  # likeness above which an unknown field is taken for a slip: "texts" 0.89, "stars" 0.80


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


def read_items(path: Path | str, root: Path | str | None = None) -> Iterator[Item]:
    """Reads one JSONL file of items, one at a time; ids given twice are not looked for.

    Args:
        path: the file.
        root: folder that relative media paths start from; the file's own by default.

    Raises:
        RefusedRequest: the file is missing (at once), or has faulty rows (after the last row, all at once).
    """
    path = Path(path)
    problems = Problems(f"items {path}")
    if not path.is_file():
        raise RefusedRequest(f"items {path}: the file is missing; it holds one JSON object a line.")
    for _, item in _scan_items(path, Path(root or path.parent).resolve(), problems):
        yield item
    problems.refuse_if_any()


def missing_media(items: Iterable[Item]) -> list[Failure]:
    """The items whose media file does not exist or is empty, each once: a cheap check before a slow job."""
    failures = []
    for item in items:
        for source in (item.video, item.image, item.audio):
            if not isinstance(source, Path):
                continue
            if not source.is_file():
                failures.append(Failure(item.id, f"file not found: {source}"))
                break
            if source.stat().st_size == 0:
                failures.append(Failure(item.id, f"file is empty: {source}"))
                break
    return failures


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


def _read_side(root: Path, side: Side, problems: Problems) -> list[Item]:
    if side not in ("corpus", "queries"):
        raise RefusedRequest(f"side {side!r} does not exist; it is 'corpus' or 'queries'.")
    path = root / f"{side}.jsonl"
    if not path.is_file():
        problems.add(f"{path.name} is missing; it holds one JSON object a line, for example "
                     '{"_id": "a", "text": "..."}')  # fmt: skip
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
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            where = f"{path.name}:{number}"
            try:
                row = json.loads(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
            except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both
                problems.add(f"{where}: not a JSON object ({error})")
                continue
            item = _item(row, where, root, problems)
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
            item = _item(dict(row), where, root, problems)
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


# --- one row ----------------------------------------------------------------------------------------


def _item(row: object, where: str, root: Path, problems: Problems) -> Item | None:
    """The item of a row, or None after telling ``problems`` what is wrong with it."""
    if not isinstance(row, dict):
        problems.add(f"{where}: a JSON {type(row).__name__}; each line must be an object with an _id")
        return None
    before = len(problems.found)
    _check_field_names(row, where, problems)
    identity = _identity(row, where, problems)
    values: dict[str, Any] = {name: _string(row, name, where, problems) for name in (*_TEXTS, *_FILES)}
    for name in _FILES:
        if values[name] is not None:
            values[name] = root / values[name]  # an absolute path stays as it is
    start, end = (_seconds(row, name, where, problems) for name in _SECONDS)
    if start is not None and end is not None and end <= start:
        problems.add(f"{where}: end {end} is not after start {start} (both in seconds)")
    groups = _groups(row, where, problems)
    if len(problems.found) == before and all(value is None for value in values.values()):
        problems.add(f"{where}: row {identity!r} has no content; give one of {', '.join((*_TEXTS, *_FILES))}")
    if len(problems.found) > before:
        return None
    return Item(identity, start=start, end=end, groups=groups, **values)


def _check_field_names(row: Mapping[str, Any], where: str, problems: Problems) -> None:
    for name in row:
        if name in FIELDS or name == "id":
            continue
        near = nearest(name.lower(), FIELDS, likeness=_TYPO)
        if near is not None and near not in row:
            problems.add(f"{where}: unknown field {name!r} (did you mean {near!r}?)")


def _identity(row: Mapping[str, Any], where: str, problems: Problems) -> str:
    value = row.get("_id")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None:
        hint = "; it has an 'id', which must be called '_id'" if "id" in row else ""
        problems.add(f"{where}: no _id{hint}")
        return ""
    if not isinstance(value, str):
        problems.add(f"{where}: _id is {value!r}; it must be a string")
        return ""
    if not value or value != value.strip() or any(ord(c) < 32 or ord(c) == 127 for c in value):
        problems.add(
            f"{where}: _id {value!r} is empty, or has a space at an end, a tab or a control character; "
            "qrels files are tab-separated and cannot hold it"
        )
    return value


def _string(row: Mapping[str, Any], name: str, where: str, problems: Problems) -> str | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, Path) and name in _FILES:
        return str(value)
    if not isinstance(value, str):
        problems.add(f"{where}: {name} is a {type(value).__name__}; it must be a string")
        return None
    if name in _FILES and not value.strip():
        problems.add(f"{where}: {name} is an empty path; leave the field out instead")
        return None
    return value


def _seconds(row: Mapping[str, Any], name: str, where: str, problems: Problems) -> float | None:
    value = row.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        problems.add(f"{where}: {name} is {value!r}; it must be a number of seconds, 0 or more")
        return None
    return float(value)


def _groups(row: Mapping[str, Any], where: str, problems: Problems) -> dict[str, str]:
    value = row.get("groups")
    if value is None:
        return {}
    if not isinstance(value, dict) or any(isinstance(v, dict | list) for v in value.values()):
        problems.add(f'{where}: groups is {value!r}; it must be a flat map such as {{"topic": "education"}}')
        return {}
    return {str(key): str(item) for key, item in value.items() if item is not None}
