"""Whether a folder that was written gives the vectors of the embedder that it was written from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.embedders.export.item_template import PROBES, fits
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality

# cosine that every checked vector must reach; half precisions round once more when the adapter is merged
LEAST_COSINE = {"float32": 0.9999, "bfloat16": 0.995, "float16": 0.999}


def probes(embedder: MultimodalLLM) -> list[Item]:
    """Items in memory of every kind that a model folder embeds and that this embedder reads; none is cut."""
    card = embedder.card
    fitting = [text for text in PROBES if fits(embedder, text)]
    items = [Item(f"text {number}", text=text) for number, text in enumerate(fitting)]
    noise = np.random.default_rng(0).integers(0, 256, (4, 64, 96, 3), dtype=np.uint8)
    if "image" in card.modalities:
        items.append(Item("image", image=noise[0]))
    if "video" in card.modalities and card.frames is not None and not card.sound:
        items.append(Item("clip", video=noise, fps=card.frames.fps))
    return items


def least_cosines(
    answers: Sequence[Vectors], expected: Vectors, items: Sequence[Item]
) -> dict[Modality, float]:
    """The worst cosine of all answers, per modality.

    Args:
        answers: arrays ``(items, dim)``, each one way of asking the folder.
        expected: ``(items, dim)``, the embedder's own.
        items: what they stand for.
    """
    found = np.min([(answer.astype(np.float64) * expected).sum(axis=1) for answer in answers], axis=0)
    least: dict[Modality, float] = {}
    for item, cosine in zip(items, found.tolist(), strict=True):
        least[item.modality] = min(cosine, least.get(item.modality, 1.0))
    return least


def refuse_other_vectors(cosines: dict[Modality, float], card: EmbedderCard, *, what: str) -> None:
    """Refuses a folder whose vectors are not the embedder's.

    Args:
        cosines: from :func:`least_cosines`.
        card: of the embedder; its dtype says how much rounding may do.
        what: was written, to begin the sentence "… gives other vectors than the embedder".

    Raises:
        RefusedRequest: a cosine below what rounding explains, or not a number.
    """
    least = LEAST_COSINE[card.dtype]
    bad = [f"{kind} {cosine:.6f}" for kind, cosine in cosines.items() if not cosine >= least]
    if bad:
        hint = "" if card.dtype == "float32" else "; --dtype float32 merges without rounding"
        raise RefusedRequest(
            f"{what} gives other vectors than the embedder: least cosine {', '.join(bad)}, "
            f"expected at least {least} in {card.dtype}{hint}. Nothing was kept."
        )
