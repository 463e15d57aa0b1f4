"""An embedder folder with its whole weights in it: the card, and a model that transformers opens.

Made of an embedder whose adapter was merged, or of a language model all of whose weights were trained. What
was written is opened again before it takes its place: every weight must be the one that was given, and the
vectors those of the embedder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vidvec_msg.embedders.card_page import write_page
from vidvec_msg.embedders.contract import CARD_FILE, EmbedderCard, Vectors
from vidvec_msg.embedders.export import transformers_folder
from vidvec_msg.embedders.export.comparison import least_cosines, refuse_other_vectors
from vidvec_msg.embedders.export.transformers_folder import settings_of
from vidvec_msg.embedders.models import weights_digest
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.new_folder import appearing
from vidvec_msg.embedders.saved import load_saved, refuse_foreign, with_lasting_base
from vidvec_msg.embedders.training_record import TrainingRecord
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.runs import software_versions, write_json

Expected = tuple[Sequence[Item], Vectors]
"""Items in memory and what the reopened folder must make of them, ``(items, dim)``."""


def save_merged(
    out: Path,
    *,
    embedder: MultimodalLLM,
    card: EmbedderCard,
    expected: Expected,
    training: TrainingRecord | None = None,
) -> tuple[EmbedderCard, dict[Modality, float]]:
    """Writes an embedder without adapters as a folder with its whole weights.

    Args:
        out: the folder; an earlier embedder there is replaced.
        embedder: its adapters merged into its weights, see
            :func:`vidvec_msg.embedders.export.merged.merge_adapters`.
        card: what it was before, and where it comes from; digest and versions are filled in here.
        expected: what it must still give.
        training: how it was trained, as its own folder tells; None if that is not known.

    Returns:
        the card as it was written, and the worst cosine per modality.

    Raises:
        RefusedRequest: ``out`` holds something else, or what was written gives other vectors.
    """
    return _save(out, embedder, card, expected=expected, training=training)


def save_full(
    out: Path,
    *,
    tower: nn.Module,
    card: EmbedderCard,
    state_dict: Mapping[str, Tensor] | None = None,
    frozen: Collection[str] = (),
    training: TrainingRecord | None = None,
    expected: Expected | None = None,
    trust_remote_code: bool = False,
) -> EmbedderCard:
    """Writes a language model that was trained in full, inside the full model that it was taken from.

    The full base model is loaded on the CPU, the trained weights are put into its language model, and the
    result is written with processor and tokenizer. Blocks that training cut off stay the base model's.

    Args:
        out: the folder; an earlier embedder there is replaced.
        tower: the trained language model, see
            :func:`vidvec_msg.embedders.language_model.load_language_model`.
        card: how it was trained: base model, prompt, layer, dtype, …; digest and versions are filled in here.
        state_dict: gathered weights, where the tower's own are sharded over ranks (ZeRO-3, FSDP).
        frozen: weights that did not train; those that were not gathered stay the base model's.
        training: how it was trained; becomes ``training.json`` and the model card.
        expected: what the tower gives; without it the weights alone are compared.
        trust_remote_code: run code that the base model's repository brings.

    Returns:
        the card as it was written.

    Raises:
        RefusedRequest: ``out`` holds something else; weights that are not finite, empty, or not those of the
            base model's language model; a folder that gives other vectors.
    """
    card = with_lasting_base(card)
    refuse_foreign(out)
    embedder = MultimodalLLM(
        card.base_model,
        revision=card.revision,
        device="cpu",
        decode_timeout=0,
        trust_remote_code=trust_remote_code,
        **settings_of(card),
    )
    _put_in(embedder.backbone.tower, tower.state_dict() if state_dict is None else state_dict, frozen)
    written, _ = _save(
        out, embedder, card, expected=expected, training=training, trust_remote_code=trust_remote_code
    )
    return written


def _save(
    out: Path,
    embedder: MultimodalLLM,
    card: EmbedderCard,
    *,
    expected: Expected | None,
    training: TrainingRecord | None,
    trust_remote_code: bool = False,
) -> tuple[EmbedderCard, dict[Modality, float]]:
    card = with_lasting_base(card)
    refuse_foreign(out)
    with appearing(out) as folder:
        transformers_folder.write(embedder, folder)
        given = dataclasses.replace(
            card, adapter=None, weights=weights_digest(folder), versions=software_versions()
        )
        write_json(folder / CARD_FILE, given.to_dict())
        opened = load_saved(
            folder, device=str(embedder.device), decode_timeout=0, trust_remote_code=trust_remote_code
        )
        _refuse_other_weights(opened.backbone.full, embedder.backbone.full)
        cosines: dict[Modality, float] = {}
        if expected is not None:
            items, vectors = expected
            cosines = least_cosines([opened.encode(items, role="document")], vectors, items)
            refuse_other_vectors(cosines, opened.card, what="the written model")
        write_page(folder, opened.card, training, name=out.name, adapter=False, cosines=cosines)
        write_json(folder / CARD_FILE, opened.card.to_dict())  # what was left to defaults spelled out
    return opened.card, cosines


@torch.no_grad()
def _put_in(tower: Any, weights: Mapping[str, Tensor], frozen: Collection[str]) -> None:
    """Copies a trained tower's weights into the same tower of the full model, in place."""
    own = tower.state_dict()
    missing = sorted(
        name for name in own.keys() - weights.keys() - set(frozen) if not _was_cut(name, weights)
    )
    strangers = sorted(weights.keys() - own.keys())
    if missing or strangers:
        example = f"{strangers[0]} is not in it" if strangers else f"{missing[0]} was not given"
        raise RefusedRequest(
            f"the trained weights are not those of the base model's language model: {len(strangers)} "
            f"strange, {len(missing)} missing, for example {example}"
        )
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise RefusedRequest(
                f"{name} is {tuple(tensor.shape)}, expected {tuple(own[name].shape)}; a run under ZeRO-3 has "
                "to gather the weights before they are saved"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise RefusedRequest(f"{name} is not finite; the training diverged")
        own[name].copy_(tensor)


def _was_cut(name: str, weights: Mapping[str, Tensor]) -> bool:
    """Whether a weight is of a block behind the last one that was trained."""
    blocks = {int(key.split(".")[1]) for key in weights if key.startswith("layers.")}
    return bool(blocks) and name.startswith("layers.") and int(name.split(".")[1]) > max(blocks)


def _refuse_other_weights(opened: nn.Module, written: nn.Module) -> None:
    """Compares a reopened model with the one in memory, weight for weight."""
    found = opened.state_dict()
    for name, tensor in written.state_dict().items():
        if name not in found or not torch.equal(found[name], tensor):
            raise RefusedRequest(
                f"the written model is not the one in memory: {name} "
                f"{'differs' if name in found else 'is not in it'}. Nothing was kept."
            )
