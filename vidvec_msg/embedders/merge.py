"""An embedder with its adapter merged into the weights; the verb ``merge``."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Literal

from vidvec_msg.embedders.export.comparison import probes
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.embedders.saved import holds_weights
from vidvec_msg.embedders.training_record import training_of
from vidvec_msg.embedders.whole import save_merged
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.runs import require_new

logger = logging.getLogger(__name__)


def merge(
    embedder: str,
    out: Path,
    *,
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
    device: str = "auto",
) -> Path:
    """Merges an embedder's adapter into its language model, and writes an embedder folder with whole weights.

    It opens as the folder with the adapter does (--embedder OUT), needs neither PEFT nor the base model, and
    is opened with its vectors compared before it takes its place.

    Args:
        embedder: an embedder with an adapter: an embedder folder, or mllm:NAME?adapter=FOLDER.
        out: the folder to make.
        dtype: of the merged weights; "auto" is the embedder's own.
        device: where the vectors are computed that are compared: "auto", "cpu", "cuda", "cuda:1".

    Returns:
        the folder.

    Raises:
        RefusedRequest: the embedder has no adapter or one that cannot be merged, ``out`` holds something, or
            the merged model gives other vectors; nothing was written.
    """
    require_new(out, option="--out")
    _refuse_without_adapter(embedder, Path(embedder).is_dir() and holds_weights(Path(embedder)))
    options = {key: value for key, value in (("dtype", dtype), ("device", device)) if value != "auto"}
    loaded = load_embedder(embedder, **options)
    if not isinstance(loaded, MultimodalLLM):
        raise RefusedRequest(
            f"embedder {embedder!r} is a {type(loaded).__name__}; merge takes multimodal LLMs with an "
            "adapter (an embedder folder of fit, mllm:NAME?adapter=FOLDER)"
        )
    before = loaded.card
    _refuse_without_adapter(embedder, before.adapter is None)
    items = probes(loaded)
    expected = loaded.encode(items, role="document")  # before anything is merged
    training = training_of(embedder, before.adapter)
    merged = merge_adapters(loaded.backbone.full)
    logger.info("%d adapted weights merged; writing and checking %s", merged, out)
    card = dataclasses.replace(before, merged_from=before.fingerprint)
    card, cosines = save_merged(
        out, embedder=loaded, card=card, expected=(items, expected), training=training
    )
    checked = ", ".join(f"{kind} {cosine:.6f}" for kind, cosine in cosines.items())
    logger.info(
        "made %s (%s), merged from %s; least cosine with its vectors: %s",
        out,
        card.fingerprint,
        card.merged_from,
        checked,
    )
    return out


def _refuse_without_adapter(embedder: str, absent: bool) -> None:
    if absent:
        raise RefusedRequest(
            f"embedder {embedder!r} has no adapter in it: there is nothing to merge. Its weights are whole "
            "already; export and push take it as it is"
        )
