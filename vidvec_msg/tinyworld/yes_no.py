"""One command from the shipped weights to a yes/no skill: a LoRA adapter that says whether a clip shows a
sentence.

    python -m vidvec_msg.tinyworld.yes_no --seed 0 --out DIR

Taught on clip–caption matching (`matching`), never on messages. The model is asked in the published wordings,
clip first; its tokenizer writes "Yes" as two tokens, so that the first of them, which is the whole word "Y",
stands for yes, and "No" for no.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, VideoLlama3ForConditionalGeneration

from vidvec_msg.tinyworld.lessons import Lesson, Question, draw_clips
from vidvec_msg.tinyworld.matching import Kind, Sentence, sentence, taught_sentences
from vidvec_msg.tinyworld.model import encode_frames, patchify
from vidvec_msg.tinyworld.pretrain import Packer, Schedule, read_states, roughen
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import Story

log = logging.getLogger(__name__)

WORDINGS = (
    "\n{text}\nDoes the video match the sentence? Answer with a single word - Yes or No.",
    "\n{text}\nRespond in a single word - Yes or No.",
)
"""What stands behind the clip; both are VidVec's (docs/rerank.md)."""

YES, NO = "Y", "No"
"""Words of one token each."""

CLIP_SEED = 4_000


@torch.no_grad()
def see(model: VideoLlama3ForConditionalGeneration, frames: np.ndarray, *, batch: int = 64) -> torch.Tensor:
    """The vision tower's features of clips, computed once: it does not learn.

    Args:
        model: the model.
        frames: (clips, 8, 48, 48, 3) uint8.
        batch: clips at once.

    Returns:
        (clips, 72, width) float16: twice as many clips fit, and the tower's own noise is larger.
    """
    patch = model.config.vision_config.patch_size
    seen = []
    for at in range(0, len(frames), batch):
        some = torch.from_numpy(frames[at : at + batch])
        features = encode_frames(model, patchify(some.flatten(0, 1), patch))  # (clips * 8, 9, width)
        seen.append(features.reshape(len(some), -1, features.shape[-1]).half())
    return torch.cat(seen)


def log_odds(
    model: VideoLlama3ForConditionalGeneration,
    packer: Packer,
    features: torch.Tensor,
    asked: Sequence[Sequence[str]],
    offsets: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of all tokens at the first answer position."""
    lessons = [
        # no answer is given: what is read is the position before it
        Lesson("", None, row, tuple(Question(text, "") for text in texts))
        for row, texts in enumerate(asked)
    ]
    states = read_states(model, packer.pack(lessons, offsets), features.float())
    return model.lm_head(states)
