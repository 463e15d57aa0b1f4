"""Questions in any modality → the nearest items of an index; the verb ``search``."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.indexes.conditions import parse_filters
from vidvec_msg.retrieval.searching.hits import Dedupe, Hit, Wanted
from vidvec_msg.retrieval.searching.hits_table import drawn
from vidvec_msg.retrieval.searching.many_queries import (
    answer,
    count_vectors,
    failures_file,
    query_batches,
    refuse_bad_batches,
    vector_batches,
)
from vidvec_msg.retrieval.searching.queries_file import STDIN, checked_queries
from vidvec_msg.retrieval.searching.searcher import Searcher

__all__ = ["Hit", "Searcher", "search"]

log = logging.getLogger(__name__)

_MANY = ("queries", "query_vectors")


def search(
    index: Path,
    *,
    text: str | None = None,
    video: Path | None = None,
    image: Path | None = None,
    audio: Path | None = None,
    id: list[str] | None = None,
    queries: Path | None = None,
    query_vectors: Path | None = None,
    k: int = 10,
    filter: list[str] | None = None,
    min_score: float | None = None,
    dedupe: Dedupe | None = None,
    embedder: str | None = None,
    search_parameters: str = "",
    mmap: bool = False,
    json: bool = False,
    run: Path | None = None,
    batch_size: int = 0,
    max_failures: float = 0,
) -> None:
    """Searches an index with a text, a clip, an image or sound, for more like some of its items, or with many
    queries at once.

    Give exactly one of text, video, image, audio, id, queries and query_vectors. The table, or one JSON
    object a line, goes to stdout.

    Args:
        index: an index folder, made by the verb index.
        text: words to search with.
        video: a clip to search with.
        image: a picture to search with.
        audio: a sound file to search with.
        id: items of the index; the result is what is most like them (like the mean of their vectors), without
            themselves.
        queries: a file of queries: .jsonl with rows as in queries.jsonl, of any modality, or .txt with one
            text a line; - reads either from stdin.
        query_vectors: queries as vectors: a vectors folder, or a .npy file of (queries, dimensions), norm 1.
        k: number of results per query.
        filter: what may be found: "topic=news", "topic=news,sport" (one of them), "id=talks/*", "start>=60",
            "duration<30"; a key is a group, id, text, video, image, audio, start, end or duration. With
            several, all must hold.
        min_score: leaves out results with a lower cosine.
        dedupe: one result per "video" (or "image" or "audio") file, its best segment.
        embedder: what embeds the query; by default what the index was made with. Another one than that is
            refused, wherever it lies.
        search_parameters: names and values of the index's engine, such as nprobe=64 or efSearch=256 (more is
            slower and misses less); by default what the index was built with.
        mmap: leaves the index on disk and reads what the search touches, for an index larger than memory.
        json: prints JSON lines: rank, score, id, and what is known of the item. Many queries are always
            answered so, unless there is a run to write.
        run: with queries or query_vectors: a TREC run file to write instead of printing.
        batch_size: with queries or query_vectors: queries per call; 0: 1024 texts or vectors, or 32 of a file
            with media.
        max_failures: with queries: how many may fail: a count, or a share of all if below 1 (0.01 is 1%).

    Raises:
        RefusedRequest: not exactly one question, or the index or the embedder does not take it; nothing was
            written.
        TooManyFailures: more queries failed than allowed; the others were answered.
    """
    asked = {"text": text, "video": video, "image": image, "audio": audio, "id": id, "queries": queries,
             "query_vectors": query_vectors}  # fmt: skip
    question = _the_question(asked)
    refuse_bad_batches(batch_size=batch_size, max_failures=max_failures)
    many = {"run": run, "batch_size": batch_size, "max_failures": max_failures}
    _refuse_without_effect(many | {"json": json}, asked)
    if run is not None:
        _refuse_existing(run)
    wanted = Wanted(k, parse_filters(filter or []), min_score, dedupe)
    opened = Searcher.open(index, embedder=embedder, search_parameters=search_parameters, mmap=mmap)
    with opened as searcher:
        if queries is not None:
            with checked_queries(queries, searcher.index.card, max_failures=max_failures) as found:
                batches, count = query_batches(found, searcher, batch_size), len(found.items)
                answer(searcher, batches, wanted, count=count, run=run, max_failures=max_failures)
        elif query_vectors is not None:
            count = count_vectors(query_vectors, searcher.index)
            batches = vector_batches(query_vectors, searcher.index, batch_size)
            answer(searcher, batches, wanted, count=count, run=run)
        elif isinstance(question, Item):
            _print(searcher.ask([question], wanted)[0], json)
        else:
            _print(searcher.ask_like(question or [], wanted), json)


def _the_question(asked: Mapping[str, Any]) -> Item | list[str] | None:
    """What was asked, checked as far as that needs no index: an item, ids of some; None: many queries."""
    given = {name: value for name, value in asked.items() if value is not None}
    if len(given) != 1:
        named = ", ".join(f"--{name}" for name in given) or "none"
        options = [f"--{name}" for name in asked]
        raise RefusedRequest(
            f"a search takes exactly one of {', '.join(options[:-1])} and {options[-1]}; given: {named}."
        )
    [(name, value)] = given.items()
    if name == "id":
        return [value] if isinstance(value, str) else list(value)
    if name == "text":
        if not value.strip():
            raise RefusedRequest("--text is empty; give words to search with.")
        return Item("query", text=value)
    path = Path(value)
    if name == "query_vectors":
        if not path.exists():
            raise RefusedRequest(f"--{name} {path} does not exist; give a vectors folder or a .npy file.")
    elif not path.is_file() and not (name == "queries" and path == STDIN):
        state = "is a folder" if path.is_dir() else "does not exist"
        raise RefusedRequest(f"--{name} {path} {state}; give a file.")
    match name:
        case "video":
            return Item("query", video=path)
        case "image":
            return Item("query", image=path)
        case "audio":
            return Item("query", audio=path)
    return None


def _refuse_without_effect(given: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuses options that change nothing about this question."""
    defaults = inspect.signature(search).parameters
    changed = [name for name, value in given.items() if value != defaults[name].default]
    many = [name for name in _MANY if asked[name] is not None]
    if not many:
        idle, why = [name for name in changed if name != "json"], "one question; they are for many queries"
    elif "run" in changed:
        idle, why = [name for name in changed if name == "json"], "a run, which is a TREC file"
    else:
        idle, why = [], ""
    if many == ["query_vectors"] and "max_failures" in changed:
        idle, why = ["max_failures"], "vectors, which are made already"
    if idle:
        raise RefusedRequest(
            f"{', '.join(f'--{name}' for name in idle)}: without effect on {why}; leave out."
        )


def _refuse_existing(run: Path) -> None:
    for path in (run, failures_file(run)):
        if path.exists():
            raise RefusedRequest(
                f"--run {run}: {path} exists already; give another name, or remove it first."
            )


def _print(hits: Sequence[Hit], json: bool) -> None:
    if not hits:
        log.info("nothing found")
    elif json:
        sys.stdout.writelines(dumps(hit.to_dict(), ensure_ascii=False) + "\n" for hit in hits)
    else:
        sys.stdout.write(drawn(hits))
