"""Candidates → tasks for people: a table for crowd platforms, and a page to work through at home."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.data_synth.annotation.assignment import assigned
from vidvec_msg.data_synth.annotation.candidates import Candidate, first_of_each, read_candidates
from vidvec_msg.data_synth.annotation.page import rating_page
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.runs import file_digest, replacing, require_new, set_aside, write_json, write_text

log = logging.getLogger(__name__)

TASKS, PAGE, RATERS, MANIFEST = "tasks.csv", "rate.html", "raters", "tasks.json"
COLUMNS = ("task_id", "message_id", "message", "topic", "clip_id", "video", "text", "duration", "raters")
"""What a rater may see. Title, keywords and rank stay out: they would tell what the clip was found by."""


def export_tasks(
    ranked: Path,
    out: Path,
    *,
    per_message: int = 0,
    raters: Sequence[str] = (),
    raters_per_task: int = 3,
    title: str = "",
    seed: int = 0,
) -> Path:
    """Writes tasks: whether a clip conveys a message, one a row, in an order drawn by seed.

    ``tasks.csv`` is what crowd platforms take: a task a row, the same id in every export. ``rate.html`` is
    the same for one person at a time. With names, each person has a table and a page of their own in
    ``raters/``. A table that was changed since, as by somebody who wrote ratings into it, gets another name
    and is not overwritten.

    Args:
        ranked: ``ranked.jsonl``, one candidate a line.
        out: folder to make, or an earlier export, whose tasks are replaced; other files in it stay.
        per_message: candidates of each message, the best ranked; 0 takes all.
        raters: names of the people, if who rates what is decided here.
        raters_per_task: people a task, where names are given.
        title: shown on the page; the name of the candidates' folder if empty.
        seed: of the order, and of who rates what.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request or the candidates; nothing was written.
    """
    _refuse_bad_request(out, per_message, raters, raters_per_task)
    raters = [name.strip() for name in raters]
    chosen = first_of_each(read_candidates(ranked), per_message)
    tasks = _shuffled(chosen, [seed])
    who = assigned([one.task for one in tasks], raters, raters_per_task, seed=seed) if raters else {}
    title = title or ranked.resolve().parent.name
    ours = _digests(out / MANIFEST)
    tables = [_write(out, tasks, who, title, ours)]
    for name in raters:
        own = _shuffled([one for one in chosen if name in who[one.task]], [seed, *name.encode()])
        only = {one.task: [name] for one in own}
        tables.append(_write(out / RATERS / file_name(name), own, only, title, ours, name=name))
    write_json(
        out / MANIFEST,
        {
            "candidates": file_digest(ranked),
            "tasks": len(tasks),
            "messages": len({one.message_id for one in tasks}),
            "clips": len({one.clip_id for one in tasks}),
            "without_file_or_address": sum(map(_cannot_be_shown, tasks)),
            "per_message": per_message,
            "raters": dict(Counter(name for names in who.values() for name in names)),
            "raters_per_task": raters_per_task if raters else None,
            "seed": seed,
            "tables": {one.relative_to(out).as_posix(): file_digest(one) for one in tables},
        },
    )
    _tell(out, tasks)
    return out


def file_name(rater: str) -> str:
    """The name of a rater's folder: letters, digits, dashes."""
    return re.sub(r"[^\w-]+", "_", rater)


def _shuffled(candidates: Sequence[Candidate], seed: Sequence[int]) -> list[Candidate]:
    order = np.random.default_rng(seed).permutation(len(candidates))
    ordered = sorted(candidates, key=lambda one: one.task)  # the file's order must not decide
    return [ordered[place] for place in order]


def _write(
    folder: Path,
    tasks: Sequence[Candidate],
    who: Mapping[str, Sequence[str]],
    title: str,
    ours: Collection[str],
    *,
    name: str = "",
) -> Path:
    """Table and page of one folder; returns the table. ``ours``: digests of the tables as they were made."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(_row(one, who.get(one.task, ())) for one in tasks)
    # without a byte-order mark: a platform would take it for a part of the first column's name
    content = text.getvalue().encode()
    table = folder / TASKS
    if table.is_file() and table.read_bytes() != content and file_digest(table) not in ours:
        kept = set_aside(table)
        log.warning("%s was changed since it was made: it is now %s, with what people wrote", table, kept)
    with replacing(table) as temporary:
        temporary.write_bytes(content)
    write_text(folder / PAGE, rating_page(tasks, folder, title=title, who=name))
    return table


def _digests(manifest: Path) -> Collection[str]:
    """Of the tables of an earlier export, as they were written."""
    if not manifest.is_file():
        return ()
    found = json.loads(manifest.read_text(encoding="utf-8")).get("tables", {})
    return [str(one) for one in found.values()]


def _row(one: Candidate, who: Sequence[str]) -> dict[str, Any]:
    return {
        "task_id": one.task,
        "message_id": one.message_id,
        "message": _inert(one.message),
        "topic": _inert(one.topic),
        "clip_id": one.clip_id,
        "video": one.video,
        "text": "" if one.video else _inert(one.get("text")),
        "duration": one.get("duration"),
        "raters": " | ".join(who),
    }


def _inert(words: str) -> str:
    """Words that no spreadsheet takes for a formula. Ids stay as they are: ratings come back by them."""
    return f"'{words}" if words.startswith(("=", "+", "-", "@", "\t", "\r")) else words


def _cannot_be_shown(one: Candidate) -> bool:
    return bool(one.video) and one.file is None and not one.address


def _tell(out: Path, tasks: Sequence[Candidate]) -> None:
    lost = [one.video for one in tasks if _cannot_be_shown(one)]
    if lost:
        log.warning(
            "%d of %d tasks have neither a file nor an address that a browser opens, for example %s",
            len(lost), len(tasks), lost[0],
        )  # fmt: skip
    log.info("made %s: %d tasks; open %s, or give %s to a platform", out, len(tasks), out / PAGE, out / TASKS)


def _refuse_bad_request(out: Path, per_message: int, raters: Sequence[str], raters_per_task: int) -> None:
    problems = Problems("cannot export tasks")
    check_request(problems, per_message, raters, raters_per_task)
    try:
        require_new(out, option="--out", resumable=MANIFEST)
    except RefusedRequest as refusal:
        problems.add(str(refusal))
    problems.refuse_if_any()


def check_request(
    problems: Problems, per_message: int = 0, raters: Sequence[str] = (), raters_per_task: int = 3
) -> None:
    """Notes what is wrong with options of :func:`export_tasks`, before there are candidates."""
    if per_message < 0:
        problems.add(f"per_message is {per_message}; it is 0 (all) or more")
    names = [name.strip() for name in raters]
    if not all(names):
        problems.add("raters: a name is empty")
    same = [name for name, count in Counter(map(file_name, names)).items() if count > 1]
    if same:
        problems.add(f"raters: {', '.join(same)} stands twice; names must differ in letters or digits")
    if raters and not 1 <= raters_per_task <= len(raters):
        problems.add(
            f"raters_per_task is {raters_per_task}; it lies between 1 and the {len(raters)} named raters"
        )
