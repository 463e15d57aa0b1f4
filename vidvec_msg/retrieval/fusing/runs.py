"""Evaluation folders → their lists, and both directions' numbers of the lists joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vidvec_msg.errors import Failure, RefusedRequest
from vidvec_msg.formats.collections import Collection
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.formats.trec import run_writer
from vidvec_msg.retrieval.comparison.evaluated_runs import EvaluatedRun, Way
from vidvec_msg.retrieval.evaluation.directions import Direction, Evaluation, score_ranked
from vidvec_msg.retrieval.evaluation.groups import add_groups
from vidvec_msg.retrieval.evaluation.ranked import Embedded, Options, Ranked, rank_lists
from vidvec_msg.retrieval.evaluation.ranking import Gold
from vidvec_msg.retrieval.evaluation.scoring import groups_of_sides, side_names
from vidvec_msg.retrieval.evaluation.sides import Sides
from vidvec_msg.retrieval.fusing.lists import Lists, fused_scores, read_lists
from vidvec_msg.retrieval.fusing.recipe import Recipe


def sides_of(runs: Sequence[EvaluatedRun], collection: Path | None) -> Sides:
    """Who takes part in these runs, from their collection.

    Args:
        runs: of the same data.
        collection: where it is now; None for where the first run found it.

    Raises:
        RefusedRequest: it is not there, or no longer the one that was evaluated.
    """
    first = runs[0].report
    folder = Path(collection or first["collection"])
    if not (folder / "corpus.jsonl").is_file():
        raise RefusedRequest(
            f"the collection of {runs[0].folder} is not at {folder} (seen from {Path.cwd()}); say where "
            "it is now with --collection"
        )
    loaded = Collection.load(folder, split=first["split"], unreachable=first["unreachable"])
    sides = Sides.of(loaded, first["split"], first["pool"])
    if sides.identity() != first["data"]:
        raise RefusedRequest(
            f"collection {folder} is not the one that {runs[0].folder} was made from: its ids or judgements "
            "differ; evaluate again, or give the right one with --collection"
        )
    return sides


def lists_of(runs: Sequence[EvaluatedRun], sides: Sides, way: Way) -> list[Lists]:
    """The lists of one direction, of each run."""
    candidates = [item.id for item in (sides.corpus if way == "forward" else sides.queries)]
    return [read_lists(run.folder / "runs" / f"{way}.trec", run.name, candidates) for run in runs]


def score_fused(
    lists: Mapping[Way, Sequence[Lists]],
    sides: Sides,
    recipes: Mapping[Way, Recipe],
    options: Options,
    out: Path,
) -> Evaluation:
    """Joins the lists of both directions, writes them to ``runs/``, and adds the means per group.

    Args:
        lists: of both directions, of each run.
        sides: who takes part.
        recipes: how the lists of a direction are joined.
        options: how they are scored.
        out: the evaluation folder.
    """
    left, right = side_names(sides)
    corpus, queries = [item.id for item in sides.corpus], [item.id for item in sides.queries]
    backwards = {d: judged for d, judged in sides.backwards.items() if any(g > 0 for g in judged.values())}
    forward = _direction(
        lists["forward"], queries, corpus, sides.qrels, recipes["forward"], options, f"{left} → {right}",
        out / "runs" / "forward.trec",
    )  # fmt: skip
    reverse = _direction(
        lists["reverse"], corpus, queries, backwards, recipes["reverse"], options, f"{right} → {left}",
        out / "runs" / "reverse.trec",
    )  # fmt: skip
    of_queries, of_corpus = groups_of_sides(sides)
    return Evaluation(add_groups(forward, of_queries), add_groups(reverse, of_corpus))


def partial_queries(lists: Sequence[Lists]) -> int:
    """Queries that some of the runs have and others lack."""
    everywhere = set.intersection(*(set(one.of) for one in lists))
    return len(set().union(*(one.of for one in lists)) - everywhere)


def _direction(
    lists: Sequence[Lists],
    queries: Sequence[str],
    candidates: Sequence[str],
    qrels: Qrels,
    recipe: Recipe,
    options: Options,
    label: str,
    path: Path,
) -> Direction:
    listed = set().union(*(one.of for one in lists))
    asking = [query for query in queries if query in listed]
    missing = [Failure(query, "no run has a list of it") for query in queries if query not in listed]

    def rank(chosen: Embedded, gold: Gold) -> Ranked:
        scores = fused_scores(lists, chosen.ids, candidates, recipe)
        with run_writer(path, tag=recipe.method) as write:
            return rank_lists(scores, chosen.ids, candidates, gold, options, write)

    return score_ranked(
        _without_vectors(asking, missing), _without_vectors(candidates), qrels, options, label, rank
    )


def _without_vectors(ids: Sequence[str], failures: Sequence[Failure] = ()) -> Embedded:
    """A side that is ranked from lists: its vectors, ``(items, 0)``, are not looked at."""
    return Embedded(ids, np.empty((len(ids), 0), dtype=np.float32), failures)
