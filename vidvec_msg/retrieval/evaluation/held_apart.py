"""Items told by what they show, not by id or folder: validation queries must not be those of the test, and
lists are of the clips that they were made from."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from vidvec_msg.errors import Problems
from vidvec_msg.formats.collections import missing_media
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.kept_digests import kept_or_made
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.runs import digest_of

_SHOWN = 3
_ENDS = 1 << 16  # bytes of a file's beginning and end that are compared, with its size


def refuse_shared_queries(test: Sides, validation: Sides, *, what: str, same_folder: bool) -> None:
    """Refuses validation queries that are queries of the test too: :func:`shared_queries`.

    Args:
        test: what the numbers are of.
        validation: what something is chosen on.
        what: is chosen, for the message: "the temperatures of dual softmax".
        same_folder: both are splits of one folder, where equal ids are the same item too.

    Raises:
        RefusedRequest: what is shared, in both directions.
    """
    problems = Problems(f"{what} must be chosen on queries that the test does not have")
    for _, told in shared_queries(test, validation, same_folder=same_folder):
        problems.add(told)
    problems.refuse_if_any()


class Shared(NamedTuple):
    """Items of one kind that two sets of queries share.

    Args:
        number: of them.
        told: in one line.
    """

    number: int
    told: str


def shared_queries(
    test: Sides,
    validation: Sides,
    *,
    same_folder: bool,
    called: str = "the test",
    files: dict[Path, str] | None = None,
) -> list[Shared]:
    """The queries of one split that are queries of another too, in either direction.

    Queries of the reverse direction are the documents with a positive; a document that only stands in both
    pools is no query, and may be shared. Two items are the same if they hold the same text (but for case and
    white space) or stretches of one medium (size, both ends) that overlap, whatever their ids, names, folders
    and sides: a message that is a query here and a document there asks in both. Another encoding of a clip is
    another medium.

    Args:
        test: the one.
        validation: the other.
        same_folder: both are splits of one folder, where equal ids are the same item too.
        called: the first one, in what is told.
        files: digests of files, as of :func:`shown_by`.
    """
    found = []
    files = {} if files is None else files
    mine, theirs = _asking(test), _asking(validation)
    there = {name: _Stretches(shown_by(items, files)) for name, items in mine.items()}
    for name, items in theirs.items():
        shared = sorted({item.id for item in mine[name]} & {item.id for item in items}) if same_folder else []
        if shared:
            told = f"{len(shared)} {name} are in both: {_listed(map(repr, shared))}"
            found.append(Shared(len(shared), told))
        rest = shown_by([item for item in items if item.id not in shared], files)
        for other, held in there.items():
            copies = {one: twin for one, shown in rest.items() if (twin := held.over(shown)) is not None}
            if copies:
                pairs = [f"{one!r} is {twin!r} of {called}" for one, twin in sorted(copies.items())]
                told = f"{len(copies)} {name} hold what {other} of {called} hold: {_listed(pairs)}"
                found.append(Shared(len(copies), told))
    return found


@dataclass(frozen=True, slots=True, order=True)
class Shown:
    """What an item shows: a stretch of a medium, or what it says where it has no medium.

    Args:
        what: digest of the words or of the medium that carries the item.
        start: second of the medium.
        end: second of the medium; infinite for its end.
    """

    what: str
    start: float = 0.0
    end: float = math.inf


def shown_by(items: Iterable[Item], files: dict[Path, str] | None = None) -> dict[str, Shown]:
    """What each item shows, by id.

    Args:
        items: of one side.
        files: digests of files, kept here: many segments are of one file.
    """
    files = {} if files is None else files
    return {item.id: _shown(item, files) for item in items}


def contents_of(sides: Sides) -> dict[str, str]:
    """Digests of what both sides show, whatever their folder; clips whose file is missing are left out.

    Words beside a clip (a transcript that was added since) are not part of it.
    """
    files: dict[Path, str] = {}
    found = {}
    for name, items in (("corpus", sides.corpus), ("queries", sides.queries)):
        there = [item for item in items if not missing_media([item])]
        shown = shown_by(there, files).items()
        found[name] = digest_of(sorted((item, one.what, one.start, one.end) for item, one in shown))[:16]
    return found


def changed_sides(before: Mapping[str, str] | None, now: Mapping[str, str] | None) -> list[str]:
    """The sides that show other things, of two :func:`contents_of` over the same ids.

    Args:
        before: None of an evaluation that was made before this was recorded, of which nothing is known.
        now: likewise.
    """
    return [side for side, digest in (before or {}).items() if (now or {}).get(side, digest) != digest]


def alike(shown: Iterable[Shown]) -> dict[Shown, int]:
    """Numbers that two are given alike if they overlap, directly or through others."""
    numbers: dict[Shown, int] = {}
    number, before = 0, Shown("")
    for one in sorted(set(shown)):
        if one.what != before.what or one.start >= before.end:
            number, before = number + 1, one
        before = Shown(one.what, one.start, max(one.end, before.end))
        numbers[one] = number
    return numbers


class _Stretches:
    """Finds an item that shows a part of what another one shows.

    Args:
        shown: by id.
    """

    def __init__(self, shown: Mapping[str, Shown]) -> None:
        of_medium: dict[str, list[tuple[float, float, str]]] = {}
        for name, one in shown.items():
            of_medium.setdefault(one.what, []).append((one.start, one.end, name))
        self._starts: dict[str, Sequence[float]] = {}
        self._furthest: dict[str, Sequence[tuple[float, str]]] = {}  # of those that start no later
        for what, found in of_medium.items():
            found.sort()
            self._starts[what] = [start for start, _, _ in found]
            self._furthest[what] = list(accumulate(((end, name) for _, end, name in found), max))

    def over(self, one: Shown) -> str | None:
        """The id of an item that overlaps it; None if none does. Stretches that only touch do not overlap."""
        begun = bisect_left(self._starts.get(one.what, ()), one.end)  # those that start before its end
        if not begun:
            return None
        end, name = self._furthest[one.what][begun - 1]
        return name if end > one.start else None


def _shown(item: Item, files: dict[Path, str]) -> Shown:
    media = [medium for medium in (item.video, item.image, item.audio) if medium is not None]
    if media:  # all of them: one picture under other sounds is another item
        digests = [
            files.get(medium) or files.setdefault(medium, _file_digest(medium))
            if isinstance(medium, Path)
            else hashlib.sha256(medium.tobytes()).hexdigest()
            for medium in media
        ]
        end = math.inf if item.end is None else item.end
        return Shown(" ".join(digests), item.start or 0.0, end)
    words = item.full_text or item.transcript or item.ocr or ""
    return Shown(digest_of(" ".join(unicodedata.normalize("NFKC", words).casefold().split())))


def _asking(sides: Sides) -> dict[str, list[Item]]:
    """The items with a positive, in the words of a message."""
    both = {
        "queries": (sides.queries, sides.qrels),
        "documents with a positive": (sides.corpus, sides.backwards),
    }
    return {
        name: [item for item in items if any(grade > 0 for grade in judged.get(item.id, {}).values())]
        for name, (items, judged) in both.items()
    }


def _file_digest(path: Path) -> str:
    """Of a file's size and both ends, without its name; one that is missing is told of elsewhere."""
    try:
        return kept_or_made(b"size and both ends, without a name", [path], lambda: _digest_of_ends(path))
    except OSError:
        return str(path.resolve())


def _digest_of_ends(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as stream:
        ends = stream.read(_ENDS)
        if size > 2 * _ENDS:
            stream.seek(-_ENDS, 2)
        ends += stream.read(_ENDS)
    return hashlib.sha256(f"{size} ".encode() + ends).hexdigest()


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
