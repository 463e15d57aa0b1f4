"""Several sources, joined: rows, and who asks for them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.write_back import side_rows
from vidvec_msg.retrieval.collect import tables
from vidvec_msg.retrieval.collect.candidates import MEDIA, Candidate, LeftOut
from vidvec_msg.retrieval.collect.folder import read_folder
from vidvec_msg.runs import digest_of

_SPLIT = "test"  # of judgements made of a column of queries
_ID_CHARS = 16  # of a digest: among a hundred million texts two share one with a chance of 0.03%
_SHOWN = 3  # reasons or collisions that a message spells out


@dataclass(slots=True)
class Found:
    """What the sources hold, joined.

    Args:
        rows: of the corpus.
        left_out: what became no row.
        queries: rows of the other side.
        qrels: split → query → document → grade.
    """

    rows: list[Candidate] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    queries: list[dict[str, Any]] = field(default_factory=list)
    qrels: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)


def read_sources(
    sources: Sequence[Path],
    *,
    patterns: Sequence[str],
    columns: dict[str, str],
    groups: Sequence[str],
    queries: str | None,
    media_root: Path | None,
    split: str | None,
    prefix: bool,
) -> Found:
    """All sources, joined; a file that two of them name is taken once. Options: see ``collect``.

    Raises:
        RefusedRequest: a source holds nothing, or nothing that can become a row.
    """
    found = Found()
    seen: dict[tuple[Any, ...], Candidate] = {}
    same: dict[str, str] = {}  # id of a row that is not kept → id of the row that holds its file
    for source in sources:
        root = source.resolve()
        before = f"{root.stem}/" if prefix else ""
        if (root / "corpus.jsonl").is_file():
            entries: Iterable[Candidate | LeftOut] = _read_collection(root, found, before)
        elif root.is_dir() and not tables.is_dataset(root):
            entries = read_folder(root, patterns=patterns, groups=groups)
        else:
            entries = _joined(
                tables.read_table(
                    root,
                    columns=columns,
                    groups=groups,
                    queries=queries,
                    media_root=media_root,
                    split=split,
                )
            )
        count = len(found.rows) + len(found.left_out)
        for entry in entries:
            if isinstance(entry, LeftOut):
                found.left_out.append(entry)
                continue
            entry.id = before + entry.id
            identity = _identity(entry)
            if identity is not None and identity in seen:
                kept = seen[identity]
                kept.asked += entry.asked
                same[entry.id] = kept.id
                found.left_out.append(
                    LeftOut(entry.where, f"the same file and segment as {kept.where}, taken once")
                )
                continue
            if identity is not None:
                seen[identity] = entry
            found.rows.append(entry)
        if len(found.rows) + len(found.left_out) == count:
            raise RefusedRequest(_nothing(source, patterns))
    if not found.rows:
        reasons = Counter(one.reason for one in found.left_out).most_common(_SHOWN)
        told = "; ".join(f"{count:,} × {reason}" for reason, count in reasons)
        raise RefusedRequest(f"the sources hold nothing that can become a row: {told}")
    _redirect(found, same)
    _ask(found)
    return found


def _nothing(source: Path, patterns: Sequence[str]) -> str:
    if patterns:
        return f"source {source}: no file below it matches {', '.join(map(repr, patterns))}"
    return f"source {source}: there is no file in it"


def _identity(row: Candidate) -> tuple[Any, ...] | None:
    """What makes two rows the same clip; None for rows of text."""
    files = tuple(str(path.resolve()) for path in row.media.values())
    return (*files, row.fields.get("start"), row.fields.get("end")) if files else None


def _joined(entries: Iterable[Candidate | LeftOut]) -> Iterator[Candidate | LeftOut]:
    """Rows of one id that differ in nothing but who asks for them become one."""
    rows: dict[str, Candidate] = {}
    for entry in entries:
        if isinstance(entry, LeftOut):
            yield entry
            continue
        first = rows.get(entry.id)
        if first is None or not entry.asked or _content(first) != _content(entry):
            rows.setdefault(entry.id, entry)
            if first is not None:
                rows[f"\0{len(rows)}"] = entry  # its id collides, which is told later
        else:
            first.asked += entry.asked
    yield from rows.values()


def _content(row: Candidate) -> tuple[Any, ...]:
    return (row.media, row.fields, row.groups, dict(row.unpack))


def _redirect(found: Found, same: Mapping[str, str]) -> None:
    """Judgements of rows that are not kept become judgements of the rows that hold their files."""
    kept = {row.id for row in found.rows}
    moved = {one: other for one, other in same.items() if one not in kept}
    for judged in found.qrels.values():
        for grades in judged.values():
            for one in [document for document in grades if document in moved]:
                grade = grades.pop(one)
                grades[moved[one]] = max(grade, grades.get(moved[one], grade))


def _ask(found: Found) -> None:
    """Queries and judgements from the texts that ask for rows; equal texts are one query.

    Its id is made of its words: it stays when rows come before it, and what people say of it stays true.
    """
    said = {str(row["_id"]): row.get("text") for row in found.queries}  # a source may be a collection of ours
    for row in found.rows:
        for text in row.asked:
            own = f"q{digest_of(text)[:_ID_CHARS]}"
            names = itertools.chain([own], (f"{own}-{number}" for number in itertools.count(2)))
            query = next(name for name in names if said.get(name, text) == text)
            if query not in said:
                said[query] = text
                found.queries.append({"_id": query, "text": text})
            found.qrels.setdefault(_SPLIT, {}).setdefault(query, {})[row.id] = 1


def _read_collection(root: Path, found: Found, before: str) -> Iterator[Candidate | LeftOut]:
    """A collection or BEIR folder, both sides and the judgements."""
    has_queries = (root / "queries.jsonl").is_file() and any((root / "qrels").glob("*.tsv"))
    if has_queries:
        whole = Collection.load(root, unreachable="keep")
        for row in side_rows(root, "queries"):
            found.queries.append(_moved({**row, "_id": before + str(row["_id"])}, root))
        for split, judged in whole.qrels.items():
            kept = found.qrels.setdefault(split, {})
            for query, grades in judged.items():
                kept.setdefault(before + query, {}).update(
                    {before + document: int(grade) for document, grade in grades.items()}
                )
    for number, row in enumerate(side_rows(root, "corpus"), start=1):
        where = f"{root.name}/corpus.jsonl, row {number}"
        if "_id" not in row:
            yield LeftOut(where, "no _id", broken=True)
            continue
        fields = {name: value for name, value in row.items() if name not in ("_id", "groups", *MEDIA)}
        media = {name: Path(root, row[name]) for name in MEDIA if row.get(name) is not None}
        yield Candidate(
            str(row["_id"]), where, media=media, fields=fields, groups=dict(row.get("groups") or {})
        )


def _moved(row: dict[str, Any], root: Path) -> dict[str, Any]:
    """A row with absolute media paths; writing makes them relative to the new folder."""
    return row | {name: Path(root, row[name]) for name in MEDIA if row.get(name) is not None}


def refuse_collisions(found: Found, *, several: bool) -> None:
    """Refuses rows or queries that share an id; the message names the first of them."""
    first: dict[str, Candidate] = {}
    colliding = []
    for row in found.rows:
        other = first.setdefault(row.id, row)
        if other is not row:
            colliding.append(f"{row.id!r} is {other.where} and {row.where}")
    asked = Counter(row["_id"] for row in found.queries)
    colliding += [f"{name!r} is {count} queries" for name, count in asked.items() if count > 1]
    if colliding:
        rest = f"; … and {len(colliding) - _SHOWN} more" if len(colliding) > _SHOWN else ""
        cure = " --prefix puts each source's name before its ids." if several else ""
        raise RefusedRequest(
            f"{len(colliding)} ids are used twice: {'; '.join(colliding[:_SHOWN])}{rest}. "
            f"Ids are unique in a collection.{cure}"
        )
