"""A collection becomes an exam, and models take it; the verb ``mcq``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Any

from vidvec_msg.errors import Failure, Problems, RefusedRequest, TooManyFailures, first_failures
from vidvec_msg.formats.collections import Collection, missing_media
from vidvec_msg.formats.kept_digests import DIGESTS, digests_kept_in
from vidvec_msg.retrieval.benchmarks.published import published_for
from vidvec_msg.retrieval.config_file import claim, refuse_other
from vidvec_msg.retrieval.embed import allowed_failures, note_max_failures
from vidvec_msg.retrieval.mcq.answerer import Answerer
from vidvec_msg.retrieval.mcq.load import check_answerer, check_embedder, embedder_answerer, load_answerer
from vidvec_msg.retrieval.mcq.protocols import QUESTIONS, Exam, Protocol, VisualCheat, make_exam
from vidvec_msg.retrieval.mcq.question import Question
from vidvec_msg.retrieval.mcq.record import ANSWERS, Answers
from vidvec_msg.retrieval.mcq.sitting import CONTROL, SHOWN, Sitting, sit
from vidvec_msg.retrieval.mcq.summary import guessable, summary
from vidvec_msg.retrieval.mcq.tables import markdown_report, tables
from vidvec_msg.runs import only_writer, software_versions, write_json, write_text

log = logging.getLogger(__name__)

FORMAT = 1
REPORT = "report.json"  # written last


def mcq(
    collection: Path,
    out: Path,
    *,
    embedder: list[str] | None = None,
    answerer: list[str] | None = None,
    protocol: Protocol = "auto",
    split: str = "test",
    group: str = "topic",
    visual_cheat: VisualCheat = "omit",
    limit: int = 0,
    rotations: int = 1,
    control: bool = True,
    batch_size: int = 0,
    max_failures: float = 0,
    seed: int = 0,
    json: bool = False,
) -> Path:
    """Asks multiple-choice questions about clips; embedders and language models answer.

    Every answer is kept as soon as it is there; an interrupted exam goes on where it stopped, and a finished
    one asks only models that are new.

    Args:
        collection: folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; clips may be texts.
        out: the folder to make.
        embedder: embedders, which answer with the option nearest to the clip: folders, YAML files,
            module:Class, or short forms (st:NAME).
        answerer: language models. mllm:MODEL answers by the likelihood of the options' letters, or by
            writing (?read=generate); endpoint:MODEL?base_url=… is asked over HTTP with frames as images.
        protocol: "vidmsg" asks for the clip's message among five of its topic, "vhub" for its creative
            caption among descriptive ones of other clips, "avmeme" the collection's own questions.jsonl;
            "auto" chooses by what the collection holds.
        split: whose judgements say what is right.
        group: that the options of a question share (vidmsg).
        visual_cheat: of clips whose pictures show the answer (avmeme), "omit" the pictures, as its authors
            do: models that do not hear have no answer then; or "keep" them.
        limit: ask only so many questions, drawn by the seed; 0 asks all.
        rotations: further rounds for language models with every option 1, 2, … letters further.
        control: a round without the clip, which shows what the words alone give away.
        batch_size: items per call of an embedder; 0: 1024 texts, or 32 items with media.
        max_failures: questions that may stay without an answer: a count, or a share of all if below 1.
        seed: of the questions' options and their order.
        json: print report.json instead of the tables.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request or the collection; nothing was written.
        TooManyFailures: the report was written, with more questions without an answer than allowed.
    """
    specs = _checked(embedder or [], answerer or [], limit, rotations, max_failures)
    loaded = Collection.load(collection)
    exam = make_exam(
        loaded, protocol=protocol, split=split, seed=seed, group=group, visual_cheat=visual_cheat
    )
    questions = _limited(exam.questions, limit, seed)
    _refuse_missing(questions, max_failures)
    settings = {
        "collection": str(collection.resolve()), "protocol": exam.protocol, "split": split, "group": group,
        "limit": limit, "seed": seed, "visual_cheat": visual_cheat,
    }  # fmt: skip
    further = {"embedder": embedder, "answerer": answerer, "rotations": rotations, "control": control,
               "batch_size": batch_size, "max_failures": max_failures}  # fmt: skip
    # the same questions: then its answers count, whoever gave them; the collection may have been moved
    refuse_other(out, {**settings, **further}, what="exam", free=("collection", *further))
    out.mkdir(parents=True, exist_ok=True)
    with only_writer(out, what=f"--out {out}"), digests_kept_in(out / DIGESTS):
        claim(out, {**settings, **further}, REPORT)
        write_text(out / QUESTIONS, "".join(_line(one) for one in questions))
        answers = Answers(out / ANSWERS)
        sittings: list[Sitting] = []
        for spec, is_embedder in specs:
            model = (
                embedder_answerer(spec, out / "vectors", batch_size=batch_size)
                if is_embedder
                else load_answerer(spec)
            )
            _refuse_same(model, sittings)
            sittings.append(sit(model, questions, answers, spec=spec, rotations=rotations, control=control))
            del model  # the next one may need its memory
        answers.settle(key for one in sittings for key in one.keys)
        report = _report(collection, settings, exam, questions, sittings)
        write_text(out / "report.md", markdown_report(report))
        write_json(out / REPORT, report)
    sys.stdout.write(dumps(report, ensure_ascii=False, indent=2) + "\n" if json else tables(report))
    log.info("exam in %s: %s", out, out / "report.md")
    _refuse_too_many(sittings, allowed_failures(max_failures, len(questions)), out)
    return out


# --- what is asked for ----------------------------------------------------------------------------------


def _checked(
    embedders: Sequence[str], answerers: Sequence[str], limit: int, rotations: int, max_failures: float
) -> list[tuple[str, bool]]:
    """Specs, and whether each is an embedder's; refuses all that is wrong at once."""
    problems = Problems("cannot hold an exam")
    if not embedders and not answerers:
        problems.add("nobody answers: give --embedder SPEC, --answerer mllm:MODEL, or several of both")
    checks: list[tuple[Callable[[str], None], str]] = [(check_embedder, spec) for spec in embedders]
    checks += [(check_answerer, spec) for spec in answerers]
    for check, spec in checks:
        try:
            check(spec)
        except RefusedRequest as refusal:
            problems.add(str(refusal).replace("\n", "\n  "))
    for name, value in (("limit", limit), ("rotations", rotations)):
        if value < 0:
            problems.add(f"{name} is {value}; it must be 0 or more")
    note_max_failures(max_failures, problems)
    problems.refuse_if_any()
    return [(spec, True) for spec in embedders] + [(spec, False) for spec in answerers]


def _limited(questions: Sequence[Question], limit: int, seed: int) -> tuple[Question, ...]:
    """So many questions, in their order; a larger limit keeps those of a smaller one."""
    if not limit or limit >= len(questions):
        return tuple(questions)
    import hashlib

    def draw(one: Question) -> bytes:
        return hashlib.sha256(f"{seed}/{one.id}".encode()).digest()

    chosen = {one.id for one in sorted(questions, key=draw)[:limit]}
    return tuple(one for one in questions if one.id in chosen)


def _refuse_missing(questions: Sequence[Question], max_failures: float) -> None:
    clips = {one.clip.id: one.clip for one in questions}
    missing = missing_media(clips.values())
    if len(missing) > allowed_failures(max_failures, len(questions)):
        raise RefusedRequest(
            f"{len(missing)} of {len(clips)} clips have no file ({first_failures(missing, len(missing))}). "
            "Complete the collection, or allow it with --max_failures."
        )


def _refuse_same(model: Answerer, sittings: Sequence[Sitting]) -> None:
    for one in sittings:
        if one.fingerprint == model.fingerprint:
            raise RefusedRequest(f"{one.spec} is given twice, or under two names: it would count twice")


# --- the folder -----------------------------------------------------------------------------------------


def _report(
    collection: Path,
    settings: Mapping[str, Any],
    exam: Exam,
    questions: Sequence[Question],
    sittings: Sequence[Sitting],
) -> dict[str, Any]:
    """The content of ``report.json``."""
    guessers = sum(bool(one.rounds.get(CONTROL)) for one in sittings)
    flagged = guessable(sittings)
    published = [
        {"model": row.model, "value": row.values["accuracy"] / 100, "source": row.source}
        for row in published_for(collection)
        if (row.direction, row.setting) == ("multiple_choice", "overall")
    ]
    return {
        "format": FORMAT,
        "collection": collection.resolve().name,
        "protocol": exam.protocol,
        "split": settings["split"],
        "seed": settings["seed"],
        "questions": len(questions),
        "remarks": list(exam.remarks),
        "models": [summary(one, flagged) for one in sittings],
        "guessers": guessers,
        "guessable": flagged if guessers else None,
        "guessable_by_chance": sum(one.chance**guessers for one in questions) if guessers else None,
        "published": published if not settings["limit"] else [],
        "versions": software_versions(),
    }


def _line(question: Question) -> str:
    """A question as it is asked; the file can be given to people, or to ``--protocol avmeme`` elsewhere."""
    row = {
        "_id": question.id,
        "clip": question.clip.id,
        "question": question.words,
        "options": [option.text for option in question.options],
        "option_ids": [option.id for option in question.options],
        "answer": question.right,
        "groups": dict(question.groups),
    }
    return dumps(row, ensure_ascii=False) + "\n"


def _refuse_too_many(sittings: Sequence[Sitting], allowed: int, out: Path) -> None:
    told = []
    for one in sittings:
        failed: list[Failure] = one.failures[SHOWN]
        if len(failed) > allowed:
            shown = first_failures(failed, len(failed))
            told.append(f"{one.name} has no answer to {len(failed)} questions ({shown})")
    if told:
        raise TooManyFailures(
            f"{'. '.join(told)}; {allowed} may fail (max_failures). The report is in {out}."
        )
