"""Both sides' vectors → both directions' numbers, and what ``report.json`` says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vidvec_msg.formats.trec import run_writer
from vidvec_msg.retrieval.evaluation.confusion import message_confusions, topic_confusion
from vidvec_msg.retrieval.evaluation.directions import Evaluation, Options, Pool, score_forward, score_reverse
from vidvec_msg.retrieval.evaluation.dual_softmax import corrected, task_of
from vidvec_msg.retrieval.evaluation.groups import add_groups, group_values
from vidvec_msg.retrieval.evaluation.sides import Made, Sides, kind_of


def score_sides(sides: Sides, made: Made, options: Options, pool: Pool, out: Path) -> Evaluation:
    """Ranks both directions, writes their lists to ``runs/``, and adds the means per group.

    Args:
        sides: who takes part.
        made: their vectors.
        options: how they are scored.
        pool: candidates of the forward direction.
        out: the evaluation folder.
    """
    tag = made.card["name"]
    left, right = side_names(sides)
    with run_writer(out / "runs" / "forward.trec", tag=tag) as write:
        forward = score_forward(
            made.queries, made.corpus, sides.qrels, options, pool=pool, label=f"{left} → {right}", write=write
        )
    with run_writer(out / "runs" / "reverse.trec", tag=tag) as write:
        backward = score_reverse(
            made.corpus_as_queries,
            made.queries_as_documents,
            sides.qrels,
            options,
            label=f"{right} → {left}",
            write=write,
        )
    of_queries, of_corpus = groups_of_sides(sides)
    return Evaluation(add_groups(forward, of_queries), add_groups(backward, of_corpus))


def side_names(sides: Sides) -> tuple[str, str]:
    """What queries and corpus are, for labels: "text" and "video"."""
    left, right = kind_of(sides.queries), kind_of(sides.corpus)
    if left == right:  # "text → text" would not tell the directions apart
        left, right = f"{left} queries", f"{right} corpus"
    return left, right


def groups_of_sides(sides: Sides) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Groups of the queries of either direction: their own, and those that their positives share."""
    own, others = sides.groups()
    return (
        group_values([item.id for item in sides.queries], own, others, sides.qrels),
        group_values([item.id for item in sides.corpus], others, own, sides.backwards),
    )


def direction_parts(evaluation: Evaluation, sides: Sides, key: str) -> dict[str, Any]:
    """Both directions' parts of ``report.json``, with confusion matrices where items carry the group."""
    parts = evaluation.to_dict()
    own, others = sides.groups()
    qrels, backwards = sides.qrels, sides.backwards
    for name, direction, arguments in (
        ("forward", evaluation.forward, (own, others, qrels, backwards)),
        ("reverse", evaluation.reverse, (others, own, backwards, qrels)),
    ):
        topics = topic_confusion(direction, key, *arguments)
        within = message_confusions(direction, key, *arguments, messages_ask=name == "forward")
        parts[name]["confusion"] = (
            None
            if topics is None
            else {"topics": topics.to_dict(), "within": [matrix.to_dict() for matrix in within]}
        )
    return parts


def dual_softmax_parts(
    sides: Sides, made: Made, validation: Sides, made_validation: Made, options: Options
) -> dict[str, Any]:
    """Both directions' numbers with dual softmax."""
    forward, _ = corrected(
        task_of(made.queries, made.corpus, sides.qrels),
        task_of(made_validation.queries, made_validation.corpus, validation.qrels),
        options,
    )
    backward, _ = corrected(
        task_of(made.corpus_as_queries, made.queries_as_documents, sides.backwards),
        task_of(
            made_validation.corpus_as_queries, made_validation.queries_as_documents, validation.backwards
        ),
        options,
    )
    return {"forward": forward, "reverse": backward}
