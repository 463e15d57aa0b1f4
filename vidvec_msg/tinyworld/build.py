"""One command from a seed to weights.

    python -m vidvec_msg.tinyworld.build --seed 0 --out DIR

Draws the clips, trains the tokenizer and the model (25 minutes on one thread of a busy 2-core machine),
checks that the result captions clips it has not seen, and saves a folder that transformers' Auto classes
open, with its card and its own log.
"""

from __future__ import annotations

import inspect
import json
import logging
import platform
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import PreTrainedTokenizerFast, VideoLlama3ForConditionalGeneration

from vidvec_msg.tinyworld.card import write_card
from vidvec_msg.tinyworld.clips import draw_model_frames
from vidvec_msg.tinyworld.collections import split_cast
from vidvec_msg.tinyworld.lessons import WHAT, Lessons, draw_clips, tokenizer_texts
from vidvec_msg.tinyworld.model import (
    ASSISTANT,
    END,
    VIDEO,
    ModelSize,
    build_model,
    build_processor,
    encode_frames,
    patchify,
    train_tokenizer,
)
from vidvec_msg.tinyworld.pretrain import Packer, Schedule, pretrain, video_prefix
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import STORIES, Story, content_words

log = logging.getLogger(__name__)


@torch.no_grad()
def caption_clips(
    model: VideoLlama3ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    frames: np.ndarray,
    prompt: str = WHAT,
    *,
    max_tokens: int = 28,
) -> list[str]:
    """What the model says about clips, greedily.

    Args:
        model: the model, in eval mode.
        tokenizer: its tokenizer.
        frames: (clips, 8, 48, 48, 3) uint8.
        prompt: the question after the clip.
        max_tokens: of the answer.
    """
    packer = Packer(tokenizer)
    prefix = packer.ids(video_prefix(2)) + packer.ids(prompt) + packer.ids(END + ASSISTANT)
    count = len(frames)
    ids = torch.tensor(prefix).repeat(count, 1)  # (clips, prefix)
    patches = patchify(torch.from_numpy(frames).flatten(0, 1), model.config.vision_config.patch_size)
    features = encode_frames(model, patches)
    tower = model.model.language_model
    embedded = tower.embed_tokens(ids)
    slots = (ids == tokenizer.convert_tokens_to_ids(VIDEO)).unsqueeze(-1)
    embedded = embedded.masked_scatter(slots, features.reshape(-1, features.shape[-1]))
    cache, said = None, []
    done = torch.zeros(count, dtype=torch.bool)
    for _ in range(max_tokens):
        output = tower(inputs_embeds=embedded, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        token = model.lm_head(output.last_hidden_state[:, -1]).argmax(-1)  # (clips,)
        token[done] = tokenizer.eos_token_id
        done |= token == tokenizer.eos_token_id
        said.append(token)
        if done.all():
            break
        embedded = tower.embed_tokens(token[:, None])
    return [
        str(text).strip() for text in tokenizer.batch_decode(torch.stack(said, 1), skip_special_tokens=True)
    ]


def told_story(said: str, cast: Cast) -> Story:
    """The story whose wording, with this cast's actors filled in, shares most words with what was said."""
    words = set(said.lower().split())

    def overlap(text: str) -> float:
        other = set(text.lower().format(**cast.names).split())
        return len(words & other) / max(1, len(words | other))

    return max(STORIES, key=lambda story: max(overlap(template) for template in story.captions))


def caption_scores(
    model: VideoLlama3ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    split: str,
    *,
    per_story: int = 4,
) -> dict[str, float]:
    """How well a split's clips (drawn, not decoded) are captioned.

    Returns:
        ``right_story`` and ``right_actor`` (the main one), shares of the clips.
    """
    clips = [(story, split_cast(story, split, number, 0)) for story in STORIES for number in range(per_story)]
    frames = np.stack([draw_model_frames(story, cast) for story, cast in clips])
    said = [
        text
        for at in range(0, len(frames), 64)
        for text in caption_clips(model, tokenizer, frames[at : at + 64])
    ]
    pairs = list(zip(clips, said, strict=True))
    return {
        "right_story": float(np.mean([told_story(text, cast) is story for (story, cast), text in pairs])),
        "right_actor": float(np.mean([cast.names["a"] in text for (_, cast), text in pairs])),
    }


def main(
    out: Path,
    seed: int = 0,
    steps: int = 1000,
    clips: int = 12_800,
    batch: int = 16,
    questions: int = 2,
    threads: int = 1,
) -> None:
    """Build the weights.

    Args:
        out: folder to write.
        seed: decides clips, lessons and initial weights.
        steps: optimizer steps.
        clips: distinct pretraining clips to draw.
        batch: clips per step.
        questions: questions asked about a clip at once; 1 is the plain recipe.
        threads: CPU threads. Two are faster on two idle cores, and many times slower on busy ones.
    """
    command = f"python -m vidvec_msg.tinyworld.build --seed {seed} --out DIR"
    defaults = inspect.signature(main).parameters
    for name, value in {
        "steps": steps,
        "clips": clips,
        "batch": batch,
        "questions": questions,
        "threads": threads,
    }.items():
        command += f" --{name} {value}" if value != defaults[name].default else ""
    begun = time.perf_counter()
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    size, schedule = ModelSize(), Schedule(steps=steps)
    tokenizer = train_tokenizer(tokenizer_texts(), size.vocabulary)
    processor, model = build_processor(tokenizer, size), build_model(tokenizer, size)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log.info(f"{parameters / 1e6:.2f} M parameters, {len(tokenizer)} tokens; drawing {clips} clips")
    frames, notes = draw_clips(clips, seed)
    drawn = time.perf_counter() - begun
    log.info(f"drawn in {drawn:.0f} s")
    lessons = Lessons(notes, seed=seed, clips=batch, questions=questions)
    records = pretrain(model, tokenizer, frames, lessons, schedule, seed=seed, log=log.info)
    # bf16 halves the file; what is measured below is what a user loads: the rounded weights
    model.to(torch.bfloat16).float()
    scores = {split: caption_scores(model, tokenizer, split) for split in ("validation", "combo")}
    model.to(torch.bfloat16).save_pretrained(out)
    processor.save_pretrained(out)
    summary = {
        "command": command,
        "seed": seed,
        "parameters": parameters,
        "tokens": len(tokenizer),
        "vocabulary_words": len(content_words(tokenizer_texts())),
        "clips": clips,
        "batch": batch,
        "questions": questions,
        "schedule": asdict(schedule),
        "size": asdict(size),
        "seconds": {"drawing": round(drawn, 1), "total": round(time.perf_counter() - begun, 1)},
        "threads": threads,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "captions": scores,
        "records": records,
    }
    (Path(out) / "build.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    write_card(Path(out), summary)
    log.info(f"captions {json.dumps(scores)}; {summary['seconds']} → {out}")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    auto_cli(main, as_positional=False)
