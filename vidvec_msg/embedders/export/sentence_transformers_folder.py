"""An embedder as a folder that ``SentenceTransformer(FOLDER)`` opens, with modules of that library alone."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vidvec_msg.embedders.backbone import quiet_progress
from vidvec_msg.embedders.chat import Chat
from vidvec_msg.embedders.contract import Vectors
from vidvec_msg.embedders.export.item_template import (
    Wording,
    check_template,
    item_template,
    unserved,
    words_of,
)
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.pooling import FINAL
from vidvec_msg.embedders.sentence_transformers_media import UNCUT, as_video, for_clip, without_sampling
from vidvec_msg.embedders.visuals import fill_temporal_patch
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.video import frames_in_memory
from vidvec_msg.runs import write_json

logger = logging.getLogger(__name__)


def refuse(embedder: MultimodalLLM) -> None:
    """Refuses read-outs that sentence-transformers cannot express.

    Raises:
        RefusedRequest: the raw output of the last block is read; transformers gives that state normed only.
    """
    layer, blocks = embedder.card.layer, embedder.backbone.blocks
    if layer == blocks:
        raise RefusedRequest(
            f"the embedder reads layer {layer}, the raw output of the last block; sentence-transformers has "
            f"the normed final state (layer -1) and layers 0 to {blocks - 1}. Use --to transformers."
        )


def write(embedder: MultimodalLLM, folder: Path) -> None:
    """Writes weights, a chat template that words items as the embedder does, and the modules' JSON files.

    Args:
        embedder: without adapters, or with merged ones.
        folder: existing and empty.

    Raises:
        RefusedRequest: its wording cannot be had from a chat template, token for token.
    """
    card, wording = embedder.card, words_of(embedder)
    template = item_template(wording)
    if missing := unserved(embedder):
        logger.warning("%s: the exported folder does not take %s", card.name, " and ".join(missing))
    if card.prompt is not None:
        check_template(embedder.chat, card.prompt, template)
    with quiet_progress():
        embedder.backbone.full.save_pretrained(folder)
    _write_processor(embedder.chat, template, folder, max_tokens=card.max_tokens)
    write_json(folder / "sentence_bert_config.json", _transformer_config(embedder, wording, template))
    pooling = "lasttoken" if card.pooling == "last" else card.pooling
    (folder / "1_Pooling").mkdir()
    write_json(
        folder / "1_Pooling" / "config.json",
        {"embedding_dimension": embedder.backbone.dim, "pooling_mode": pooling, "include_prompt": True},
    )
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    if card.truncate_dim:
        modules.append(("2_Dense", "Dense"))
        _write_truncation(folder / "2_Dense", width=embedder.backbone.dim, dim=card.truncate_dim)
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / modules[-1][0]).mkdir()
    write_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
            for number, (path, name) in enumerate(modules)
        ],
    )
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "SentenceTransformer",
            "prompts": {"query": "", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    )


def answers(embedder: MultimodalLLM, folder: Path, items: Sequence[Item]) -> list[Vectors]:
    """The folder's vectors of items in memory, by sentence-transformers alone, in two ways.

    Returns:
        texts as one batch of queries, and each text alone as a document; media alone in both. One array
        (items, dim) each.
    """
    from sentence_transformers import SentenceTransformer

    with quiet_progress():
        model = SentenceTransformer(str(folder), device=str(embedder.device), local_files_only=True)
    texts = [row for row, item in enumerate(items) if item.modality == "text"]
    inputs: list[Any] = [{"text": items[row].full_text} for row in texts]
    batch = np.empty((len(items), embedder.card.dim), dtype=np.float32)
    for row, item in enumerate(items):
        if item.modality != "text":
            given = as_input(item, embedder)
            settings = for_clip(model.processor, given["video"]) if "video" in given else UNCUT
            batch[row] = model.encode([given], processing_kwargs=settings)[0]
    alone = batch.copy()
    batch[texts] = model.encode_query(inputs, batch_size=len(inputs))
    alone[texts] = np.concatenate([model.encode_document([one]) for one in inputs])
    return [batch, alone]


def as_input(item: Item, embedder: MultimodalLLM) -> dict[str, Any]:
    """An image or clip in memory as sentence-transformers takes it."""
    if item.modality == "image":
        return {"image": item.image}
    policy = embedder.card.frames
    if policy is None:
        raise ValueError(f"embedder {embedder.card.name!r} reads no clips")
    frames = frames_in_memory(item.video, policy, fps=item.fps, start=item.start, end=item.end)
    return {"video": as_video(fill_temporal_patch(embedder.chat.processor, frames))}


def _write_processor(chat: Chat, template: str, folder: Path, *, max_tokens: int | None) -> None:
    processor = copy.deepcopy(chat.processor if chat.processor is not None else chat.tokenizer)
    tokenizer = getattr(processor, "tokenizer", processor)
    processor.chat_template = tokenizer.chat_template = template
    if max_tokens is not None:
        tokenizer.model_max_length = max_tokens
    processor.save_pretrained(folder)


def _write_truncation(folder: Path, *, width: int, dim: int) -> None:
    """A linear layer that keeps the first dimensions; the library's own truncation comes behind the norm."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    settings = {"in_features": width, "out_features": dim, "bias": False}
    write_json(
        folder / "config.json", {**settings, "activation_function": "torch.nn.modules.linear.Identity"}
    )
    save_file({"linear.weight": torch.eye(dim, width)}, folder / "model.safetensors", {"format": "pt"})


def _transformer_config(embedder: MultimodalLLM, wording: Wording, template: str) -> dict[str, Any]:
    # layer n is transformers' hidden_states[n]; the last of those is normed, hence the refusal above
    layer = embedder.card.layer
    state: Any = "last_hidden_state" if layer == FINAL else ["hidden_states", layer]
    read = {"method": "forward", "method_output_name": state}
    kinds = ["text", *wording.media]
    settings = without_sampling(embedder.chat.processor)
    own = (getattr(embedder.chat.processor, "videos_kwargs", None) or {}).get("size")
    if own and "video" in settings:  # Qwen-Omni's: its class has a size that goes before the saved one
        settings["video"]["size"] = dict(own)
    if "chat_template" in settings:
        settings["chat_template"]["chat_template"] = template
    return {
        "transformer_task": "feature-extraction",
        "modality_config": {**dict.fromkeys(kinds, read), "message": {**read, "format": "structured"}},
        "module_output_name": "token_embeddings",
        "processing_kwargs": settings,
    }
