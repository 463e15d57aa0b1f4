"""The verb ``filter-pairs``: any file of pairs → those that stay, and the others with their reasons."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vidvec_msg.data_synth.asking import Online
from vidvec_msg.data_synth.llm import ChatEndpoint
from vidvec_msg.data_synth.patience import PatientRequests
from vidvec_msg.data_synth.prices import Price, price_of
from vidvec_msg.data_synth.refining import Refining
from vidvec_msg.errors import Problems, RefusedRequest
from vidvec_msg.formats.pairs import Pair, read_pairs
from vidvec_msg.runs import read_json, require_new, write_json

SETTINGS = "filter.json"
"""Written first; its presence means that an interrupted run may go on."""


def filter_pairs(
    pairs: str,
    out: Path,
    *,
    columns: dict[str, str] | None = None,
    persona_column: str = "persona",
    filters: dict[str, Any] | None = None,
    embedder: str | None = None,
    judge: bool = False,
    round_trip: bool = False,
    endpoint: str | None = None,
    model: str | None = None,
    concurrency: int = 32,
    timeout: float = 120.0,
    key_env: str = "OPENAI_API_KEY",
    prices: Path | None = None,
    budget: float | None = None,
    validation_share: float = 0.0,
    seed: int = 0,
) -> Path:
    """Runs the filters of ``synth`` on pairs from anywhere, and keeps what they reject with the reasons.

    Args:
        pairs: a .jsonl, .csv or .parquet file, or module:function that yields rows.
        out: folder to make.
        columns: name of the column per role (anchor, positive, negatives, group, id) where it differs.
        persona_column: column of the persona, for the filter that looks for it in the texts.
        filters: filter → its options, or null to leave it out.
        embedder: spec of an embedder; adds filters by meaning, finer groups, and variety by its vectors.
        judge: ask a model four questions about each pair that the filters leave.
        round_trip: let a model choose each storyline's message among five near ones.
        endpoint: of that model: address up to and without /chat/completions.
        model: that judges and chooses, as the endpoint calls it.
        concurrency: requests at a time.
        timeout: seconds one request may take.
        key_env: environment variable that holds the key.
        prices: YAML table of models and their prices.
        budget: dollars that the answers in the folder may cost in all.
        validation_share: of the pairs, by groups of near messages, that go into splits/validation.jsonl.
        seed: of the splits and of the round trip.

    Returns:
        the folder.

    Raises:
        RefusedRequest: something is wrong with the request; nothing was written.
        JobFailed: the endpoint does not answer any more; its answers stay.
    """
    problems = Problems("filter-pairs")
    refining = Refining(filters, embedder, judge, round_trip, model or "", validation_share, seed)
    refining.check(problems)
    asker, price = None, None
    if judge or round_trip:
        asker, price = _asker(endpoint, model, key_env, timeout, concurrency, prices, budget, problems)
    else:
        given = {
            "endpoint": endpoint, "model": model, "concurrency": concurrency, "timeout": timeout,
            "key_env": key_env, "prices": prices, "budget": budget,
        }  # fmt: skip
        _refuse_unused(given, problems)
    try:
        rows = read_pairs(pairs, columns)
    except RefusedRequest as refusal:
        problems.add(str(refusal).replace("\n", "\n  "))
    problems.refuse_if_any()
    rows = [_with_id_and_persona(pair, number, persona_column) for number, pair in enumerate(rows, start=1)]
    _refuse_other_pairs(out, {"pairs": pairs, "columns": columns or {}})
    write_json(out / SETTINGS, {"pairs": pairs, "columns": columns or {}, "filters": filters or {}})
    refined = refining.run(rows, out / "replies", asker, price)
    about = {
        "made_by": "vidvec-msg filter-pairs",
        "source": pairs,
        "model": model if asker else None,
        "seed": seed,
    }
    refined.write(out, about, refining)
    return out


def _refuse_unused(given: Mapping[str, Any], problems: Problems) -> None:
    """Whoever names a model expects that it is asked."""
    usual = inspect.signature(filter_pairs).parameters
    options = [name for name, value in given.items() if value != usual[name].default]
    if options:
        problems.add(
            f"{', '.join(options)}: no model is asked; add --judge or --round_trip (or both), or leave "
            f"{'them' if len(options) > 1 else 'it'} out"
        )


def _refuse_other_pairs(out: Path, given: Mapping[str, Any]) -> None:
    """A folder is new, or holds these pairs filtered before: other filters may be tried on them."""
    require_new(out, option="--out", resumable=SETTINGS)
    if not (out / SETTINGS).exists():
        return
    found = read_json(out / SETTINGS, what="filtering", made_by="vidvec-msg filter-pairs")
    different = [name for name in given if found.get(name) != given[name]]
    if different:
        told = "; ".join(f"{name} was {found.get(name)!r} and is {given[name]!r}" for name in different)
        raise RefusedRequest(f"--out {out} holds other pairs, filtered: {told}. Give another folder.")


def _with_id_and_persona(pair: Pair, number: int, column: str) -> Pair:
    """Filters find the persona under its usual name; a group needs the id of its first row."""
    provenance: Mapping[str, Any] = pair.provenance
    if column != "persona" and column in provenance:
        provenance = {**provenance, "persona": provenance[column]}
    return replace(pair, id=pair.id or f"row{number}", provenance=provenance)


def _asker(
    endpoint: str | None,
    model: str | None,
    key_env: str,
    timeout: float,
    concurrency: int,
    prices: Path | None,
    budget: float | None,
    problems: Problems,
) -> tuple[Online | None, Price | None]:
    if not model:
        problems.add("judge and round_trip ask a model: give --model NAME (and --endpoint URL)")
        return None, None
    if concurrency < 1:
        problems.add(f"concurrency is {concurrency}; it must be at least 1")
    try:
        price = price_of(model, prices)
        if budget is not None and price is None:
            problems.add(
                f"budget is ${budget:g}, and there is no price of {model!r}: give --prices TABLE.yaml"
            )
        connection = ChatEndpoint(model, base_url=endpoint, key_env=key_env, timeout=timeout)
    except RefusedRequest as refusal:
        problems.add(str(refusal))
        return None, None
    return Online(connection, PatientRequests(connection.host), concurrency, budget), price
