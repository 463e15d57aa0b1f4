"""An embedder as a model folder that other tools open without this package; the verb ``export``."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from vidvec_msg.embedders.contract import EXPORT_FILE, EmbedderCard, Vectors
from vidvec_msg.embedders.export import sentence_transformers_folder, transformers_folder
from vidvec_msg.embedders.export.item_template import PROBES, fits
from vidvec_msg.embedders.export.merged import merge_adapters
from vidvec_msg.embedders.export.readme import readme
from vidvec_msg.embedders.load import load_embedder
from vidvec_msg.embedders.multimodal_llm import MultimodalLLM
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.runs import require_new, software_versions, umask, write_json

logger = logging.getLogger(__name__)

Target = Literal["sentence-transformers", "transformers"]
# cosine that every checked vector must reach; half precisions round once more when the adapter is merged
LEAST_COSINE = {"float32": 0.9999, "bfloat16": 0.995, "float16": 0.999}


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
    export_embedder(loaded, out, to=to)
    return out


def export_embedder(embedder: MultimodalLLM, out: Path, *, to: Target = "sentence-transformers") -> None:
    """Writes a loaded embedder as a model folder; see :func:`export`.

    Args:
        embedder: its adapter is merged in place, so that its own weights are the exported ones from then on.
        out: new or empty.
        to: the kind of folder.

    Raises:
        RefusedRequest: as :func:`export`.
    """
    if to == "sentence-transformers":
        sentence_transformers_folder.refuse(embedder)
    probes = _probes(embedder)
    expected = embedder.encode(probes, role="document")  # before anything is merged
    merged = merge_adapters(embedder.backbone.full)
    logger.info("%d adapted weights merged; writing and checking %s", merged, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".partial", dir=out.parent))
    try:
        _TARGETS[to].write(embedder, temporary)
        answers = _TARGETS[to].answers(embedder, temporary, probes)
        cosines = _least_cosines(answers, expected, probes)
        _refuse_other_vectors(cosines, embedder.card)
        page = readme(embedder, out.name, to=to, cosines=cosines)
        (temporary / "README.md").write_text(page, encoding="utf-8")
        for path in (temporary, *temporary.rglob("*")):  # mkdtemp and safetensors make private ones
            path.chmod((0o777 if path.is_dir() else 0o666) & ~umask())
        if out.is_dir():
            out.rmdir()
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
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


# --- the comparison -----------------------------------------------------------------------------------------


def _probes(embedder: MultimodalLLM) -> list[Item]:
    """Items of every kind that an exported folder embeds and that this embedder reads; none is cut."""
    card = embedder.card
    fitting = [text for text in PROBES if fits(embedder, text)]
    items = [Item(f"text {number}", text=text) for number, text in enumerate(fitting)]
    noise = np.random.default_rng(0).integers(0, 256, (4, 64, 96, 3), dtype=np.uint8)
    if "image" in card.modalities:
        items.append(Item("image", image=noise[0]))
    if "video" in card.modalities and card.frames is not None and not card.sound:
        items.append(Item("clip", video=noise, fps=card.frames.fps))
    return items


def _least_cosines(
    answers: Sequence[Vectors], expected: Vectors, items: Sequence[Item]
) -> dict[Modality, float]:
    """The worst cosine of all answers, per modality."""
    found = np.min([(answer.astype(np.float64) * expected).sum(axis=1) for answer in answers], axis=0)
    least: dict[Modality, float] = {}
    for item, cosine in zip(items, found.tolist(), strict=True):
        least[item.modality] = min(cosine, least.get(item.modality, 1.0))
    return least


def _refuse_other_vectors(cosines: dict[Modality, float], card: EmbedderCard) -> None:
    least = LEAST_COSINE[card.dtype]
    bad = [f"{kind} {cosine:.6f}" for kind, cosine in cosines.items() if not cosine >= least]
    if bad:
        hint = "" if card.dtype == "float32" else "; --dtype float32 merges without rounding"
        raise RefusedRequest(
            f"the exported model gives other vectors than the embedder: least cosine {', '.join(bad)}, "
            f"expected at least {least} in {card.dtype}{hint}. Nothing was kept."
        )
