"""The embedder folder: a PEFT adapter, or a whole model, and the card that says how it is used."""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vidvec_msg.embedders.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, check_adapter, write_adapter
from vidvec_msg.embedders.card_page import write_page
from vidvec_msg.embedders.contract import CARD_FILE, EmbedderCard
from vidvec_msg.embedders.export.transformers_folder import settings_of
from vidvec_msg.embedders.models import (
    TINYWORLD,
    combined_digest,
    local_folder,
    resolve_model,
    weights_digest,
)
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.new_folder import appearing
from vidvec_msg.embedders.training_record import TrainingRecord
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json, software_versions, write_json

logger = logging.getLogger(__name__)

MODEL_CONFIG = "config.json"  # in an embedder folder whose whole weights are in it


def save_embedder(
    out: Path,
    *,
    model: Any,
    card: EmbedderCard,
    state_dict: Mapping[str, Tensor] | None = None,
    allow_untrained: bool = False,
    training: TrainingRecord | None = None,
) -> EmbedderCard:
    """Writes a trained adapter as an embedder folder, reopens it and checks it.

    The adapter is written under a temporary name beside ``out`` and checked there; then the folder is
    renamed, with ``embedder.json`` in it: its presence means complete. An earlier embedder in ``out`` is
    replaced.

    Args:
        out: the folder.
        model: the ``PeftModel`` around the bare language model that was trained.
        card: how it was trained: base model, prompt, layer, pooling, frames, …; digest, adapter and software
            versions are filled in here.
        state_dict: gathered adapter weights, where the model's own are sharded over ranks (ZeRO-3).
        allow_untrained: accepts an adapter that has not made a step yet.
        training: how it was trained; becomes ``training.json`` and the model card, ``README.md``. Without it
            the folder has neither.

    Returns:
        the card as it was written.

    Raises:
        RefusedRequest: ``out`` holds something else, or what was written is not a usable adapter.
    """
    card = with_lasting_base(card)
    refuse_foreign(out)
    with appearing(out) as folder:
        write_adapter(
            folder, model, base_model=card.base_model, revision=card.revision, state_dict=state_dict
        )
        check_adapter(folder, expected=_expected(model), allow_untrained=allow_untrained)
        base = local_folder(resolve_model(card.base_model), revision=card.revision)
        written = dataclasses.replace(
            card,
            adapter=None,  # the folder may be moved: it does not name its own place
            weights=combined_digest("" if base is None else weights_digest(base), weights_digest(folder)),
            versions=software_versions(),
        )
        if training is not None:
            write_page(folder, written, training, name=out.name, adapter=True)
        write_json(folder / CARD_FILE, written.to_dict())
    return dataclasses.replace(written, adapter=str(out))


def save_reading(out: Path, *, embedder: MultimodalLLM, name: str, note: str) -> EmbedderCard:
    """Writes how a model is read and worded as an embedder folder: the card, and its adapter if it has one.
    The model's own weights stay where they are; the folder names them and is refused when they change.

    Args:
        out: the folder; an earlier embedder there is replaced.
        embedder: read in one place.
        name: for tables.
        note: a paragraph for the folder's README.md: what it is and how it was found.

    Returns:
        the card as it was written; its fingerprint is the embedder's.

    Raises:
        RefusedRequest: ``out`` holds something else.
    """
    card = with_lasting_base(dataclasses.replace(embedder.card, base_model=embedder.model, name=name))
    refuse_foreign(out)
    with appearing(out) as folder:
        if card.adapter is not None:
            for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
                shutil.copyfile(Path(card.adapter) / file, folder / file)
        written = dataclasses.replace(card, adapter=None, versions=software_versions())
        opened = f'    from vidvec_msg import load_embedder\n\n    load_embedder("{out.name}")\n'
        (folder / "README.md").write_text(f"# {name}\n\n{note}\n\n{opened}", encoding="utf-8")
        write_json(folder / CARD_FILE, written.to_dict())
    return written


def read_card(folder: Path) -> EmbedderCard:
    """The card of an embedder folder.

    Raises:
        RefusedRequest: the folder is incomplete, or its card cannot be read.
    """
    content = read_json(folder / CARD_FILE, what="embedder", made_by="vidvec-msg fit")
    try:
        return EmbedderCard.from_dict(content)
    except ValueError as error:
        raise RefusedRequest(f"embedder {folder}: {CARD_FILE}: {error}") from error


def holds_weights(folder: Path) -> bool:
    """Whether an embedder folder holds a whole model, rather than an adapter to one that lies elsewhere."""
    return (folder / MODEL_CONFIG).is_file() and not (folder / ADAPTER_CONFIG).is_file()


def load_saved(folder: Path | str, **overrides: Any) -> MultimodalLLM:
    """Opens an embedder folder as its card says.

    Args:
        folder: what :func:`save_embedder` wrote, or
            :func:`~vidvec_msg.embedders.whole.save_merged` and :func:`~vidvec_msg.embedders.whole.save_full`.
        overrides: arguments of :class:`MultimodalLLM` that go before the card's, for example ``device``,
            ``truncate_dim``, or ``model`` (where the base model of an adapter lies on this machine).

    Raises:
        RefusedRequest: the folder is incomplete, or the base model or adapter cannot be loaded.
    """
    folder = Path(folder)
    card = read_card(folder)
    if holds_weights(folder):
        return _load_whole(folder, card, overrides)
    settings = {
        **settings_of(card),
        "model": card.base_model,
        "revision": card.revision,
        "adapter": str(folder) if (folder / ADAPTER_CONFIG).is_file() else None,
    }
    try:
        embedder = MultimodalLLM(**(settings | overrides))
    except RefusedRequest as error:
        if "model" in overrides or _is_here(card):
            raise
        raise RefusedRequest(
            f"embedder {folder}: its base model is not here. {error} If it lies in another folder, say so: "
            f"{folder}?model=FOLDER"
        ) from error
    if card.weights and embedder.card.weights != card.weights and "adapter" not in overrides:
        if settings["adapter"] is None and "model" not in overrides:
            raise RefusedRequest(
                f"embedder {folder}: its card was written for other weights than those of {card.base_model}: "
                f"the model has changed, or {ADAPTER_CONFIG} and the adapter are missing. Make the folder "
                f"again, or give the model: {folder}?model=FOLDER"
            )
        logger.warning(
            "embedder %s: the weights of base model %s are not those it was trained on",
            folder,
            card.base_model,
        )
    return embedder


def _load_whole(folder: Path, card: EmbedderCard, overrides: Mapping[str, Any]) -> MultimodalLLM:
    strangers = [name for name in ("model", "revision") if name in overrides]
    if strangers:
        raise RefusedRequest(
            f"embedder {folder} holds its whole weights; {' and '.join(strangers)} would put others in their "
            f"place. Leave it out, or open the other model as it is: mllm:{overrides.get('model', 'NAME')}"
        )
    embedder = MultimodalLLM(**{**settings_of(card), "model": str(folder), **overrides})
    if card.weights and embedder.card.weights != card.weights and "adapter" not in overrides:
        logger.warning("embedder %s: the weights are not those that its card was written for", folder)
    embedder.card = dataclasses.replace(  # where they come from says more than where they lie
        embedder.card, base_model=card.base_model, revision=card.revision, merged_from=card.merged_from
    )
    return embedder


def with_lasting_base(card: EmbedderCard) -> EmbedderCard:
    """The card with a base model that can be found from other working folders too.

    Raises:
        RefusedRequest: it names none.
    """
    if not card.base_model:
        raise RefusedRequest("the card names no base model; set base_model to a folder or hub name")
    here = Path(card.base_model).expanduser()
    if card.base_model != TINYWORLD and here.is_dir():
        return dataclasses.replace(card, base_model=str(here.absolute()))
    return card


def _is_here(card: EmbedderCard) -> bool:
    """Whether the files of the base model are on this machine."""
    try:
        return local_folder(resolve_model(card.base_model), revision=card.revision) is not None
    except RefusedRequest:
        return False


def _expected(model: Any) -> dict[str, Any]:
    """Names and shapes that the file must hold: those of the model's adapter, gathered or not."""
    from peft import get_peft_model_state_dict

    parameters = dict(model.named_parameters())  # a state dict would hold them without their whole shape
    own = get_peft_model_state_dict(model, state_dict=parameters, save_embedding_layers=False)
    # under ZeRO-3 the shards' own shapes are (0,); DeepSpeed keeps the whole shape beside them
    return {name: getattr(tensor, "ds_shape", tensor.shape) for name, tensor in own.items()}


def refuse_foreign(out: Path) -> None:
    """Refuses to replace what is no embedder.

    Raises:
        RefusedRequest: ``out`` is a file, or a folder with other files in it.
    """
    if out.is_file():
        raise RefusedRequest(f"{out} is a file; give a folder that is new, empty, or holds an embedder")
    ours = (CARD_FILE, ADAPTER_CONFIG)
    if out.is_dir() and any(out.iterdir()) and not any((out / name).exists() for name in ours):
        raise RefusedRequest(f"{out} already holds files that are not an embedder; give another folder")
