"""What stands in the README.md of an exported folder: how to embed with it, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import yaml

from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.export.item_template import Wording, unserved, words_of
from vidvec_msg.embedders.export.pages import header, quoted, render, training_content
from vidvec_msg.embedders.export.transformers_folder import settings_of, spec_of
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.sentence_transformers_media import without_sampling
from vidvec_msg.embedders.training_record import TrainingRecord
from vidvec_msg.embedders.visuals import temporal_patch
from vidvec_msg.formats.items import Modality


def readme(
    embedder: MultimodalLLM,
    folder: str,
    *,
    to: str,
    cosines: Mapping[Modality, float],
    training: TrainingRecord | None = None,
) -> str:
    """The text of README.md.

    Args:
        embedder: what was exported.
        folder: name of the folder.
        to: the kind of folder.
        cosines: the worst that was found between the folder's vectors and the embedder's, per modality.
        training: how it was trained, if that is known.
    """
    card, wording = embedder.card, words_of(embedder)
    layer = FINAL if card.layer is None else card.layer
    content = {
        "header": header(card, training, library=to),
        "card": card,
        "folder": folder,
        "cosines": cosines,
        "clips": "video" in wording.media,
        "names_rate": "video" in without_sampling(embedder.chat.processor),
        "least_frames": temporal_patch(embedder.chat.processor),
        "unserved": unserved(embedder),
        "turns": _turns(wording),
        "read_out": _read_out(layer, card),
        "before": quoted(wording.text[0]),
        "behind": quoted(wording.text[1]),
        "state": _state(layer, blocks=embedder.backbone.blocks),
        "hidden_states": layer != FINAL,
        "loader": "AutoModelForImageTextToText" if embedder.chat.processor is not None else "AutoModel",
        "spec": spec_of(card, folder),
        "arguments": _settings(card, folder),
        **training_content(training),
    }
    return render(to.replace("-", "_"), content)


def _turns(wording: Wording) -> dict[str, str]:
    turns = {"text": quoted(f"{wording.text[0]}{{text}}{wording.text[1]}")}
    turns |= {kind: quoted(turn) for kind, turn in wording.media.items()}
    turns |= {
        f"{kind} with words": quoted(f"{before}{{text}}{behind}")
        for kind, (before, behind) in wording.said.items()
    }
    return turns


def _read_out(layer: int, card: EmbedderCard) -> str:
    names = {FINAL: "the normed final state", 0: "the embedding output"}
    state = names.get(layer, f"the raw output of block {layer}")
    return f"{state} {'at the last token' if card.pooling == 'last' else 'averaged over all tokens'}"


def _state(layer: int, *, blocks: int) -> str:
    """transformers' name of the state that is read; empty if it has none."""
    if layer == FINAL:
        return "last_hidden_state"
    return "" if layer == blocks else f"hidden_states[{layer}]"


def _settings(card: EmbedderCard, folder: str) -> str:
    arguments: dict[str, Any] = {"model": folder, **settings_of(card)}
    if card.prompt is not None:
        arguments["prompt"] = asdict(card.prompt)
    target = f"{MultimodalLLM.__module__}.{MultimodalLLM.__name__}"
    content = {"class_path": target, "init_args": arguments}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip()
