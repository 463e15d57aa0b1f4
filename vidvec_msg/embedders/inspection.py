"""What a model is given, counted: per item on request, and in total while it encodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vidvec_msg.embedders.chat import Turn
from vidvec_msg.embedders.contract import Inspection
from vidvec_msg.media.frames import FramePolicy, frame_times
from vidvec_msg.media.video import Frames


@dataclass(slots=True)
class Tally:
    """What an embedder's model was given since it was made; logged at the end of ``embed``.

    Args:
        clips: that it saw.
        frames_asked: for these clips, by the frame policy.
        frames_used: that the model saw.
        visual_tokens: that frames and images became.
        heard: clips and audio items whose sound the model heard.
        silent: clips whose sound track holds no sound; seen only.
        soundless: clips without a sound track; seen only.
        cut_sounds: sounds longer than the model takes; their beginning was heard.
    """

    clips: int = 0
    frames_asked: int = 0
    frames_used: int = 0
    visual_tokens: int = 0
    heard: int = 0
    silent: int = 0
    soundless: int = 0
    cut_sounds: int = 0

    def __str__(self) -> str:
        """One line; empty if the model saw and heard nothing."""
        parts = []
        if self.clips:
            frames = f"{self.frames_used:,} of {self.frames_asked:,} frames asked for"
            parts.append(f"{self.clips:,} clips ({frames})")
        if self.visual_tokens:
            parts.append(f"{self.visual_tokens:,} visual tokens")
        if self.heard or self.silent or self.soundless:
            parts.append(
                f"{self.heard:,} sounds heard ({self.cut_sounds:,} cut), {self.silent:,} clips silent, "
                f"{self.soundless:,} without a sound track"
            )
        return ", ".join(parts)

    def add(
        self, turns: Sequence[Turn], input_ids: Tensor, *, policy: FramePolicy, visual_ids: Sequence[int]
    ) -> None:
        """Counts one batch.

        Args:
            turns: of the batch.
            input_ids: (batch, tokens), as the processor made them, still on the CPU.
            policy: that chose the frames.
            visual_ids: ids that the model replaces by what it sees.
        """
        clips = [turn.frames for turn in turns if turn.frames is not None]
        self.clips += len(clips)
        self.frames_asked += sum(frames_asked(frames, policy) for frames in clips)
        self.frames_used += sum(len(frames.pixels) for frames in clips)
        if any(turn.kind != "text" for turn in turns):
            self.visual_tokens += count_tokens(input_ids, visual_ids)
        listened = [turn.heard for turn in turns if turn.heard is not None]
        self.heard += sum(heard.sound is not None for heard in listened)
        self.silent += sum(heard.silence == "silent" for heard in listened)
        self.soundless += sum(heard.silence == "no sound" for heard in listened)
        self.cut_sounds += sum(heard.cut for heard in listened)


def inspect_turn(
    item: str,
    turn: Turn,
    inputs: Mapping[str, Tensor],
    *,
    policy: FramePolicy,
    visual_ids: Sequence[int],
    heard_ids: Sequence[int] = (),
) -> Inspection:
    """What the model is given for one item.

    Args:
        item: its id.
        turn: the item, worded.
        inputs: of a batch that holds this turn alone, unpadded.
        policy: that chose the frames.
        visual_ids: ids that the model replaces by what it sees.
        heard_ids: ids that it replaces by what it hears; neither text nor visual.
    """
    ids = inputs["input_ids"]  # (1, tokens)
    visual = count_tokens(ids, visual_ids)
    pictures = turn.frames.pixels if turn.frames is not None else turn.image
    return Inspection(
        item=item,
        wording=turn.prompt,
        text_tokens=ids.numel() - visual - count_tokens(ids, heard_ids),
        visual_tokens=visual,
        frames_asked=0 if turn.frames is None else frames_asked(turn.frames, policy),
        frames_used=0 if turn.frames is None else len(turn.frames.pixels),
        size=None if pictures is None else (int(pictures.shape[-3]), int(pictures.shape[-2])),
        sound_seconds=0.0 if turn.sound is None else turn.sound.duration,
        cut_tokens=turn.cut,
        reader="" if turn.frames is None else turn.frames.reader,
    )


def frames_asked(frames: Frames, policy: FramePolicy) -> int:
    """Frames that the policy takes from a clip of this duration; fewer exist in a short or broken clip."""
    return len(frame_times(0.0, frames.duration, policy))


def count_tokens(input_ids: Tensor, wanted: Sequence[int]) -> int:
    """How many of the ids are among the wanted ones."""
    return int(torch.isin(input_ids, torch.tensor(list(wanted), dtype=input_ids.dtype)).sum())
