"""An embedder as a plain model folder: the merged model, its own processor, and how to embed with them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.embedders.contract import EmbedderCard, Vectors
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.formats.items import Item


def write(embedder: MultimodalLLM, folder: Path) -> None:
    """Writes the full model, vocabulary head and vision tower included, and its processor.

    Args:
        embedder: without adapters, or with merged ones.
        folder: existing and empty.
    """
    with quiet_progress():
        embedder.backbone.full.save_pretrained(folder)
    processor = embedder.chat.processor if embedder.chat.processor is not None else embedder.chat.tokenizer
    processor.save_pretrained(folder)


def answers(embedder: MultimodalLLM, folder: Path, items: Sequence[Item]) -> list[Vectors]:
    """The folder's vectors of items in memory, one array (items, dim), by this package as README.md says."""
    settings = {**settings_of(embedder.card), "device": str(embedder.device), "decode_timeout": 0.0}
    return [MultimodalLLM(str(folder), **settings).encode(items, role="document")]


def settings_of(card: EmbedderCard) -> dict[str, Any]:
    """The arguments of :class:`MultimodalLLM` that a card records, apart from model and adapter."""
    accepted = set(inspect.signature(MultimodalLLM).parameters) - {"model", "revision", "adapter"}
    recorded = {entry.name: getattr(card, entry.name) for entry in fields(card)}
    if card.frames is not None:
        recorded |= asdict(card.frames)
    empty: tuple[Any, ...] = (None, "", {})
    return {name: value for name, value in recorded.items() if name in accepted and value not in empty}


def spec_of(card: EmbedderCard, folder: str) -> str:
    """The spec under which this package opens the folder with the card's vectors.

    Options that are defaults are left out. A prompt of one's own cannot stand in a spec: it is named as a
    YAML file, whose content README.md holds.
    """
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(MultimodalLLM).parameters.items()
    }
    options = []
    for name, value in settings_of(card).items():
        if name == "prompt":
            known = [preset for preset, template in PROMPTS.items() if template == value]
            value = known[0] if known else "prompt.yaml"
        if value != defaults[name]:
            options.append(f"{name}={quote(str(value), safe='/ ')}")
    return f"mllm:{folder}" + (f"?{'&'.join(options)}" if options else "")
