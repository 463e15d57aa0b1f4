"""The families that hear: Qwen2.5-Omni and Qwen3-Omni, of which the thinker reads and nothing else is loaded.

Their processors differ from the others' in three ways, each met here. One call takes a single frame rate for
all of its clips and changes the last instants of a sound that is shorter than its neighbours: every item
therefore goes through the processor alone, and the results are joined. The class's own clip size goes before
the one that the checkpoint saved. And a sound of a few milliseconds becomes no token at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.formats.items import Pixels
from vidvec_msg.media.sound import Sound
from vidvec_msg.media.video import Frames

# config.model_type of checkpoints that hold a talker and a vocoder beside the thinker
_WHOLE = {"qwen2_5_omni", "qwen3_omni_moe"}
_PROCESSORS = {"Qwen2_5OmniProcessor", "Qwen3OmniMoeProcessor"}

# Seconds; a shorter sound is followed by silence. Qwen3-Omni's encoder convolves seconds as a whole and lets
# what lies behind a shorter sound, which is its neighbours' doing, leak into its end.
SHORTEST = 1.0


def thinker_config(config: Any) -> Any:
    """The configuration of the part that reads: an Omni model's thinker; of any other model the whole.

    Given to ``from_pretrained`` with the whole checkpoint, it makes transformers load the thinker alone.
    """
    return config.thinker_config if config.model_type in _WHOLE else config


def hears(processor: Any | None) -> bool:
    """Whether the model takes sound."""
    return type(processor).__name__ in _PROCESSORS


def sound_rate(processor: Any) -> int:
    """Samples per second that the model takes."""
    return int(processor.feature_extractor.sampling_rate)


def longest_sound(processor: Any) -> float:
    """Seconds of sound that the model takes; infinite where its processor cuts nothing."""
    cuts = (getattr(processor, "audio_kwargs", None) or {}).get("truncation", True)
    return float(processor.feature_extractor.chunk_length) if cuts else float("inf")


def settle_clip_size(processor: Any, max_pixels: int) -> None:
    """Decides the size of a clip's frames, in place.

    The class's own range (128 to 768 tokens' worth of pixels) goes before the saved one, which in the
    published checkpoints is that of images and far too large for frames. A saved range that asks for less is
    meant, and a pixel budget is not blown up again.

    Args:
        processor: of an Omni model.
        max_pixels: height x width of the frames that will come, at most; 0: no budget.
    """
    own = dict(processor.videos_kwargs["size"])
    saved = processor.video_processor.size
    if saved.longest_edge and saved.longest_edge <= own["longest_edge"]:
        own = {"shortest_edge": saved.shortest_edge, "longest_edge": saved.longest_edge}
    if max_pixels:
        own["shortest_edge"] = min(own["shortest_edge"], max_pixels)
    processor.videos_kwargs = {**processor.videos_kwargs, "size": own}


def inputs_of(
    processor: Any,
    prompt: str,
    *,
    frames: Frames | None = None,
    metadata: Mapping[str, Any] | None = None,
    image: Pixels | None = None,
    sound: Sound | None = None,
    add_special_tokens: bool = True,
) -> dict[str, Any]:
    """Model inputs of one item, unpadded.

    Args:
        processor: of an Omni model.
        prompt: the rendered chat, with one placeholder per medium; a clip's sound has none of its own.
        frames: of a clip, at least one temporal patch.
        metadata: what the processor needs to know of the clip.
        image: uint8 ``(height, width, 3)``.
        sound: of the clip, or alone.
        add_special_tokens: whether the tokenizer adds what opens a text.

    Returns:
        what the model's ``forward`` takes, each of one row.

    Raises:
        RefusedRequest: the processor cut the sound.
    """
    settings: dict[str, Any] = {"return_tensors": "pt", "add_special_tokens": add_special_tokens}
    if image is not None:
        settings["images"] = [image]
    if frames is not None:
        settings |= {
            "videos": [frames.pixels],
            "do_sample_frames": False,
            "video_metadata": [metadata],
            "fps": frames.sampled_fps,  # decides the seconds per temporal patch; the metadata do not
        }
    if sound is not None:
        samples = _long_enough(sound)
        settings["audio"] = [samples]
        settings["audio_kwargs"] = _spectrogram_settings(processor, len(samples))
        if frames is not None:
            settings |= {"audio_from_video_indices": [0], "load_audio_from_video": True}
    inputs = dict(processor(text=[prompt], **settings))
    if sound is not None:
        _check_all_heard(processor, inputs["feature_attention_mask"], samples)
    if frames is not None and sound is not None:
        inputs["use_audio_in_video"] = True
    return inputs


def joined(
    parts: Sequence[Mapping[str, Any]], *, pad_id: int, side: Literal["left", "right"]
) -> dict[str, Any]:
    """One batch of the inputs of several items.

    Args:
        parts: from :func:`inputs_of`.
        pad_id: token that fills up shorter rows.
        side: on which they are filled.

    Raises:
        ValueError: clips with and without sound: the model takes all clips of a batch one way or the other.
    """
    spoken = [part.get("use_audio_in_video", False) for part in parts if "video_grid_thw" in part]
    if len(set(spoken)) > 1:
        raise ValueError("clips with sound and clips without go into batches of their own")
    batch: dict[str, Any] = {"use_audio_in_video": True} if any(spoken) else {}
    for name in dict.fromkeys(name for part in parts for name in part if name != "use_audio_in_video"):
        rows = [part[name] for part in parts if name in part]
        if name in ("input_ids", "attention_mask"):
            batch[name] = _filled(rows, pad_id if name == "input_ids" else 0, side)  # (batch, tokens)
        elif name in ("input_features", "feature_attention_mask"):
            batch[name] = _filled(rows, 0, "right")  # (sounds, mel bins, steps), (sounds, steps)
        else:
            batch[name] = torch.cat([torch.as_tensor(row) for row in rows])  # patches, grids, seconds
    return batch


def _filled(rows: Sequence[Tensor], value: float, side: Literal["left", "right"]) -> Tensor:
    longest = max(row.shape[-1] for row in rows)
    missing = [longest - row.shape[-1] for row in rows]
    return torch.cat(
        [
            pad(row, (lack, 0) if side == "left" else (0, lack), value=value)
            for row, lack in zip(rows, missing, strict=True)
        ]
    )


def _long_enough(sound: Sound) -> np.ndarray:
    missing = round(SHORTEST * sound.rate) - len(sound.samples)
    return np.pad(sound.samples, (0, missing)) if missing > 0 else sound.samples


def _check_all_heard(processor: Any, mask: Tensor, samples: np.ndarray) -> None:
    """Whisper's extractor cuts what is longer than its window without a word."""
    heard, given = int(mask.sum()), len(samples) // processor.feature_extractor.hop_length
    if heard < given:
        rate = sound_rate(processor) / processor.feature_extractor.hop_length
        raise RefusedRequest(
            f"{type(processor).__name__} cut a sound of {given / rate:.1f} s to {heard / rate:.1f} s; raise "
            "chunk_length in the model's preprocessor_config.json, or set truncation off there"
        )


def _spectrogram_settings(processor: Any, samples: int) -> dict[str, int]:
    """How far the extractor fills a sound up.

    Qwen2.5-Omni's fills every sound up to five minutes, which takes longer than a short sound's forward pass.
    One window of silence gives the same spectrogram: no later sample reaches into the sound's last step.
    """
    extractor = processor.feature_extractor
    settings = {"sampling_rate": sound_rate(processor)}
    if longest_sound(processor) < float("inf"):
        steps = -(-(samples + extractor.n_fft) // extractor.hop_length)
        settings["max_length"] = min(steps * extractor.hop_length, extractor.n_samples)
    return settings
