"""Any sentence-transformers model: texts, and images and clips where the model takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.backbone import DTYPES, choose_device, quiet_progress
from vidvec_msg.embedders.chat import video_metadata
from vidvec_msg.embedders.check import unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.contract import ROLES, EmbedderCard, Role, Vectors
from vidvec_msg.embedders.models import combined_digest, local_folder, weights_digest
from vidvec_msg.embedders.reading import clip_of, image_of
from vidvec_msg.errors import Failure, ItemError, RefusedRequest
from vidvec_msg.formats.items import Item, Modality
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.runs import software_versions


class SentenceTransformerEmbedder:
    """A sentence-transformers model behind the contract.

    Queries go through ``encode_query`` and documents through ``encode_document``, with the model's own
    prompts and modules for each.

    Args:
        model: folder or hub name.
        revision: commit of a hub model.
        query_prompt: words before a query; None takes the model's own.
        document_prompt: words before a document; None takes the model's own.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame or image at most; 0 leaves it to the model's processor.
        truncate_dim: keep this many dimensions (Matryoshka models); 0 keeps all.
        batch_size: items that run together.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": as the weights are stored.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        trust_remote_code: run Python files that come with the model.
        name: for tables; the model's own name if not given.

    Raises:
        RefusedRequest: the model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        truncate_dim: int = 0,
        batch_size: int = 32,
        device: str = "auto",
        dtype: str = "float32",
        decode_timeout: float = 120.0,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        from sentence_transformers import SentenceTransformer

        if dtype != "auto" and dtype not in DTYPES:
            raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, got {dtype!r}")
        if batch_size < 1 or truncate_dim < 0:
            raise ValueError(
                f"batch_size must be at least 1 and truncate_dim at least 0, "
                f"got {batch_size} and {truncate_dim}"
            )
        self._policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        self._decoders = shared_pool(2, decode_timeout)
        self.batch_size = batch_size
        try:
            with quiet_progress():
                self.model: Any = SentenceTransformer(
                    model,
                    device=str(choose_device(device)),
                    revision=revision,
                    trust_remote_code=trust_remote_code,
                    truncate_dim=truncate_dim or None,
                    model_kwargs={
                        "dtype": "auto" if dtype == "auto" else DTYPES[dtype],
                        "use_safetensors": True,
                    },
                )
        except (OSError, ValueError, ImportError, KeyError) as error:
            raise RefusedRequest(f"cannot load the sentence-transformers model {model!r}: {error}") from error
        self._prompts = self._role_prompts(query_prompt, document_prompt)
        self._judged = False
        modalities = _modalities(self.model)
        folder = local_folder(model, revision=revision)
        self._card = EmbedderCard(
            name=name or Path(model).name,
            dim=truncate_dim or int(self.model.get_embedding_dimension()),
            modalities=modalities,
            base_model=model,
            revision=revision,
            weights="" if folder is None else _all_weights(folder),
            role_prompts={role: prompt for role, prompt in self._prompts.items() if prompt},
            pooling="sentence-transformers",
            frames=self._policy if "video" in modalities else None,
            dtype=str(next(self.model.parameters()).dtype).removeprefix("torch."),
            max_tokens=self.model.max_seq_length,
            versions=software_versions(),
        )

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors."""
        return self._card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items, float32 (items, dim).

        Raises:
            ItemError: items that cannot be read, before the model runs; or whose vector is not finite.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        inputs = self._inputs(items)
        states = np.empty((len(items), self.card.dim), dtype=np.float32)
        for rows in self._batches(items):
            states[rows] = self._encode([inputs[row] for row in rows], items[rows[0]].modality, role)
        vectors = unit_vectors(states, items)
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        return vectors

    def _encode(self, inputs: list[Any], modality: Modality, role: Role) -> np.ndarray:
        run = self.model.encode_query if role == "query" else self.model.encode_document
        settings: dict[str, Any] = {}
        if modality == "video":
            settings["processing_kwargs"] = {
                "video": {"do_sample_frames": False}
            }  # the frames are chosen already
        vectors = run(
            inputs,
            prompt=self._prompts[role],
            batch_size=self.batch_size if modality == "text" else 1,
            show_progress_bar=False,
            convert_to_tensor=True,
            **settings,
        )
        states: np.ndarray = torch.as_tensor(vectors).float().cpu().numpy()  # (batch, dim)
        return states

    def _batches(self, items: Sequence[Item]) -> list[list[int]]:
        """One call per modality: processors are not asked to mix them."""
        found: dict[Modality, list[int]] = {}
        for row, item in enumerate(items):
            found.setdefault(item.modality, []).append(row)
        return list(found.values())

    def _inputs(self, items: Sequence[Item]) -> list[Any]:
        inputs: list[Any] = []
        failures = []
        for item in items:
            try:
                inputs.append(self._input(item))
            except ValueError as error:
                failures.append(Failure(item.id, str(error)))
        if failures:
            raise ItemError(failures)
        return inputs

    def _input(self, item: Item) -> Any:
        if item.modality not in self.card.modalities:
            raise ValueError(
                f"this embedder reads {', '.join(self.card.modalities)}; the item is {item.modality}"
            )
        if item.modality == "text":
            if not item.full_text:
                raise ValueError("empty text")
            return item.full_text
        if item.modality == "image":
            return {"image": image_of(item, self._policy)}
        frames = clip_of(item, self._policy, self._decoders)
        return {"video": {"array": frames.pixels, "video_metadata": video_metadata(frames)}}

    def _role_prompts(self, query: str | None, document: str | None) -> dict[Role, str]:
        return {
            "query": self._own_prompt("query") if query is None else query,
            "document": self._own_prompt("document", "passage", "corpus") if document is None else document,
        }

    def _own_prompt(self, *names: str) -> str:
        """The prompt that ``encode_query`` and ``encode_document`` choose: of the first name that the model
        knows, be it blank; its default prompt after that."""
        own: dict[str, str] = self.model.prompts or {}
        return next((own[name] for name in (*names, self.model.default_prompt_name) if name in own), "")


def _modalities(model: Any) -> tuple[Modality, ...]:
    """What the model takes, audio left out: nothing here reads sound yet."""
    offered = getattr(model, "modalities", ["text"])
    known: tuple[Modality, ...] = ("text", "image", "video")
    return tuple(modality for modality in known if modality in offered)


def _all_weights(folder: Path) -> str:
    """Digest of the backbone's weights; Dense layers in sub-folders included."""
    holders = sorted({path.parent for path in folder.rglob("*.safetensors")})
    return combined_digest(*(weights_digest(holder) for holder in holders))
