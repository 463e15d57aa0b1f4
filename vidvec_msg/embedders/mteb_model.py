"""An embedder as a model that mteb's ``evaluate`` takes: its tasks, our vectors."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from tqdm import tqdm

from vidvec_msg.embedders.check import check_vectors
from vidvec_msg.embedders.contract import Embedder, Role, Vectors
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.extras import require
from vidvec_msg.formats.items import Item, Modality, Pixels

ORGANISATION = "vidvec-msg"  # mteb's names are organisation/model
_FILES: tuple[Modality, ...] = ("video", "audio")  # columns that are decoded here, not by mteb


class MtebModel:
    """mteb's ``EncoderProtocol`` around an embedder.

    Queries and documents keep their role; tasks without the two (classification, clustering, STS) are encoded
    as ``role_elsewhere``. Clips and sounds are decoded by the embedder's own readers, with its frame policy:
    torchcodec is not needed. mteb has no list of rejects, so an item that cannot be embedded ends the task
    with an :class:`~vidvec_msg.errors.ItemError` that names it.

    Args:
        embedder: what makes the vectors.
        role_elsewhere: role of items that are neither queries nor documents.

    Raises:
        RefusedRequest: mteb is not installed.
    """

    def __init__(self, embedder: Embedder, *, role_elsewhere: Role = "query") -> None:
        require("mteb", purpose="evaluate an embedder on mteb's tasks")
        from mteb.models.model_meta import ModelMeta

        card = embedder.card
        self.embedder = embedder
        self.role_elsewhere: Role = role_elsewhere
        self.mteb_model_meta: Any = ModelMeta(
            loader=None,
            name=f"{ORGANISATION}/{card.name.replace('/', '_')}",
            # mteb keeps results by name and revision: prompt, layer and frames count as the weights do
            revision=card.fingerprint,
            modalities=list(card.modalities),
            embed_dim=card.dim,
            max_tokens=card.max_tokens,
            similarity_fn_name="cosine",
            use_instructions=card.prompt is not None or bool(card.role_prompts),
            framework=["PyTorch"],
            release_date=None,
            languages=None,
            n_parameters=None,
            memory_usage_mb=None,
            license=None,
            open_weights=None,
            public_training_code=None,
            public_training_data=None,
            training_datasets=None,  # unknown: mteb then makes no claim about zero-shot
        )

    def encode(
        self,
        inputs: DataLoader[Any],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any | None = None,
        show_progress_bar: bool = False,
        **kwargs: Any,
    ) -> Vectors:
        """Vectors of a task's rows, in their order.

        Args:
            inputs: mteb's batches: a mapping from column to values.
            task_metadata: of the task; named in errors.
            hf_split: of the task; not used.
            hf_subset: of the task; not used.
            prompt_type: mteb's query or document; None for tasks without the two.
            show_progress_bar: one step per batch.
            kwargs: further options of mteb's encoders; a precision other than float32 is refused.

        Returns:
            float32 (rows, dim), rows of norm 1.

        Raises:
            ItemError: rows that cannot be embedded.
            RefusedRequest: rows with several media, or a precision.
        """
        if kwargs.get("precision") not in (None, "float32"):
            raise RefusedRequest(f"precision {kwargs['precision']!r}: vectors are float32 here")
        role: Role = self.role_elsewhere if prompt_type is None else _ROLES[str(prompt_type.value)]
        found = [np.zeros((0, self.embedder.card.dim), dtype=np.float32)]
        for batch in tqdm(_undecoded(inputs), disable=not show_progress_bar, desc=self.embedder.card.name):
            with ExitStack() as files:
                items = list(_items(batch, files, task=str(task_metadata.name)))
                vectors = self.embedder.encode(items, role=role)
                found.append(check_vectors(vectors, items, self.embedder.card))  # (batch, dim)
        return np.concatenate(found)  # (rows, dim)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of all pairs, (rows of the first, rows of the second)."""
        return _matrix(embeddings1) @ _matrix(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of row with row, (rows,)."""
        return (_matrix(embeddings1) * _matrix(embeddings2)).sum(dim=-1)


_ROLES: dict[str, Role] = {"query": "query", "document": "document"}


def as_mteb(embedder: Embedder, *, role_elsewhere: Role = "query") -> MtebModel:
    """The embedder as ``mteb.evaluate(as_mteb(embedder), tasks)`` takes it; see :class:`MtebModel`.

    Raises:
        RefusedRequest: mteb is not installed; the message holds the pip line.
    """
    return MtebModel(embedder, role_elsewhere=role_elsewhere)


def _matrix(rows: Any) -> Tensor:
    """Rows as float32 (rows, dim); one vector is one row."""
    matrix = torch.as_tensor(rows).float()
    return matrix if matrix.ndim == 2 else matrix[None]


# --- rows → items -------------------------------------------------------------------------------------------


def _undecoded(inputs: DataLoader[Any]) -> DataLoader[Any]:
    """The same batches, with clips and sounds as files: torchcodec, which decodes them else, applies neither
    our frame policy nor our time limits."""
    dataset: Any = inputs.dataset
    features = getattr(dataset, "features", None) or {}
    coded = [name for name in _FILES if getattr(features.get(name), "decode", False)]
    if not coded:
        return inputs
    for name in coded:
        dataset = dataset.cast_column(name, type(features[name])(decode=False))
    return DataLoader(
        dataset,
        batch_size=inputs.batch_size,
        collate_fn=inputs.collate_fn,
        num_workers=inputs.num_workers,
        shuffle=False,
    )


def _items(batch: Mapping[str, Sequence[Any]], files: ExitStack, *, task: str) -> Iterator[Item]:
    """One item per row of a batch; mteb has joined the title and the text of a document already."""
    present = [kind for kind in ("text", "image", *_FILES) if kind in batch]
    if len(present) != 1:
        what = "no text, image, video or audio" if not present else " and ".join(present)
        raise RefusedRequest(
            f"task {task} gives {what} in one row ({', '.join(batch)}); an item is one text, image, "
            "clip or sound"
        )
    (kind,) = present
    values = batch[kind]
    ids = [str(one) for one in batch.get("id", range(len(values)))]
    for one, value in zip(ids, values, strict=True):
        if kind == "text":
            yield Item(one, text=str(value))
        elif kind == "image":
            yield Item(one, image=_pixels(value))
        elif kind == "video":
            yield Item(one, video=_file(value, files, task=task))
        else:
            yield Item(one, audio=_file(value, files, task=task))


def _pixels(image: Any) -> Pixels:
    """A PIL image, or what numpy reads, as uint8 (height, width, 3)."""
    pixels: Pixels = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    return pixels


def _file(value: Any, files: ExitStack, *, task: str) -> Path:
    """The file of a media column; bytes become a file for as long as the batch lives."""
    if isinstance(value, (str, Path)):
        return Path(value)
    if isinstance(value, Mapping) and value.get("bytes"):
        name = Path(value.get("path") or "media").name
        folder = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="vidvec-mteb-")))
        (folder / name).write_bytes(value["bytes"])
        return folder / name
    if isinstance(value, Mapping) and value.get("path"):
        return Path(value["path"])
    raise RefusedRequest(
        f"task {task} gives a medium as {type(value).__name__}; accepted are columns of datasets' Video and "
        "Audio, and paths"
    )
