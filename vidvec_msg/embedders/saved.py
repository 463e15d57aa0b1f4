"""The embedder folder: a PEFT adapter and the card that says how it is used."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vidvec_msg.embedders.adapter import check_adapter, write_adapter
from vidvec_msg.embedders.contract import CARD_FILE, EmbedderCard
from vidvec_msg.embedders.models import (
    TINYWORLD,
    combined_digest,
    local_folder,
    resolve_model,
    weights_digest,
)
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import read_json, software_versions, umask, write_json

logger = logging.getLogger(__name__)


def save_embedder(
    out: Path,
    *,
    model: Any,
    card: EmbedderCard,
    state_dict: Mapping[str, Tensor] | None = None,
    allow_untrained: bool = False,
) -> EmbedderCard:
    """Writes a trained adapter as an embedder folder, reopens it and checks it.

    The adapter is written under a temporary name beside ``out`` and checked there; then the folder is
    renamed, then ``embedder.json`` written: its presence means complete. An earlier embedder in ``out`` is
    replaced.

    Args:
        out: the folder.
        model: the ``PeftModel`` around the bare language model that was trained.
        card: how it was trained: base model, prompt, layer, pooling, frames, …; digest, adapter and software
            versions are filled in here.
        state_dict: gathered adapter weights, where the model's own are sharded over ranks (ZeRO-3).
        allow_untrained: accepts an adapter that has not made a step yet.

    Returns:
        the card as it was written.

    Raises:
        RefusedRequest: ``out`` holds something else, or what was written is not a usable adapter.
    """
    if not card.base_model:
        raise RefusedRequest("the card names no base model; set base_model to a folder or hub name")
    here = Path(card.base_model).expanduser()
    if card.base_model != TINYWORLD and here.is_dir():  # the folder must open in another working folder too
        card = dataclasses.replace(card, base_model=str(here.absolute()))
    _refuse_foreign(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        write_adapter(
            temporary, model, base_model=card.base_model, revision=card.revision, state_dict=state_dict
        )
        check_adapter(temporary, expected=_expected(model), allow_untrained=allow_untrained)
        temporary.chmod(0o777 & ~umask())  # mkdtemp makes private folders
        if out.exists():
            shutil.rmtree(out)
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    base = local_folder(resolve_model(card.base_model), revision=card.revision)
    written = dataclasses.replace(
        card,
        adapter=str(out),
        weights=combined_digest("" if base is None else weights_digest(base), weights_digest(out)),
        versions=software_versions(),
    )
    # the folder may be moved: it does not name its own place
    write_json(out / CARD_FILE, dataclasses.replace(written, adapter=None).to_dict())
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


def load_saved(folder: Path | str, **overrides: Any) -> MultimodalLLM:
    """Opens an embedder folder as its card says.

    Args:
        folder: what :func:`save_embedder` wrote.
        overrides: arguments of :class:`MultimodalLLM` that go before the card's, for example ``device`` or
            ``model`` (where the base model lies on this machine).

    Raises:
        RefusedRequest: the folder is incomplete, or the base model or adapter cannot be loaded.
    """
    folder = Path(folder)
    card = read_card(folder)
    settings: dict[str, Any] = {
        "model": card.base_model,
        "revision": card.revision,
        "adapter": str(folder),
        "layer": -1 if card.layer is None else card.layer,
        "pooling": card.pooling or "last",
        "padding": card.padding or "right",
        "transcript": card.transcript,
        "sound": card.sound,
        "dtype": card.dtype,
        "name": card.name,
    }
    if card.prompt is not None:
        settings["prompt"] = card.prompt
    if card.max_tokens is not None:
        settings["max_tokens"] = card.max_tokens
    if card.frames is not None:
        settings |= dataclasses.asdict(card.frames)
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
        logger.warning(
            "embedder %s: the weights of base model %s are not those it was trained on",
            folder,
            card.base_model,
        )
    return embedder


def _is_here(card: EmbedderCard) -> bool:
    """Whether the files of the base model are on this machine."""
    try:
        return local_folder(resolve_model(card.base_model), revision=card.revision) is not None
    except RefusedRequest:
        return False


def _expected(model: Any) -> dict[str, Any]:
    """Names and shapes that the file must hold: those of the model's adapter, gathered or not."""
    from peft import get_peft_model_state_dict

    own = get_peft_model_state_dict(model, save_embedding_layers=False)
    # under ZeRO-3 the shards' own shapes are (0,); DeepSpeed keeps the whole shape beside them
    return {name: getattr(tensor, "ds_shape", tensor.shape) for name, tensor in own.items()}


def _refuse_foreign(out: Path) -> None:
    if out.is_file():
        raise RefusedRequest(f"{out} is a file; give a folder that is new, empty, or holds an embedder")
    ours = (CARD_FILE, "adapter_config.json")
    if out.is_dir() and any(out.iterdir()) and not any((out / name).exists() for name in ours):
        raise RefusedRequest(f"{out} already holds files that are not an embedder; give another folder")
