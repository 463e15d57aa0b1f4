"""Does an item always get the same vector: again, in any company, in any order, after loading, in fp32?"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.contract import CARD_FILE, Embedder
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.retrieval.doctor.examination import Answers, Examination, as_matrix, one_line
from vidvec_msg.retrieval.doctor.finding import Finding, Verdict, judged, not_applicable
from vidvec_msg.retrieval.doctor.space import Matrix, as_permutation, row_cosines

SAME = 0.9999
"""Cosine from which two float32 vectors are the same: batched kernels sum in another order."""
SAME_IN_HALF = 0.999
"""The same in bfloat16 or float16: 8 bits of mantissa leave that much to the order of sums in each layer."""
FAR_FROM_FLOAT32 = 0.99
"""Below it a shorter dtype changes rankings, not only digits; between it and 0.999 it is worth a look."""


def tolerance(exam: Examination) -> float:
    """Cosine from which two vectors of this embedder are the same."""
    return SAME if exam.card.dtype == "float32" else SAME_IN_HALF


def repeatable(exam: Examination) -> Finding:
    """The same call twice gives the same vectors."""
    exam.reserve()
    return _compared(
        "repeatable", exam, lambda given: exam.encode(given.items, given.probe.role),
        "the same call twice", "dropout is on, or something random is left: model.eval(), fixed seeds",
    )  # fmt: skip


def batch_against_single(exam: Examination) -> Finding:
    """An item alone and among others; items that only changed places are left to the check of order."""

    def singles(given: Answers) -> Matrix:
        alone = given.singles_matrix()
        places = as_permutation(alone, given.matrix(), tolerance(exam))
        if places is None:
            return alone
        sorted_back = np.empty_like(alone)
        sorted_back[places] = alone
        return sorted_back

    return _compared(
        "batch against single", exam, singles, "alone and in a batch",
        "padding leaks into the vectors: check the attention mask, and which position is pooled",
    )  # fmt: skip


def order(exam: Examination) -> Finding:
    """Rows come in the order of the items, also when modalities are mixed and items reversed."""
    for given in exam.answers.values():
        if not given.items:
            continue
        if as_permutation(given.singles_matrix(), given.matrix(), tolerance(exam)) is not None:
            return Finding(
                "order", "fail", None,
                f"{given.probe.name}: the vectors come in another order than the items",
                "rows must have the order of the items: undo the sorting by length",
            )  # fmt: skip
    own = [given for given in exam.answers.values() if given.items and given.probe.role == "document"]
    if not own:
        return not_applicable("order", "no items in role document")
    items = [item for given in own for item in given.items]
    exam.reserve(*(given.probe.name for given in own))
    before = np.concatenate([given.matrix() for given in own])  # (items, dim)
    after = exam.encode(items[::-1], "document")[::-1]
    cosines = row_cosines(before, after)
    what = f"reversed, {len(own)} kinds in one call" if len(own) > 1 else "reversed"
    return _judged(
        "order", exam, [(item, cosine) for item, cosine in zip(items, cosines.tolist(), strict=True)], what,
        "rows must have the order of the items; check how modalities are put back together",
    )  # fmt: skip


def padding(exam: Examination) -> Finding:
    """The other padding side gives the same vectors; without that option, neighbours of other lengths do."""
    if exam.looks_up:
        return not_applicable("padding", "stored vectors are not computed here")
    if exam.reload is None or not _takes(exam, "padding"):
        return _other_lengths(exam)
    other = "left" if exam.card.padding == "right" else "right"
    exam.reserve(loads=1)
    again = _loaded(exam, exam.reload, padding=other)
    if isinstance(again, str):
        return not_applicable("padding", again)
    return _compared(
        "padding", exam, lambda given: as_matrix(again.encode(given.items, role=given.probe.role)),
        f"padded {other} and {exam.card.padding}", "pool by each row's own attention mask, on either side",
    )  # fmt: skip


def _other_lengths(exam: Examination) -> Finding:
    given = exam.answers.get("text")
    if given is None or len(given.items) < 3:
        return not_applicable("padding", "no option padding, and too few texts for other lengths")
    lengths = [len(item.full_text) for item in given.items]
    short = np.argsort(lengths, kind="stable")[: len(lengths) // 2].tolist()  # far fewer positions to fill
    items = [given.items[row] for row in short]
    exam.reserve("text")
    cosines = row_cosines(given.matrix()[short], exam.encode(items, given.probe.role))
    pairs = list(zip(items, cosines.tolist(), strict=True))
    return _judged(
        "padding", exam, pairs, "short texts with and without long ones beside them (no option padding)",
        "padding leaks into the vectors: check the attention mask",
    )  # fmt: skip


def save_and_load(exam: Examination) -> Finding:
    """Loaded once more it gives the same vectors; an embedder folder from a copy of the folder."""
    name = "save and load"
    if exam.reload is None or exam.spec is None:
        return not_applicable(name, "it was given as an object, not as a spec")
    exam.reserve(loads=1)
    with tempfile.TemporaryDirectory(prefix="vidvec-doctor-") as scratch:
        load, what = exam.reload, "loaded again"
        folder, _, options = exam.spec.partition("?")
        if (Path(folder) / CARD_FILE).is_file():
            copy = Path(scratch) / Path(folder).resolve().name
            shutil.copytree(folder, copy)
            load, what = partial(load_embedder, f"{copy}?{options}"), "loaded from a copy of its folder"
        again = exam.load_another(load)
        finding = _compared(
            name, exam, lambda given: as_matrix(again.encode(given.items, role=given.probe.role)), what,
            "weights are left out or started at random: look for missing keys when it is loaded",
        )  # fmt: skip
        if finding.verdict == "ok" and again.card.fingerprint != exam.card.fingerprint:
            return Finding(
                name, "fail", again.card.fingerprint,
                f"same vectors, other fingerprint: {exam.card.fingerprint} became {again.card.fingerprint}",
                "something on the card changes from load to load, and every cache with it",
            )  # fmt: skip
        return finding


def dtype_drift(exam: Examination) -> Finding:
    """A shorter dtype stays near float32."""
    name = "dtype drift"
    if exam.card.dtype == "float32":
        return not_applicable(name, "it computes in float32 already")
    if exam.reload is None or not _takes(exam, "dtype"):
        return not_applicable(name, f"it computes in {exam.card.dtype} and has no option dtype")
    exam.reserve(loads=1)
    again = _loaded(exam, exam.reload, dtype="float32")
    if isinstance(again, str):
        return not_applicable(name, again)
    if again.card.dtype != "float32":
        return not_applicable(name, f"dtype=float32 left it at {again.card.dtype}")
    pairs = _pairs(exam, lambda given: as_matrix(again.encode(given.items, role=given.probe.role)))
    item, least = min(pairs, key=lambda pair: pair[1])
    verdict: Verdict = "ok" if least >= SAME_IN_HALF else "warn" if least >= FAR_FROM_FLOAT32 else "fail"
    found = f"{exam.card.dtype} against float32: cosine from {least:.6f} ({item.id}), {len(pairs)} items"
    advice = "" if verdict == "ok" else "measure with dtype=float32 too before you trust small differences"
    return Finding(name, verdict, round(least, 6), found, advice)


# --- comparing ------------------------------------------------------------------------------------------


def _compared(
    name: str, exam: Examination, other: Callable[[Answers], Matrix], what: str, advice: str
) -> Finding:
    """The least cosine between the batches' vectors and other ones of the same items."""
    return _judged(name, exam, _pairs(exam, other), what, advice)


def _pairs(exam: Examination, other: Callable[[Answers], Matrix]) -> list[tuple[Item, float]]:
    """Each item and its cosine with its other vector."""
    pairs: list[tuple[Item, float]] = []
    for given in exam.answers.values():
        if given.items:
            cosines = row_cosines(given.matrix(), other(given))
            pairs += zip(given.items, cosines.tolist(), strict=True)
    return pairs


def _judged(name: str, exam: Examination, pairs: list[tuple[Item, float]], what: str, advice: str) -> Finding:
    least = tolerance(exam)
    item, worst = min(pairs, key=lambda pair: pair[1])
    far = [f"{item.id}: {cosine:.4f}" for item, cosine in pairs if not cosine >= least]
    found = f"{what}: cosine from {worst:.6f}, {len(pairs)} items"
    if far:
        found = f"{what}: {len(far)} of {len(pairs)} items below {least}, least {worst:.4f} ({item.id})"
    return judged(name, not far, value=round(worst, 6), found=found, advice=advice, examples=tuple(far[:3]))


# --- loading again --------------------------------------------------------------------------------------


def _takes(exam: Examination, option: str) -> bool:
    return option in inspect.signature(exam.kind.__init__).parameters


def _loaded(exam: Examination, load: Callable[..., Embedder], **options: Any) -> Embedder | str:
    """Another embedder, or why there is none."""
    try:
        return exam.load_another(load, **options)
    except RefusedRequest as error:
        given = ", ".join(f"{key}={value}" for key, value in options.items())
        return f"it cannot be loaded with {given}: {one_line(error)}"
