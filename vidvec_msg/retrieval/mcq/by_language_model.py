"""A multimodal LLM answers: by the likelihood of the options' letters, or by writing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from vidvec_msg.embedders.chat import Turn
from vidvec_msg.embedders.generative_model import GenerativeModel
from vidvec_msg.embedders.prompts import PROMPTS
from vidvec_msg.embedders.reading import ClipReader, ItemReader
from vidvec_msg.errors import Failure
from vidvec_msg.formats.items import Item
from vidvec_msg.media.frames import FramePolicy
from vidvec_msg.media.limits import shared_pool
from vidvec_msg.retrieval.mcq.letters import LetterTokens
from vidvec_msg.retrieval.mcq.question import LETTERS, Answer, Question, best_option, wording
from vidvec_msg.retrieval.mcq.reading import option_meant
from vidvec_msg.runs import digest_of

Read = Literal["letters", "generate"]


class LanguageModelAnswerer:
    """A generative model of any family behind ``AutoModelForImageTextToText``; a plain LLM reads storylines.

    One question at a time: an answer does not depend on its neighbours.

    Args:
        model: ``tinyworld``, a checkpoint folder, or a hub name.
        read: "letters" takes the option whose letter is likeliest as the answer's first token; "generate"
            lets the model write and reads that strictly.
        revision: commit of a hub model.
        adapter: folder of a LoRA adapter.
        fps: frames taken per second of clip.
        max_frames: frames per clip at most.
        max_pixels: height x width of a frame at most; 0 leaves it to the model's processor.
        transcript: quote what is said in the clip (its row's ``transcript``).
        sound: let the model hear the clip, where the family does (Qwen2.5-Omni, Qwen3-Omni).
        max_tokens: words of a question with its options and transcript in tokens; a longer one fails.
        new_tokens: tokens that the model may write (read=generate).
        device: "auto" (GPU if there is one), "cpu", "cuda", "cuda:1".
        dtype: "float32", "bfloat16", "float16", or "auto" as for embedders.
        decode_timeout: seconds one clip may take to decode.
        decode_workers: clips decoded side by side.
        trust_remote_code: run Python files that come with the model.
        name: for tables.

    Raises:
        ValueError: an option has a value that is not accepted.
        RefusedRequest: the model cannot be loaded, or cannot generate.
    """

    sees_letters = True

    def __init__(
        self,
        model: str,
        *,
        read: Read = "letters",
        revision: str | None = None,
        adapter: str | None = None,
        fps: float = 1.0,
        max_frames: int = 64,
        max_pixels: int = 0,
        transcript: bool = False,
        sound: bool = False,
        max_tokens: int = 4096,
        new_tokens: int = 16,
        device: str = "auto",
        dtype: str = "auto",
        decode_timeout: float = 120.0,
        decode_workers: int = 2,
        trust_remote_code: bool = False,
        name: str | None = None,
    ) -> None:
        if read not in ("letters", "generate"):
            raise ValueError(f"read must be letters or generate, got {read!r}")
        if new_tokens < 1 or max_tokens < 1:
            raise ValueError(
                f"new_tokens and max_tokens must be at least 1, got {new_tokens} and {max_tokens}"
            )
        policy = FramePolicy(fps=fps, max_frames=max_frames, max_pixels=max_pixels)
        self._model = GenerativeModel(
            model,
            revision=revision,
            adapter=adapter,
            max_pixels=max_pixels,
            device=device,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
        )
        self.chat, self.full, modalities = self._model.chat, self._model.full, self._model.modalities
        pool = shared_pool(decode_workers, decode_timeout)
        listener = self._model.listener(pool, sound=sound)
        if listener is not None:
            modalities = (*modalities, "audio")
        clips = ClipReader(policy, pool)
        # words stand after the clip, where an embedder's reader puts transcripts
        self._reader = ItemReader(
            self.chat, PROMPTS["plain"], clips, "after", max_tokens, modalities, listener
        )
        self._read, self._transcript, self._new_tokens = read, transcript, new_tokens
        self._letters = LetterTokens(self.chat.tokenizer, LETTERS, model=model) if read == "letters" else None
        self.name = name or f"{self._model.name} ({'likeliest letter' if read == 'letters' else 'writes'})"
        self.fingerprint = digest_of({
            "weights": self._model.digest, "read": read, "transcript": transcript,
            "sound": sound, "fps": fps, "max_frames": max_frames, "max_pixels": max_pixels,
            "new_tokens": new_tokens if read == "generate" else None, "dtype": str(self.full.dtype),
        })[:16]  # fmt: skip

    def answers(
        self, questions: Sequence[Question], *, with_clip: bool, failures: list[Failure]
    ) -> Iterator[Answer]:
        """See :class:`~vidvec_msg.retrieval.mcq.answerer.Answerer`. Clips are decoded ahead."""
        ending = "" if self.chat.template else "\nAnswer:"  # a model without turns goes on with the text
        items = [
            _worded(one, wording(one, with_clip=with_clip, transcript=self._transcript) + ending, with_clip)
            for one in questions
        ]
        unread: list[Failure] = []
        for row, turn in self._reader.stream(items, unread):
            question = questions[row]
            if turn.cut:
                reason = f"{turn.cut} tokens of the question do not fit max_tokens={self._reader.max_tokens}"
                unread.append(Failure(question.id, reason))
                continue
            try:
                yield self._answer(question, turn)
            except FloatingPointError as error:
                unread.append(Failure(question.id, str(error)))
        failures += unread

    def _answer(self, question: Question, turn: Turn) -> Answer:
        inputs = self._model.inputs([turn])
        if self._letters is None:
            written = self._written(inputs)
            return Answer(question.id, option_meant(written, question), raw=written)
        tokens = inputs["input_ids"].shape[1]
        logits = self._model.last_logits({**inputs, "use_cache": False}, [tokens])[0]  # (vocabulary,)
        scores, mass = self._letters.log_likelihoods(logits, question.letters)
        chosen, tied = best_option(scores, [option.id for option in question.options])
        return Answer(question.id, chosen, scores, mass=mass, tied=tied)

    def _written(self, inputs: dict[str, Any]) -> str:
        tokenizer = self.chat.tokenizer
        with torch.inference_mode():
            ids = self.full.generate(
                **inputs,
                max_new_tokens=self._new_tokens,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
        new = ids[0, inputs["input_ids"].shape[1] :]
        return str(tokenizer.decode(new, skip_special_tokens=True))


def _worded(question: Question, words: str, with_clip: bool) -> Item:
    """The clip with the question behind it, or the question alone, for an embedder's reader."""
    if not with_clip:
        return Item(question.id, text=words)
    clip = replace(question.clip, id=question.id)
    if clip.modality == "text":  # a storyline that stands for a clip
        return Item(question.id, text=f"{clip.full_text}\n\n{words}")
    return replace(clip, transcript=words)
