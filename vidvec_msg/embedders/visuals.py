"""What a processor does with frames and images: how it takes them, how many arrive, how many tokens they are.

Families differ in four ways, and each difference has its rule here: whether clips go in as videos or as
images, how many frames one step of the model covers, whether a small picture is made larger again, and
whether items of one processor call change each other's inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from vidvec_msg.errors import RefusedRequest
from vidvec_msg.media.video import Frames

# Processors whose inputs for one item were found not to depend on the others of the call. Others get items
# of one size only: SmolVLM words every clip of a call with the frame count of the longest, InternVL and
# LLaVA-OneVision stack the clips of a call. The families that hear process every item alone.
MIXES_SIZES = {
    "Gemma3Processor",
    "Qwen2VLProcessor",
    "Qwen2_5_VLProcessor",
    "Qwen3VLProcessor",
    "VideoLlama3Processor",
}


def takes_videos(processor: Any | None) -> bool:
    """Whether clips go in as videos."""
    return getattr(processor, "video_processor", None) is not None


def takes_images(processor: Any | None) -> bool:
    """Whether the processor takes images."""
    return getattr(processor, "image_processor", None) is not None


def frames_as_images(processor: Any | None) -> bool:
    """Whether clips go in as one image per frame: the rule for processors that know images and no videos."""
    return takes_images(processor) and not takes_videos(processor)


def temporal_patch(processor: Any) -> int:
    """Frames that one temporal step of the model covers."""
    return getattr(getattr(processor, "video_processor", None), "temporal_patch_size", 1) or 1


def fill_temporal_patch(processor: Any, frames: Frames) -> Frames:
    """Repeats the last frame where the family needs at least one full temporal patch (Qwen-VL: 2 frames)."""
    missing = temporal_patch(processor) - len(frames.pixels)
    if missing <= 0:
        return frames
    last = [-1] * missing
    return dataclasses.replace(
        frames,
        pixels=np.concatenate([frames.pixels, frames.pixels[last]]),
        times=np.concatenate([frames.times, frames.times[last]]),
        indices=np.concatenate([frames.indices, frames.indices[last]]),
    )


def settle_sizes(processor: Any | None, max_pixels: int) -> None:
    """Lowers the size below which a processor enlarges pictures, where it is above the pixel budget.

    Otherwise the budget would shrink a frame and the Qwen families' processors, whose sizes are pixel counts
    from ``shortest_edge`` to ``longest_edge``, would blow it up again.

    Args:
        processor: changed in place.
        max_pixels: height x width of a frame or image at most; 0 leaves the sizes as they are.
    """
    for name in ("image_processor", "video_processor"):
        part: Any = getattr(processor, name, None)
        # transformers 5 warns that the default of this cap will change: it is named, so that vectors stay
        if getattr(part, "cap_pixels_per_frame", False) is None:
            part.cap_pixels_per_frame = False
        size: Any = getattr(part, "size", None)
        least, most = (getattr(size, f"{edge}_edge", None) for edge in ("shortest", "longest"))
        # with both set they are pixel counts; SmolVLM's lone longest_edge is the length of a side
        if max_pixels and least and most and least > max_pixels:
            part.size = dataclasses.replace(size, shortest_edge=max_pixels)


def check_frame_counts(processor: Any, inputs: Mapping[str, Tensor], clips: Sequence[Frames]) -> None:
    """Refuses inputs in which a clip has another number of frames than it was given.

    A processor that samples once more, drops frames or caps them gives vectors of a clip that nobody chose.

    Args:
        processor: that made the inputs; named in the message.
        inputs: of one batch.
        clips: the clips of the batch, in order, long enough for a temporal patch.

    Raises:
        RefusedRequest: with the frames given and found, per clip, or in all where the inputs do not tell
            clips apart.
    """
    if frames_as_images(processor):  # nothing samples images; their number stands in the prompt
        return
    patch = temporal_patch(processor)
    given = [-(-len(clip.pixels) // patch) * patch for clip in clips]  # the last step may be filled up
    found = _frames_found(inputs, len(clips), patch)
    if found is None or found in (given, [sum(given)]):
        return
    raise RefusedRequest(
        f"{type(processor).__name__} changed the number of frames: {_listed(given)} given, {_listed(found)} "
        "found in the model's inputs. Frames are chosen once, by fps and max_frames; turn off the "
        "processor's own sampling and limits in its video_preprocessor_config.json (do_sample_frames, "
        "num_frames, max_frames)."
    )


def _frames_found(inputs: Mapping[str, Tensor], clips: int, patch: int) -> list[int] | None:
    """Frames per clip, or their sum alone; None where the inputs do not say."""
    if "video_grid_thw" in inputs:  # (clips, 3): steps, rows, columns
        return [int(steps) * patch for steps in inputs["video_grid_thw"][:, 0]]
    if "pixel_values_videos" in inputs:  # LLaVA-OneVision: (clips, frames, channels, height, width)
        return [int(inputs["pixel_values_videos"].shape[1])] * clips
    pixels = inputs.get("pixel_values")
    if pixels is None:
        return None
    if pixels.ndim == 5:  # SmolVLM: (clips, frames, channels, height, width)
        return [int(pixels.shape[1])] * clips
    if pixels.ndim == 4:  # InternVL: (frames of all clips, channels, height, width)
        return [int(pixels.shape[0])]
    return None


def visual_token_ids(config: Any) -> list[int]:
    """Ids that the model replaces by what it sees; from the whole model's configuration."""
    return _token_ids(config, "image", "video")


def heard_token_ids(config: Any) -> list[int]:
    """Ids that the model replaces by what it hears; from the whole model's configuration."""
    return _token_ids(config, "audio")


def _token_ids(config: Any, *kinds: str) -> list[int]:
    inner = getattr(config, "thinker_config", config)  # Qwen-Omni
    named = [getattr(inner, f"{kind}_token_id", None) for kind in kinds]
    return [token for token in named if token is not None]


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))
