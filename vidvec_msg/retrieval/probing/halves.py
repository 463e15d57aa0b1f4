"""The queries that choose and the queries that tell: two splits of a collection, or one that is halved."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, positives
from vidvec_msg.retrieval.evaluation.directions import Pool
from vidvec_msg.retrieval.evaluation.held_apart import alike, refuse_shared_queries, shown_by
from vidvec_msg.retrieval.evaluation.sides import Sides


@dataclass(frozen=True)
class Halves:
    """Who chooses and who tells.

    Args:
        validation: items and judgements of the choice.
        test: those of the numbers that are reported.
        how: where the two come from, for people.
        corpus: documents of either, each once, in the collection's order: another seed halves the same items.
        queries: queries of either, likewise.
    """

    validation: Sides
    test: Sides
    how: str
    corpus: tuple[Item, ...]
    queries: tuple[Item, ...]

    @classmethod
    def of(cls, collection: Collection, validation: Sides, test: Sides, how: str) -> Halves:
        """Both, and whose items are needed."""
        documents = {item.id for item in (*validation.corpus, *test.corpus)}
        queries = {item.id for item in (*validation.queries, *test.queries)}
        return cls(
            validation,
            test,
            how,
            tuple(item for item in collection.corpus if item.id in documents),
            tuple(item for item in collection.queries if item.id in queries),
        )

    def to_dict(self) -> dict[str, Any]:
        """For a manifest."""
        parts = {
            name: {
                "queries": len(sides.queries),
                "documents": len(sides.corpus),
                "identity": sides.identity(),
            }
            for name, sides in (("validation", self.validation), ("test", self.test))
        }
        return {"how": self.how, **parts}


def read_halves(
    collection: Path,
    *,
    test: str,
    validation: str | None,
    share: float,
    keep_together: str | None,
    pool: Pool,
    seed: int,
    what: str,
) -> Halves:
    """Reads a collection and says which queries choose.

    Args:
        collection: the folder.
        test: split whose numbers are reported, or that is halved.
        validation: split that chooses; None halves ``test``, see :func:`halved`.
        share: of the queries that choose, when it is halved.
        keep_together: group of the queries that stays on one side, when it is halved.
        pool: candidates of the forward direction: the whole "corpus", or the documents that the "split"
            names.
        seed: of the halving.
        what: is chosen, for messages: "the layer".

    Raises:
        RefusedRequest: the collection is faulty or has no judgements, the two share queries, or a split
            cannot be halved.
    """
    loaded = Collection.load(collection, split=test)
    if validation is not None:
        if validation == test:
            raise RefusedRequest(
                f"validation and test are both {test!r}; {what} must be chosen on queries that the test does "
                "not have. Name another split, or leave --validation out: the split is then halved."
            )
        choosing = Sides.of(Collection.load(collection, split=validation), validation, pool)
        telling = Sides.of(loaded, test, pool)
        refuse_shared_queries(telling, choosing, what=what, same_folder=True)
        return Halves.of(loaded, choosing, telling, f"splits {validation} and {test} of the collection")
    Sides.of(loaded, test, pool)  # refuses a split without positives
    parts = halved(loaded, test, share=share, keep_together=keep_together, seed=seed)
    both = dataclasses.replace(loaded, qrels=dict(zip(("validation", "test"), parts, strict=True)))
    together = "" if keep_together is None else f", queries of one {keep_together} kept together"
    how = f"split {test} halved by queries (seed {seed}, {share:.0%} choose{together})"
    return Halves.of(both, Sides.of(both, "validation", pool), Sides.of(both, "test", pool), how)


def halved(
    collection: Collection, split: str, *, share: float, keep_together: str | None, seed: int
) -> tuple[Qrels, Qrels]:
    """Judgements for validation and for test that share no query and no relevant item.

    Queries that share a relevant item, hold the same text or overlapping stretches of one medium, or have
    items that do, go together; so do a query and another one's item of the same words.
    Without a group to keep together the halves are drawn query by query as far as that allows.

    Args:
        collection: read.
        split: to be halved.
        share: of the queries, above 0 and below 1; at most so many choose, and at least one.
        keep_together: a group of the queries, such as "topic".
        seed: of the draw.

    Returns:
        judgements of validation and of test.

    Raises:
        RefusedRequest: the share is out of range, no query has the group, or all queries hang together.
    """
    if not 0 < share < 1:
        raise RefusedRequest(f"validation_share is {share}; it must be above 0 and below 1 (0.5 halves)")
    judged = collection.qrels[split]
    relevant = positives(judged)
    queries = {item.id: item for item in collection.queries if item.id in relevant}
    if keep_together is not None and not any(keep_together in item.groups for item in queries.values()):
        groups = sorted({key for item in queries.values() for key in item.groups})
        raise RefusedRequest(
            f"keep_together is {keep_together!r}, and no query has that group; the queries have "
            f"{', '.join(groups) or 'no groups'}"
        )
    needed = {one for query in queries for one in relevant[query]}
    files: dict[Path, str] = {}
    asking = shown_by(queries.values(), files)
    documents = shown_by((item for item in collection.corpus if item.id in needed), files)
    held = alike([*asking.values(), *documents.values()])
    links = {
        query: [
            ("content", held[asking[query]]),
            *(("content", held[documents[one]]) for one in relevant[query] if one in documents),
            *(("group", value) for key, value in item.groups.items() if key == keep_together),
        ]
        for query, item in queries.items()
    }
    parts = _connected(links)
    if len(parts) < 2:
        raise RefusedRequest(
            f"split {split!r} cannot be halved: its {len(queries)} queries hang together: by relevant items "
            "that they share, equal words, segments of one clip that overlap, or keep_together. Name other "
            "queries with --validation."
        )
    order = np.random.default_rng(seed).permutation(len(parts))
    most = max(1, int(share * len(queries)))
    chosen: set[str] = set()
    for number in order:
        if not chosen or len(chosen) + len(parts[number]) <= most:
            chosen.update(parts[number])
    if len(chosen) == len(queries):  # cannot be, with two parts and a share below 1, but for rounding
        chosen -= set(parts[order[-1]])
    first = {query: grades for query, grades in judged.items() if query in chosen}
    return first, {query: grades for query, grades in judged.items() if query in relevant.keys() - chosen}


def _connected(links: dict[str, list[Any]]) -> list[list[str]]:
    """Names that share a link, directly or through others; in the order of the first of each part."""
    part = {name: name for name in links}

    def root(name: str) -> str:
        while part[name] != name:
            part[name] = part[part[name]]
            name = part[name]
        return name

    owner: dict[Any, str] = {}
    for name, held in links.items():
        for link in held:
            part[root(name)] = root(owner.setdefault(link, name))
    found: dict[str, list[str]] = {}
    for name in links:
        found.setdefault(root(name), []).append(name)
    return list(found.values())
