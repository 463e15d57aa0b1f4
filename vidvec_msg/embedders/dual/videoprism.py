"""``videoprism:``: Google's video-text encoders by transformers; the video tower sees whole clips."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from vidvec_msg.embedders.backbone import check_options, choose_device, choose_dtype, quiet_progress
from vidvec_msg.embedders.contract import EmbedderCard
from vidvec_msg.embedders.dual.role_templates import prompts_on_card, text_templates
from vidvec_msg.embedders.dual.two_towers import TwoTowerEmbedder
from vidvec_msg.embedders.models import digest_of_loaded, refuse_missing_weights, resolve_model, short_name
from vidvec_msg.embedders.reading import ClipReader
from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.runs import software_versions

_SPACES = str.maketrans(string.punctuation, " " * len(string.punctuation))


class VideoPrism(TwoTowerEmbedder):
    """VideoPrism-LvT (arXiv 2402.13217): 16 uniform frames for the base model, 8 for the large one, as its
    config says.

    A clip with fewer frames gives those that it has, and its last one is repeated; an image is repeated from
    the start. Frames become squares of the model's size (288 x 288) with values from 0 to 1, without the
    mean and deviation that the processor's class would subtract. Texts are canonicalised as VideoPrism's own
    ``tokenize_texts`` does: punctuation to spaces, lower case, a full stop at the end.

    Args:
        model: a checkpoint folder or hub name of a VideoPrismClipModel.
        revision: commit of a hub model; the repositories hold the transformers form in pull requests only.
        max_pixels: height x width of a frame at most, before the model's own resizing; 0 leaves it to that.
        query_prompt: words around a text that is a query; holds ``{text}`` once.
        document_prompt: words around a text that is a document; holds ``{text}`` once.
        batch_size: texts that run together at most.
        batch_frames: frames that run together at most; one clip always fits.
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto": bfloat16 where the device computes it fast (a GPU
            since Ampere, a CPU with AMX or AVX512-BF16), float32 elsewhere.
        decode_timeout: seconds one clip may take to decode; 0 decodes in this process, without a limit.
        decode_workers: clips decoded side by side.
        name: for tables; made from the model's name if not given.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model cannot be loaded, or is no VideoPrismClipModel.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        max_pixels: int = 0,
        query_prompt: str = "{text}",
        document_prompt: str = "{text}",
        batch_size: int = 64,
        batch_frames: int = 64,
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        name: str | None = None,
    ) -> None:
        check_options(dtype, batch_size=batch_size, batch_frames=batch_frames)
        templates = text_templates(query_prompt, document_prompt)
        source = resolve_model(str(model))
        towers = VideoPrismTowers(
            source, revision=revision, device=choose_device(device), dtype=dtype, batch_frames=batch_frames
        )
        policy = FramePolicy.uniform(towers.num_frames, max_pixels=max_pixels)
        card = EmbedderCard(
            name=name or short_name(str(model)),
            dim=towers.dim,
            modalities=("text", "image", "video"),
            base_model=str(model),
            revision=revision,
            weights=digest_of_loaded(source, revision=revision),
            **prompts_on_card(templates),
            pooling=f"attention over {towers.num_frames} frames, the last one repeated",
            padding="right",
            frames=policy,
            dtype=str(towers.model.dtype).removeprefix("torch."),
            max_tokens=towers.max_tokens,
            versions=software_versions(),
        )
        clips = ClipReader(policy, shared_pool(decode_workers, decode_timeout))
        super().__init__(towers, card, clips, templates, batch_size=batch_size, batch_frames=batch_frames)


class VideoPrismTowers:
    """Text and clip features of a VideoPrismClipModel.

    Args:
        source: a checkpoint folder or a hub name.
        revision: commit of a hub model.
        device: where it runs.
        dtype: a name of :data:`vidvec_msg.embedders.backbone.DTYPES`, or "auto".
        batch_frames: frames that run together at most, filled up ones included; one clip always fits.

    Raises:
        RefusedRequest: it cannot be loaded, or is something else.
    """

    def __init__(
        self, source: str, *, revision: str | None, device: torch.device, dtype: str, batch_frames: int
    ) -> None:
        self.model, self.processor = _load(source, revision, choose_dtype(dtype, device))
        self.model.to(device)
        self.device = device
        vision, text = self.model.config.vision_config, self.model.config.text_config
        self.num_frames = int(vision.num_frames)
        self.max_tokens = int(text.max_position_embeddings)
        self.dim = int(text.hidden_size)
        side = vision.image_size
        self._height, self._width = (side, side) if isinstance(side, int) else map(int, side)
        self._tubelet: tuple[int, ...] = tuple(vision.tubelet_size)  # frames, height, width
        self._batch_clips = max(batch_frames // self.num_frames, 1)

    def wording(self, text: str) -> str:
        """Punctuation to spaces, lower case, one space between words, a full stop: ``canonicalize_text`` of
        google-deepmind/videoprism, which its ``tokenize_texts`` applies."""
        return " ".join(text.translate(_SPACES).lower().split()) + "."

    def count_tokens(self, wording: str) -> int:
        """Tokens of a text before any cut; this tokenizer adds no marks."""
        return len(self.processor.tokenizer(wording, verbose=False)["input_ids"])

    @torch.inference_mode()
    def texts(self, wordings: Sequence[str]) -> np.ndarray:
        """Float32 (texts, dim)."""
        inputs = self.processor.tokenizer(
            list(wordings),
            padding="max_length",
            padding_side="right",
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=True,
            return_tensors="pt",
        )
        ids, mask = inputs["input_ids"].to(self.device), inputs["attention_mask"].to(self.device)
        features = self.model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
        vectors: np.ndarray = features.float().cpu().numpy()  # (texts, dim)
        return vectors

    def clips(self, clips: Sequence[Pixels]) -> np.ndarray:
        """Float32 (clips, dim), from clips of uint8 (frames, height, width, 3), ``num_frames`` at most."""
        parts = [
            self._batch(clips[start : start + self._batch_clips])
            for start in range(0, len(clips), self._batch_clips)
        ]
        return np.concatenate(parts)

    @torch.inference_mode()
    def _batch(self, clips: Sequence[Pixels]) -> np.ndarray:
        pixels = torch.cat([self._pixels(clip) for clip in clips])  # (clips, frames, 3, height, width)
        pixels = pixels.to(self.device, self.model.dtype)
        features = self.model.get_video_features(pixel_values_videos=pixels).pooler_output
        # the pooling head keeps the axis of its single query: (clips, 1, dim)
        vectors: np.ndarray = features.reshape(len(clips), self.dim).float().cpu().numpy()
        return vectors

    def visual_tokens(self, clip: Pixels) -> int:
        """Tubelets of a clip, those of repeated frames included."""
        frames, height, width = self._tubelet
        return (self.num_frames // frames) * (self._height // height) * (self._width // width)

    def _pixels(self, clip: Pixels) -> torch.Tensor:
        """(1, frames, 3, height, width) between 0 and 1. Size and range are said here, because transformers
        5.23 ignores those that VideoPrismProcessor names (``video_kwargs`` for ``videos_kwargs``)."""
        missing = self.num_frames - len(clip)
        full = np.concatenate([clip, np.repeat(clip[-1:], missing, axis=0)]) if missing > 0 else clip
        inputs = self.processor.video_processor(
            videos=[full],
            input_data_format="channels_last",
            size={"height": self._height, "width": self._width},
            do_normalize=False,
            do_sample_frames=False,  # the frames are chosen already
            return_tensors="pt",
        )
        pixels: torch.Tensor = inputs["pixel_values_videos"]
        return pixels


def _load(source: str, revision: str | None, dtype: torch.dtype) -> tuple[Any, Any]:
    """The model in evaluation mode, and its processor."""
    from transformers import AutoConfig, AutoProcessor

    try:
        from transformers import VideoPrismClipModel
    except ImportError as error:
        raise RefusedRequest(
            "this transformers has no VideoPrismClipModel: pip install 'transformers>=5.13'"
        ) from error
    try:
        config = AutoConfig.from_pretrained(source, revision=revision)
        if config.model_type != "videoprism":
            _refuse(config.model_type, source)
        with quiet_progress():
            model, report = VideoPrismClipModel.from_pretrained(
                source, revision=revision, dtype=dtype, use_safetensors=True, output_loading_info=True
            )
        processor = AutoProcessor.from_pretrained(source, revision=revision)
    except RefusedRequest:
        raise
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise RefusedRequest(f"cannot load the VideoPrism model {source!r}: {error}") from error
    refuse_missing_weights(report, source)
    if absent := [part for part in ("tokenizer", "video_processor") if not hasattr(processor, part)]:
        raise RefusedRequest(
            f"{source}: its processor ({type(processor).__name__}) has no {' and no '.join(absent)}"
        )
    return model.eval().requires_grad_(False), processor


def _refuse(kind: str, source: str) -> None:
    if kind.startswith("videoprism"):
        raise RefusedRequest(
            f"model {source!r} is VideoPrism's {kind}, one tower alone: retrieval needs a checkpoint with "
            "both (google/videoprism-lvt-base-f16r288, google/videoprism-lvt-large-f8r288)"
        )
    raise RefusedRequest(
        f"model {source!r} is no VideoPrism ({kind}): use clip: for dual encoders of images, mllm: for "
        "multimodal LLMs"
    )
