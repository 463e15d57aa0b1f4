"""``clip:``: dual encoders of texts and images; a clip is the mean of its frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from vidvec_msg.embedders.backbone import check_options, choose_device
from vidvec_msg.embedders.batching import halved_if_out_of_memory
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.dual.frame_pooling import FRAME_POOLING_KERNELS, FRAME_POOLINGS, FramePooling
from vidvec_msg.embedders.dual.open_clip_towers import OpenClipTowers, is_open_clip
from vidvec_msg.embedders.dual.role_templates import prompts_on_card, text_templates
from vidvec_msg.embedders.dual.transformers_towers import TransformersTowers
from vidvec_msg.embedders.dual.two_towers import TwoTowerEmbedder
from vidvec_msg.embedders.models import short_name
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.runs import software_versions


class DualEncoder(TwoTowerEmbedder):
    """CLIP, SigLIP, SigLIP2, PE-Core and their kin: one tower for texts, one for single frames.

    A clip's vector is the mean of its frames' vectors, each of norm 1, normalised again: CLIP4Clip's
    parameter-free meanP with its 1 frame per second and 12 frames (arXiv 2104.08860). Pooling that depends on
    the query (X-Pool, tightTransf) gives a clip no single vector and is not offered. ``max_frames=1`` is the
    frame in the middle of the clip.

    Args:
        model: a checkpoint folder or hub name of a transformers model with text and image features; or of
            open_clip: ``hf-hub:ORG/NAME``, ``open_clip:MODEL/TAG``, ``open_clip:MODEL/FILE.safetensors``, or
            a folder with ``open_clip_config.json``.
        revision: commit of a hub model.
        fps: frames taken per second of clip; "uniform" takes ``max_frames`` from every clip, however short.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame or image at most, before the model's own resizing; 0 leaves it
            to that.
        max_patches: patches per frame of a model that takes images of any shape (SigLIP2 NaFlex); 0 leaves it
            to the model's processor. Other models refuse it.
        frame_pooling: "mean" of frame vectors of norm 1, or "mean_raw" of the vectors as they come.
        query_prompt: words around a text that is a query; holds ``{text}`` once.
        document_prompt: words around a text that is a document; holds ``{text}`` once.
        batch_size: texts that run together at most.
        batch_frames: frames that run together at most.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": bfloat16 where the device computes it fast (a GPU
            since Ampere, a CPU with AMX or AVX512-BF16), float32 elsewhere.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model; open_clip runs none.
        name: for tables; made from the model's name if not given.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model cannot be loaded, or is no dual encoder; the message says what to use.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        fps: float | Literal["uniform"] = 1.0,
        max_frames: int = 12,
        max_pixels: int = 0,
        max_patches: int = 0,
        frame_pooling: FramePooling = "mean",
        query_prompt: str = "{text}",
        document_prompt: str = "{text}",
        batch_size: int = 64,
        batch_frames: int = 64,
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        check_options(dtype, batch_size=batch_size, batch_frames=batch_frames)
        if frame_pooling not in FRAME_POOLINGS:
            raise ValueError(f"frame_pooling must be {' or '.join(FRAME_POOLINGS)}, got {frame_pooling!r}")
        if max_patches < 0:
            raise ValueError(f"max_patches must be 0 (leave it to the processor) or more, got {max_patches}")
        templates = text_templates(query_prompt, document_prompt)
        policy = _policy(fps, max_frames, max_pixels)
        place = choose_device(device)
        clips = ClipReader(policy, shared_pool(decode_workers, decode_timeout))
        tower: OpenClipTowers | TransformersTowers
        if is_open_clip(str(model)):
            if max_patches or trust_remote_code:
                raise ValueError(
                    "max_patches and trust_remote_code do nothing for open_clip models: leave them out"
                )
            tower = OpenClipTowers(str(model), revision=revision, device=place, dtype=dtype)
        else:
            tower = TransformersTowers(
                str(model),
                revision=revision,
                device=place,
                dtype=dtype,
                max_patches=max_patches,
                trust_remote_code=trust_remote_code,
            )
        card = EmbedderCard(
            name=name or short_name(str(model)),
            dim=tower.dim,
            modalities=("text", "image", "video"),
            base_model=str(model),
            revision=revision,
            weights=tower.weights,
            **prompts_on_card(templates),
            pooling=_pooling_name(frame_pooling, max_patches),
            padding="right",
            frames=policy,
            dtype=tower.dtype,
            max_tokens=tower.max_tokens,
            versions={**software_versions(), **getattr(tower, "versions", {})},
        )
        super().__init__(
            FrameTowers(tower, frame_pooling, batch_frames),
            card,
            clips,
            templates,
            batch_size=batch_size,
            batch_frames=batch_frames,
        )


class TextAndFrames(Protocol):
    """A dual encoder that knows single frames only."""

    dim: int
    max_tokens: int

    def wording(self, text: str) -> str:
        """The text as the tokenizer gets it."""
        ...

    def count_tokens(self, wording: str) -> int:
        """Tokens of a text before any cut."""
        ...

    def texts(self, wordings: Sequence[str]) -> np.ndarray:
        """Float32 (texts, dim), of any norm."""
        ...

    def frames(self, frames: Sequence[Pixels]) -> np.ndarray:
        """Float32 (frames, dim), of any norm, from frames of uint8 (height, width, 3), of any sizes."""
        ...

    def visual_tokens(self, frame: Pixels) -> int:
        """Patches of one frame."""
        ...


class FrameTowers:
    """Towers that see a clip as the pooled vectors of its frames.

    Args:
        tower: sees single frames.
        pooling: how frames become one vector.
        batch_frames: frames that run together at most; a longer clip takes several turns.
    """

    def __init__(self, tower: TextAndFrames, pooling: FramePooling, batch_frames: int) -> None:
        self.tower = tower
        self.dim = tower.dim
        self.max_tokens = tower.max_tokens
        self.wording = tower.wording
        self.count_tokens = tower.count_tokens
        self.texts = tower.texts
        self.batch_frames = batch_frames
        self._pool = FRAME_POOLING_KERNELS[pooling]

    def clips(self, clips: Sequence[Pixels]) -> np.ndarray:
        """Float32 (clips, dim), of any norm, from clips of uint8 (frames, height, width, 3) each."""
        frames = [frame for clip in clips for frame in clip]
        parts = [
            halved_if_out_of_memory(self.tower.frames, frames[start : start + self.batch_frames])
            for start in range(0, len(frames), self.batch_frames)
        ]
        return self._pool(np.concatenate(parts), [len(clip) for clip in clips])  # (clips, dim)

    def visual_tokens(self, clip: Pixels) -> int:
        """Patches of all frames of a clip."""
        return len(clip) * self.tower.visual_tokens(clip[0])


def _policy(fps: float | str, max_frames: int, max_pixels: int) -> FramePolicy:
    if fps == "uniform":
        return FramePolicy.uniform(max_frames, max_pixels=max_pixels)
    if isinstance(fps, str):
        raise ValueError(f"fps must be a number of frames per second, or uniform, got {fps!r}")
    return FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)


def _pooling_name(pooling: FramePooling, max_patches: int) -> str:
    name = "mean of frames of norm 1" if pooling == "mean" else "mean of frames"
    return f"{name}; max_patches {max_patches}" if max_patches else name
