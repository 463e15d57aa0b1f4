"""An embedder as a model folder that other tools open without this package; the verb ``export``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from vidvec_msg.embedders.contract import EXPORT_FILE, EmbedderCard, Vectors
from vidvec_msg.embedders.export import sentence_transformers_folder, transformers_folder
from vidvec_msg.embedders.export.comparison import least_cosines, probes, refuse_other_vectors
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.export.pages import PAGE
from vidvec_msg.embedders.export.readme import readme
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.new_folder import appearing
from vidvec_msg.embedders.training_record import TRAINING_FILE, TrainingRecord, training_of
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.runs import require_new, software_versions, write_json

logger = logging.getLogger(__name__)

Target = Literal["sentence-transformers", "transformers"]


class _Folder(Protocol):
    """A kind of folder: a module that writes it and one that reads it back."""

    def write(self, embedder: MultimodalLLM, folder: Path) -> None: ...

    def answers(self, embedder: MultimodalLLM, folder: Path, items: Sequence[Item]) -> list[Vectors]: ...


_TARGETS: dict[Target, _Folder] = {
    "sentence-transformers": sentence_transformers_folder,
    "transformers": transformers_folder,
}


def export(
    embedder: str,
    out: Path,
    *,
    to: Target = "sentence-transformers",
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
    device: str = "auto",
) -> Path:
    """Writes an embedder as a model folder that sentence-transformers or transformers opens, adapter merged.

    What was written is opened again and must give the embedder's vectors; a folder that does not is not kept.

    Args:
        embedder: a multimodal LLM with or without an adapter: an embedder folder, mllm:NAME, tinyworld.
        out: the folder to make.
        to: "sentence-transformers" (prompts, pooling and norm inside: SentenceTransformer(OUT)) or
            "transformers" (the merged model and its processor; its README.md says how to embed with it).
        dtype: of the merged weights; "auto" is the embedder's own.
        device: where the vectors are computed that are compared: "auto", "cpu", "cuda", "cuda:1".

    Returns:
        the folder.

    Raises:
        RefusedRequest: the embedder cannot be exported exactly, or ``out`` holds something; nothing was
            written.
    """
    require_new(out, option="--out")
    if to not in _TARGETS:
        raise RefusedRequest(f"--to is {to!r}; accepted are {', '.join(_TARGETS)}")
    options = {key: value for key, value in (("dtype", dtype), ("device", device)) if value != "auto"}
    loaded = load_embedder(embedder, **options)
    if not isinstance(loaded, MultimodalLLM):
        raise RefusedRequest(
            f"embedder {embedder!r} is a {type(loaded).__name__}; export writes embedders made of a "
            "multimodal LLM (an embedder folder, mllm:NAME, tinyworld). What st: loads is an exported folder "
            "already."
        )
    export_embedder(loaded, out, to=to, training=training_of(embedder, loaded.card.adapter))
    return out


def _refuse_own_reading(embedder: MultimodalLLM) -> None:
    """Refuses what no other tool reads."""
    card = embedder.card
    ours = {
        "normed": card.normed,
        "pooling=visual": card.pooling == "visual",
        "role_prompts": bool(card.role_prompts),
    }
    if found := [name for name, used in ours.items() if used]:
        raise RefusedRequest(
            f"embedder {card.name!r} is read or worded with {', '.join(found)}, which an exported folder "
            "cannot say; use the embedder folder with this package, or another read-out"
        )


def export_embedder(
    embedder: MultimodalLLM,
    out: Path,
    *,
    to: Target = "sentence-transformers",
    training: TrainingRecord | None = None,
) -> None:
    """Writes a loaded embedder as a model folder; see :func:`export`.

    Args:
        embedder: its adapter is merged in place, so that its own weights are the exported ones from then on.
        out: new or empty.
        to: the kind of folder.
        training: how it was trained, for the folder's README.md.

    Raises:
        RefusedRequest: as :func:`export`.
    """
    require_new(out, option="out")
    _refuse_own_reading(embedder)
    if to == "sentence-transformers":
        sentence_transformers_folder.refuse(embedder)
    items = probes(embedder)
    expected = embedder.encode(items, role="document")  # before anything is merged
    merged = merge_adapters(embedder.backbone.full)
    logger.info("%d adapted weights merged; writing and checking %s", merged, out)
    with appearing(out) as folder:
        _TARGETS[to].write(embedder, folder)
        cosines = least_cosines(_TARGETS[to].answers(embedder, folder, items), expected, items)
        refuse_other_vectors(cosines, embedder.card, what="the exported model")
        page = readme(embedder, out.name, to=to, cosines=cosines, training=training)
        (folder / PAGE).write_text(page, encoding="utf-8")
        if training is not None:
            write_json(folder / TRAINING_FILE, training.to_dict())
    _write_manifest(out, embedder.card, to=to, merged=merged, cosines=cosines)
    checked = ", ".join(f"{kind} {cosine:.6f}" for kind, cosine in cosines.items())
    logger.info("%s opens in %s; least cosine with the embedder's own vectors: %s", out, to, checked)


def _write_manifest(
    out: Path, card: EmbedderCard, *, to: Target, merged: int, cosines: dict[Modality, float]
) -> None:
    content = {
        "to": to,
        "card": {**card.to_dict(), "adapter": None},
        "merged_modules": merged,
        "least_cosine": cosines,
        "versions": software_versions(),
    }
    write_json(out / EXPORT_FILE, content)
