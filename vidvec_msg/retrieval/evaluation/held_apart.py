"""What is chosen on validation queries must not have seen the test: told by content, not by folder."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path

from vidvec_msg.errors import Problems
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.runs import digest_of

_SHOWN = 3
_ENDS = 1 << 16  # bytes of a file's beginning and end that are compared, with its size


def refuse_shared_queries(test: Sides, validation: Sides, *, what: str, same_folder: bool) -> None:
    """Refuses validation queries that are queries of the test too, in either direction.

    Queries of the reverse direction are the documents with a positive; a document that only stands in both
    pools is no query, and may be shared. Two items are the same if they hold the same text (but for case and
    white space) or the same medium (size, both ends, segment), whatever their ids, names and folders.

    Args:
        test: what the numbers are of.
        validation: what something is chosen on.
        what: is chosen, for the message: "the temperatures of dual softmax".
        same_folder: both are splits of one folder, where equal ids are the same item too.

    Raises:
        RefusedRequest: what is shared, in both directions.
    """
    problems = Problems(f"{what} must be chosen on queries that the test does not have")
    for name, mine, theirs in (
        ("queries", _asking(test.queries, test.qrels), _asking(validation.queries, validation.qrels)),
        (
            "documents with a positive",
            _asking(test.corpus, test.backwards),
            _asking(validation.corpus, validation.backwards),
        ),
    ):
        shared = sorted(mine.keys() & theirs.keys()) if same_folder else []
        if shared:
            problems.add(f"{len(shared)} {name} are in both: {_listed(map(repr, shared))}")
        contents = {content(item): item.id for item in mine.values()}
        copies = {
            item.id: contents[key]
            for item in theirs.values()
            if item.id not in shared and (key := content(item)) in contents
        }
        if copies:
            pairs = [f"{one!r} is {other!r} of the test" for one, other in sorted(copies.items())]
            problems.add(f"{len(copies)} {name} hold what {name} of the test hold: {_listed(pairs)}")
    problems.refuse_if_any()


def content(item: Item) -> str:
    """Digest of what an item shows, or of what it says where it has no medium."""
    parts: list[object] = []
    for medium in (item.video, item.image, item.audio):
        if isinstance(medium, Path):
            # a segment from the beginning may say so or not; 2 and 2.0 are one place
            parts += [_file_digest(medium), float(item.start or 0), item.end and float(item.end)]
        elif medium is not None:
            parts.append(hashlib.sha256(medium.tobytes()).hexdigest())
    if not parts:
        words = item.full_text or item.transcript or item.ocr or ""
        parts.append(" ".join(unicodedata.normalize("NFKC", words).casefold().split()))
    return digest_of(parts)


def _asking(items: Iterable[Item], qrels: Mapping[str, Mapping[str, int]]) -> dict[str, Item]:
    """Items with a positive, by id."""
    asking = {query for query, judged in qrels.items() if any(grade > 0 for grade in judged.values())}
    return {item.id: item for item in items if item.id in asking}


def _file_digest(path: Path) -> str:
    """Of a file's size and both ends, without its name; one that is missing is told of elsewhere."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            ends = stream.read(_ENDS)
            if size > 2 * _ENDS:
                stream.seek(-_ENDS, 2)
            ends += stream.read(_ENDS)
    except OSError:
        return str(path.resolve())
    return hashlib.sha256(f"{size} ".encode() + ends).hexdigest()


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
