"""The yes/no skill: an adapter is taught to say whether a clip shows a sentence.

On clip–caption matching (`matching`), never on messages. The model is asked in a published wording, clip
first, and the first token of its answer is what counts (`vidvec_msg.retrieval.reranking`). Its tokenizer
writes "Yes" as two tokens; the first of them, which is also the whole word "Y", stands for yes, and "No", one
token, for no.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, VideoLlama3ForConditionalGeneration

from vidvec_msg.tinyworld.lessons import Lesson, Question
from vidvec_msg.tinyworld.matching import first_sentences, taught_sentences
from vidvec_msg.tinyworld.model import encode_frames, patchify
from vidvec_msg.tinyworld.muon import Muon
from vidvec_msg.tinyworld.pretrain import Packed, Packer, Schedule, read_states
from vidvec_msg.tinyworld.scenes import Cast
from vidvec_msg.tinyworld.stories import Story

WORDINGS = (
    "\n{text}\nRespond in a single word - Yes or No.",
    "\n{text}\nDoes the video match the sentence? Answer with a single word - Yes or No.",
)
"""What stands behind the clip, as `vidvec_msg.retrieval.reranking.wording` has it. The first one is
taught, for its length: the other takes twice the tokens."""

YES, NO = "Y", "No"
"""The answers, one token each."""

SEED = 4_000
"""First word of the generators' seed sequences, and added to the seed of `lessons.draw_clips`: no clip of
pretraining or of a collection is drawn again."""

# tokens of the wording and of the turn behind it: at all of them the sentence has been read
_DECIDING = 14

_REPORT = 10  # steps


@torch.no_grad()
def see(model: VideoLlama3ForConditionalGeneration, frames: np.ndarray, *, batch: int = 64) -> torch.Tensor:
    """The vision tower's features of clips, computed once: it does not learn here.

    Args:
        model: the model.
        frames: (clips, 8, 48, 48, 3) uint8.
        batch: clips at once.

    Returns:
        (clips, 72, width) float16, half the memory of float32.
    """
    patch = model.config.vision_config.patch_size
    seen = []
    for at in range(0, len(frames), batch):
        some = torch.from_numpy(frames[at : at + batch])
        features = encode_frames(model, patchify(some.flatten(0, 1), patch))  # (clips * 8, 9, width)
        seen.append(features.reshape(len(some), -1, features.shape[-1]).half())
    return torch.cat(seen)


def ask(packer: Packer, asked: Sequence[Sequence[str]], offsets: Sequence[int]) -> Packed:
    """Questions about clips, side by side behind their clip; read where the first token of the answer would
    be predicted.

    Args:
        packer: of the model's tokenizer.
        asked: for every clip, its questions: a wording with its sentence filled in.
        offsets: first sampled frame of every clip.
    """
    lessons = [
        # with an empty answer the one token to predict is the one behind the prompt
        Lesson("", None, row, tuple(Question(text, "") for text in texts))
        for row, texts in enumerate(asked)
    ]
    return packer.pack(lessons, offsets)


def answer_loss(
    model: VideoLlama3ForConditionalGeneration,
    batch: Packed,
    features: torch.Tensor,
    matches: torch.Tensor,
    answers: tuple[int, int],
) -> tuple[torch.Tensor, torch.Tensor]:
    """What is wrong with the answers.

    Four terms: yes against no at the answer; the same, at half the weight, at the tokens of the question
    behind the sentence, without which the first hundred steps teach nothing; right sentences of a clip above
    its wrong ones; and, at a tenth, all tokens of the vocabulary, so that nothing but yes and no is answered.

    Args:
        model: the model.
        batch: from `ask`; every clip has as many questions as the others, right ones first.
        features: (clips, 72, width), from `see`.
        matches: (questions,) bool.
        answers: token ids of yes and no.

    Returns:
        the loss, and the log-odds of yes against no (questions,).
    """
    clips, (yes, no) = len(batch.ids), answers
    places = (batch.reads[:, None] - torch.arange(_DECIDING)).flatten()  # the answer's and those before
    deciding = Packed(batch.ids, batch.positions, batch.mask, places, batch.targets, batch.weights)
    states = read_states(model, deciding, features.float())
    states = states.reshape(len(matches), _DECIDING, -1)  # (questions, places, width)
    words = model.lm_head.weight
    odds = states @ (words[yes] - words[no])  # (questions, places)
    wanted = matches.float()[:, None].expand_as(odds)
    unsure = functional.binary_cross_entropy_with_logits(odds, wanted, reduction="none").mean(dim=0)
    by_clip = odds[:, 0].reshape(clips, -1)  # (clips, questions of each)
    half = by_clip.shape[1] // 2
    order = functional.softplus(by_clip[:, None, half:] - by_clip[:, :half, None]).mean()
    all_words = functional.cross_entropy(model.lm_head(states[:, 0]), torch.where(matches, yes, no))
    return unsure[0] + 0.5 * unsure[1:].mean() + 0.5 * order + 0.1 * all_words, odds[:, 0].detach()


def teach(
    model: VideoLlama3ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    features: torch.Tensor,
    notes: Sequence[tuple[Story, Cast, int]],
    schedule: Schedule,
    *,
    seed: int,
    batch: int = 16,
    easy: int = 130,
    log: Callable[[str], None] = print,
) -> list[dict[str, float]]:
    """Train the adapter that is on the model, in place.

    Args:
        model: with LoRA on its language model, everything else frozen.
        tokenizer: its tokenizer.
        features: (clips, 72, width), from `see`.
        notes: story, cast and first sampled frame of every clip.
        schedule: steps and rates.
        seed: of the order of clips, and of the sentences.
        batch: clips a step; each is asked four questions.
        easy: steps at the beginning in which all wrong sentences tell of other stories.
        log: called with a line every 10 steps.

    Returns:
        One record per 10 steps: step, seconds, loss and share of right answers (means over the 10).
    """
    packer, rng = Packer(tokenizer), np.random.default_rng([SEED, seed])
    answers = packer.ids(YES)[0], packer.ids(NO)[0]
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = Muon(learned, lr=schedule.lr, weight_decay=schedule.weight_decay)
    order: list[int] = []
    records, sums, begun = [], np.zeros(2), time.perf_counter()
    model.train()
    for step in range(schedule.steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr * schedule.factor(step)
        if len(order) < batch:
            order = rng.permutation(len(notes)).tolist()
        rows, order = order[:batch], order[batch:]
        said = [(first_sentences if step < easy else taught_sentences)(*notes[row][:2], rng) for row in rows]
        asked = [[WORDINGS[0].format(text=one.text) for one in sentences] for sentences in said]
        matches = torch.tensor([one.matches for sentences in said for one in sentences])
        questions = ask(packer, asked, [notes[row][2] for row in rows])
        loss, odds = answer_loss(model, questions, features[rows], matches, answers)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        sums += (loss.item(), ((odds > 0) == matches).float().mean().item())
        if (step + 1) % _REPORT == 0:
            seconds = time.perf_counter() - begun
            mean, right = (sums / _REPORT).round(4).tolist()
            records.append({"step": step + 1, "seconds": round(seconds, 1), "loss": mean, "right": right})
            log(f"step {step + 1}/{schedule.steps}  {seconds:.0f} s  loss {mean:.3f}  right {right:.1%}")
            sums[:] = 0
    model.eval()
    return records
