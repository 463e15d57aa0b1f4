"""The judgements of a collection: who has positives, whether they can be found, and where the border runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.items import Item
from vidvec_msg.formats.relevance import Qrels, positives, reverse
from vidvec_msg.retrieval.doctor.finding import Finding, counted, not_applicable
from vidvec_msg.retrieval.evaluation.held_apart import shared_queries
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.retrieval.near_texts import near_pairs

_MOST_TEXTS = 100_000  # of a side that are compared; ten times as many take minutes


def without_positives(collection: Collection) -> Finding:
    """Judged queries without a relevant document, and queries that no split names."""
    cases = []
    named: set[str] = set()
    for split, qrels in collection.qrels.items():
        named |= qrels.keys()
        fine = positives(qrels)
        cases += [f"{split}: {query!r} has no positive" for query in qrels if query not in fine]
    cases += [f"{query.id!r} is in no split" for query in collection.queries if query.id not in named]
    return counted(
        "queries without positives", cases, otherwise="warn",
        what="queries without a positive, or in no split", none="every query has a positive",
        advice="evaluate leaves them out and counts them; other tools count 0 or 1",
    )  # fmt: skip


def unreachable(collection: Collection) -> Finding:
    """Judgements of documents or queries that the collection does not have."""
    documents = {item.id for item in collection.corpus}
    queries = {item.id for item in collection.queries}
    cases = []
    lost = 0
    for split, qrels in collection.qrels.items():
        for query, judged in qrels.items():
            for document, grade in judged.items():
                if query not in queries:
                    cases.append(f"{split}: query {query!r} does not exist")
                elif document not in documents:
                    cases.append(f"{split}: document {document!r} of query {query!r} does not exist")
                    lost += grade > 0
    return counted(
        "unreachable positives", cases, otherwise="fail",
        what=f"judgements of unknown items ({lost} positives that nobody can find)",
        none="every judgement is of items that are there",
        advice="complete the corpus, or evaluate with --unreachable keep and say so",
    )  # fmt: skip


def positives_per_query(collection: Collection) -> Finding:
    """How many relevant documents a query has, least, median and most; per split."""
    told = []
    most = 0
    for split, qrels in collection.qrels.items():
        counts = [len(found) for found in positives(qrels).values()]
        if counts:
            told.append(f"{split} {min(counts)}–{np.median(counts):g}–{max(counts)} of {len(counts)} queries")
            most = max(most, *counts)
    if not told:
        return Finding("positives per query", "fail", 0, "no query has a positive", "nothing can be measured")
    return Finding("positives per query", "ok", most, f"least–median–most: {'; '.join(told)}")


def never_relevant(collection: Collection) -> Finding:
    """Documents that no query of any split asks for: distractors."""
    wanted = {
        document
        for qrels in collection.qrels.values()
        for found in positives(qrels).values()
        for document in found
    }
    unasked = [repr(item.id) for item in collection.corpus if item.id not in wanted]
    total = len(collection.corpus)
    found = f"{len(unasked)} of {total} documents are relevant to no query ({len(unasked) / total:.0%})"
    return Finding("documents never relevant", "ok", len(unasked), found, examples=tuple(unasked[:3]))


def overlapping_splits(collection: Collection) -> Finding:
    """Queries of one split that are queries of another, in either direction, by what they hold."""
    sides = {
        split: Sides.of(collection, split, "split")
        for split, qrels in collection.qrels.items() if positives(qrels)
    }  # fmt: skip
    if len(sides) < 2:
        return not_applicable("overlapping splits", "there are no two splits with positives")
    cases = []
    total = 0
    files: dict[Path, str] = {}
    for one, other in combinations(sides, 2):
        for number, told in shared_queries(
            sides[one], sides[other], same_folder=True, called=one, files=files
        ):
            total += number
            cases.append(f"{one} and {other}: {told}")
    if not cases:
        return Finding("overlapping splits", "ok", 0, f"{len(sides)} splits share no query, either way")
    return Finding(
        "overlapping splits", "warn", total, f"queries, either way, that stand in two splits: {total}",
        "what is chosen on one split is not measured honestly on the other, and is refused there",
        tuple(cases[:3]),
    )  # fmt: skip


def across_the_border(collection: Collection) -> Finding:
    """Texts that are almost the same, one of them relevant to something that the other is not relevant to."""
    cases = []
    left_out = 0
    for side, items in (("corpus", collection.corpus), ("queries", collection.queries)):
        texts = [item for item in items if item.modality == "text" and item.full_text]
        left_out += max(len(texts) - _MOST_TEXTS, 0)
        cases += list(_border(side, texts[:_MOST_TEXTS], collection.qrels))
    late = f" ({left_out} texts not compared: at most {_MOST_TEXTS} a side)" if left_out else ""
    return counted(
        "near-duplicate texts", cases, otherwise="warn",
        what=f"pairs of near-identical texts that are judged differently{late}",
        none=f"no near-identical texts are judged differently{late}",
        advice="whoever finds the unjudged twin is punished for it: judge both alike, or merge them",
    )  # fmt: skip


def _border(side: str, texts: Sequence[Item], splits: Mapping[str, Qrels]) -> Iterator[str]:
    pairs = near_pairs([item.full_text for item in texts])
    if not pairs:
        return
    for split, qrels in splits.items():
        partners: dict[str, set[str]] = defaultdict(set)
        found = positives(qrels) if side == "queries" else reverse(positives(qrels))
        for name, others in found.items():
            partners[name] |= others.keys()
        for one, other, likeness in pairs:
            first, second = texts[one].id, texts[other].id
            if side == "queries" and not (first in qrels and second in qrels):
                continue  # a query that the split does not ask is not on either side of its border
            for relevant, double in ((first, second), (second, first)):
                if alone := sorted(partners.get(relevant, set()) - partners.get(double, set())):
                    yield (
                        f"{split}, {side}: {double!r} is {likeness:.0%} like {relevant!r}, which alone is "
                        f"relevant to {alone[0]!r}"
                    )
                    break
