"""Does it keep the contract: an answer for every item, float32, the right shape, finite, of norm 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.errors import ItemError
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.doctor.examination import Examination, one_line
from vidvec_msg.retrieval.doctor.finding import Finding, counted, not_applicable
from vidvec_msg.retrieval.doctor.space import least_cosine

_SEE = "the contract is in vidvec_msg/embedders/contract.py"


def answers(exam: Examination) -> Finding:
    """Every item of every modality on its card gets a vector; a collection's broken items may be refused."""
    exam.ask_all()
    asked = exam.answers.values()
    tried = sum(len(given.items) for given in asked)
    errors = [f"{given.probe.name}: {error}" for given in asked for error in given.errors]
    if errors:
        return Finding(
            "answers", "fail", len(errors), f"encode raised {errors[0]}",
            f"it must return vectors, or raise ItemError for items it cannot embed; {_SEE}",
            tuple(errors[:3]),
        )  # fmt: skip
    refused = {
        own: [f"{f.item}: {f.reason}" for given in asked if given.probe.own is own for f in given.refused]
        for own in (True, False)
    }
    cases = [*refused[True], *refused[False]]
    if not tried:
        why = cases[0] if cases else "its card names no modality"
        advice = "" if cases else "name the modalities on its card"
        if cases and not exam.looks_up:
            advice = "if it knows its own items only, give --collection"
        return Finding("answers", "fail", 0, f"no item was answered: {why}", advice, tuple(cases[:3]))
    left_out = sum(given.left_out for given in asked)
    late = f" ({left_out} more left out for time)" if left_out else ""
    kinds = ", ".join(f"{len(given.items)} {given.probe.name}" for given in asked if given.items)
    if exam.unread and not refused[True]:
        told = "; ".join(line for line, _ in exam.unread)
        whole = any(every for _, every in exam.unread)
        return Finding(
            "answers", "fail" if whole else "warn", tried, f"{kinds}{late}; not read by it are {told}",
            "these items will be recorded as failed; cascade: makes texts of clips",
            (*(line for line, _ in exam.unread), *cases[:3]),
        )  # fmt: skip
    if not cases:
        return Finding("answers", "ok", tried, f"{kinds}{late}")
    blame = bool(refused[True]) or exam.looks_up
    advice = (
        "what its card lists as modalities it must embed"
        if refused[True]
        else "compute the missing vectors, or evaluate with --max_failures"
        if exam.looks_up
        else "these items of the collection will be recorded as failed"
    )
    found = f"{len(cases)} refused, {tried} answered{late}: {cases[0]}"
    return Finding("answers", "fail" if blame else "warn", len(cases), found, advice, tuple(cases[:3]))


def float32_arrays(exam: Examination) -> Finding:
    """Type and dtype of what it returns."""
    wrong = []
    for vectors, items in _returned(exam):
        try:
            check_vectors(vectors, items, exam.card)
        except TypeError as error:
            wrong.append(str(error))
        except ValueError:  # shape, norm: the next checks
            continue
    if not wrong:
        return Finding("float32", "ok", "float32", "numpy arrays of float32")
    return Finding("float32", "fail", None, wrong[0], f"return vectors.astype(np.float32); {_SEE}")


def shape(exam: Examination) -> Finding:
    """One row per item, as many columns as the card says; also for no items."""
    wrong = []
    for vectors, items in _returned(exam):
        try:
            check_vectors(np.asarray(vectors, dtype=np.float32), items, exam.card)
        except ItemError:  # norms: a check of their own
            continue
        except (TypeError, ValueError) as error:
            wrong.append(str(error))
    if not wrong:
        return Finding("shape", "ok", exam.card.dim, f"(items, {exam.card.dim})")
    return Finding("shape", "fail", None, wrong[0], _SEE)


def empty_input(exam: Examination) -> Finding:
    """``encode([])`` has shape (0, dim)."""
    advice = f"return np.zeros((0, card.dim), np.float32) for no items; {_SEE}"
    try:
        vectors = exam.opened.encode([], role="document")
    except Exception as error:
        return Finding("empty input", "fail", None, f"encode([]) raised {one_line(error)}", advice)
    given = np.shape(vectors) if isinstance(vectors, np.ndarray) else type(vectors).__name__
    fine = given == (0, exam.card.dim)
    found = f"encode([]) has shape {given}" if isinstance(given, tuple) else f"encode([]) is a {given}"
    return Finding("empty input", "ok" if fine else "fail", str(given), found, "" if fine else advice)


def finite(exam: Examination) -> Finding:
    """No NaN, no infinity."""
    bad = []
    for vectors, items in _returned(exam):
        rows = np.asarray(vectors, dtype=np.float64)
        bad += [item.id for item, row in zip(items, rows, strict=True) if not np.isfinite(row).all()]
    advice = "NaN comes from float16 overflow or from 0/0 in pooling; try dtype=float32"
    return counted(
        "finite", list(dict.fromkeys(bad)), otherwise="fail", what="items with NaN or infinity",
        none="every number is finite", advice=advice,
    )  # fmt: skip


def unit_norm(exam: Examination) -> Finding:
    """Each row has norm 1, as far as its dtype can."""
    bad: list[str] = []
    furthest = 1.0
    for vectors, items in _returned(exam):
        rows = np.asarray(vectors, dtype=np.float64)
        norms = np.linalg.norm(rows, axis=1)
        if len(norms):
            furthest = max(furthest, *norms.tolist(), key=lambda norm: abs(norm - 1))
        try:
            check_vectors(rows.astype(np.float32), items, exam.card)
        except ItemError as error:
            bad += [f"{failure.item}: {failure.reason}" for failure in error.failures]
    if bad:
        bad = list(dict.fromkeys(bad))
        what = f"items without norm 1: {len(bad)}, furthest is {furthest:.4g}"
        advice = "divide each vector by its norm"
        return Finding("unit norm", "fail", round(furthest, 6), what, advice, tuple(bad[:3]))
    return Finding("unit norm", "ok", round(furthest, 6), f"norms within {abs(furthest - 1):.1e} of 1")


def roles(exam: Examination) -> Finding:
    """Queries and documents are worded differently exactly if the card says so."""
    given = exam.answers.get("text")
    if exam.looks_up:
        return not_applicable("roles", "stored vectors have the role in which they were made")
    if given is None or not given.items:
        return not_applicable("roles", "it reads no text")
    exam.reserve("text")
    cosine = least_cosine(given.matrix(), exam.encode(given.items, "query"))
    differ = cosine < 1 - 1e-5
    says = dict(exam.card.role_prompts)
    worded = len({says.get(role, "") for role in ("query", "document")}) > 1
    value = round(cosine, 6)
    if differ == worded:
        told = "query and document are worded differently" if differ else "query and document are the same"
        return Finding("roles", "ok", value, f"{told} (cosine from {cosine:.4f})" if differ else told)
    if worded:
        return Finding(
            "roles", "fail", value, "the card has role prompts, and both roles give the same vectors",
            "the role is ignored: check how encode uses it",
        )  # fmt: skip
    return Finding(
        "roles", "fail", value,
        f"the roles differ (cosine from {cosine:.4f}), and the card has no role prompts",
        "put the difference into card.role_prompts: evaluate embeds once for both directions without it",
    )  # fmt: skip


def _returned(exam: Examination) -> Iterator[tuple[object, Sequence[Item]]]:
    """Everything that encode returned, with what it was given."""
    for given in exam.answers.values():
        for single, item in zip(given.singles, given.items, strict=True):
            yield single, [item]
        if given.batch is not None:
            yield given.batch, given.items
