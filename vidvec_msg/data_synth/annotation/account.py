"""What is known of a collection made from ratings: the content of ``ratings.json``, and its end in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth import funnel
from vidvec_msg.data_synth.annotation.ratings import Ratings
from vidvec_msg.data_synth.annotation.reliability import reliability
from vidvec_msg.data_synth.annotation.verdicts import Verdict, overlapping
from vidvec_msg.errors import Failure

_SHOWN = 20  # names that are spelled out


def account_of(
    found: Sequence[Verdict],
    stays: Sequence[Verdict],
    given: Ratings,
    way: Sequence[funnel.Stage],
    left_out: Sequence[Failure],
    paths: Mapping[str, Path],
) -> dict[str, Any]:
    """Counts, funnel and agreement.

    Args:
        found: all candidates.
        stays: those that are in the collection.
        given: the ratings.
        way: the funnel.
        left_out: clips without a file that are not in it.
        paths: clip id → file.
    """
    kept = {one.candidate.task for one in found if one.stays}
    of_message = Counter(one.candidate.message_id for one in stays)
    clips = {one.candidate.clip_id for one in stays}
    topics_of: dict[str, set[str]] = {}
    for one in stays:
        topics_of.setdefault(one.candidate.clip_id, set()).add(one.candidate.topic)
    asked = {one.candidate.message_id: one.candidate.message for one in found}
    return {
        "messages": len(of_message),
        "messages_without_a_clip": [name for name in asked if name not in of_message],
        "clips": len(clips),
        "clips_with_a_file": len(clips & paths.keys()),
        "texts": len({one.candidate.clip_id for one in stays if not one.candidate.video}),
        "clips_left_out": len(left_out),
        "clips_of_several_topics": sum(len(topics) > 1 for topics in topics_of.values()),
        "clips_of_a_message": {
            "least": min(of_message.values()),
            "mean": round(of_message.total() / len(of_message), 2),
            "most": max(of_message.values()),
        },
        "topics": dict(Counter(one.candidate.topic for one in stays if one.candidate.topic)),
        "files": given.files,
        "raters": dict(Counter(rater for ratings in given.of_task.values() for rater in ratings)),
        "ratings": dict(sorted(Counter(r for one in found for r in one.ratings.values()).items())),
        "most_ratings_of_a_candidate": max(map(len, given.of_task.values())),
        "cells_without_a_rating": given.missing,
        "rejected_assignments": given.rejected,
        "funnel": [
            {"step": one.name, "given": one.given, "left": one.left, "reasons": dict(one.codes)}
            for one in way
        ],
        "conditions_failed": overlapping(found),
        "agreement": {
            scale: {
                when: asdict(reliability(given.of_task, tasks=some, collapse=scale == "collapsed"))
                for when, some in (("all_rated", None), ("kept", kept))
            }
            for scale in ("raw", "collapsed")
        },
    }


def told_of(account: Mapping[str, Any], way: Sequence[funnel.Stage]) -> str:
    """What the terminal shows: the funnel, sizes, agreement, what was left out."""
    raw, alike = (account["agreement"][scale]["all_rated"]["kappa"] for scale in ("raw", "collapsed"))
    told = [f"{'undefined' if kappa is None else f'{kappa:.3f}'}" for kappa in (raw, alike)]
    without = account["messages_without_a_clip"]
    lines = [
        f"{account['messages']:,} messages, {account['clips']:,} clips ({account['clips_with_a_file']:,} "
        "with a file)",
        f"agreement of all rated: weighted kappa {told[0]} on 1-6, {told[1]} on the collapsed scale",
    ]
    if rejected := account["rejected_assignments"]:
        lines.append(f"assignments that the platform says were rejected, left out: {rejected:,}")
    if without:
        more = f", … {len(without) - _SHOWN} more" if len(without) > _SHOWN else ""
        lines.append(f"messages without a clip, left out: {', '.join(without[:_SHOWN])}{more}")
    return funnel.terminal_table(way) + "\n".join(lines) + "\n"
