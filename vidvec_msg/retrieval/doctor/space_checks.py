"""How the vectors fill their space: collapsed onto a point, or along one direction."""

from __future__ import annotations

import numpy as np

from vidvec_msg.embedders.check import COLLAPSE_ITEMS, COLLAPSED_FROM
from vidvec_msg.retrieval.doctor.examination import Examination
from vidvec_msg.retrieval.doctor.finding import Finding, judged, not_applicable
from vidvec_msg.retrieval.doctor.space import Matrix, mean_norm, mean_pairwise_cosine, top_component_share

COMMON_FROM = 0.9
"""Norm of the mean of unit vectors from which the common direction is worth a look. Word vectors have up to a
half (Mu and Viswanath, "All-but-the-Top", ICLR 2018); states of language models far more (Ethayarajh, "How
Contextual are Contextualized Word Representations?", EMNLP 2019). Ours: 0.9 is a mean pairwise cosine of 0.8,
so four fifths of every score say nothing about the pair."""
DOMINANT_FROM = 0.5
"""Share of the variance on one direction; ours: more than on all others together. That single dimensions come
to rule a cosine is shown by Timkey and van Schijndel ("All Bark and No Bite", EMNLP 2021)."""


def collapsed(exam: Examination) -> Finding:
    """Different items get different vectors."""
    name = "collapsed space"
    vectors, what = _spread(exam)
    if vectors is None:
        return not_applicable(name, what)
    cosine = mean_pairwise_cosine(vectors)
    return judged(
        name, cosine <= COLLAPSED_FROM, value=round(cosine, 4),
        found=f"mean pairwise cosine {cosine:.3f} over {what} (collapsed from {COLLAPSED_FROM})",
        advice="look at the layer, the pooling, the prompt, and stray special tokens",
    )  # fmt: skip


def anisotropy(exam: Examination) -> Finding:
    """No direction is common to all items or outweighs all others."""
    name = "anisotropy"
    vectors, what = _spread(exam)
    if vectors is None:
        return not_applicable(name, what)
    common, dominant = mean_norm(vectors), top_component_share(vectors)
    found = f"mean vector {common:.3f}, first component {dominant:.0%} of the variance, {what}"
    return judged(
        name, common < COMMON_FROM and dominant < DOMINANT_FROM, "warn", value=round(common, 4), found=found,
        advice="cosines lie close together: train it, or read another layer; rankings may still be fine",
    )  # fmt: skip


def _spread(exam: Examination) -> tuple[Matrix | None, str]:
    """Vectors of different items of one kind, and what they are; or None and why there are too few.

    A collection's first items are often of one topic and say nothing about the space, so they serve only
    where nothing else is known: for stored vectors.
    """
    stored, own = ("corpus", "queries", "stored"), ("text", "video", "image", "audio")
    for name in stored if exam.looks_up else own:
        given = exam.answers.get(name)
        if given is None:
            continue
        rows = list({item.full_text or item.id: row for row, item in enumerate(given.items)}.values())
        if len(rows) >= COLLAPSE_ITEMS:
            return np.asarray(given.matrix()[rows]), f"{len(rows)} {_plural(name)}"
    return None, f"fewer than {COLLAPSE_ITEMS} different items of one kind were encoded"


def _plural(name: str) -> str:
    plurals = {"text": "texts", "image": "images", "video": "clips", "corpus": "documents"}
    return plurals.get(name, "vectors" if name == "stored" else name)
