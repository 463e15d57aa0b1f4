"""Pretraining: next-token prediction on `lessons`, from random weights to a model that says what it sees.

The prefix of a clip (80 tokens of pixels) is encoded once and shared by its questions, which cannot see
each other; in the one-word answers attention reaches only the last prompt token, so that token must carry
the content. That is the position every embedder reads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, VideoLlama3ForConditionalGeneration

from vidvec_msg.tinyworld.clips import FPS, MODEL_FPS, MODEL_FRAMES
from vidvec_msg.tinyworld.lessons import Lesson, Lessons
from vidvec_msg.tinyworld.model import ASSISTANT, END, USER, VIDEO, encode_frames, patchify
from vidvec_msg.tinyworld.muon import Muon


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast.

    Args:
        steps: optimizer steps.
        lr: peak learning rate, of Muon (matrices) and AdamW (the rest) alike.
        warmup: steps of linear warm-up.
        cooldown: share of the steps at the end in which the rate falls linearly to zero.
        weight_decay: decoupled, on matrices.
    """

    steps: int = 1000
    lr: float = 2e-3
    warmup: int = 40
    cooldown: float = 0.4
    weight_decay: float = 0.01

    def factor(self, step: int) -> float:
        """The share of the peak rate at a step."""
        left = (self.steps - step) / max(1.0, self.cooldown * self.steps)
        return min(1.0, (step + 1) / self.warmup, left)


@dataclass(slots=True)
class Packed:
    """A batch ready for the language model; rows hold a prefix and its questions side by side.

    Args:
        ids: (rows, length) token ids.
        positions: (rows, length) rotary positions; every question continues where the prefix ends.
        mask: (rows, 1, length, length) additive attention mask.
        reads: (targets,) flat positions whose output predicts a token.
        targets: (targets,) that token.
        weights: (targets,) 1/√length of its answer.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    reads: torch.Tensor
    targets: torch.Tensor
    weights: torch.Tensor


def video_prefix(offset: int = 0) -> str:
    """The user turn up to the end of the clip, as the stock processor writes it for 8 frames of 9 patches."""
    times = [number / MODEL_FPS + offset / FPS for number in range(MODEL_FRAMES)]
    return USER + ",".join(f"Time {second:.1f}s:" + VIDEO * 9 for second in times)


class Packer:
    """Turns lessons into `Packed` batches; token ids of repeated texts are kept."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        if text not in self._known:
            self._known[text] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return self._known[text]

    def pack(self, lessons: Sequence[Lesson], offsets: Sequence[int] | None = None) -> Packed:
        """Pack lessons, all clips (with the first sampled frame of each) or all texts."""
        turn = self.ids(END + ASSISTANT)
        rows = []
        for number, lesson in enumerate(lessons):
            # token, position, question (0 is the prefix), answer?, last prompt token?
            tokens: list[tuple[int, int, int, bool, bool]] = []
            read: list[tuple[int, int, float]] = []
            prefix = self.ids(video_prefix(offsets[number])) if offsets is not None else []
            tokens += [(token, place, 0, False, False) for place, token in enumerate(prefix)]
            for index, question in enumerate(lesson.questions, start=1):
                prompt = (
                    self.ids(question.prompt)
                    if lesson.text is None
                    else self.ids(USER + lesson.text + question.prompt)
                )
                prompt = [*prompt, *turn]
                answer = [*self.ids(question.answer), self.tokenizer.eos_token_id]
                start = len(tokens)
                for place, token in enumerate(prompt):
                    tokens.append((token, len(prefix) + place, index, False, place == len(prompt) - 1))
                for place, token in enumerate(answer[:-1]):
                    tokens.append(
                        (token, len(prefix) + len(prompt) + place, index, question.from_last, False)
                    )
                first = start + len(prompt) - 1
                read += [(first + place, token, len(answer) ** -0.5) for place, token in enumerate(answer)]
            rows.append((tokens, read))
        length = max(len(tokens) for tokens, _ in rows)
        table = np.zeros((len(rows), length, 5), dtype=np.int64)
        table[:, :, 0] = self.tokenizer.pad_token_id
        table[:, :, 2] = -1
        reads, targets, weights = [], [], []
        for row, (tokens, read) in enumerate(rows):
            table[row, : len(tokens)] = tokens
            reads += [row * length + place for place, _, _ in read]
            targets += [token for _, token, _ in read]
            weights += [weight for _, _, weight in read]
        return Packed(
            ids=torch.from_numpy(table[:, :, 0].copy()),
            positions=torch.from_numpy(table[:, :, 1].copy()),
            mask=torch.from_numpy(_mask(table)),
            reads=torch.tensor(reads),
            targets=torch.tensor(targets),
            weights=torch.tensor(weights),
        )


def _mask(table: np.ndarray) -> np.ndarray:
    """(rows, 1, length, length) float32: 0 where attention may reach, -1e9 elsewhere; see `Packer.pack`."""
    question, bottleneck, last = table[:, :, 2], table[:, :, 3] > 0, table[:, :, 4] > 0
    length = table.shape[1]
    causal = np.tri(length, dtype=bool)[None]
    same = question[:, :, None] == question[:, None, :]
    shared = (question == 0)[:, None, :] | same
    narrow = same & (bottleneck | last)[:, None, :]
    allowed = causal & np.where(bottleneck[:, :, None], narrow, shared)
    allowed |= np.eye(length, dtype=bool)[
        None
    ]  # padding sees itself: a row with nothing to see is not a number
    return np.where(allowed, np.float32(0), np.float32(-1e9))[:, None]


def packed_loss(
    model: VideoLlama3ForConditionalGeneration, batch: Packed, patches: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean over answers of their summed cross-entropy over the square root of their length.

    Args:
        model: the model.
        batch: from `Packer.pack`.
        patches: (rows * 8, 9, patch pixels) for clip lessons, None for texts.
    """
    features = None if patches is None else encode_frames(model, patches)
    chosen = read_states(model, batch, features)  # (targets, width)
    losses = functional.cross_entropy(model.lm_head(chosen), batch.targets, reduction="none")
    return (losses * batch.weights).sum() / batch.ids.shape[0]


def read_states(
    model: VideoLlama3ForConditionalGeneration, batch: Packed, features: torch.Tensor | None
) -> torch.Tensor:
    """The normed final states at the positions that predict a token.

    Args:
        model: the model.
        batch: from `Packer.pack`.
        features: (rows * 8, 9, width) of `encode_frames` for clip lessons, None for texts.

    Returns:
        (targets, width).
    """
    tower = model.model.language_model
    embedded = tower.embed_tokens(batch.ids)  # (rows, length, width)
    if features is not None:
        slots = (batch.ids == model.config.video_token_id).unsqueeze(-1)
        embedded = embedded.masked_scatter(slots, features.reshape(-1, features.shape[-1]))
    hidden = tower(
        inputs_embeds=embedded, attention_mask=batch.mask, position_ids=batch.positions, use_cache=False
    ).last_hidden_state
    states: torch.Tensor = hidden.reshape(-1, hidden.shape[-1])[batch.reads]
    return states


def roughen(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Light wear, so that a codec or another resize does not surprise: gain, offset, noise, a little blur.

    Args:
        frames: (clips, frames, height, width, 3) uint8.
        rng: source of the wear; brightness is one draw a clip, noise one a pixel.
    """
    shape = (len(frames), 1, 1, 1, 1)
    pixels = frames.astype(np.float32)
    soft = rng.random(shape, dtype=np.float32) * 0.5 - 0.15  # below 0 sharpens: bicubic resizing does
    near = (
        np.roll(pixels, 1, 2) + np.roll(pixels, -1, 2) + np.roll(pixels, 1, 3) + np.roll(pixels, -1, 3)
    ) / 4
    pixels += soft * (near - pixels)
    gain = 1 + 0.12 * (rng.random(shape, dtype=np.float32) - 0.5)
    shift = 14 * (rng.random(shape, dtype=np.float32) - 0.5)
    noise = rng.standard_normal(pixels.shape, dtype=np.float32) * (4 * rng.random(shape, dtype=np.float32))
    worn: np.ndarray = np.clip(pixels * gain + shift + noise, 0, 255).astype(np.uint8)
    return worn


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """(matrices, for Muon; embeddings, norms, biases and the patch filter, for AdamW)."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed_tokens" not in name else rest).append(parameter)
    return matrices, rest


def pretrain(
    model: VideoLlama3ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    frames: np.ndarray,
    lessons: Lessons,
    schedule: Schedule,
    *,
    seed: int,
    log: Callable[[str], None] = print,
) -> list[dict[str, float]]:
    """Train in place.

    Args:
        model: with random weights.
        tokenizer: its tokenizer.
        frames: (clips, 8, 48, 48, 3) uint8, the rows `lessons` points to.
        lessons: the stream of batches.
        schedule: steps and rates.
        seed: of the wear on frames.
        log: called with a line every 50 steps.

    Returns:
        One record per 50 steps: step, seconds, clip and text loss (means over the 50).
    """
    matrices, rest = split_parameters(model)
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=schedule.lr, weight_decay=schedule.weight_decay),
        torch.optim.AdamW(rest, lr=schedule.lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    packer, wear = Packer(tokenizer), np.random.default_rng([3_000, seed])
    patch = model.config.vision_config.patch_size
    records, sums, begun = [], np.zeros(2), time.perf_counter()
    model.train()
    for step in range(schedule.steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = schedule.lr * schedule.factor(step)
        seen, read = lessons.next_batch()
        rows = [lesson.clip for lesson in seen if lesson.clip is not None]
        picked = roughen(frames[rows], wear)
        patches = patchify(torch.from_numpy(picked).flatten(0, 1), patch)
        offsets = [lessons.notes[row][2] for row in rows]
        clip_loss = packed_loss(model, packer.pack(seen, offsets), patches)
        clip_loss.backward()  # type: ignore[no-untyped-call]
        text_loss = packed_loss(model, packer.pack(read))
        text_loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(rest, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        sums += (clip_loss.item(), text_loss.item())
        if not math.isfinite(sums.sum()):
            raise FloatingPointError(
                f"the loss is no longer finite at step {step}; lower the rate ({schedule.lr})"
            )
        if (step + 1) % 50 == 0:
            seconds = time.perf_counter() - begun
            clip, text = sums / 50
            records.append(
                {
                    "step": step + 1,
                    "seconds": round(seconds, 1),
                    "clip": round(clip, 4),
                    "text": round(text, 4),
                }
            )
            done = f"step {step + 1}/{schedule.steps}  {seconds:.0f} s"
            log(f"{done}  clip loss {clip:.3f}  text loss {text:.3f}")
            sums[:] = 0
    model.eval()
    return records
