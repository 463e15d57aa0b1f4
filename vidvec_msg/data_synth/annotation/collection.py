"""Candidates and people's ratings → a collection with judgements, groups and a card."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from vidvec_msg.data_synth import funnel
from vidvec_msg.data_synth.annotation.account import account_of, told_of
from vidvec_msg.data_synth.annotation.candidates import Candidate, first_of_each, read_candidates
from vidvec_msg.data_synth.annotation.card import page
from vidvec_msg.data_synth.annotation.clip_sources import clip_files
from vidvec_msg.data_synth.annotation.ratings import Ratings, read_ratings, table_of
from vidvec_msg.data_synth.annotation.rule import NO_MAJORITY, VERY_LOW, Rule
from vidvec_msg.data_synth.annotation.verdicts import (
    NOT_RATED,
    Verdict,
    funnel_of,
    verdicts,
)
from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import write_collection
from vidvec_msg.formats.relevance import Qrels
from vidvec_msg.retrieval.collect.candidates import relative
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.runs import replacing, require_new, write_json, write_json_lines, write_text

log = logging.getLogger(__name__)

Grades = Literal["binary", "mean"]
Unrated = Literal["refuse", "leave_out"]
Missing = Literal["leave_out", "keep"]

MANIFEST = "ratings.json"  # written last
CARD, RATED, LEFT_OUT, PICTURE = "README.md", "ratings.jsonl", "left_out.jsonl", "funnel.png"
_ABOUT_A_CLIP = ("title", "description", "source", "duration", "keywords")
_CONTENT = ("transcript", "ocr", "start", "end")
_SHOWN = 20  # names that a message spells out


def collection_from_ratings(
    ranked: Path,
    ratings: Sequence[Path],
    out: Path,
    *,
    rule: Rule | None = None,
    per_message: int = 0,
    tasks: Path | None = None,
    columns: Mapping[str, str] | None = None,
    raters: Sequence[str] = (),
    files: Path | None = None,
    missing: Missing = "leave_out",
    unrated: Unrated = "refuse",
    grades: Grades = "binary",
    split: str = "test",
    title: str = "",
    licence: str | None = None,
    about: Mapping[str, Any] | None = None,
    max_failures: float = 0,
) -> Path:
    """Makes a collection of the candidates that people found to convey their message, by a rule.

    A clip without a file is a row with its title as text and its address in ``metadata``: it can be counted,
    shown and searched by its title, and nothing takes the address for a file.

    Args:
        ranked: ``ranked.jsonl``, one candidate a line.
        ratings: tables of ratings; :mod:`vidvec_msg.data_synth.annotation.ratings` says which.
        out: the collection to make.
        rule: when a candidate stays; VidMsg's rule if not given.
        per_message: candidates of each message that people were asked about, the best ranked; 0 takes all.
        tasks: ``tasks.csv`` that was given out: other candidates are not missed.
        columns: heading per role (task, message, clip, rater, rating, status) of tables with other headings.
        raters: headings of the people's columns in wide tables, where others could be taken for one.
        files: folder of clips, or a table with clip_id and file. Clips stay where they are.
        missing: with files, what happens to a clip without one: "leave_out" lists it and leaves it and its
            judgements out; "keep" writes it with its title alone.
        unrated: what happens to candidates that nobody rated.
        grades: of the judgements: "binary" (1), or "mean", the mean rating rounded to a whole number.
        split: name of the qrels.
        title: of the collection, for its card.
        licence: of messages and ratings, for the card, for example cc-by-4.0.
        about: further facts for the card: where messages and clips came from, models, hashes.
        max_failures: clips without a file that may be left out: a count, or a share of all if below 1.

    Returns:
        the collection.

    Raises:
        RefusedRequest: every problem of the request, the ratings and the files in one message; nothing was
            written.
        TooManyFailures: the collection was written, with more clips left out than allowed.
    """
    rule = rule or Rule()
    problems = Problems("collection from ratings")
    _check_options(problems, out, missing, unrated, grades, per_message)
    note_max_failures(max_failures, problems)
    candidates = _asked_about(ranked, per_message, tasks, problems)
    given = read_ratings(ratings, candidates, problems, columns=columns, raters=raters)
    found = verdicts(candidates, given, rule)
    if len(given.files) == len(ratings):  # of a file that cannot be read nobody knows whom it holds
        _check_ratings(problems, given, found, rule, unrated)
    kept = [one for one in found if one.stays]
    paths, lost = clip_files([one.candidate for one in kept], files, problems)
    problems.refuse_if_any()
    without = {one.item for one in lost} if files is not None and missing == "leave_out" else set()
    stays = [one for one in kept if one.candidate.clip_id not in without]
    if not stays:
        raise RefusedRequest(_nothing_left(found, kept, lost))
    way = funnel_of(found)
    left_out = [one for one in lost if one.item in without]
    if left_out:
        way.append(funnel.Stage("with a file", len(kept), {"no file": len(kept) - len(stays)}))
    account = {
        "title": title or "Messages and clips that people found to convey them",
        "licence": licence,
        "about": dict(about or {}),
        "rule": asdict(rule),
        "grades": grades,
        "split": split,
        **account_of(found, stays, given, way, left_out, paths),
    }
    _write(out, found, stays, paths, left_out, way, account, grades, split)
    sys.stdout.write(told_of(account, way))
    log.info("made %s: vidvec-msg evaluate --collection %s --embedder SPEC --out E", out, out)
    clips = len({one.candidate.clip_id for one in kept})
    _refuse_too_many(left_out, allowed_failures(max_failures, clips), out)
    return out


# --- what is asked ----------------------------------------------------------------------------------------


def _check_options(
    problems: Problems, out: Path, missing: str, unrated: str, grades: str, per_message: int
) -> None:
    for name, value, accepted in (
        ("missing", missing, ("leave_out", "keep")),
        ("unrated", unrated, ("refuse", "leave_out")),
        ("grades", grades, ("binary", "mean")),
    ):
        if value not in accepted:
            problems.add(f"{name} is {value!r}; it is {' or '.join(accepted)}")
    if per_message < 0:
        problems.add(f"per_message is {per_message}; it is 0 (all) or more")
    try:
        require_new(out, option="--out")
    except RefusedRequest as refusal:
        problems.add(str(refusal))


def _asked_about(ranked: Path, per_message: int, tasks: Path | None, problems: Problems) -> list[Candidate]:
    """The candidates that people were asked about."""
    candidates = first_of_each(read_candidates(ranked), max(per_message, 0))
    if tasks is None:
        return candidates
    try:
        header, rows = table_of(tasks)
        place = header.index("task_id")
    except (RefusedRequest, ValueError) as error:
        told = str(error) if isinstance(error, RefusedRequest) else f"{tasks} has no column task_id"
        problems.add(f"tasks: {told}")
        return candidates
    named = {row[place].strip() for _, row in rows if len(row) > place}
    unknown = sorted(named - {one.task for one in candidates})
    if unknown:
        problems.add(f"tasks: {len(unknown)} tasks of {tasks} are of other candidates, such as {unknown[0]}")
    return [one for one in candidates if one.task in named]


def _check_ratings(
    problems: Problems, given: Ratings, found: Sequence[Verdict], rule: Rule, unrated: str
) -> None:
    if len(given.raters) == 1 and rule.least_raters > 1:
        problems.add(
            f"one rater only ({given.raters[0]}): neither a majority nor any agreement can be computed. Give "
            "the files of others too, or a rule with least_raters: 1"
        )
    nobody = [one.candidate for one in found if one.failed == (NOT_RATED,)]
    if given.of_task and nobody and unrated == "refuse":
        names = ", ".join(f"{one.clip_id} of {one.message_id}" for one in nobody[:_SHOWN])
        more = f", … {len(nobody) - _SHOWN} more" if len(nobody) > _SHOWN else ""
        problems.add(
            f"nobody rated {len(nobody)} of {len(found)} candidates: {names}{more}. If nobody was asked "
            "about them, give the tasks.csv that was given out (tasks), or per_message; unrated leave_out "
            "leaves them out"
        )


def _nothing_left(found: Sequence[Verdict], kept: Sequence[Verdict], lost: Sequence[Failure]) -> str:
    if not kept:
        counts = Counter(one.failed[0] for one in found)
        told = ", ".join(f"{reason}: {count}" for reason, count in counts.most_common())
        return f"no candidate of {len(found)} meets the rule ({told}); nothing was written"
    return (
        f"none of the {len(kept)} candidates that meet the rule has a file, for example {lost[0].item}: "
        f"{lost[0].reason}. Give their folder or a table (files), or missing keep"
    )


# --- the folder -------------------------------------------------------------------------------------------


def _write(
    out: Path,
    found: Sequence[Verdict],
    stays: Sequence[Verdict],
    paths: Mapping[str, Path],
    left_out: Sequence[Failure],
    way: Sequence[funnel.Stage],
    account: Mapping[str, Any],
    grades: Grades,
    split: str,
) -> None:
    clips = {one.candidate.clip_id: one.candidate for one in reversed(stays)}  # the first message's row
    messages = {one.candidate.message_id: one.candidate for one in stays}
    write_collection(
        out,
        corpus=[_clip_row(clips[name], paths, out.resolve()) for name in reversed(clips)],
        queries=[_message_row(one) for one in messages.values()],
        qrels={split: _qrels(found, messages.keys(), clips.keys(), grades)},
    )
    write_json_lines(out / RATED, [one.row() for one in found])
    write_json_lines(out / LEFT_OUT, [asdict(one) for one in left_out])
    with replacing(out / PICTURE) as temporary:
        funnel.draw(way, temporary)
    write_text(out / CARD, page(account, way, [one.candidate for one in stays]))
    write_json(out / MANIFEST, account)


def _clip_row(one: Candidate, paths: Mapping[str, Path], out: Path) -> dict[str, Any]:
    """A row of the corpus. The title of a clip that can be seen is not content: it may say the message."""
    path = paths.get(one.clip_id)
    row: dict[str, Any] = {"_id": one.clip_id}
    if path is not None:
        row["video"] = relative(path, out)
        row |= {name: one.row[name] for name in _CONTENT if one.row.get(name) not in (None, "")}
    else:
        words = ("title", "description", "clip_id") if one.video else ("text",)
        row["text"] = next(filter(None, map(one.get, words)))
    if one.topic:
        row["groups"] = {"topic": one.topic}
    about = {name: one.row[name] for name in _ABOUT_A_CLIP if one.row.get(name) not in (None, "")}
    return {**row, "metadata": ({"url": one.video} if one.video else {}) | about}


def _message_row(one: Candidate) -> dict[str, Any]:
    row: dict[str, Any] = {"_id": one.message_id, "text": one.message}
    return row | ({"groups": {"topic": one.topic}} if one.topic else {})


def _qrels(
    found: Sequence[Verdict], messages: Container[str], clips: Container[str], grades: Grades
) -> Qrels:
    """What stays is relevant. What people found to convey too little is judged, and not relevant (0); what is
    too obvious, or rated by too few, is not judged."""
    qrels: Qrels = {}
    for one in found:
        message, clip = one.candidate.message_id, one.candidate.clip_id
        if message not in messages or clip not in clips:
            continue
        if one.stays:
            mean = one.mean or 0.0
            qrels.setdefault(message, {})[clip] = 1 if grades == "binary" else int(mean + 0.5)
        elif set(one.failed) <= {VERY_LOW, NO_MAJORITY}:
            qrels.setdefault(message, {})[clip] = 0
    return qrels


def _refuse_too_many(left_out: Sequence[Failure], allowed: int, out: Path) -> None:
    if len(left_out) > allowed:
        raise TooManyFailures(
            f"{len(left_out)} clips have no file and {allowed} may (max_failures); the collection holds the "
            f"others, the reasons are in {out / LEFT_OUT}: {first_failures(left_out, len(left_out))}"
        )
