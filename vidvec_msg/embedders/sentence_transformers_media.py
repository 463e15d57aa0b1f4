"""How sentence-transformers is given clips and sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vidvec_msg.embedders.chat import video_metadata
from vidvec_msg.embedders.hearing import Listener
from vidvec_msg.embedders.omni import hears, longest_sound, settle_clip_size, sound_rate
from vidvec_msg.embedders.visuals import settle_sizes
from vidvec_msg.media.limits import DecodePool
from vidvec_msg.media.sound import RATE
from vidvec_msg.media.video import Frames

# per call: placeholder tokens of a medium are not cut, a rest of them stands for nothing
UNCUT: dict[str, Any] = {"text": {"truncation": False}}


def as_video(frames: Frames) -> dict[str, Any]:
    """Chosen frames as sentence-transformers takes a clip that knows where its frames come from."""
    return {"array": frames.pixels, "video_metadata": video_metadata(frames)}


def without_sampling(processor: Any | None) -> dict[str, Any]:
    """sentence-transformers' ``processing_kwargs`` under which a processor takes all frames that it is given.

    SmolVLM's processor adds sampling options of its own beside any that are given for clips, and refuses
    both; there the switch goes the way of template arguments.
    """
    if type(processor).__name__ == "SmolVLMProcessor":
        return {"chat_template": {"do_sample_frames": False}}
    return {"video": {"do_sample_frames": False}}


def for_clip(processor: Any | None, video: Mapping[str, Any]) -> dict[str, Any]:
    """``processing_kwargs`` for one clip: no tokens cut, no frames sampled, and the rate of the frames.

    Args:
        processor: of the model.
        video: of :func:`as_video`.
    """
    settings = {**UNCUT, **without_sampling(processor)}
    if "video" in settings:  # Qwen2.5-Omni reads the rate here and not in the metadata
        source = video["video_metadata"]
        seconds = source["duration"]
        settings["video"]["fps"] = len(video["array"]) / seconds if seconds > 0 else source["fps"]
    return settings


def keep_budget(processor: Any | None, max_pixels: int) -> None:
    """Lets a processor take frames and images of a pixel budget as they are, in place.

    Args:
        processor: of the model; None for one that has none.
        max_pixels: height x width of a frame or image at most.
    """
    settle_sizes(processor, max_pixels)
    if hears(processor):
        settle_clip_size(processor, max_pixels)


def listener_of(processor: Any | None, pool: DecodePool) -> Listener:
    """Sound at the rate that a model's feature extractor takes, and as long as it takes."""
    extractor = getattr(processor, "feature_extractor", None)
    if hears(processor):
        return Listener(pool, sound_rate(processor), longest_sound(processor), to_clips=False)
    # Whisper's kind names the length chunk_length, CLAP's max_length_s; others take any length
    named = (getattr(extractor, name, None) for name in ("chunk_length", "max_length_s"))
    longest = next((float(seconds) for seconds in named if seconds), float("inf"))
    return Listener(pool, int(getattr(extractor, "sampling_rate", RATE)), longest, to_clips=False)
