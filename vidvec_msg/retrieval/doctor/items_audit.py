"""The rows of a collection: their ids, their texts, and rows that are there twice."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import positives
from vidvec_msg.retrieval.doctor.finding import Finding, counted
from vidvec_msg.retrieval.near_texts import words_of

LONG = 750  # words; about 1,000 tokens, from where max_tokens=1024 begins to cut
SHORT = 2  # words; fewer say little

_CHUNK = 1 << 20  # bytes read at once


def sides(collection: Collection) -> Iterator[tuple[str, Sequence[Item]]]:
    """Both sides with their names."""
    yield "corpus", collection.corpus
    yield "queries", collection.queries


# --- ids ------------------------------------------------------------------------------------------------


def ids_that_read_alike(collection: Collection) -> Finding:
    """Ids of one side that differ in case, Unicode form, or leading zeros alone."""
    cases = [
        f"{side}: {_named(same)}"
        for side, items in sides(collection)
        for same in _grouped(items, lambda item: _as_read(item.id))
    ]
    return counted(
        "ids that read alike", cases, otherwise="warn",
        what="groups of ids that differ in case or form alone", none="no two ids of a side read alike",
        advice="file systems and spreadsheets take them for one; give ids that differ in more",
    )  # fmt: skip


def _as_read(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold()
    return folded.lstrip("0") or "0" if folded.isdecimal() else folded


def odd_ids(collection: Collection) -> Finding:
    """Ids that other tools change or split: with leading zeros, or with spaces inside."""
    cases = []
    for side, items in sides(collection):
        for item in items:
            if item.id.isdecimal() and item.id.startswith("0") and item.id != "0":
                cases.append(f"{side}: {item.id!r} has leading zeros")
            elif any(letter.isspace() for letter in item.id):
                cases.append(f"{side}: {item.id!r} has a space inside")
    return counted(
        "odd ids", cases, otherwise="warn",
        what="ids that other tools may change",
        none="no leading zeros, no spaces inside",
        advice="spreadsheets drop leading zeros; TREC files hold spaces as %20 only",
    )  # fmt: skip


def ids_on_both_sides(collection: Collection) -> Finding:
    """Ids that a query and a document share: the same item, or two things under one name."""
    documents = {item.id: item for item in collection.corpus}
    shared = [item for item in collection.queries if item.id in documents]
    same = sum(_content(item) == _content(documents[item.id]) for item in shared)
    return counted(
        "ids on both sides", [repr(item.id) for item in shared], otherwise="warn",
        what=f"ids that a query and a document share ({same} with the same content)",
        none="no id is on both sides",
        advice="where both are the same item, evaluate with --exclude_self; else rename one side",
    )  # fmt: skip


# --- texts ----------------------------------------------------------------------------------------------


def empty_texts(collection: Collection) -> Finding:
    """Rows without media whose text is blank: no embedder takes them."""
    judged = {name for split in collection.qrels.values() for name in positives(split)}
    wanted = {d for split in collection.qrels.values() for found in positives(split).values() for d in found}
    needed = {"corpus": wanted, "queries": judged}
    empty = [
        (side, item) for side, items in sides(collection) for item in items
        if item.modality == "text" and not item.full_text
    ]  # fmt: skip
    hurting = [item for side, item in empty if item.id in needed[side]]
    return counted(
        "empty texts", [f"{side}: {item.id!r}" for side, item in empty],
        otherwise="fail" if hurting else "warn",
        what=f"rows without a word or medium ({len(hurting)} in a relevant pair)",
        none="every row has a word or a medium",
        advice="remove them: they are recorded as failed, and as relevant documents never found",
    )  # fmt: skip


def text_lengths(collection: Collection) -> Finding:
    """How many words the texts have."""
    counts: dict[str, list[tuple[int, str]]] = {}
    for side, items in sides(collection):
        counts[side] = [(len(words_of(item.full_text)), item.id) for item in _texts(items)]
    told = [
        f"{side} {min(words)[0]}–{int(np.median([n for n, _ in words]))}–{max(words)[0]}"
        for side, words in counts.items() if words
    ]  # fmt: skip
    if not told:
        return Finding("text lengths", "n/a", found="no row is a text")
    all_texts = [(n, f"{side}: {name!r} {n}") for side, words in counts.items() for n, name in words]
    short = [text for n, text in all_texts if n < SHORT]
    long = [text for n, text in all_texts if n > LONG]
    found = f"words, least–median–most: {', '.join(told)}"
    if not short and not long:
        return Finding("text lengths", "ok", 0, found)
    return Finding(
        "text lengths", "warn", len(short) + len(long),
        f"{found}; {len(short)} under {SHORT} and {len(long)} over {LONG} words",
        "long ones are cut at the embedder's max_tokens, short ones say little", (*short[:2], *long[:2]),
    )  # fmt: skip


# --- rows that are there twice --------------------------------------------------------------------------


def same_texts(collection: Collection) -> Finding:
    """Texts of one side that are the same, words and punctuation, under several ids."""
    cases = [
        f"{side}: {_named(same)}"
        for side, items in sides(collection)
        for same in _grouped(_texts(items), lambda item: item.full_text)
    ]
    return counted(
        "same text", cases, otherwise="warn",
        what="texts that stand under several ids", none="every text is there once",
        advice="a double takes a rank from its twin: merge them, or judge both",
    )  # fmt: skip


def same_media(collection: Collection) -> Finding:
    """Media of one side with the same bytes, and the same segment of them, under several ids."""
    cases = []
    for side, items in sides(collection):
        seen: dict[Hashable, list[Item]] = defaultdict(list)
        for item, path in _files(items):
            seen[(path.stat().st_size, item.start, item.end)].append(item)
        for alike in seen.values():
            if len(alike) > 1:  # files of another length have other bytes: nothing to read
                cases += [f"{side}: {_named(same)}" for same in _grouped(alike, _bytes_of)]
    return counted(
        "same media", cases, otherwise="warn", what="files or segments that stand under several ids",
        none="every file or segment is there once",
        advice="a double takes a rank from its twin: merge them, or judge both",
    )  # fmt: skip


def queries_in_the_corpus(collection: Collection) -> Finding:
    """Queries whose very text is a document that is not judged relevant to them."""
    by_text = defaultdict(list)
    for item in _texts(collection.corpus):
        by_text[item.full_text].append(item.id)
    relevant = {
        (query, document)
        for split in collection.qrels.values()
        for query, found in positives(split).items()
        for document in found
    }
    cases = [
        f"{query.id!r} is document {document!r}"
        for query in _texts(collection.queries)
        for document in by_text.get(query.full_text, ())
        if (query.id, document) not in relevant
    ]
    return counted(
        "queries in the corpus", cases, otherwise="warn",
        what="queries that are documents too, and not relevant ones", none="no query is a document",
        advice="the document takes rank 1: leave it out (--exclude_self, where the ids are the same)",
    )  # fmt: skip


def _texts(items: Iterable[Item]) -> Iterator[Item]:
    """Items that are texts, with at least one letter."""
    return (item for item in items if item.modality == "text" and item.full_text)


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """Groups of two and more with the same key."""
    groups: dict[Hashable, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return [group for group in groups.values() if len(group) > 1]


def _named(items: Sequence[Item]) -> str:
    shown = ", ".join(repr(item.id) for item in items[:4])
    return f"{shown} and {len(items) - 4} more" if len(items) > 4 else shown


def _files(items: Iterable[Item]) -> Iterator[tuple[Item, Path]]:
    """Items whose medium is a file that is there."""
    for item in items:
        path = _path(item)
        if path is not None and path.is_file():
            yield item, path


def _path(item: Item) -> Path | None:
    source = next((one for one in (item.video, item.image, item.audio) if one is not None), None)
    return source if isinstance(source, Path) else None


def _bytes_of(item: Item) -> bytes:
    """Digest of the whole file."""
    digest = blake2b(digest_size=16)
    path = _path(item)
    if path is not None:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.digest()


def _content(item: Item) -> tuple[object, ...]:
    return item.full_text, _path(item), item.start, item.end
