"""The call of a model's processor: turns in, model inputs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from vidvec_msg.embedders.omni import hears, inputs_of, joined
from vidvec_msg.embedders.turns import Turn
from vidvec_msg.embedders.visuals import (
    MIXES_SIZES,
    check_frame_counts,
    fill_temporal_patch,
    frames_as_images,
)
from vidvec_msg.media.video import Frames

Side = Literal["right", "left"]


def model_inputs(
    turns: Sequence[Turn], *, tokenizer: Any, processor: Any | None, side: Side
) -> Mapping[str, Any]:
    """Model inputs of a batch; see :meth:`vidvec_msg.embedders.chat.Chat.batch`."""
    if processor is None and all(turn.ids for turn in turns):
        return _padded([turn.ids for turn in turns], pad_id=tokenizer.pad_token_id, side=side)
    prompts = [turn.prompt for turn in turns]
    settings: dict[str, Any] = {
        "padding": True,
        "padding_side": side,
        "return_tensors": "pt",
        "add_special_tokens": adds_specials(tokenizer, prompts[0]),
    }
    if processor is None:
        encoded: Mapping[str, torch.Tensor] = tokenizer(prompts, **settings)
        return encoded
    kinds = {turn.kind for turn in turns}
    if hears(processor):
        return _one_by_one(turns, tokenizer=tokenizer, processor=processor, side=side)
    if {"image", "video"} <= kinds:
        raise ValueError("images and clips go into batches of their own")
    if "image" in kinds:
        settings["images"] = [[] if turn.image is None else [turn.image] for turn in turns]
    if "video" in kinds:
        clips = [fill_temporal_patch(processor, turn.frames) for turn in turns if turn.frames is not None]
        settings |= _clips(processor, turns, clips)
    processed: Mapping[str, torch.Tensor] = processor(text=prompts, **settings)
    if "video" in kinds:
        check_frame_counts(processor, processed, clips)
    return processed


def on_device(inputs: Mapping[str, Any], device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Model inputs where the model is; pixels in its dtype, and nothing else: seconds in bfloat16 shift
    rotary positions."""
    pixels = {key for key, value in inputs.items() if key.startswith("pixel_values")}
    return {
        key: value.to(device, dtype if key in pixels and value.is_floating_point() else None)
        if isinstance(value, torch.Tensor)
        else value
        for key, value in inputs.items()
    }


def go_together(processor: Any | None, one: Turn, other: Turn) -> bool:
    """Whether two turns may share a call; see :meth:`vidvec_msg.embedders.chat.Chat.go_together`."""
    if one.kind != other.kind:
        return False
    if hears(processor):  # every item is processed alone
        return one.frames is None or (one.sound is None) == (other.sound is None)
    if one.kind == "text" or type(processor).__name__ in MIXES_SIZES:
        return True
    if one.frames is not None and other.frames is not None:
        same_rate = abs(one.frames.sampled_fps - other.frames.sampled_fps) < 1e-3
        return same_rate and one.frames.pixels.shape == other.frames.pixels.shape
    return one.image is not None and other.image is not None and one.image.shape == other.image.shape


def video_metadata(frames: Frames) -> dict[str, Any]:
    """What processors need to know about the clip that frames come from.

    They compute a frame's second as index / fps. Indices are therefore counted on a clock of the source's
    mean rate, from the segment's beginning: right for clips of variable rate and for segments too.
    """
    return {
        "fps": frames.fps,
        "total_num_frames": max(round(frames.duration * frames.fps), len(frames.pixels)),
        "frames_indices": np.rint(frames.times * frames.fps).astype(int).tolist(),
        "duration": frames.duration,
    }


def adds_specials(tokenizer: Any, prompt: str) -> bool:
    """transformers' own rule for processors: not if the template wrote the first token itself."""
    bos = tokenizer.bos_token
    return not (bos is not None and prompt.startswith(bos))


def _padded(rows: Sequence[Sequence[int]], *, pad_id: int, side: Side) -> dict[str, torch.Tensor]:
    """What the tokenizer makes of texts, without tokenising them a second time."""
    longest = max(len(ids) for ids in rows)
    input_ids = torch.full((len(rows), longest), pad_id)  # (batch, tokens)
    mask = torch.zeros_like(input_ids)
    for row, ids in enumerate(rows):
        place = slice(len(ids)) if side == "right" else slice(longest - len(ids), longest)
        input_ids[row, place] = torch.tensor(ids)
        mask[row, place] = 1
    return {"input_ids": input_ids, "attention_mask": mask}


def _one_by_one(turns: Sequence[Turn], *, tokenizer: Any, processor: Any, side: Side) -> Mapping[str, Any]:
    """The batch of a family whose processor gets every item alone."""
    parts = []
    for turn in turns:
        frames = None if turn.frames is None else fill_temporal_patch(processor, turn.frames)
        part = inputs_of(
            processor,
            turn.prompt,
            frames=frames,
            metadata=None if frames is None else video_metadata(frames),
            image=turn.image,
            sound=turn.sound,
            add_special_tokens=adds_specials(tokenizer, turn.prompt),
        )
        if frames is not None:
            check_frame_counts(processor, part, [frames])
        parts.append(part)
    return joined(parts, pad_id=tokenizer.pad_token_id, side=side)


def _clips(processor: Any, turns: Sequence[Turn], clips: Sequence[Frames]) -> dict[str, Any]:
    """What the processor is told of the clips of a batch."""
    given = iter(clips)
    shown = [next(given).pixels if turn.kind == "video" else None for turn in turns]
    if frames_as_images(processor):
        return {"images": [[] if frames is None else list(frames) for frames in shown]}
    return {
        "videos": [[] if frames is None else [frames] for frames in shown],
        # the frames are chosen already; without the metadata families assume 24 fps and wrong positions
        "do_sample_frames": False,
        "video_metadata": [video_metadata(clip) for clip in clips],
        "fps": clips[0].sampled_fps,  # Qwen2.5-Omni reads this one instead
    }
