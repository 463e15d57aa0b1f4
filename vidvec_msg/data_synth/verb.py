"""The verb ``synth``: personas → questions → answers → filters → pairs that ``fit`` takes as they are."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.asking import Online
from vidvec_msg.data_synth.batch_mode import Batches
from vidvec_msg.data_synth.chat import Sampling, Tally
from vidvec_msg.data_synth.estimate import estimate
from vidvec_msg.data_synth.licences import licence_of
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.personas import NEAR, Sample, sample_personas
from vidvec_msg.data_synth.prices import Price, price_of
from vidvec_msg.data_synth.questions import Kind, Outcome
from vidvec_msg.data_synth.refining import Refining
from vidvec_msg.data_synth.replies import ReplyStore, read_records
from vidvec_msg.data_synth.request import (
    Checked,
    Mode,
    StructuredOption,
    begin,
    check_request,
    settings_of,
)
from vidvec_msg.data_synth.synthesis import Synthesis, pair_of, read_pair
from vidvec_msg.errors import Problems, RefusedRequest, TooManyFailures
from vidvec_msg.formats.pairs import Pair
from vidvec_msg.retrieval.embedding.request import allowed_failures, note_max_failures

log = logging.getLogger(__name__)

REPLIES = "replies"
_DRY_PROMPTS = 10


def synth(
    personas: Path,
    model: str,
    out: Path,
    *,
    endpoint: str | None = None,
    count: int = 1000,
    seed: int = 0,
    persona_field: str | None = None,
    near_personas: float = NEAR,
    personas_licence: str | None = None,
    template: str = "pair_v1",
    temperature: float = 1.0,
    top_p: float = 1.0,
    max_tokens: int = 700,
    structured: StructuredOption = "auto",
    mode: Mode = "online",
    concurrency: int = 32,
    timeout: float = 120.0,
    retries: int = 6,
    backoff: float = 0.5,
    patience: float = 900.0,
    tries: int = 3,
    poll: float = 60.0,
    batch_requests: int = 10_000,
    key_env: str = "OPENAI_API_KEY",
    prices: Path | None = None,
    budget: float | None = None,
    dry_run: bool = False,
    filters: dict[str, Any] | None = None,
    embedder: str | None = None,
    judge: bool = False,
    round_trip: bool = False,
    judge_model: str | None = None,
    validation_share: float = 0.0,
    max_failures: float = 0.05,
) -> Path:
    """Writes pairs of storylines and messages with any OpenAI-compatible chat endpoint, one per persona.

    Answers are kept as they come. Killed at any moment, the same command asks exactly what is missing; a
    larger count asks for more of the same. What filters reject is kept with its reason.

    Args:
        personas: .jsonl (PersonaHub's files, or any with one text field), .csv, .tsv or .txt; streamed.
        model: as the endpoint calls it.
        out: folder to make, or to go on with.
        endpoint: address up to and without /chat/completions, for example http://localhost:8000/v1;
            OPENAI_BASE_URL from the environment, or OpenAI's own, if not given.
        count: requests in all, each for one pair; filters keep fewer. More than there are personas goes
            through them again with other tones and settings.
        seed: of the draw of personas, of the axes of the template, and of the model's sampling.
        persona_field: column that holds the persona; found by itself if not given.
        near_personas: shared words over all words, from which the later of two personas is left out; above 1
            keeps all but exact repetitions.
        personas_licence: of the personas, for the card, for example cc-by-4.0; told from the file's name if
            not given.
        template: a shipped template's name, or a YAML file.
        temperature: of the model's sampling.
        top_p: share of the likeliest tokens that are drawn from.
        max_tokens: of one answer.
        structured: how the form of the answer is told to the endpoint: "json_schema", "json_object", "none"
            (by the prompt alone), or "auto", the strictest that it takes.
        mode: "online" asks one by one, "batch" by the endpoint's Batch API (files, hours, half the price).
        concurrency: requests at a time (online).
        timeout: seconds one request may take.
        retries: times a request is sent again after a 5xx, a time-out or a cut connection.
        backoff: seconds before the first of them; doubles.
        patience: seconds that the endpoint may answer nothing but 429 before the job gives up.
        tries: answers to one request that may be unusable before it counts as failed.
        poll: seconds between two looks at a batch (batch).
        batch_requests: requests per batch at most (batch).
        key_env: environment variable that holds the key; may be empty for endpoints that need none.
        prices: YAML table of models and their prices; configs/synth/prices.yaml shows the form.
        budget: dollars that the answers in the folder may cost in all; it stops cleanly before.
        dry_run: print ten prompts and an estimate, and ask nothing.
        filters: filter → its options, or null to leave it out; docs/filter-pairs.md lists them.
        embedder: spec of an embedder; adds filters by meaning, finer groups, and variety by its vectors.
        judge: ask a model four questions about each pair that the filters leave.
        round_trip: let a model choose each storyline's message among five near ones.
        judge_model: that judges and chooses, at the same endpoint; the same model if not given.
        validation_share: of the pairs, by groups of near messages, that go into splits/validation.jsonl.
        max_failures: requests that may end without a usable answer: a count, or a share if below 1.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request or the endpoint; nothing was written.
        JobFailed: the endpoint does not answer any more, or the model ignores the format; the answers stay.
        TooManyFailures: the pairs were written, with more failures than allowed.
    """
    problems = Problems("synth")
    sampling = Sampling(temperature, top_p, max_tokens, seed)
    numbers = {
        "concurrency": (concurrency, 1), "timeout": (timeout, 1e-3), "tries": (tries, 1), "poll": (poll, 0),
        "retries": (retries, 0), "backoff": (backoff, 0), "patience": (patience, 0),
        "batch_requests": (batch_requests, 1), "budget": (budget or 0, 0),
        "near_personas": (near_personas, 1e-3), "validation_share": (validation_share, 0),
    }  # fmt: skip
    checked = check_request(
        problems, model=model, count=count, template=template, sampling=sampling, structured=structured,
        mode=mode, prices=prices, budget=budget, numbers=numbers,
    )  # fmt: skip
    note_max_failures(max_failures, problems)
    refining = Refining(filters, embedder, judge, round_trip, judge_model or model, validation_share, seed)
    refining.check(problems)
    if judge_model and not (judge or round_trip):
        problems.add(
            "judge_model: no model is asked to judge; add --judge or --round_trip (or both), or leave it out"
        )
    judging_price = _judging_price(checked, refining, prices, budget, problems)
    connection = _connection(endpoint, model, key_env, timeout, problems)
    problems.refuse_if_any()
    if checked is None or connection is None:  # one of the problems, which were just refused
        raise RefusedRequest("synth: the request cannot be carried out")

    sample = sample_personas(personas, count, seed=seed, field=persona_field, near=near_personas)
    synthesis = Synthesis(sample.personas, count, checked.template, seed)
    kind = Kind(model, sampling, read_pair, checked.price, tries)
    if count > len(sample.personas):
        turns = -(-count // len(sample.personas))
        log.warning(
            f"{len(sample.personas):,} personas for {count:,} requests: each is asked up to {turns} times, "
            "with other tones and settings"
        )
    if dry_run:
        prompts = list(islice(synthesis, _DRY_PROMPTS))
        sys.stdout.write(estimate(prompts, kind, count, batch=mode == "batch"))
        return out

    retrying = PatientRequests(connection.host, retries=retries, backoff=backoff, patience=patience)
    asker: Online | Batches = Online(connection, retrying, concurrency, budget, checked.structured)
    if mode == "batch":
        asker = Batches(connection, retrying, poll, batch_requests, budget, checked.structured)
    settings = settings_of(model, checked.template, sampling, seed)
    outcome = _asked(out, settings, asker, synthesis, kind)

    failed, unasked = _without_answer(out, synthesis, kind)
    refined = refining.run(_pairs(out, synthesis, kind), out / REPLIES, asker, judging_price)
    licence, note = licence_of(personas, personas_licence)
    about = {
        "made_by": "vidvec-msg synth",
        "host": connection.host,
        **settings,
        "structured": asker.structured,
        "mode": mode,
        "asked": count,
        "not_asked": unasked,
        "stopped": outcome.stopped,
        "personas": {**_told(personas, sample), "licence": licence, "licence_note": note},
        "spent": _spent(out, priced=checked.price is not None),
    }
    codes = Counter(str(row["code"]) for row in failed)
    refined.write(out, about, refining, asked=count - unasked, failed=codes, rejects=failed)
    _tell(outcome)
    _judge_failures(len(failed), count - unasked, max_failures, out)
    return out


# --- asking -------------------------------------------------------------------------------------------------


def _connection(
    endpoint: str | None, model: str, key_env: str, timeout: float, problems: Problems
) -> ChatEndpoint | None:
    try:
        return ChatEndpoint(model, base_url=endpoint, key_env=key_env, timeout=timeout)
    except RefusedRequest as refusal:
        problems.add(str(refusal))
    except ValueError:  # an empty model, which is noted already
        pass
    return None


def _judging_price(
    checked: Checked | None, refining: Refining, prices: Path | None, budget: float | None, problems: Problems
) -> Price | None:
    """What the model that judges costs, which may be another one than that which writes."""
    if checked is None:
        return None  # a table that cannot be read is one of the problems
    price = price_of(refining.model, prices)
    if budget is not None and price is None and (refining.judge or refining.round_trip):
        problems.add(
            f"budget is ${budget:g}, and there is no price of {refining.model!r}: add it to {prices}"
        )
    return price


def _asked(
    out: Path, settings: dict[str, Any], asker: Online | Batches, synthesis: Synthesis, kind: Kind
) -> Outcome:
    """Gets the questions answered; a folder in which nothing could be asked is taken away again."""
    went_on = begin(out, settings)
    try:
        with ReplyStore(out / REPLIES, "pairs") as store:
            if store.answered:
                log.info("going on: %d answers are there", len(store.answered))
            return asker.ask_all(synthesis, kind, store, total=synthesis.count, what=f"synth {out.name}")
    except RefusedRequest:
        if not went_on and not (out / REPLIES / "pairs.jsonl").stat().st_size:
            shutil.rmtree(out)  # it was made above, and holds nothing but the settings
        raise


def _pairs(out: Path, synthesis: Synthesis, kind: Kind) -> Iterator[Pair]:
    """The usable answers to the questions of this run, in the order of the questions."""
    path = out / REPLIES / "pairs.jsonl"
    places: dict[str, int] = {}
    with path.open("rb") as stream:
        while True:
            place = stream.tell()
            if not (line := stream.readline()):
                break
            with suppress(ValueError):
                places.setdefault(json.loads(line)["key"], place)
        for question in synthesis:
            at = places.get(kind.key(question))
            if at is not None:
                stream.seek(at)
                yield pair_of(json.loads(stream.readline()), question, kind, synthesis.template)


def _without_answer(out: Path, synthesis: Synthesis, kind: Kind) -> tuple[list[dict[str, Any]], int]:
    """The questions whose last answer was not usable, as rows of rejects; and how many were not asked."""
    answered = {record["key"] for record in read_records(out / REPLIES / "pairs.jsonl")}
    failures = {
        record["key"]: record
        for record in read_records(out / REPLIES / "pairs_failed.jsonl")
        if record["key"] not in answered and record.get("final")
    }
    rows: list[dict[str, Any]] = []
    unasked = 0
    for question in synthesis:
        key = kind.key(question)
        if key in answered:
            continue
        record = failures.get(key)
        if record is None:
            unasked += 1
            continue
        rows.append(
            {
                "id": question.id,
                "persona": question.about["persona"],
                "step": "answers",
                "code": record["code"],
                "reason": record["reason"],
                "text": record["text"],
            }
        )
    return rows, unasked


# --- telling ------------------------------------------------------------------------------------------------


def _told(path: Path, sample: Sample) -> dict[str, Any]:
    return {
        "file": path.name,
        "field": sample.field,
        "read": sample.read,
        "used": len(sample.personas),
        "left_out": sample.left_out,
    }


def _spent(out: Path, *, priced: bool) -> dict[str, Any]:
    """Tokens and dollars of all answers in the folder, unusable ones and checks included."""
    total = Tally()
    for path in sorted((out / REPLIES).glob("*.jsonl")):
        for record in read_records(path):
            if "in" in record:
                total.add(record["in"], record["out"], record["dollars"])
    return {**asdict(total), "dollars": round(total.dollars, 6), "priced": priced}


def _tell(outcome: Outcome) -> None:
    rate = f", {outcome.asked / outcome.seconds:.1f} a second" if outcome.seconds and outcome.asked else ""
    log.info(
        f"asked {outcome.asked:,} requests{rate}; retries: {outcome.mishaps}, "
        f"cool-downs: {outcome.cool_downs}"
    )
    if outcome.stopped:
        log.warning(f"stopped: {outcome.stopped}. The same command with a larger --budget goes on.")


def _judge_failures(failed: int, asked: int, max_failures: float, out: Path) -> None:
    if failed > allowed_failures(max_failures, asked):
        raise TooManyFailures(
            f"{failed} of {asked} requests ended without a usable answer; {out / 'rejects.jsonl'} says why. "
            "The pairs of the others were written; the same command asks those again, --max_failures allows "
            "more."
        )
