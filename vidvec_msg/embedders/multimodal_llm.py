"""A generative multimodal LLM as an embedder: one prompt, one forward pass, one state."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.adapter import put_adapter_on
from vidvec_msg.embedders.backbone import DTYPES, choose_device, load_backbone
from vidvec_msg.embedders.chat import Chat, Placement, Side, Turn
from vidvec_msg.embedders.check import unit_vectors, warn_if_collapsed
from vidvec_msg.embedders.contract import ROLES, EmbedderCard, Role, Vectors
from vidvec_msg.embedders.models import combined_digest, local_folder, resolve_model, weights_digest
from vidvec_msg.embedders.pooling import FINAL, POOLINGS, Pooling, check_read_out, reading_layer
from vidvec_msg.embedders.prompts import PromptTemplate, resolve_prompt
from vidvec_msg.embedders.reading import ItemReader
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.runs import software_versions

logger = logging.getLogger(__name__)


class MultimodalLLM:
    """Vectors from a multimodal LLM's hidden states; an adapter trained on text alone serves its clips too.

    A clip is its frames, and its transcript if asked for; ``text``, ``title`` and ``ocr`` beside a medium are
    not read. Works for every family behind ``AutoModelForImageTextToText``; a plain language model embeds
    text.

    Args:
        model: ``tinyworld``, a checkpoint folder, or a hub name.
        revision: commit of a hub model.
        adapter: folder of a LoRA adapter, of this project or any PEFT one.
        prompt: preset name, or a template.
        layer: state that is read: -1 the normed final one, 0 the embedding output, n the raw output of block
            n.
        pooling: "last" (the generation prompt's last token) or "mean".
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame or image at most; 0 leaves it to the model's processor.
        transcript: a clip's transcript "before" its frames (VidVec-Msg), "after" them, or "none".
        max_tokens: words of one item in tokens, prompt included, frames not; longer content is cut.
        batch_size: items that run together at most.
        batch_frames: frames that run together at most; a longer clip runs alone.
        padding: side on which a batch is filled up; it must not matter.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": as the weights are stored.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model.
        name: for tables; made from the model's and adapter's names if not given.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model or the adapter cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        adapter: str | Path | None = None,
        prompt: str | PromptTemplate = "vidvec",
        layer: int = FINAL,
        pooling: Pooling = "last",
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        transcript: Placement = "none",
        max_tokens: int = 1024,
        batch_size: int = 16,
        batch_frames: int = 64,
        padding: Side = "right",
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        _check_options(
            transcript, dtype, max_tokens=max_tokens, batch_size=batch_size, batch_frames=batch_frames
        )
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        template = resolve_prompt(prompt)
        self.device = choose_device(device)
        pool = shared_pool(decode_workers, decode_timeout)
        source = resolve_model(str(model))
        self.chat = Chat.open(source, revision=revision, trust_remote_code=trust_remote_code, padding=padding)
        self.backbone = load_backbone(
            source, revision=revision, device=self.device, dtype=dtype, trust_remote_code=trust_remote_code
        )
        check_read_out(layer, pooling, blocks=self.backbone.blocks)
        if adapter is not None:
            put_adapter_on(self.backbone.full, self.backbone.tower, Path(adapter))
            self.backbone.full.eval()
        modalities = self.backbone.modalities if self.chat.processor is not None else ("text",)
        self.batch_size = batch_size
        self.batch_frames = batch_frames
        self._layer = layer
        self._pool = POOLINGS[pooling]
        self._judged = False  # whether the space was looked at for collapse
        self._told_of_cuts = False
        self._reader = ItemReader(self.chat, template, policy, transcript, max_tokens, modalities, pool)
        self._card = EmbedderCard(
            name=name or _short_name(str(model), adapter),
            dim=self.backbone.dim,
            modalities=modalities,
            base_model=str(model),
            revision=revision,
            weights=_digest(source, revision, adapter),
            adapter=None if adapter is None else str(adapter),
            prompt=template,
            layer=layer,
            pooling=pooling,
            padding=padding,
            frames=policy if "video" in modalities else None,
            transcript=transcript,
            dtype=str(self.backbone.full.dtype).removeprefix("torch."),
            max_tokens=max_tokens,
            versions=software_versions(),
        )

    @property
    def card(self) -> EmbedderCard:
        """What decides the vectors."""
        return self._card

    def encode(self, items: Sequence[Item], *, role: Role) -> Vectors:
        """Unit vectors in the order of the items.

        The clips of one call are decoded first and held in memory together: a caller with many gives a few
        dozen at a time.

        Args:
            items: any mixture of modalities.
            role: "query" or "document"; this embedder words both alike (the prompt mirror).

        Returns:
            float32 (items, dim).

        Raises:
            ItemError: all items that cannot be read, before the model runs; or items whose vector is not
                finite.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        if not items:
            return np.zeros((0, self.card.dim), dtype=np.float32)
        turns = self._reader.turns(items)
        self._tell_of_cuts()
        states = np.empty((len(items), self.card.dim), dtype=np.float32)
        for rows in self._batches(turns):
            states[rows] = self._states([turns[row] for row in rows])  # (batch, dim)
        advice = "" if self.card.dtype == "float32" else f" in {self.card.dtype}; try dtype=float32"
        vectors = unit_vectors(states, items, advice=advice)
        if not self._judged:
            self._judged = warn_if_collapsed(vectors, items, name=self.card.name)
        return vectors

    def _tell_of_cuts(self) -> None:
        if self.chat.cut_items and not self._told_of_cuts:
            self._told_of_cuts = True
            logger.warning(
                "%s: words longer than max_tokens=%d are cut (%d tokens of %d items so far)",
                self.card.name,
                self._reader.max_tokens,
                self.chat.cut_tokens,
                self.chat.cut_items,
            )

    def _batches(self, turns: Sequence[Turn]) -> Iterator[list[int]]:
        """Row numbers of turns that run together: one kind of medium, longest first, so that memory is
        exhausted at once or never."""
        order = sorted(range(len(turns)), key=lambda row: (turns[row].kind, -turns[row].size))
        batch: list[int] = []
        frames = 0
        for row in order:
            turn = turns[row]
            new = 0 if turn.frames is None else len(turn.frames.pixels)
            full = len(batch) == self.batch_size or frames + new > max(self.batch_frames, frames)
            if batch and (full or not self.chat.go_together(turns[batch[0]], turn)):
                yield batch
                batch, frames = [], 0
            batch.append(row)
            frames += new
        if batch:
            yield batch

    def _states(self, turns: list[Turn]) -> np.ndarray:
        """Pooled states of one batch, float32 (batch, dim)."""
        try:
            return self._forward(turns)
        except torch.OutOfMemoryError:
            if len(turns) == 1:
                raise
        # outside the except block: the traceback there would keep the tensors alive
        torch.cuda.empty_cache()
        half = len(turns) // 2
        logger.warning(
            "out of GPU memory with %d items; going on with %d (see batch_size, batch_frames)",
            len(turns),
            half,
        )
        return np.concatenate([self._states(turns[:half]), self._states(turns[half:])])

    @torch.inference_mode()
    def _forward(self, turns: list[Turn]) -> np.ndarray:
        inputs = {key: self._placed(key, value) for key, value in self.chat.batch(turns).items()}
        mask = inputs["attention_mask"]  # (batch, tokens)
        if self._layer == FINAL:
            hidden = self.backbone.base(**inputs, use_cache=False).last_hidden_state  # (batch, tokens, dim)
        else:
            with reading_layer(self.backbone.tower, self._layer) as state:
                self.backbone.base(**inputs, use_cache=False)
                hidden = state()  # (batch, tokens, dim)
        pooled: np.ndarray = self._pool(hidden, mask).float().cpu().numpy()  # (batch, dim)
        return pooled

    def _placed(self, key: str, value: Any) -> Any:
        """On the device; pixels in the model's dtype, and nothing else: seconds in bf16 shift rotary
        positions."""
        if not isinstance(value, torch.Tensor):
            return value
        pixels = key.startswith("pixel_values") and value.is_floating_point()
        return value.to(self.device, self.backbone.full.dtype if pixels else None)


def _check_options(transcript: str, dtype: str, **counts: int) -> None:
    if transcript not in ("before", "after", "none"):
        raise ValueError(f"transcript must be before, after or none, got {transcript!r}")
    if dtype != "auto" and dtype not in DTYPES:
        raise ValueError(f"dtype must be auto, {', '.join(DTYPES)}, got {dtype!r}")
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _short_name(model: str, adapter: str | Path | None) -> str:
    base = Path(model).name
    return base if adapter is None else f"{base}+{Path(adapter).resolve().name}"


def _digest(source: str, revision: str | None, adapter: str | Path | None) -> str:
    folder = local_folder(source, revision=revision)
    if folder is None:
        raise RefusedRequest(f"model {source!r} was loaded, but its files cannot be found for their digest")
    return combined_digest(
        weights_digest(folder), weights_digest(Path(adapter)) if adapter is not None else ""
    )
