"""The model card of an embedder folder: ``README.md`` with the header that model hubs read.

Everything in it comes from the embedder's card and from the record of its training; what neither knows is
said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.export.pages import PAGE, base_told, header, limits, render, training_content
from vidvec_msg.embedders.models import TINYWORLD
from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.training_record import TRAINING_FILE, TrainingRecord
from vidvec_msg.formats.items import Modality
from vidvec_msg.runs import write_json


def write_page(
    folder: Path,
    card: EmbedderCard,
    training: TrainingRecord | None,
    *,
    name: str,
    adapter: bool,
    cosines: Mapping[Modality, float] | None = None,
) -> None:
    """Writes ``README.md``, and ``training.json`` if the training is known.

    Args:
        folder: that is being written.
        card: as it stands in the folder.
        training: how it was trained.
        name: that the folder will have.
        adapter: it holds an adapter, not whole weights.
        cosines: the worst that was found between its vectors and those it was made from, per modality.
    """
    if training is not None:
        write_json(folder / TRAINING_FILE, training.to_dict())
    page = card_page(card, training, name=name, adapter=adapter, cosines=cosines or {})
    (folder / PAGE).write_text(page, encoding="utf-8")


def card_page(
    card: EmbedderCard,
    training: TrainingRecord | None,
    *,
    name: str,
    adapter: bool,
    cosines: Mapping[Modality, float],
) -> str:
    """The text of the model card; arguments as for :func:`write_page`."""
    library = "peft" if adapter else "transformers"
    content = {
        "header": header(card, training, library=library, adapter=adapter),
        "card": {**asdict(card), "fingerprint": card.fingerprint},
        "base": base_told(card),
        "packaged": card.base_model == TINYWORLD,
        "what": _what(card, adapter=adapter, told=training is not None),
        "kinds": " and ".join([", ".join(card.modalities[:-1]), card.modalities[-1]]).removeprefix(" and "),
        "folder": name,
        "adapter": adapter,
        "loader": "AutoModelForImageTextToText" if "image" in card.modalities else "AutoModel",
        "state": _state(card),
        "dims": _dims(training),
        "limits": limits(card, training),
        "cosines": cosines,
        **training_content(training),
    }
    return render("embedder_folder", content)


def _what(card: EmbedderCard, *, adapter: bool, told: bool) -> str:
    trained = ", trained on pairs of texts" if told else ""
    if adapter:
        return f"an adapter of its language model{trained}"
    if card.merged_from:
        joint = " and" if told else ","
        return (
            f"an adapter of its language model{trained}{joint} merged into the weights (embedder "
            f"`{card.merged_from}` before)"
        )
    return f"its language model's own weights{trained}"


def _state(card: EmbedderCard) -> str:
    layer = FINAL if card.layer is None else card.layer
    names = {FINAL: "the normed final state", 0: "the embedding output"}
    if card.normed:
        return f"the output of block {layer} behind the model's final norm"
    return names.get(layer, f"the raw output of block {layer}")


def _dims(training: TrainingRecord | None) -> list[int]:
    """Shorter lengths that a Matryoshka loss trained, longest first."""
    if training is None:
        return []
    loss: Any = training.config.get("model", {}).get("loss") or {}
    if not str(loss.get("class_path", "")).endswith(".Matryoshka"):
        return []
    return sorted(loss.get("init_args", {}).get("dims", ()), reverse=True)
